"""Child processes in a group of their own: a time limit, the end of all they started, their last words."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from contextlib import suppress
from typing import IO, TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

_GRACE = 5.0
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
    pass_fds: Sequence[int] = (),
) -> int:
    """Run a program in its own process group and wait for its end.

    At the end of the time limit, and where this process is interrupted, the whole group is ended: by SIGTERM,
    and five seconds later by SIGKILL. So are processes that the program leaves behind when it ends.

    Args:
        command: the program and its arguments; no shell takes part.
        cwd: its working directory.
        env: all of its environment.
        timeout: seconds it may run.
        files: where its output and its errors go.
        pass_fds: open files it inherits.

    Returns:
        Its exit code; ``-N`` where signal ``N`` ended it.

    Raises:
        subprocess.TimeoutExpired: it did not end in time, and was ended.
        OSError: it cannot be started.
    """
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
        return process.wait(timeout)
    finally:
        _end_group(process)


def _end_group(process: subprocess.Popen[bytes]) -> None:
    """End every process of the group, and collect the program itself."""
    try:
        _signal(process.pid, signal.SIGTERM)
        until = time.monotonic() + _GRACE
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
