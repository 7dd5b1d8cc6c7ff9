"""Kernel of a comparison of elements: running measures, and the elements farthest apart."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from pytest_npudump.dump.stats.kernels import square_exponent
from pytest_npudump.dump.stats.sums import ScaledSum, Totals, block_dot, block_sum, row_counts, row_dots
from pytest_npudump.dump.stats.tensor import dtype_name

if TYPE_CHECKING:
    from collections.abc import Iterable


@dataclass(slots=True)
class Measures:
    """Running measures of the pairs of one tensor; ``magnitude`` is the largest of a golden one.

    A pair with NaN or an infinity on either side is special; all but the counts of those is over the other
    pairs, and ``relative_sum`` over those whose golden is not 0.
    """

    magnitude: float = 0.0
    max_abs: float | int = 0
    max_rel: float = 0.0
    relative_sum: float = 0.0
    relative_count: int = 0
    golden_squares: ScaledSum = field(default_factory=ScaledSum)
    actual_squares: ScaledSum = field(default_factory=ScaledSum)
    product: ScaledSum = field(default_factory=ScaledSum)
    difference_squares: ScaledSum = field(default_factory=ScaledSum)
    outside: int = 0
    max_ulp: int = 0
    ulp_sum: float = 0.0
    special: int = 0
    special_different: int = 0
    nan_golden: int = 0
    nan_actual: int = 0
    inf_golden: int = 0
    inf_actual: int = 0

    @property
    def sums(self) -> tuple[ScaledSum, ScaledSum, ScaledSum, ScaledSum]:
        """Squares of both sides, their product, and squares of the difference."""
        return self.golden_squares, self.actual_squares, self.product, self.difference_squares

    def take_special(self, golden: tuple[int, int], actual: tuple[int, int], pairs: int, differ: int) -> None:
        """Take the numbers of NaN and infinities on each side of some pairs, and of pairs that have one.

        Those that ``differ`` are outside of any tolerance.
        """
        self.nan_golden += golden[0]
        self.inf_golden += golden[1]
        self.nan_actual += actual[0]
        self.inf_actual += actual[1]
        self.special += pairs
        self.special_different += differ
        self.outside += differ

    def take_equal(self, totals: Totals) -> None:
        """Take real elements that are the same on both sides, whose statistics are ``totals``."""
        counts = totals.nan, totals.neg_inf + totals.pos_inf
        self.take_special(counts, counts, totals.special, 0)
        self.magnitude = max(self.magnitude, float(totals.magnitude))
        for squares in (self.golden_squares, self.actual_squares, self.product):
            squares.add(totals.squares.value, totals.squares.exponent)
        self.relative_count += totals.count - totals.zero - totals.special

    def cosine(self) -> float:
        """Return the cosine of the two as vectors; 1 for two zero vectors, 0 if only one is zero."""
        golden, actual = self.golden_squares, self.actual_squares
        if not golden.value > 0 or not actual.value > 0:
            return 1.0 if not golden.value and not actual.value else 0.0
        mantissa = self.product.value / math.sqrt(golden.value) / math.sqrt(actual.value)
        found = math.ldexp(mantissa, self.product.exponent - (golden.exponent + actual.exponent) // 2)
        return max(-1.0, min(1.0, found))

    def relative_l2(self) -> float:
        """Norm of actual - golden over that of golden; inf if only the latter is 0."""
        golden, apart = self.golden_squares, self.difference_squares
        if not golden.value:
            return math.inf if apart.value else 0.0
        found = math.sqrt(apart.value) / math.sqrt(golden.value)
        try:
            return math.ldexp(found, (apart.exponent - golden.exponent) // 2)
        except OverflowError:
            return math.inf


@dataclass(frozen=True, slots=True)
class WorstElement:
    """One element.

    Attributes:
        index: its coordinates.
        golden, actual: the two values.
        abs: their distance; NaN where one is NaN, inf where one is infinite.
        rel: the distance over |golden|; inf where golden is 0, NaN where the distance is.
    """

    index: tuple[int, ...]
    golden: float | int | complex
    actual: float | int | complex
    abs: float | int
    rel: float

    def to_json(self) -> dict[str, Any]:
        """A dictionary of plain values; NaN, infinities and complex numbers as text."""
        values = {"golden": self.golden, "actual": self.actual, "abs": self.abs, "rel": self.rel}
        return {
            "index": list(self.index),
            **{
                name: str(value) if isinstance(value, complex) or not math.isfinite(value) else value
                for name, value in values.items()
            },
        }


class Worst:
    """The ``limit`` elements farthest apart; different special pairs come first, then lower indices.

    Attributes:
        limit: how many are kept.
        shape: of the tensor.
        first_special: index of the first different special pair; None where there is none.
    """

    def __init__(self, limit: int, shape: tuple[int, ...]) -> None:
        self.first_special: int | None = None
        self.limit = limit
        self.shape = shape
        self._special: list[tuple[int, Any, Any]] = []
        self._finite: list[tuple[float | int, int, Any, Any]] = []

    @property
    def threshold(self) -> float | int:
        """Distances up to this one change nothing."""
        return self._finite[-1][0] if len(self._finite) >= self.limit else 0

    def insert(self, rows: Iterable[tuple[float | int, int, Any, Any]]) -> None:
        """Take elements as (distance, index, golden value, actual value); no distance is 0."""
        self._finite += rows
        self._finite.sort(key=lambda item: (-item[0], item[1]))
        del self._finite[self.limit :]

    def take_special(self, places: np.ndarray, golden: np.ndarray, actual: np.ndarray) -> None:
        """Take different special pairs, given by their indices in the tensor, ascending, and their values."""
        if self.first_special is None and places.size:
            self.first_special = int(places[0])
        room = self.limit - len(self._special)
        self._special += list(zip(places.tolist(), golden.tolist(), actual.tolist(), strict=True))[:room]

    @property
    def wants_special(self) -> bool:
        """Return whether another different special pair changes anything."""
        return self.first_special is None or len(self._special) < self.limit

    def index(self, flat: int) -> tuple[int, ...]:
        """Coordinates of an element."""
        found: tuple[int, ...] = ()
        for length in self.shape[:0:-1]:
            flat, place = divmod(flat, length)
            found = (place, *found)
        return (flat, *found) if self.shape else ()

    def elements(self) -> tuple[WorstElement, ...]:
        """The list, worst first."""
        special = [
            (place, g, a, math.nan if g != g or a != a else math.inf, math.nan)  # noqa: PLR0124 - only NaN differs from itself
            for place, g, a in self._special
        ]
        finite = [(place, g, a, d, d / _size(g) if g else math.inf) for d, place, g, a in self._finite]
        found = (special + finite)[: self.limit]
        return tuple(WorstElement(self.index(place), *rest) for place, *rest in found)


def _size(value: Any) -> float | int:
    """The magnitude; of a complex number, where ``abs`` would raise an error, infinite."""
    return math.hypot(value.real, value.imag) if isinstance(value, complex) else abs(value)


BLOCK = 1 << 17
"""Elements measured at a time."""

# Until a larger block was freed, glibc returns those of 128 KiB to the system: half the time is page faults.
np.empty(1 << 23, np.uint8)

ULP_TYPES = frozenset(
    {"float16", "float32", "float64", "bfloat16", "float8_e5m2", "float8_e4m3fn", "float8_e8m0fnu"}
)
"""Types whose codes, with the sign taken as such, are in the order of their values."""

_LONG = 8
"""Bytes of the integers that float64 does not hold."""
_NARROW = {"float16", "bfloat16", "float32"}
"""Types whose chunks are measured in float32, as long as the squares stay in its range."""
_LEAST = 1e-20
"""Sum of the squares of a chunk below which float32 loses digits of them."""
_TINY = 1e-30
"""Tolerances below this, or above its inverse, would lose digits in float32."""
_MARGIN = 1e-6
"""Relative margin around a tolerance; float32 takes six roundings, 3.6e-7, to get there."""
_ROUNDING = 1e-12
"""The same of float64."""
_FEW = 6
"""Up to one element in two to the power of this it is cheaper to decide all beyond the margin in float64."""
_STEP = 4e-45
"""Rounding of the smallest float32 beside a tolerance."""
_UNLIKE = 0.25
"""From this share of the golden's squares on, the difference's squares are those of another tensor."""
_FLOAT16_BITS = np.int32(0x8FFFE000 - (1 << 32))
"""Sign, exponent and mantissa of float16 in float32's places, but for the bias."""
_FLOAT16_SCALE = np.float32(2.0**112)
_INFINITIES = {"float16": 0x7C00, "bfloat16": 0x7F80, "float32": 0x7F80 << 16, "float64": 0x7FF0 << 48}
"""Codes of infinity; those of NaN are larger."""
_ADDED = (16, 2048)
"""Rows of so many integers that are added in their own type."""
_BOTH = np.uint16(0x101)
"""The flags of both parts of a complex number."""
ROW = 8192
"""Elements up to which BLAS never divides an inner product between threads of its own."""


class _Pairs(NamedTuple):
    """Pairs of finite elements as they are measured.

    Attributes:
        one, other: float32, float64 or complex128 of shape (k, n).
        difference, distance: between them; of 64-bit integers both are the distance.
        gap: the same distances with all digits of integers.
        squares, apart: sums of the squares of ``one`` and of ``difference``.
    """

    one: np.ndarray
    other: np.ndarray
    difference: np.ndarray
    distance: np.ndarray
    gap: np.ndarray
    squares: np.ndarray
    apart: np.ndarray


def measure(
    golden: np.ndarray,
    actual: np.ndarray,
    results: Sequence[tuple[Measures, Worst]],
    tolerances: np.ndarray,
    *,
    finite: bool,
    offset: int = 0,
    times: np.ndarray | None = None,
) -> None:
    """Add pairs of elements to the measures of their tensors, and to the elements farthest apart.

    Args:
        golden: contiguous and native, of shape (k, n), n > 0, a row per tensor.
        actual: likewise; both are integers of one size, or none is.
        results: what each of the k tensors adds to.
        tolerances: rtol and atol of each, of shape (k, 2).
        finite: whether neither side has NaN or infinities.
        offset: index of the first element of each row in its tensor.
        times: how often each pair of a single row occurs, of shape (n,); such pairs have no place, so that
            none is listed as one of the farthest. None for once each.
    """
    sums = _Sums(times)
    codes = golden, actual
    if not finite:
        codes, (golden, actual) = _cleared(golden, actual, results, sums, offset)
        if not (golden.any() or actual.any()):  # nothing but those that were counted
            for measures, _ in results:
                measures.max_abs = max(0.0, measures.max_abs)
            return
    pairs = _pairs(golden, actual, tolerances, sums)
    one, distance, gap = pairs.one, pairs.distance, pairs.gap
    magnitude, highest = np.abs(one), np.maximum.reduce(gap, axis=1)
    relative, known, changed = distance, None, np.zeros(len(one), np.bool_)
    if not np.minimum.reduce(magnitude, axis=None):
        known = magnitude != 0
    if highest.any():
        relative = distance / magnitude
        if known is not None and np.isfinite(highest).all():
            np.fmax(relative, 0, out=relative)  # 0 / 0 adds nothing
    farthest = np.maximum.reduce(relative, axis=1)
    if known is not None and not np.isfinite(farthest).all():
        relative = masked(relative, known)
        farthest = np.maximum.reduce(relative, axis=1)
        changed = np.logical_or.reduce((distance != 0) & ~known, axis=1)
    if relative.dtype == np.float32 and not farthest[0] < 1 / _TINY:
        relative = masked(np.divide(distance, magnitude, dtype=np.float64), magnitude != 0)
        farthest = np.maximum.reduce(relative, axis=1)
    outside = [0] * len(one)
    edges = tolerances * (1 - (_MARGIN if distance.dtype == np.float32 else _ROUNDING))
    if ((changed | ~(farthest <= edges[:, 0])) & (highest > edges[:, 1])).any():
        outside = sums.count(_beyond(pairs, magnitude, tolerances))
    whole = golden.dtype.kind in "biu"
    columns = (
        (highest.astype(np.int64) if whole and gap is distance else highest).tolist(),
        np.maximum.reduce(magnitude, axis=1).tolist(),
        np.where(changed, np.inf, farthest).tolist(),
        sums.add(relative).tolist(),
        sums.count(known, one.shape),
        outside,
    )
    for (measures, _), top, size, most, total, number, far in zip(results, *columns, strict=True):
        measures.max_abs = max(top, measures.max_abs)
        measures.magnitude = max(measures.magnitude, size)
        measures.max_rel = max(measures.max_rel, most)
        measures.relative_sum += total
        measures.relative_count += number
        measures.outside += far
    if times is None:
        shown = (one, pairs.other) if gap is distance else (golden, actual)
        _list_farthest(gap, highest, shown, results, offset, whole=whole)
    _add_products(pairs, results, sums, doubles=bool({golden.dtype.char, actual.dtype.char} & {*"dD"}))
    if codes[0].dtype == codes[1].dtype and dtype_name(codes[0].dtype) in ULP_TYPES:
        ulps = ulp_gap(*codes)
        tops = np.maximum.reduce(ulps, axis=1).tolist()
        totals = sums.add(ulps, max(tops)).tolist()
        for (measures, _), most, total in zip(results, tops, totals, strict=True):
            measures.max_ulp = max(measures.max_ulp, most)
            measures.ulp_sum += total


def _pairs(golden: np.ndarray, actual: np.ndarray, tolerances: np.ndarray, sums: _Sums) -> _Pairs:
    """Widen finite chunks to float32 where that can do justice to them, else to float64 or complex128."""
    dtypes = golden.dtype, actual.dtype
    narrow = (
        golden.shape[1] > ROW
        and sums.times is None
        and {dtype_name(dtype) for dtype in dtypes} <= _NARROW
        and all(not bound or _TINY < bound < 1 / _TINY for bound in tolerances[0])
    )
    if narrow:
        found = _widened_pairs(golden, actual, np.float32, sums)
        apart = found.apart[0]
        if _LEAST < found.squares[0] < np.inf and (_LEAST < apart < np.inf or not found.distance.any()):
            return found
    wide = np.complex128 if "c" in {dtype.kind for dtype in dtypes} else np.float64
    return _widened_pairs(golden, actual, wide, sums)


def _widened_pairs(golden: np.ndarray, actual: np.ndarray, wide: Any, sums: _Sums) -> _Pairs:
    one, other = widened(golden, wide), widened(actual, wide)
    difference = other - one
    gap = distance = np.abs(difference)
    if golden.dtype.kind in "iu" and golden.itemsize == _LONG:
        gap = unsigned_gap(golden, actual)
        distance = difference = widened(gap, wide)
    squares, apart = sums.dot(one, one), sums.dot(difference, difference)
    return _Pairs(one, other, difference, distance, gap, squares, apart)


def _add_products(
    pairs: _Pairs, results: Sequence[tuple[Measures, Worst]], sums: _Sums, *, doubles: bool
) -> None:
    """Add squares and products, those of ``doubles`` with exponents where they leave the range of float64."""
    one, other, difference = pairs.one, pairs.other, pairs.difference
    squares, apart = pairs.squares, pairs.apart
    first = second = third = 0
    if doubles:
        one, other, difference, (first, second, third) = _squarable(one, other, difference)
        if first or second or third:
            squares, apart = sums.dot(one, one), sums.dot(difference, difference)
    if pairs.gap is not pairs.distance or first or second or third or (apart > _UNLIKE * squares).any():
        product, own = sums.dot(one, other), sums.dot(other, other)
        if one.dtype == np.float32 and own[0] < _LEAST:
            one, other = one.astype(np.float64), other.astype(np.float64)
            product, own = sums.dot(one, other), sums.dot(other, other)
    else:  # through the difference, whose errors cancel in a cosine
        across = sums.dot(one, difference)
        product, own = squares + across, squares + 2 * across + apart
    dots, exponents = (squares, own, product, apart), (2 * first, 2 * second, first + second, 2 * third)
    for (measures, _), *values in zip(results, *(side.tolist() for side in dots), strict=True):
        for running, value, exponent in zip(measures.sums, values, exponents, strict=True):
            running.add(value, exponent)


def _beyond(pairs: _Pairs, magnitude: np.ndarray, tolerances: np.ndarray) -> np.ndarray:
    """Return a mask of pairs outside the tolerance as float64 has it, though they may be float32.

    An infinite distance of finite numbers always is.
    """
    distance = pairs.distance
    if distance.dtype == np.float64:
        beyond: np.ndarray = distance > magnitude * tolerances[:, :1] + tolerances[:, 1:]
        return beyond | np.isinf(distance) if np.isinf(distance.max()) else beyond
    rtol, atol = tolerances[0].tolist()
    low = magnitude * np.float32(rtol * (1 - _MARGIN))
    low += np.float32(atol * (1 - _MARGIN) - _STEP)
    beyond = distance > low
    near = beyond
    if np.count_nonzero(beyond) > beyond.size >> _FEW:
        low *= np.float32(1 + 3 * _MARGIN)
        low += np.float32(2 * _STEP)
        near = beyond & (distance <= low)
    doubtful = np.flatnonzero(near)
    first, second = (side[0, doubtful].astype(np.float64) for side in (pairs.one, pairs.other))
    beyond[0, doubtful] = np.abs(second - first) > np.abs(first) * rtol + atol
    return beyond


def widened(values: np.ndarray, wide: Any) -> np.ndarray:
    """Elements of any type as float32, float64 or complex128; a bool is the byte that it is.

    numpy converts float16 one element at a time, which shifts do in a third of the time; to float32 only
    finite ones are converted here.
    """
    if wide is np.float32 and values.dtype == np.float16:
        bits = values.view(np.int16).astype(np.int32)
        bits <<= 13
        bits &= _FLOAT16_BITS
        found: np.ndarray = bits.view(np.float32)
        found *= _FLOAT16_SCALE
        return found
    return (values.view(np.uint8) if values.dtype.kind == "b" else values).astype(wide, copy=False)


def ulp_gap(one: np.ndarray, other: np.ndarray) -> np.ndarray:
    """Return the distance of two arrays in values of their floating-point type, as unsigned integers.

    +0 and -0 are one value, an infinity is the next one behind the largest number; of NaN the distance means
    nothing. The codes of one sign are in the order of the magnitudes.
    """
    signed = np.dtype(f"i{one.itemsize}")
    first, second = one.view(signed), other.view(signed)
    if dtype_name(one.dtype) == "float8_e8m0fnu":
        first, second = (side.view(np.uint8).astype(np.int16) for side in (one, other))
    apart = first ^ second
    if not first.size or np.minimum.reduce(apart, axis=None) >= 0:
        np.subtract(first, second, out=apart)
        gap: np.ndarray = np.abs(apart, out=apart).view(f"u{first.itemsize}")
        return gap
    last = np.iinfo(signed).max
    first, second = first & last, second & last
    apart >>= 8 * signed.itemsize - 1
    second ^= apart
    second -= apart  # on the other side of 0 where the signs differ
    return unsigned_gap(first, second)


def unsigned_gap(one: np.ndarray, other: np.ndarray) -> np.ndarray:
    """Return the exact distances of integers of one type, as unsigned ones."""
    unsigned = np.dtype(f"u{one.itemsize}")
    gap: np.ndarray = np.maximum(one, other).view(unsigned) - np.minimum(one, other).view(unsigned)
    return gap


def masked(values: np.ndarray, flags: np.ndarray) -> np.ndarray:
    """Return values with 0 where flags are not set, in a fraction of the time of ``where``."""
    size = values.itemsize
    if values.dtype.kind == "c":
        flags, size = (flags * _BOTH).view(np.bool_), size // 2
    bits = flags.astype(f"i{size}")
    np.negative(bits, out=bits)
    np.bitwise_and(values.view(bits.dtype), bits, out=bits)
    found: np.ndarray = bits.view(values.dtype)
    return found


class _Sums:
    """Counts, sums and inner products of rows, of a single one where each column occurs so many ``times``."""

    def __init__(self, times: np.ndarray | None) -> None:
        self.times = times

    def count(self, flags: np.ndarray | None, shape: tuple[int, int] = (0, 0)) -> list[int]:
        """Count the set flags of each row; None means that all those of ``shape`` are set."""
        if self.times is None:
            return [shape[1]] * shape[0] if flags is None else row_counts(flags)
        times = self.times if flags is None else self.times[flags[0]]
        return [int(times.sum())]

    def add(self, values: np.ndarray, most: int | None = None) -> np.ndarray:
        """Return the sums of rows, exact of integers that float64 holds; ``most`` is the largest of them."""
        if self.times is not None:
            return np.asarray(values @ self.times)
        if values.dtype == np.float32:
            return np.array([block_sum(row) for row in values])
        short = values.dtype.kind == "u" and values.itemsize < _LONG
        fits = short and most is not None and most <= np.iinfo(values.dtype).max // _ADDED[0]
        if fits and not values.shape[1] % math.prod(_ADDED):  # numpy adds slowly where it converts
            parts = values.reshape(len(values), -1, *_ADDED)
            values = np.add.reduce(parts, axis=2, dtype=values.dtype).reshape(len(values), -1)
        return np.asarray(np.add.reduce(values, axis=1, dtype=np.int64 if short else np.float64))

    def dot(self, one: np.ndarray, other: np.ndarray) -> np.ndarray:
        """Return the inner products of rows, those of complex numbers as of pairs."""
        if self.times is not None:
            one = one * self.times
        if one.dtype.kind == "c":
            one, other = one.view(np.float64), other.view(np.float64)
        if one.shape[1] <= ROW:
            return row_dots(one, other)
        return np.array([block_dot(first, second) for first, second in zip(one, other, strict=True)])


def _cleared(
    golden: np.ndarray,
    actual: np.ndarray,
    results: Sequence[tuple[Measures, Worst]],
    sums: _Sums,
    offset: int,
) -> tuple[tuple[np.ndarray, np.ndarray], tuple[np.ndarray, np.ndarray]]:
    """Count pairs with NaN or an infinity, and list those that differ.

    Returns both sides with the code 0 in their place, and with the value 0. Two equal zeros add nothing to
    any sum and are within every tolerance.
    """
    kinds = special_flags(golden), special_flags(actual)
    none = np.zeros(golden.shape, np.bool_)
    (first, nan), (second, lost) = ((none, none) if found is None else found for found in kinds)
    special = first | second
    one, other = golden, actual
    if golden.dtype == actual.dtype and dtype_name(golden.dtype) in _INFINITIES:
        one, other = (side.view(f"i{side.itemsize}") for side in (golden, actual))
    different = special & ~(nan & lost)
    different &= one != other
    counts = [sums.count(flags) for flags in (nan, first, lost, second, special, different)]
    for row, (one_nan, one_all, other_nan, other_all, pairs, differ) in enumerate(zip(*counts, strict=True)):
        measures, worst = results[row]
        measures.take_special((one_nan, one_all - one_nan), (other_nan, other_all - other_nan), pairs, differ)
        if differ and sums.times is None and worst.wants_special:
            places = np.flatnonzero(different[row])[: worst.limit]
            shown = (
                widened(side[row, places], np.complex128 if side.dtype.kind == "c" else np.float64)
                for side in (golden, actual)
            )
            worst.take_special(places + offset, *shown)
    finite = ~special
    codes = masked(golden, finite), masked(actual, finite)
    if golden.itemsize > 1 and actual.itemsize > 1:
        return codes, codes
    # not all types of 8 bits have a zero
    wide = widened(golden, np.float64), widened(actual, np.float64)
    return codes, (masked(wide[0], finite), masked(wide[1], finite))


def is_finite(values: np.ndarray) -> bool:
    """Return whether elements of any type have no NaN and no infinity among them."""
    return special_flags(values) is None


def special_flags(values: np.ndarray) -> tuple[np.ndarray, np.ndarray] | None:
    """Return masks of the NaN and infinite elements, and of the NaN; None if all are finite."""
    if values.dtype.kind in "biu":
        return None
    infinity = _INFINITIES.get(dtype_name(values.dtype))
    if infinity is None:
        finite = np.isfinite(values)
        return None if finite.all() else (~finite, np.isnan(values))
    codes = values.view(f"i{values.itemsize}")
    sizes = codes & np.iinfo(codes.dtype).max
    return None if np.maximum.reduce(sizes, axis=None) < infinity else (sizes >= infinity, sizes > infinity)


def _list_farthest(
    gap: np.ndarray,
    highest: np.ndarray,
    shown: tuple[np.ndarray, np.ndarray],
    results: Sequence[tuple[Measures, Worst]],
    offset: int,
    *,
    whole: bool,
) -> None:
    """Give the elements farthest apart of each row to its list; of equal ones the first.

    ``gap`` is used up.
    """
    least = np.array([worst.threshold for _, worst in results], gap.dtype)
    if not (highest > least).any():
        return
    rows, found = np.arange(len(gap)), []
    for _ in range(max(worst.limit for _, worst in results)):
        places = gap.argmax(axis=1)
        gaps = gap[rows, places]
        if not (gaps > least).any():
            break
        found.append((gaps, places))
        gap[rows, places] = 0
    gaps, places = (np.array(side) for side in zip(*found, strict=True))
    values = gaps, shown[0][rows, places], shown[1][rows, places]
    if whole and gap.dtype.kind == "f":
        values = values[0].astype(np.int64), values[1].astype(np.int64), values[2].astype(np.int64)
    apart, one, other = (side.T.tolist() for side in values)
    for row, indices in enumerate((places + offset).T.tolist()):
        entries = zip(apart[row], indices, one[row], other[row], strict=True)
        results[row][1].insert(entry for entry in entries if entry[0])


def _squarable(
    one: np.ndarray, other: np.ndarray, difference: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray, tuple[int, int, int]]:
    """Return all three times ``2**-exponent`` so that they can be squared, and the exponent of each.

    A difference that leaves the range itself is taken again between smaller elements.
    """
    peaks = []
    for side in (one, other, difference):
        parts = side.view(np.float64)
        peaks.append(
            max(-float(np.minimum.reduce(parts, axis=None)), float(np.maximum.reduce(parts, axis=None)))
        )
    first, second = square_exponent(peaks[0]), square_exponent(peaks[1])
    apart = square_exponent(peaks[2]) if math.isfinite(peaks[2]) else max(first, second)
    if not (first or second or apart):
        return one, other, difference, (0, 0, 0)
    if math.isfinite(peaks[2]):
        difference = difference * 2.0**-apart
    else:
        difference = other * 2.0**-apart - one * 2.0**-apart
    return one * 2.0**-first, other * 2.0**-second, difference, (first, second, apart)
