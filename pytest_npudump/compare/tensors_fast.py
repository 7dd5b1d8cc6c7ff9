"""The quick way to add a chunk of 16 or 32-bit floats: in float32, into buffers that are used again.

It refuses a chunk that float32 cannot do justice to: NaN, infinities, values whose squares leave the
range, and chunks where rounding in float32 could decide whether an element is within tolerance. The sums
are blocked, with the bounds of :mod:`pytest_npudump.dump.stats_float`.
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
_MARGIN = 1e-6
"""Relative margin around the tolerance; float32 takes five roundings, 3e-7, to get there."""


class FastComparer:
    """Adds chunks to ``sums`` and ``worst``; owns the buffers."""

    def __init__(self, sums: Sums, worst: Worst, *, rtol: float, atol: float) -> None:
        self._sums, self._worst = sums, worst
        self._rtol, self._atol = rtol, atol
        # Below this the tolerance itself would lose digits in float32.
        self._tiny = any(0 < tolerance < _TINY for tolerance in (rtol, atol))
        self._buffers: dict[str, np.ndarray] = {}

    def add(self, golden: np.ndarray, actual: np.ndarray, offset: int) -> bool:
        """Add a chunk of shape (n,), or return False and leave all as it was."""
        if self._tiny or not _finite_codes(golden, actual):
            return False
        one, other = self._float32("golden", golden), self._float32("actual", actual)
        difference = np.subtract(other, one, out=self._buffer("difference", one))
        distance = np.abs(difference, out=self._buffer("distance", one))
        magnitude = np.abs(one, out=self._buffer("magnitude", one))
        highest, largest = float(np.maximum.reduce(distance)), float(np.maximum.reduce(magnitude))
        if not (largest < _HIGH and highest < _HIGH) or (0 < largest < _LOW) or (0 < highest < _LOW):
            return False
        outside = self._outside(distance, magnitude)
        if outside is None:
            return False
        self._sums.outside += outside
        self._add_dots(one, difference)
        self._add_relative(distance, magnitude, highest)
        self._add_ulp(golden, actual)
        self._sums.max_abs = max(self._sums.max_abs, highest)
        if highest > self._worst.threshold:
            ordered = in_order(distance) if golden.dtype.itemsize == 2 else distance  # noqa: PLR2004 - bytes of a half
            self._worst.add(ordered, golden, actual, offset)
        return True

    def _float32(self, name: str, chunk: np.ndarray) -> np.ndarray:
        if chunk.dtype.itemsize == 4:  # noqa: PLR2004 - bytes of float32
            return chunk
        kind = FLOAT16 if chunk.dtype == np.float16 else BFLOAT16
        return to_float32(chunk, kind, self._room(name, chunk.size))

    def _outside(self, distance: np.ndarray, magnitude: np.ndarray) -> int | None:
        """Elements outside the tolerance; None where float32 cannot tell."""
        if not self._rtol and not self._atol:
            return int(np.count_nonzero(distance))
        bound = np.multiply(magnitude, np.float32(self._rtol), out=self._buffer("bound", distance))
        np.add(bound, np.float32(self._atol), out=bound)
        flags = self._flags(distance.size)
        np.multiply(bound, np.float32(1 + _MARGIN), out=bound)
        at_least = distance.size - int(np.count_nonzero(np.less_equal(distance, bound, out=flags)))
        np.multiply(bound, np.float32((1 - _MARGIN) / (1 + _MARGIN)), out=bound)
        at_most = distance.size - int(np.count_nonzero(np.less_equal(distance, bound, out=flags)))
        return at_least if at_least == at_most else None

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
        size = golden.dtype.itemsize
        signed, unsigned = np.dtype(f"i{size}"), np.dtype(f"u{size}")
        one, other = golden.view(signed), actual.view(signed)
        if int(np.minimum.reduce(np.bitwise_xor(one, other))) < 0:
            one, other = _ordered(one), _ordered(other)
        gap = (np.maximum(one, other) - np.minimum(one, other)).view(unsigned)
        wide = self._room("bound", gap.size)
        np.copyto(wide, gap)
        self._sums.take_ulp(int(np.maximum.reduce(gap)), block_sum(wide), gap.size)

    def _buffer(self, name: str, like: np.ndarray) -> np.ndarray:
        return self._room(name, like.size)

    def _room(self, name: str, size: int) -> np.ndarray:
        found = self._buffers.get(name)
        if found is None or found.size < size:
            found = self._buffers[name] = np.empty(size, np.float32)
        return found[:size]

    def _flags(self, size: int) -> np.ndarray:
        found = self._buffers.get("flags")
        if found is None or found.size < size:
            found = self._buffers["flags"] = np.empty(size, np.bool_)
        return found[:size]


def _finite_codes(golden: np.ndarray, actual: np.ndarray) -> bool:
    """Whether two chunks of float16 are finite; for the other types the distances tell."""
    if golden.dtype != np.float16:
        return True
    for chunk in (golden, actual):
        if np.maximum.reduce(chunk.view(np.int16)) > FLOAT16.largest:
            return False
        if np.maximum.reduce(chunk.view(np.uint16)) > FLOAT16.largest | 0x8000:
            return False
    return True


def _ordered(codes: np.ndarray) -> np.ndarray:
    """Signed codes in the order of the values: sign and magnitude to two's complement."""
    top = codes.dtype.itemsize * 8 - 1
    sign = codes >> codes.dtype.type(top)
    found: np.ndarray = (codes & codes.dtype.type((1 << top) - 1) ^ sign) - sign
    return found
