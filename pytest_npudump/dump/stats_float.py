"""Statistics of floating-point chunks.

A chunk whose extremes are finite needs no masks: max and min alone tell that it has no NaN and no
infinity. Sums are blocked: 16 elements (32 squares) are added in float32, and the partial sums in
float64. Whatever order BLAS adds in, float32 addition of k terms errs by at most (k - 1) * 2**-24 of the
sum of their magnitudes, so

* avg errs by at most 9e-7 of the mean magnitude of the elements,
* l2norm errs by at most 1e-6 of itself (half the error of its square).

Rounding errors of different blocks cancel: 1e-9 is usual. What does not fill a whole block of 32 Ki
elements, and each chunk with values too large or too small to square in float32, is added in float64.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from pytest_npudump.dump.stats_totals import Totals

_COLUMNS = 1024
_SUM_ROWS = 16
_SQUARE_ROWS = 32
_BLOCK = _SQUARE_ROWS * _COLUMNS
_SQUARE_LOW, _SQUARE_HIGH = 1e-14, 1e18
"""Largest magnitudes between which float32 squares neither overflow nor lose digits to underflow."""
_SQUARE_LOW_64, _SQUARE_HIGH_64 = 1e-140, 1e140
_SCALE_LIMIT = 1000

_ONES = np.ones(_SUM_ROWS, np.float32)


class Float32:
    """Adds chunks of float32 to totals; owns the buffers that this takes."""

    def __init__(self, totals: Totals) -> None:
        self.totals = totals
        self._flags = np.empty(0, np.bool_)

    def add(self, chunk: np.ndarray) -> None:
        """Add a contiguous chunk, float32 of shape (n,), n > 0."""
        high, low = float(np.maximum.reduce(chunk)), float(np.minimum.reduce(chunk))
        if not (math.isfinite(high) and math.isfinite(low)):
            add_masked(self.totals, chunk)
            return
        self.totals.extend(low, high)
        self.totals.count += chunk.size
        if low <= 0 <= high:
            self.totals.zero += self._zeros(chunk)
        self.add_sums(chunk, max(-low, high))

    def _zeros(self, chunk: np.ndarray) -> int:
        if self._flags.size < chunk.size:
            self._flags = np.empty(chunk.size, np.bool_)
        return int(np.count_nonzero(np.equal(chunk, 0, out=self._flags[: chunk.size])))

    def add_sums(self, chunk: np.ndarray, magnitude: float) -> None:
        """Add sum and squares of a finite chunk of float32 whose largest magnitude is given."""
        if _SQUARE_LOW < magnitude < _SQUARE_HIGH:
            self.totals.sum += block_sum(chunk)
            self.totals.squares += block_dot(chunk, chunk)
        else:
            _add_sums_64(self.totals, chunk.astype(np.float64))


def block_sum(values: np.ndarray) -> float:
    """The sum of contiguous float32 of shape (n,), blocked as the module describes."""
    whole = values.size - values.size % _BLOCK
    rows = values[:whole].reshape(-1, _SUM_ROWS, _COLUMNS)
    total = float(np.add.reduce(np.matmul(_ONES, rows), axis=None, dtype=np.float64))
    if whole == values.size:
        return total
    return total + float(np.add.reduce(values[whole:], dtype=np.float64))


def block_dot(one: np.ndarray, other: np.ndarray) -> float:
    """The inner product of contiguous float32 of shape (n,), blocked as the module describes."""
    whole = one.size - one.size % _BLOCK
    rows = (values[:whole].reshape(-1, _SQUARE_ROWS, _COLUMNS) for values in (one, other))
    products = np.einsum("kij,kij->kj", *rows)
    total = float(np.add.reduce(products, axis=None, dtype=np.float64))
    if whole == one.size:
        return total
    rest = one[whole:].astype(np.float64)
    return total + float(np.dot(rest, rest if other is one else other[whole:].astype(np.float64)))


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

        Nothing is done for values that can be squared, unless there were others that are too large.
        """
        self.magnitude = max(self.magnitude, magnitude)
        if not magnitude or (magnitude < _SQUARE_HIGH_64 and self._squarable(self.magnitude)):
            return
        if not self.scale and totals.squares:
            self.scale, self.sum, self.squares = 1.0, float(totals.sum), totals.squares
        self._follow()
        _add_sums_64(self, chunk * self.scale)

    def _follow(self) -> None:
        exponent = -math.frexp(self.magnitude)[1]
        scale = math.ldexp(1.0, max(-_SCALE_LIMIT, min(_SCALE_LIMIT, exponent)))
        if self.scale:
            ratio = scale / self.scale
            self.sum, self.squares = self.sum * ratio, self.squares * ratio * ratio
        self.scale = scale

    @staticmethod
    def _squarable(magnitude: float) -> bool:
        return _SQUARE_LOW_64 < magnitude < _SQUARE_HIGH_64

    def settled(self, totals: Totals) -> Totals:
        """Return ``totals`` with these sums, where its own have left the range."""
        odd = totals.nan or totals.pos_inf or totals.neg_inf
        if odd or not self.magnitude or self._squarable(self.magnitude):
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
        _add_sums_64(self.totals, chunk)


def _add_sums_64(totals: Totals | Squares, chunk: np.ndarray) -> None:
    totals.sum += float(np.add.reduce(chunk))
    totals.squares += float(np.dot(chunk, chunk))


def add_masked(totals: Totals, chunk: np.ndarray) -> None:
    """Add a chunk that holds NaN or infinities, float32 or float64 of shape (n,)."""
    finite = chunk[np.isfinite(chunk)].astype(np.float64)
    totals.count += chunk.size
    totals.nan += int(np.count_nonzero(np.isnan(chunk)))
    positive = int(np.count_nonzero(chunk == np.inf))
    negative = int(np.count_nonzero(chunk == -np.inf))
    totals.pos_inf += positive
    totals.neg_inf += negative
    if positive:
        totals.extend(math.inf, math.inf)
    if negative:
        totals.extend(-math.inf, -math.inf)
    if finite.size:
        totals.extend(float(finite.min()), float(finite.max()))
        totals.zero += int(finite.size - np.count_nonzero(finite))
        _add_sums_64(totals, finite)
