"""Files of a dump that are read: of one run, without copies of others, and which of them together.

Two runs below one path are found out, not mixed.
"""

from __future__ import annotations

from collections import defaultdict
from itertools import combinations
from typing import TYPE_CHECKING

from pytest_npudump.dump.files.formats import Job
from pytest_npudump.dump.names import CONVERTED
from pytest_npudump.dump.records import sanitise
from pytest_npudump.errors import DumpError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from pathlib import Path

    from pytest_npudump.dump.names import DumpFile, DumpName


def jobs_of(files: Sequence[DumpFile]) -> list[Job]:
    """Return what is to be read.

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
    dumped: defaultdict[object, list[str]] = defaultdict(list)
    for file in files:
        if file.name is not None and not file.name.suffix:
            dumped[_source_of(file)] = []
            dumped[_ids(file, file.name)].append(sanitise(file.name.op_name))
    if not dumped or not any(file.name is not None and file.name.suffix == ".npy" for file in files):
        return list(files), []
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
    """What tells the dump file apart that ``file`` is or was converted from, wherever it lies."""
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
        time = 0 if file.name is None else file.name.time
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
        if name is None and file.format != "step_csv":
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
