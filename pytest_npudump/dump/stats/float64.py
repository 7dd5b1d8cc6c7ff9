"""Statistics of float64 chunks in one pass, whatever the magnitudes: squares may leave float64's range."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from pytest_npudump.dump.bytes.buffers import scratch_buffers
from pytest_npudump.dump.stats.float import cleared
from pytest_npudump.dump.stats.sums import block_dot

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pytest_npudump.dump.stats.totals import Totals

_LARGEST = 0x7FEF_FFFF_FFFF_FFFF
_SQUARE_LOW, _SQUARE_HIGH = 1e-140, 1e140
"""Largest magnitudes between which squares neither overflow nor lose digits to underflow."""
_LIMIT = 1000
_BLOCK = 1 << 15


def square_exponent(magnitude: float) -> int:
    """The exponent of a power of two to divide elements by whose largest magnitude is given.

    0 where their squares stay in float64's range anyway.
    """
    if not magnitude or _SQUARE_LOW < magnitude < _SQUARE_HIGH:
        return 0
    return max(-_LIMIT, min(_LIMIT, math.frexp(magnitude)[1]))


class Float64:
    """Adds chunks of float64 to totals."""

    def __init__(self, totals: Totals) -> None:
        self.totals = totals

    def add(self, chunk: np.ndarray) -> None:
        """Add a contiguous chunk, float64 of shape (n,), n > 0."""
        high, low = float(np.maximum.reduce(chunk)), float(np.minimum.reduce(chunk))
        if math.isfinite(high) and math.isfinite(low):
            self._add_finite(chunk, low, high)
            return
        for start in range(0, chunk.size, _BLOCK):
            self._add_block(chunk[start : start + _BLOCK])

    def _add_block(self, chunk: np.ndarray) -> None:
        kept = cleared(chunk, _LARGEST + 1, scratch_buffers())
        self.totals.add_special(kept.nan, kept.neg_inf, kept.pos_inf)
        low, high = float(np.minimum.reduce(kept.values)), float(np.maximum.reduce(kept.values))
        ends = kept.ends(low, high, scratch_buffers())
        if ends is None:
            self.totals.count += chunk.size
        else:
            self._add_finite(kept.values, *ends, zero=kept.zero)

    def _add_finite(self, chunk: np.ndarray, low: float, high: float, *, zero: int | None = None) -> None:
        """Add finite elements, among which are so many zeros; None where they are to be counted."""
        self.totals.extend(low, high)
        self.totals.count += chunk.size
        if zero is None:
            zero = int(chunk.size - np.count_nonzero(chunk)) if low <= 0 <= high else 0
        self.totals.zero += zero
        exponent = square_exponent(max(-low, high))
        for part in _parts(chunk, exponent):
            self.totals.add_sums(float(np.add.reduce(part)), block_dot(part, part), exponent)


def _parts(chunk: np.ndarray, exponent: int) -> Iterator[np.ndarray]:
    """A chunk, or pieces of it times ``2**-exponent``."""
    if not exponent:
        yield chunk
        return
    for start in range(0, chunk.size, _BLOCK):
        part = chunk[start : start + _BLOCK]
        yield np.multiply(part, 2.0**-exponent, out=scratch_buffers().doubles("wide", part.size))
