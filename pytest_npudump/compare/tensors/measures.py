"""Running results of a comparison of elements: measures, and the elements farthest apart."""

from __future__ import annotations

import math
from dataclasses import dataclass as mutable
from dataclasses import field
from typing import TYPE_CHECKING, Any

from pytest_npudump.dump.stats.sums import ScaledSum

if TYPE_CHECKING:
    from collections.abc import Iterable
    from dataclasses import dataclass

    import numpy as np

    from pytest_npudump.dump.stats.sums import Totals
else:
    from pytest_npudump.dump.unguarded import dataclass


@mutable(slots=True)
class Measures:
    """Running measures of the pairs of one tensor; ``magnitude`` is the largest of a golden one.

    A pair with NaN or an infinity on either side is special; all but the counts of those is over the other
    pairs, and ``relative_sum`` over those whose golden is not 0.
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
    special: int = 0
    special_different: int = 0
    nan_golden: int = 0
    nan_actual: int = 0
    inf_golden: int = 0
    inf_actual: int = 0

    @property
    def sums(self) -> tuple[ScaledSum, ScaledSum, ScaledSum, ScaledSum]:
        """Squares of both sides, their product, and squares of the difference."""
        return self.golden_squares, self.actual_squares, self.product, self.difference_squares

    def take_special(self, golden: tuple[int, int], actual: tuple[int, int], pairs: int, differ: int) -> None:
        """Take the numbers of NaN and infinities on each side of some pairs, and of pairs that have one.

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
        """Take real elements that are the same on both sides, whose statistics are ``totals``."""
        counts = totals.nan, totals.neg_inf + totals.pos_inf
        self.take_special(counts, counts, totals.special, 0)
        self.magnitude = max(self.magnitude, float(totals.magnitude))
        for squares in (self.golden_squares, self.actual_squares, self.product):
            squares.add(totals.squares.value, totals.squares.exponent)
        self.relative_count += totals.count - totals.zero - totals.special

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


@dataclass(frozen=True, slots=True)
class WorstElement:
    """One element.

    Attributes:
        index: its coordinates.
        golden, actual: the two values.
        abs: their distance; NaN where one is NaN, inf where one is infinite.
        rel: the distance over |golden|; inf where golden is 0, NaN where the distance is.
    """

    index: tuple[int, ...]
    golden: float | int | complex
    actual: float | int | complex
    abs: float | int
    rel: float

    def to_json(self) -> dict[str, Any]:
        """A dictionary of plain values; NaN, infinities and complex numbers as text."""
        values = {"golden": self.golden, "actual": self.actual, "abs": self.abs, "rel": self.rel}
        return {
            "index": list(self.index),
            **{
                name: str(value) if isinstance(value, complex) or not math.isfinite(value) else value
                for name, value in values.items()
            },
        }


class Worst:
    """The ``limit`` elements farthest apart; different special pairs come first, then lower indices.

    Attributes:
        limit: how many are kept.
        shape: of the tensor.
        first_special: index of the first different special pair; None where there is none.
    """

    def __init__(self, limit: int, shape: tuple[int, ...]) -> None:
        self.first_special: int | None = None
        self.limit = limit
        self.shape = shape
        self._special: list[tuple[int, Any, Any]] = []
        self._finite: list[tuple[float | int, int, Any, Any]] = []

    @property
    def threshold(self) -> float | int:
        """Distances up to this one change nothing."""
        return self._finite[-1][0] if len(self._finite) >= self.limit else 0

    def insert(self, rows: Iterable[tuple[float | int, int, Any, Any]]) -> None:
        """Take elements as (distance, index, golden value, actual value); no distance is 0."""
        self._finite += rows
        self._finite.sort(key=lambda item: (-item[0], item[1]))
        del self._finite[self.limit :]

    def take_special(self, places: np.ndarray, golden: np.ndarray, actual: np.ndarray) -> None:
        """Take different special pairs, given by their indices in the tensor, ascending, and their values."""
        if self.first_special is None and places.size:
            self.first_special = int(places[0])
        room = self.limit - len(self._special)
        self._special += list(zip(places.tolist(), golden.tolist(), actual.tolist(), strict=True))[:room]

    @property
    def wants_special(self) -> bool:
        """Whether another different special pair changes anything."""
        return self.first_special is None or len(self._special) < self.limit

    def index(self, flat: int) -> tuple[int, ...]:
        """Coordinates of an element."""
        found: tuple[int, ...] = ()
        for length in self.shape[:0:-1]:
            flat, place = divmod(flat, length)
            found = (place, *found)
        return (flat, *found) if self.shape else ()

    def elements(self) -> tuple[WorstElement, ...]:
        """The list, worst first."""
        special = [
            (place, g, a, math.nan if g != g or a != a else math.inf, math.nan)  # noqa: PLR0124 - only NaN differs from itself
            for place, g, a in self._special
        ]
        finite = [(place, g, a, d, d / _size(g) if g else math.inf) for d, place, g, a in self._finite]
        found = (special + finite)[: self.limit]
        return tuple(WorstElement(self.index(place), *rest) for place, *rest in found)


def _size(value: Any) -> float | int:
    """The magnitude; of a complex number, where ``abs`` would raise an error, infinite."""
    return math.hypot(value.real, value.imag) if isinstance(value, complex) else abs(value)
