"""Tensors of a dump as npy files, made by ``npudump convert`` or by CANN's ``msaccucmp``.

Both call them after the dump file, direction and slot; the first numbers what comes from further records of
the file, the second names the shape of what it brought into another layout::

    {dump}.{io}.{slot}.npy
    {dump}.{io}.{slot}.{number}.npy      npudump convert: record 1, 2 ... of the file
    {dump}.{io}.{slot}.{AxBxC}.npy       msaccucmp -f

A single number is a shape of one axis, unless the file without it lies beside it.
"""

from __future__ import annotations

import re
from collections import defaultdict
from typing import TYPE_CHECKING

from pytest_npudump.dump.names import parse_name

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from pathlib import Path

    from pytest_npudump.dump.names import DumpName
    from pytest_npudump.dump.places import DumpFile

KIND = "converted"
"""``DumpName.kind`` of these files."""

_CONVERTED = re.compile(
    r"(?P<dump>.+)\.(?P<io>input|output|buffer|workspace)\.(?P<slot>\d+)"
    r"(?:\.(?:(?P<number>\d+)|\d+(?:x\d+)+))?\.npy",
    re.ASCII | re.DOTALL,
)
_SOURCES = frozenset({"operator", "capture", "exception"})


def parse_converted(name: str) -> DumpName | None:
    """Return what the name of a converted tensor says, or None if it is none.

    ``part`` is the single number behind the slot, where there is one.
    """
    match = _CONVERTED.fullmatch(name) if name.endswith(".npy") else None
    source = None if match is None else parse_name(match["dump"])
    if match is None or source is None or source.kind not in _SOURCES or source.suffix:
        return None
    number = match["number"]
    return source._replace(
        kind=KIND,
        suffix=".npy",
        io=match["io"],
        slot=int(match["slot"]),
        part=None if number is None else int(number),
    )


def name_of(name: str) -> DumpName | None:
    """Return what the name of a dump file, or of a tensor converted from one, says; None if it is neither."""
    return parse_name(name) or parse_converted(name)


def is_copy(path: Path) -> bool:
    """Whether a file is called like a tensor that was converted from a file beside it."""
    match = _CONVERTED.fullmatch(path.name)
    return match is not None and path.with_name(match["dump"]).is_file()


def without_copies(files: Iterable[DumpFile]) -> tuple[list[DumpFile], list[DumpFile]]:
    """Part ``files`` into those to read and those that were converted from one of them."""
    files = list(files)
    if not any(_is_converted(file) for file in files):
        return files, []
    originals = {source_of(file) for file in files if file.name is not None and not file.name.suffix}
    kept: list[DumpFile] = []
    copies: list[DumpFile] = []
    for file in files:
        (copies if _is_converted(file) and source_of(file) in originals else kept).append(file)
    return kept, copies


def by_record(files: Sequence[DumpFile]) -> tuple[list[DumpFile], list[list[DumpFile]]]:
    """Part ``files`` into those that were not converted, and the converted tensors of each record."""
    rest = [file for file in files if not _is_converted(file)]
    if len(rest) == len(files):
        return rest, []
    groups: defaultdict[object, list[DumpFile]] = defaultdict(list)
    for file, name, number in _numbered([file for file in files if _is_converted(file)]):
        # A further record was written later; its own time is not in the name.
        later = file._replace(name=name._replace(time=name.time + number))
        groups[file.path.parent, source_of(file), number].append(later)
    return rest, list(groups.values())


def _numbered(files: Sequence[DumpFile]) -> Iterator[tuple[DumpFile, DumpName, int]]:
    """Yield each file, its name, and of which record of the dump file it is."""
    first = {_tensor(file, file.name) for file in files if file.name is not None and file.name.part is None}
    for file in files:
        if file.name is not None:
            further = file.name.part is not None and _tensor(file, file.name) in first
            yield file, file.name, (file.name.part or 0) if further else 0


def _tensor(file: DumpFile, name: DumpName) -> object:
    return (file.path.parent, source_of(file), name.io, name.slot)


def source_of(file: DumpFile) -> object:
    """What tells the dump file apart that ``file`` is or was converted from, wherever it lies."""
    name = file.name
    if name is None:
        return None
    return (
        (file.place.rank, file.place.device, name.op_type, name.op_name, name.task, name.stream, name.stamp),
        (name.dump_number, name.ffts),
    )


def _is_converted(file: DumpFile) -> bool:
    return file.name is not None and file.name.kind == KIND
