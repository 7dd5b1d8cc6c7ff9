"""The files of a dump directory, with what their names and directories say."""

from __future__ import annotations

import os
import re
import sys
from collections import defaultdict
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import TYPE_CHECKING

from pytest_npudump.dump.files.formats import FORMATS, TLV_MAGIC, format_of_content, format_of_name, start_of
from pytest_npudump.dump.files.mapping import MAPPING, is_short_name, nameless, read_mapping
from pytest_npudump.dump.names import CONVERTED, DumpName, is_copy, name_of, parse_name
from pytest_npudump.dump.places import DumpFile, Place, context, marks_layout, read_place, swapped
from pytest_npudump.dump.records import sanitise
from pytest_npudump.dump.tree.jobs import without_copies
from pytest_npudump.errors import DumpError, FormatError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
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
        place = read_place(parts if marks_layout(parts) else (*above, *parts))
        directory = _Directory(root, parts, place, tree, len(tree.files), start_of)
        folder = directory.table(names) if tables else None
        if folder is not None:
            tree.tables.append(folder)
            continue
        directory.add(names)
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


@dataclass(frozen=True, slots=True)
class _Directory:
    """One directory of a dump, on its way into the tree."""

    root: Path
    parts: tuple[str, ...]
    place: Place
    tree: Tree
    first: int
    start: Callable[[Path], bytes | None]

    def table(self, names: Sequence[str]) -> TableFolder | None:
        """Return the directory as one of nothing but statistics CSV, None if it is not."""
        base = self.root.joinpath(*self.parts)
        return TableFolder.of(base, self._settled(base, names), names)

    def add(self, names: Sequence[str]) -> None:
        base = self.root.joinpath(*self.parts)
        mapping = self._mapping(base) if MAPPING in names else {}
        place = self._settled(base, names)
        for name in names:
            if name == MAPPING:
                continue
            self._add_file(base / name, mapping.get(name, name), place)
        self._drop_converted()
        present = set(names)
        missing = [long for short, long in mapping.items() if short not in present and parse_name(long)]
        self.tree.notes.extend(f"{base / MAPPING} names a file that is not there: {long}" for long in missing)

    def _drop_converted(self) -> None:
        """Put aside what ``msaccucmp -t msnpy`` made of a dump file in this directory.

        Its names are MindSpore's, but it copies the ids and the time from the file it converted, and the last
        part of the operator's name.
        """
        files = self.tree.files
        added = files[self.first :]
        if not any(file.name is not None and file.name.suffix == ".npy" for file in added):
            return
        dumped: defaultdict[object, list[str]] = defaultdict(list)
        for file in added:
            if file.name is not None and not file.name.suffix:
                dumped[_ids(file.name)].append(sanitise(file.name.op_name))
        if len(dumped) in {0, len(added)}:
            return
        del files[self.first :]
        for file in added:
            name = file.name
            sources = dumped.get(_ids(name), ()) if name is not None and name.suffix == ".npy" else ()
            if name is not None and any(source.endswith(sanitise(name.op_name)) for source in sources):
                self.tree.other.append("/".join((*self.parts, file.path.name)))
            else:
                files.append(file)

    def _mapping(self, base: Path) -> dict[str, str]:
        try:
            return read_mapping(base / MAPPING)
        except FormatError as error:
            self.tree.problems.append(error)
            return {}

    def _settled(self, base: Path, names: Sequence[str]) -> Place:
        """Decide by the kind of container which of two numbers is the model's name."""
        if self.place.either and any((self.start(base / name) or b"")[8:] == TLV_MAGIC for name in names[:4]):
            return swapped(self.place)
        return self.place

    def _add_file(self, path: Path, long: str, place: Place) -> None:
        name = name_of(long)
        if name is None or name.kind in {"operator", "capture", CONVERTED}:
            captured = self._captured(long, place)
            if captured is not None:
                name, place = captured
        format_ = format_of_name(long, name)
        if format_ is None:
            self._add_unnamed(path, place)
        else:
            self.tree.add(DumpFile(path, place, name, format_.name), format_)

    def _captured(self, long: str, place: Place) -> tuple[DumpName, Place] | None:
        """Read a capture's name whose slashes became directories: ``Type.scope/name.0.1.2.time``."""
        if place.model_id >= 0 or "." not in place.model:
            return None
        whole = f"{place.model}/{long}"
        name = name_of(whole)
        captured = name is not None and name.dump_number is not None
        return (name, place._replace(model="")) if name is not None and captured else None

    def _add_unnamed(self, path: Path, place: Place) -> None:
        start = self.start(path)
        format_ = unnamed_format(path, start)
        if format_ is not None:
            self.tree.add(DumpFile(path, place, None, format_.name), format_)
            return
        problem = problem_of(path, start)
        if problem is not None:
            self.tree.problems.append(problem)
        else:
            self.tree.other.append("/".join((*self.parts, path.name)))


def _ids(name: DumpName) -> object:
    return (name.op_type, name.task, name.stream, name.stamp)
