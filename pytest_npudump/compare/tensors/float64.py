"""Chunks of any real types as numpy converts them to float64, in blocks that stay in a core's own cache.

Distances of integers are exact. Squares that leave the range of float64 are added with an exponent.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from pytest_npudump.compare.tensors.comparer import Comparer
from pytest_npudump.compare.tensors.measures import ULP_TYPES
from pytest_npudump.compare.tensors.ulp import add_ulp
from pytest_npudump.dump.stats.kernels import square_exponent, to_float64
from pytest_npudump.dump.stats.sums import block_dot

if TYPE_CHECKING:
    from pytest_npudump.compare.tensors.comparer import Common
    from pytest_npudump.dump.bytes.buffers import Buffers

_BLOCK = 1 << 16
_DOUBLE = np.dtype(np.float64)
_INT64 = np.dtype(np.int64)


class Float64Comparer(Comparer):
    """Chunks of integers of 16 bits and more, of float64, and of two different types."""

    def __init__(self, common: Common, buffers: Buffers) -> None:
        super().__init__(common)
        sides = common.sides.golden.dtype, common.sides.actual.dtype
        ulp = sides[0] == sides[1] and sides[0].name in ULP_TYPES
        self._blocks = Blocks(common, buffers, ulp=ulp)

    def _add_different(self, golden: np.ndarray, actual: np.ndarray, offset: int) -> None:
        self._blocks.add(golden, actual, offset)
        self._sides.golden.add(golden)
        self._sides.actual.add(actual)


class Blocks:
    """Adds pairs of real numbers to measures and to the worst elements; ``ulp`` asks for those distances."""

    def __init__(self, common: Common, buffers: Buffers, *, ulp: bool) -> None:
        self._measures, self._worst, self._buffers = common.measures, common.worst, buffers
        self._rtol, self._atol = common.rtol, common.atol
        self._ulp = ulp
        self._finite = False

    def add(
        self,
        golden: np.ndarray,
        actual: np.ndarray,
        offset: int,
        measured: tuple[float, float, float] | None = None,
    ) -> None:
        """Add two chunks of shape (n,), whose element 0 is element ``offset`` of the tensors.

        ``measured`` are the squares of both and the magnitude of the golden elements where they are known; no
        element is NaN or infinite then.
        """
        if measured is not None:
            self._measures.golden_squares.add(measured[0])
            self._measures.actual_squares.add(measured[1])
            self._measures.magnitude = max(self._measures.magnitude, measured[2])
        self._finite = measured is not None
        for start in range(0, golden.size, _BLOCK):
            part = slice(start, start + _BLOCK)
            self._add(golden[part], actual[part], offset + start)

    def _add(self, golden: np.ndarray, actual: np.ndarray, offset: int) -> None:
        one, other = (
            to_float64(side, name, self._buffers) for name, side in (("golden", golden), ("actual", actual))
        )
        finite, shown = None, (golden, actual)
        if golden.dtype.kind not in "biu":
            shown = one, other
            finite = None if self._finite else self._clear_special(one, other, offset)
        if golden.dtype.kind in "biu":
            distance = _gap(golden, actual)
            difference = size = to_float64(distance, "distance", self._buffers)
        else:
            difference = np.subtract(other, one, out=self._buffers.doubles("difference", one.size))
            distance = size = np.abs(difference, out=self._buffers.doubles("distance", one.size))
        magnitude = np.abs(one, out=self._buffers.doubles("magnitude", one.size))
        highest: Any = np.maximum.reduce(distance).item()
        largest = 0.0 if self._finite else float(np.maximum.reduce(magnitude))
        self._measures.max_abs = max(self._measures.max_abs, highest)
        self._measures.magnitude = max(self._measures.magnitude, largest)
        self._measures.outside += self._outside(size, magnitude, highest)
        self._add_relative(size, magnitude, highest)
        if highest > self._worst.threshold:
            self._worst.add(distance, *shown, offset)
        if self._ulp:
            add_ulp(self._measures, golden, actual, self._buffers, finite=finite)
        if _DOUBLE in {golden.dtype, actual.dtype}:
            self._add_scaled(one, other, difference, (largest, highest))
        else:
            self._add_dots(one, other, difference, (0, 0, 0))

    def _clear_special(self, one: np.ndarray, other: np.ndarray, offset: int) -> np.ndarray | None:
        """Put 0 into both where either is NaN or infinite, and count these pairs; return where neither is.

        Two equal zeros add nothing to any sum and are within every tolerance. None where all is finite.
        """
        first, second, both = (self._buffers.flags(name, one.size) for name in ("first", "second", "both"))
        if np.isfinite(one, out=first).all() and np.isfinite(other, out=second).all():
            return None
        np.isfinite(other, out=second)
        infinite = [one.size - int(np.count_nonzero(flags)) for flags in (first, second)]
        finite = np.logical_and(first, second, out=both)
        np.isnan(one, out=first)
        np.isnan(other, out=second)
        nan = [int(np.count_nonzero(flags)) for flags in (first, second)]
        same = np.logical_and(first, second, out=first)
        np.logical_or(same, np.equal(one, other, out=second), out=same)
        different = np.logical_not(np.logical_or(same, finite, out=same), out=same)
        differ = int(np.count_nonzero(different))
        if differ:
            self._worst.add_special(np.flatnonzero(different), one, other, offset)
        counts = [(count, total - count) for count, total in zip(nan, infinite, strict=True)]
        pairs = one.size - int(np.count_nonzero(finite))
        self._measures.take_special(counts[0], counts[1], pairs, differ)
        self._keep((one, other), finite)
        return finite

    def _keep(self, arrays: tuple[np.ndarray, ...], flags: np.ndarray) -> None:
        """Put 0 into float64 arrays where ``flags`` are not set, in a tenth of ``copyto``'s time."""
        bits = self._buffers.array("bits", flags.size, _INT64)
        np.copyto(bits, flags)
        np.negative(bits, out=bits)
        for array in arrays:
            np.bitwise_and(array.view(_INT64), bits, out=array.view(_INT64))

    def _outside(self, distance: np.ndarray, magnitude: np.ndarray, highest: float) -> int:
        """How many are outside the tolerance; an infinite distance of finite numbers always is."""
        if not self._rtol and not self._atol:
            return int(np.count_nonzero(distance))
        bound = np.multiply(magnitude, self._rtol, out=self._buffers.doubles("relative", distance.size))
        np.add(bound, self._atol, out=bound)
        within = np.less_equal(distance, bound, out=self._buffers.flags("first", distance.size))
        if highest == math.inf:
            np.logical_and(within, np.isfinite(distance), out=within)
        return int(distance.size - np.count_nonzero(within))

    def _add_relative(self, distance: np.ndarray, magnitude: np.ndarray, highest: float) -> None:
        """Add |difference| / |golden|, where 0 / 0 counts as nothing."""
        known = np.not_equal(magnitude, 0, out=self._buffers.flags("first", distance.size))
        count = int(np.count_nonzero(known))
        self._measures.relative_count += count
        if not highest:
            return
        relative = np.divide(distance, magnitude, out=self._buffers.doubles("relative", distance.size))
        if count < distance.size:
            self._keep((relative,), known)
            changed = np.not_equal(distance, 0, out=self._buffers.flags("second", distance.size))
            if np.greater(changed, known, out=changed).any():
                self._measures.max_rel = math.inf
        self._measures.relative_sum += float(np.add.reduce(relative))
        self._measures.max_rel = max(self._measures.max_rel, float(np.maximum.reduce(relative)))

    def _add_scaled(
        self, one: np.ndarray, other: np.ndarray, difference: np.ndarray, sizes: tuple[float, float]
    ) -> None:
        """Add squares and products that may leave the range of float64; ``one`` and ``other`` are used up.

        ``sizes`` are the largest magnitudes of ``one`` and of ``difference``.
        """
        sides = (one, other)
        largest = (sizes[0], max(-float(np.minimum.reduce(other)), float(np.maximum.reduce(other))))
        first, second = (square_exponent(size) for size in largest)
        apart = square_exponent(sizes[1]) if math.isfinite(sizes[1]) else max(first, second)
        if first or second or apart:
            scaled = self._buffers.doubles("distance", one.size)
            np.multiply(difference, 2.0**-apart, out=scaled)
            if not math.isfinite(sizes[1]):
                np.multiply(other, 2.0**-apart, out=scaled)
                np.subtract(scaled, one * 2.0**-apart, out=scaled)
            for side, exponent in zip(sides, (first, second), strict=True):
                np.multiply(side, 2.0**-exponent, out=side)
            difference = scaled
        self._add_dots(one, other, difference, (first, second, apart))

    def _add_dots(
        self, one: np.ndarray, other: np.ndarray, difference: np.ndarray, exponents: tuple[int, int, int]
    ) -> None:
        first, second, apart = exponents
        if not self._finite:
            self._measures.golden_squares.add(block_dot(one, one), 2 * first)
            self._measures.actual_squares.add(block_dot(other, other), 2 * second)
        self._measures.product.add(block_dot(one, other), first + second)
        self._measures.difference_squares.add(block_dot(difference, difference), 2 * apart)


def _gap(golden: np.ndarray, actual: np.ndarray) -> np.ndarray:
    """Exact |actual - golden| of integers of one size, unsigned."""
    codes = np.dtype(f"u{golden.itemsize}")
    if golden.dtype.kind == "b" or actual.dtype.kind == "b":
        golden, actual = golden.view(codes), actual.view(codes)
    high, low = np.maximum(golden, actual), np.minimum(golden, actual)
    gap: np.ndarray = high.view(codes) - low.view(codes)
    return gap
