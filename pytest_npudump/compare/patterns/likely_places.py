"""Where a difference may be: lines along axes, a run of memory, or everywhere."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from pytest_npudump.compare.patterns.evidence import Evidence

    Indices = range | tuple[int, ...]

LISTED = 8
"""Lines that are named one by one, at most."""
_RUN = 1.25
"""Lines come before a run of memory that is smaller by less: at their ends elements pass by accident."""

_SERIES = 2

_SURPRISE = 16.0
"""Bits: of elements that fail at random, fewer than one set in 65,536 lies in a place that is claimed."""
_STRAY = 8
"""A line with fewer than this part of the failing elements of another line has them by accident."""


@dataclass(frozen=True, slots=True)
class Place:
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
        """Whether it is all of the tensor."""
        return not self.lines and self.run is None

    @property
    def count(self) -> int:
        """Number of its elements."""
        if self.run is not None:
            return self.run[1] - self.run[0]
        chosen = {axis: len(indices) for axis, indices in self.lines}
        return math.prod(chosen.get(axis, length) for axis, length in enumerate(self.shape))

    def holds(self, flat: NDArray[np.intp]) -> NDArray[np.bool_]:
        """Return which elements, given by their flat indices, are in it."""
        if self.run is not None:
            return (flat >= self.run[0]) & (flat < self.run[1])
        inside = np.ones(flat.shape, bool)
        for axis, indices in self.lines:
            along = flat // math.prod(self.shape[axis + 1 :]) % self.shape[axis]
            if isinstance(indices, range):
                inside &= (along >= indices.start) & (along < indices.stop)
                if indices.step > 1:
                    inside &= (along - indices.start) % indices.step == 0
            else:
                inside &= np.isin(along, indices)
        return inside

    def surprising(self, failing: int) -> bool:
        """Whether so many elements would hardly lie in such a place by accident, or it is of one element."""
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
        """Bits that it takes to say which place is meant."""
        if self.run is not None:
            return 2 * math.log2(math.prod(self.shape))
        terms = (3 if isinstance(indices, range) else len(indices) for _, indices in self.lines)
        lengths = (math.log2(self.shape[axis]) for axis, _ in self.lines)
        return sum(term * bits for term, bits in zip(terms, lengths, strict=True))


def places(evidence: Evidence) -> Iterator[Place]:
    """Yield places that may hold the failing elements, the smallest first and the whole tensor last."""
    shape, at = evidence.tensors.shape, evidence.at
    coordinates = np.unravel_index(at, shape)
    lines = []
    for axis, length in enumerate(shape):
        indices = _indices(np.bincount(coordinates[axis], minlength=length))
        if len(indices) < length:
            lines.append((axis, indices))
    found = [Place(shape, tuple(lines))] if lines else []
    if len(lines) > 1:
        found += [Place(shape, (line,)) for line in lines]
    size = math.prod(shape)
    first, last = evidence.run
    if last + 1 - first < size:
        found.append(Place(shape, run=(first, last + 1)))
    # Lines are told from a sample, and a run of memory from all elements that fail.
    found = [place for place in found if place.surprising(at.size if place.lines else evidence.failing)]
    yield from sorted(found, key=lambda place: place.count * (_RUN if place.run is not None else 1))
    yield Place(shape)


def _indices(counts: NDArray[np.intp]) -> Indices:
    """Return the lines that hold failing elements: a few, every so many, or from the first to the last."""
    present = np.flatnonzero(counts * _STRAY > counts.max())
    first, last = int(present[0]), int(present[-1])
    steps = np.diff(present)
    if present.size > _SERIES and (steps == steps[0]).all():
        return range(first, last + 1, int(steps[0]))
    if present.size <= LISTED and last + 1 - first > present.size:
        return tuple(present.tolist())
    return range(first, last + 1)
