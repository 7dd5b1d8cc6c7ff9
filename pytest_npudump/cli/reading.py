"""Reading dumps for a command: with a progress line on a terminal, and no unread file passed over."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pytest_npudump.dump.reader import read_dump
from pytest_npudump.errors import DumpError, NpudumpError

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable

    from pytest_npudump.dump.records import Dump

_PATIENCE = 2.0


def add_json_option(parser: argparse.ArgumentParser) -> None:
    """Add ``--json FILE``, where ``-`` is standard output."""
    parser.add_argument("--json", metavar="FILE", help="write the result as JSON; - for standard output")


def read_tree(path: Path, *, latest: bool = False) -> Dump:
    """Read a dump tree; an unreadable file in it is an error.

    Raises:
        DumpError: the tree cannot be read, is empty, or holds files that cannot be read.
    """
    from time import monotonic  # noqa: PLC0415 - local to the progress line

    started = monotonic()
    show = _progress(path) if sys.stderr.isatty() else None

    def progress(done: int, total: int) -> None:
        if show is not None and monotonic() - started > _PATIENCE:
            show(done, total)

    dump = read_dump(path, latest=latest, progress=progress)
    if show is not None and monotonic() - started > _PATIENCE:
        sys.stderr.write("\r\x1b[K")
    if dump.problems:
        raise DumpError("\n".join(f"unreadable: {problem}" for problem in dump.problems))
    if not dump.records:
        raise DumpError(f"{path} holds no tensors")
    return dump


def _progress(path: Path) -> Callable[[int, int], None]:
    def show(done: int, total: int) -> None:
        sys.stderr.write(f"\r\x1b[Kreading {path}: {done} of {total} files")
        sys.stderr.flush()

    return show


def write_json(data: Any, target: str) -> None:
    """Write ``data`` as JSON to a file, or to standard output for ``-``.

    NaN and infinities are written as Python's json module does: ``NaN``, ``Infinity``, ``-Infinity``.

    Raises:
        NpudumpError: the file cannot be written.
    """
    text = json.dumps(data, indent=1) + "\n"
    if target == "-":
        sys.stdout.write(text)
        return
    try:
        Path(target).write_text(text, encoding="utf-8")
    except OSError as error:
        raise NpudumpError(f"{target}: cannot be written: {error.strerror}") from error
