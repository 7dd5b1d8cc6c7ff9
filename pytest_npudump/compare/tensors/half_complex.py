"""Chunks of complex32, two float16 an element, in float32, whose range all of their squares are in.

Sums have the bounds of :mod:`pytest_npudump.dump.stats.sums`. Maxima, the elements farthest apart and what
is near the edge of the tolerance are computed again in complex128.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from pytest_npudump.compare.tensors.comparer import Comparer
from pytest_npudump.compare.tensors.complex import ComplexComparer
from pytest_npudump.dump.arrays.decode import decode
from pytest_npudump.dump.stats.kernels import FLOAT16, extremes, to_float32
from pytest_npudump.dump.stats.sums import block_dot, block_sum

if TYPE_CHECKING:
    from pytest_npudump.compare.tensors.comparer import Common
    from pytest_npudump.dump.bytes.buffers import Buffers
    from pytest_npudump.dump.stats.totals import Totals

_BLOCK = 1 << 17
_BYTES = 4
_FEW = 1 << 15
"""Bytes up to which complex128 costs no more."""
_MARGIN = 1e-6
"""Relative margin around a tolerance or a maximum; float32 takes eight roundings, 4.8e-7, to get there."""
_MAGNITUDES = np.uint32(0x7FFF7FFF)
"""Both parts of an element without their signs."""
_EXPONENT = np.uint16(0x7C00)
"""Bits of a float16 that are all set where it is NaN or infinite."""
_LEAST, _MOST = 1e-30, 1e30
"""Tolerances beyond these would lose digits in float32."""
_UNLIKE = 0.25
"""From this share of the golden's squares on, the difference's squares are those of another tensor."""


class HalfComplexComparer(Comparer):
    """Chunks of complex32 as bytes, uint8 of shape (4 * n,); offsets count elements."""

    def __init__(self, common: Common, buffers: Buffers) -> None:
        super().__init__(common)
        self._buffers = buffers
        self._wide = ComplexComparer(common)
        self._usable = all(not bound or _LEAST < bound < _MOST for bound in (self._rtol, self._atol))

    def _add_equal(self, chunk: np.ndarray, offset: int) -> None:  # noqa: ARG002 - of what differs
        halves = chunk.view(np.float16)
        if extremes(halves, FLOAT16.largest) is None:
            halves = self._take_mixed(chunk)
        else:
            self._sides.equal.add(chunk)
        for start in range(0, halves.size, _BLOCK):
            part = halves[start : start + _BLOCK]
            self._take_magnitude(part, self._sizes("golden", self._parts("one", part)))

    def _take_mixed(self, chunk: np.ndarray) -> np.ndarray:
        """Take equal elements some of which are NaN or infinite; return all, with 0 in place of these."""
        elements = chunk.view(np.uint32)
        sizes = np.bitwise_and(elements, _MAGNITUDES).view(np.uint16)
        infinite = sizes >= _EXPONENT
        nan, special = (
            int(np.count_nonzero(found.view(np.uint16))) for found in (sizes > _EXPONENT, infinite)
        )
        finite = infinite.view(np.uint16) == 0
        kept: np.ndarray = np.multiply(elements, finite, out=sizes.view(np.uint32)).view(np.float16)
        self._wide.take_mixed(kept.view(np.uint8), nan, special - nan)
        return kept

    def finish(self) -> tuple[Totals, Totals]:
        """As :meth:`Comparer.finish`."""
        return self._wide.finish()

    def _add_different(self, golden: np.ndarray, actual: np.ndarray, offset: int) -> None:
        self._sides.golden.add(golden)
        self._sides.actual.add(actual)
        sides = golden.view(np.float16), actual.view(np.float16)
        few = golden.size < _FEW
        if few or not self._usable or any(extremes(side, FLOAT16.largest) is None for side in sides):
            one, other = (decode(side, "complex32", side.size // _BYTES) for side in (golden, actual))
            self._wide.add_values(one, other, offset)
            return
        for start in range(0, sides[0].size, _BLOCK):
            part = slice(start, start + _BLOCK)
            self._add(sides[0][part], sides[1][part], offset + start // 2)

    def _parts(self, name: str, halves: np.ndarray) -> np.ndarray:
        """Float32 of shape (2 * n,): one part of each element, then the other ones."""
        return to_float32(halves, FLOAT16, self._buffers.floats(name, halves.size))

    def _sizes(self, name: str, parts: np.ndarray) -> np.ndarray:
        """The magnitudes of elements given as :meth:`_parts`, float32 of shape (n,)."""
        squares = np.multiply(parts, parts, out=self._buffers.floats("squares", parts.size))
        found = self._buffers.floats(name, parts.size // 2)
        np.add(squares[: found.size], squares[found.size :], out=found)
        return np.sqrt(found, out=found)

    def _take_magnitude(self, golden: np.ndarray, sizes: np.ndarray) -> None:
        highest = float(np.maximum.reduce(sizes))
        if highest and highest >= self._measures.magnitude * (1 - _MARGIN):
            near = np.flatnonzero(sizes >= highest * (1 - _MARGIN))
            found = float(np.abs(_values(golden, near)).max())
            self._measures.magnitude = max(self._measures.magnitude, found)

    def _add(self, golden: np.ndarray, actual: np.ndarray, offset: int) -> None:
        """Add finite elements, float16 of shape (2 * n,)."""
        one, other = self._parts("one", golden), self._parts("other", actual)
        difference = np.subtract(other, one, out=self._buffers.floats("difference", one.size))
        magnitude, distance = self._sizes("golden", one), self._sizes("distance", difference)
        self._take_magnitude(golden, magnitude)
        self._add_dots(one, other, difference)
        highest = float(np.maximum.reduce(distance))
        self._add_relative(distance, magnitude, changed=highest > 0)
        if not highest:
            return
        if highest >= self._measures.max_abs * (1 - _MARGIN):
            near = np.flatnonzero(distance >= highest * (1 - _MARGIN))
            apart = float(np.abs(_values(actual, near) - _values(golden, near)).max())
            self._measures.max_abs = max(self._measures.max_abs, apart)
        self._measures.outside += self._outside(golden, actual, distance, magnitude)
        if highest > self._worst.threshold:
            places = self._worst.candidates(distance)
            first, second = _values(golden, places), _values(actual, places)
            self._worst.take(places, np.abs(second - first), first, second, offset)

    def _add_dots(self, one: np.ndarray, other: np.ndarray, difference: np.ndarray) -> None:
        """Add squares and product; of like chunks through the difference, whose errors cancel in a cosine."""
        measures = self._measures
        squares, apart = block_dot(one, one), block_dot(difference, difference)
        measures.golden_squares.add(squares)
        measures.difference_squares.add(apart)
        if apart > _UNLIKE * squares:
            measures.product.add(block_dot(one, other))
            measures.actual_squares.add(block_dot(other, other))
            return
        across = block_dot(one, difference)
        measures.product.add(squares + across)
        measures.actual_squares.add(squares + 2 * across + apart)

    def _add_relative(self, distance: np.ndarray, magnitude: np.ndarray, *, changed: bool) -> None:
        """Add |difference| / |golden|, where 0 / 0 counts as nothing."""
        measures, count = self._measures, int(np.count_nonzero(magnitude.view(np.int32)))
        measures.relative_count += count
        if not changed or not count:
            measures.max_rel = math.inf if changed else measures.max_rel
            return
        relative = self._buffers.floats("relative", distance.size)
        np.divide(distance, magnitude, out=relative)
        if count < relative.size:
            zero = magnitude == 0
            if np.any(distance[zero]):
                measures.max_rel = math.inf
            relative[zero] = 0
        measures.relative_sum += block_sum(relative)
        measures.max_rel = max(measures.max_rel, float(np.maximum.reduce(relative)))

    def _outside(
        self, golden: np.ndarray, actual: np.ndarray, distance: np.ndarray, magnitude: np.ndarray
    ) -> int:
        """Elements outside the tolerance; those that float32 cannot tell are decided in complex128."""
        if not self._rtol and not self._atol:
            return int(np.count_nonzero(distance.view(np.int32)))
        low = np.multiply(magnitude, np.float32(self._rtol * (1 - _MARGIN)), out=magnitude)
        np.add(low, np.float32(self._atol * (1 - _MARGIN)), out=low)
        beyond = np.greater(distance, low, out=self._buffers.flags("beyond", distance.size))
        found = int(np.count_nonzero(beyond))
        if not found:
            return 0
        np.multiply(low, np.float32(1 + 3 * _MARGIN), out=low)
        near = np.less_equal(distance, low, out=self._buffers.flags("near", distance.size))
        places = np.flatnonzero(np.logical_and(near, beyond, out=near))
        first, second = _values(golden, places), _values(actual, places)
        inside = np.abs(second - first) <= self._atol + self._rtol * np.abs(first)
        return found - int(np.count_nonzero(inside))


def _values(halves: np.ndarray, places: np.ndarray) -> np.ndarray:
    """The elements at ``places`` of float16 of shape (2 * n,), complex128."""
    parts = halves.reshape(-1, 2)[places].astype(np.float64)
    found: np.ndarray = parts.view(np.complex128).reshape(-1)
    return found
