"""Chunks of complex numbers in complex128, in blocks that stay in a core's own cache."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from pytest_npudump.compare.tensors.comparer import Comparer
from pytest_npudump.dump.bytes.buffers import scratch_buffers
from pytest_npudump.dump.stats.kernels import square_exponent
from pytest_npudump.dump.stats.sums import block_dot

if TYPE_CHECKING:
    from pytest_npudump.compare.tensors.comparer import Common
    from pytest_npudump.dump.stats.totals import Totals

_BLOCK, _MIXED_BLOCK = 1 << 13, 1 << 15
_NEAR = 1 - 1e-6
"""Share of the largest magnitude, in float32, from which on an element may be the largest one."""


_BOTH = np.uint16(0x101)
"""Two flags, both set."""


class ComplexComparer(Comparer):
    """Chunks of which one or both are complex."""

    def __init__(self, common: Common) -> None:
        super().__init__(common)
        self._nan = self._infinite = 0

    def _add_equal(self, chunk: np.ndarray, offset: int) -> None:  # noqa: ARG002 - of what differs
        if np.isfinite(chunk.view(chunk.real.dtype)).all():
            self._sides.equal.add(chunk)
            self._take_magnitude(chunk)
            return
        for start in range(0, chunk.size, _MIXED_BLOCK):
            self._add_mixed(chunk[start : start + _MIXED_BLOCK])

    def _take_magnitude(self, chunk: np.ndarray) -> None:
        self._measures.magnitude = max(self._measures.magnitude, _largest(chunk))

    def _add_mixed(self, chunk: np.ndarray) -> None:
        """Add equal elements, some of which are NaN or infinite."""
        parts, buffers = chunk.view(chunk.real.dtype), scratch_buffers()
        signed, flags = np.dtype(f"i{parts.itemsize}"), buffers.flags("mixed", parts.size)
        pairs = np.isfinite(parts, out=flags).view(np.uint16)
        finite = np.equal(pairs, _BOTH, out=buffers.flags("finite", chunk.size))
        np.multiply(finite, _BOTH, out=pairs)
        bits = buffers.array("mixed", parts.size, signed)
        np.copyto(bits, flags)
        np.negative(bits, out=bits)
        kept = np.bitwise_and(parts.view(signed), bits, out=bits).view(parts.dtype)
        nan = int(np.count_nonzero(np.isnan(chunk)))
        infinite = chunk.size - int(np.count_nonzero(finite)) - nan
        self._take_magnitude(kept.view(chunk.dtype))
        self.take_mixed(kept.view(chunk.dtype), nan, infinite)

    def take_mixed(self, cleared: np.ndarray, nan: int, infinite: int) -> None:
        """Take equal elements but for the largest magnitude, where so many were NaN or infinite and are 0."""
        self._sides.equal.add(cleared)
        self._nan += nan
        self._infinite += infinite

    def finish(self) -> tuple[Totals, Totals]:
        """As :meth:`Comparer.finish`."""
        found, counts = super().finish(), (self._nan, self._infinite)
        self._measures.take_special(counts, counts, sum(counts), 0)
        for totals in found:
            totals.zero -= sum(counts)
            totals.add_special(self._nan, 0, self._infinite)
        return found

    def _add_different(self, golden: np.ndarray, actual: np.ndarray, offset: int) -> None:
        self._sides.golden.add(golden)
        self._sides.actual.add(actual)
        self.add_values(golden, actual, offset)

    def add_values(self, golden: np.ndarray, actual: np.ndarray, offset: int) -> None:
        """Add two chunks as :meth:`add` does, but to no statistics."""
        for start in range(0, golden.size, _BLOCK):
            part = slice(start, start + _BLOCK)
            one, other = (side[part].astype(np.complex128) for side in (golden, actual))
            self._add(one, other, offset + start)

    def _add(self, golden: np.ndarray, actual: np.ndarray, offset: int) -> None:
        """Add complex128 of shape (n,)."""
        finite = np.isfinite(golden) & np.isfinite(actual)
        if not finite.all():
            self._add_special(golden, actual, ~finite, offset)
            # Two equal zeros add nothing to any sum and are within every tolerance.
            golden, actual = np.where(finite, golden, 0), np.where(finite, actual, 0)
        distance, magnitude = np.abs(actual - golden), np.abs(golden)
        measures, highest = self._measures, float(distance.max())
        measures.max_abs = max(measures.max_abs, highest)
        measures.magnitude = max(measures.magnitude, float(magnitude.max()))
        within = (distance <= self._atol + self._rtol * magnitude) & (distance < math.inf)
        measures.outside += int(np.count_nonzero(~within))
        known = magnitude != 0
        relative = np.divide(distance, magnitude, out=np.zeros(len(golden)), where=known)
        measures.relative_sum += float(relative.sum())
        measures.relative_count += int(np.count_nonzero(known))
        changed = bool(np.any(~known & (distance != 0)))
        measures.max_rel = math.inf if changed else max(measures.max_rel, float(relative.max()))
        if highest > self._worst.threshold:
            self._worst.add(distance, golden, actual, offset)
        self._add_dots(golden, actual)

    def _add_special(self, golden: np.ndarray, actual: np.ndarray, special: np.ndarray, offset: int) -> None:
        places = np.flatnonzero(special)
        one, other = golden[places], actual[places]
        nan_one, nan_other = np.isnan(one), np.isnan(other)
        different = places[~((nan_one & nan_other) | (one == other))]
        counts = [
            (int(nan.sum()), int((np.isinf(side) & ~nan).sum()))
            for side, nan in ((one, nan_one), (other, nan_other))
        ]
        self._measures.take_special(counts[0], counts[1], len(places), len(different))
        self._worst.add_special(different, golden, actual, offset)

    def _add_dots(self, golden: np.ndarray, actual: np.ndarray) -> None:
        (one, first), (other, second) = _scaled(golden), _scaled(actual)
        common = max(first, second)
        difference, less = _scaled(actual * 2.0**-common - golden * 2.0**-common)
        self._measures.golden_squares.add(block_dot(one, one), 2 * first)
        self._measures.actual_squares.add(block_dot(other, other), 2 * second)
        self._measures.product.add(block_dot(one, other), first + second)
        self._measures.difference_squares.add(block_dot(difference, difference), 2 * (common + less))


def _largest(chunk: np.ndarray) -> float:
    """The largest magnitude of finite elements, as of complex128."""
    sizes = np.abs(chunk)
    near = np.flatnonzero(sizes >= sizes.max() * _NEAR) if np.isfinite(sizes).all() else slice(None)
    return float(np.abs(chunk[near].astype(np.complex128)).max())


def _scaled(chunk: np.ndarray) -> tuple[np.ndarray, int]:
    """The parts of finite complex128 times ``2**-exponent``, which can be squared, and the exponent."""
    parts = chunk.view(np.float64)
    exponent = square_exponent(max(-float(parts.min()), float(parts.max())))
    return (parts * 2.0**-exponent if exponent else parts), exponent
