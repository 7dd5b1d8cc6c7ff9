"""Places in words."""

from __future__ import annotations

import math
import re
from types import MappingProxyType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pytest_npudump.compare.patterns.places import Indices, Place

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


def noun(layout: str, shape: tuple[int, ...], axis: int) -> tuple[str, str]:
    """Return what a line along an axis is called, one and several of them.

    Args:
        layout: CANN's name of it, such as ``NCHW``; one that does not name each axis says nothing.
        shape: of the tensor.
        axis: which one.
    """
    letters = re.findall(r"[A-Z]\d?", layout)
    if len(letters) == len(shape) and all(letter in _NOUNS for letter in letters):
        return _NOUNS[letters[axis]]
    if len(shape) == 1:
        return "element", "elements"
    if axis >= len(shape) - 2:
        return _NOUNS["HW"[axis - len(shape) + 2]]
    return f"index of axis {axis}", f"indices of axis {axis}"


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
    return " of ".join(parts)


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
    length = place.shape[axis]
    one, several = noun(layout, place.shape, axis)
    several = f"{several} of {length}"
    if len(indices) == 1:
        return f"{one} {indices[0]} of {length}"
    if isinstance(indices, tuple):
        listed = ", ".join(map(str, indices[:-1]))
        return f"{several.replace(' of ', f' {listed} and {indices[-1]} of ', 1)}"
    if indices.step > 1:
        return f"every {_ordinal(indices.step)} of {length} {noun(layout, place.shape, axis)[1]}, {indices[0]} to {indices[-1]}"  # noqa: E501
    number, plural = len(indices), noun(layout, place.shape, axis)[1]
    if indices.stop == length:
        words = f"the last {number} of {length} {plural}"
    elif indices.start == 0:
        words = f"the first {number} of {length} {plural}"
    else:
        words = f"{plural} {indices.start} to {indices.stop - 1} of {length}"
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
