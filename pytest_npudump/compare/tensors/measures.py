"""What a comparison of elements adds up."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from pytest_npudump.dump.stats.totals import ScaledSum

if TYPE_CHECKING:
    from pytest_npudump.dump.stats.totals import Totals

ULP_TYPES = frozenset(
    {"float16", "float32", "float64", "bfloat16", "float8_e5m2", "float8_e4m3fn", "float8_e8m0fnu"}
)
"""Types whose codes, with the sign taken as such, are in the order of their values."""


@dataclass(slots=True)
class Measures:
    """Running measures of pairs of elements; ``magnitude`` is the largest of a golden one that is finite.

    The sums are over the pairs of finite elements, ``relative_sum`` over those whose golden is not 0.
    """

    magnitude: float = 0.0
    max_abs: float | int = 0
    max_rel: float = 0.0
    relative_sum: float = 0.0
    relative_count: int = 0
    golden_squares: ScaledSum = field(default_factory=ScaledSum)
    actual_squares: ScaledSum = field(default_factory=ScaledSum)
    product: ScaledSum = field(default_factory=ScaledSum)
    difference_squares: ScaledSum = field(default_factory=ScaledSum)
    outside: int = 0
    max_ulp: int = 0
    ulp_sum: float = 0.0
    ulp_count: int = 0
    special: int = 0
    special_different: int = 0
    nan_golden: int = 0
    nan_actual: int = 0
    inf_golden: int = 0
    inf_actual: int = 0

    def take_ulp(self, highest: int, total: float, count: int) -> None:
        """Take the ULP distances of some more pairs."""
        self.max_ulp = max(self.max_ulp, highest)
        self.ulp_sum += total
        self.ulp_count += count

    def take_special(self, golden: tuple[int, int], actual: tuple[int, int], pairs: int, differ: int) -> None:
        """Take how many NaN and infinities each side has in some more pairs, and how many pairs have one.

        Those that ``differ`` are outside of any tolerance.
        """
        self.nan_golden += golden[0]
        self.inf_golden += golden[1]
        self.nan_actual += actual[0]
        self.inf_actual += actual[1]
        self.special += pairs
        self.special_different += differ
        self.outside += differ

    def take_equal(self, totals: Totals) -> None:
        """Take elements that are the same on both sides, whose statistics are ``totals``."""
        counts = totals.nan, totals.neg_inf + totals.pos_inf
        self.take_special(counts, counts, totals.special, 0)
        self.magnitude = max(self.magnitude, float(totals.magnitude))
        for squares in (self.golden_squares, self.actual_squares, self.product):
            squares.add(totals.squares.value, totals.squares.exponent)
        self.relative_count += totals.count - totals.zero - totals.special
        self.take_ulp(0, 0.0, totals.count - totals.special)

    def cosine(self) -> float:
        """Of the two as vectors; 1 for two zero vectors, 0 if only one is zero."""
        golden, actual = self.golden_squares, self.actual_squares
        if not golden.value > 0 or not actual.value > 0:
            return 1.0 if not golden.value and not actual.value else 0.0
        mantissa = self.product.value / math.sqrt(golden.value) / math.sqrt(actual.value)
        found = math.ldexp(mantissa, self.product.exponent - (golden.exponent + actual.exponent) // 2)
        return max(-1.0, min(1.0, found))

    def relative_l2(self) -> float:
        """Norm of actual - golden over that of golden; inf if only the latter is 0."""
        golden, apart = self.golden_squares, self.difference_squares
        if not golden.value:
            return math.inf if apart.value else 0.0
        found = math.sqrt(apart.value) / math.sqrt(golden.value)
        try:
            return math.ldexp(found, (apart.exponent - golden.exponent) // 2)
        except OverflowError:
            return math.inf
