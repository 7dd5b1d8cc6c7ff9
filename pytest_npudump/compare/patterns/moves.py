"""Elements that hold the golden's values of other places: shifted in memory, or axes in another order."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

import numpy as np

from pytest_npudump.compare.patterns.change import LEAST, Change, Predicted
from pytest_npudump.compare.patterns.evidence import wide

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from numpy.typing import NDArray

    from pytest_npudump.compare.patterns.evidence import Evidence, Wide
    from pytest_npudump.compare.patterns.likely_places import Place

    Source = Callable[[NDArray[np.intp]], NDArray[np.intp]]

LARGEST = 1 << 22
"""Elements of the largest tensor in which moved values are looked for: that takes sorting it in float64."""
FEWEST = 8
"""Different values that elements must have for it to mean anything that other elements have the same."""

_LOOKED_UP = 64
_MOST_AXES = 5


def recur(evidence: Evidence) -> bool:
    """Whether values of the failing elements are the golden's, to the bit, so that they may have moved."""
    if evidence.tensors.golden.size > LARGEST or np.unique(evidence.actual).size < FEWEST:
        return False
    some = evidence.actual[:: max(evidence.actual.size // _LOOKED_UP, 1)]
    found = np.isnan(some)
    for _, golden, _ in evidence.tensors.chunks():
        found |= np.isin(some, golden)
    return bool(found.mean() >= LEAST)


def moves(evidence: Evidence, place: Place) -> Iterator[Change]:
    """A shift in memory, then each other order of the axes."""
    yield from _shifts(evidence, place, place.holds(evidence.at))
    if place.everywhere:
        yield from _transpositions(evidence)


def moved(evidence: Evidence, words: str, source: Source) -> Change:
    """Return the change that elements hold the golden's at ``source``, -1 where that is no element."""
    golden = evidence.tensors.golden

    def predict(flat: NDArray[np.intp], _: Wide) -> Wide:
        found = source(flat)
        return np.where(found < 0, np.nan, wide(golden[np.maximum(found, 0)]))

    return Predicted("moved", words, predict)


def _shifts(evidence: Evidence, place: Place, inside: NDArray[np.bool_]) -> Iterator[Change]:
    """The distance at which most of some values are found in the golden: the rarest are looked for."""
    distance = _common_distance(evidence, inside)
    if not distance:
        return
    start, stop = place.run or (0, evidence.tensors.golden.size)
    size = stop - start
    number = abs(distance)
    shifted = f"shifted by {number} elements in memory" if number > 1 else "shifted by 1 element in memory"
    words = f"{shifted}, {'towards the end' if distance > 0 else 'towards the beginning'}"

    def wrapped(flat: NDArray[np.intp]) -> NDArray[np.intp]:
        return np.asarray((flat - start - distance) % size + start)

    yield moved(evidence, words, wrapped)


def _common_distance(evidence: Evidence, inside: NDArray[np.bool_]) -> int:
    """Return how far behind their places in the golden values are found, 0 where they do not agree on it."""
    at, values = evidence.at[inside], evidence.actual[inside]
    unique, first, counts = np.unique(values, return_index=True, return_counts=True)
    usable = np.isfinite(unique) & (unique != 0)
    rare = np.flatnonzero(usable)[np.argsort(counts[usable], kind="stable")][:_LOOKED_UP]
    golden = wide(evidence.tensors.golden)
    order = np.argsort(golden, kind="stable")
    found = []
    for value, place in zip(unique[rare], at[first[rare]], strict=True):
        low = int(np.searchsorted(golden, value, sorter=order, side="left"))
        high = int(np.searchsorted(golden, value, sorter=order, side="right"))
        if high - low == 1:
            found.append(int(place - order[low]))
    if not found:
        return 0
    distances, counts = np.unique(found, return_counts=True)
    best = int(counts.argmax())
    return int(distances[best]) if counts[best] * 2 > len(found) else 0


def _transpositions(evidence: Evidence) -> Iterator[Change]:
    shape = evidence.tensors.shape
    axes = [axis for axis, length in enumerate(shape) if length > 1]
    if not 2 <= len(axes) <= _MOST_AXES:  # noqa: PLR2004 - axes that can change places
        return
    lengths = tuple(shape[axis] for axis in axes)
    for order in itertools.permutations(range(len(axes))):
        if list(order) == sorted(order):
            continue
        words = f"the values with axes in the order {[axes[axis] for axis in order]}"
        yield moved(evidence, words, _transposed(lengths, order))


def _transposed(lengths: tuple[int, ...], order: tuple[int, ...]) -> Source:
    turned = tuple(lengths[axis] for axis in order)

    def source(flat: NDArray[np.intp]) -> NDArray[np.intp]:
        coordinates = np.unravel_index(flat, turned)
        back = [coordinates[order.index(axis)] for axis in range(len(order))]
        return np.asarray(np.ravel_multi_index(tuple(back), lengths))

    return source
