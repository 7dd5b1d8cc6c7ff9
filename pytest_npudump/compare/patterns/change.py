"""What may have become of elements, and how far that explains what is there."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple, Protocol

import numpy as np

from pytest_npudump.compare.patterns.evidence import same

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from pytest_npudump.compare.patterns.evidence import Tensors, Wide

LEAST = 0.9
"""Share of a difference that a claim has to explain, in elements and in the sum of squares."""

_LEFT = math.sqrt(1 - LEAST)


class Explained(NamedTuple):
    """What a change makes of elements of its place.

    Attributes:
        left: what it leaves of the difference of each.
        hit: which of them it explains.
        claimed: which of them it says have changed.
    """

    left: Wide
    hit: NDArray[np.bool_]
    claimed: NDArray[np.bool_]


class Change(Protocol):
    """What may have become of the elements of a place."""

    @property
    def kind(self) -> str:
        """As :attr:`Pattern.kind` has it."""

    @property
    def words(self) -> str:
        """As :attr:`Pattern.what` has it."""

    def explain(self, tensors: Tensors, flat: NDArray[np.intp], golden: Wide, actual: Wide) -> Explained:
        """Say what it explains of elements given by their flat indices and the values of both sides."""


@dataclass(frozen=True, slots=True, eq=False)
class Predicted:
    """A change that tells the value of each element.

    Attributes:
        kind, words: as of :class:`Change`.
        predict: flat indices and golden values to the values that should be there; NaN where it cannot tell.
    """

    kind: str
    words: str
    predict: Callable[[NDArray[np.intp], Wide], Wide]

    def explain(self, tensors: Tensors, flat: NDArray[np.intp], golden: Wide, actual: Wide) -> Explained:
        """Hold every prediction against what is there."""
        predicted = self.predict(flat, golden)
        left = actual - predicted
        size = np.minimum(np.abs(actual - golden), np.abs(predicted - golden))
        hit = same(actual, predicted) | (np.abs(left) <= _LEFT * size)
        left = np.where(np.isfinite(left), left, actual - golden)
        return Explained(left, hit, tensors.fails(golden, predicted))


@dataclass(frozen=True, slots=True)
class Anything:
    """Elements that differ, whatever they are."""

    kind: str = "place"
    words: str = "other values"

    def explain(self, tensors: Tensors, flat: NDArray[np.intp], golden: Wide, actual: Wide) -> Explained:
        """Explain whatever differs; an element that is 0 on both sides says nothing."""
        del flat
        apart = tensors.apart(golden, actual)
        return Explained(np.where(apart, 0.0, actual - golden), apart, (golden != 0) | (actual != 0))
