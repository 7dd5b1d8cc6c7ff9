"""Output and endings of a command: lines, tables, JSON, files that a user names, and exit codes."""

from __future__ import annotations

import argparse
import os
import sys
import threading
import traceback
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, TextIO

from pytest_npudump.errors import NpudumpError
from pytest_npudump.language.text import hung, inert, padded, terminal_columns, width
from pytest_npudump.language.translation import gettext as _, spoken
from pytest_npudump.report.verdicts import plain

STANDARD_OUTPUT = "-"


def output_name(text: str) -> str:
    """Return the name of an output file; ``-`` for any name of standard output."""
    return STANDARD_OUTPUT if text in {"/dev/stdout", "/dev/fd/1", "/proc/self/fd/1"} else text


def write_output(option: str, target: str, content: bytes) -> None:
    """Write ``content`` to the file ``target``; what a symbolic link names is replaced, and the link stays.

    A device, a pipe and a descriptor of this process are written to as they are.

    Raises:
        NpudumpError: it cannot be written; a file that was there before is as it was.
    """
    path = Path(target)
    try:
        if path.exists() and (not path.is_file() or _is_descriptor(path)):
            with os.fdopen(os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC), "wb") as stream:
                stream.write(content)
        else:
            from pytest_npudump.storage.atomic import write_whole  # noqa: PLC0415 - only where a file is written

            write_whole(Path(os.path.realpath(path)), [content])
    except OSError as error:
        raise NpudumpError(
            _(
                "{option} {target}: cannot be written: {error}; a file that was there before is as it "
                "was: free space, or name a file in a folder that is writable"
            ).format(option=option, target=target, error=error.strerror or error)
        ) from error


def _is_descriptor(path: Path) -> bool:
    """Return whether a path is an open file of a process, such as ``/dev/stderr``, or links to one."""
    while not (found := os.path.realpath(path.parent).startswith("/proc/")) and path.is_symlink():
        path = path.parent / path.readlink()
    return found


_GAP = "  "


def screen(stream: TextIO | None = None) -> int | None:
    """Return the columns of the terminal that a stream, else standard output, is; None where it is none.

    Of anything else they are those that the variable ``COLUMNS`` asks for.
    """
    stream = stream or sys.stdout
    asked = os.environ.get("COLUMNS", "").isdecimal()
    return terminal_columns() if stream is not None and (asked or stream.isatty()) else None


def emit(lines: Iterable[str], *, whole: bool = False) -> None:
    """Print lines; when the reader of a pipe has gone, the command goes on, as its exit code still counts.

    Args:
        lines: sentences, which a terminal shows as several lines where it is narrow.
        whole: whether they are data instead, such as JSON.

    Raises:
        NpudumpError: standard output takes no more, as where a disk is full.
    """
    columns = None if whole else screen()
    fitted = lines if columns is None else (one for line in lines for one in hung(line, columns))
    _write(inert("".join(f"{line}\n" for line in fitted)))


def to_stderr(text: str) -> None:
    """Print a line for people, whatever standard output is used for; lost where nothing takes it."""
    stream = sys.stderr
    if stream is None:  # started with ``2>&-``
        return
    try:
        told = inert(spoken(text)).split("\n")
        lines = "\n".join(part for line in told for part in hung(line, screen(stream)))
        stream.write(encodable(lines, stream) + "\n")
        stream.flush()
    except OSError:
        _discard(stream)


def present(arguments: argparse.Namespace, data: Callable[[], Any], lines: Iterable[str]) -> None:
    """Write JSON where ``--json`` asks for it, and print lines unless that went to standard output.

    A file is written wholly or not at all.

    Raises:
        NpudumpError: the file or standard output cannot be written.
    """
    if not arguments.json:
        emit(lines)
        return
    from pytest_npudump.report.files import json_text  # noqa: PLC0415 - only where JSON is written

    text = json_text(data())
    if arguments.json == STANDARD_OUTPUT:
        _write(text.replace("##", "#\\u0023"))  # within strings alone, and none of a CI service's commands
    else:
        write_output("--json", arguments.json, text.encode())
        emit(lines)


def complain(problems: Iterable[object]) -> None:
    """Print a line on standard error for each."""
    for problem in problems:
        to_stderr(f"npudump: {problem}")


def columns(rows: Sequence[Sequence[str]], header: Sequence[str] = ()) -> list[str]:
    """Lay rows out in columns as wide as their longest cell; names stay whole, so that they can be copied.

    In a terminal that is too narrow the last columns stand below the others.
    """
    grid = [tuple(map(_, header))] if header else []
    grid += [tuple(row if "".join(row).isprintable() else map(plain, row)) for row in rows]
    is_plain = all("".join(row).isascii() for row in grid)
    sizes = [max(map(len if is_plain else width, cells)) for cells in zip(*grid, strict=True)]
    if (most := screen()) is not None and sum(sizes) + len(_GAP) * (len(sizes) - 1) > most:
        return [line for row in grid for line in _below_each_other(row, sizes, most)]
    if is_plain:  # twice as fast, which ten thousand rows show
        form = _GAP.join(f"{{:<{size}}}" for size in sizes)
        return [form.format(*row).rstrip() for row in grid]
    return [_GAP.join(map(padded, row, sizes)).rstrip() for row in grid]


def _below_each_other(row: Sequence[str], sizes: Sequence[int], most: int) -> Iterator[str]:
    """Yield a row as lines of at most so many columns, but for longer cells; empty ones are left out."""
    line, taken = "", 0
    for cell, size in zip(row, sizes, strict=True):
        if taken + size > most and line:
            if line.strip():
                yield line.rstrip()
            line, taken = _GAP * 2, len(_GAP) * 2
        line += padded(cell, size) + _GAP
        taken += size + len(_GAP)
    if line.strip():
        yield line.rstrip()


def end_output() -> None:
    """Flush the output while an error in doing so can still be reported.

    Raises:
        NpudumpError: as for :func:`emit`.
    """
    _write("")


def encodable(text: str, stream: TextIO) -> str:
    """Return text that the encoding of a stream has; what it lacks is there as escapes."""
    encoding = stream.encoding or "utf-8"
    return text.encode(encoding, "backslashreplace").decode(encoding)


def _write(text: str) -> None:
    if sys.stdout is None:  # started with ``>&-``: nobody reads
        return
    try:
        sys.stdout.write(encodable(text, sys.stdout))
        sys.stdout.flush()  # what goes to standard error next is to stand behind it
    except BrokenPipeError:
        _discard(sys.stdout)
    except OSError as error:
        _discard(sys.stdout)
        raise NpudumpError(
            _(
                "standard output cannot be written: {error}; what is printed is not complete: free "
                "space or send it elsewhere, and run it again"
            ).format(error=error.strerror or error)
        ) from error


def _discard(stream: TextIO) -> None:
    """Send the rest of a stream to nowhere: the interpreter flushes once more when it ends."""
    with suppress(OSError):  # a stream that is no file of the system
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, stream.fileno())
        os.close(nowhere)


UNREADABLE = 2
"""Exit code where an input cannot be read, a call makes no sense or the work failed; 1 means a difference."""

INTERRUPTED = 130
"""Exit code after Ctrl-C, as shells have it: 128 and the number of the signal."""


def exit_code(work: Callable[[], int]) -> int:
    """Do ``work``, write out what it printed, and return its exit code; a failure is no difference.

    Whatever fails is told in a line on standard error; a fault of this package also with its traceback.
    """
    try:
        try:
            return work()
        finally:
            end_output()
    except KeyboardInterrupt:
        to_stderr(_("npudump: interrupted before the work was done: no verdict; run it again"))
        return INTERRUPTED
    except BrokenPipeError:
        pass
    except NpudumpError as error:
        complain([spoken(str(error))])
    except MemoryError as error:
        words = _("memory ran out ({error}): no verdict; run it again with fewer workers, --executor serial")
        complain([words.format(error=error or _("no details"))])
    except OSError as error:
        words = _("the system refused ({error}): no verdict; correct that, and run it again")
        complain([words.format(error=error)])
    except Exception:  # noqa: BLE001 - Python's own exit code would be 1, which means a difference
        to_stderr(traceback.format_exc())
        to_stderr(_("npudump: a fault of npudump itself: no verdict; report it with the lines above"))
    return UNREADABLE


def leave_threads_behind(code: int) -> None:
    """End the process with ``code`` where threads are still at work, which Python would wait for."""
    if any(not thread.daemon for thread in threading.enumerate() if thread is not threading.main_thread()):
        sys.stderr.flush()
        os._exit(code)
