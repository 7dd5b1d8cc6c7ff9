"""How much tensors differ, on the comparison's own scale, passing ones included."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from pytest_npudump.compare.stats.numbers import half_unit, scales
from pytest_npudump.compare.stats.order import ABSENT
from pytest_npudump.compare.stats.pairs import Pairs
from pytest_npudump.dump.table import MEASURED, STATISTICS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from pytest_npudump.compare.stats.verdict import Comparison
    from pytest_npudump.compare.tolerances.tolerance import Tolerances


def relative_differences(comparison: Comparison) -> NDArray[np.float64]:
    """Return the largest difference of max, min, avg and l2norm of each tensor, each by its scale: (n,).

    By position in the alignment. Infinite where a count of NaN or infinities, the type or the shape differs,
    or where one side is no number; 0 for what only one side has.
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
    found = np.zeros(len(comparison.alignment.golden))
    found[positions] = shares.max(axis=1, initial=0.0)
    found[positions[_changed_kind(pairs)]] = np.inf
    return found


def _changed_kind(pairs: Pairs) -> NDArray[np.bool_]:
    rows = zip(pairs.here.tolist(), pairs.there.tolist(), strict=True)
    one, other = pairs.golden, pairs.actual
    kinds = ((one.dtypes[h], one.shapes[h]) != (other.dtypes[t], other.shapes[t]) for h, t in rows)
    return np.fromiter(kinds, np.bool_, len(pairs.here))


def share_of_allowed(comparison: Comparison, position: int, tolerances: Tolerances) -> float:
    """Return the largest difference of a tensor's max, min, avg and l2norm by what each may differ by.

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
    rules = [tolerances.decide(pairs.layer(0), pairs.dtype(0), STATISTICS[c]) for c in columns.tolist()]
    with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
        allowed = _column(rules, "atol") + _column(rules, "rtol") * scales(pairs, golden, at, columns)
        for table, rows, values in (
            (pairs.golden, pairs.here, golden),
            (pairs.actual, pairs.there, actual),
        ):
            allowed += half_unit(values, np.full(len(columns), table.digits[rows[0]]))
        shares = np.abs(actual - golden) / allowed
    return float(np.nan_to_num(shares, nan=0.0, posinf=np.inf).max(initial=0.0))


def _column(rules: Sequence[object], name: str) -> NDArray[np.float64]:
    return np.array([getattr(rule, name) for rule in rules], dtype=np.float64)


def _pairs(comparison: Comparison) -> tuple[NDArray[np.intp], Pairs]:
    alignment = comparison.alignment
    both = (alignment.golden != ABSENT) & (alignment.actual != ABSENT)
    pairs = Pairs(comparison.golden, comparison.actual, alignment.golden[both], alignment.actual[both])
    return np.flatnonzero(both), pairs
