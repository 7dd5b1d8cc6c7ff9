"""What a survey of two tensors leaves: how much differs, and a bounded sample of the elements that do."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from pytest_npudump.compare.tensors.difference import CHUNK

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    Wide = NDArray[np.float64]

SAMPLE = 1 << 15
"""Failing elements that are kept, at least, where there are as many; twice as many at most."""


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
    """

    golden: NDArray[Any]
    actual: NDArray[Any]
    shape: tuple[int, ...]
    rtol: float
    atol: float
    threshold: float | None

    def chunks(self) -> Iterator[tuple[NDArray[np.intp], Wide, Wide]]:
        """Yield flat indices and both sides' values, a chunk at a time."""
        for start in range(0, self.golden.size, CHUNK):
            piece = slice(start, start + CHUNK)
            golden, actual = wide(self.golden[piece]), wide(self.actual[piece])
            yield np.arange(start, start + golden.size), golden, actual

    def fails(self, golden: Wide, actual: Wide) -> NDArray[np.bool_]:
        """Return which elements fail."""
        if self.threshold is None:
            return self.apart(golden, actual)
        far = np.abs(actual - golden) > self.threshold
        return np.where(np.isfinite(golden) & np.isfinite(actual), far, ~same(golden, actual))

    def apart(self, golden: Wide, actual: Wide) -> NDArray[np.bool_]:
        """Return which elements are farther off than a single element may be."""
        far = np.abs(actual - golden) > self.atol + self.rtol * np.abs(golden)
        return np.where(np.isfinite(golden) & np.isfinite(actual), far, ~same(golden, actual))


@dataclass(frozen=True, slots=True, eq=False)
class Evidence:
    """The survey of two tensors.

    Attributes:
        tensors: which ones.
        failing: number of elements that fail.
        squared: sum of the squares of all finite differences.
        run: first and last flat index of failing elements.
        at: flat indices of failing elements, ascending: all, or an even sample.
        golden, actual: their values.
    """

    tensors: Tensors
    failing: int
    squared: float
    run: tuple[int, int]
    at: NDArray[np.intp]
    golden: Wide
    actual: Wide


def survey(tensors: Tensors) -> Evidence:
    """Look at every element once: time is linear, memory a chunk and :data:`SAMPLE` elements."""
    failing, squared, step = 0, 0.0, 1
    first, last = -1, -1
    kept: list[NDArray[np.intp]] = []
    for flat, golden, actual in tensors.chunks():
        places = flat[tensors.fails(golden, actual)]
        if places.size:
            first, last = int(places[0]) if first < 0 else first, int(places[-1])
        kept.append(places[-failing % step :: step])
        failing += places.size
        squared += squares(actual - golden)
        while sum(piece.size for piece in kept) > 2 * SAMPLE:
            kept = [np.concatenate(kept)[::2]]
            step *= 2
    at = np.concatenate(kept) if kept else np.empty(0, np.intp)
    values = wide(tensors.golden[at]), wide(tensors.actual[at])
    return Evidence(tensors, failing, squared, (first, last), at, *values)


def squares(difference: Wide) -> float:
    """Return the sum of the squares of the finite ones among ``difference``."""
    finite = difference[np.isfinite(difference)]
    return float(np.dot(finite, finite))


def same(one: Wide, other: Wide) -> NDArray[np.bool_]:
    """Return where two arrays are equal; NaN equals NaN."""
    return np.asarray((one == other) | (np.isnan(one) & np.isnan(other)))


def wide(array: NDArray[Any]) -> Wide:
    """Return values as float64, a bool as 0 or 1."""
    if array.dtype.kind == "V":  # ml_dtypes' own
        array = array.astype(np.float32)
    return array.astype(np.float64)
