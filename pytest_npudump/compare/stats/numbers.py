"""The tensors that both sides have, and which of their statistics differ by more than they may.

Everything is float64 and evaluated as written. Integers of 2**53 and beyond are compared as integers.
Values that were printed with d significant digits stand for anything that rounds to them: each such side
adds half a unit of its last digit to the allowance. Where both sides are printed and the tolerance is zero,
equal text is asked for: runs without noise print the same.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from pytest_npudump.dump.dtypes import UNKNOWN, is_exact
from pytest_npudump.dump.records import SUMMED, sanitise
from pytest_npudump.dump.table import EXTREMES, MEASURED, PROJECTIONS, STATISTICS, StatsTable, layer_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from pytest_npudump.compare.stats.alignment import Alignment
    from pytest_npudump.compare.tolerances.tolerance import Rule, Tolerances


@dataclass(frozen=True, slots=True, eq=False)
class Pairs:
    """The tensors both sides have.

    Attributes:
        golden, actual: the two tables.
        here, there: (m,) their rows, in execution order.
    """

    golden: StatsTable
    actual: StatsTable
    here: NDArray[np.intp]
    there: NDArray[np.intp]

    @classmethod
    def of(cls, golden: StatsTable, actual: StatsTable, alignment: Alignment) -> Pairs:
        """Return the aligned pairs."""
        both = alignment.both
        return cls(golden, actual, alignment.golden[both], alignment.actual[both])

    def known(self) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
        """Return masks of the statistics that either side has, (m, 7) each."""
        return self.golden.known[self.here], self.actual.known[self.there]

    def projected(self) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
        """Return masks of the pairs that either side has projections of, (m,) each."""
        return self.golden.tells(PROJECTIONS)[self.here], self.actual.tells(PROJECTIONS)[self.there]

    def key(self, row: int) -> str:
        """The golden's key of the pair at position ``row``."""
        return self.golden.keys[int(self.here[row])]

    def dtype(self, row: int) -> str:
        """Return the type of a pair: the golden's, or the actual's where the golden has none."""
        found = self.golden.dtypes[int(self.here[row])]
        return self.actual.dtypes[int(self.there[row])] if found == UNKNOWN else found

    def types(self, rows: NDArray[np.intp]) -> list[str]:
        """Return the types of the k pairs at positions ``rows``, (k,), by :meth:`dtype`."""
        golden, actual = self.golden.dtypes, self.actual.dtypes
        found = [golden[row] for row in self.here[rows].tolist()]
        if UNKNOWN in found:
            there = self.there[rows].tolist()
            return [actual[at] if name == UNKNOWN else name for name, at in zip(found, there, strict=True)]
        return found

    def layer(self, row: int) -> str:
        """Return the name of a pair's layer, raw where either side has that."""
        golden = layer_of(self.golden.keys[int(self.here[row])])
        actual = layer_of(self.actual.keys[int(self.there[row])])
        return golden if golden == actual or sanitise(golden) != golden else actual

    def op_type(self, row: int) -> str:
        """Return the type of a pair's operator; "" where neither side has it, as in goldens."""
        return self.actual.op_types[int(self.there[row])] or self.golden.op_types[int(self.here[row])]

    def rule(self, row: int, statistic: str, tolerances: Tolerances) -> Rule:
        """The rule that decides about one statistic of the pair at position ``row``."""
        own = self.key(row), self.op_type(row)
        return tolerances.decide(self.layer(row), self.dtype(row), statistic, *own)

    def values(self, row: int, column: int) -> tuple[float | int | None, float | int | None]:
        """One statistic of the pair at position ``row``, on either side."""
        golden = self.golden.value(int(self.here[row]), column)
        return golden, self.actual.value(int(self.there[row]), column)


_AVG = STATISTICS.index("avg")
_L2NORM = STATISTICS.index("l2norm")
ROUNDING = 1e-12
"""Relative difference between ways to sum integers in float64: numpy's result depends on the CPU."""

_MASK, _MASKS = 1e8, 1e6
"""Magnitude from which a number may be a mask's, and by how much it then exceeds others."""
_OF_FLOAT16, _MASKS_FLOAT16 = (65504.0, 65536.0), 1e3
"""The same of float16, whose mask is its lowest number: as it is, and rounded to bfloat16."""
EXACT = "exact"
"""The preset that allows nothing."""
LARGEST = float(np.finfo(np.float64).max)
"""The largest allowance: an infinite one would let infinities pass."""


def differing(
    pairs: Pairs, judged: NDArray[np.bool_], tolerances: Tolerances
) -> Iterator[tuple[int, int, float, Rule]]:
    """Yield failing cells as (position among the pairs, column, allowed difference, rule that decided).

    Args:
        pairs: the tensors both sides have.
        judged: bool (m, 7), the cells to look at.
        tolerances: what they may differ by.
    """
    unequal, wide = _unequal(pairs, judged)
    if unequal.any():
        yield from _judge(pairs, unequal, tolerances)
    for row, column in wide:
        yield from _judge_integers(pairs, row, column, tolerances)


def _judge(
    pairs: Pairs, unequal: NDArray[np.bool_], tolerances: Tolerances
) -> Iterator[tuple[int, int, float, Rule]]:
    rows, columns = np.nonzero(unequal)
    golden = pairs.golden.values[pairs.here[rows], columns]
    actual = pairs.actual.values[pairs.there[rows], columns]
    allowed, rules = allowed_differences(pairs, rows, columns, tolerances)
    with np.errstate(over="ignore"):
        finite = np.isfinite(golden) & np.isfinite(actual)
        difference = np.where(finite, actual, 0.0) - np.where(finite, golden, 0.0)
    fails = ~finite | ((np.abs(difference) > allowed) & on_judged_side(difference, rules))
    for index in np.flatnonzero(fails).tolist():
        yield int(rows[index]), int(columns[index]), float(allowed[index]), rules[index]


def allowed_differences(
    pairs: Pairs, rows: NDArray[np.intp], columns: NDArray[np.intp], tolerances: Tolerances
) -> tuple[NDArray[np.float64], list[Rule]]:
    """Return the allowed differences of k cells, (k,), printed digits included, and the rules that decide.

    Args:
        pairs: the tensors both sides have.
        rows: (k,) positions among them.
        columns: (k,) statistics.
        tolerances: what they may differ by.
    """
    golden = pairs.golden.values[pairs.here[rows], columns]
    actual = pairs.actual.values[pairs.there[rows], columns]
    dtypes = pairs.types(rows)
    exact = np.fromiter(map(is_exact, dtypes), np.bool_, len(dtypes))
    rules = _rules(pairs, rows, columns, dtypes, tolerances)
    rtol = np.array([rule.rtol for rule in rules])
    atol = np.array([rule.atol for rule in rules])
    scale = scales(pairs, golden, rows, columns)
    printed = _printed(pairs, rows, columns, exact)
    with np.errstate(over="ignore"):
        allowed = atol + rtol * scale
        text_decides = (allowed == 0) & (printed[0] > 0) & (printed[1] > 0)
        computed = exact & (columns >= EXTREMES) & (columns < MEASURED)
        slack = np.where(computed & ~text_decides, ROUNDING * scale, 0.0)
        units = half_unit(golden, printed[0]) + half_unit(actual, printed[1])
        return np.minimum(allowed + slack + np.where(text_decides, 0.0, units), LARGEST), rules


def changed(pairs: Pairs, judged: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Return a mask of pairs, (m,), with a judged statistic that is not the golden's, digit for digit.

    A value in full precision is the same as a printed one that it rounds to. What a mean or norm differs by
    for being summed in another order is no change, of integers and where a side says so.

    Args:
        pairs: the m tensors.
        judged: bool (m, 7), the cells to look at.
    """
    unequal, wide = _unequal(pairs, judged)
    found = np.zeros(len(unequal), dtype=np.bool_)
    for row, column in wide:
        golden, actual = pairs.values(row, column)
        found[row] |= golden != actual
    rows, columns = np.nonzero(unequal)
    golden_cells = pairs.golden.values[pairs.here[rows], columns]
    actual_cells = pairs.actual.values[pairs.there[rows], columns]
    exact = np.fromiter(map(is_exact, pairs.types(rows)), np.bool_, len(rows))
    printed = _printed(pairs, rows, columns, exact)
    one_printed = (printed[0] > 0) ^ (printed[1] > 0)
    units = half_unit(golden_cells, printed[0]) + half_unit(actual_cells, printed[1])
    computed = (
        (exact | (printed[0] == SUMMED) | (printed[1] == SUMMED))
        & (columns >= EXTREMES)
        & (columns < MEASURED)
    )
    with np.errstate(over="ignore", invalid="ignore"):
        slack = np.where(one_printed | (printed[0] != printed[1]), units, 0.0)
        slack += np.where(computed, ROUNDING * scales(pairs, golden_cells, rows, columns), 0.0)
        close = np.abs(actual_cells - golden_cells) <= slack
    found[rows[~close]] = True
    return found


def _printed(
    pairs: Pairs, rows: NDArray[np.intp], columns: NDArray[np.intp], exact: NDArray[np.bool_]
) -> list[NDArray[np.integer]]:
    """Return the digits that either side prints of k cells, (k,); 0 for counts and exact extremes."""
    sides = pairs.golden.digits[pairs.here[rows]], pairs.actual.digits[pairs.there[rows]]
    whole = (columns >= MEASURED) | (exact & (columns < EXTREMES))
    return [np.where(whole | ((digits == SUMMED) & (columns < EXTREMES)), 0, digits) for digits in sides]


def below_atol(pairs: Pairs, judged: NDArray[np.bool_], tolerances: Tolerances) -> NDArray[np.bool_]:
    """Pairs, (m,), whose statistics differ and whose golden extremes are within the absolute tolerance of 0.

    Whatever else of that size would pass as well.
    """
    here, there = pairs.golden.values[pairs.here], pairs.actual.values[pairs.there]
    extremes = np.abs(np.where(pairs.golden.known[pairs.here] & np.isfinite(here), here, 0.0))
    magnitude = extremes[:, :EXTREMES].max(axis=1, initial=0.0)
    differ = (judged & (here != there))[:, :MEASURED].any(axis=1)
    rows = np.flatnonzero(differ & (magnitude > 0) & (magnitude <= tolerances.largest_atol()))
    found = np.zeros(len(here), dtype=np.bool_)
    dtypes = pairs.types(rows)
    rules = _rules(pairs, rows, np.zeros_like(rows), dtypes, tolerances)
    found[rows] = magnitude[rows] <= np.array([rule.atol for rule in rules])
    return found


def half_unit(values: NDArray[np.float64], digits: NDArray[np.integer]) -> NDArray[np.float64]:
    """Half a unit of the last of ``digits`` significant digits of ``values``; 0 where digits is 0.

    Zero is printed as it is, and so are NaN and infinities. A value half way between two texts is as far from
    either, but for what the decimal number is off in float64.
    """
    size = np.abs(values)
    rounded = (digits > 0) & (size > 0) & np.isfinite(size)
    # The logarithm of a power of ten may come out a hair below its integer; the next smaller number of 12
    # digits is further away than this.
    exponent = np.floor(np.log10(np.where(rounded, size, 1.0)) + 1e-13)
    with np.errstate(under="ignore"):
        unit = 10.0 ** (exponent - np.where(rounded, digits, 1) + 1)
    return np.where(rounded, 0.5 * unit + np.spacing(np.where(rounded, size, 1.0)), 0.0)


def scales(
    pairs: Pairs, golden: NDArray[np.float64], rows: NDArray[np.intp], columns: NDArray[np.intp]
) -> NDArray[np.float64]:
    """Scale of each cell, by its golden tensor.

    The greatest finite magnitude of its extremes; for an average its root mean square, where the norm is
    known: noise of an average keeps in step with that, five times as closely as with the extremes. For a
    norm, or without finite extremes, the value itself. A greatest magnitude that masks the other elements is
    no scale of their extreme: its scale is its own magnitude, of at least 1.
    """
    table, at = pairs.golden, pairs.here[rows]
    extremes = np.abs(table.values[at, :EXTREMES])
    usable = table.known[at, :EXTREMES] & np.isfinite(extremes)
    own = np.where(np.isfinite(golden), np.abs(golden), 0.0)
    magnitude = np.where(usable, extremes, 0.0).max(axis=1)
    norm = np.where(table.known[at, _L2NORM], table.values[at, _L2NORM], np.nan)
    counts = np.array([table.counts[row] or 0 for row in at.tolist()], dtype=np.float64)
    averaged = (columns == _AVG) & np.isfinite(norm) & (norm > 0) & (counts > 0)
    square = np.where(averaged, norm / np.sqrt(np.maximum(counts, 1.0)), 0.0)
    bounded = usable.any(axis=1)
    scale = np.where((columns == _L2NORM) | ~bounded, own, magnitude)
    masked = (columns < EXTREMES) & masks(magnitude, own)
    scale = np.where(masked, np.maximum(own, 1.0), scale)
    # No root mean square is beyond the extremes: one that is comes from a wrong norm or count.
    return np.where(averaged, np.where(bounded, np.minimum(square, magnitude), square), scale)


def masks(magnitude: NDArray[np.float64], others: NDArray[np.float64] | float) -> NDArray[np.bool_]:
    """Return where a magnitude must be a mask's, such as -1e9 or the lowest number of a type, beside others.

    What is computed is not that large beside numbers whose noise is not of its size: logarithms of
    probabilities are, relatively, but small themselves.
    """
    least = np.maximum(others, 1.0)
    largest, beyond = (magnitude == one for one in _OF_FLOAT16)
    of_float16 = (largest | beyond) & (magnitude / _MASKS_FLOAT16 > least)
    found: NDArray[np.bool_] = of_float16 | ((magnitude >= _MASK) & (magnitude / _MASKS > least))
    return found


def on_judged_side(difference: NDArray[np.float64], rules: list[Rule]) -> NDArray[np.bool_]:
    """Return which of k differences, (k,), are on the side of the golden that their rules judge."""
    sides = np.array([rule.one_sided for rule in rules], str)
    found: NDArray[np.bool_] = ((sides != "below") & (difference > 0)) | (
        (sides != "above") & (difference < 0)
    )
    return found


def _rules(
    pairs: Pairs,
    rows: NDArray[np.intp],
    columns: NDArray[np.intp],
    dtypes: list[str],
    tolerances: Tolerances,
) -> list[Rule]:
    decided: dict[tuple[str, str, str, str, int], Rule] = {}
    noisy = {*tolerances.upstream.found, *tolerances.copies, *tolerances.bounded}
    noisy |= {*(tolerances.measured.noise if tolerances.measured else ())}
    by_layer, by_type = tolerances.names_layers, tolerances.names_op_types
    rules = []
    for row, column, dtype in zip(rows.tolist(), columns.tolist(), dtypes, strict=True):
        layer = pairs.layer(row) if by_layer else ""
        op_type = pairs.op_type(row) if by_type else ""
        own = pairs.key(row) if noisy else ""
        cell = (layer, op_type, own if own in noisy else "", dtype, column)
        if cell not in decided:
            decided[cell] = tolerances.decide(layer, dtype, STATISTICS[column], own, op_type)
        rules.append(decided[cell])
    return rules


def _unequal(pairs: Pairs, judged: NDArray[np.bool_]) -> tuple[NDArray[np.bool_], list[tuple[int, int]]]:
    """Return judged cells, (m, 7), that differ between the sides, and those compared as integers.

    The latter, whether they are the same or not, are not among the former.
    """
    here, there = pairs.golden.values[pairs.here], pairs.actual.values[pairs.there]
    unequal = judged & ~((here == there) | (np.isnan(here) & np.isnan(there)))
    cells: set[tuple[int, int]] = set()  # integers of 2**53 or more on either side
    for exact, rows in ((pairs.golden.wide, pairs.here), (pairs.actual.wide, pairs.there)):
        position = {row: index for index, row in enumerate(rows.tolist())} if exact else {}
        cells |= {(position[row], column) for row, column in exact if row in position}
    wide = sorted(cell for cell in cells if judged[cell])
    for row, column in wide:
        unequal[row, column] = False
    return unequal, wide


def _judge_integers(
    pairs: Pairs, row: int, column: int, tolerances: Tolerances
) -> Iterator[tuple[int, int, float, Rule]]:
    golden = pairs.golden.value(int(pairs.here[row]), column)
    actual = pairs.actual.value(int(pairs.there[row]), column)
    if golden is None or actual is None or golden == actual:
        return
    rule = pairs.rule(row, STATISTICS[column], tolerances)
    at = np.array([row]), np.array([column])
    scale = float(scales(pairs, pairs.golden.values[pairs.here[at[0]], column], *at)[0])
    allowed = min(rule.atol + rule.rtol * scale, LARGEST)
    skipped = {"above": actual < golden, "below": actual > golden}.get(rule.one_sided, False)
    finite = math.isfinite(golden) and math.isfinite(actual)
    if not finite or (abs(actual - golden) > allowed and not skipped):
        yield row, column, allowed, rule
