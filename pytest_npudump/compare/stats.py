"""Statistics of a dump against those of a golden.

Counts, shapes, dtypes and integers must be equal. A float passes where ``|actual - golden| <= atol +
rtol * scale``; the scale is the golden tensor's own magnitude, as a mean near zero has no meaningful
relative error. NaN equals NaN, an infinity the same infinity, and neither equals a number. A value that
only one side has is no agreement: see :func:`compare_tables`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from pytest_npudump.compare.first import first_divergence, origin_of
from pytest_npudump.compare.numbers import differing
from pytest_npudump.compare.order import ABSENT, align
from pytest_npudump.compare.table import EXTREMES, MEASURED, STATISTICS, UNKNOWN_SHAPE
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
"""Columns (max, min, avg) that a producer must compute before it may leave out others, and that a golden
must have where the dump has them."""

_LOST = "the golden has a value, the dump does not tell it"
_UNAPPROVED = "the golden has no value to compare with: approve anew"
_EQUAL = "must be equal"
_BARE = "no statistic on both sides, so that only dtype and shape were compared"
_ODD = "NaN or Inf in the golden's max, min or avg, which then say little of all other elements"
_HIDDEN = (
    "max and min not compared: CANN prints NaN for both where the first element is NaN, and the other side "
    "was computed from the tensors"
)
_NAN = STATISTICS.index("nan")
_ODD_ADVICE = '; compare these tensors element by element, with dump_data="tensor" and golden_tensors'


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

    def key(self, row: int) -> str:
        """The golden's key of the pair at position ``row``."""
        return self.golden.keys[int(self.here[row])]

    def values(self, row: int, column: int) -> tuple[float | int | None, float | int | None]:
        """One statistic of the pair at position ``row``, on either side."""
        golden = self.golden.value(int(self.here[row]), column)
        return golden, self.actual.value(int(self.there[row]), column)


def compare_tables(
    golden: StatsTable, actual: StatsTable, tolerances: Tolerances, *, approved: bool = True
) -> Comparison:
    """Judge every tensor of ``actual`` against its counterpart in ``golden``.

    A max, min or avg that only ``actual`` tells fails its tensor; an l2norm or a count that only ``actual``
    tells is noted. What only ``golden`` tells fails, unless no tensor of ``actual`` has that statistic.

    Args:
        golden: approved statistics.
        actual: statistics of the run.
        tolerances: what measured statistics may differ by.
        approved: False where ``golden`` is the dump of another run, whose producer may compute less: then
            whatever only ``actual`` tells is noted.

    Returns:
        The verdicts and what was not judged; never an exception for odd values.
    """
    alignment = align(golden.keys, actual.keys)
    both = (alignment.golden != ABSENT) & (alignment.actual != ABSENT)
    pairs = Pairs(golden, actual, alignment.golden[both], alignment.actual[both])
    judged, lost, gained, notes = _judgeable(pairs, approved=approved)
    hidden = _hidden_by_print(pairs)
    judged[:, :EXTREMES] &= ~hidden[:, np.newaxis]
    reasons = _reasons(pairs, judged, lost | gained, tolerances)
    failing = tuple(_failing(golden, actual, alignment, both, reasons))
    first = first_divergence(failing)
    agree = np.ones(len(pairs.here), dtype=np.bool_)
    agree[list(reasons)] = False
    bare = agree & ~judged.any(axis=1)
    odd, blind = _not_finite(pairs)
    blind |= hidden
    notes += [
        f"{text}: {int(rows.sum())} of {len(rows)} tensors (first: {pairs.key(int(np.argmax(rows)))}){advice}"
        for rows, text, advice in (
            (bare, _BARE, ""),
            (odd, _ODD, _ODD_ADVICE),
            (hidden, _HIDDEN, ""),
        )
        if rows.any()
    ]
    return Comparison(
        golden=golden,
        actual=actual,
        alignment=alignment,
        failing=failing,
        expected=len(golden),
        compared=len(pairs.here),
        passed=int(agree.sum()),
        unjudged=int((bare | (agree & blind)).sum()),
        first=first,
        origin=origin_of(first, [golden.keys[row] for row in pairs.here.tolist()] if first else ()),
        notes=(*alignment.notes, *notes),
    )


def _judgeable(
    pairs: Pairs, *, approved: bool
) -> tuple[NDArray[np.bool_], NDArray[np.bool_], NDArray[np.bool_], list[str]]:
    """Cells both sides tell; those that fail as only the golden or only the dump tells them; notes."""
    here, there = pairs.known()
    computed = np.asarray(pairs.actual.known.any(axis=0))
    left_out: NDArray[np.bool_] = np.logical_not(computed) & bool(computed[:_NEEDED].all())
    notes = []
    dropped = np.asarray(left_out & here.any(axis=0))
    if dropped.any():
        names = ", ".join(_names(dropped))
        notes.append(f"not compared, as no tensor of this dump has it but the golden does: {names}")
    gained: NDArray[np.bool_] = ~here & there
    new = gained.copy()
    if approved:
        new[:, :_NEEDED] = False
    if new.any():
        tensors = int(new.any(axis=1).sum())
        names = ", ".join(_names(np.asarray(new.any(axis=0))))
        notes.append(f"not compared, as the golden does not have it ({tensors} tensors): {names}")
    return here & there, here & ~there & ~left_out, gained & ~new, notes


def _not_finite(pairs: Pairs) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    """Pairs, (m,), with NaN or infinity among the golden's max, min and avg; those with none finite, (m,).

    One such element decides these three, whatever the others are: a change of theirs does not show. Where
    all elements are NaN or infinite there are no others.
    """
    cells, known = pairs.golden.values[pairs.here], pairs.golden.known[pairs.here]
    finite = known & np.isfinite(cells)
    odd: NDArray[np.bool_] = np.asarray((known & ~finite)[:, :_NEEDED].any(axis=1))
    for row in np.flatnonzero(odd).tolist():
        count = pairs.golden.counts[int(pairs.here[row])]
        odd[row] = count is None or cells[row, MEASURED:][known[row, MEASURED:]].sum() < count
    return odd, odd & ~np.asarray(finite[:, :_NEEDED].any(axis=1))


def _hidden_by_print(pairs: Pairs) -> NDArray[np.bool_]:
    """Pairs, (m,), of which one side is CANN's print with NaN for max and min, which the other side computed.

    CANN's writer prints that where the first element is NaN, whatever the others are. Both sides have to have
    the same number of NaN: where there are more, or not known to be as many, a NaN is a difference.
    """
    golden, actual = pairs.golden.values[pairs.here], pairs.actual.values[pairs.there]
    here, there = pairs.known()
    known = (here & there)[:, [*range(EXTREMES), _NAN]].all(axis=1)
    same = known & (golden[:, _NAN] == actual[:, _NAN]) & (golden[:, _NAN] > 0)
    printed = [pairs.golden.digits[pairs.here] > 0, pairs.actual.digits[pairs.there] > 0]
    nan = [np.isnan(values[:, :EXTREMES]) for values in (golden, actual)]
    hidden = [
        printed[side] & nan[side].all(axis=1) & ~printed[1 - side] & ~nan[1 - side].any(axis=1)
        for side in (0, 1)
    ]
    return np.asarray(same & (hidden[0] | hidden[1]))


def _names(columns: NDArray[np.bool_]) -> list[str]:
    return [name for name, chosen in zip(STATISTICS, columns.tolist(), strict=True) if chosen]


def _reasons(
    pairs: Pairs, judged: NDArray[np.bool_], one_sided: NDArray[np.bool_], tolerances: Tolerances
) -> dict[int, list[Reason]]:
    """Reasons by position among the pairs: dtype, shape and count before statistics in their own order."""
    reasons: dict[int, list[Reason]] = {}
    for position, reason in _unequal(pairs):
        reasons.setdefault(position, []).append(reason)
    cells = {(row, column): _one_sided(pairs, row, column) for row, column in np.argwhere(one_sided).tolist()}
    for row, column, allowed, rule in differing(pairs, judged, tolerances):
        golden, actual = pairs.values(row, column)
        cells[row, column] = Reason(STATISTICS[column], golden, actual, allowed, rule.describe())
    for row, column in sorted(cells):
        reasons.setdefault(row, []).append(cells[row, column])
    return reasons


def _one_sided(pairs: Pairs, row: int, column: int) -> Reason:
    golden, actual = pairs.values(row, column)
    return Reason(STATISTICS[column], golden, actual, None, _UNAPPROVED if golden is None else _LOST)


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
