"""Rows, channels or other lines that hold each other's values, and values that are all there, in disorder."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from pytest_npudump.compare.patterns.change import Change, Explained
from pytest_npudump.compare.patterns.evidence import wide
from pytest_npudump.compare.patterns.moves import moved
from pytest_npudump.compare.patterns.place_words import noun

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from pytest_npudump.compare.patterns.evidence import Evidence, Tensors, Wide
    from pytest_npudump.compare.patterns.likely_places import Place

_CLOSE = 1e-9


def permuted_lines(evidence: Evidence, place: Place, layout: str) -> Iterator[Change]:
    """Lines along an axis that are the golden's lines of other indices, each once."""
    shape, tensors = evidence.tensors.shape, evidence.tensors
    if place.run is not None:
        return
    named = [axis for axis, _ in place.lines]
    for axis, length in enumerate(shape):
        if length < 2 or length == tensors.golden.size or (named and named != [axis]):  # noqa: PLR2004 - two lines
            continue
        origin = _origins(evidence, axis)
        if origin is None:
            continue
        inner = math.prod(shape[axis + 1 :])

        def source(
            flat: NDArray[np.intp], origin: NDArray[np.intp] = origin, inner: int = inner
        ) -> NDArray[np.intp]:
            along = flat // inner % origin.size
            return np.asarray(flat + (origin[along] - along) * inner)

        yield moved(evidence, _order_words(origin, noun(layout, shape, axis).several_lines), source)


def _order_words(origin: NDArray[np.intp], several_lines: str) -> str:
    changed = np.flatnonzero(origin != np.arange(origin.size))
    if changed.size == 2:  # noqa: PLR2004 - a pair
        return f"{several_lines} {changed[0]} and {changed[1]} have changed places"
    distances = np.unique((np.arange(origin.size) - origin) % origin.size)
    if distances.size == 1:
        by = int(distances[0])
        return f"{several_lines} shifted by {by} (or by {by - origin.size}), round the end"
    return f"{several_lines} in another order: {changed.size} are at the place of another"


def _origins(evidence: Evidence, axis: int) -> NDArray[np.intp] | None:
    """Return which line of the golden each line along ``axis`` is; None where that is no other order."""
    ours, theirs = (_marks(side, evidence.tensors.shape, axis) for side in _sides(evidence.tensors))
    order = np.argsort(ours, kind="stable")
    right = np.clip(np.searchsorted(ours, theirs, sorter=order), 1, ours.size - 1)
    nearer = np.abs(ours[order[right - 1]] - theirs) < np.abs(ours[order[right]] - theirs)
    origin = order[np.where(nearer, right - 1, right)]
    scale = float(np.abs(ours).max())
    unchanged = np.abs(ours - theirs) <= _CLOSE * scale
    origin = np.where(unchanged, np.arange(ours.size), origin)
    if (np.abs(ours[origin] - theirs) > _CLOSE * scale).any() or unchanged.all():
        return None
    return origin if np.unique(origin).size == origin.size else None


def _sides(tensors: Tensors) -> tuple[Wide, Wide]:
    return wide(tensors.golden), wide(tensors.actual)


def _marks(values: Wide, shape: tuple[int, ...], axis: int) -> Wide:
    """Return one number for each line: its elements under weights that are alike for all lines."""
    block = np.nan_to_num(values).reshape(math.prod(shape[:axis]), shape[axis], -1)
    rng = np.random.default_rng(axis)
    outer, inner = rng.normal(size=block.shape[0]), rng.normal(size=block.shape[2])
    return np.asarray(outer @ (block @ inner))


def shuffled(evidence: Evidence, place: Place) -> Iterator[Change]:
    """The golden's values of a place, each as often as there, in another order."""
    tensors = evidence.tensors
    inside = place.holds(np.arange(tensors.golden.size))
    golden, actual = (np.sort(side[inside]) for side in _sides(tensors))
    if np.array_equal(golden, actual):
        yield Shuffled()


@dataclass(frozen=True, slots=True)
class Shuffled:
    """Values that are all there; what is in question is only whether they make up the difference."""

    kind: str = "moved"
    words: str = "the same values in another order"

    def explain(self, tensors: Tensors, flat: NDArray[np.intp], golden: Wide, actual: Wide) -> Explained:
        """Explain all of it: the family has shown that no value is new."""
        del tensors, flat
        return Explained(np.zeros(golden.shape), np.ones(golden.shape, bool), golden != actual)
