"""What the statistics of one tensor add up to while its chunks are read."""

from __future__ import annotations

import math
from dataclasses import dataclass

from pytest_npudump.dump.records import Stats


@dataclass(slots=True)
class Totals:
    """Running totals.

    Attributes:
        count: elements seen.
        max, min: over the elements that are not NaN; None before the first.
        sum: of all elements that are finite; an exact int for integers.
        squares: sum of the squares of the elements that are finite, times ``scale`` squared.
        scale: power of two that elements were multiplied by before they were added or squared.
        nan, neg_inf, pos_inf, zero: numbers of such elements.
        ordered: whether the elements have an order; complex numbers have neither extremes nor avg.
    """

    count: int = 0
    max: float | int | None = None
    min: float | int | None = None
    sum: float | int = 0
    squares: float = 0.0
    scale: float = 1.0
    nan: int = 0
    neg_inf: int = 0
    pos_inf: int = 0
    zero: int = 0
    ordered: bool = True

    def extend(self, low: float, high: float) -> None:
        """Take the extreme values of some more elements, none of them NaN."""
        if self.max is None or high > self.max:
            self.max = high
        if self.min is None or low < self.min:
            self.min = low

    def stats(self) -> Stats:
        """The statistics: IEEE's rules for avg and l2norm, extremes over all that is not NaN.

        A zero is never negative: which of two zeros numpy takes for the larger depends on the machine.
        """
        empty = None if not self.count or not self.ordered else math.nan
        return Stats(
            count=self.count,
            max=empty if self.max is None else self.max + 0,
            min=empty if self.min is None else self.min + 0,
            avg=self._avg() if self.count and self.ordered else None,
            l2norm=self._l2norm(),
            nan=self.nan,
            neg_inf=self.neg_inf if self.ordered else None,
            pos_inf=self.pos_inf if self.ordered else None,
            zero=self.zero,
        )

    def _avg(self) -> float:
        if self.nan or (self.pos_inf and self.neg_inf):
            return math.nan
        if self.pos_inf or self.neg_inf:
            return math.inf if self.pos_inf else -math.inf
        return self.sum / self.count / self.scale + 0.0

    def _l2norm(self) -> float:
        if self.nan:
            return math.nan
        if self.pos_inf or self.neg_inf:
            return math.inf
        return math.sqrt(self.squares) / self.scale
