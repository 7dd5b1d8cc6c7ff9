"""Chunks of two tensors, the equal ones told from the others before anything else is computed."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from pytest_npudump.compare.tensors.measures import Measures
    from pytest_npudump.compare.tensors.worst import Worst
    from pytest_npudump.dump.stats.tensor import Accumulator
    from pytest_npudump.dump.stats.totals import Totals

_PROBE = 2048


@dataclass(frozen=True, slots=True)
class Sides:
    """What the statistics of both tensors add up in.

    Attributes:
        golden, actual: of the chunks that differ.
        equal: of those that are the same in both.
    """

    golden: Accumulator
    actual: Accumulator
    equal: Accumulator


@dataclass(frozen=True, slots=True)
class Common:
    """What every comparer is given.

    Attributes:
        measures, worst, sides: are added to.
        rtol, atol: the tolerance, ``|actual - golden| <= atol + rtol * |golden|``.
    """

    measures: Measures
    worst: Worst
    sides: Sides
    rtol: float
    atol: float


class Comparer(ABC):
    """Adds chunks of one family of types to measures, the worst elements and the statistics of both."""

    def __init__(self, common: Common) -> None:
        self._measures, self._worst, self._sides = common.measures, common.worst, common.sides
        self._rtol, self._atol = common.rtol, common.atol

    def add(self, golden: np.ndarray, actual: np.ndarray, offset: int) -> None:
        """Add two chunks of shape (n,), n > 0, whose element 0 is element ``offset`` of the tensors."""
        if golden.dtype == actual.dtype and same_bytes(golden, actual):
            self._add_equal(golden, offset)
        else:
            self._add_different(golden, actual, offset)

    def _add_equal(self, chunk: np.ndarray, offset: int) -> None:  # noqa: ARG002 - complex numbers need it
        self._sides.equal.add(chunk)

    @abstractmethod
    def _add_different(self, golden: np.ndarray, actual: np.ndarray, offset: int) -> None:
        """Add two chunks that are not the same, to the statistics too."""

    def finish(self) -> tuple[Totals, Totals]:
        """Take the chunks that were equal into the measures; return the totals of both sides."""
        equal = self._sides.equal.totals()
        golden, actual = self._sides.golden.totals(), self._sides.actual.totals()
        if equal.count:
            self._take_equal(equal)
            golden.merge(equal)
            actual.merge(equal)
        return golden, actual

    def _take_equal(self, totals: Totals) -> None:
        """Take what the chunks that were equal add up to into the measures."""
        self._measures.take_equal(totals)


def same_bytes(golden: np.ndarray, actual: np.ndarray) -> bool:
    """Whether two contiguous chunks of one type are equal bit by bit; most that differ do so early on."""
    one, other = _words(golden), _words(actual)
    return np.array_equal(one[:_PROBE], other[:_PROBE]) and np.array_equal(one, other)


def _words(chunk: np.ndarray) -> np.ndarray:
    """A chunk as integers of 64 bits, or as bytes where it cannot be seen as those."""
    octets = chunk.view(np.uint8)
    return octets if octets.size % 8 else octets.view(np.uint64)
