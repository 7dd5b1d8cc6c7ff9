"""The quick way to add a chunk of 16 or 32-bit floats: in float32, into buffers that are used again.

It refuses a chunk that float32 cannot do justice to: NaN, infinities, and values whose squares leave the
range. The sums are blocked, with the bounds of :mod:`pytest_npudump.dump.stats_float`.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from pytest_npudump.dump.stats_float import block_dot, block_sum
from pytest_npudump.dump.stats_half import BFLOAT16, FLOAT16, in_order, to_float32

if TYPE_CHECKING:
    from pytest_npudump.compare.tensors_sums import Sums
    from pytest_npudump.compare.tensors_worst import Worst

FAST_TYPES = frozenset({"float16", "bfloat16", "float32"})

_LOW, _HIGH = 1e-14, 1e18
_TINY = 1e-30
"""Tolerances below this would lose digits in float32."""
_FLOAT16_MAX = 65504.0
_PROBE = 4096
_MARGIN = 1e-6
"""Relative margin around the tolerance; float32 takes five roundings, 3e-7, to get there."""


class FastComparer:
    """Adds chunks to ``sums`` and ``worst``; owns the buffers."""

    def __init__(self, sums: Sums, worst: Worst, *, rtol: float, atol: float) -> None:
        self._sums, self._worst = sums, worst
        self._rtol, self._atol = rtol, atol
        self._usable = all(tolerance == 0 or _TINY < tolerance < 1 / _TINY for tolerance in (rtol, atol))
        self._buffers: dict[str, np.ndarray] = {}

    def add(self, golden: np.ndarray, actual: np.ndarray, offset: int) -> bool:
        """Add a chunk of shape (n,), or return False and leave all as it was."""
        half = golden.dtype == np.float16
        if not self._usable or (half and _beyond(actual)):
            return False
        one, other = self._float32("golden", golden), self._float32("actual", actual)
        if _equal(golden.view(np.uint8), actual.view(np.uint8)):
            return self._add_equal(one)
        difference = np.subtract(other, one, out=self._buffer("difference", one))
        distance = np.abs(difference, out=self._buffer("distance", one))
        magnitude = np.abs(one, out=self._buffer("magnitude", one))
        highest, largest = float(np.maximum.reduce(distance)), float(np.maximum.reduce(magnitude))
        if half and largest > _FLOAT16_MAX:
            return False
        if not (largest < _HIGH and highest < _HIGH) or (0 < largest < _LOW) or (0 < highest < _LOW):
            return False
        self._sums.outside += self._outside(one, other, distance, magnitude)
        self._add_dots(one, difference)
        self._add_relative(distance, magnitude, highest)
        self._sums.max_abs = max(self._sums.max_abs, highest)
        if highest > self._worst.threshold:
            ordered = in_order(distance) if golden.dtype.itemsize == 2 else distance  # noqa: PLR2004 - bytes of a half
            self._worst.add(ordered, golden, actual, offset)
        self._add_ulp(golden, actual)
        return True

    def _add_equal(self, values: np.ndarray) -> bool:
        """Add a chunk that is the same in both."""
        high, low = float(np.maximum.reduce(values)), float(np.minimum.reduce(values))
        magnitude = max(high, -low)
        if not magnitude < _HIGH or 0 < magnitude < _LOW:
            return False
        squares = block_dot(values, values)
        self._sums.golden_squares += squares
        self._sums.actual_squares += squares
        self._sums.product += squares
        zeros = np.count_nonzero(np.equal(values, 0, out=self._flags(values.size)))
        self._sums.relative_count += values.size - int(zeros)
        self._sums.take_ulp(0, 0.0, values.size)
        return True

    def _float32(self, name: str, chunk: np.ndarray) -> np.ndarray:
        if chunk.dtype.itemsize == 4:  # noqa: PLR2004 - bytes of float32
            return chunk
        kind = FLOAT16 if chunk.dtype == np.float16 else BFLOAT16
        return to_float32(chunk, kind, self._room(name, chunk.size))

    def _outside(
        self, one: np.ndarray, other: np.ndarray, distance: np.ndarray, magnitude: np.ndarray
    ) -> int:
        """Elements outside the tolerance; those that float32 cannot tell are decided in float64."""
        if not self._rtol and not self._atol:
            return int(np.count_nonzero(distance))
        near = self._near(distance, magnitude, 1 - _MARGIN)
        beyond = distance.size - int(np.count_nonzero(near))
        if not beyond:
            return 0
        if beyond > distance.size // 16:
            doubtful = self._flags(distance.size, "doubtful")
            np.copyto(doubtful, near)
            np.greater(self._near(distance, magnitude, 1 + _MARGIN), doubtful, out=doubtful)
        else:
            doubtful = np.logical_not(near, out=near)
        places = np.flatnonzero(doubtful)
        golden = one[places].astype(np.float64)
        within = np.abs(other[places] - golden) <= self._atol + self._rtol * np.abs(golden)
        return beyond - int(np.count_nonzero(within))

    def _near(self, distance: np.ndarray, magnitude: np.ndarray, factor: float) -> np.ndarray:
        """Whether elements are within ``factor`` times the tolerance, bool of shape (n,)."""
        bound = np.multiply(magnitude, np.float32(self._rtol * factor), out=self._buffer("bound", distance))
        np.add(bound, np.float32(self._atol * factor), out=bound)
        near: np.ndarray = np.less_equal(distance, bound, out=self._flags(distance.size))
        return near

    def _add_dots(self, golden: np.ndarray, difference: np.ndarray) -> None:
        squares, apart = block_dot(golden, golden), block_dot(difference, difference)
        across = block_dot(golden, difference)
        self._sums.golden_squares += squares
        self._sums.difference_squares += apart
        self._sums.product += squares + across
        self._sums.actual_squares += squares + 2 * across + apart

    def _add_relative(self, distance: np.ndarray, magnitude: np.ndarray, highest: float) -> None:
        """Add |difference| / |golden|; 0 / 0 counts as nothing."""
        if not highest:
            self._sums.relative_count += int(np.count_nonzero(magnitude))
            return
        relative = np.divide(distance, magnitude, out=self._buffer("bound", distance))
        total, count = block_sum(relative), relative.size
        if not math.isfinite(total):
            zero = np.equal(magnitude, 0, out=self._flags(count))
            if np.any(distance[zero]):
                self._sums.max_rel = math.inf
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
        self._sums.max_rel = max(self._sums.max_rel, float(np.maximum.reduce(relative)))

    def _add_ulp(self, golden: np.ndarray, actual: np.ndarray) -> None:
        signed = np.dtype(f"i{golden.dtype.itemsize}")
        one, other = golden.view(signed), actual.view(signed)
        gap = self._room("distance", golden.size).view(signed)[: golden.size]
        flipped = int(np.minimum.reduce(np.bitwise_xor(one, other, out=gap))) < 0
        places = np.flatnonzero(gap < 0) if flipped else None
        # Codes of one sign are in the order of the magnitudes, and their distance fits a code.
        np.abs(np.subtract(one, other, out=gap), out=gap)
        highest = 0
        if places is not None:
            gap[places] = 0
            highest = self._add_flipped(one[places], other[places])
        wide = self._room("bound", gap.size)
        np.copyto(wide, gap)
        self._sums.take_ulp(max(highest, int(np.maximum.reduce(gap))), block_sum(wide), gap.size)

    def _add_flipped(self, one: np.ndarray, other: np.ndarray) -> int:
        """Add the distances across zero, the sum of both magnitudes, and return the largest."""
        mask = one.dtype.type((1 << (8 * one.dtype.itemsize - 1)) - 1)
        gap = (one & mask).astype(np.int64) + (other & mask)
        self._sums.ulp_sum += float(gap.sum())
        return int(gap.max())

    def _buffer(self, name: str, like: np.ndarray) -> np.ndarray:
        return self._room(name, like.size)

    def _room(self, name: str, size: int) -> np.ndarray:
        found = self._buffers.get(name)
        if found is None or found.size < size:
            found = self._buffers[name] = np.empty(size, np.float32)
        return found[:size]

    def _flags(self, size: int, name: str = "flags") -> np.ndarray:
        found = self._buffers.get(name)
        if found is None or found.size < size:
            found = self._buffers[name] = np.empty(size, np.bool_)
        return found[:size]


def _equal(one: np.ndarray, other: np.ndarray) -> bool:
    """Whether two pieces of bytes are equal, decided by the first few where they are not."""
    return np.array_equal(one[:_PROBE], other[:_PROBE]) and np.array_equal(one, other)


def _beyond(actual: np.ndarray) -> bool:
    """Whether float16 codes hold NaN or an infinity, which the conversion to float32 does not keep."""
    high = np.maximum.reduce(actual.view(np.int16))
    return bool(
        high > FLOAT16.largest or np.maximum.reduce(actual.view(np.uint16)) > FLOAT16.largest | 0x8000
    )
