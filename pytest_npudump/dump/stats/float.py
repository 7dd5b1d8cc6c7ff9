"""Statistics of floating-point chunks.

max and min come from the codes of the elements: read as signed integers, the largest code is the largest
value, if any value is positive; read as unsigned ones, it is the smallest value, if any is negative. They
alone tell that a chunk has no NaN and no infinity, so that it needs no masks. numpy finds extremes of
integers half as fast again as those of floats.

Sums are those of :mod:`pytest_npudump.dump.stats.sums`, so that, whatever order BLAS adds in,

* avg errs by at most 9e-7 of the mean magnitude of the elements,
* l2norm errs by at most 1e-6 of itself (half the error of its square).

Rounding errors of different rows cancel: 1e-9 is usual. Of a chunk whose largest magnitude is too large or
too small to square in float32, a power of two times the elements is added: what that loses of the smallest
ones is less than ``2**-100`` of the sum.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from pytest_npudump.dump.bytes.buffers import scratch_buffers
from pytest_npudump.dump.stats.sums import block_dot, block_sum

if TYPE_CHECKING:
    from pytest_npudump.dump.bytes.buffers import Buffers
    from pytest_npudump.dump.stats.totals import Totals

_LARGEST = 0x7F7FFFFF
_CODES: dict[int, tuple[np.dtype[Any], np.dtype[Any], int]] = {
    2: (np.dtype(np.int16), np.dtype(np.uint16), 1 << 15),
    4: (np.dtype(np.int32), np.dtype(np.uint32), 1 << 31),
    8: (np.dtype(np.int64), np.dtype(np.uint64), 1 << 63),
}
"""Signed and unsigned integers of so many bytes, and the code of -0."""
_SQUARE_LOW, _SQUARE_HIGH = 1e-14, 1e17
"""Largest magnitudes between which a row of squares in float32 neither overflows nor loses digits."""
_MOST_EXPONENT = 120
"""2 to the power of this, or of its negative, is a normal number of float32."""


class Measured(NamedTuple):
    """What a chunk adds to the totals.

    Attributes:
        values: its n elements, float32 of shape (n,), in any order, with 0 in place of NaN and infinities;
            overwritten by the next chunk.
        low, high: the smallest and the largest finite one; None where there is none.
        zero: how many are 0 or -0.
        sum, squares: the sum of the finite elements, and of their squares.
        nan, neg_inf, pos_inf: numbers of such elements.
        finite: integers that are -1 where an element is finite and else 0; None where all are.
    """

    values: np.ndarray
    low: float | None
    high: float | None
    zero: int
    sum: float
    squares: float
    nan: int = 0
    neg_inf: int = 0
    pos_inf: int = 0
    finite: np.ndarray | None = None

    @property
    def magnitude(self) -> float:
        """The largest magnitude of a finite element."""
        return 0.0 if self.low is None or self.high is None else max(-self.low, self.high)

    @property
    def special(self) -> int:
        """How many elements are NaN or infinite."""
        return self.nan + self.neg_inf + self.pos_inf


class Kernel(ABC):
    """Adds chunks of one type to totals, in ``buffers`` of its own or in the thread's."""

    largest: int
    """Code of the largest finite value."""

    def __init__(self, totals: Totals, buffers: Buffers | None = None) -> None:
        self.totals = totals
        self._own = buffers

    @property
    def _buffers(self) -> Buffers:
        return self._own or scratch_buffers()

    def measure(self, chunk: np.ndarray, *, special_sums: bool = True) -> Measured:
        """Measure a contiguous chunk of shape (n,), n > 0.

        Without ``special_sums`` one with NaN or infinities has no sums, and values of its own type: avg and
        l2norm of a tensor that holds it do not depend on them.
        """
        ends = extremes(chunk, self.largest)
        if ends is not None:
            return self._measure_finite(chunk, *ends)
        kept = cleared(chunk, self.largest + 1, self._buffers)
        low, high = extremes(kept.values, self.largest) or (0.0, 0.0)
        values, total, squares = kept.values, 0.0, 0.0
        if special_sums:
            values = self._values(values)
            total, squares = sums(values, max(-low, high), self._buffers)
        ends = kept.ends(low, high, self._buffers)
        return Measured(
            values=values,
            low=None if ends is None else ends[0],
            high=None if ends is None else ends[1],
            zero=kept.zero,
            sum=total,
            squares=squares,
            nan=kept.nan,
            neg_inf=kept.neg_inf,
            pos_inf=kept.pos_inf,
            finite=kept.finite,
        )

    def measure_cleared(self, chunk: np.ndarray) -> Measured:
        """Measure a chunk without NaN and infinities but for its zeros and its sum, which are 0 here."""
        low, high = extremes(chunk, self.largest) or (0.0, 0.0)
        values = self._values(chunk)
        scaled, exponent = squarable(values, max(-low, high), "scaled", self._buffers)
        return Measured(values, low, high, 0, 0.0, math.ldexp(block_dot(scaled, scaled), -2 * exponent))

    def _measure_finite(self, chunk: np.ndarray, low: float, high: float) -> Measured:
        zero = self._zeros(chunk) if low <= 0 <= high else 0
        values = self._values(chunk)
        return Measured(values, low, high, zero, *sums(values, max(-low, high), self._buffers))

    @abstractmethod
    def _values(self, chunk: np.ndarray) -> np.ndarray:
        """The elements as float32, in any order."""

    @abstractmethod
    def _zeros(self, chunk: np.ndarray) -> int:
        """How many elements are 0, of either sign."""

    def take(self, found: Measured) -> None:
        """Add what was measured of a chunk."""
        self.totals.count += found.values.size
        self.totals.zero += found.zero
        if found.low is not None and found.high is not None:
            self.totals.extend(found.low, found.high)
        self.totals.add_special(found.nan, found.neg_inf, found.pos_inf)
        self.totals.add_sums(found.sum, found.squares)

    def add(self, chunk: np.ndarray) -> None:
        """Add a contiguous chunk of shape (n,), n > 0."""
        self.take(self.measure(chunk))


class Float32(Kernel):
    """Adds chunks of float32 to totals; the values of what it measures are the chunk itself."""

    largest = _LARGEST

    def _values(self, chunk: np.ndarray) -> np.ndarray:
        return chunk

    def _zeros(self, chunk: np.ndarray) -> int:
        """Zeros of both signs; that there are none is seen in a quarter of the time that counting takes."""
        flags = np.equal(chunk, 0, out=self._buffers.flags("zeros", chunk.size))
        return int(np.count_nonzero(flags)) if np.logical_or.reduce(flags) else 0


def sums(values: np.ndarray, magnitude: float, buffers: Buffers) -> tuple[float, float]:
    """Sum, and sum of the squares, of finite float32 of shape (n,) whose largest magnitude is given."""
    if not magnitude:
        return 0.0, 0.0
    scaled, exponent = squarable(values, magnitude, "scaled", buffers)
    total, squares = block_sum(scaled), block_dot(scaled, scaled)
    return math.ldexp(total, -exponent), math.ldexp(squares, -2 * exponent)


def squarable(values: np.ndarray, magnitude: float, name: str, buffers: Buffers) -> tuple[np.ndarray, int]:
    """``2**exponent`` times ``values``, float32 of shape (n,) a row of whose squares fits; and the exponent.

    Args:
        values: finite float32; returned as they are, with 0, where they fit.
        magnitude: the largest one of them.
        name: of the buffer for others.
        buffers: has it.
    """
    if not magnitude or _SQUARE_LOW < magnitude < _SQUARE_HIGH:
        return values, 0
    exponent = max(-_MOST_EXPONENT, min(-math.frexp(magnitude)[1], _MOST_EXPONENT))
    found = buffers.floats(name, values.size)
    return np.multiply(values, np.float32(2.0**exponent), out=found), exponent


class Cleared(NamedTuple):
    """A chunk without its NaN and infinities.

    Attributes:
        values: the elements, of the chunk's type, with 0 in place of them; overwritten by the next chunk.
        finite: integers of their size that are -1 where an element is finite and else 0.
        zero: how many elements were 0, of either sign.
        nan, neg_inf, pos_inf: how many of these there were.
    """

    values: np.ndarray
    finite: np.ndarray
    zero: int
    nan: int
    neg_inf: int
    pos_inf: int

    @property
    def special(self) -> int:
        """How many elements were cleared."""
        return self.nan + self.neg_inf + self.pos_inf

    def ends(self, low: float, high: float, buffers: Buffers) -> tuple[float, float] | None:
        """The extremes of the finite elements, given those of ``values``; None where none is finite."""
        if self.zero or low < 0 < high:
            return low, high
        _, unsigned, _ = _CODES[self.values.itemsize]
        codes = self.values.view(unsigned)
        shifted = buffers.array("shifted", codes.size, unsigned)
        np.subtract(codes, 1, out=shifted)  # the 0 of what was cleared becomes the largest code
        least = int(np.minimum.reduce(shifted)) + 1
        if least > np.iinfo(unsigned).max:
            return None
        nearest = float(np.array(least, unsigned).view(self.values.dtype))  # to 0, as all have one sign
        return (low, nearest) if low < 0 else (nearest, high)


def cleared(chunk: np.ndarray, infinity: int, buffers: Buffers) -> Cleared:
    """A copy of a contiguous chunk of shape (n,) with 0 in place of NaN and infinities, which are counted.

    Args:
        chunk: floats of 16, 32 or 64 bits.
        infinity: the code of infinity in their type.
        buffers: hold the copy.
    """
    signed, _, sign = _CODES[chunk.itemsize]
    codes = chunk.view(signed)
    finite, kept = (buffers.array(name, chunk.size, signed) for name in ("finite", "cleared"))
    flags = buffers.flags("zeros", chunk.size)

    def count(test: np.ufunc, values: np.ndarray, code: int) -> int:
        return int(np.count_nonzero(test(values, code, out=flags)))

    np.bitwise_and(codes, sign - 1, out=finite)
    zero = int(finite.size - np.count_nonzero(finite))
    nan = count(np.greater, finite, infinity) if int(np.maximum.reduce(finite)) > infinity else 0
    np.subtract(finite, infinity, out=finite)
    np.right_shift(finite, 8 * finite.itemsize - 1, out=finite)
    infinite = int(finite.size - np.count_nonzero(finite)) - nan
    negative = count(np.equal, codes, infinity - sign) if infinite else 0
    np.bitwise_and(finite, codes, out=kept)
    return Cleared(kept.view(chunk.dtype), finite, zero, nan, negative, infinite - negative)


def extremes(chunk: np.ndarray, largest: int) -> tuple[float, float] | None:
    """The smallest and the largest value of a contiguous chunk of shape (n,), n > 0.

    Args:
        chunk: floats of 16, 32 or 64 bits.
        largest: code of the largest finite value of their type.

    Returns:
        None where an element is NaN or infinite.
    """
    signed, codes, sign = _codes(chunk)
    high, low = int(np.maximum.reduce(signed)), int(np.maximum.reduce(codes))
    if high > largest or low > largest | sign:
        return None
    if high < 0 or low < sign:
        least = int(np.minimum.reduce(codes))
        high, low = (least if high < 0 else high), (least if low < sign else low)
    ends = np.array([low, high], codes.dtype).view(chunk.dtype).astype(np.float64)
    return float(ends[0]), float(ends[1])


def zero_codes(chunk: np.ndarray) -> tuple[bool, bool]:
    """Whether a contiguous chunk of floats of 16 or 32 bits, shape (n,), holds 0, and whether it holds -0."""
    signed, codes, sign = _codes(chunk)
    return int(np.minimum.reduce(codes)) == 0, int(np.minimum.reduce(signed)) == -sign


def _codes(chunk: np.ndarray) -> tuple[np.ndarray, np.ndarray, int]:
    """A chunk as signed and as unsigned integers, and the code of -0."""
    signed, codes, sign = _CODES[chunk.itemsize]
    return chunk.view(signed), chunk.view(codes), sign
