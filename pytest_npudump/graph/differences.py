"""How much tensors differ, on the comparison's own scale, passing ones included."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from pytest_npudump.compare.stats.numbers import half_unit, scales
from pytest_npudump.compare.stats.order import ABSENT
from pytest_npudump.compare.stats.pairs import Pairs
from pytest_npudump.compare.stats.projection_distances import norms, root_mean_square, told
from pytest_npudump.dump.table import MEASURED, PROJECTIONS, STATISTICS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from pytest_npudump.compare.stats.verdict import Comparison
    from pytest_npudump.compare.tolerances.tolerance import Tolerances


def relative_differences(comparison: Comparison) -> NDArray[np.float64]:
    """Return how much each tensor differs, in its own scale: (n,), by position in the alignment.

    Where both sides have projections it is the relative l2norm of the difference that these estimate, and
    else the largest difference of max, min, avg and l2norm, each by its scale: that says much less, as a few
    elements make an extreme, and a sum may stay while its elements change. Infinite where a count of NaN or
    infinities, the type or the shape differs, or where one side is no number; 0 for what only one side has.
    """
    positions, pairs = _pairs(comparison)
    here, there = pairs.golden.values[pairs.here], pairs.actual.values[pairs.there]
    known = pairs.golden.known[pairs.here] & pairs.actual.known[pairs.there]
    unequal = known & ~((here == there) | (np.isnan(here) & np.isnan(there)))
    shares = np.zeros(here.shape)
    shares[:, MEASURED:][unequal[:, MEASURED:]] = np.inf
    rows, columns = np.nonzero(unequal[:, :MEASURED])
    golden, actual = here[rows, columns], there[rows, columns]
    with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
        share = np.abs(actual - golden) / scales(pairs, golden, rows, columns)
    shares[rows, columns] = np.where(np.isfinite(golden) & np.isfinite(actual), share, np.inf)
    distances = _distances(pairs) / np.where((norm := norms(pairs.golden)[pairs.here]) > 0, norm, np.nan)
    counted = shares[:, MEASURED:].any(axis=1)
    found = np.zeros(len(comparison.alignment.golden))
    found[positions] = np.where(np.isnan(distances) | counted, shares.max(axis=1, initial=0.0), distances)
    found[positions[_changed_kind(pairs)]] = np.inf
    return found


def _distances(pairs: Pairs) -> NDArray[np.float64]:
    """Return the l2norm of the difference as projections estimate it, (m,); NaN where a side has none."""
    found = np.full(len(pairs.here), np.nan)
    one, other = pairs.golden.projections, pairs.actual.projections
    if one is None or other is None:
        return found
    both = told(pairs.golden)[pairs.here] & told(pairs.actual)[pairs.there]
    with np.errstate(invalid="ignore"):
        away = other[pairs.there[both]] - one[pairs.here[both]]
    found[both] = root_mean_square(np.where(np.isfinite(away), away, 0.0))
    return found


def _changed_kind(pairs: Pairs) -> NDArray[np.bool_]:
    rows = zip(pairs.here.tolist(), pairs.there.tolist(), strict=True)
    one, other = pairs.golden, pairs.actual
    kinds = ((one.dtypes[h], one.shapes[h]) != (other.dtypes[t], other.shapes[t]) for h, t in rows)
    return np.fromiter(kinds, np.bool_, len(pairs.here))


def share_of_allowed(comparison: Comparison, position: int, tolerances: Tolerances) -> float:
    """Return the largest difference of a tensor's statistics and projections by what each may differ by.

    Args:
        comparison: the tensors.
        position: in its alignment, of one that both sides have.
        tolerances: what decides.
    """
    row = np.array([position])
    pairs = Pairs(
        comparison.golden,
        comparison.actual,
        comparison.alignment.golden[row],
        comparison.alignment.actual[row],
    )
    columns = np.flatnonzero(np.logical_and(*pairs.known())[0, :MEASURED])
    at = np.zeros_like(columns)
    golden, actual = pairs.golden.values[pairs.here[0], columns], pairs.actual.values[pairs.there[0], columns]
    named = pairs.layer(0), pairs.dtype(0)
    own = pairs.key(0), pairs.op_type(0)
    rules = [tolerances.decide(*named, STATISTICS[c], *own) for c in columns.tolist()]
    with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
        allowed = _column(rules, "atol") + _column(rules, "rtol") * scales(pairs, golden, at, columns)
        for table, rows, values in (
            (pairs.golden, pairs.here, golden),
            (pairs.actual, pairs.there, actual),
        ):
            allowed += half_unit(values, np.full(len(columns), table.digits[rows[0]]))
        shares = np.abs(actual - golden) / allowed
        rule = tolerances.decide(*named, PROJECTIONS, *own)
        root = np.sqrt(float(pairs.golden.counts[pairs.here[0]] or 0))
        shares = np.append(
            shares, _distances(pairs) / (rule.atol * root + rule.rtol * norms(pairs.golden)[pairs.here])
        )
    return float(np.nan_to_num(shares, nan=0.0, posinf=np.inf).max(initial=0.0))


def _column(rules: Sequence[object], name: str) -> NDArray[np.float64]:
    return np.array([getattr(rule, name) for rule in rules], dtype=np.float64)


def _pairs(comparison: Comparison) -> tuple[NDArray[np.intp], Pairs]:
    alignment = comparison.alignment
    both = (alignment.golden != ABSENT) & (alignment.actual != ABSENT)
    pairs = Pairs(comparison.golden, comparison.actual, alignment.golden[both], alignment.actual[both])
    return np.flatnonzero(both), pairs
