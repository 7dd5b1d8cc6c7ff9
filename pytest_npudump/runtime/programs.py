"""Programs of their own process: a time limit, their output kept, and whether they read their configuration.

Each is in a group of its own, so that all it started ends with it. That a file was read shows the time of its
last reading.
"""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import threading
import time
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from itertools import count
from typing import IO, TYPE_CHECKING, Protocol

from pytest_npudump.errors import NpudumpError, RequestError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from pathlib import Path


TIMEOUT = 600.0
"""Seconds a program may run unless the test says otherwise: compiling a model on the device takes minutes."""


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
    """Return what a golden records of its origin where a program of its own process made the dump.

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
    timeout: float = TIMEOUT,
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
    stdout, stderr = _output_files(output)
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


def _output_files(directory: Path) -> tuple[Path, Path]:
    for number in count(1):
        suffix = f"-{number}" if number > 1 else ""
        stdout, stderr = directory / f"stdout{suffix}.txt", directory / f"stderr{suffix}.txt"
        if not stdout.exists() and not stderr.exists():
            return stdout, stderr
    raise AssertionError


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
    pass_fds: Sequence[int] = (),
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
        pass_fds: open files it inherits.

    Returns:
        Its exit code; ``-N`` where signal ``N`` ended it.

    Raises:
        subprocess.TimeoutExpired: it did not end in time, and was ended.
        OSError: it cannot be started.
    """

    def start() -> subprocess.Popen[bytes]:
        return subprocess.Popen(  # noqa: S603 - the program that a test names, or this interpreter
            command,
            cwd=cwd,
            env=env,
            stdin=subprocess.DEVNULL,
            stdout=files[0],
            stderr=files[1],
            start_new_session=True,
            pass_fds=pass_fds,
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
    """Start a process, wait for its end, and end its group as :func:`run_in_group` says."""
    with interruptible(), _guard(grace) as watch:
        process = None
        try:
            with _held():  # who is interrupted here would not know what to end
                process = start()
                watch(process.pid)
            return process.wait(timeout)
        finally:
            if process is not None:
                _end_group(process, grace)


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


def interrupt_on_termination(before: Callable[[], None]) -> None:
    """Let SIGTERM and SIGHUP end this process as Ctrl-C does, for the rest of its life.

    Args:
        before: called first.
    """

    def interrupt(number: int, frame: object) -> None:
        before()
        _interrupt(number, frame)

    for number in _ENDINGS:
        signal.signal(number, interrupt)


@dataclass(slots=True)
class _Hold:
    """Whether a signal has to wait, and which one does."""

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


def _interrupt(number: int, frame: object) -> None:
    del frame
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


def _end_group(process: Running, grace: float) -> None:
    """End every process of the group, and collect the program itself."""
    try:
        _signal(process.pid, signal.SIGTERM)
        until = time.monotonic() + grace
        while _lives(process) and time.monotonic() < until:
            time.sleep(0.02)
    finally:
        _signal(process.pid, signal.SIGKILL)
        process.wait()


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


def last_lines(path: Path | int, lines: int = _LINES) -> list[str]:
    """Return the last lines of a file, or of a descriptor, with control characters made visible."""
    with open(path, "rb") as file:  # noqa: PTH123 - a path or a descriptor
        size = file.seek(0, os.SEEK_END)
        file.seek(max(0, size - _TAIL))
        text = file.read().decode("utf-8", "replace")
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
        """Whether the file was read since; None where that cannot be known, as it was replaced or changed."""
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
