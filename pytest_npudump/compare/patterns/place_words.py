"""Places in words."""

from __future__ import annotations

import math
import re
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pytest_npudump.compare.patterns.likely_places import Indices, Place

_NOUNS: Mapping[str, tuple[str, str]] = MappingProxyType(
    {
        "N": ("batch entry", "batch entries"),
        "C": ("channel", "channels"),
        "D": ("depth", "depths"),
        "H": ("row", "rows"),
        "W": ("column", "columns"),
        "C1": ("block of channels", "blocks of channels"),
        "C0": ("lane of the C0 blocks", "lanes of the C0 blocks"),
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
        one, several: of them.
        along: which axis it is, where the noun does not tell.
    """

    one: str
    several: str
    along: str = ""


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
        return Noun("element", "elements")
    if axis >= len(shape) - 2:
        return Noun(*_NOUNS["HW"[axis - len(shape) + 2]])
    return Noun("index", "indices", f" along axis {axis}")


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
    size = math.prod(shape)
    if stop - start == 1:
        at: list[int] = []
        rest = start
        for length in shape[::-1]:
            rest, along = divmod(rest, length)
            at.insert(0, along)
        return _one_element(at, shape)
    words = f"the last {stop - start} of {size}" if stop == size else f"{start} to {stop - 1} of {size}"
    return f"elements in memory order: {words}{_share_of_core(range(start, stop), size)}"


def _lines_words(place: Place, axis: int, indices: Indices, layout: str) -> str:
    length, name = place.shape[axis], noun(layout, place.shape, axis)
    number, first, last = len(indices), indices[0], indices[-1]
    of = f" of {length}{name.along}"
    if number == 1:
        return f"{name.one} {first}{of}"
    if isinstance(indices, tuple) or number == 2:  # noqa: PLR2004 - a pair is named
        return f"{name.several} {', '.join(map(str, indices[:-1]))} and {last}{of}"
    if indices.step > 1:
        return f"every {_ordinal(indices.step)} of {length} {name.several}{name.along}, {first} to {last}"
    if indices.stop == length:
        words = f"the last {number} of {length} {name.several}{name.along}"
    elif first == 0:
        words = f"the first {number} of {length} {name.several}{name.along}"
    else:
        words = f"{name.several} {first} to {last}{of}"
    return f"{words}{_tile(indices, length) or _share_of_core(indices, length)}"


def _tile(indices: range, length: int) -> str:
    for tile in _TILES:
        if indices.start % tile == 0 and indices.stop == length and length % tile == len(indices):
            return f" (tail of a {tile}-tile)"
    for tile in reversed(_TILES):
        if indices.start % tile == 0 and len(indices) == tile:
            return f" (a whole {tile}-tile)"
    return ""


def _share_of_core(indices: range, length: int) -> str:
    parts, rest = divmod(length, len(indices))
    if indices.stop == length and not rest and 2 < parts <= _MOST_CORES:  # noqa: PLR2004 - halves say nothing
        return f" (the last of {parts} equal parts, as of {parts} cores)"
    return ""


def _ordinal(number: int) -> str:
    ending = {1: "st", 2: "nd", 3: "rd"}.get(number % 10 if number % 100 not in (11, 12, 13) else 0, "th")
    return f"{number}{ending}"
