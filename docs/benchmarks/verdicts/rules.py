"""Rules that judge a run: the package's own judge under its presets, and its notion of a change.

A rule says which tensors of a run it finds outside of what its golden allows, or changed at all.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from pytest_npudump.compare.stats.tables import compare_tables
from pytest_npudump.compare.tolerances.tolerance import Tolerances
from pytest_npudump.graph.sources import find_sources

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pytest_npudump.compare.stats.verdict import Comparison
    from pytest_npudump.graph.sources import Sources
    from pytest_npudump.record.edges import Edges
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


@dataclass(frozen=True)
class Product:
    """The package's own judge.

    Attributes:
        tolerances: what it allows.
        told: what a dump tells it.
    """

    tolerances: Tolerances
    told: str = PRINTED

    def __call__(self, golden: Observed, run: Observed) -> np.ndarray:
        """Which tensors fail."""
        comparison = self._compared(golden, run)
        failing = {str(verdict.key) for verdict in comparison.failing}
        return np.array([key in failing for key in comparison.golden.keys])

    def sources(self, golden: Observed, run: Observed, edges: Edges, *, repeats: bool) -> Sources | None:
        """What the package says where the failure comes from."""
        return find_sources(self._compared(golden, run), edges, self.tolerances, repeats=repeats)

    def _compared(self, golden: Observed, run: Observed) -> Comparison:
        if _LAST[:3] != [id(self), id(golden), id(run)]:
            compared = compare_tables(getattr(golden, self.told), getattr(run, self.told), self.tolerances)
            _LAST[:] = id(self), id(golden), id(run), compared, (self, golden, run)
        found: Comparison = _LAST[3]
        return found


_LAST: list[Any] = []
"""What was compared last, and what came of it: sources are looked for twice where a fault is found."""


@dataclass(frozen=True)
class Change:
    """The package's other question: which tensors are not the golden's, digit for digit.

    Attributes:
        told: what a dump tells it.
    """

    told: str = PRINTED

    def __call__(self, golden: Observed, run: Observed) -> np.ndarray:
        """Which tensors have changed, both sides having the same ones."""
        comparison = compare_tables(getattr(golden, self.told), getattr(run, self.told), Tolerances("same"))
        return np.isin(np.arange(comparison.expected), list(comparison.differing))


_WORDS = {PRINTED: "3 statistics", FULL: "4 in full", PROJECTED: "4 and 8 projections"}


def _rules() -> Iterator[Rule]:
    for told, words in _WORDS.items():
        for preset in ("same", "other", "hf32"):
            yield Rule(f"{preset}, {words}", Product(Tolerances(preset), told))
        yield Rule(f"change, {words}", Change(told))
    yield Rule("torch's defaults", Product(Tolerances("torch")))
    yield Rule("om-net", Product(Tolerances("om-net")))


RULES = tuple(_rules())
"""All rules: the package's presets, and any change, on what different dumps tell."""
