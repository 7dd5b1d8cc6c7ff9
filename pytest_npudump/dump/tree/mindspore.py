"""Additions for MindSpore's synchronous dump: statistics by row, and two runs in one directory.

Every tensor has a time stamp of its own. MindSpore adds the files of a second run beside those of the
first, and appends the iteration's number to ``ms_global_execution_order_graph_{g}.csv`` once a run.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from pytest_npudump.dump.columns import (
    COMPUTED_IN_FLOAT32,
    Execution,
    FileColumns,
    TensorColumns,
    TensorTable,
    with_projections_of,
)
from pytest_npudump.dump.names import Place, read_place
from pytest_npudump.dump.records import Dump, TensorKey, TensorRecord, sanitise
from pytest_npudump.errors import DumpError, FormatError, joined
from pytest_npudump.storage.regular_file import read_small

_ORDER_FILE = re.compile(r"(?:(?P<above>.*)/)?execution_order/ms_global_execution_order_graph_\d+\.csv")
_DESCRIPTION = re.compile(r"(?:.*/)?rank_\d+/(?:\.dump_metadata|execution_order|graphs)/[^/]*")
_PARAMETER = "Parameter"
_Tensor = tuple[str, str, str, int]


def merge_statistics(executions: Sequence[Execution], rows: Sequence[Execution]) -> list[Execution]:
    """Join npy files with the rows of the ``statistic.csv`` beside them: one execution with both.

    They are joined by operator, tensor and occurrence: the time stamps of the two need not agree. What
    the producer computed stands where it has values. Rows without a file are kept.
    """
    by_tensor: defaultdict[object, list[Execution]] = defaultdict(list)
    for row in sorted(rows, key=lambda found: found.time, reverse=True):
        by_tensor[row.path.parent, _tensor(row)].append(row)
    joined: list[Execution] = []
    for execution in sorted(executions, key=lambda found: found.time):
        matches = by_tensor.get((execution.path.parent, _tensor(execution))) if execution.single else None
        joined.append(_join(execution, matches.pop()) if matches else execution)
    return joined + [row for left in by_tensor.values() for row in left]


def _tensor(execution: Execution) -> _Tensor:
    part = execution.parts[0]
    return (execution.op_type, execution.layer, part.io, part.slot)


def _join(execution: Execution, row: Execution) -> Execution:
    part, counted = execution.parts[0], row.parts[0]
    if counted.stats is None and not counted.digest:
        return execution
    stats = part.stats if counted.stats is None else with_projections_of(counted.stats, part.stats)
    note = joined("; ", filter(None, (part.note, counted.note)))
    return execution._replace(parts=(part._replace(stats=stats, note=note, digest=counted.digest),))


def one_run(
    files: FileColumns, tensors: TensorColumns, repeats: Counter[tuple[int, int]], *, latest: bool
) -> tuple[list[int], list[str]]:
    """Return the files (or rows) of one run, and notes on what was left out.

    A directory holds several runs if a parameter, which is written once a step, comes more than once,
    or if ``repeats`` counts its (rank, iteration) more than once and its first tensor comes as often.
    (Several turns of a loop repeat some tensors, but neither of these.)

    Raises:
        DumpError: two runs, and ``latest`` was not asked for or cannot be told.
    """
    directories: dict[int, list[int]] = {at: [] for at, place in enumerate(files.places) if place.mindspore}
    kept: list[int] = []
    notes: list[str] = []
    once = _PARAMETER not in files.op_type and max(repeats.values(), default=0) <= 1
    if once and len(directories) == len(files.places) and len(files.single) == len(files.folder):
        return sorted(range(len(files.folder)), key=files.folder.__getitem__), notes
    for at, folder in enumerate(files.folder):
        (directories[folder] if folder in directories and at in files.single else kept).append(at)
    if once:
        return kept + [at for found in directories.values() for at in found], notes
    slots = dict(zip(tensors.file, zip(tensors.io, tensors.slot, strict=True), strict=True))
    for folder, found in directories.items():
        found.sort(key=files.time.__getitem__)
        place, types = files.places[folder], list(map(files.op_type.__getitem__, found))
        listed, runs = repeats[place.rank, place.step], 1
        if found and (listed > 1 or _PARAMETER in types):
            columns = (map(side.__getitem__, found) for side in (files.layer, slots))
            names = list(zip(types, *columns, strict=True))
            times = Counter(names)
            runs = max((count for name, count in times.items() if name[0] == _PARAMETER), default=1)
            if times[names[0]] == listed:
                runs = max(runs, listed)
        if runs == 1:
            kept += found
            continue
        starts = [at for at, name in enumerate(names) if name == names[0]]
        first, newer = (Path(files.name[found[at]]) for at in (0, starts[-1] if len(starts) == runs else -1))
        if not latest:
            raise DumpError(
                f"two runs in one dump: {first.parent} holds {runs}, as {first.name} and {newer.name} "
                "show. Clear the dump path before each run, or ask for the latest run"
            )
        if len(starts) != runs:
            raise DumpError(
                f"{first.parent} holds {runs} runs, and where the last one begins cannot be told: its first "
                f"operator {names[0][1]} was dumped {len(starts)} times. Clear the dump path and run again"
            )
        notes.append(f"only the latest of {runs} runs was read in {first.parent}")
        kept += found[starts[-1] :]
    return kept, notes


def float32_note(table: TensorTable) -> list[str]:
    """Report tensors read as float32 whose headers name another type; nothing where none was."""
    if not any(COMPUTED_IN_FLOAT32 in note for note in frozenset(table.columns.note)):
        return []
    return [
        (
            "MindSpore's CPU kernels computed some float16 or float64 operators in float32 and dumped that "
            "under the name of the network's type: these tensors are read, recorded and compared as float32"
        )
    ]


def is_description(name: str) -> bool:
    """Return whether a file, by its path in a dump, is one of those that MindSpore adds to any dump."""
    return _DESCRIPTION.fullmatch(name) is not None


def iteration_repeats(root: Path, names: Iterable[str]) -> tuple[Counter[tuple[int, int]], list[FormatError]]:
    """Count, for each (rank, iteration), how often MindSpore's global execution order lists it.

    ``names`` are the files below ``root`` that are no dump files, relative to it.
    """
    repeats: Counter[tuple[int, int]] = Counter()
    problems = []
    for name in names:
        match = _ORDER_FILE.fullmatch(name)
        if match is None:
            continue
        rank = read_place((match["above"] or "").split("/")).rank
        try:
            lines = read_small(root / name).split()
        except FormatError as error:
            problems.append(error)
            continue
        counted = Counter(int(line) for line in lines if line.isdigit())
        for iteration, count in counted.items():
            repeats[rank, iteration] = max(count, repeats[rank, iteration])
    return repeats, problems


_Identity = tuple[Place, str, str, int, int]
_OF_PLACES = ("model", "device", "rank")
"""Qualifiers that the keys of a dump have where it holds several of a kind."""


def under_first_keys(first: Dump, again: Dump) -> Dump:
    """Return ``again`` with the keys that ``first`` has for the same tensors.

    Of several models, devices or ranks, ``again`` may hold one alone. MindSpore's tensors that ``first`` does
    not have keep their keys.

    Args:
        first: the dump of the first run.
        again: that of a second run of the same program, into another directory.
    """
    keys = {identity: record.key for identity, record in _identified(first)}
    blank = TensorKey("", "input", 0)
    told = [
        name
        for name in _OF_PLACES
        if {getattr(one.key, name) for one in first.records} - {getattr(blank, name)}
    ]
    if not keys and not told:
        return again
    found = {id(record): keys.get(identity) for identity, record in _identified(again)}
    places = _places(again)

    def key_of(record: TensorRecord) -> TensorKey:
        key, place = found.get(id(record)), places.get(record.path.parent)
        if key is not None or place is None or place.mindspore:
            return key or record.key
        return replace(record.key, **{name: getattr(place, name) for name in told})

    return replace(again, records=tuple(replace(record, key=key_of(record)) for record in again.records))


def _identified(dump: Dump) -> Iterator[tuple[_Identity, TensorRecord]]:
    """Yield MindSpore's tensors with their identity in any dump of the program."""
    seen: Counter[tuple[Place, str, str, int]] = Counter()
    places = {parent: place for parent, place in _places(dump).items() if place.mindspore or place.step >= 0}
    if not places:
        return
    for record in sorted(dump.records, key=lambda record: record.time):
        place = places.get(record.path.parent)
        if place is None:
            continue
        tensor = (place, sanitise(record.key.layer), record.key.io, record.key.slot)
        yield (*tensor, seen[tensor]), record
        seen[tensor] += 1


def _places(dump: Dump) -> dict[Path, Place]:
    """Return the places of a dump's directories regardless of its run."""
    parents = {record.path.parent for record in dump.records}
    inside = [parent for parent in parents if parent.is_relative_to(dump.root)]
    return {one: read_place(one.relative_to(dump.root).parts)._replace(run=()) for one in inside}
