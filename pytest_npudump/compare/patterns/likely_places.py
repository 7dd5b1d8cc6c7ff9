"""Survey of two tensors' differing elements, likely places of them, and the places' names.

A place is some lines along axes, a run of memory, or everything.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, field
from functools import lru_cache
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from pytest_npudump.compare.tensors.kernel import is_finite, widened
from pytest_npudump.dump.filebytes import release
from pytest_npudump.dump.stats.sums import block_dot
from pytest_npudump.errors import said
from pytest_npudump.language import mark

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from numpy.typing import NDArray

    Wide = NDArray[np.float64]
    Indices = range | tuple[int, ...]

CHUNK = 1 << 16
"""Elements looked at at a time: the arrays of a step stay in a processor's cache."""
_HELD, _PARTS = 8 << 20, 64
"""Bytes of a mapped tensor that is held in memory as a whole, and parts in which a larger one is sampled."""
SAMPLE = 1 << 15
"""Failing elements that are kept, at least, where there are as many; twice as many at most."""
LISTED = 8
"""Lines that are named one by one, at most."""
_RUN = 1.25
"""Lines come before a run of memory that is smaller by less: at their ends elements pass by accident."""

_SERIES = 2

_SURPRISE = 16.0
"""Bits: of elements that fail at random, fewer than one set in 65,536 lies in a place that is claimed."""
_STRAY = 8
"""A line with fewer than this part of the failing elements of another line has them by accident."""
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
_ANY_AXES = "ND"
"""CANN's name of a layout of any axes, not one of the two axes N and D."""


@dataclass(frozen=True, slots=True, eq=False)
class Tensors:
    """Two tensors of one shape.

    An element fails where it is farther off than ``threshold``, which is how far the tensor's extremes may
    be; where none is (a permutation of small elements fails by the l2norm alone), where it is farther off
    than ``atol + rtol * |golden|``; and where only one side is NaN, or infinite.

    Attributes:
        golden, actual: their elements in C order, of shape (n,), each of a type that float64 holds.
        shape: of both.
        rtol, atol: what a single element may be off.
        threshold: None where single elements are judged by themselves.
        noise: relative error of elements that only changed places; 0 where they keep each bit.
    """

    golden: NDArray[Any]
    actual: NDArray[Any]
    shape: tuple[int, ...]
    rtol: float
    atol: float
    threshold: float | None
    noise: float = 0.0

    def pieces(self) -> Iterator[slice]:
        """Yield pieces to read at a time; pages of large mapped files are not held in memory."""
        step = _HELD // (CHUNK * self.golden.itemsize)
        for number, start in enumerate(range(0, self.golden.size, CHUNK)):
            if number % step == 0:
                self._release()
            yield slice(start, min(start + CHUNK, self.golden.size))
        self._release()

    def _release(self) -> None:
        if self.golden.nbytes > _HELD:
            release(self.golden)
            release(self.actual)

    def taken(self, at: NDArray[np.intp]) -> tuple[Wide, Wide]:
        """Return both sides' values at ascending flat indices."""
        found = []
        for part in np.array_split(at, _PARTS if self.golden.nbytes > _HELD else 1):
            found.append((wide(self.golden[part]), wide(self.actual[part])))
            self._release()
        golden, actual = map(np.concatenate, zip(*found, strict=True))
        return golden, actual

    def fails(self, golden: Wide, actual: Wide) -> NDArray[np.bool_]:
        """Return a mask of the failing elements."""
        if self.threshold is None:
            return self.apart(golden, actual)
        return _beyond(golden, actual, self.threshold)

    def apart(self, golden: Wide, actual: Wide) -> NDArray[np.bool_]:
        """Return a mask of the elements that are farther off than a single element may be."""
        return _beyond(golden, actual, self.atol + self.rtol * np.abs(golden))


def _beyond(golden: Wide, actual: Wide, bound: Wide | float) -> NDArray[np.bool_]:
    distance = actual - golden
    np.abs(distance, out=distance)
    far: NDArray[np.bool_] = distance > bound
    if math.isfinite(distance.max(initial=0.0)):
        return far
    if np.isfinite(golden).all():
        return far | ~np.isfinite(distance)
    return np.where(np.isfinite(golden) & np.isfinite(actual), far, ~same(golden, actual))


@dataclass(frozen=True, slots=True, eq=False)
class PlaceEvidence:
    """The survey of two tensors.

    Attributes:
        tensors: which ones.
        failing: number of elements that fail.
        run: first and last flat index of failing elements.
        at: flat indices of failing elements, ascending: all, or an even sample.
        golden, actual: their values.
    """

    tensors: Tensors
    failing: int
    run: tuple[int, int]
    at: NDArray[np.intp]
    golden: Wide
    actual: Wide
    _inside: dict[LikelyPlace, NDArray[np.intp]] = field(default_factory=dict)

    def inside(self, place: LikelyPlace) -> NDArray[np.intp]:
        """Return which of them are in a place."""
        if place not in self._inside:
            self._inside[place] = np.flatnonzero(place.holds(self.at))
        return self._inside[place]


def survey(tensors: Tensors) -> PlaceEvidence:
    """Look at every element once: time is linear, memory a chunk and :data:`SAMPLE` elements."""
    failing, step = 0, 1
    first, last = -1, -1
    kept: list[NDArray[np.intp]] = []
    number = 0
    for piece in tensors.pieces():
        sides = wide(tensors.golden[piece]), wide(tensors.actual[piece])
        places, start = np.flatnonzero(tensors.fails(*sides)), piece.start
        if not places.size:
            continue
        first, last = start + int(places[0]) if first < 0 else first, start + int(places[-1])
        kept.append(places[-failing % step :: step] + start)
        failing += places.size
        number += kept[-1].size
        while number > 2 * SAMPLE:
            kept = [np.concatenate(kept)[::2]]
            number = kept[0].size
            step *= 2
    at = np.concatenate(kept) if kept else np.empty(0, np.intp)
    return PlaceEvidence(tensors, failing, (first, last), at, *tensors.taken(at))


def squares(difference: Wide) -> float:
    """Return the sum of the squares of the finite ones among ``difference``."""
    found = block_dot(difference, difference)
    if math.isfinite(found):
        return found
    finite = difference[np.isfinite(difference)]
    return block_dot(finite, finite)


def same(one: Wide, other: Wide) -> NDArray[np.bool_]:
    """Return a mask of equal elements; NaN equals NaN."""
    found = np.asarray(one == other)
    return found if found.all() else found | (np.isnan(one) & np.isnan(other))


def wide(array: NDArray[Any]) -> Wide:
    """Return values as float64, a bool as 0 or 1."""
    if array.dtype.kind == "V" and array.itemsize == 1:  # ml_dtypes' own, by a table: in half the time
        return _code_values(array.dtype).take(array.view(np.uint8))
    if array.dtype == np.float16 and array.size and is_finite(array):  # by shifts: in half the time
        array = widened(array, np.float32)
    return widened(array, np.float64)


@lru_cache(maxsize=8)
def _code_values(dtype: np.dtype[Any]) -> Wide:
    return np.arange(256, dtype=np.uint8).view(dtype).astype(np.float64)


@dataclass(frozen=True, slots=True)
class LikelyPlace:
    """Some elements of a tensor.

    Attributes:
        shape: of the tensor.
        lines: the indices along an axis, for each axis that does not count in full.
        run: first flat index, and the one behind the last; None where lines tell.
    """

    shape: tuple[int, ...]
    lines: tuple[tuple[int, Indices], ...] = ()
    run: tuple[int, int] | None = None

    @property
    def everywhere(self) -> bool:
        """Return whether it is all of the tensor."""
        return not self.lines and self.run is None

    @property
    def count(self) -> int:
        """Number of its elements."""
        if self.run is not None:
            return self.run[1] - self.run[0]
        chosen = {axis: len(indices) for axis, indices in self.lines}
        return math.prod(chosen.get(axis, length) for axis, length in enumerate(self.shape))

    def holds(self, flat: NDArray[np.intp]) -> NDArray[np.bool_]:
        """Return a mask of the elements in it, given by their flat indices."""
        if self.run is not None:
            return (flat >= self.run[0]) & (flat < self.run[1])
        inside = np.ones(flat.shape, bool)
        for axis, indices in self.lines:
            along = flat // math.prod(self.shape[axis + 1 :]) % self.shape[axis]
            if isinstance(indices, range):
                inside &= (along >= indices.start) & (along < indices.stop)
                along -= indices.start
                inside &= along % indices.step == 0
            else:
                inside &= np.isin(along, indices)
        return inside

    def holds_piece(self, start: int, stop: int) -> NDArray[np.bool_]:
        """Return a mask of its elements in a piece of memory, without a division for each."""
        if self.run is not None:
            return self.holds(np.arange(start, stop))
        inside = np.ones(stop - start, bool)
        for axis, indices in self.lines:
            inner = math.prod(self.shape[axis + 1 :])
            first, last = start // inner, -(-stop // inner)
            flags = _chosen(indices, self.shape[axis], first, last - first)
            if inner > 1:
                edges = np.clip(np.arange(first, last + 1) * inner, start, stop)
                flags = np.repeat(flags, edges[1:] - edges[:-1])
            inside &= flags
        return inside

    def surprising(self, failing: int) -> bool:
        """Return whether so many elements hardly lie in such a place by accident, or it is of one element."""
        size = math.prod(self.shape)
        if self.everywhere or self.count == failing == 1:
            return True
        ways = (math.lgamma(n + 1) for n in (size, failing, size - failing))
        inside = (math.lgamma(n + 1) for n in (max(self.count, failing), failing))
        all_ways = next(ways) - sum(ways)
        ways_inside = next(inside) - next(inside) - math.lgamma(max(self.count - failing, 0) + 1)
        return (all_ways - ways_inside) / math.log(2) >= self._cost + _SURPRISE

    @property
    def _cost(self) -> float:
        """Number of bits that identify the place."""
        if self.run is not None:
            return 2 * math.log2(math.prod(self.shape))
        terms = (3 if isinstance(indices, range) else len(indices) for _, indices in self.lines)
        lengths = (math.log2(self.shape[axis]) for axis, _ in self.lines)
        return sum(term * bits for term, bits in zip(terms, lengths, strict=True))


def _chosen(indices: Indices, length: int, first: int, count: int) -> NDArray[np.bool_]:
    """Return a mask of ``count`` lines that ``indices`` name; the axis, of ``length``, repeats itself."""
    at = first % length
    if at + count > length and (at or count > length):
        return np.tile(_chosen(indices, length, 0, length), -(-(at + count) // length))[at : at + count]
    flags = np.zeros(count, bool)
    if isinstance(indices, range):
        missed = max(-((indices.start - at) // indices.step), 0) * indices.step
        flags[indices.start + missed - at : max(indices.stop - at, 0) : indices.step] = True
    else:
        flags[[index - at for index in indices if at <= index < at + count]] = True
    return flags


def places(evidence: PlaceEvidence) -> Iterator[LikelyPlace]:
    """Yield places that may hold the failing elements, the smallest first and the whole tensor last."""
    shape, at = evidence.tensors.shape, evidence.at
    coordinates = np.unravel_index(at, shape)
    lines = []
    for axis, length in enumerate(shape):
        if length > 2 * SAMPLE:
            indices = _indices(*np.unique(coordinates[axis], return_counts=True))
        else:
            indices = _indices(np.arange(length), np.bincount(coordinates[axis], minlength=length))
        if len(indices) < length:
            lines.append((axis, indices))
    found = [LikelyPlace(shape, tuple(lines))] if lines else []
    if len(lines) > 1:
        found += [LikelyPlace(shape, (line,)) for line in lines]
    size = math.prod(shape)
    first, last = evidence.run
    if last + 1 - first < size:
        found.append(LikelyPlace(shape, run=(first, last + 1)))
    # Lines are told from a sample, and a run of memory from all elements that fail.
    found = [place for place in found if place.surprising(at.size if place.lines else evidence.failing)]
    yield from sorted(found, key=lambda place: place.count * (_RUN if place.run is not None else 1))
    yield LikelyPlace(shape)


def _indices(lines: NDArray[np.intp], counts: NDArray[np.intp]) -> Indices:
    """Return the lines that hold failing elements: a few, every so many, or from the first to the last."""
    present = lines[counts * _STRAY > counts.max()]
    first, last = int(present[0]), int(present[-1])
    steps = np.diff(present)
    if present.size > _SERIES and (steps == steps[0]).all():
        return range(first, last + 1, int(steps[0]))
    if present.size <= LISTED and last + 1 - first > present.size:
        return tuple(present.tolist())
    return range(first, last + 1)


class Noun(NamedTuple):
    """Noun for lines along an axis.

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
        return (
            several_lines
            if axis is None
            else said("{lines} along axis {axis}", lines=several_lines, axis=axis)
        )

    def of(self, length: int) -> str:
        """Return the number of all lines, and their axis."""
        return (
            str(length)
            if self.axis is None
            else said("{length} along axis {axis}", length=length, axis=self.axis)
        )


def noun(layout: str, shape: tuple[int, ...], axis: int) -> Noun:
    """Return the noun for lines along an axis.

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


def place_words(place: LikelyPlace, layout: str) -> str:
    """Return a place in words: ``the last 5 of 37 columns (tail of a 16-tile)``."""
    if place.everywhere:
        return said("every element")
    if place.run is not None:
        start, stop = place.run
        total = math.prod(place.shape)
        if stop - start == 1:
            at: list[int] = []
            rest = start
            for length in place.shape[::-1]:
                rest, along = divmod(rest, length)
                at.insert(0, along)
            return _one_element(at, place.shape)
        number, begin, end = stop - start, start, stop - 1
        words = (
            said("the last {number} of {total}", number=number, total=total)
            if stop == total
            else said("{begin} to {end} of {total}", begin=begin, end=end, total=total)
        )
        return said("elements in memory order: {part}", part=words)
    if place.count == 1:
        coordinates = dict(place.lines)
        at = [next(iter(coordinates.get(axis, (0,)))) for axis in range(len(place.shape))]
        return _one_element(at, place.shape)
    parts = [_lines_words(place, axis, indices, layout) for axis, indices in reversed(place.lines)]
    return f"{parts[0]} in {', '.join(parts[1:])}" if len(parts) > 1 else parts[0]


def _one_element(at: list[int], shape: tuple[int, ...]) -> str:
    return said("one element of {count}, at {at}", count=math.prod(shape), at=at)


def _lines_words(place: LikelyPlace, axis: int, indices: Indices, layout: str) -> str:
    length, name = place.shape[axis], noun(layout, place.shape, axis)
    number, begin, end = len(indices), indices[0], indices[-1]
    if number == 1:
        return said("{line} {begin} of {of}", line=name.one_line, begin=begin, of=name.of(length))
    if isinstance(indices, tuple) or number == 2:  # noqa: PLR2004 - a pair is named
        return said(
            "{lines} {indices} and {end} of {of}",
            lines=name.several_lines,
            indices=", ".join(map(str, indices[:-1])),
            end=end,
            of=name.of(length),
        )
    if indices.step > 1:
        ending = {1: "st", 2: "nd", 3: "rd"}.get(
            indices.step % 10 if indices.step % 100 not in (11, 12, 13) else 0, "th"
        )
        return said(
            "every {ordinal} of {length} {lines}, {begin} to {end}",
            ordinal=(f"{indices.step}{ending}"),
            length=length,
            lines=name.lines_along,
            begin=begin,
            end=end,
        )
    words = (
        said("the last {number} of {length} {lines}", number=number, length=length, lines=name.lines_along)
        if indices.stop == length
        else said(
            "the first {number} of {length} {lines}", number=number, length=length, lines=name.lines_along
        )
        if begin == 0
        else said(
            "{lines} {begin} to {end} of {of}",
            lines=name.several_lines,
            begin=begin,
            end=end,
            of=name.of(length),
        )
    )
    for tile in _TILES:
        if indices.start % tile == 0 and indices.stop == length and length % tile == len(indices):
            return said("{words} (tail of a {tile}-tile)", words=words, tile=tile)
    for tile in reversed(_TILES):
        if indices.start % tile == 0 and len(indices) == tile:
            return said("{words} (a whole {tile}-tile)", words=words, tile=tile)
    return words
