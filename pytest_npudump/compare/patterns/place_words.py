"""Places in words."""

from __future__ import annotations

import math
import re
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple

from pytest_npudump.language.translation import mark

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pytest_npudump.compare.patterns.likely_places import Indices, Place

_NOUNS: Mapping[str, tuple[str, str]] = MappingProxyType(
    {
        "N": (mark("batch entry"), mark("batch entries")),
        "C": (mark("channel"), mark("channels")),
        "D": (mark("depth"), mark("depths")),
        "H": (mark("row"), mark("rows")),
        "W": (mark("column"), mark("columns")),
        "C1": (mark("block of channels"), mark("blocks of channels")),
        "C0": (mark("lane of the C0 blocks"), mark("lanes of the C0 blocks")),
    }
)
_TILES = (16, 32)
"""Elements of a side of a fractal and of a C0 block: 16 of 16-bit types, 32 of 8-bit ones."""
_MOST_CORES = 64
_ANY_AXES = "ND"
"""CANN's name of a layout of any axes, not one of the two axes N and D."""


class Noun(NamedTuple):
    """What lines along an axis are called.

    Attributes:
        one_line, several_lines: of them.
        axis: which one it is, where the noun does not tell.
    """

    one_line: str
    several_lines: str
    axis: int | None = None

    @property
    def lines_along(self) -> str:
        """Several of them, and along which axis."""
        several_lines, axis = self.several_lines, self.axis
        return several_lines if axis is None else f"{several_lines} along axis {axis}"

    def of(self, length: int) -> str:
        """Return how many there are in all, and along which axis."""
        return str(length) if self.axis is None else f"{length} along axis {self.axis}"


def noun(layout: str, shape: tuple[int, ...], axis: int) -> Noun:
    """Return what lines along an axis are called.

    Args:
        layout: CANN's name of it, such as ``NCHW``; one that does not name each axis says nothing.
        shape: of the tensor.
        axis: which one.
    """
    letters = re.findall(r"[A-Z]\d?", layout) if layout != _ANY_AXES else []
    if len(letters) == len(shape) and all(letter in _NOUNS for letter in letters):
        return Noun(*_NOUNS[letters[axis]])
    if len(shape) == 1:
        return Noun(mark("element"), mark("elements"))
    if axis >= len(shape) - 2:
        return Noun(*_NOUNS["HW"[axis - len(shape) + 2]])
    return Noun(mark("index"), mark("indices"), axis)


def place_words(place: Place, layout: str) -> str:
    """Return a place in words: ``the last 5 of 37 columns (tail of a 16-tile)``."""
    if place.everywhere:
        return "every element"
    if place.run is not None:
        return _run_words(place.run, place.shape)
    if place.count == 1:
        coordinates = dict(place.lines)
        at = [next(iter(coordinates.get(axis, (0,)))) for axis in range(len(place.shape))]
        return _one_element(at, place.shape)
    parts = [_lines_words(place, axis, indices, layout) for axis, indices in reversed(place.lines)]
    return f"{parts[0]} in {', '.join(parts[1:])}" if len(parts) > 1 else parts[0]


def _one_element(at: list[int], shape: tuple[int, ...]) -> str:
    return f"one element of {math.prod(shape)}, at {at}"


def _run_words(run: tuple[int, int], shape: tuple[int, ...]) -> str:
    start, stop = run
    total = math.prod(shape)
    if stop - start == 1:
        at: list[int] = []
        rest = start
        for length in shape[::-1]:
            rest, along = divmod(rest, length)
            at.insert(0, along)
        return _one_element(at, shape)
    number, begin, end = stop - start, start, stop - 1
    words = f"the last {number} of {total}" if stop == total else f"{begin} to {end} of {total}"
    part = _of_cores(words, range(start, stop), total)
    return f"elements in memory order: {part}"


def _lines_words(place: Place, axis: int, indices: Indices, layout: str) -> str:
    length, name = place.shape[axis], noun(layout, place.shape, axis)
    number, begin, end = len(indices), indices[0], indices[-1]
    if number == 1:
        return f"{name.one_line} {begin} of {name.of(length)}"
    if isinstance(indices, tuple) or number == 2:  # noqa: PLR2004 - a pair is named
        return f"{name.several_lines} {', '.join(map(str, indices[:-1]))} and {end} of {name.of(length)}"
    if indices.step > 1:
        return f"every {_ordinal(indices.step)} of {length} {name.lines_along}, {begin} to {end}"
    if indices.stop == length:
        words = f"the last {number} of {length} {name.lines_along}"
    elif begin == 0:
        words = f"the first {number} of {length} {name.lines_along}"
    else:
        words = f"{name.several_lines} {begin} to {end} of {name.of(length)}"
    return _of_tiles(words, indices, length)


def _of_tiles(words: str, indices: range, length: int) -> str:
    """Return a place in words, with how it lies in tiles or on cores where it does."""
    for tile in _TILES:
        if indices.start % tile == 0 and indices.stop == length and length % tile == len(indices):
            return f"{words} (tail of a {tile}-tile)"
    for tile in reversed(_TILES):
        if indices.start % tile == 0 and len(indices) == tile:
            return f"{words} (a whole {tile}-tile)"
    return _of_cores(words, indices, length)


def _of_cores(words: str, indices: range, length: int) -> str:
    parts, rest = divmod(length, len(indices))
    if indices.stop == length and not rest and 2 < parts <= _MOST_CORES:  # noqa: PLR2004 - halves say nothing
        return f"{words} (the last of {parts} equal parts, as of {parts} cores)"
    return words


def _ordinal(number: int) -> str:
    ending = {1: "st", 2: "nd", 3: "rd"}.get(number % 10 if number % 100 not in (11, 12, 13) else 0, "th")
    return f"{number}{ending}"
