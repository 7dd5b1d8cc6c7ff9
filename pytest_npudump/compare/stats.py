"""Statistics of a dump against those of a golden.

Counts, shapes, dtypes and integers must be equal. A float passes where ``|actual - golden| <= atol +
rtol * scale``; the scale is the golden tensor's own magnitude, as a mean near zero has no meaningful
relative error. NaN equals NaN, an infinity the same infinity, and neither equals a number.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from pytest_npudump.compare.first import first_divergence, origin_of
from pytest_npudump.compare.numbers import differing
from pytest_npudump.compare.order import ABSENT, align
from pytest_npudump.compare.table import STATISTICS, UNKNOWN_SHAPE
from pytest_npudump.compare.verdict import (
    EXTRA,
    FAIL,
    MISSING,
    Comparison,
    Reason,
    Verdict,
    key_at,
    type_at,
)
from pytest_npudump.dump.dtypes import UNKNOWN

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from pytest_npudump.compare.order import Alignment
    from pytest_npudump.compare.table import StatsTable
    from pytest_npudump.compare.tolerance import Tolerances

_NEEDED = 3
"""Columns (max, min, avg) that a producer must compute before it may leave out others."""

_LOST = "the golden has a value, the dump does not tell it"
_EQUAL = "must be equal"


@dataclass(frozen=True, slots=True, eq=False)
class Pairs:
    """The tensors both sides have.

    Attributes:
        golden, actual: the two tables.
        here, there: (m,) their rows, in execution order.
    """

    golden: StatsTable
    actual: StatsTable
    here: NDArray[np.intp]
    there: NDArray[np.intp]

    def known(self) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
        """Which statistics either side tells, (m, 7) each."""
        return self.golden.known[self.here], self.actual.known[self.there]


def compare_tables(golden: StatsTable, actual: StatsTable, tolerances: Tolerances) -> Comparison:
    """Judge every tensor of ``actual`` against its counterpart in ``golden``.

    Args:
        golden: approved statistics.
        actual: statistics of the run.
        tolerances: what measured statistics may differ by.

    Returns:
        The verdicts and what was not judged; never an exception for odd values.
    """
    alignment = align(golden.keys, actual.keys)
    both = (alignment.golden != ABSENT) & (alignment.actual != ABSENT)
    pairs = Pairs(golden, actual, alignment.golden[both], alignment.actual[both])
    judged, left_out, notes = _judgeable(pairs)
    reasons = _reasons(pairs, judged, left_out, tolerances)
    failing = tuple(_failing(golden, actual, alignment, both, reasons))
    first = first_divergence(failing)
    failed = {int(row) for row in reasons}
    unjudged = [row for row in np.flatnonzero(~judged.any(axis=1)).tolist() if row not in failed]
    if unjudged:
        notes.append(
            f"no statistic on both sides, so that only dtype and shape were compared: {len(unjudged)} of "
            f"{len(pairs.here)} tensors (first: {golden.keys[int(pairs.here[unjudged[0]])]})"
        )
    return Comparison(
        golden=golden,
        actual=actual,
        alignment=alignment,
        failing=failing,
        expected=len(golden),
        compared=len(pairs.here),
        passed=len(pairs.here) - len(failed),
        unjudged=len(unjudged),
        first=first,
        origin=origin_of(first, [golden.keys[row] for row in pairs.here.tolist()] if first else ()),
        notes=(*alignment.notes, *notes),
    )


def _judgeable(pairs: Pairs) -> tuple[NDArray[np.bool_], NDArray[np.bool_], list[str]]:
    """Which cells both sides tell, which columns this producer never computes, and notes on the rest."""
    here, there = pairs.known()
    computed = np.asarray(pairs.actual.known.any(axis=0))
    left_out: NDArray[np.bool_] = np.logical_not(computed) & bool(computed[:_NEEDED].all())
    notes = []
    dropped = np.asarray(left_out & here.any(axis=0))
    if dropped.any():
        names = ", ".join(_names(dropped))
        notes.append(f"not compared, as no tensor of this dump has it but the golden does: {names}")
    new: NDArray[np.bool_] = ~here & there
    gained = np.asarray(new.any(axis=0))
    if gained.any():
        tensors = int(new.any(axis=1).sum())
        names = ", ".join(_names(gained))
        notes.append(f"not compared, as the golden does not have it ({tensors} tensors): {names}")
    return here & there, left_out, notes


def _names(columns: NDArray[np.bool_]) -> list[str]:
    return [name for name, chosen in zip(STATISTICS, columns.tolist(), strict=True) if chosen]


def _reasons(
    pairs: Pairs, judged: NDArray[np.bool_], left_out: NDArray[np.bool_], tolerances: Tolerances
) -> dict[int, list[Reason]]:
    """Reasons by position among the pairs: dtype, shape and count before statistics in their own order."""
    reasons: dict[int, list[Reason]] = {}
    for position, reason in _unequal(pairs):
        reasons.setdefault(position, []).append(reason)
    here, there = pairs.known()
    lost = here & ~there & ~left_out
    cells = {(row, column): _lost(pairs, row, column) for row, column in np.argwhere(lost).tolist()}
    for row, column, allowed, rule in differing(pairs, judged, tolerances):
        golden = pairs.golden.value(int(pairs.here[row]), column)
        actual = pairs.actual.value(int(pairs.there[row]), column)
        cells[row, column] = Reason(STATISTICS[column], golden, actual, allowed, rule.describe())
    for row, column in sorted(cells):
        reasons.setdefault(row, []).append(cells[row, column])
    return reasons


def _lost(pairs: Pairs, row: int, column: int) -> Reason:
    return Reason(STATISTICS[column], pairs.golden.value(int(pairs.here[row]), column), None, None, _LOST)


def _unequal(pairs: Pairs) -> Iterator[tuple[int, Reason]]:
    """Pairs whose dtype, shape or count differ; what the golden does not know is not judged."""
    for name, golden, actual, unknown in (
        ("dtype", pairs.golden.dtypes, pairs.actual.dtypes, UNKNOWN),
        ("shape", pairs.golden.shapes, pairs.actual.shapes, UNKNOWN_SHAPE),
        ("count", pairs.golden.counts, pairs.actual.counts, None),
    ):
        if golden == actual and np.array_equal(pairs.here, pairs.there):
            continue
        rows = zip(pairs.here.tolist(), pairs.there.tolist(), strict=True)
        for position, (here, there) in enumerate(rows):
            before, now = golden[here], actual[there]
            if before not in (now, unknown):
                found = None if now == unknown else now
                yield position, Reason(name, before, found, None, _EQUAL if found is not None else _LOST)


def _failing(
    golden: StatsTable,
    actual: StatsTable,
    alignment: Alignment,
    both: NDArray[np.bool_],
    reasons: dict[int, list[Reason]],
) -> Iterator[Verdict]:
    position = np.cumsum(both) - 1
    wrong = ~both
    if reasons:
        wrong[np.flatnonzero(both)[sorted(reasons)]] = True
    for index in np.flatnonzero(wrong).tolist():
        here, there = int(alignment.golden[index]), int(alignment.actual[index])
        key, op_type = key_at(golden, actual, here, there), type_at(golden, actual, here, there)
        if here == ABSENT:
            yield Verdict(key, op_type, EXTRA)
        elif there == ABSENT:
            yield Verdict(key, op_type, MISSING)
        else:
            yield Verdict(key, op_type, FAIL, tuple(reasons[int(position[index])]))
