"""How much of its allowance each tensor uses up, passing ones included."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from pytest_npudump.compare.stats.numbers import allowed_differences, on_judged_side
from pytest_npudump.compare.stats.order import ABSENT
from pytest_npudump.compare.stats.pairs import Pairs
from pytest_npudump.compare.stats.projection_distances import strayed_projections
from pytest_npudump.compare.stats.verdict import FAIL, key_at
from pytest_npudump.dump.table import MEASURED

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from pytest_npudump.compare.stats.verdict import Comparison, Reason
    from pytest_npudump.compare.tolerances.tolerance import Tolerances


def shares_of_allowed(comparison: Comparison, tolerances: Tolerances) -> NDArray[np.float64]:
    """Return the largest difference of each tensor by what it may be: (n,), by position in the alignment.

    Of max, min, avg, l2norm and projections, and of whatever else a failing tensor's reasons name. Infinite
    where nothing may differ, or the difference is no number; NaN for what only one side has. Of a tensor that
    passes at most 1: what is beyond that was not judged.

    Args:
        comparison: the tensors.
        tolerances: what decided.
    """
    tolerances = tolerances.for_layers_of(comparison.golden.keys, comparison.actual.keys)
    alignment = comparison.alignment
    both = (alignment.golden != ABSENT) & (alignment.actual != ABSENT)
    positions = np.flatnonzero(both)
    pairs = Pairs(comparison.golden, comparison.actual, alignment.golden[both], alignment.actual[both])
    found = np.full(len(both), np.nan)
    found[positions] = _of_pairs(pairs, tolerances)
    failing = {verdict.key: verdict for verdict in comparison.failing if verdict.status == FAIL}
    passing = both.copy()
    for position in positions.tolist() if failing else ():
        here, there = int(alignment.golden[position]), int(alignment.actual[position])
        verdict = failing.get(key_at(comparison.golden, comparison.actual, here, there))
        if verdict is not None:
            passing[position] = False
            found[position] = max(found[position], max(map(share_of, verdict.reasons), default=0.0))
    found[passing] = np.minimum(found[passing], 1.0)
    return found


def share_of(reason: Reason) -> float:
    """Return how many times its allowance a reason is off; infinite where there is none, or no number."""
    difference = reason.difference
    return abs(difference) / reason.allowed if reason.allowed and difference is not None else np.inf


def _of_pairs(pairs: Pairs, tolerances: Tolerances) -> NDArray[np.float64]:
    here, there = pairs.golden.values[pairs.here], pairs.actual.values[pairs.there]
    known = np.logical_and(*pairs.known())
    unequal = known & ~((here == there) | (np.isnan(here) & np.isnan(there)))
    shares = np.where(unequal, np.inf, 0.0)
    rows, columns = np.nonzero(unequal[:, :MEASURED])
    allowed, rules = allowed_differences(pairs, rows, columns, tolerances)
    with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
        difference = there[rows, columns] - here[rows, columns]
        share = np.where(np.isfinite(difference), np.abs(difference) / allowed, np.inf)
        judged = on_judged_side(difference, rules) | ~np.isfinite(difference)
        shares[rows, columns] = np.where(judged, share, 0.0)
        apart = strayed_projections(pairs, tolerances)
        strayed = np.nan_to_num(apart.distance / apart.allowed, nan=np.inf, posinf=np.inf)
    largest: NDArray[np.float64] = shares.max(axis=1, initial=0.0)
    np.maximum.at(largest, apart.rows, strayed)
    return largest
