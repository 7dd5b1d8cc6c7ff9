"""Files of a dump whose names no grammar fits: told by their content, a problem, or nothing of the dump's."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from pytest_npudump.dump.files import FORMATS, format_of_content
from pytest_npudump.dump.files.mapping import is_short_name, nameless
from pytest_npudump.dump.names import parse_name
from pytest_npudump.dump.tree.converted import is_copy
from pytest_npudump.errors import FormatError

if TYPE_CHECKING:
    from pathlib import Path

    from pytest_npudump.dump.files.format import Format

_STAMPED = re.compile(r".+\.\d+\.\d{13,20}", re.ASCII | re.DOTALL)
_BESIDE = frozenset({"execution_order", "graphs"})
"""MindSpore's folders beside its dumps, with lists of operators and of iterations, and with graphs."""

_UNCONVERTED = (
    "statistics as the device sent them, which CANN's host process did not convert to CSV: "
    "let the process end properly and collect the dump again"
)
_NEARLY = (
    "its name ends like that of a dump file, but neither it nor the first bytes are those of one: "
    "it is damaged or was renamed, collect the dump again"
)


_MISNAMED = dict(format_.misnamed for format_ in FORMATS if format_.misnamed is not None)


def unnamed_format(path: Path, start: bytes | None) -> Format | None:
    """Return the format of a file whose name no grammar fits; None where none can read it.

    Args:
        path: the file; adump takes any name, and ``mapping.csv`` may be lost.
        start: its first 12 bytes, or all of a smaller one; None if they cannot be read.

    Raises:
        DumpError: two formats of other packages claim it.
    """
    if start is None or _unconverted(path) is not None:
        return None
    found = format_of_content(path, start)
    return None if found is None or found.needs_name else found


def problem_of(path: Path, start: bytes | None) -> FormatError | None:
    """Return what is wrong with a file that has no format, or None if it holds nothing of a dump.

    Args:
        path: the file; nothing but its name is looked at.
        start: its first 12 bytes, or all of a smaller one; None if they cannot be read.
    """
    unconverted = _unconverted(path)
    if unconverted is not None:
        return unconverted
    if start is None:
        return FormatError(path, "cannot be read")
    if is_short_name(path) or _needs_name(path, start):
        return nameless(path)
    if path.parent.name in _BESIDE or is_copy(path):
        return None
    reason = _MISNAMED.get(path.suffix, _NEARLY if _STAMPED.fullmatch(path.name) else "")
    return FormatError(path, reason) if reason else None


def _needs_name(path: Path, start: bytes) -> bool:
    return any(format_.needs_name and format_.begins(path, start) for format_ in FORMATS)


def _unconverted(path: Path) -> FormatError | None:
    """Return the problem of statistics that were left in the device's binary form, None for other files."""
    if path.suffix == ".bin" and parse_name(path.stem) is not None:
        return FormatError(path, _UNCONVERTED)
    return None
