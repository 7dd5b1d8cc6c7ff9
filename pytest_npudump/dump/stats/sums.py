"""Sums and inner products at the speed of BLAS, with bounds that hold for the installed BLAS.

Up to 32 Ki elements of float32 are added in float64. More are cut into rows: BLAS adds up each row in
float32, numpy the rows' sums in float64. A row errs by at most ``k * 2**-24`` of the sum of its terms'
magnitudes, where ``k`` is the number of additions that a term goes through.

BLAS adds in lanes and does not say how many it has: that depends on the processor. It is found out by
asking, once in a process. Among ones, a huge term swallows all that is added to it until its negative makes
it vanish. What is left counts the terms outside of the smallest partial sum that has both, and these numbers
tell the tree of additions (FPRev, arXiv:2411.00442).

Rows are short enough that BLAS never divides one between threads of its own: results do not depend on how
many it has, and threads that work on different tensors do not wait for each other there.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np

from pytest_npudump.dump.records import Stats

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray


SUM_ADDITIONS = 15
"""Additions that a term of a sum of float32 goes through in its row, at most: 15 * 2**-24 is 8.95e-7."""

DOT_ADDITIONS = 31
"""The same of an inner product, where a term is rounded once more: 32 * 2**-24 is 1.91e-6."""

_LENGTHS = (512, 256, 128, 64, 32)
"""Lengths of rows, the fastest first."""

_LENGTH_64 = 4096
SHORT = 1 << 15
"""Elements of float32 from which on they are added up in rows."""
_HAS_VECDOT = hasattr(np, "vecdot")
_HUGE = np.float32(2.0**60)


def block_sum(values: np.ndarray) -> float:
    """The sum of contiguous float32 of shape (n,); errs by at most 9e-7 of the sum of the magnitudes."""
    if values.size < SHORT:
        return float(np.add.reduce(values.astype(np.float64)))
    ones = _ones(row_length(SUM_ADDITIONS))
    whole = values.size - values.size % ones.size
    total = float(np.add.reduce(row_dots(values[:whole].reshape(-1, ones.size), ones), dtype=np.float64))
    if whole == values.size:
        return total
    return total + float(np.add.reduce(values[whole:], dtype=np.float64))


def block_dot(one: np.ndarray, other: np.ndarray) -> float:
    """The inner product of contiguous arrays of shape (n,), both float32 or both float64.

    float32 errs by at most 2e-6 of the sum of the products' magnitudes, as long as 512 of them stay in its
    range: the root of a sum of squares by at most 1e-6 of itself.
    """
    if one.dtype == np.float32 and one.size < SHORT:
        one, other = _wide(one, other)
    length = row_length(DOT_ADDITIONS) if one.dtype == np.float32 else _LENGTH_64
    whole = one.size - one.size % length
    if not whole:
        return float(np.dot(*_wide(one, other)))
    dots = row_dots(one[:whole].reshape(-1, length), other[:whole].reshape(-1, length))
    total = float(np.add.reduce(dots, dtype=np.float64))
    return total if whole == one.size else total + float(np.dot(*_wide(one[whole:], other[whole:])))


def _wide(one: np.ndarray, other: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    wide = one.astype(np.float64, copy=False)
    return wide, wide if other is one else other.astype(np.float64, copy=False)


def row_dots(one: np.ndarray, other: np.ndarray) -> np.ndarray:
    """Inner products of the rows of two arrays of shape (k, n), in their type; ``other`` may be (n,)."""
    if _HAS_VECDOT:
        return np.asarray(np.vecdot(one, other))
    return np.asarray(np.matmul(one[:, np.newaxis, :], other[..., np.newaxis])[:, 0, 0])


@lru_cache(maxsize=2)
def row_length(most: int) -> int:
    """Return how many float32 :func:`row_dots` may take so that no term goes through more than ``most``.

    In rows of ``most + 1`` terms none does, whatever the order.
    """
    return next((length for length in _LENGTHS if _row_additions(length) <= most), most + 1)


@lru_cache(maxsize=len(_LENGTHS))
def _row_additions(length: int) -> int:
    """Return :func:`additions` of ``row_dots``; an address may decide which kernel begins a row."""
    return max(additions(_dots_at(start, length), length) for start in (0, 1))


def _dots_at(start: int, length: int) -> Callable[[np.ndarray], np.ndarray]:
    """``row_dots`` with ones, of rows that begin ``start`` elements behind an aligned address."""

    def dots(rows: np.ndarray) -> np.ndarray:
        room = np.empty(start + rows.size, np.float32)[start:].reshape(rows.shape)
        np.copyto(room, rows)
        return row_dots(room, _ones(length))

    return dots


def additions(add_rows: Callable[[np.ndarray], np.ndarray], length: int) -> int:
    """The most additions that any term goes through where ``add_rows`` adds up rows of ``length`` terms.

    Args:
        add_rows: maps float32 of shape (k, length) to the sums of the rows, (k,).
        length: terms in a row, less than 2**23.
    """

    def shared(first: int, others: NDArray[np.intp]) -> np.ndarray:
        """Count the terms of the smallest partial sums that hold ``first`` and each one of ``others``."""
        rows = np.ones((len(others), length), np.float32)
        rows[:, first] = _HUGE
        rows[np.arange(len(others)), others] = -_HUGE
        return length - add_rows(rows)

    def deepest(terms: NDArray[np.intp]) -> int:
        if len(terms) < 2:  # noqa: PLR2004 - one term is not added to anything
            return 0
        sizes = shared(int(terms[0]), terms[1:])
        found = 0
        for size in sorted(set(sizes.tolist())):
            found = max(found, deepest(terms[1:][sizes == size])) + 1
        return found

    return deepest(np.arange(length))


@lru_cache(maxsize=4)
def _ones(length: int) -> NDArray[np.float32]:
    ones = np.ones(length, np.float32)
    ones.flags.writeable = False
    return ones


@dataclass(slots=True)
class ScaledSum:
    """A sum whose terms may leave the range of float64: ``value * 2**exponent``.

    The exponent is the largest one that was added: what a smaller one loses is too small to count.
    """

    value: float | int = 0
    exponent: int = 0

    def add(self, value: float, exponent: int = 0) -> None:
        """Add ``value * 2**exponent``; integers stay exact as long as no exponent is given."""
        if not value:
            return
        if exponent == self.exponent:
            self.value += value
        elif not self.value:
            self.value, self.exponent = value, exponent
        elif exponent > self.exponent:
            self.value = math.ldexp(self.value, self.exponent - exponent) + value
            self.exponent = exponent
        else:
            self.value += math.ldexp(value, exponent - self.exponent)

    @property
    def root(self) -> float:
        """The square root of a sum of squares, whose exponent is even."""
        return math.sqrt(self.value) * 2.0 ** (self.exponent // 2)


@dataclass(slots=True)
class Totals:
    """Running totals.

    Attributes:
        count: elements seen.
        max, min: over the elements that are not NaN; None before the first.
        magnitude: the largest one of a finite element.
        sum: of all elements that are finite; an exact int for integers.
        squares: sum of the squares of the elements that are finite.
        nan, neg_inf, pos_inf, zero: numbers of such elements.
        ordered: whether the elements have an order; complex numbers have neither extremes nor avg.
    """

    count: int = 0
    max: float | int | None = None
    min: float | int | None = None
    magnitude: float | int = 0
    sum: ScaledSum = field(default_factory=ScaledSum)
    squares: ScaledSum = field(default_factory=ScaledSum)
    nan: int = 0
    neg_inf: int = 0
    pos_inf: int = 0
    zero: int = 0
    ordered: bool = True

    @property
    def special(self) -> int:
        """Number of elements that are NaN or infinite."""
        return self.nan + self.neg_inf + self.pos_inf

    def extend(self, low: float, high: float) -> None:
        """Take the extreme finite values of some more elements."""
        self.magnitude = max(self.magnitude, -low, high)
        self._widen(low, high)

    def _widen(self, low: float, high: float) -> None:
        if self.max is None or high > self.max:
            self.max = high
        if self.min is None or low < self.min:
            self.min = low

    def add_special(self, nan: int, neg_inf: int, pos_inf: int) -> None:
        """Take the numbers of NaN and infinities among some more elements; ``count`` has them already."""
        self.nan += nan
        self.neg_inf += neg_inf
        self.pos_inf += pos_inf
        if neg_inf and self.ordered:
            self._widen(-math.inf, -math.inf)
        if pos_inf and self.ordered:
            self._widen(math.inf, math.inf)

    def add_sums(self, total: float, squares: float, exponent: int = 0) -> None:
        """Add the sum of some more elements and of their squares, all times ``2**-exponent`` beforehand."""
        self.sum.add(total, exponent)
        self.squares.add(squares, 2 * exponent)

    def merge(self, other: Totals) -> None:
        """Add the totals of other elements of the tensor."""
        self.count += other.count
        self.zero += other.zero
        self.ordered = self.ordered and other.ordered
        self.add_special(other.nan, other.neg_inf, other.pos_inf)
        if other.max is not None and other.min is not None:
            self._widen(other.min, other.max)
        self.magnitude = max(self.magnitude, other.magnitude)
        self.sum.add(other.sum.value, other.sum.exponent)
        self.squares.add(other.squares.value, other.squares.exponent)

    def stats(self) -> Stats:
        """The statistics: IEEE's rules for avg and l2norm, extremes over all that is not NaN.

        A zero is never negative: which of two zeros numpy takes for the larger depends on the machine.
        """
        empty = None if not self.count or not self.ordered else math.nan
        avg: float | None = None
        if self.count and self.ordered:
            avg = self.sum.value / self.count * 2.0**self.sum.exponent + 0.0
            if self.nan or (self.pos_inf and self.neg_inf):
                avg = math.nan
            elif self.pos_inf or self.neg_inf:
                avg = math.inf if self.pos_inf else -math.inf
        infinite = math.inf if self.pos_inf or self.neg_inf else None
        return Stats(
            count=self.count,
            max=empty if self.max is None else self.max + 0,
            min=empty if self.min is None else self.min + 0,
            avg=avg,
            l2norm=math.nan if self.nan else infinite or self.squares.root,
            nan=self.nan,
            neg_inf=self.neg_inf if self.ordered else None,
            pos_inf=self.pos_inf if self.ordered else None,
            zero=self.zero,
        )


def row_counts(flags: np.ndarray) -> list[int]:
    """Count the set flags of each row of shape (k, n)."""
    rows = len(flags)
    total = int(np.count_nonzero(flags))
    if rows == 1 or total in {0, flags.size}:
        return [total // rows] * rows
    found: list[int] = np.add.reduce(flags, axis=1, dtype=np.intp).tolist()
    return found
