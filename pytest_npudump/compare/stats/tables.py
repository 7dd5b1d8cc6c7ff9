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

from pytest_npudump.compare.stats.alignment import ABSENT, Alignment, align
from pytest_npudump.compare.stats.fingerprints import (
    Digests,
    Distances,
    Hashes,
    compare_digests,
    compare_projections,
    sums_at,
)
from pytest_npudump.compare.stats.numbers import (
    EXACT,
    Pairs,
    allowed_differences,
    below_atol,
    changed,
    differing,
)
from pytest_npudump.compare.stats.verdict import (
    CHECKSUM,
    EXTRA,
    FAIL,
    MISSING,
    Comparison,
    Doubt,
    Reason,
    Verdict,
    first_divergence,
    key_at,
    origin_of,
    type_at,
)
from pytest_npudump.dump.dtypes import UNKNOWN
from pytest_npudump.dump.table import (
    EXTREMES,
    MEASURED,
    NEEDED,
    PROJECTIONS,
    STATISTICS,
    UNKNOWN_SHAPE,
    StatsTable,
)
from pytest_npudump.errors import said
from pytest_npudump.language.translation import gettext as _

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from numpy.typing import NDArray

    from pytest_npudump.compare.tolerances.tolerance import Rule, Tolerances

    _Cells = Sequence[str | int | None]
    _Property = tuple[str, _Cells, _Cells, str | None]


_LOST = said("the golden has a value, the dump has none")
_UNAPPROVED = said("the golden has no value to compare with: accept again")
_EQUAL = said("exact match required")


def compare_tables(
    golden: StatsTable,
    actual: StatsTable,
    tolerances: Tolerances,
    *,
    approved: bool = True,
    alone: Callable[..., frozenset[str]] | None = None,
) -> Comparison:
    """Judge every tensor of ``actual`` against its counterpart in ``golden``.

    A max, min or avg that only ``actual`` tells fails its tensor; an l2norm or a count that only ``actual``
    tells is noted. What only ``golden`` tells fails, unless no tensor of ``actual`` has that statistic.

    Args:
        golden: accepted statistics.
        actual: statistics of the run.
        tolerances: what measured statistics may differ by.
        approved: False where ``golden`` is the dump of another run, whose producer may compute less: then
            whatever only ``actual`` tells is noted.
        alone: returns the keys of tensors that changed while all that they were computed from did not, by the
            ``alignment`` and the positions in it of those that are ``differing``, and ``unsteady``: their
            projections are judged by that. None where nothing tells.

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
    positions, distances, hashes = np.flatnonzero(both), Distances.of(pairs), Hashes.of(pairs)
    unsteady, moved = _unsteady(pairs, tolerances), changed(pairs, judged)
    wild = frozenset(positions[unsteady].tolist())
    with without_collection():
        of_values = _reasons(pairs, judged, lost | gained, tolerances)
        for _again in range(2):
            digests = compare_digests(pairs, judged, tolerances, distances, hashes)
            projections = compare_projections(pairs, tolerances, distances)
            reasons = {row: [*found] for row, found in of_values.items()}
            for row, reason in (*projections.reasons.items(), *digests.reasons.items()):
                if reason.statistic != CHECKSUM or row not in reasons:  # which tells no more than others
                    reasons.setdefault(row, []).append(reason)
            agree = np.ones(len(pairs.here), dtype=np.bool_)
            agree[list(reasons)] = False
            unequal = moved | projections.changed | digests.changed | ~agree
            quiet = unequal & agree
            wavering = quiet & unsteady
            if wavering.any():
                wavering &= ~_beyond_noise(pairs, judged, tolerances, distances)
            apart = frozenset(positions[unequal & ~wavering].tolist())
            if not alone or not (keys := alone(alignment=alignment, differing=apart, unsteady=wild)):
                break
            tolerances, alone = replace(tolerances, alone=keys), None
        failing = tuple(_failing(golden, actual, alignment, both, reasons))
    first = first_divergence(failing)
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
        origin=origin_of(first, (golden.keys[row] for row in pairs.here.tolist())),
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
        differing=apart,
        within_noise=frozenset(positions[wavering].tolist()),
        unsteady=wild,
        repeats=measured.repeats if measured is not None else None,
    )


def _beyond_noise(
    pairs: Pairs, judged: NDArray[np.bool_], tolerances: Tolerances, distances: Distances
) -> NDArray[np.bool_]:
    """Pairs, (m,), that differ by more than what was measured of them, whatever a preset or a rule allows.

    Projections say so only where theirs were measured, which a golden may have without.
    """
    found = np.zeros(len(pairs.here), dtype=np.bool_)
    if (measured := tolerances.measured) is not None and measured.noise:
        alone = replace(tolerances, preset=EXACT, rules=(), measured=replace(measured, widens=True))
        found[[row for row, *_ in differing(pairs, judged, alone)]] = True
        apart = compare_projections(pairs, alone, distances).reasons
        found[[row for row in apart if measured.rtol(pairs.key(row), PROJECTIONS)]] = True
    return found


@contextmanager
def without_collection() -> Iterator[None]:
    """Make many objects that are in no cycles: looking through them takes as long as making them."""
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
    """Name properties that the dump has and the golden lacks; "" for none.

    Args:
        pairs: the m tensors.
        new: (m, 7), statistics that only the dump tells.
    """
    open_cells = {name: frozenset(rows) for name, rows in _unapproved(pairs)}
    names = [name for name, rows in open_cells.items() if rows] + _names(np.asarray(new.any(axis=0)))
    if not names:
        return ""
    rows = sorted(frozenset(np.flatnonzero(new.any(axis=1)).tolist()).union(*open_cells.values()))
    return said(
        "not compared, as the golden does not have it (tensors: {count}, {first}): {names}",
        count=len(rows),
        first=f"first: {pairs.key(rows[0])}",
        names=", ".join(names),
    )


def _unapproved(pairs: Pairs) -> Iterator[tuple[str, Iterator[int]]]:
    """Yield properties, with the pairs that only the dump has them of."""
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
    for row, _column, reason in sorted(cells, key=itemgetter(0, 1)):
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
    """Yield pairs whose dtype, shape or count differ; unknown ones of the golden are noted, not judged."""
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
    """Return name, values of both sides, and the value for unknown."""
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


_BARE = said("no statistic on both sides, so that only dtype and shape were compared")
_ODD = said("NaN or Inf in the golden's max, min or avg, which hides changes of other elements")
_HIDDEN = said(
    "max and min not compared: CANN prints NaN for both where the first element is NaN, "
    "and the other side was computed from the tensors"
)
_DIGEST = said("hashes differ, statistics are within tolerance")
BELOW_ATOL = said("all values are below the absolute tolerance, so that any others of that size would pass")
ATOL_ADVICE = said("; give these layers a rule with a smaller atol")
_ODD_ADVICE = said(
    '; compare these tensors element by element, with acl_json={{"dump_data": "tensor"}} and golden_tensors'
)
_NAN, _POSITIVE = STATISTICS.index("nan"), STATISTICS.index("pos_inf")
_COUNTS = slice(_NAN, len(STATISTICS))


def doubts_of(
    pairs: Pairs,
    judged: NDArray[np.bool_],
    agree: NDArray[np.bool_],
    *,
    hidden: NDArray[np.bool_],
    digests: Digests,
    projected: NDArray[np.bool_],
    small: NDArray[np.bool_],
    unseen: NDArray[np.bool_],
    positions: NDArray[np.intp],
) -> tuple[Doubt, ...]:
    """Return the doubts about the tensors that both sides have.

    Args:
        pairs: the n tensors.
        judged: (n, 7), the statistics that were compared.
        agree: (n,), the tensors that pass.
        hidden: (n,), those of which :func:`hidden_by_print` holds.
        digests: what their hashes say: where they are equal there is no doubt.
        projected: (n,), those whose projections were judged, which see all elements that are finite, and not
            0: of a mask of 0 and -Inf they see nothing.
        small: (n,), those that differ, and have no value beyond the absolute tolerance.
        unseen: (n,), those that differ, agree, and of which measured bounds see nothing.
        positions: (n,), where the tensors are in the comparison's alignment.
    """
    empty = np.array([count == 0 for count in pairs.golden.counts], dtype=np.bool_)[pairs.here]
    settled = empty | digests.equal | projected
    bare = agree & ~judged.any(axis=1) & ~settled
    # NaN or infinity among max, min and avg decides these three: a change of others does not show.
    # There are no others where all are NaN or infinite, or max and min are one infinity: all elements are.
    cells, known = pairs.golden.values[pairs.here], pairs.golden.known[pairs.here]
    finite = known & np.isfinite(cells)
    odd: NDArray[np.bool_] = np.asarray((known & ~finite)[:, :NEEDED].any(axis=1))
    odd &= ~(known[:, :EXTREMES].all(axis=1) & np.isinf(cells[:, 0]) & (cells[:, 0] == cells[:, 1]))
    for row in np.flatnonzero(odd).tolist():
        count = pairs.golden.counts[int(pairs.here[row])]
        odd[row] = count is None or cells[row, MEASURED:][known[row, MEASURED:]].sum() < count
    blind = odd & ~np.asarray(finite[:, :NEEDED].any(axis=1))
    seen = empty | digests.equal | (projected & (sums_at(pairs.golden, pairs.here) != 0).any(axis=1))
    none = np.zeros_like(bare)
    found = (
        (bare, bare, _BARE, ""),
        (odd & ~seen, agree & blind, _ODD, _ODD_ADVICE),
        (hidden & ~settled, agree, _HIDDEN, ""),
        (digests.differ & agree, none, _DIGEST, ""),
        (small & agree, none, BELOW_ATOL, ATOL_ADVICE),
        (unseen, none, BLIND, BLIND_ADVICE),
    )
    return tuple(
        Doubt(
            text,
            {int(positions[row]): pairs.key(row) for row in np.flatnonzero(rows).tolist()},
            frozenset(positions[rows & passing].tolist()),
            advice,
        )
        for rows, passing, text, advice in found
        if rows.any()
    )


def hidden_by_print(pairs: Pairs) -> NDArray[np.bool_]:
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


BLIND = said("measured tolerances so wide that a tensor of zeros would pass")
BLIND_ADVICE = said("; set a rule for these layers, or leave them out")


def blind_bounds(
    pairs: Pairs, judged: NDArray[np.bool_], projected: NDArray[np.bool_], tolerances: Tolerances
) -> NDArray[np.bool_]:
    """Pairs, (m,), whose measured bounds see nothing: zeros would pass in all that is judged of the values.

    Counts of NaN and infinities are judged nevertheless. A tensor of zeros has nothing that could be lost.

    Args:
        pairs: the m tensors.
        judged: (m, 7), the statistics that are compared.
        projected: (m,), those whose projections are compared.
        tolerances: what they may differ by.
    """
    found = np.zeros(len(pairs.here), dtype=np.bool_)
    measured = tolerances.measured
    if measured is None or not measured.noise:
        return found
    golden = pairs.golden.values[pairs.here, :MEASURED]
    cells = judged[:, :MEASURED] & np.isfinite(golden) & (golden != 0)
    asked = np.flatnonzero(cells.any(axis=1)).tolist()
    cells[[row for row in asked if pairs.key(row) not in measured.noise]] = False
    rows, columns = np.nonzero(cells)
    allowed, rules = allowed_differences(pairs, rows, columns, tolerances)
    seen = np.abs(golden[rows, columns]) > allowed
    found[rows[[tolerances.is_measured(rule) for rule in rules]]] = True
    found[rows[seen]] = False
    for row in np.flatnonzero(found & projected).tolist():
        found[row] = pairs.rule(row, PROJECTIONS, tolerances).rtol >= 1
    return found


def blind_keys(table: StatsTable, tolerances: Tolerances) -> Sequence[str]:
    """Return the keys of a golden's tensors of which :func:`blind_bounds` see nothing, in its order."""
    every = np.arange(len(table), dtype=np.intp)
    pairs = Pairs(table, table, every, every)
    found = blind_bounds(pairs, table.known, table.tells(PROJECTIONS), tolerances.for_layers_of(table.keys))
    return [table.keys[row] for row in np.flatnonzero(found).tolist()]


def describe_blind(keys: Sequence[str]) -> str:
    """Name the tensors of :func:`blind_keys` in one line; "" where there are none."""
    if not keys:
        return ""
    return _(
        "measured tolerances so wide that a tensor of zeros would pass (tensors: {count}, first: {first}); "
        "set a rule for these layers, or leave them out"
    ).format(count=len(keys), first=keys[0])


def describe_not_finite(table: StatsTable) -> str:
    """Name tensors that hold nothing but NaN and infinities in one line; "" where there are none.

    Those that hold nothing but -Inf are none of them: masks are filled with it.
    """
    special = np.nansum(table.values[:, _COUNTS], axis=1).tolist()
    rows = np.flatnonzero((table.values[:, [_NAN, _POSITIVE]] > 0).any(axis=1)).tolist()
    found = [table.keys[row] for row in rows if special[row] == table.counts[row]]
    if not found:
        return ""
    return said(
        "{count} of {total} tensors contain only NaN or infinities (first: {first}): check "
        "the model and its inputs",
        count=len(found),
        total=len(table),
        first=found[0],
    )
