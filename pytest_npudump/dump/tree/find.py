"""The files of a dump directory, with what their names and directories say."""

from __future__ import annotations

import os
import re
import sys
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import TYPE_CHECKING

from pytest_npudump.dump.files.formats import FORMATS, TLV_MAGIC, format_of_content, format_of_name, start_of
from pytest_npudump.dump.files.mapping import MAPPING, is_short_name, nameless, read_mapping
from pytest_npudump.dump.names import (
    CONVERTED,
    DumpFile,
    Place,
    context,
    is_copy,
    marks_layout,
    name_of,
    parse_name,
    read_place,
    swapped,
)
from pytest_npudump.dump.tree.jobs import without_copies
from pytest_npudump.errors import DumpError, FormatError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from pytest_npudump.dump.files.formats import Format

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


def format_by_content(path: Path, start: bytes | None) -> Format | FormatError | None:
    """Return the format of a file whose name no grammar fits, or what is wrong with one that has none.

    Args:
        path: the file; adump takes any name, and ``mapping.csv`` may be lost.
        start: its first 12 bytes, or all of a smaller one; None if they cannot be read.

    Returns:
        None for a file that holds nothing of a dump.

    Raises:
        DumpError: two formats of other packages claim it.
    """
    if path.suffix == ".bin" and parse_name(path.stem) is not None:
        return FormatError(path, _UNCONVERTED)
    if start is None:
        return FormatError(path, "cannot be read")
    found = format_of_content(path, start)
    if found is not None and not found.needs_name:
        return found
    if is_short_name(path) or any(format_.needs_name and format_.begins(path, start) for format_ in FORMATS):
        return nameless(path)
    if path.parent.name in _BESIDE or is_copy(path):
        return None
    reason = _MISNAMED.get(path.suffix, _NEARLY if _STAMPED.fullmatch(path.name) else "")
    return FormatError(path, reason) if reason else None


_OPERATOR = re.compile(
    r"/(?!exception_info\.|display\.|Opdebug\.)([^./]+)\.([^./]+)\.(\d{1,18})(?:\.(\d{1,18}))?\.(\d{16})\.csv(?=/)",
    re.ASCII,
)
"""A name of ``pytest_npudump.dump.names`` of the kind ``operator``, without a slice, between two slashes."""


@dataclass(frozen=True, slots=True)
class TableFolder:
    """A directory of n statistics CSV.

    Attributes:
        directory: where they are.
        place: what the directory says.
        names: of the files.
        op_types, layers, tasks, streams, times: what these say, as ``DumpName`` has it.
    """

    directory: Path
    place: Place
    names: Sequence[str]
    op_types: Sequence[str]
    layers: Sequence[str]
    tasks: Sequence[int]
    streams: Sequence[int | None]
    times: Sequence[int]

    @classmethod
    def of(cls, directory: Path, place: Place, names: Sequence[str]) -> TableFolder | None:
        """Return a directory with files of these names; None where one is of another kind."""
        found = _OPERATOR.findall(f"/{'/'.join(names)}/")
        if len(found) != len(names) or not names or place.mindspore:
            return None
        op_types, layers, tasks, streams, times = zip(*found, strict=True)
        return cls(
            directory,
            place,
            names,
            list(map(sys.intern, op_types)),
            list(map(sys.intern, layers)),
            list(map(int, tasks)),
            [int(stream) if stream else None for stream in streams],
            list(map(int, times)),
        )

    def files(self) -> Iterator[DumpFile]:
        """Yield the files one by one."""
        for name in self.names:
            yield DumpFile(self.directory / name, self.place, parse_name(name), "operator_csv")


@dataclass(slots=True)
class Tree:
    """What was found below a dump path.

    Attributes:
        files: the dump files, in the order of their paths.
        statistics: MindSpore's and msprobe's merged ``statistic.csv`` files.
        overflow: overflow records (``Opdebug...``), which hold no tensor of the model.
        cores: ELF cores of kernels that failed, for CANN's debugger.
        other: files that are no dump files, or were converted from one, relative to the root.
        problems: files that had to be read to find the others, and could not; and those that look like data
            and cannot be assigned to a tensor.
        notes: what was decided on the way.
        tables: directories of nothing but statistics CSV, where they were asked for and there are no others;
            their files are not among ``files`` then.
    """

    files: list[DumpFile] = field(default_factory=list)
    statistics: list[DumpFile] = field(default_factory=list)
    overflow: list[DumpFile] = field(default_factory=list)
    cores: list[DumpFile] = field(default_factory=list)
    other: list[str] = field(default_factory=list)
    problems: list[FormatError] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    tables: list[TableFolder] = field(default_factory=list)

    def add(self, file: DumpFile, format_: Format) -> None:
        """Put a file among those of its kind."""
        parts = {
            "files": self.files,
            "statistics": self.statistics,
            "overflow": self.overflow,
            "cores": self.cores,
        }
        parts[format_.part].append(file)

    def without_tables(self) -> Tree:
        """Return the tree with the statistics CSV of its ``tables`` among its files."""
        files = chain(self.files, *(folder.files() for folder in self.tables))
        return replace(self, files=list(files), tables=[]) if self.tables else self


def find_files(root: Path, *, tables: bool = False) -> Tree:
    """Find the dump files below ``root``. Symbolic links inside are not followed.

    Args:
        root: the dump path.
        tables: where the dump has nothing but statistics CSV, give their directories as ``tables``.

    Raises:
        DumpError: ``root`` is no directory that can be listed.
    """
    if not root.is_dir():
        what = "is a file, expected a dump's directory" if root.exists() else "does not exist"
        raise DumpError(f"{root} {what}: was the dump switched on, and is dump_path this directory?")
    tree = Tree()
    above = context(root.resolve().parts)
    for parts, names in _walk(root, tree):
        directory = root.joinpath(*parts)
        place = read_place(parts if marks_layout(parts) else (*above, *parts))
        # The kind of container decides which of two numbers is the model's name.
        if place.either and any((start_of(directory / name) or b"")[8:] == TLV_MAGIC for name in names[:4]):
            place = swapped(place)
        folder = TableFolder.of(directory, place, names) if tables else None
        if folder is not None:
            tree.tables.append(folder)
            continue
        relative = "".join(f"{part}/" for part in parts)
        mapping: dict[str, str] = {}
        if MAPPING in names:
            try:
                mapping = read_mapping(directory / MAPPING)
            except FormatError as error:
                tree.problems.append(error)
        for file_name in names:
            if file_name == MAPPING:
                continue
            path, long, where = directory / file_name, mapping.get(file_name, file_name), place
            name = name_of(long)
            if "." in place.model and place.model_id < 0:
                captured = name_of(f"{place.model}/{long}")
                is_plain = name is None or name.kind in {"operator", "capture", CONVERTED}
                if is_plain and captured is not None and captured.dump_number is not None:
                    name, where = captured, place._replace(model="")
            format_ = format_of_name(long, name)
            if format_ is None:
                found = format_by_content(path, start_of(path))
                if isinstance(found, FormatError):
                    tree.problems.append(found)
                    continue
                format_, name = found, None
            if format_ is None:
                tree.other.append(relative + file_name)
            else:
                tree.add(DumpFile(path, where, name, format_.name), format_)
        present = frozenset(names)
        missing = [long for short, long in mapping.items() if short not in present and parse_name(long)]
        tree.notes.extend(f"{directory / MAPPING} names a file that is not there: {long}" for long in missing)
        if tables and (tree.files or tree.statistics):
            tree.files[:0] = chain(*(found.files() for found in tree.tables))
            tree.tables, tables = [], False
    tree.files, copies = without_copies(tree.files)
    tree.other += ["/".join(file.path.relative_to(root).parts) for file in copies]
    return tree


def _walk(root: Path, tree: Tree) -> Iterator[tuple[tuple[str, ...], list[str]]]:
    """Yield each directory below ``root`` (its parts) and its files' names, sorted."""
    pending: list[tuple[str, ...]] = [()]
    while pending:
        parts = pending.pop()
        names, directories = [], []
        path = os.path.join(root, *parts)  # noqa: PTH118 - os.scandir wants text
        try:
            with os.scandir(path) as entries:
                for entry in entries:
                    if entry.is_symlink():
                        tree.notes.append(f"symbolic link not followed: {entry.path}")
                    elif entry.is_dir():
                        directories.append(entry.name)
                    elif entry.is_file():
                        names.append(entry.name)
                    else:
                        tree.notes.append(f"neither a file nor a directory: {entry.path}")
        except OSError as error:
            tree.problems.append(FormatError(path, f"the directory cannot be listed: {error.strerror}"))
        pending.extend((*parts, name) for name in sorted(directories, reverse=True))
        yield parts, sorted(names)
