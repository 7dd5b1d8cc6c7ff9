"""Statistics of float64 chunks in one pass, whatever the magnitudes: squares may leave float64's range."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from pytest_npudump.dump.stats.float import add_masked
from pytest_npudump.dump.stats.sums import block_dot

if TYPE_CHECKING:
    from pytest_npudump.dump.stats.totals import Totals

_SQUARE_LOW, _SQUARE_HIGH = 1e-140, 1e140
"""Largest magnitudes between which squares neither overflow nor lose digits to underflow."""
_SCALE_LIMIT = 1000


@dataclass(slots=True)
class Squares:
    """Sum and squares of float64 whose squares leave the range of float64, scaled by a power of two.

    Such elements are added here as well as to the totals; which of the two counts is known at the end.

    Attributes:
        sum, squares: of ``scale`` times the elements.
        scale: a power of two that follows the largest magnitude so far; 0 before the first.
        magnitude: the largest magnitude so far.
    """

    sum: float = 0.0
    squares: float = 0.0
    scale: float = 0.0
    magnitude: float = 0.0

    def add(self, chunk: np.ndarray, magnitude: float, totals: Totals) -> None:
        """Add a finite chunk, float64 of shape (n,), before it is added to ``totals``.

        Nothing is kept while the largest value can be squared: what is too small beside it does not count.
        """
        self.magnitude = max(self.magnitude, magnitude)
        if self._squarable:
            self.sum = self.squares = self.scale = 0.0
            return
        if not magnitude:
            return
        if not self.scale and totals.squares:
            self.scale, self.sum, self.squares = 1.0, float(totals.sum), totals.squares
        self._follow()
        _add_sums(self, chunk * self.scale)

    def _follow(self) -> None:
        exponent = -math.frexp(self.magnitude)[1]
        scale = math.ldexp(1.0, max(-_SCALE_LIMIT, min(_SCALE_LIMIT, exponent)))
        if self.scale:
            ratio = scale / self.scale
            self.sum, self.squares = self.sum * ratio, self.squares * ratio * ratio
        self.scale = scale

    @property
    def _squarable(self) -> bool:
        return _SQUARE_LOW < self.magnitude < _SQUARE_HIGH

    def settled(self, totals: Totals) -> Totals:
        """Return ``totals`` with these sums, where its own have left the range."""
        odd = totals.nan or totals.pos_inf or totals.neg_inf
        if odd or not self.magnitude or self._squarable:
            return totals
        return replace(totals, sum=self.sum, squares=self.squares, scale=self.scale)


class Float64:
    """Adds chunks of float64 to totals, and to squares where they leave the range of float64."""

    def __init__(self, totals: Totals, squares: Squares) -> None:
        self.totals = totals
        self._squares = squares

    def add(self, chunk: np.ndarray) -> None:
        """Add a contiguous chunk, float64 of shape (n,), n > 0."""
        high, low = float(np.maximum.reduce(chunk)), float(np.minimum.reduce(chunk))
        if not (math.isfinite(high) and math.isfinite(low)):
            add_masked(self.totals, chunk)
            return
        self._squares.add(chunk, max(-low, high), self.totals)
        self.totals.extend(low, high)
        self.totals.count += chunk.size
        if low <= 0 <= high:
            self.totals.zero += int(chunk.size - np.count_nonzero(chunk))
        _add_sums(self.totals, chunk)


def _add_sums(sums: Totals | Squares, chunk: np.ndarray) -> None:
    sums.sum += float(np.add.reduce(chunk))
    sums.squares += block_dot(chunk, chunk)
