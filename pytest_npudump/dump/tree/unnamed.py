"""Files of a dump whose names no grammar fits: a container after all, a problem, or nothing of the dump's."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from pytest_npudump.dump.files.mapping import nameless
from pytest_npudump.dump.names import parse_name
from pytest_npudump.dump.tree.converted import is_copy
from pytest_npudump.errors import FormatError

if TYPE_CHECKING:
    from pathlib import Path

TLV_MAGIC = b"\x5a\x5a\x5a\x5a"
"""Bytes 8 to 11 of a TLV container."""

_PROTOBUF_START = b"\x0a\x03"
_TABLE_START = b"Input/Output"
_STAMPED = re.compile(r".+\.\d+\.\d{13,20}", re.ASCII | re.DOTALL)
_BESIDE = frozenset({"execution_order", "graphs"})
"""MindSpore's folders beside its dumps, with lists of operators and of iterations, and with graphs."""

_UNCONVERTED = (
    "statistics as the device sent them, which CANN's host process did not convert to CSV: "
    "let the process end properly and collect the dump again"
)
_UNASSIGNED = {
    ".npy": (
        "it may hold a tensor, and its name does not tell which: expected a name of MindSpore or of "
        "TorchAir, or that of a dump file and .output.0.npy; rename it, or take it out of the dump"
    ),
    ".csv": (
        "it may hold statistics, and its name does not tell of what: expected "
        "{type}.{name}.{task}.{stream}.{time}.csv or statistic.csv; rename it, or take it out of the dump"
    ),
}
_NEARLY = (
    "its name ends like that of a dump file, but neither it nor the first bytes are those of one: "
    "it is damaged or was renamed, collect the dump again"
)


def is_container(start: bytes) -> bool:
    """Whether a file that begins with the 12 bytes ``start`` is a container of either kind."""
    return start[8:] == TLV_MAGIC or start[8:10] == _PROTOBUF_START


def problem_of(path: Path, start: bytes | None) -> FormatError | None:
    """Return what is wrong with a file that is no container, or None if it holds nothing of a dump.

    Args:
        path: the file; nothing but its name is looked at.
        start: its first 12 bytes, or all of a smaller one; None if they cannot be read.
    """
    if start is None:
        return FormatError(path, "cannot be read")
    if is_nameless(path, start):
        return nameless(path)
    if path.parent.name in _BESIDE or is_copy(path):
        return None
    reason = _UNASSIGNED.get(path.suffix, _NEARLY if _STAMPED.fullmatch(path.name) else "")
    return FormatError(path, reason) if reason else None


def is_nameless(path: Path, start: bytes) -> bool:
    """Whether a file is CANN's or MindSpore's by its first bytes or short name, and no name tells of what."""
    return start.startswith(_TABLE_START) or _is_short_name(path)


def unconverted(path: Path) -> FormatError | None:
    """Return the problem of statistics that were left in the device's binary form, None for other files."""
    if path.suffix == ".bin" and parse_name(path.stem) is not None:
        return FormatError(path, _UNCONVERTED)
    return None


def _is_short_name(path: Path) -> bool:
    """Whether the name is one that only ``mapping.csv`` explains: CANN's hash, or MindSpore's number."""
    return path.suffix in {"", ".npy"} and path.stem.isdecimal()
