"""The elements that are farthest apart, kept while chunks go by."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable
    from dataclasses import dataclass

    import numpy as np
else:
    from pytest_npudump.dump.unguarded import dataclass


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
