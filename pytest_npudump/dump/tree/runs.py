"""One dump directory, one run: two runs below one path are found out, not mixed."""

from __future__ import annotations

from collections import defaultdict
from itertools import combinations
from typing import TYPE_CHECKING

from pytest_npudump.errors import DumpError

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

    from pytest_npudump.dump.places import DumpFile

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
            f"two runs in one dump: {older} and {newer} hold the same operators. Give one of the two "
            "directories, clear the dump path before each run, or ask for the latest run"
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
