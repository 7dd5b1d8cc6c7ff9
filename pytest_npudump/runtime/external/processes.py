"""Child processes in a group of their own: a time limit, the end of all they started, their last words."""

from __future__ import annotations

import os
import signal
import subprocess
import threading
import time
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import IO, TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from pathlib import Path

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
    patience = _GRACE if grace is None else grace
    with interruptible():
        with _held():  # who is interrupted here would not know what to end
            process = subprocess.Popen(  # noqa: S603 - the program that a test names, or this interpreter
                command,
                cwd=cwd,
                env=env,
                stdin=subprocess.DEVNULL,
                stdout=files[0],
                stderr=files[1],
                start_new_session=True,
                pass_fds=pass_fds,
            )
        try:
            with _guard(process.pid, patience):
                return process.wait(timeout)
        finally:
            _end_group(process, patience)


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
def _guard(group: int, grace: float) -> Iterator[None]:
    """Have a process group ended should this process be killed: a shell waits for the end of its pipe."""
    script = f"read _; kill -TERM -{group}; sleep {grace:g}; kill -KILL -{group}"
    guard = subprocess.Popen(  # noqa: S603 - a fixed script
        ["/bin/sh", "-c", script],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        yield
    finally:
        guard.kill()
        guard.communicate()


def _end_group(process: subprocess.Popen[bytes], grace: float) -> None:
    """End every process of the group, and collect the program itself."""
    try:
        _signal(process.pid, signal.SIGTERM)
        until = time.monotonic() + grace
        while _lives(process) and time.monotonic() < until:
            time.sleep(0.02)
    finally:
        _signal(process.pid, signal.SIGKILL)
        process.wait()


def _lives(process: subprocess.Popen[bytes]) -> bool:
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
