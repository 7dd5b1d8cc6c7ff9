"""Small tensors of one type and size, decoded to float64 once and measured together, a row a tensor.

A tensor of a few kilobytes takes no longer to compute than numpy takes to be called. Here a call serves as
many pairs as there are, and in float64, where neither the squares of float32 nor thousands of them leave the
range: nothing is estimated first, and nothing has to be done again.

The results are those of the general path, but for what that rounds to float32: distances, relative ones and
their sums err by some 2**-53 of themselves here, by 2**-24 there.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from pytest_npudump.compare.tensors.float32 import FLOAT32_TYPES
from pytest_npudump.compare.tensors.measures import ULP_TYPES
from pytest_npudump.dump.arrays.packed import PackedTensor
from pytest_npudump.dump.stats.sums import row_dots
from pytest_npudump.dump.stats.tensor import dtype_name
from pytest_npudump.dump.stats.totals import row_counts, row_totals

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pytest_npudump.compare.tensors.measures import Measures
    from pytest_npudump.compare.tensors.paired_chunks import Values
    from pytest_npudump.compare.tensors.worst import Worst
    from pytest_npudump.dump.stats.totals import Totals

    Pair = tuple[np.ndarray, np.ndarray]
    Results = Sequence[tuple[Measures, Worst]]

LIMIT = 8192
"""Elements up to which the calls cost more than what they do."""

TOGETHER = 1 << 15
"""Elements that are measured together, which with all that is made of them stay in a core's own cache."""

_INTEGERS = frozenset({"bool", "int8", "uint8", "int16", "uint16", "int32", "uint32"})
_TYPES = FLOAT32_TYPES | _INTEGERS | {"float8_e5m2", "float8_e4m3fn"}
"""Types whose values, and thousands of whose sums, float64 has exactly; of integers their squares round."""

_LONG = frozenset({"int64", "uint64"})
_LEAST, _MOST = -(1 << 39), 1 << 39
"""Types of which only such values are taken: the sum of :data:`LIMIT` of them is no more than 2**52."""

_SEARCHES = 8
"""Elements farthest apart up to which it is quicker to look for each of them than to sort."""


def small_pair(golden: Values, actual: Values) -> Pair | None:
    """Two tensors of one shape as :func:`compare_small` takes them, decoded; None where it does not."""
    dtype = golden.dtype
    if not 0 < golden.size <= LIMIT or dtype != actual.dtype or not dtype.isnative:
        return None
    if isinstance(golden, np.ndarray) and isinstance(actual, np.ndarray):
        takes = dtype_name(dtype) in _TYPES or (_is_exact(golden) and _is_exact(actual))
        return (golden, actual) if takes else None
    if not (isinstance(golden, PackedTensor) and isinstance(actual, PackedTensor)):
        return None
    if golden.name != actual.name or dtype_name(dtype) not in _TYPES:
        return None
    return next(golden.pieces(LIMIT)), next(actual.pieces(LIMIT))


def _is_exact(values: np.ndarray) -> bool:
    """Whether an array that is not empty is of 64-bit integers small enough to be added up in float64."""
    if dtype_name(values.dtype) not in _LONG:
        return False
    return int(np.maximum.reduce(values, axis=None)) <= _MOST and (
        values.dtype.kind == "u" or int(np.minimum.reduce(values, axis=None)) >= _LEAST
    )


def compare_small(
    pairs: Sequence[Pair], results: Results, tolerances: Sequence[tuple[float, float]]
) -> list[tuple[Totals, Totals]]:
    """Add what :func:`small_pair` returned, all of one type and size, to the results; return their totals.

    Both totals of a pair are one object where the tensors are the same bit by bit.

    Args:
        pairs: what is compared.
        results: what each of them adds to.
        tolerances: rtol and atol of each.
    """
    golden, actual = (np.stack([pair[side].reshape(-1) for pair in pairs]) for side in (0, 1))
    whole = golden.dtype.kind in "biu"
    one = _doubles(golden)
    first = row_totals(one, whole=whole)
    found = [(totals, totals) for totals in first]
    rows = _different_rows(golden, actual)
    for row in set(range(len(pairs))).difference(rows.tolist()):
        results[row][0].take_equal(first[row])
    if not rows.size:
        return found
    if rows.size < len(pairs):
        golden, actual, one = golden[rows], actual[rows], one[rows]
    other = _doubles(actual)
    for row, totals in zip(rows.tolist(), row_totals(other, whole=whole), strict=True):
        found[row] = first[row], totals
    chosen = rows.tolist()
    rest = [results[row] for row in chosen]
    finite = _add_own([found[row] for row in chosen], one, other, rest)
    if finite is not None:
        one, other = np.where(finite, one, 0.0), np.where(finite, other, 0.0)
        _add_squares(one, other, rest)
    if dtype_name(golden.dtype) in ULP_TYPES:
        _add_ulp(golden, actual, finite, rest)
    allowed = np.array([tolerances[row] for row in chosen])
    _add_distances(one, other, rest, allowed, whole=whole)
    return found


def _doubles(values: np.ndarray) -> np.ndarray:
    """Values of any type as float64; a bool is the byte that it is."""
    wide: np.ndarray = (values.view(np.uint8) if values.dtype.kind == "b" else values).astype(np.float64)
    return wide


def _different_rows(golden: np.ndarray, actual: np.ndarray) -> np.ndarray:
    """Which rows of two contiguous arrays of shape (k, n) are not equal bit by bit."""
    octets = golden.shape[1] * golden.itemsize
    unit = np.uint64 if octets % 8 == 0 else np.uint8
    unequal = golden.view(unit) != actual.view(unit)
    return np.flatnonzero(np.logical_or.reduce(unequal, axis=1))


def _add_own(
    totals: Sequence[tuple[Totals, Totals]], one: np.ndarray, other: np.ndarray, results: Results
) -> np.ndarray | None:
    """Take what each side is by itself, and which pairs are special; return which are not, None if all."""
    if any(first.special or second.special for first, second in totals):
        return _add_special(totals, one, other, results)
    for (first, second), (measures, _) in zip(totals, results, strict=True):
        measures.golden_squares.add(first.squares.value)
        measures.actual_squares.add(second.squares.value)
        measures.magnitude = float(first.magnitude)
    return None


def _add_special(
    totals: Sequence[tuple[Totals, Totals]], one: np.ndarray, other: np.ndarray, results: Results
) -> np.ndarray:
    """Take the pairs with NaN or an infinity; return which have none, of shape (k, n)."""
    finite: np.ndarray = np.isfinite(one) & np.isfinite(other)
    same = (np.isnan(one) & np.isnan(other)) | (one == other)
    different = ~(finite | same)
    pairs, differ = row_counts(~finite), row_counts(different)
    for row, ((first, second), (measures, worst)) in enumerate(zip(totals, results, strict=True)):
        if differ[row]:
            worst.add_special(np.flatnonzero(different[row]), one[row], other[row], 0)
        golden, actual = ((side.nan, side.neg_inf + side.pos_inf) for side in (first, second))
        measures.take_special(golden, actual, pairs[row], differ[row])
    return finite


def _add_squares(one: np.ndarray, other: np.ndarray, results: Results) -> None:
    """Take the squares of both sides, and the magnitude of the golden, of what is finite in both."""
    sums = row_dots(one, one).tolist(), row_dots(other, other).tolist()
    highest = np.maximum.reduce(np.abs(one), axis=1).tolist()
    for (measures, _), first, second, magnitude in zip(results, *sums, highest, strict=True):
        measures.golden_squares.add(first)
        measures.actual_squares.add(second)
        measures.magnitude = magnitude


def _add_distances(
    one: np.ndarray, other: np.ndarray, results: Results, allowed: np.ndarray, *, whole: bool
) -> None:
    """Add what is between two sides without NaN and infinities, but for their own squares and ULP.

    ``allowed`` holds rtol and atol of each row; ``whole`` says that the values are integers.
    """
    difference = np.subtract(other, one)
    distance, magnitude = np.abs(difference), np.abs(one)
    bound = magnitude * allowed[:, :1]
    np.add(bound, allowed[:, 1:], out=bound)
    known = magnitude != 0
    relative, changed = _relative(distance, magnitude, known)
    columns = (
        np.maximum.reduce(distance, axis=1).tolist(),
        row_dots(one, other).tolist(),
        row_dots(difference, difference).tolist(),
        row_counts(distance > bound),
        row_counts(known),
        np.add.reduce(relative, axis=1).tolist(),
        np.maximum.reduce(relative, axis=1).tolist(),
        changed,
    )
    for (measures, _), highest, product, squares, outside, count, total, top, from_zero in zip(
        results, *columns, strict=True
    ):
        measures.max_abs = int(highest) if whole else highest
        measures.product.add(product)
        measures.difference_squares.add(squares)
        measures.outside += outside
        measures.relative_count += count
        measures.relative_sum += total
        measures.max_rel = np.inf if from_zero else top
    _add_worst(distance, one, other, results, whole=whole)


def _relative(
    distance: np.ndarray, magnitude: np.ndarray, known: np.ndarray
) -> tuple[np.ndarray, Sequence[bool]]:
    """Distances over magnitudes, 0 where the golden is 0; and which rows differ where it is."""
    relative = np.divide(distance, magnitude)
    if known.all():
        return relative, [False] * len(relative)
    changed = np.logical_or.reduce((distance != 0) & ~known, axis=1).tolist()
    return np.where(known, relative, 0.0), changed


def _add_worst(
    distance: np.ndarray, one: np.ndarray, other: np.ndarray, results: Results, *, whole: bool
) -> None:
    """Give the elements farthest apart of each row to its list; ``distance`` is used up."""
    limit = max(worst.limit for _, worst in results)
    if limit > _SEARCHES:
        for row, (_, worst) in enumerate(results):
            gap, golden, actual = (
                side[row].astype(np.int64) if whole else side[row] for side in (distance, one, other)
            )
            worst.add(gap, golden, actual, 0)
        return
    rows = np.arange(len(distance))
    found: list[tuple[Any, ...]] = []
    for _ in range(limit):
        places = distance.argmax(axis=1)
        gaps = distance[rows, places]
        if not gaps.any():
            break
        picked = gaps, one[rows, places], other[rows, places]
        gap, golden, actual = (part.astype(np.int64).tolist() if whole else part.tolist() for part in picked)
        found.append(tuple(zip(gap, places.tolist(), golden, actual, strict=True)))
        distance[rows, places] = 0
    for row, (_, worst) in enumerate(results):
        worst.insert(entry for column in found if (entry := column[row])[0])


def _add_ulp(golden: np.ndarray, actual: np.ndarray, finite: np.ndarray | None, results: Results) -> None:
    """Add the distances in units in the last place of the pairs that are ``finite``; None where all are."""
    codes = np.dtype(f"i{golden.itemsize}")
    one, other = golden.view(codes), actual.view(codes)
    if np.minimum.reduce(np.bitwise_xor(one, other), axis=None) < 0:
        one, other = _places(one), _places(other)
    gap = np.abs(np.subtract(one, other))
    counts = [gap.shape[1]] * len(gap)
    if finite is not None:
        gap, counts = np.where(finite, gap, 0), row_counts(finite)
    highest = np.maximum.reduce(gap, axis=1).tolist()
    sums = np.add.reduce(gap, axis=1, dtype=np.int64).tolist()
    for (measures, _), most, total, count in zip(results, highest, sums, counts, strict=True):
        measures.take_ulp(most, total, count)


def _places(codes: np.ndarray) -> np.ndarray:
    """How many values of the type lie between each element and 0, int64, with its sign."""
    places = codes.astype(np.int64)
    return np.where(places < 0, np.iinfo(codes.dtype).min - places, places)
