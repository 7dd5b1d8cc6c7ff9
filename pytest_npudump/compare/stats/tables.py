"""Statistics of a dump against those of a golden.

Counts, shapes, dtypes and integers must be equal. A float passes where ``|actual - golden| <= atol +
rtol * scale``; the scale is the golden tensor's own magnitude, as a mean near zero has no meaningful
relative error. NaN equals NaN, an infinity the same infinity, and neither equals a number. A value that
only one side has is no agreement: see :func:`compare_tables`.
"""

from __future__ import annotations

import gc
from contextlib import contextmanager
from dataclasses import replace
from operator import itemgetter
from typing import TYPE_CHECKING

import numpy as np

from pytest_npudump.compare.stats.alignment import ABSENT, align
from pytest_npudump.compare.stats.fingerprints import compare_digests, compare_projections
from pytest_npudump.compare.stats.numbers import EXACT, Pairs, below_atol, changed, differing
from pytest_npudump.compare.stats.unjudged import blind_bounds, doubts_of, hidden_by_print
from pytest_npudump.compare.stats.verdict import (
    EXTRA,
    FAIL,
    MISSING,
    Comparison,
    Reason,
    Verdict,
    first_divergence,
    key_at,
    origin_of,
    type_at,
)
from pytest_npudump.dump.dtypes import UNKNOWN
from pytest_npudump.dump.table import EXTREMES, NEEDED, PROJECTIONS, STATISTICS, UNKNOWN_SHAPE
from pytest_npudump.errors import said

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray

    from pytest_npudump.compare.stats.alignment import Alignment
    from pytest_npudump.compare.tolerances.tolerance import Rule, Tolerances
    from pytest_npudump.dump.table import StatsTable

    _Cells = Sequence[str | int | None]
    _Property = tuple[str, _Cells, _Cells, str | None]


_LOST = said("the golden has a value, the dump has none")
_UNAPPROVED = said("the golden has no value to compare with: approve anew")
_EQUAL = said("must be equal")


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
    tolerances = tolerances.for_layers_of(golden.keys, actual.keys)
    alignment = align(golden.keys, actual.keys)
    both, pairs = alignment.both, Pairs.of(golden, actual, alignment)
    here, there = pairs.known()
    computed = np.asarray(pairs.actual.known.any(axis=0))
    left_out: NDArray[np.bool_] = np.logical_not(computed) & bool(computed[:NEEDED].all())
    notes = []
    dropped = np.asarray(left_out & here.any(axis=0))
    if dropped.any():
        names = ", ".join(_names(dropped))
        notes.append(
            said("not compared, as no tensor of this dump has it but the golden does: {names}", names=names)
        )
    gained: NDArray[np.bool_] = ~here & there
    new = gained.copy()
    if approved:
        new[:, :NEEDED] = False
    if note := _not_approved(pairs, new):
        notes.append(note)
    judged, lost, gained = here & there, here & ~there & ~left_out, gained & ~new
    hidden = hidden_by_print(pairs)
    judged[:, :EXTREMES] &= ~hidden[:, np.newaxis]
    digests = compare_digests(pairs, judged, tolerances)
    with _without_collection():
        reasons = _reasons(pairs, judged, lost | gained, tolerances)
        projections = compare_projections(pairs, tolerances)
        for row, reason in (*projections.reasons.items(), *digests.reasons.items()):
            reasons.setdefault(row, []).append(reason)
        failing = tuple(_failing(golden, actual, alignment, both, reasons))
    first = first_divergence(failing)
    agree = np.ones(len(pairs.here), dtype=np.bool_)
    agree[list(reasons)] = False
    positions = np.flatnonzero(both)
    unsteady = _unsteady(pairs, tolerances)
    unequal = changed(pairs, judged) | projections.changed | digests.differ | ~agree
    quiet = unequal & agree
    wavering = quiet & unsteady & ~_beyond_noise(pairs, judged, tolerances)
    measured = tolerances.measured
    return Comparison(
        golden=golden,
        actual=actual,
        alignment=alignment,
        failing=failing,
        expected=len(golden),
        compared=len(pairs.here),
        passed=int(agree.sum()),
        first=first,
        origin=origin_of(first, [golden.keys[row] for row in pairs.here.tolist()] if first else ()),
        remarks=(*alignment.notes, *notes, *projections.remarks, *digests.remarks),
        tolerances=tolerances,
        doubts=doubts_of(
            pairs,
            judged,
            agree,
            hidden=hidden,
            digests=digests,
            projected=projections.judged,
            small=below_atol(pairs, judged, tolerances),
            unseen=blind_bounds(pairs, judged & quiet[:, np.newaxis], projections.judged & quiet, tolerances),
            positions=positions,
        ),
        differing=frozenset(positions[unequal & ~wavering].tolist()),
        within_noise=frozenset(positions[wavering].tolist()),
        unsteady=frozenset(positions[unsteady].tolist()),
        repeats=measured.repeats if measured is not None else None,
    )


def _beyond_noise(pairs: Pairs, judged: NDArray[np.bool_], tolerances: Tolerances) -> NDArray[np.bool_]:
    """Pairs, (m,), that differ by more than what was measured of them, whatever a preset or a rule allows.

    Projections say so only where theirs were measured, which a golden may have without.
    """
    found = np.zeros(len(pairs.here), dtype=np.bool_)
    measured = tolerances.measured
    if measured is not None and measured.noise:
        alone = replace(tolerances, preset=EXACT, rules=(), measured=replace(measured, widens=True))
        found[[row for row, *_ in differing(pairs, judged, alone)]] = True
        apart = compare_projections(pairs, alone).reasons
        found[[row for row in apart if measured.rtol(pairs.key(row), PROJECTIONS)]] = True
    return found


@contextmanager
def _without_collection() -> Iterator[None]:
    """Make reasons and verdicts, which are no cycles: looking through them takes as long as making them."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


def _unsteady(pairs: Pairs, tolerances: Tolerances) -> NDArray[np.bool_]:
    """Pairs, (m,), of which runs alike gave other digits when the golden was recorded."""
    measured = tolerances.measured
    if measured is None or not measured.noise:
        return np.zeros(len(pairs.here), dtype=np.bool_)
    return np.fromiter((measured.varies(pairs.key(row)) for row in range(len(pairs.here))), np.bool_)


def _not_approved(pairs: Pairs, new: NDArray[np.bool_]) -> str:
    """Say what the golden leaves open that the dump tells, "" for nothing.

    Args:
        pairs: the m tensors.
        new: (m, 7), statistics that only the dump tells.
    """
    open_cells = {name: frozenset(rows) for name, rows in _unapproved(pairs)}
    names = [name for name, rows in open_cells.items() if rows] + _names(np.asarray(new.any(axis=0)))
    if not names:
        return ""
    rows = sorted(frozenset(np.flatnonzero(new.any(axis=1)).tolist()).union(*open_cells.values()))
    first = f"first: {pairs.key(rows[0])}"
    return said(
        "not compared, as the golden does not have it ({count} tensors, {first}): {names}",
        count=len(rows),
        first=first,
        names=", ".join(names),
    )


def _unapproved(pairs: Pairs) -> Iterator[tuple[str, Iterator[int]]]:
    """Properties, with the pairs of which only the dump tells them."""
    for name, golden, actual, unknown in _properties(pairs):
        if unknown in golden:
            rows = zip(pairs.here.tolist(), pairs.there.tolist(), strict=True)
            yield (
                name,
                (at for at, (here, there) in enumerate(rows) if golden[here] == unknown != actual[there]),
            )


def _names(columns: NDArray[np.bool_]) -> list[str]:
    return [name for name, chosen in zip(STATISTICS, columns.tolist(), strict=True) if chosen]


def _reasons(
    pairs: Pairs, judged: NDArray[np.bool_], one_sided: NDArray[np.bool_], tolerances: Tolerances
) -> dict[int, list[Reason]]:
    """Reasons by position among the pairs: dtype, shape and count before statistics in their own order."""
    reasons: dict[int, list[Reason]] = {}
    for position, reason in _unequal(pairs):
        reasons.setdefault(position, []).append(reason)
    cells = []
    for row, column in np.argwhere(one_sided).tolist():
        golden, actual = pairs.values(row, column)
        why = _UNAPPROVED if golden is None else _LOST
        cells.append((row, column, Reason(STATISTICS[column], golden, actual, None, why)))
    words: dict[int, tuple[Rule, str]] = {}  # by identity: a hash takes longer than the words
    found = list(differing(pairs, judged, tolerances))
    for (row, column, allowed, rule), golden, actual in zip(found, *_values(pairs, found), strict=True):
        heard = words.get(id(rule)) or words.setdefault(id(rule), (rule, rule.describe()))
        cells.append((row, column, Reason(STATISTICS[column], golden, actual, allowed, heard[1])))
    for row, _, reason in sorted(cells, key=itemgetter(0, 1)):
        reasons.setdefault(row, []).append(reason)
    return reasons


def _values(
    pairs: Pairs, cells: Sequence[tuple[int, int, float, Rule]]
) -> tuple[list[float | int | None], list[float | int | None]]:
    """The golden's and the dump's value of each of the cells that :func:`differing` gave."""
    rows = np.fromiter((cell[0] for cell in cells), np.intp, len(cells))
    columns = np.fromiter((cell[1] for cell in cells), np.intp, len(cells))
    return pairs.golden.cells(pairs.here[rows], columns), pairs.actual.cells(pairs.there[rows], columns)


def _unequal(pairs: Pairs) -> Iterator[tuple[int, Reason]]:
    """Pairs whose dtype, shape or count differ; what the golden does not know is not judged, but noted."""
    for name, golden, actual, unknown in _properties(pairs):
        if golden == actual and np.array_equal(pairs.here, pairs.there):
            continue
        rows = zip(pairs.here.tolist(), pairs.there.tolist(), strict=True)
        for position, (here, there) in enumerate(rows):
            before, now = golden[here], actual[there]
            if before not in (now, unknown):
                found = None if now == unknown else now
                yield position, Reason(name, before, found, None, _EQUAL if found is not None else _LOST)


def _properties(pairs: Pairs) -> tuple[_Property, ...]:
    """Name, values of both sides, and what stands for unknown."""
    golden, actual = pairs.golden, pairs.actual
    return (
        ("dtype", golden.dtypes, actual.dtypes, UNKNOWN),
        ("shape", golden.shapes, actual.shapes, UNKNOWN_SHAPE),
        ("count", golden.counts, actual.counts, None),
    )


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
