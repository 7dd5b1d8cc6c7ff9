"""The quick way to add a chunk of 16 or 32-bit floats: in float32, into buffers that are used again.

It refuses a chunk that float32 cannot do justice to: NaN, infinities, and values whose squares leave the
range. The sums are those of :mod:`pytest_npudump.dump.stats.sums`, with their bounds. The statistics of both
chunks are added too: they and the comparison need the same float32, extremes and squares.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from pytest_npudump.dump.stats.float import Float32
from pytest_npudump.dump.stats.half import (
    BFLOAT16,
    FLOAT16,
    Half,
    in_order,
)
from pytest_npudump.dump.stats.sums import block_dot, block_sum
from pytest_npudump.dump.stats.totals import Totals

if TYPE_CHECKING:
    from pytest_npudump.compare.tensors.sums import Sums
    from pytest_npudump.compare.tensors.worst import Worst
    from pytest_npudump.dump.bytes.buffers import Buffers
    from pytest_npudump.dump.stats.float import Kernel, Measured

FAST_TYPES = frozenset({"float16", "bfloat16", "float32"})

_LOW, _HIGH = 1e-14, 1e17
_TINY = 1e-30
"""Tolerances below this would lose digits in float32."""
_PROBE = 2048
_FEW = 64
"""Below one in so many it is cheaper to decide all elements beyond the margin in float64."""
_COLUMNS = 2048
_LEAST_ROWS, _MOST_ROWS = 8, 64
_UNLIKE = 0.25
"""From this share of the golden's squares on, the difference's squares are those of another tensor."""
_MARGIN = 1e-6
"""Relative margin around the tolerance; float32 takes six roundings, 3.6e-7, to get there."""


class FastComparer:
    """Adds chunks to ``sums`` and ``worst``, and to the statistics of both sides, ``golden`` and ``actual``.

    The ``buffers`` are its own and those of the two sides.
    """

    def __init__(
        self,
        sums: Sums,
        worst: Worst,
        dtype: np.dtype,
        buffers: tuple[Buffers, Buffers, Buffers],
        *,
        rtol: float,
        atol: float,
    ) -> None:
        self._sums, self._worst = sums, worst
        self._rtol, self._atol = rtol, atol
        self._usable = all(tolerance == 0 or _TINY < tolerance < 1 / _TINY for tolerance in (rtol, atol))
        self._buffers = buffers[0]
        self.golden, self.actual = (_kernel(dtype, buffer) for buffer in buffers[1:])

    def add(self, golden: np.ndarray, actual: np.ndarray, offset: int) -> bool:
        """Add a chunk of shape (n,) each, or return False and leave all as it was."""
        first = self.golden.measure(golden) if self._usable else None
        if first is None or not _fits(first.magnitude):
            return False
        if _equal(golden, actual):
            self._add_equal(first)
            return True
        second = self.actual.measure(actual)
        if second is None or not self._add_distant(first, second, (golden, actual), offset):
            return False
        self.golden.take(first)
        self.actual.take(second)
        return True

    def _add_distant(
        self, first: Measured, second: Measured, pair: tuple[np.ndarray, np.ndarray], offset: int
    ) -> bool:
        one, other = first.values, second.values
        difference = np.subtract(other, one, out=self._buffers.floats("difference", one.size))
        distance = np.abs(difference, out=self._buffers.floats("distance", one.size))
        highest = float(np.maximum.reduce(distance))
        if not _fits(highest):
            return False
        magnitude = np.abs(one, out=self._buffers.floats("magnitude", one.size))
        self._add_dots(first, second, difference)
        relative = self._add_relative(distance, magnitude, highest)
        if not self._all_within(highest, relative):
            self._sums.outside += self._outside(one, other, distance, magnitude)
        self._sums.max_abs = max(self._sums.max_abs, highest)
        if highest > self._worst.threshold:
            if pair[0].dtype.itemsize == 2:  # noqa: PLR2004 - bytes of a half
                distance = in_order(distance, self._buffers.floats("difference", distance.size))
            self._worst.add(distance, *pair, offset)
        self._add_ulp(*pair)
        return True

    def _all_within(self, highest: float, relative: float) -> bool:
        """Whether the largest distance, or the largest relative one, alone is within tolerance."""
        return highest <= self._atol * (1 - _MARGIN) or relative <= self._rtol * (1 - _MARGIN)

    def _add_equal(self, found: Measured) -> None:
        """Add a chunk that is the same in both."""
        self.golden.take(found)
        self.actual.take(found)
        self._sums.magnitude = max(self._sums.magnitude, found.magnitude)
        self._sums.golden_squares += found.squares
        self._sums.actual_squares += found.squares
        self._sums.product += found.squares
        self._sums.relative_count += found.values.size - found.zero
        self._sums.take_ulp(0, 0.0, found.values.size)

    def _outside(
        self, one: np.ndarray, other: np.ndarray, distance: np.ndarray, magnitude: np.ndarray
    ) -> int:
        """Elements outside the tolerance; those that float32 cannot tell are decided in float64."""
        if not self._rtol and not self._atol:
            return _nonzero(distance)
        bound = np.multiply(
            magnitude,
            np.float32(self._rtol * (1 - _MARGIN)),
            out=self._buffers.floats("bound", distance.size),
        )
        np.add(bound, np.float32(self._atol * (1 - _MARGIN)), out=bound)
        within = np.less_equal(distance, bound, out=self._buffers.flags("flags", distance.size))
        beyond = distance.size - int(np.count_nonzero(within))
        if not beyond:
            return 0
        if beyond * _FEW <= distance.size:
            doubtful = np.logical_not(within, out=within)
        else:
            np.multiply(bound, np.float32(1 + 2 * _MARGIN), out=bound)
            perhaps = np.less_equal(distance, bound, out=self._buffers.flags("perhaps", distance.size))
            if distance.size - int(np.count_nonzero(perhaps)) == beyond:
                return beyond
            doubtful = np.greater(perhaps, within, out=perhaps)
        places = np.flatnonzero(doubtful)
        golden = one[places].astype(np.float64)
        within = np.abs(other[places] - golden) <= self._atol + self._rtol * np.abs(golden)
        return beyond - int(np.count_nonzero(within))

    def _add_dots(self, golden: Measured, actual: Measured, difference: np.ndarray) -> None:
        """Add squares and product; of like chunks through the difference, whose errors cancel in a cosine.

        Of unlike ones the digits would cancel instead, where little is left of the golden elements.
        """
        squares, apart = golden.squares, block_dot(difference, difference)
        self._sums.magnitude = max(self._sums.magnitude, golden.magnitude)
        self._sums.golden_squares += squares
        self._sums.difference_squares += apart
        if apart > _UNLIKE * squares:
            self._sums.product += block_dot(golden.values, actual.values)
            self._sums.actual_squares += actual.squares
            return
        across = block_dot(golden.values, difference)
        self._sums.product += squares + across
        self._sums.actual_squares += squares + 2 * across + apart

    def _add_relative(self, distance: np.ndarray, magnitude: np.ndarray, highest: float) -> float:
        """Add |difference| / |golden|, where 0 / 0 counts as nothing, and return the largest."""
        if not highest:
            self._sums.relative_count += _nonzero(magnitude)
            return 0.0
        relative = np.divide(distance, magnitude, out=self._buffers.floats("bound", distance.size))
        total, count, top = block_sum(relative), relative.size, 0.0
        if not math.isfinite(total):
            zero = np.equal(magnitude, 0, out=self._buffers.flags("flags", count))
            if np.any(distance[zero]):
                top = math.inf
            relative[zero] = 0
            count -= int(np.count_nonzero(zero))
            total = block_sum(relative)
        if not math.isfinite(total):
            relative = np.divide(
                distance, magnitude, out=np.zeros(distance.size), where=~zero, dtype=np.float64
            )
            total = float(relative.sum())
        self._sums.relative_sum += total
        self._sums.relative_count += count
        top = max(top, float(np.maximum.reduce(relative)))
        self._sums.max_rel = max(self._sums.max_rel, top)
        return top

    def _add_ulp(self, golden: np.ndarray, actual: np.ndarray) -> None:
        signed = np.dtype(f"i{golden.dtype.itemsize}")
        one, other = golden.view(signed), actual.view(signed)
        gap = self._buffers.floats("distance", golden.size).view(signed)[: golden.size]
        flipped = int(np.minimum.reduce(np.bitwise_xor(one, other, out=gap))) < 0
        places = np.flatnonzero(gap < 0) if flipped else None
        # Codes of one sign are in the order of the magnitudes, and their distance fits a code.
        np.abs(np.subtract(one, other, out=gap), out=gap)
        across = 0
        if places is not None:
            gap[places] = 0
            across = self._add_flipped(one[places], other[places])
        highest = int(np.maximum.reduce(gap))
        self._sums.take_ulp(max(across, highest), float(_exact_sum(gap, highest)), gap.size)

    def _add_flipped(self, one: np.ndarray, other: np.ndarray) -> int:
        """Add the distances across zero, the sum of both magnitudes, and return the largest."""
        mask = one.dtype.type((1 << (8 * one.dtype.itemsize - 1)) - 1)
        gap = (one & mask).astype(np.int64) + (other & mask)
        self._sums.ulp_sum += float(gap.sum())
        return int(gap.max())


def _kernel(dtype: np.dtype, buffers: Buffers) -> Kernel:
    if dtype.name == "float32":
        return Float32(Totals(), buffers)
    return Half(Totals(), FLOAT16 if dtype.name == "float16" else BFLOAT16, buffers)


def _fits(magnitude: float) -> bool:
    """Whether a row of squares up to that of ``magnitude`` stays in the range of float32; 0 is no value."""
    return not magnitude or _LOW <= magnitude < _HIGH


def _nonzero(magnitudes: np.ndarray) -> int:
    """Elements of float32 that are not 0, none of which is negative: numpy counts integers faster."""
    return int(np.count_nonzero(magnitudes.view(np.int32)))


def _exact_sum(values: np.ndarray, highest: int) -> int:
    """The sum of integers of shape (n,) from 0 to ``highest``, added in their own type while they fit."""
    rows = min(np.iinfo(values.dtype).max // max(highest, 1), _MOST_ROWS)
    whole = values.size - values.size % (rows * _COLUMNS)
    if rows < _LEAST_ROWS:
        return int(np.add.reduce(values, dtype=np.int64))
    partial = np.add.reduce(values[:whole].reshape(-1, rows, _COLUMNS), axis=1, dtype=values.dtype)
    return sum(int(np.add.reduce(part, axis=None, dtype=np.int64)) for part in (partial, values[whole:]))


def _equal(golden: np.ndarray, actual: np.ndarray) -> bool:
    """Whether two chunks are equal bit by bit, decided by the first elements where they are not."""
    codes = np.dtype(f"u{golden.dtype.itemsize}")
    one, other = golden.view(codes), actual.view(codes)
    return np.array_equal(one[:_PROBE], other[:_PROBE]) and np.array_equal(one, other)
