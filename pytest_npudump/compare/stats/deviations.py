"""How far a run strays from another one in which nothing was different, in the scale of each statistic."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from pytest_npudump.compare.stats.numbers import allowed_differences, scales
from pytest_npudump.compare.stats.order import ABSENT
from pytest_npudump.compare.stats.pairs import Pairs
from pytest_npudump.compare.stats.projection_distances import strayed_projections
from pytest_npudump.compare.stats.verdict import EXTRA, MISSING
from pytest_npudump.dump.dtypes import is_exact
from pytest_npudump.dump.table import MEASURED, PROJECTIONS, STATISTICS
from pytest_npudump.record.noise import MEASURABLE

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from pytest_npudump.compare.stats.verdict import Comparison
    from pytest_npudump.compare.tolerances.tolerance import Tolerances

_PROJECTED = MEASURABLE.index(PROJECTIONS)
_STRUCTURE = ("dtype", "shape", "count")


@dataclass(frozen=True, slots=True, eq=False)
class Deviations:
    """A run against the one whose n tensors are, or become, the golden.

    Attributes:
        keys: the golden's keys.
        largest: float64 (n, 5), ``|value - golden's|`` of max, min, avg and l2norm in the scale of each, and
            the distance that projections tell by the l2norm; 0 where a side does not tell it, infinite where
            only one is finite or the scale is 0.
        floor: float64 (n, 5), what may differ by rules and presets, in the same scale.
        differs: bool (n,), whether the tensor is not the golden's digit for digit.
        uncountable: bool (n,), whether a count of NaN or infinities is another one.
        compared: bool (n,), whether the run has the tensor.
        exact: bool (n,), whether a preset wants the values of its type equal.
    """

    keys: tuple[str, ...]
    largest: NDArray[np.float64]
    floor: NDArray[np.float64]
    differs: NDArray[np.bool_]
    uncountable: NDArray[np.bool_]
    compared: NDArray[np.bool_]
    exact: NDArray[np.bool_]

    @property
    def outside(self) -> NDArray[np.bool_]:
        """Tensors, (n,), that differ by more than rules and presets allow."""
        beyond: NDArray[np.bool_] = np.any(self.largest > self.floor, axis=1)
        return self.uncountable | beyond


def structural_difference(comparison: Comparison) -> str:
    """Say in what else than values two runs differ; "" where both have the same tensors of one shape each."""
    for verdict in comparison.failing:
        if verdict.status in (MISSING, EXTRA):
            side = "the first run only" if verdict.status == MISSING else "the later run only"
            return f"{verdict.key} is in {side}"
        for reason in verdict.reasons:
            if reason.statistic in _STRUCTURE:
                return f"{verdict.key} has another {reason.statistic}: {reason.golden} and {reason.actual}"
    return ""


def deviations(comparison: Comparison, tolerances: Tolerances) -> Deviations:
    """Measure a run that was compared with another one.

    Args:
        comparison: of both, the golden's side being the one that counts.
        tolerances: what statistics may differ by without having been measured.
    """
    tolerances = tolerances.for_layers_of(comparison.golden.keys, comparison.actual.keys)
    alignment, golden = comparison.alignment, comparison.golden
    both = (alignment.golden != ABSENT) & (alignment.actual != ABSENT)
    pairs = Pairs(golden, comparison.actual, alignment.golden[both], alignment.actual[both])
    shape = (len(golden), len(MEASURABLE))
    largest, floor = np.zeros(shape), np.zeros(shape)
    here, there = pairs.known()
    rows, columns = np.nonzero((here & there)[:, :MEASURED])
    before = golden.values[pairs.here[rows], columns]
    now = comparison.actual.values[pairs.there[rows], columns]
    alike = (before == now) | (np.isnan(before) & np.isnan(now))
    rows, columns, before, now = (cells[~alike] for cells in (rows, columns, before, now))
    allowed, _ = allowed_differences(pairs, rows, columns, tolerances)
    scale = scales(pairs, before, rows, columns)
    at = pairs.here[rows], columns
    with np.errstate(over="ignore", invalid="ignore"):
        difference = np.abs(now - before)
    largest[at], floor[at] = _scaled(difference, allowed, scale)
    apart = strayed_projections(pairs, tolerances)
    at = pairs.here[apart.rows], np.full(len(apart.rows), _PROJECTED)
    largest[at], floor[at] = _scaled(apart.distance, apart.allowed, apart.scale)
    counts = slice(MEASURED, len(STATISTICS))
    unequal = (here & there)[:, counts] & (
        golden.values[pairs.here, counts] != comparison.actual.values[pairs.there, counts]
    )
    return Deviations(
        keys=golden.keys,
        largest=largest,
        floor=floor,
        differs=_marked(golden.keys, alignment.golden[sorted(comparison.differing)]),
        uncountable=_marked(golden.keys, pairs.here[unequal.any(axis=1)]),
        compared=_marked(golden.keys, pairs.here),
        exact=np.array([is_exact(dtype) for dtype in golden.dtypes], dtype=np.bool_),
    )


def _scaled(
    difference: NDArray[np.float64], allowed: NDArray[np.float64], scale: NDArray[np.float64]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return k differences and what they may be in their scales, (k,) each.

    A golden of zeros has no scale: what its absolute tolerance forgives is nothing to measure.
    """
    with np.errstate(over="ignore", invalid="ignore"):
        strayed = np.where(np.isfinite(difference), difference, np.inf)
        sized = scale > 0
        safe = np.where(sized, scale, 1.0)
        unsized = np.where(strayed <= allowed, 0.0, np.inf)
        return np.where(sized, strayed / safe, unsized), np.where(sized, allowed / safe, 0.0)


def _marked(keys: tuple[str, ...], rows: NDArray[np.intp]) -> NDArray[np.bool_]:
    found = np.zeros(len(keys), dtype=np.bool_)
    found[rows] = True
    return found
