"""Allowances of statistics, the used share of each, and the noise of healthy runs."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import lru_cache
from math import inf
from typing import TYPE_CHECKING

import numpy as np

from pytest_npudump.compare.stats.fingerprints import norms, printed_distance, strayed_projections
from pytest_npudump.compare.stats.numbers import Pairs, allowed_differences, half_unit, on_judged_side, scales
from pytest_npudump.compare.stats.verdict import EXTRA, FAIL, MISSING, Comparison
from pytest_npudump.dump.dtypes import is_exact
from pytest_npudump.dump.table import (
    EXTREMES,
    MEASURED,
    PROJECTIONS,
    STATISTICS,
    StatsTable,
    is_count,
    layer_of,
)
from pytest_npudump.record.noise import MEASURABLE

if TYPE_CHECKING:
    from collections.abc import Container, Iterator, Sequence

    from numpy.typing import NDArray

    from pytest_npudump.compare.tolerances.tolerance import Rule, Tolerances


@dataclass(frozen=True, slots=True)
class Allowance:
    """Allowed difference of one statistic of one tensor.

    Attributes:
        key: the tensor's key.
        dtype: its type.
        statistic: ``max``, ``min``, ``avg``, ``l2norm`` or ``projections``; a count, ``nan``, ``neg_inf`` or
            ``pos_inf``, where a rule loosens it.
        value: the golden's; of projections their scale, which is the l2norm.
        allowed: greatest difference that passes, by ``rule``.
        printed: half a unit of the last digit that the golden prints, which is allowed on top; 0 where it
            prints all.
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
        unit = epsilon * 2.0 ** math.floor(math.log2(self.magnitude)) if self.magnitude else 0.0
        return self.allowed / unit if unit else None  # of the smallest subnormal numbers it is 0

    @property
    def blind(self) -> bool:
        """Return whether a tensor of zeros would pass in this statistic."""
        return 0 < abs(self.value) <= self.allowed


def allowances(table: StatsTable, tolerances: Tolerances, layers: Container[str]) -> Iterator[Allowance]:
    """Yield the allowed differences of a golden's measured statistics, in its order.

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
    projected, lengths, halves = table.tells(PROJECTIONS), norms(table), printed_distance(table)
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
            if counts[index] and not (rule.rtol or rule.atol or rule.one_sided != "both"):
                continue  # another count fails
            yield Allowance(
                key,
                dtype,
                STATISTICS[column],
                float(values[index]),
                float(rule.atol + rule.rtol * scale[index]),
                float(printed[index]),
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
                float(extremes[row]) * root,
                rule,
            )


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
    both = alignment.both
    positions = np.flatnonzero(both)
    pairs = Pairs.of(comparison.golden, comparison.actual, alignment)
    found = np.full(len(both), np.nan)
    found[positions] = _of_pairs(pairs, tolerances)
    failing = {verdict.key: verdict for verdict in comparison.failing if verdict.status == FAIL}
    passing = both.copy()
    for position in positions.tolist() if failing else ():
        verdict = failing.get(comparison.key(position))
        if verdict is not None:
            passing[position] = False
            found[position] = max(found[position], max([one.excess for one in verdict.reasons], default=0.0))
    found[passing] = np.minimum(found[passing], 1.0)
    return found


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
    """Describe how two runs differ besides values; "" where both have the same tensors of one shape each."""
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
    pairs = Pairs.of(golden, comparison.actual, alignment)
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


def bounds_by_measurement(comparison: Comparison, tolerances: Tolerances) -> int:
    """Count the compared tensors with a statistic that a measured tolerance decides about.

    Few tensors are wider than their preset: one look at each finds these, and the rules are asked for them
    alone.

    Args:
        comparison: of a run with the golden.
        tolerances: what it was judged by.
    """
    measured = tolerances.measured
    if measured is None or not measured.noise:
        return 0
    pairs = Pairs.of(comparison.golden, comparison.actual, comparison.alignment)
    dtypes = pairs.types(np.arange(len(pairs.here), dtype=np.intp))
    presets = tolerances.having(lambda _rule: False)
    lowest = {dtype: min(_floors(presets, "", dtype, "")) for dtype in set(dtypes)}
    keys, noise, factor = comparison.golden.keys, measured.noise, measured.factor
    wide = []
    for row, (at, dtype) in enumerate(zip(pairs.here.tolist(), dtypes, strict=True)):
        if (key := keys[at]) in noise:
            found, least = noise[key], lowest[dtype]
            if factor * max(found.largest) > least or factor * found.projections > least:
                wide.append(row)
    tolerances = tolerances.for_layers_of(keys, comparison.actual.keys)
    return sum(_decides(pairs, wide, dtypes, tolerances))


def _decides(
    pairs: Pairs, rows: Sequence[int], dtypes: Sequence[str], tolerances: Tolerances
) -> Sequence[bool]:
    measured = tolerances.measured
    assert measured is not None  # noqa: S101 - checked by the caller
    by_layer, by_type = tolerances.names_layers, tolerances.names_op_types
    at = pairs.here[rows]
    finite = pairs.golden.known[at, :MEASURED] & np.isfinite(pairs.golden.values[at, :MEASURED])
    tells = np.column_stack([finite, pairs.golden.tells(PROJECTIONS)[at]]).tolist()
    floors: dict[tuple[str, str, str], Sequence[float]] = {}
    found = []
    for row, cells in zip(rows, tells, strict=True):
        own = (pairs.layer(row) if by_layer else "", dtypes[row], pairs.op_type(row) if by_type else "")
        if own not in floors:
            floors[own] = _floors(tolerances, *own)
        noise = measured.noise[pairs.key(row)]
        values = (*noise.largest, noise.projections)
        of_row = zip(cells, values, floors[own], strict=True)
        found.append(any(tell and floor < measured.factor * value < inf for tell, value, floor in of_row))
    return found


def _floors(tolerances: Tolerances, layer: str, dtype: str, op_type: str) -> Sequence[float]:
    return [tolerances.unmeasured_rtol(layer, dtype, statistic, op_type) for statistic in MEASURABLE]


def told_by_both(comparison: Comparison) -> tuple[StatsTable, StatsTable]:
    """Return golden and actual as tables of the statistics that both have, of tensors of both sides."""
    pairs = Pairs.of(comparison.golden, comparison.actual, comparison.alignment)
    return (
        _narrowed(pairs.golden, pairs.here, pairs.actual, pairs.there),
        _narrowed(pairs.actual, pairs.there, pairs.golden, pairs.here),
    )


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
