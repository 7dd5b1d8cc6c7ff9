"""A program of its own process, run with a time limit, its output kept."""

from __future__ import annotations

import os
import shlex
import subprocess
import time
from dataclasses import dataclass
from itertools import count
from typing import TYPE_CHECKING

from pytest_npudump.errors import NpudumpError, RequestError
from pytest_npudump.runtime.external.processes import how_it_ended, last_lines, run_in_group

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
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
            command, f"did not end within {timeout:g} seconds and was ended", stdout, stderr
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
    parts.append(f"(--npudump-keep-dumps=all keeps the whole output, in {stdout.parent})")
    return ExternalProgramError("\n".join(parts))
