"""What agrees and was not judged, or not all of it; tensors and bounds of which nothing can be judged."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from pytest_npudump.compare.stats.numbers import Pairs, allowed_differences
from pytest_npudump.compare.stats.verdict import Doubt
from pytest_npudump.dump.table import EXTREMES, MEASURED, NEEDED, PROJECTIONS, STATISTICS
from pytest_npudump.errors import said
from pytest_npudump.language.translation import gettext as _

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from pytest_npudump.compare.stats.fingerprints import Digests
    from pytest_npudump.compare.tolerances.tolerance import Tolerances
    from pytest_npudump.dump.table import StatsTable


_BARE = said("no statistic on both sides, so that only dtype and shape were compared")
_ODD = said("NaN or Inf in the golden's max, min or avg, which then say little of all other elements")
_HIDDEN = said(
    "max and min not compared: CANN prints NaN for both where the first element is NaN, "
    "and the other side was computed from the tensors"
)
_DIGEST = said("hashes differ, so that not all bits are equal, while the statistics agree within tolerance")
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
    odd, blind = _not_finite(pairs)
    seen = empty | digests.equal | (projected & _any_projection(pairs))
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


def _any_projection(pairs: Pairs) -> NDArray[np.bool_]:
    """Pairs, (m,), of which the golden has a projection that is not 0."""
    sums = pairs.golden.projections
    if sums is None:
        return np.zeros(len(pairs.here), dtype=np.bool_)
    return np.asarray((sums[pairs.here] != 0).any(axis=1))


def _not_finite(pairs: Pairs) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    """Pairs, (m,), with NaN or infinity among the golden's max, min and avg; those with none finite, (m,).

    One such element decides these three, whatever the others are: a change of theirs does not show. Where
    all elements are NaN or infinite there are no others, nor where max and min are one infinity, which is
    what all elements are then.
    """
    cells, known = pairs.golden.values[pairs.here], pairs.golden.known[pairs.here]
    finite = known & np.isfinite(cells)
    odd: NDArray[np.bool_] = np.asarray((known & ~finite)[:, :NEEDED].any(axis=1))
    odd &= ~(known[:, :EXTREMES].all(axis=1) & np.isinf(cells[:, 0]) & (cells[:, 0] == cells[:, 1]))
    for row in np.flatnonzero(odd).tolist():
        count = pairs.golden.counts[int(pairs.here[row])]
        odd[row] = count is None or cells[row, MEASURED:][known[row, MEASURED:]].sum() < count
    return odd, odd & ~np.asarray(finite[:, :NEEDED].any(axis=1))


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


BLIND = said("measured bounds so wide that a tensor of zeros would pass")
BLIND_ADVICE = said("; judge these layers by a rule, or leave them out")


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
    of_noise = [tolerances.is_measured(rule) for rule in rules]
    found[rows[of_noise]] = True
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
        "measured bounds so wide that a tensor of zeros would pass: {count} tensors (first: {first}); judge "
        "these layers by a rule, or leave them out"
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
