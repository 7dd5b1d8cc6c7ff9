"""What each statistic of a golden may differ by, and how much that is of its tensor."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np

from pytest_npudump.compare.stats.numbers import half_unit, scales
from pytest_npudump.compare.stats.pairs import Pairs
from pytest_npudump.compare.stats.projection_distances import norms, printed_distance, told
from pytest_npudump.dump.dtypes import is_exact
from pytest_npudump.dump.table import EXTREMES, MEASURED, PROJECTIONS, STATISTICS, is_count, layer_of

if TYPE_CHECKING:
    from collections.abc import Container, Iterator

    from pytest_npudump.compare.tolerances.tolerance import Rule, Tolerances
    from pytest_npudump.dump.table import StatsTable


@dataclass(frozen=True, slots=True)
class Allowance:
    """What one statistic of one tensor may differ by.

    Attributes:
        key: the tensor's key.
        dtype: its type.
        statistic: ``max``, ``min``, ``avg``, ``l2norm`` or ``projections``; a count, ``nan``, ``neg_inf`` or
            ``pos_inf``, where a rule loosens it.
        value: the golden's; of projections their scale, which is the l2norm.
        allowed: greatest difference that passes, by ``rule``.
        printed: half a unit of the last digit that the golden prints, which is allowed on top; 0 where it
            prints all.
        scale: what its ``rtol`` is a share of; 0 where the golden has none.
        magnitude: the greatest finite magnitude of the tensor's extremes; 0 where none is known. For
            projections, whose allowance is of all elements, times the root of their number. For counts the
            number of elements.
        rule: the rule that decides.
    """

    key: str
    dtype: str
    statistic: str
    value: float
    allowed: float
    printed: float
    scale: float
    magnitude: float
    rule: Rule

    @property
    def share(self) -> float | None:
        """``allowed`` by the tensor's magnitude; None where that is 0."""
        return self.allowed / self.magnitude if self.magnitude else None

    @property
    def steps(self) -> float | None:
        """``allowed`` in steps of the type at the tensor's magnitude; None for counts and types without."""
        epsilon = 0.0 if is_count(self.statistic) else step(self.dtype)
        if not epsilon or not self.magnitude:
            return None
        return self.allowed / (epsilon * 2.0 ** math.floor(math.log2(self.magnitude)))

    @property
    def blind(self) -> bool:
        """Whether a tensor of zeros would pass in this statistic."""
        return 0 < abs(self.value) <= self.allowed


def allowances(table: StatsTable, tolerances: Tolerances, layers: Container[str]) -> Iterator[Allowance]:
    """Yield what the measured statistics of a golden may differ by, in its order.

    Of counts those alone that a rule loosens: all others must be equal.

    Args:
        table: the golden's statistics.
        tolerances: the rules.
        layers: names of the layers that are asked for.
    """
    tolerances = tolerances.for_layers_of(table.keys)
    every = np.arange(len(table), dtype=np.intp)
    rows = np.array([row for row in every.tolist() if layer_of(table.keys[row]) in layers], dtype=np.intp)
    pairs = Pairs(table, table, every, every)
    finite = table.known & np.isfinite(table.values)
    finite[:, MEASURED:] &= any(is_count(rule.statistic) for rule in tolerances.rules)
    extremes = np.where(finite[:, :EXTREMES], np.abs(table.values[:, :EXTREMES]), 0.0).max(
        axis=1, initial=0.0
    )
    projected, lengths, halves = told(table), norms(table), printed_distance(table)
    for row in rows.tolist():
        columns = np.flatnonzero(finite[row])
        at = np.full(len(columns), row)
        values = table.values[at, columns]
        scale = scales(pairs, values, at, columns)
        counts = columns >= MEASURED
        whole = counts | (is_exact(table.dtypes[row]) & (columns < EXTREMES))
        printed = half_unit(values, np.where(whole, 0, table.digits[at]))
        for index, column in enumerate(columns.tolist()):
            key, dtype = table.keys[row], table.dtypes[row]
            rule = pairs.rule(row, STATISTICS[column], tolerances)
            if counts[index] and not _loosens(rule):
                continue
            yield Allowance(
                key,
                dtype,
                STATISTICS[column],
                float(values[index]),
                float(rule.atol + rule.rtol * scale[index]),
                float(printed[index]),
                float(scale[index]),
                float(table.counts[row] or 0 if counts[index] else extremes[row]),
                rule,
            )
        if projected[row]:
            key, dtype = table.keys[row], table.dtypes[row]
            rule = pairs.rule(row, PROJECTIONS, tolerances)
            root = math.sqrt(table.counts[row] or 0)
            yield Allowance(
                key,
                dtype,
                PROJECTIONS,
                float(lengths[row]),
                float(rule.atol * root + rule.rtol * lengths[row]),
                float(halves[row]),
                float(lengths[row]),
                float(extremes[row]) * root,
                rule,
            )


def _loosens(rule: Rule) -> bool:
    """Whether a rule for a count lets another one pass."""
    return bool(rule.rtol or rule.atol) or rule.one_sided != "both"


@lru_cache(maxsize=64)
def step(dtype: str) -> float:
    """The relative step of a floating-point format at a power of two; 0 for types without one."""
    import ml_dtypes  # noqa: PLC0415 - knows the formats numpy has not, and takes time to load

    name = {"complex64": "float32", "complex128": "float64", "complex32": "float16"}.get(dtype, dtype)
    try:
        kind = np.dtype(getattr(ml_dtypes, name, name))
        return float(ml_dtypes.finfo(kind).eps)  # type: ignore[no-untyped-call]
    except (TypeError, ValueError):
        return 0.0
