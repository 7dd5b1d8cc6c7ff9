"""Chunks of 16 and 32-bit floats in float32, or in float64 where that cannot do justice to them.

That is where squares leave the range of float32 and the golden elements are not all tiny: of tiny ones all
is computed of a power of two times the elements, which changes no digit. The sums are those of
:mod:`pytest_npudump.dump.stats.sums`, with their bounds. The statistics of both sides are added too: they
and the comparison need the same float32, extremes and squares.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from pytest_npudump.compare.tensors.comparer import Comparer
from pytest_npudump.compare.tensors.float64 import Blocks
from pytest_npudump.compare.tensors.special import Side, clear_special
from pytest_npudump.compare.tensors.ulp import add_near_ulp, add_ulp
from pytest_npudump.dump.stats.kernels import in_order, squarable
from pytest_npudump.dump.stats.sums import block_dot, block_sum

if TYPE_CHECKING:
    from pytest_npudump.compare.tensors.comparer import Common
    from pytest_npudump.dump.bytes.buffers import Buffers
    from pytest_npudump.dump.stats.kernels import Kernel, Measured

FLOAT32_TYPES = frozenset({"float16", "bfloat16", "float32"})

_LOW, _HIGH = 1e-14, 1e17
_MOST_EXPONENT = 120
_TINY = 1e-30
"""Tolerances below this would lose digits in float32."""
_FEW = 64
"""Below one in so many it is cheaper to decide all elements beyond the margin in float64."""
_UNLIKE = 0.25
"""From this share of the golden's squares on, the difference's squares are those of another tensor."""
_MARGIN = 1e-6
"""Relative margin around the tolerance; float32 takes six roundings, 3.6e-7, to get there."""

_TO_UPPER = np.float32(1 + 2 * _MARGIN)


class Float32Comparer(Comparer):
    """Chunks of one of :data:`FLOAT32_TYPES`; ``kernels`` are those of the golden and of the actual side."""

    def __init__(self, common: Common, kernels: tuple[Kernel, Kernel], buffers: Buffers) -> None:
        super().__init__(common)
        usable = (tolerance == 0 or _TINY < tolerance < 1 / _TINY for tolerance in (self._rtol, self._atol))
        self._usable = all(usable)
        self._exponent = 0
        self._buffers = buffers
        self._kernels = kernels
        self._blocks = Blocks(common, buffers, ulp=False)

    def _add_different(self, golden: np.ndarray, actual: np.ndarray, offset: int) -> None:
        one, other = self._kernels
        first, second = (k.measure(c, special_sums=False) for k, c in ((one, golden), (other, actual)))
        one.take(first)
        other.take(second)
        special = 0
        if first.finite is not None or second.finite is not None:
            sides = Side(golden, first), Side(actual, second)
            golden, actual, special = clear_special(
                *sides, (self._measures, self._worst), self._buffers, offset
            )
            first, second = one.measure_cleared(golden), other.measure_cleared(actual)
        if not self._add_distant(first, second, (golden, actual), offset, special):
            known = first.squares, second.squares, first.magnitude
            self._blocks.add(golden, actual, offset, known)
        if not add_near_ulp(self._measures, golden, actual, self._buffers):
            add_ulp(self._measures, golden, actual, self._buffers)
        self._measures.ulp_count -= special

    def _add_distant(
        self,
        first: Measured,
        second: Measured,
        pair: tuple[np.ndarray, np.ndarray],
        offset: int,
        cleared: int,
    ) -> bool:
        """Add finite pairs but for their ULP distances, or return False and leave all as it was.

        ``cleared`` pairs are two zeros that stand for others.
        """
        self._exponent = _exponent(first.magnitude)
        if self._exponent:
            first, second = self._scaled("golden", first), self._scaled("actual", second)
        if not self._usable or not _fits(first.magnitude):
            return False
        one, other = first.values, second.values
        difference = np.subtract(other, one, out=self._buffers.floats("difference", one.size))
        distance = np.abs(difference, out=self._buffers.floats("distance", one.size))
        highest = float(np.maximum.reduce(distance))
        if not _fits(highest):
            return False
        magnitude = np.abs(one, out=self._buffers.floats("magnitude", one.size))
        self._add_dots(first, second, difference)
        relative, changed = self._add_relative(distance, magnitude, highest, cleared)
        top = math.inf if changed else float(np.maximum.reduce(relative)) if highest else 0.0
        self._measures.max_rel = max(self._measures.max_rel, top)
        if not self._all_within(highest, top):
            self._measures.outside += self._outside((one, other), distance, magnitude, relative, changed)
        highest = math.ldexp(highest, -self._exponent)
        self._measures.max_abs = max(self._measures.max_abs, highest)
        if highest > self._worst.threshold:
            self._add_worst(distance, pair, offset)
        return True

    def _scaled(self, name: str, found: Measured) -> Measured:
        """What was measured of a chunk for its elements times ``2**exponent``."""
        values = self._buffers.floats(f"scaled {name}", found.values.size)
        np.multiply(found.values, np.float32(2.0**self._exponent), out=values)
        return found._replace(
            values=values,
            low=math.ldexp(found.low or 0.0, self._exponent),
            high=math.ldexp(found.high or 0.0, self._exponent),
            squares=math.ldexp(found.squares, 2 * self._exponent),
        )

    def _add_worst(self, distance: np.ndarray, pair: tuple[np.ndarray, np.ndarray], offset: int) -> None:
        """Give the elements farthest apart to the list; distances are of scaled elements."""
        if pair[0].dtype.itemsize == 2:  # noqa: PLR2004 - bytes of a half
            distance = in_order(distance, self._buffers.floats("difference", distance.size))
        if self._exponent:
            wide = self._buffers.doubles("worst", distance.size)
            distance = np.multiply(distance, 2.0**-self._exponent, out=wide, dtype=np.float64)
        self._worst.add(distance, *pair, offset)

    @property
    def _bound(self) -> float:
        """The absolute tolerance of scaled elements."""
        return math.ldexp(self._atol, self._exponent)

    def _all_within(self, highest: float, relative: float) -> bool:
        """Whether the largest distance, or the largest relative one, alone is within tolerance."""
        return highest <= self._bound * (1 - _MARGIN) or relative <= self._rtol * (1 - _MARGIN)

    def _outside(
        self,
        pair: tuple[np.ndarray, np.ndarray],
        distance: np.ndarray,
        magnitude: np.ndarray,
        relative: np.ndarray,
        changed: int,
    ) -> int:
        """Elements outside the tolerance; those that float32 cannot tell are decided in float64.

        Without ``atol`` the relative distance decides, which unlike the bound keeps its digits where the
        golden is tiny; it is 0 for the ``changed`` elements whose golden is 0.
        """
        if not self._rtol and not self._bound:
            return _nonzero(distance)
        if not self._bound:
            edges = (np.float32(self._rtol * (1 + sign * _MARGIN)) for sign in (-1, 1))
            return changed + self._beyond(pair, relative, *edges)
        low = np.multiply(
            magnitude,
            np.float32(self._rtol * (1 - _MARGIN)),
            out=self._buffers.floats("bound", distance.size),
        )
        np.add(low, np.float32(self._bound * (1 - _MARGIN)), out=low)
        return self._beyond(pair, distance, low)

    def _beyond(
        self,
        pair: tuple[np.ndarray, np.ndarray],
        value: np.ndarray,
        low: Any,
        high: np.float32 | None = None,
    ) -> int:
        """How many are outside, given that none is up to ``low`` and all are above ``high``.

        ``low`` is float32, one for all or, without ``high``, an array that is used up.
        """
        within = np.less_equal(value, low, out=self._buffers.flags("flags", value.size))
        beyond = value.size - int(np.count_nonzero(within))
        if not beyond:
            return 0
        if beyond * _FEW <= value.size:
            doubtful = np.logical_not(within, out=within)
        else:
            upper: Any = np.multiply(low, _TO_UPPER, out=low) if high is None else high
            perhaps = np.less_equal(value, upper, out=self._buffers.flags("perhaps", value.size))
            if value.size - int(np.count_nonzero(perhaps)) == beyond:
                return beyond
            doubtful = np.greater(perhaps, within, out=perhaps)
        places = np.flatnonzero(doubtful)
        golden, actual = (side[places].astype(np.float64) for side in pair)
        inside = np.abs(actual - golden) <= self._bound + self._rtol * np.abs(golden)
        return beyond - int(np.count_nonzero(inside))

    def _add_dots(self, golden: Measured, actual: Measured, difference: np.ndarray) -> None:
        """Add squares and product; of like chunks through the difference, whose errors cancel in a cosine.

        Of unlike ones the digits would cancel instead, where little is left of the golden elements.
        """
        measures, squares, apart = self._measures, golden.squares, block_dot(difference, difference)
        exponent = -2 * self._exponent
        measures.magnitude = max(measures.magnitude, math.ldexp(golden.magnitude, -self._exponent))
        measures.golden_squares.add(squares, exponent)
        measures.difference_squares.add(apart, exponent)
        if apart > _UNLIKE * squares:
            other, less = squarable(actual.values, actual.magnitude, "bound", self._buffers)
            measures.product.add(math.ldexp(block_dot(golden.values, other), -less), exponent)
            measures.actual_squares.add(actual.squares, exponent)
            return
        across = block_dot(golden.values, difference)
        measures.product.add(squares + across, exponent)
        measures.actual_squares.add(squares + 2 * across + apart, exponent)

    def _add_relative(
        self, distance: np.ndarray, magnitude: np.ndarray, highest: float, cleared: int
    ) -> tuple[np.ndarray, int]:
        """Add |difference| / |golden|, and return it, and how many elements have 0 as golden only.

        0 / 0 counts as nothing. Returns 0 for both kinds.
        """
        measures = self._measures
        if not highest:
            measures.relative_count += _nonzero(magnitude)
            return distance, 0
        relative = np.divide(distance, magnitude, out=self._buffers.floats("relative", distance.size))
        total, count, changed = math.nan if cleared else block_sum(relative), relative.size, 0
        if math.isnan(total):
            total = block_sum(np.fmax(relative, 0, out=relative))
            count = _nonzero(magnitude)
        if not math.isfinite(total):
            count = relative.size
            zero = np.equal(magnitude, 0, out=self._buffers.flags("flags", count))
            count -= int(np.count_nonzero(zero))
            if relative.size - count > cleared:
                moved = np.not_equal(distance, 0, out=self._buffers.flags("perhaps", zero.size))
                changed = int(np.count_nonzero(np.logical_and(moved, zero, out=moved)))
            bits = self._buffers.array("bound", zero.size, np.dtype(np.int32))
            np.copyto(bits, zero)
            np.subtract(bits, 1, out=bits)
            np.bitwise_and(relative.view(np.int32), bits, out=relative.view(np.int32))
            total = block_sum(relative)
        if not math.isfinite(total):
            relative = np.divide(
                distance, magnitude, out=np.zeros(distance.size), where=~zero, dtype=np.float64
            )
            total = float(relative.sum())
        measures.relative_sum += total
        measures.relative_count += count
        return relative, changed


def _exponent(magnitude: float) -> int:
    """The power of two with which tiny elements, the largest of which is given, fit; 0 for others."""
    return min(-math.frexp(magnitude)[1], _MOST_EXPONENT) if 0 < magnitude < _LOW else 0


def _fits(magnitude: float) -> bool:
    """Whether a row of squares up to that of ``magnitude`` stays in the range of float32; 0 is no value."""
    return not magnitude or _LOW <= magnitude < _HIGH


def _nonzero(magnitudes: np.ndarray) -> int:
    """Elements of float32 that are not 0, none of which is negative: numpy counts integers faster."""
    return int(np.count_nonzero(magnitudes.view(np.int32)))
