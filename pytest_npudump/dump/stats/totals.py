"""What the statistics of one tensor, or of many small ones of one size, add up to."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np

from pytest_npudump.dump.records import Stats
from pytest_npudump.dump.stats.sums import row_dots


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
        """How many elements are NaN or infinite."""
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
        """Add those of other elements of the tensor."""
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


def row_totals(values: np.ndarray, *, whole: bool) -> list[Totals]:
    """What each row of float64 of shape (k, n), n > 0, adds up to, none of whose squares leaves the range.

    Args:
        values: the elements.
        whole: they are integers, and so are their extremes and sums.
    """
    count = values.shape[1]
    squares = row_dots(values, values)
    zeros = [count - found for found in row_counts(values != 0)]
    special = None
    if not np.isfinite(squares).all():
        finite = np.isfinite(values)
        special = (row_counts(np.isnan(values)), row_counts(values == -np.inf), row_counts(values == np.inf))
        extremes = (
            np.minimum.reduce(np.where(finite, values, np.inf), axis=1),
            np.maximum.reduce(np.where(finite, values, -np.inf), axis=1),
        )
        values = np.where(finite, values, 0.0)
        squares = row_dots(values, values)
    else:
        extremes = np.minimum.reduce(values, axis=1), np.maximum.reduce(values, axis=1)
    columns = (*extremes, np.add.reduce(values, axis=1))
    low, high, sums = (column.astype(np.int64).tolist() if whole else column.tolist() for column in columns)
    found = []
    for row, (least, most, total, square, zero) in enumerate(
        zip(low, high, sums, squares.tolist(), zeros, strict=True)
    ):
        magnitude = max(-least, most)
        if special is None or least <= most:
            totals = Totals(count, most, least, magnitude, ScaledSum(total), ScaledSum(square), zero=zero)
        else:
            totals = Totals(count)
        if special is not None:
            totals.add_special(*(side[row] for side in special))
        found.append(totals)
    return found


def row_counts(flags: np.ndarray) -> list[int]:
    """How many flags of each row of shape (k, n) are set."""
    rows = len(flags)
    total = int(np.count_nonzero(flags))
    if rows == 1 or total in {0, flags.size}:
        return [total // rows] * rows
    found: list[int] = np.add.reduce(flags, axis=1, dtype=np.intp).tolist()
    return found
