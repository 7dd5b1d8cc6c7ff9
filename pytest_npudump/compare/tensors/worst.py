"""The elements that are farthest apart, kept while chunks go by."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from dataclasses import dataclass
else:
    from pytest_npudump.dump.unguarded import dataclass

_ROWS = 128
_SMALL = 2048
"""Elements up to which sorting them all is quicker."""


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

    def add(self, distance: np.ndarray, golden: np.ndarray, actual: np.ndarray, offset: int) -> None:
        """Take a chunk whose element 0 is element ``offset`` of the tensor; no distance is NaN."""
        places = self.candidates(distance)
        self.take(places, distance[places], golden[places], actual[places], offset)

    def take(
        self, places: np.ndarray, distance: np.ndarray, golden: np.ndarray, actual: np.ndarray, offset: int
    ) -> None:
        """Take the elements at ``places`` of a chunk; distances and values are of shape (len(places),)."""
        if not len(places):
            return
        rows = zip(
            distance.tolist(), (places + offset).tolist(), _values(golden), _values(actual), strict=True
        )
        self.insert(rows)

    def insert(self, rows: Iterable[tuple[float | int, int, Any, Any]]) -> None:
        """Take elements as (distance, index, golden value, actual value); no distance is 0."""
        self._finite += rows
        self._finite.sort(key=lambda item: (-item[0], item[1]))
        del self._finite[self.limit :]

    def add_special(self, places: np.ndarray, golden: np.ndarray, actual: np.ndarray, offset: int) -> None:
        """Take the different special pairs at ``places`` of a chunk."""
        places = places[: self.limit]
        self.take_special(places, golden[places], actual[places], offset)

    def take_special(self, places: np.ndarray, golden: np.ndarray, actual: np.ndarray, offset: int) -> None:
        """Take such pairs as :meth:`take` does the others."""
        found = (places + offset).tolist()
        if self.first_special is None and found:
            self.first_special = found[0]
        room = self.limit - len(self._special)
        self._special += list(zip(found, _values(golden), _values(actual), strict=True))[:room]

    @property
    def wants_special(self) -> bool:
        """Whether another different special pair changes anything."""
        return self.first_special is None or len(self._special) < self.limit

    def candidates(self, distance: np.ndarray) -> np.ndarray:
        """Places of at most ``limit`` elements, among which are all that belong in the list."""
        if not self.limit:
            return np.empty(0, np.intp)
        if distance.size <= _SMALL:
            places = np.argsort(-distance.astype(np.float64), kind="stable")[: self.limit]
            return places[distance[places] > self.threshold]
        threshold = max(self.threshold, _lower_bound(distance, self.limit))
        above = np.flatnonzero(distance > threshold)
        if threshold > self.threshold:
            equal = np.flatnonzero(distance == threshold)[: self.limit]
            above = np.concatenate([above, equal])
        if len(above) > self.limit:
            order = np.lexsort((above, -distance[above].astype(np.float64)))
            above = above[order[: self.limit]]
        return above

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


def _lower_bound(distance: np.ndarray, limit: int) -> Any:
    """A value that at least ``limit`` elements reach: the maxima of columns tell, at the cost of one pass."""
    columns = len(distance) // _ROWS
    if columns <= limit:
        return 0
    highest = np.maximum.reduce(distance[: _ROWS * columns].reshape(_ROWS, columns), axis=0)
    return np.partition(highest, columns - limit)[columns - limit]


def _values(picked: np.ndarray) -> Sequence[Any]:
    if picked.dtype.kind not in "biufc":
        picked = picked.astype(np.float64)
    values: list[Any] = picked.tolist()
    return values
