"""Programs of their own process, and a dump configuration where they look for their own.

Each is in a group of its own, so that all it started ends with it. That a file was read shows the time of its
last reading.

The file that was there is renamed to ``NAME.npudump-backup-DIGEST``, where the digest is that of the content
put in its place; where there was none, an empty ``NAME.npudump-absent-DIGEST`` says so. A run that is killed
leaves one of the two behind; the next run puts the file back, unless somebody has changed it in between.
"""

from __future__ import annotations

import errno
import json
import os
import re
import shlex
import signal
import subprocess
import threading
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from hashlib import blake2b
from itertools import chain, count
from pathlib import Path
from typing import IO, Any, Protocol

from pytest_npudump.config.json_file import StrictJsonError, parse, read_config_file
from pytest_npudump.errors import ConfigError, NpudumpError, RequestError
from pytest_npudump.storage.atomic import held, lock_file


@dataclass(frozen=True, slots=True)
class ExternalRun:
    """A program that has ended.

    Attributes:
        command: the program and its arguments.
        returncode: its exit code; ``-N`` where signal ``N`` ended it.
        seconds: how long it ran.
        stdout: file with what it printed.
        stderr: file with what it printed to standard error.
    """

    command: tuple[str, ...]
    returncode: int
    seconds: float
    stdout: Path
    stderr: Path


class ExternalProgramError(NpudumpError):
    """An external program that cannot be started, fails, or does not end in time."""


def origin_of_program(facts: Mapping[str, str]) -> dict[str, str]:
    """Return the facts of origin where a program of its own process made the dump.

    Of what the session's runtime says only the chip holds for the program too, and of the emulator's
    nothing: the program may well run on a device that is not the tests' own.

    Args:
        facts: what the session's runtime says of itself.
    """
    kept = ("soc",) if facts["runtime"] != "emulator" else ()
    return {"runtime": "external", **{name: facts[name] for name in kept if name in facts}}


def command_of(words: Sequence[str | os.PathLike[str]]) -> tuple[str, ...]:
    """Return a program and its arguments as strings.

    Raises:
        RequestError: not a list, empty, or something else than strings and paths in it.
    """
    if isinstance(words, str | bytes | os.PathLike) or not words:
        raise RequestError(
            f"run({words!r}): expected a list of the program and its arguments: ['./main', 'x']"
        )
    command = []
    for word in words:
        text = os.fspath(word) if isinstance(word, str | os.PathLike) else None
        if not isinstance(text, str):
            raise RequestError(f"run({words!r}): {word!r} is neither a string nor a path")
        command.append(text)
    return tuple(command)


def run_program(
    command: tuple[str, ...],
    *,
    cwd: Path,
    output: Path,
    timeout: float,
    check: bool = True,
    env: Mapping[str, str] | None = None,
) -> ExternalRun:
    """Run a program in its own process group and wait for its end.

    At the end of the time limit, and where this process is interrupted, the whole group is ended: by SIGTERM,
    and five seconds later by SIGKILL. So are processes that the program leaves behind when it ends.

    Args:
        command: the program and its arguments; no shell takes part.
        cwd: its working directory, which a relative path of the program starts from.
        output: directory for ``stdout.txt`` and ``stderr.txt`` (``stdout-2.txt`` for a second program ...).
        timeout: seconds it may run.
        check: whether an exit code other than 0 is an error.
        env: variables set in addition to those of this process.

    Raises:
        ExternalProgramError: it cannot be started, does not end in time, or (with ``check``) fails.
        RequestError: ``timeout`` is no number greater than 0.
    """
    if isinstance(timeout, bool) or not isinstance(timeout, int | float) or not 0 < timeout < float("inf"):
        raise RequestError(f"run(timeout={timeout!r}): expected a number of seconds greater than 0")
    suffixes = chain([""], (f"-{number}" for number in count(2)))
    pairs = ((output / f"stdout{suffix}.txt", output / f"stderr{suffix}.txt") for suffix in suffixes)
    stdout, stderr = next(pair for pair in pairs if not any(path.exists() for path in pair))
    began = time.monotonic()
    try:
        with stdout.open("wb") as out, stderr.open("wb") as err:
            code = run_in_group(command, cwd, {**os.environ, **(env or {})}, timeout, (out, err))
    except subprocess.TimeoutExpired:
        raise _error(
            command,
            f"did not end within {timeout:g} seconds and was ended",
            stdout,
            stderr,
        ) from None
    except (OSError, ValueError) as error:
        raise ExternalProgramError(f"{shlex.join(command)}: cannot be started in {cwd}: {error}") from error
    if check and code != 0:
        raise _error(command, how_it_ended(code), stdout, stderr)
    return ExternalRun(command, code, time.monotonic() - began, stdout, stderr)


def _error(command: tuple[str, ...], what: str, stdout: Path, stderr: Path) -> ExternalProgramError:
    parts = [f"{shlex.join(command)} {what}"]
    for name, path in (("stdout", stdout), ("stderr", stderr)):
        lines = last_lines(path)
        parts += [f"--- end of {name} ---", *lines] if lines else [f"--- {name} is empty ---"]
    parts.append(f"(-o npudump_keep_dumps=all keeps the whole output, in {stdout.parent})")
    return ExternalProgramError("\n".join(parts))


_GRACE = 5.0
_ENDINGS = (signal.SIGTERM, signal.SIGHUP)
_LINES = 20
_TAIL = 8 * 1024
_CONTROLS = {code: f"\\x{code:02x}" for code in (*range(9), *range(11, 32), *range(127, 160))}


def run_in_group(
    command: Sequence[str],
    cwd: Path,
    env: Mapping[str, str],
    timeout: float,
    files: tuple[IO[bytes], IO[bytes]],
    *,
    grace: float | None = None,
) -> int:
    """Run a program in its own process group and wait for its end.

    At the end of the time limit, and where this process is interrupted or killed, the whole group is ended:
    by SIGTERM, and ``grace`` seconds later by SIGKILL. So are processes that the program leaves behind.

    Args:
        command: the program and its arguments; no shell takes part.
        cwd: its working directory.
        env: all of its environment.
        timeout: seconds it may run.
        files: where its output and its errors go.
        grace: seconds between the two signals; None for 5.

    Returns:
        Its exit code; ``-N`` where signal ``N`` ended it.

    Raises:
        subprocess.TimeoutExpired: it did not end in time, and was ended.
        OSError: it cannot be started.
    """
    start = partial(
        subprocess.Popen[bytes],
        command,
        cwd=cwd,
        env=env,
        stdin=subprocess.DEVNULL,
        stdout=files[0],
        stderr=files[1],
        start_new_session=True,
    )
    return supervised(start, timeout, _GRACE if grace is None else grace)


class Running(Protocol):
    """A process that leads a group, as :class:`subprocess.Popen` is one."""

    @property
    def pid(self) -> int:
        """Its number, and that of its group."""

    def poll(self) -> int | None:
        """Return its exit code, None while it runs."""

    def wait(self, timeout: float | None = None) -> int:
        """Wait for its exit code; raise :class:`subprocess.TimeoutExpired` where it does not end in time."""


def supervised(start: Callable[[], Running], timeout: float, grace: float) -> int:
    """Start a process, wait for its end, and end its group as in :func:`run_in_group`."""
    with interruptible(), _guard(grace) as watch:
        process = None
        try:
            with _held():  # who is interrupted here would not know what to end
                process = start()
                watch(process.pid)
            return process.wait(timeout)
        finally:
            if process is not None:
                try:
                    _signal(process.pid, signal.SIGTERM)
                    until = time.monotonic() + grace
                    while _lives(process) and time.monotonic() < until:
                        time.sleep(0.02)
                finally:
                    _signal(process.pid, signal.SIGKILL)
                    process.wait()


@contextmanager
def interruptible() -> Iterator[None]:
    """Let SIGTERM and SIGHUP end the block as Ctrl-C does, so that what it has begun is undone.

    Only in the main thread, and where nobody else has a handler: a cancelled job sends them to pytest, which
    dies of them at once.
    """
    changed = []
    if threading.current_thread() is threading.main_thread():
        changed = [number for number in _ENDINGS if signal.getsignal(number) is signal.SIG_DFL]
    for number in changed:
        signal.signal(number, _interrupt)
    try:
        yield
    finally:
        for number in changed:
            signal.signal(number, signal.SIG_DFL)


def interrupt_on_termination() -> None:
    """Let SIGTERM and SIGHUP end this process as Ctrl-C does, for the rest of its life."""
    for number in _ENDINGS:
        signal.signal(number, _interrupt)


@dataclass(slots=True)
class _Hold:
    """Delay of interrupting signals: whether it is on, and the signal that waits."""

    on: bool = False
    waiting: int = 0


_HOLD = _Hold()
"""Of this process, as its signal handlers are."""


@contextmanager
def _held() -> Iterator[None]:
    """Keep the handlers of :func:`interruptible` from interrupting the block; they do so behind it."""
    _HOLD.on = True
    try:
        yield
    finally:
        _HOLD.on = False
    if _HOLD.waiting:
        number, _HOLD.waiting = _HOLD.waiting, 0
        raise KeyboardInterrupt(signal.Signals(number).name)


def _interrupt(number: int, _frame: object) -> None:
    if _HOLD.on:
        _HOLD.waiting = number
        return
    raise KeyboardInterrupt(signal.Signals(number).name)


@contextmanager
def _guard(grace: float) -> Iterator[Callable[[int], None]]:
    """Give a function that has a process group ended should this process be killed.

    A shell waits for the end of its pipe. It starts before the group does, so that hardly a moment is left in
    which the group has no guard.
    """
    script = f"read group || exit; read _; kill -TERM -$group; sleep {grace:g}; kill -KILL -$group"
    guard = subprocess.Popen(  # noqa: S603 - a fixed script
        ["/bin/sh", "-c", script],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )

    def watch(group: int) -> None:
        assert guard.stdin is not None  # noqa: S101 - a pipe
        guard.stdin.write(b"%d\n" % group)
        guard.stdin.flush()

    try:
        yield watch
    finally:
        guard.kill()
        guard.communicate()


def _lives(process: Running) -> bool:
    process.poll()
    try:
        os.killpg(process.pid, 0)
    except (ProcessLookupError, PermissionError):
        return False
    return True


def _signal(group: int, number: int) -> None:
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(group, number)


def how_it_ended(code: int) -> str:
    """Return an exit code in words: ``ended with exit code 3``, ``was ended by SIGSEGV``."""
    if code >= 0:
        return f"ended with exit code {code}"
    try:
        return f"was ended by {signal.Signals(-code).name}"
    except ValueError:
        return f"was ended by signal {-code}"


_C_STACK = re.compile(r"^Current thread's C stack trace .*\n(?:  .*\n)*", re.MULTILINE)


def last_lines(path: Path, lines: int = _LINES) -> list[str]:
    """Return the last lines of a file, with control characters made visible."""
    with path.open("rb") as file:
        file.seek(max(0, file.seek(0, os.SEEK_END) - _TAIL))
        text = file.read().decode("utf-8", "replace")
    text = _C_STACK.sub("", text)  # of Python 3.14, in place of which the line of the test would be cut off
    return [line.translate(_CONTROLS) for line in text.split("\n") if line.strip()][-lines:]


_DAYS = 2 * 24 * 3600 * 10**9


@dataclass(frozen=True, slots=True)
class Placed:
    """A configuration in its place, and whether anybody has read it there.

    Attributes:
        target: the file.
        unknown: why that cannot be known; "" if it can.
    """

    target: Path
    unknown: str
    _marked: os.stat_result | None

    @classmethod
    def watch(cls, target: Path) -> Placed:
        """Set the time of the file's last reading far back, and see whether reading it would change that.

        The time has to lie before that of the last change: with the mount option ``relatime`` only then does
        the first reading leave a trace.
        """
        try:
            _age(target)
            before = target.stat().st_atime_ns
            target.read_bytes()
            if target.stat().st_atime_ns == before:
                why = f"the file system of {target} does not record when a file is read (mounted noatime?)"
                return cls(target, why, None)
            _age(target)
            return cls(target, "", target.stat())
        except OSError as error:
            return cls(target, f"{target} cannot be looked at: {error.strerror or error}", None)

    def was_read(self) -> bool | None:
        """Return whether the file was read since; None where it was replaced or changed."""
        if self._marked is None:
            return None
        try:
            now = self.target.stat()
        except OSError:
            return None
        marked = self._marked
        if (now.st_ino, now.st_mtime_ns, now.st_size) != (marked.st_ino, marked.st_mtime_ns, marked.st_size):
            return None
        return now.st_atime_ns != marked.st_atime_ns


def _age(target: Path) -> None:
    changed = target.stat().st_mtime_ns
    os.utime(target, ns=(changed - _DAYS, changed))


_BACKUP = ".npudump-backup-"
_ABSENT = ".npudump-absent-"
_TEMPORARY = ".npudump-tmp"


class LeftBehindWarning(UserWarning):
    """A run that was killed had left its configuration in place; it has been taken away now."""


@dataclass(frozen=True, slots=True)
class _Leftover:
    """Backup of the file that was there before.

    Attributes:
        path: the backup, or the empty file that says there was none.
        absent: whether there was none.
        digest: that of the content put in its place.
    """

    path: Path
    absent: bool
    digest: str


@contextmanager
def placed(target: Path, config: Path) -> Iterator[Placed]:
    """Put the dump of one acl.json into another for the duration of the block.

    The file at ``target`` keeps everything but its key ``dump``. Afterwards it is what it was before, byte
    for byte and with its mode and time, however the block ends.

    Args:
        target: where a program expects its acl.json; a file that is there must be one CANN reads.
        config: the acl.json whose ``dump`` is put there.

    Raises:
        ConfigError: another run uses ``target``, its content is no acl.json, or it cannot be replaced.
    """
    with interruptible(), _exclusive(target):
        _restore_leftover(target)
        root: Any = {}
        if os.path.lexists(target):
            file = read_config_file(target)
            if file.reason is not None:
                raise ConfigError(f"acl_json {file.reason}")
            try:
                root = parse(file.text) if file.text else {}
            except StrictJsonError as error:
                raise ConfigError(
                    f"acl_json {target}: not JSON: {error}; correct it, or name another path"
                ) from None
            if not isinstance(root, dict):
                raise ConfigError(f"acl_json {target}: not a JSON object; correct it, or name another path")
        root["dump"] = json.loads(config.read_text(encoding="utf-8"))["dump"]
        content = (json.dumps(root, indent=2, ensure_ascii=False) + "\n").encode()
        try:
            _put(target, content)
            yield Placed.watch(target)
        finally:
            _put_back(target)


@contextmanager
def _exclusive(target: Path) -> Iterator[None]:
    """Keep other runs off ``target``; the lock lies beside it, where every user of the file finds it."""
    from filelock import Timeout  # noqa: PLC0415 - 25 ms that only such a run needs

    with ExitStack() as stack:
        try:
            if not target.parent.is_dir():
                raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT))
            # By a name that stays the same while a file takes the place of a link there.
            name = Path(os.path.realpath(target.parent)) / f"{target.name}{_TEMPORARY}"
            stack.enter_context(held(lock_file(name), 0))
        except Timeout:
            raise ConfigError(
                f"acl_json {target}: another run has put its configuration there; give each test a path of "
                f"its own, or run them one after another (pytest-xdist: --dist loadgroup and one xdist_group)"
            ) from None
        except OSError as error:
            raise _not_put(target, error) from error
        yield


def _put(target: Path, content: bytes) -> None:
    digest = _digest(content)
    temporary = target.with_name(f"{target.name}{_TEMPORARY}")
    try:
        temporary.unlink(missing_ok=True)
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(descriptor)
            if target.exists():
                os.fchmod(descriptor, target.stat().st_mode & 0o777)
        try:
            if os.path.lexists(target):
                target.rename(target.with_name(f"{target.name}{_BACKUP}{digest}"))
            else:
                target.with_name(f"{target.name}{_ABSENT}{digest}").touch(exist_ok=False)
            temporary.rename(target)
        finally:
            temporary.unlink(missing_ok=True)
    except OSError as error:
        raise _not_put(target, error) from error


def _not_put(target: Path, error: OSError) -> ConfigError:
    return ConfigError(
        f"acl_json {target}: a configuration cannot be put there: {error.strerror or error}; the folder "
        f"has to exist and to be writable"
    )


def _put_back(target: Path) -> None:
    leftover = _find(target)
    if leftover is None:
        return
    try:
        if leftover.absent:
            target.unlink(missing_ok=True)
            leftover.path.unlink()
        else:
            leftover.path.replace(target)
    except OSError as error:
        before = "there was none before" if leftover.absent else f"it is kept in {leftover.path}"
        raise ConfigError(
            f"acl_json {target}: the file cannot be put back: {error.strerror or error}; {before}"
        ) from error


def _restore_leftover(target: Path) -> None:
    leftover = _find(target)
    if leftover is None:
        return
    now = target.read_bytes() if target.is_file() else None
    if now is None or _digest(now) == leftover.digest:
        _put_back(target)
        state = "removed" if leftover.absent else "put back as it was before"
        warnings.warn(
            f"{target} was left by a run that was killed; it has been {state}",
            LeftBehindWarning,
            stacklevel=2,
        )
    elif leftover.absent or now == leftover.path.read_bytes():
        leftover.path.unlink()
    else:
        raise ConfigError(
            f"acl_json {target}: a run that was killed left the file as it was before in {leftover.path}, "
            f"and {target.name} has changed since: keep the one you want as {target.name}, delete the other"
        )


def _find(target: Path) -> _Leftover | None:
    prefixes = (f"{target.name}{_BACKUP}", f"{target.name}{_ABSENT}")
    try:
        found = [path for path in target.parent.iterdir() if path.name.startswith(prefixes)]
    except OSError:
        return None  # no folder, no leftover; what is wrong with it shows when the file is put there
    if len(found) > 1:
        names = ", ".join(sorted(path.name for path in found))
        raise ConfigError(
            f"acl_json {target}: {len(found)} backups lie beside it ({names}): keep one at most"
        )
    if not found:
        return None
    absent = found[0].name.startswith(prefixes[1])
    return _Leftover(found[0], absent, found[0].name.removeprefix(prefixes[absent]))


def _digest(content: bytes) -> str:
    return blake2b(content, digest_size=8).hexdigest()
