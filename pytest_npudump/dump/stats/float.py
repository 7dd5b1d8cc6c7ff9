"""Statistics of floating-point chunks.

max and min come from the codes of the elements: read as signed integers, the largest code is the largest
value, if any value is positive; read as unsigned ones, it is the smallest value, if any is negative. They
alone tell that a chunk has no NaN and no infinity, so that it needs no masks. numpy finds extremes of
integers half as fast again as those of floats.

Sums are those of :mod:`pytest_npudump.dump.stats.sums`, so that, whatever order BLAS adds in,

* avg errs by at most 9e-7 of the mean magnitude of the elements,
* l2norm errs by at most 1e-6 of itself (half the error of its square).

Rounding errors of different rows cancel: 1e-9 is usual. A chunk with values too large or too small to
square in float32 is added in float64.
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
}
_SQUARE_LOW, _SQUARE_HIGH = 1e-14, 1e17
"""Largest magnitudes between which a row of squares in float32 neither overflows nor loses digits."""


class Measured(NamedTuple):
    """What a chunk without NaN and infinities adds to the totals.

    Attributes:
        values: its n elements, float32 of shape (n,), in any order; overwritten by the next chunk.
        low, high: the smallest and the largest.
        zero: how many are 0 or -0.
        sum, squares: the sum of the elements, and of their squares.
    """

    values: np.ndarray
    low: float
    high: float
    zero: int
    sum: float
    squares: float

    @property
    def magnitude(self) -> float:
        """The largest magnitude."""
        return max(-self.low, self.high)


class Kernel(ABC):
    """Adds chunks of one type to totals, in ``buffers`` of its own or in the thread's."""

    def __init__(self, totals: Totals, buffers: Buffers | None = None) -> None:
        self.totals = totals
        self._own = buffers

    @property
    def _buffers(self) -> Buffers:
        return self._own or scratch_buffers()

    @abstractmethod
    def measure(self, chunk: np.ndarray) -> Measured | None:
        """Measure a contiguous chunk of shape (n,), n > 0; None where it holds NaN or infinities."""

    def take(self, found: Measured) -> None:
        """Add what was measured of a chunk."""
        self.totals.extend(found.low, found.high)
        self.totals.count += found.values.size
        self.totals.zero += found.zero
        self.totals.sum += found.sum
        self.totals.squares += found.squares

    def add(self, chunk: np.ndarray) -> None:
        """Add a contiguous chunk of shape (n,), n > 0."""
        found = self.measure(chunk)
        if found is None:
            add_masked(self.totals, chunk.astype(np.float32, copy=False))
        else:
            self.take(found)


class Float32(Kernel):
    """Adds chunks of float32 to totals."""

    def measure(self, chunk: np.ndarray) -> Measured | None:
        """As :meth:`Kernel.measure`; the values are the chunk itself."""
        ends = extremes(chunk, _LARGEST)
        if ends is None:
            return None
        low, high = ends
        zero = self._zeros(chunk) if low <= 0 <= high else 0
        return Measured(chunk, low, high, zero, *sums(chunk, max(-low, high)))

    def _zeros(self, chunk: np.ndarray) -> int:
        """Zeros of both signs; that there are none is seen in a quarter of the time that counting takes."""
        flags = np.equal(chunk, 0, out=self._buffers.flags("zeros", chunk.size))
        return int(np.count_nonzero(flags)) if np.logical_or.reduce(flags) else 0


def sums(values: np.ndarray, magnitude: float) -> tuple[float, float]:
    """Sum, and sum of the squares, of finite float32 of shape (n,) whose largest magnitude is given."""
    if not magnitude:
        return 0.0, 0.0
    if not _SQUARE_LOW < magnitude < _SQUARE_HIGH:
        values = values.astype(np.float64)
        return float(np.add.reduce(values)), block_dot(values, values)
    return block_sum(values), block_dot(values, values)


def extremes(chunk: np.ndarray, largest: int) -> tuple[float, float] | None:
    """The smallest and the largest value of a contiguous chunk of shape (n,), n > 0.

    Args:
        chunk: floats of 16 or 32 bits.
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


def add_masked(totals: Totals, chunk: np.ndarray) -> None:
    """Add a chunk that holds NaN or infinities, float32 or float64 of shape (n,)."""
    finite = chunk[np.isfinite(chunk)].astype(np.float64)
    totals.count += chunk.size
    totals.nan += int(np.count_nonzero(np.isnan(chunk)))
    positive = int(np.count_nonzero(chunk == np.inf))
    negative = int(np.count_nonzero(chunk == -np.inf))
    totals.pos_inf += positive
    totals.neg_inf += negative
    if positive:
        totals.extend(math.inf, math.inf)
    if negative:
        totals.extend(-math.inf, -math.inf)
    if finite.size:
        totals.extend(float(finite.min()), float(finite.max()))
        totals.zero += int(finite.size - np.count_nonzero(finite))
        totals.sum += float(np.add.reduce(finite))
        totals.squares += block_dot(finite, finite)
