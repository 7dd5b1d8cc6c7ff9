"""Rules that judge a run: the package's own judge, and rules it does not have, as functions beside it.

A rule says which tensors of a run it finds outside of what its golden allows.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from pytest_npudump.compare.stats.tables import compare_tables
from pytest_npudump.compare.tolerances.tolerance import Tolerances
from pytest_npudump.dump.stats.signs import PROJECTIONS

if TYPE_CHECKING:
    from collections.abc import Callable

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


OTHER = {"float32": 1.5e-5, "float16": 1.5e-2, "bfloat16": 6e-2}
"""Bounds of projections for other numerics: the root mean square of their differences, by the l2norm."""

HF32 = {**OTHER, "float32": 1.5e-2}
"""The same where HF32 may be on in one of two runs."""


def bounded(projections: dict[str, float]) -> Callable[[Observed, Observed], np.ndarray]:
    """The preset of these bounds, with four statistics in full, and the projections."""
    statistics = product(Tolerances("hf32" if projections is HF32 else "other"), printed=False)

    def judge(golden: Observed, run: Observed) -> np.ndarray:
        bounds = np.array([projections.get(dtype, 0.0) for dtype in golden.full.dtypes])
        return np.asarray(
            statistics(golden, run) | (_distance(golden, run) > bounds * golden.full.values[:, 3])
        )

    return judge


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
    Rule("same, 3 statistics", product(Tolerances("same"))),
    Rule("same, 4 in full", product(Tolerances("same"), printed=False)),
    Rule("other, 3 statistics", product(Tolerances("other"))),
    Rule("other, 4 in full", product(Tolerances("other"), printed=False)),
    Rule("other, 4 and 8 projections", bounded(OTHER)),
    Rule("hf32, 3 statistics", product(Tolerances("hf32"))),
    Rule("hf32, 4 in full", product(Tolerances("hf32"), printed=False)),
    Rule("hf32, 4 and 8 projections", bounded(HF32)),
    Rule("torch's defaults", product(Tolerances("torch"))),
    Rule("om-net", product(Tolerances("om-net"))),
    Rule("identical, 3 statistics", identical()),
    Rule("identical, 4 in full", identical(printed=False)),
    Rule("identical, 4 and 1 projection", identical(1, printed=False)),
    Rule("identical, 4 and 8 projections", identical(8, printed=False)),
)
"""All rules: the package's presets, and what projections would add to them."""
