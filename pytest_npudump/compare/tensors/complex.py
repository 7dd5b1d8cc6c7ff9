"""Chunks of complex numbers in complex128, in blocks that stay in a core's own cache."""

from __future__ import annotations

import math

import numpy as np

from pytest_npudump.compare.tensors.comparer import Comparer
from pytest_npudump.dump.stats.float64 import square_exponent
from pytest_npudump.dump.stats.sums import block_dot

_BLOCK = 1 << 13
_NEAR = 1 - 1e-6
"""Share of the largest magnitude, in float32, from which on an element may be the largest one."""


class ComplexComparer(Comparer):
    """Chunks of which one or both are complex."""

    def _add_equal(self, chunk: np.ndarray, offset: int) -> None:  # noqa: ARG002 - of what differs
        if not np.isfinite(chunk.view(chunk.real.dtype)).all():
            special = ~np.isfinite(chunk)
            self._take_equal_special(chunk[special], chunk[special])
            chunk = chunk[~special]
        if chunk.size:
            self._sides.equal.add(chunk)
            self._measures.magnitude = max(self._measures.magnitude, _largest(chunk))

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
