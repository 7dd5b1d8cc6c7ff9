"""What both sides of a comparison tell: of what only one does, no rule of tolerances decides."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from pytest_npudump.compare.stats.order import ABSENT

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from pytest_npudump.compare.stats.verdict import Comparison
    from pytest_npudump.dump.table import StatsTable


def told_by_both(comparison: Comparison) -> tuple[StatsTable, StatsTable]:
    """Return golden and actual as tables that know, of tensors both sides have, what both know alone."""
    here, there = comparison.alignment.golden, comparison.alignment.actual
    both = (here != ABSENT) & (there != ABSENT)
    golden, actual = comparison.golden, comparison.actual
    rows, partners = here[both], there[both]
    return _narrowed(golden, rows, actual, partners), _narrowed(actual, partners, golden, rows)


def _narrowed(
    table: StatsTable, rows: NDArray[np.intp], other: StatsTable, partners: NDArray[np.intp]
) -> StatsTable:
    known = table.known.copy()
    known[rows] &= other.known[partners]
    if table.projected is None:
        return replace(table, known=known)
    projected = table.projected.copy()
    projected[rows] &= False if other.projected is None else other.projected[partners]
    return replace(table, known=known, projected=projected)
