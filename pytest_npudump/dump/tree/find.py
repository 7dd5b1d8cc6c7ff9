"""Files of a dump directory, with the facts in their names and directories, and the choice of those read.

Those of one run are, without copies of others, and those of one execution together. Two runs below one path
are found out, not mixed.
"""

from __future__ import annotations

import os
import re
import sys
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain, combinations
from pathlib import Path

from pytest_npudump.dump.files.formats import (
    FORMATS,
    TLV_MAGIC,
    Format,
    Job,
    format_of_content,
    format_of_name,
    plain_format,
    start_of,
)
from pytest_npudump.dump.names import (
    CONVERTED,
    MAPPING,
    MODULE_EDGES,
    MSPROBE,
    MSPROBE_BESIDE,
    MSPROBE_TENSORS,
    DumpFile,
    DumpName,
    Place,
    context,
    is_copy,
    is_short_name,
    marks_layout,
    name_of,
    nameless,
    parse_name,
    read_mapping,
    read_place,
    swapped,
)
from pytest_npudump.dump.records import sanitise
from pytest_npudump.errors import DumpError, FormatError

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
    if (found := format_of_content(path, start)) is not None and not found.needs_name:
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
    """Files found below a dump path.

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
        getattr(self, format_.part).append(file)

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
    alone: list[tuple[DumpFile, Format | FormatError | None]] = []
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
        mapping = _mapping(directory, names, tree)
        known = {MAPPING, MODULE_EDGES, *(MSPROBE_BESIDE if MSPROBE in names else ())}
        for file_name in names:
            if file_name in known:
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
                start = start_of(path)
                found = format_by_content(path, start)
                unknown = found is None or (isinstance(found, FormatError) and path.suffix != ".bin")
                plain = plain_format(path, start) if unknown and not is_short_name(path) else None
                if plain is not None:
                    alone.append((DumpFile(path, where, None, plain.name), found))
                    continue
                if isinstance(found, FormatError):
                    tree.problems.append(found)
                    continue
                format_, name = found, None
            if format_ is None:
                tree.other.append(relative + file_name)
            else:
                tree.add(DumpFile(path, where, name, format_.name), format_)
        if tables and (tree.files or tree.statistics):
            tree.files[:0] = chain(*(found.files() for found in tree.tables))
            tree.tables, tables = [], False
    # Files that are a dump only where there is no other: else they are what they were without.
    if not (tree.files or tree.tables or tree.statistics or tree.overflow or tree.cores):
        tree.files, alone = [file for file, _ in alone], []
    tree.problems += [found for _, found in alone if isinstance(found, FormatError)]
    tree.other += [
        "/".join(file.path.relative_to(root).parts)
        for file, found in alone
        if not isinstance(found, FormatError)
    ]
    tree.files, copies = without_copies(tree.files)
    tree.other += ["/".join(file.path.relative_to(root).parts) for file in copies]
    return tree


def _mapping(directory: Path, names: Sequence[str], tree: Tree) -> dict[str, str]:
    """Return the long names of the files of a directory, and note those of files that are not there."""
    if MAPPING not in names:
        return {}
    try:
        mapping = read_mapping(directory / MAPPING)
    except FormatError as error:
        tree.problems.append(error)
        return {}
    present = frozenset(names)
    missing = [long for short, long in mapping.items() if short not in present and parse_name(long)]
    tree.notes.extend(f"{directory / MAPPING} names a file that is not there: {long}" for long in missing)
    return mapping


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
        if MSPROBE in names:  # its reader finds the tensors
            directories = [name for name in directories if name != MSPROBE_TENSORS]
        pending.extend((*parts, name) for name in sorted(directories, reverse=True))
        yield parts, sorted(names)


def jobs_of(files: Sequence[DumpFile]) -> list[Job]:
    """Return the jobs of reading files.

    A tensor file and a CSV that share name, ids and time are one job, and so are the tensors converted from
    one record of a dump file.
    """
    slots: defaultdict[object, set[tuple[int, int]]] = defaultdict(set)
    for file in files:
        if file.name is not None and file.name.kind == "torchair":
            slots[_direction(file, file.name)].add(_position(file.name))
    listed = {
        direction: sorted(found) for direction, found in slots.items() if any(part >= 0 for _, part in found)
    }
    files, converted = _by_record([_with_slot(file, listed) for file in files] if listed else list(files))
    tables = (
        {} if not converted else {_source_of(file): file for file in files if file.format == "operator_csv"}
    )
    jobs = [Job(group[0], tables.pop(_source_of(group[0]), None), tuple(group[1:])) for group in converted]
    taken = {job.csv for job in jobs}
    return [*_paired([file for file in files if file not in taken] if jobs else files), *jobs]


def _paired(files: Sequence[DumpFile]) -> list[Job]:
    listed = [file for file in files if file.format == "operator_csv"]
    if not listed or len(listed) == len(files):
        return [Job(file) for file in files]
    tables = {(file.path.parent, file.name._replace(suffix="")): file for file in listed if file.name}
    jobs = [
        Job(file, tables.pop((file.path.parent, file.name), None) if file.name else None)
        for file in files
        if file.format != "operator_csv"
    ]
    return jobs + [Job(file) for file in tables.values()]


def without_copies(files: Sequence[DumpFile]) -> tuple[list[DumpFile], list[DumpFile]]:
    """Part ``files`` into those to read and those that were converted from one of them.

    The names that ``msaccucmp -t msnpy`` gives are MindSpore's, but it copies the ids and the time from the
    file that it converted in the same directory, and the last part of the operator's name.
    """
    if not any(file.name is not None and file.name.suffix == ".npy" for file in files):
        return list(files), []
    dumped: defaultdict[object, list[str]] = defaultdict(list)
    for file in files:
        if file.name is not None and not file.name.suffix:
            dumped[_source_of(file)] = []
            dumped[_ids(file, file.name)].append(sanitise(file.name.op_name))
    kept: list[DumpFile] = []
    copies: list[DumpFile] = []
    for file in files:
        name, copied = file.name, False
        if name is not None and name.suffix == ".npy":
            sources = dumped.get(_ids(file, name), ())
            copied = _is_converted(file) and _source_of(file) in dumped
            copied = copied or any(source.endswith(sanitise(name.op_name)) for source in sources)
        (copies if copied else kept).append(file)
    return kept, copies


def _ids(file: DumpFile, name: DumpName) -> object:
    return (file.path.parent, name.op_type, name.task, name.stream, name.stamp)


def _by_record(files: Sequence[DumpFile]) -> tuple[list[DumpFile], list[list[DumpFile]]]:
    """Part ``files`` into those that were not converted, and the converted tensors of each record."""
    rest = [file for file in files if not _is_converted(file)]
    if len(rest) == len(files):
        return rest, []
    groups: defaultdict[object, list[DumpFile]] = defaultdict(list)
    for file, name, number in _numbered([file for file in files if _is_converted(file)]):
        # A further record was written later; its own time is not in the name.
        later = file._replace(name=name._replace(time=name.time + number))
        groups[file.path.parent, _source_of(file), number].append(later)
    return rest, list(groups.values())


def _numbered(files: Sequence[DumpFile]) -> Iterator[tuple[DumpFile, DumpName, int]]:
    """Yield each file, its name, and of which record of the dump file it is."""
    first = {_tensor(file, file.name) for file in files if file.name is not None and file.name.part is None}
    for file in files:
        if file.name is not None:
            further = file.name.part is not None and _tensor(file, file.name) in first
            yield file, file.name, (file.name.part or 0) if further else 0


def _tensor(file: DumpFile, name: DumpName) -> object:
    return (file.path.parent, _source_of(file), name.io, name.slot)


def _source_of(file: DumpFile) -> object:
    """Return the identity of the dump file that ``file`` is or was converted from, wherever it lies."""
    name = file.name
    if name is None:
        return None
    return (
        (file.place.rank, file.place.device, name.op_type, name.op_name, name.task, name.stream, name.stamp),
        (name.dump_number, name.ffts),
    )


def _is_converted(file: DumpFile) -> bool:
    return file.name is not None and file.name.kind == CONVERTED


def _with_slot(file: DumpFile, listed: dict[object, list[tuple[int, int]]]) -> DumpFile:
    name = file.name
    if name is None or name.kind != "torchair" or _direction(file, name) not in listed:
        return file
    slot = listed[_direction(file, name)].index(_position(name))
    return file._replace(name=name._replace(slot=slot, part=None))


def _direction(file: DumpFile, name: DumpName) -> object:
    return (file.path.parent, name.op_name, name.op_type, name.io)


def _position(name: DumpName) -> tuple[int, int]:
    return (name.slot, -1 if name.part is None else name.part)


_Run = tuple[str, ...]


def select_run(files: Sequence[DumpFile], root: Path, *, latest: bool) -> tuple[list[DumpFile], list[str]]:
    """Return the files of one run, and notes on what was left out.

    One run may write several time directories (GE's and adump's, beside or inside each other, and MindSpore
    one a step). They are two runs if an operator of the same rank, device, model, step and iteration lies in
    both, unless one is inside the other, or if the later one has the earlier steps of a device. ``latest``
    drops every directory whose last file is not younger than the last run's rival.

    Raises:
        DumpError: two runs, and ``latest`` was not asked for.
    """
    last: dict[_Run, int] = {}  # the time of the last file of each, 0 where no name tells one
    for file in files:
        time = _written(file.path) if file.format == "msprobe" else 0 if file.name is None else file.name.time
        last[file.place.run] = max(time, last.get(file.place.run, 0))
    if len(last) < 2:  # noqa: PLR2004 - one run is the rule
        return list(files), []
    files_alike = _conflict(files, last)
    if files_alike is None:
        return list(files), []
    older, newer = (_directory(file, root) for file in files_alike)
    if not latest:
        raise DumpError(
            f"two runs in one dump: {older} and {newer} hold the same operators. Give one of the "
            "two directories, clear the dump path before each run, or ask for the latest run"
        )
    first, second = (file.place.run for file in files_alike)
    later = {run for run in last if (last[run], run) > (last[first], first)}
    if first[:1] != second[:1]:  # directories beside the older one inside one time directory came with it
        later -= {run for run in later if run[:1] == first[:1]}
    kept = [file for file in files if file.place.run in later | {second}]
    return kept, [f"only the latest run was read, {newer}: {older} and everything before it was left out"]


def _written(path: Path) -> int:
    """Microseconds since the epoch at which a file was written that has no time in its name; 0 if unknown."""
    try:
        return path.stat().st_mtime_ns // 1000
    except OSError:
        return 0


def _directory(file: DumpFile, root: Path) -> Path:
    """The directory of the run that ``file`` is of, with levels such as the rank, which are no part of it."""
    names = file.place.run[-1:]
    return next((parent for parent in file.path.parents if parent.name in names), root)


def _conflict(files: Iterable[DumpFile], last: dict[_Run, int]) -> tuple[DumpFile, DumpFile] | None:
    """Return a file of each of the last two runs that hold the same operator; None if all is one run.

    The run of the first is older.
    """
    held: defaultdict[_Run, dict[object, DumpFile]] = defaultdict(dict)
    for file in files:
        place, name = file.place, file.name
        if name is None and file.format not in {"step_csv", "msprobe"}:
            continue
        operator = () if name is None else (name.op_type, name.op_name)
        found = (place.rank, place.device, place.model, place.step, place.iteration, *operator)
        held[place.run].setdefault(found, file)
    highest = {run: _highest_steps(found.values()) for run, found in held.items()}
    runs = sorted(held, key=lambda run: (last[run], run))
    for newer, older in combinations(reversed(runs), 2):
        depth = min(len(older), len(newer))
        if older[:depth] == newer[:depth]:  # one inside the other
            continue
        for alike, file in held[older].items():
            if alike in held[newer]:
                return file, held[newer][alike]
        for device, file in highest[older].items():
            later = highest[newer].get(device)
            if later is not None and later.place.step < file.place.step:
                return file, later
    return None


def _highest_steps(files: Iterable[DumpFile]) -> dict[object, DumpFile]:
    """Return a file of the highest step of each device, where directories name the steps below a path."""
    found: dict[object, DumpFile] = {}
    for file in files:
        place = file.place
        if place.step >= 0 and not place.mindspore:
            device = (place.rank, place.device)
            found[device] = max(file, found.get(device, file), key=lambda one: one.place.step)
    return found
