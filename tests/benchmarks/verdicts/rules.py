"""Rules that judge a run: the package's own judge under its presets.

A rule says which tensors of a run it finds outside of what its golden allows.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from pytest_npudump.compare.stats.tables import compare_tables
from pytest_npudump.compare.tolerances.tolerance import Tolerances

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

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


PRINTED, FULL, PROJECTED = "printed", "full", "projected"
"""What a dump tells: a default one, one in full precision, and that with projections."""


def product(tolerances: Tolerances, told: str = PRINTED) -> Callable[[Observed, Observed], np.ndarray]:
    """The package's own judge, on what a dump tells."""

    def judge(golden: Observed, run: Observed) -> np.ndarray:
        sides = (getattr(golden, told), getattr(run, told))
        comparison = compare_tables(*sides, tolerances)
        failing = {str(verdict.key) for verdict in comparison.failing}
        return np.array([key in failing for key in sides[0].keys])

    return judge


_WORDS = {PRINTED: "3 statistics", FULL: "4 in full", PROJECTED: "4 and 8 projections"}


def _rules() -> Iterator[Rule]:
    for preset in ("same", "other", "hf32", "exact"):
        name = "identical" if preset == "exact" else preset
        for told, words in _WORDS.items():
            yield Rule(f"{name}, {words}", product(Tolerances(preset), told))
    yield Rule("torch's defaults", product(Tolerances("torch")))
    yield Rule("om-net", product(Tolerances("om-net")))


RULES = tuple(_rules())
"""All rules: the package's presets, on what different dumps tell."""
