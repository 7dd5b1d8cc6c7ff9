"""A statistic of one tensor over several runs: what each folder of kept results says of it, in turn."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pytest_npudump.dump.selection import layers_meant
from pytest_npudump.dump.table import MEASURED, STATISTICS, layer_of
from pytest_npudump.errors import NpudumpError
from pytest_npudump.request import KnownNames
from pytest_npudump.results.rejudge import read_record

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

    from pytest_npudump.dump.table import StatsTable
    from pytest_npudump.results.entry import Entry
    from pytest_npudump.results.folder import Results, ResultsFolder

DEFAULT = STATISTICS[:MEASURED]
"""Statistics that are looked at unless others are named: those that measure; the others count."""


@dataclass(frozen=True, slots=True)
class Run:
    """One folder of results, as far as it tells of one test.

    Attributes:
        folder: where the results lie.
        entry: of the test; None where the folder has none.
        table: the run's statistics; None where it left none.
    """

    folder: Path
    entry: Entry | None
    table: StatsTable | None

    def to_json(self) -> dict[str, Any]:
        """Plain JSON data: where a run comes from, and what it came to."""
        data = self.entry.data if self.entry is not None else {}
        told = {name: data.get(name) for name in ("time", "revision", "status")}
        return {"results": str(self.folder), **told, "has_statistics": self.table is not None}


@dataclass(frozen=True, slots=True)
class Series:
    """One statistic of one tensor over the runs of a test.

    Attributes:
        key: the tensor.
        statistic: one of :data:`pytest_npudump.dump.table.STATISTICS`.
        values: one a run; None where a run does not tell it.
    """

    key: str
    statistic: str
    values: tuple[float | int | None, ...]

    @property
    def spread(self) -> float:
        """How far the values are apart, relative to the largest magnitude; 0 where all known ones are alike.

        Infinite where only some are finite.
        """
        known = [value for value in self.values if value is not None]
        finite = [value for value in known if math.isfinite(value)]
        if len({str(value) for value in known if not math.isfinite(value)}) + bool(finite) > 1:
            return math.inf
        largest = max((abs(value) for value in finite), default=0)
        return float((max(finite) - min(finite)) / largest) if largest else 0.0

    def to_json(self) -> dict[str, Any]:
        """Plain JSON data; NaN and infinities are text."""
        values = [
            str(value) if isinstance(value, float) and not math.isfinite(value) else value
            for value in self.values
        ]
        return {"key": self.key, "statistic": self.statistic, "values": values}


@dataclass(frozen=True, slots=True)
class Trend:
    """What the runs of one test say.

    Attributes:
        test: as a person would name it, with its rank where it has one.
        runs: in the order in which their folders were given.
        series: the chosen statistics of the chosen tensors, in the order of execution.
        problems: records that cannot be read, in words.
    """

    test: str
    runs: tuple[Run, ...]
    series: tuple[Series, ...]
    problems: tuple[str, ...] = ()


def trends_of(
    kept: Sequence[tuple[ResultsFolder, Results]],
    tests: Sequence[str] = (),
    layers: Sequence[str] = (),
    statistics: Sequence[str] = DEFAULT,
) -> list[Trend]:
    """Return what several folders say of each test, in the order in which the tests first appear.

    Args:
        kept: the folders in the order of time, with what they hold.
        tests: names or globs of tests; none for all.
        layers: names or globs of layers; none for all.
        statistics: names of statistics.
    """
    found = [(folder, {_name(entry): entry for entry in results.entries}) for folder, results in kept]
    names = dict.fromkeys(name for _, entries in found for name in entries)
    wanted = KnownNames(names, choices=False).meant(tests or ["*"])
    return [
        _trend(name, [(folder, entries.get(name)) for folder, entries in found], layers, statistics)
        for name in names
        if name in wanted
    ]


def _name(entry: Entry) -> str:
    rank = entry.data["rank"]
    return entry.test if rank is None else f"{entry.test} (rank {rank})"


def _trend(
    name: str,
    found: Sequence[tuple[ResultsFolder, Entry | None]],
    layers: Sequence[str],
    statistics: Sequence[str],
) -> Trend:
    runs, problems = [], []
    for folder, entry in found:
        table = None
        if entry is not None and entry.record_file:
            try:
                table = read_record(folder, entry).table
            except NpudumpError as error:
                problems.append(str(error))
        runs.append(Run(folder.path, entry, table))
    series = tuple(_series([run.table for run in runs], layers, statistics))
    return Trend(name, tuple(runs), series, tuple(problems))


def _series(
    tables: Sequence[StatsTable | None], layers: Sequence[str], statistics: Sequence[str]
) -> Iterable[Series]:
    rows = [{key: at for at, key in enumerate(table.keys)} if table is not None else {} for table in tables]
    keys = _keys(tables)
    wanted = layers_meant(layers or ["*"], map(layer_of, keys))
    for key in keys:
        if layer_of(key) not in wanted:
            continue
        for statistic in statistics:
            column = STATISTICS.index(statistic)
            values = tuple(
                table.value(own[key], column) if table is not None and key in own else None
                for table, own in zip(tables, rows, strict=True)
            )
            if any(value is not None for value in values):
                yield Series(key, statistic, values)


def _keys(tables: Sequence[StatsTable | None]) -> dict[str, None]:
    """Return all tensors: those of the last run in its order, and behind them those that it lacks."""
    return dict.fromkeys(key for table in reversed(tables) if table is not None for key in table.keys)
