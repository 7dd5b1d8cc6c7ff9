"""Two small tensors of one floating-point type, decoded to float64 once and measured there.

A tensor of a few kilobytes takes no longer to compute than numpy takes to be called. Here each measure is
had by as few calls as there are, and in float64, where neither the squares of float32 nor thousands of them
leave the range: nothing is estimated first, and nothing has to be done again.

The results are those of the general path, but for what that rounds to float32: distances, relative ones and
their sums err by some 2**-53 of themselves here, by 2**-24 there.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from pytest_npudump.compare.tensors.float32 import FLOAT32_TYPES
from pytest_npudump.dump.arrays.packed import PackedTensor
from pytest_npudump.dump.stats.accumulators import dtype_name
from pytest_npudump.dump.stats.totals import Totals

if TYPE_CHECKING:
    from pytest_npudump.compare.tensors.measures import Measures
    from pytest_npudump.compare.tensors.paired_chunks import Values
    from pytest_npudump.compare.tensors.worst import Worst

LIMIT = 8192
"""Elements up to which the calls cost more than what they do."""

_CODES: dict[int, np.dtype[Any]] = {2: np.dtype(np.int16), 4: np.dtype(np.int32)}
"""What floats of so many bytes are as integers; codes of one sign are as far apart as their values."""

_SEARCHES = 8
"""Elements farthest apart up to which it is quicker to look for each of them than to sort."""


def small_pair(golden: Values, actual: Values) -> tuple[np.ndarray, np.ndarray] | None:
    """Two tensors of one shape as :func:`compare_small` takes them, decoded; None where it does not."""
    dtype = golden.dtype
    if not 0 < golden.size <= LIMIT or dtype != actual.dtype or not dtype.isnative:
        return None
    if dtype_name(dtype) not in FLOAT32_TYPES:
        return None
    if isinstance(golden, np.ndarray) and isinstance(actual, np.ndarray):
        return golden, actual
    if not (isinstance(golden, PackedTensor) and isinstance(actual, PackedTensor)):
        return None
    if golden.name != actual.name or not golden.name.startswith("float4"):
        return None
    return next(golden.pieces(LIMIT)), next(actual.pieces(LIMIT))


def compare_small(
    pair: tuple[np.ndarray, np.ndarray], results: tuple[Measures, Worst], tolerance: tuple[float, float]
) -> tuple[Totals, Totals]:
    """Add what :func:`small_pair` returned to ``results``; return the totals of each.

    Both totals are one object where the tensors are the same bit by bit.
    """
    golden, actual = pair
    measures, worst = results
    if golden.tobytes() == actual.tobytes():
        (totals,) = _totals_of(golden.reshape(1, -1).astype(np.float64))
        measures.take_equal(totals)
        return totals, totals
    both = np.empty((2, golden.size))
    one, other = both
    one[:], other[:] = golden.reshape(-1), actual.reshape(-1)
    first, second = _totals_of(both)
    finite = None
    if first.special or second.special:
        finite = _take_special((one, first), (other, second), measures, worst)
        one, other = np.where(finite, one, 0.0), np.where(finite, other, 0.0)
    else:
        measures.golden_squares.add(first.squares.value)
        measures.actual_squares.add(second.squares.value)
        measures.magnitude = float(first.magnitude)
    _add_ulp(measures, golden, actual, finite)
    _add_finite(one, other, measures, worst, tolerance)
    return first, second


def _totals_of(sides: np.ndarray) -> list[Totals]:
    """What each row of float64 of shape (k, n) adds up to."""
    found = []
    for values, total in zip(sides, np.add.reduce(sides, axis=1).tolist(), strict=True):
        totals = Totals(count=values.size, zero=values.size - int(np.count_nonzero(values)))
        squares = float(np.dot(values, values))
        if math.isfinite(squares):
            totals.extend(_least(values), _most(values))
            totals.add_sums(total, squares)
        else:
            _add_some_finite(totals, values)
        found.append(totals)
    return found


def _add_some_finite(totals: Totals, values: np.ndarray) -> None:
    """Add a side with NaN or infinities, float64 of shape (n,)."""
    nan, infinite = np.isnan(values), np.isinf(values)
    negative = int(np.count_nonzero(infinite & (values < 0)))
    totals.add_special(int(np.count_nonzero(nan)), negative, int(np.count_nonzero(infinite)) - negative)
    finite = values[~(nan | infinite)]
    if finite.size:
        totals.extend(_least(finite), _most(finite))
        totals.add_sums(float(np.add.reduce(finite)), float(np.dot(finite, finite)))


def _least(values: np.ndarray) -> Any:
    """The smallest element, none of which is NaN; numpy finds a place in half the time of a value."""
    return values.item(values.argmin())


def _most(values: np.ndarray) -> Any:
    """The largest element, as :func:`_least`."""
    return values.item(values.argmax())


def _take_special(
    golden: tuple[np.ndarray, Totals], actual: tuple[np.ndarray, Totals], measures: Measures, worst: Worst
) -> np.ndarray:
    """Take the pairs with NaN or an infinity, and what is left of the squares; return which have none."""
    (one, first), (other, second) = golden, actual
    finite: np.ndarray = np.isfinite(one) & np.isfinite(other)
    same = (np.isnan(one) & np.isnan(other)) | (one == other)
    different = np.flatnonzero(~(finite | same))
    if different.size:
        worst.add_special(different, one, other, 0)
    counts = [(side.nan, side.neg_inf + side.pos_inf) for side in (first, second)]
    pairs = one.size - int(np.count_nonzero(finite))
    measures.take_special(counts[0], counts[1], pairs, int(different.size))
    one, other = one[finite], other[finite]
    measures.golden_squares.add(float(np.dot(one, one)))
    measures.actual_squares.add(float(np.dot(other, other)))
    measures.magnitude = float(np.maximum.reduce(np.abs(one), initial=0.0))
    return finite


def _add_finite(
    one: np.ndarray, other: np.ndarray, measures: Measures, worst: Worst, tolerance: tuple[float, float]
) -> None:
    """Add what is between two sides without NaN and infinities, but for their own squares and ULP."""
    rtol, atol = tolerance
    difference = np.subtract(other, one)
    distance, magnitude = np.abs(difference), np.abs(one)
    measures.product.add(float(np.dot(one, other)))
    measures.difference_squares.add(float(np.dot(difference, difference)))
    highest = measures.max_abs = _most(distance)
    known = int(np.count_nonzero(one))
    measures.relative_count += known
    if not highest:
        return
    if rtol or atol:
        bound = np.multiply(magnitude, rtol)
        if atol:
            np.add(bound, atol, out=bound)
        measures.outside += one.size - int(np.count_nonzero(np.less_equal(distance, bound)))
    else:
        measures.outside += int(np.count_nonzero(distance))
    gaps, top = distance, 0.0
    if known < one.size:
        kept = one != 0
        gaps, magnitude = distance[kept], magnitude[kept]
        top = math.inf if np.count_nonzero(distance) > np.count_nonzero(gaps) else 0.0
    if known:
        relative = np.divide(gaps, magnitude, out=magnitude)
        measures.relative_sum += float(np.add.reduce(relative))
        top = max(top, _most(relative))
    measures.max_rel = top
    _add_worst(distance, one, other, worst)


def _add_worst(distance: np.ndarray, one: np.ndarray, other: np.ndarray, worst: Worst) -> None:
    """Give the elements farthest apart to ``worst``; ``distance`` is used up."""
    if worst.limit > _SEARCHES:
        worst.add(distance, one, other, 0)
        return
    found = []
    for _ in range(worst.limit):
        place = int(distance.argmax())
        gap = distance.item(place)
        if not gap:
            break
        found.append((gap, place, one.item(place), other.item(place)))
        distance[place] = 0
    worst.insert(found)


def _add_ulp(measures: Measures, golden: np.ndarray, actual: np.ndarray, finite: np.ndarray | None) -> None:
    """Add the distances in units in the last place of the pairs that are ``finite``; None where all are."""
    codes = _CODES[golden.itemsize]
    one, other = golden.reshape(-1).view(codes), actual.reshape(-1).view(codes)
    if _least(np.bitwise_xor(one, other)) < 0:
        one, other = _places(one), _places(other)
    gap = np.abs(np.subtract(one, other))
    if finite is not None:
        gap = gap[finite]
    if gap.size:
        measures.take_ulp(_most(gap), int(np.add.reduce(gap, dtype=np.int64)), gap.size)


def _places(codes: np.ndarray) -> np.ndarray:
    """How many values of the type lie between each element and 0, int64 of shape (n,), with its sign."""
    places = codes.astype(np.int64)
    return np.where(places < 0, np.iinfo(codes.dtype).min - places, places)
