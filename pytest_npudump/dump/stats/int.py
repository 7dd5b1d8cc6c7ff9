"""Statistics of integers, and of other types of at most 8 bits through a histogram of their codes."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from pytest_npudump.dump.bytes.buffers import scratch_buffers
from pytest_npudump.dump.stats.sums import block_dot, row_dots

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pytest_npudump.dump.bytes.buffers import Buffers
    from pytest_npudump.dump.stats.totals import Totals

_WORTH_PAIRS = 1 << 16
_BLOCK = 1 << 18
_ROW = 256
_UINT64 = np.dtype(np.uint64)
_HALF, _LOWER = 32, 0xFFFFFFFF
"""Bits of half a 64-bit integer, and its lower half."""
_MOST_SIGNED = (1 << 63) - 1
_INDEX, _ONE = np.dtype(np.intp), np.int64(1)
_FAST_AT = np.lib.NumpyVersion(np.__version__) >= "1.25.0"
_ONES = np.ones(_ROW, np.float32)


class Integer:
    """Adds chunks of 16, 32 or 64-bit integers to totals. The sum is exact, the squares are float64."""

    def __init__(self, totals: Totals) -> None:
        self.totals = totals

    def add(self, chunk: np.ndarray) -> None:
        """Add a contiguous chunk of shape (n,), n > 0."""
        low, high = int(np.minimum.reduce(chunk)), int(np.maximum.reduce(chunk))
        self.totals.extend(low, high)
        self.totals.count += chunk.size
        if low <= 0 <= high:
            self.totals.zero += int(chunk.size - np.count_nonzero(chunk))
        values = to_float64(chunk, "wide", scratch_buffers())
        total = _sum_64(chunk) if chunk.itemsize == 8 else int(np.add.reduce(values))  # noqa: PLR2004 - bytes of a 64-bit integer
        self.totals.add_sums(total, block_dot(values, values))


def to_float64(chunk: np.ndarray, name: str, buffers: Buffers) -> np.ndarray:
    """Integers or floats of shape (n,) as float64, each rounded once, in the buffer of that name.

    Most processors' vector instructions convert no unsigned integers of 64 bits: large ones are converted as
    two halves.
    """
    found = buffers.doubles(name, chunk.size)
    if chunk.dtype == _UINT64 and int(np.maximum.reduce(chunk)) <= _MOST_SIGNED:
        chunk = chunk.view(np.int64)
    if chunk.dtype != _UINT64:
        np.copyto(found, chunk)
        return found
    half, lower = buffers.array("half", chunk.size, _UINT64), buffers.doubles("lower", chunk.size)
    np.copyto(found, np.right_shift(chunk, _HALF, out=half).view(np.int64))
    np.multiply(found, 2.0**_HALF, out=found)
    np.copyto(lower, np.bitwise_and(chunk, _LOWER, out=half).view(np.int64))
    return np.add(found, lower, out=found)


def _sum_64(chunk: np.ndarray) -> int:
    """The exact sum of 64-bit integers, whose halves are added apart so that nothing overflows."""
    upper = np.add.reduce(chunk >> chunk.dtype.type(_HALF))
    lower = np.add.reduce(chunk & chunk.dtype.type(_LOWER))
    return (int(upper) << _HALF) + int(lower)


class Byte:
    """Adds chunks of 8-bit integers to totals, and of bool as the bytes they are.

    All sums are exact: those of a row of 256 squares fit the 24 bits of float32.
    """

    def __init__(self, totals: Totals) -> None:
        self.totals = totals

    def add(self, chunk: np.ndarray) -> None:
        """Add a contiguous chunk of shape (n,), n > 0."""
        chunk = chunk.view(np.uint8) if chunk.dtype == np.bool_ else chunk
        low, high = int(np.minimum.reduce(chunk)), int(np.maximum.reduce(chunk))
        self.totals.extend(low, high)
        self.totals.count += chunk.size
        if low <= 0 <= high:
            flags = scratch_buffers().flags("zeros", chunk.size)
            self.totals.zero += int(np.count_nonzero(np.equal(chunk, 0, out=flags)))
        for start in range(0, chunk.size, _BLOCK):
            part = chunk[start : start + _BLOCK]
            values = scratch_buffers().floats("values", -(-part.size // _ROW) * _ROW)
            np.copyto(values[: part.size], part)
            values[part.size :] = 0
            rows = values.reshape(-1, _ROW)
            total, squares = (row_dots(rows, other).sum(dtype=np.float64) for other in (_ONES, rows))
            self.totals.add_sums(int(total), float(squares))


class Codes:
    """Counts the byte codes of chunks."""

    def __init__(self) -> None:
        self._single = np.zeros(256, np.int64)
        self._pairs: np.ndarray | None = None

    @property
    def histogram(self) -> np.ndarray:
        """How often each code occurred, int64 of shape (256,)."""
        if self._pairs is None:
            return self._single
        pairs = self._pairs.reshape(256, 256)
        found: np.ndarray = self._single + pairs.sum(axis=0) + pairs.sum(axis=1)
        return found

    def add(self, chunk: np.ndarray) -> None:
        """Add a contiguous chunk, uint8 of shape (n,)."""
        if chunk.size < _WORTH_PAIRS:
            self._single += np.bincount(chunk, minlength=256)
            return
        # Two neighbours at a time: half the increments, and fewer of one bin in a row.
        even = chunk.size - chunk.size % 2
        if self._pairs is None:
            self._pairs = np.zeros(1 << 16, np.int64)
        count_codes(chunk[:even].view(np.uint16), self._pairs)
        self._single += np.bincount(chunk[even:], minlength=256)


def count_codes(codes: np.ndarray, histogram: np.ndarray) -> None:
    """Add how often each of ``codes``, uint16 of shape (n,), occurs to ``histogram``, int64, (65536,).

    ``add.at`` takes seven tenths of the time of ``bincount``, which looks for extremes first, but for the
    numpy before 1.25, where it takes ten times as long.
    """
    if not _FAST_AT:
        histogram += np.bincount(codes, minlength=histogram.size)
        return
    for start in range(0, codes.size, _BLOCK):
        part = codes[start : start + _BLOCK]
        indices = scratch_buffers().array("indices", part.size, _INDEX)
        np.copyto(indices, part)
        np.add.at(histogram, indices, _ONE)


def add_histogram(totals: Totals, values: np.ndarray, counts: Iterable[int], *, integer: bool) -> None:
    """Add elements given as distinct ``values`` (float64 of shape (k,)) and how often each occurs."""
    squares = []
    sums = []
    for value, times in zip(values.tolist(), counts, strict=True):
        if not times:
            continue
        totals.count += times
        if math.isfinite(value):
            exact = int(value) if integer else value
            totals.extend(exact, exact)
            totals.zero += times if value == 0 else 0
            sums.append(value * times)
            squares.append(value * value * times)
        else:
            nan = math.isnan(value)
            totals.add_special(
                times if nan else 0,
                times if value < 0 else 0,
                times if value > 0 else 0,
            )
    total = math.fsum(sums)
    totals.add_sums(int(total) if integer else total, math.fsum(squares))
