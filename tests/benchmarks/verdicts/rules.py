"""Rules that judge a run: the package's own judge, and rules it does not have, as functions beside it.

A rule says which tensors of a run it finds outside of what its golden allows.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from pytest_npudump.compare.stats.tables import compare_tables
from pytest_npudump.compare.tolerances.tolerance import Rule as Tolerance
from pytest_npudump.compare.tolerances.tolerance import Tolerances
from pytest_npudump.dump.stats.signs import PROJECTIONS

if TYPE_CHECKING:
    from collections.abc import Callable

    from pytest_npudump.dump.table import StatsTable
    from verdicts.observed import Observed


@dataclass(frozen=True)
class Rule:
    """A rule.

    Attributes:
        name: as tables show it.
        judge: golden and run, of the same tensors, to a bool for each tensor: whether it fails.
    """

    name: str
    judge: Callable[[Observed, Observed], np.ndarray]


def product(tolerances: Tolerances, *, printed: bool = True) -> Callable[[Observed, Observed], np.ndarray]:
    """The package's own judge, on a default dump's statistics or on those in full precision."""

    def judge(golden: Observed, run: Observed) -> np.ndarray:
        sides = (golden.printed, run.printed) if printed else (golden.full, run.full)
        comparison = compare_tables(*sides, tolerances)
        failing = {str(verdict.key) for verdict in comparison.failing}
        return np.array([key in failing for key in sides[0].keys])

    return judge


@dataclass(frozen=True)
class Bounds:
    """What statistics may differ by, each in the scale that fits it.

    Attributes:
        extremes: max and min, by the largest magnitude.
        avg: by the root mean square; by the largest magnitude where l2norm is not known.
        l2norm: by itself, and the root mean square of the projections' differences by it.
        projections: the same.
    """

    extremes: float
    avg: float
    l2norm: float
    projections: float


OTHER = {
    "float32": Bounds(2e-5, 5e-6, 1e-5, 1.5e-5),
    "float16": Bounds(1.2e-2, 4e-3, 1e-2, 1.5e-2),
    "bfloat16": Bounds(7e-2, 1.2e-2, 3e-2, 6e-2),
}
"""Bounds for other numerics, as they were measured on seven models."""

HF32 = {**OTHER, "float32": Bounds(1.2e-2, 7e-3, 1e-2, 1.5e-2)}
"""The same where HF32 may be on in one of two runs."""


def bounded(
    bounds: dict[str, Bounds], *, printed: bool, projections: bool = False
) -> Callable[[Observed, Observed], np.ndarray]:
    """Bounds for other numerics: 3 printed statistics, 4 in full, or these and the projections."""

    def judge(golden: Observed, run: Observed) -> np.ndarray:
        sides = (golden.printed, run.printed) if printed else (golden.full, run.full)
        allowed = _allowed(sides[0], bounds, printed=printed)
        difference = np.abs(sides[1].values[:, :4] - sides[0].values[:, :4])
        fails = (difference > allowed + _half_units(sides)).any(axis=1) | _odd(sides)
        if projections:
            fails |= _distance(golden, run) > _column(sides[0], bounds, "projections") * sides[0].values[:, 3]
        return np.asarray(fails)

    return judge


def _column(table: StatsTable, bounds: dict[str, Bounds], name: str) -> np.ndarray:
    return np.array([getattr(bounds[d], name) if d in bounds else 0.0 for d in table.dtypes])


def _allowed(table: StatsTable, bounds: dict[str, Bounds], *, printed: bool) -> np.ndarray:
    largest = np.abs(table.values[:, :2]).max(axis=1)
    counts = np.array(table.counts, float)
    rms = largest if printed else table.values[:, 3] / np.sqrt(np.maximum(counts, 1))
    extremes, avg = _column(table, bounds, "extremes") * largest, _column(table, bounds, "avg") * rms
    norm = np.full(len(table), np.inf) if printed else _column(table, bounds, "l2norm") * table.values[:, 3]
    return np.stack([extremes, extremes, avg, norm], axis=1)


def _half_units(sides: tuple[StatsTable, StatsTable]) -> np.ndarray:
    """What rounding to the printed digits may add."""
    found = np.zeros((len(sides[0]), 4))
    for side in sides:
        values = np.abs(side.values[:, :4])
        exponent = np.floor(np.log10(np.where(values > 0, values, 1.0)) + 1e-13)
        digits = side.digits[:, np.newaxis].astype(float)
        found += np.where((digits > 0) & (values > 0), 0.5 * 10.0 ** (exponent - digits + 1), 0.0)
    return found


def _odd(sides: tuple[StatsTable, StatsTable]) -> np.ndarray:
    """Tensors whose numbers of NaN or infinities differ."""
    return np.asarray((sides[0].values[:, 4:] != sides[1].values[:, 4:]).any(axis=1))


def _distance(golden: Observed, run: Observed) -> np.ndarray:
    return np.asarray(np.linalg.norm(run.projections - golden.projections, axis=1) / np.sqrt(PROJECTIONS))


def identical(projections: int = 0, *, printed: bool = True) -> Callable[[Observed, Observed], np.ndarray]:
    """Equal as printed; with projections, these are equal too."""
    statistics = product(Tolerances("exact"), printed=printed)

    def judge(golden: Observed, run: Observed) -> np.ndarray:
        fails = statistics(golden, run)
        chosen = slice(0, projections)
        return np.asarray(fails | (golden.projections[:, chosen] != run.projections[:, chosen]).any(axis=1))

    return judge if projections else statistics


RULES = (
    Rule("today's default, 3 statistics", product(Tolerances())),
    Rule("2e-5 M, 3 statistics", product(Tolerances(rules=(Tolerance(2e-5, 0.0, dtype="float32"),)))),
    Rule("other numerics, 3 statistics", bounded(OTHER, printed=True)),
    Rule("other numerics, 4 in full", bounded(OTHER, printed=False)),
    Rule("... and 8 projections", bounded(OTHER, printed=False, projections=True)),
    Rule("torch's defaults", product(Tolerances("torch"))),
    Rule("om-net", product(Tolerances("om-net"))),
    Rule("HF32 allowed, 8 projections", bounded(HF32, printed=False, projections=True)),
    Rule("identical, 3 statistics", identical()),
    Rule("identical, 4 in full", identical(printed=False)),
    Rule("identical, 4 and 1 projection", identical(1, printed=False)),
    Rule("identical, 4 and 8 projections", identical(8, printed=False)),
)
"""All rules; a preset that the package has takes the place of the function that stands for it here."""
