"""Bytes that hold several elements each: how often each pair of bytes occurs tells every measure, exactly.

The types of 1, 2 and 4 bits have neither NaN nor infinities. What is counted for pairs of bytes becomes
what :class:`~pytest_npudump.compare.tensors.code_pairs.CodePairs` counts for pairs of elements.
"""

from __future__ import annotations

import math
from functools import lru_cache, reduce
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from pytest_npudump.compare.tensors.code_pairs import CodePairs, joint_codes, places_of
from pytest_npudump.dump.arrays.decode import decode, unpack
from pytest_npudump.dump.stats.kernels import add_histogram, count_codes
from pytest_npudump.dump.stats.totals import Totals
from pytest_npudump.dump.values.dtypes import BY_NAME

if TYPE_CHECKING:
    from pytest_npudump.compare.tensors.measures import Measures
    from pytest_npudump.compare.tensors.worst import Worst
    from pytest_npudump.dump.bytes.buffers import Buffers

_OCTETS = 256
_BLOCK = 1 << 19
_WORTH_COUNTING = 1 << 14
"""Bytes from which on counting is faster than decoding."""


class _Tables(NamedTuple):
    """What all tensors of a type have in common.

    Attributes:
        codes, values: of the n elements of each byte, of shape (256, n).
        distances: |actual - golden| of the elements of each pair of bytes, of shape (65536, n).
        reaches: the largest distances that pairs of bytes have, in order, of shape (m,).
        ranks: which of these is that of each pair, of shape (65536,).
    """

    codes: np.ndarray
    values: np.ndarray
    distances: np.ndarray
    reaches: np.ndarray
    ranks: np.ndarray


@lru_cache(maxsize=8)
def _tables_of(name: str) -> _Tables:
    bits = BY_NAME[name].bits
    octets, count = np.arange(_OCTETS, dtype=np.uint8), 8 // bits
    values = decode(octets, name, _OCTETS * count).reshape(_OCTETS, count)
    codes = unpack(octets, bits, _OCTETS * count, high_first=name == "uint1").reshape(_OCTETS, count)
    wide = values.astype(np.int16) if values.dtype.kind in "iu" else values
    distances = np.abs(wide[np.newaxis] - wide[:, np.newaxis]).reshape(_OCTETS * _OCTETS, count)
    reaches, ranks = np.unique(reduce(np.maximum, distances.T), return_inverse=True)
    return _Tables(codes, values, distances, reaches, ranks)


class PackedCodes:
    """Adds bytes of the type called ``name`` to measures and the worst elements.

    Args:
        name: of a type of less than 8 bits.
        results: what is added to.
        tolerance: rtol and atol.
        buffers: to work in.
    """

    def __init__(
        self, name: str, results: tuple[Measures, Worst], tolerance: tuple[float, float], buffers: Buffers
    ) -> None:
        self._measures, self._worst = results
        self._tolerance, self._buffers = tolerance, buffers
        self._name, self._bits = name, BY_NAME[name].bits
        self._count = 8 // self._bits
        self._pairs: np.ndarray | None = None

    def takes(self, golden: np.ndarray) -> bool:
        """Whether counting is faster for these bytes than decoding."""
        return self._pairs is not None or golden.size >= _WORTH_COUNTING

    def add(self, golden: np.ndarray, actual: np.ndarray, offset: int) -> None:
        """Add two chunks of whole bytes, uint8 of shape (n,), the first element of which is ``offset``."""
        for start in range(0, golden.size, _BLOCK):
            part = slice(start, start + _BLOCK)
            joint = joint_codes(golden[part], actual[part], self._buffers)
            counts = np.zeros(_OCTETS * _OCTETS, np.int64)
            count_codes(joint, counts)
            self._pairs = counts if self._pairs is None else self._pairs + counts
            self._list_worst(joint, counts, offset + start * self._count)

    def _list_worst(self, joint: np.ndarray, counts: np.ndarray, offset: int) -> None:
        """Look for the bytes whose elements belong in the list, if the chunk has any."""
        limit, tables = self._worst.limit, _tables_of(self._name)
        occurred = np.bincount(tables.ranks, counts, tables.reaches.size)
        far = np.flatnonzero((occurred > 0) & (tables.reaches > self._worst.threshold))[::-1]
        if not far.size:
            return
        enough = int(np.searchsorted(np.cumsum(occurred[far]), limit))
        least = far[min(enough, far.size - 1)]
        pairs = np.flatnonzero((counts > 0) & (tables.ranks >= least))
        farther, equal = pairs[tables.ranks[pairs] > least], pairs[tables.ranks[pairs] == least]
        octets = np.sort(np.concatenate([places_of(joint, farther), places_of(joint, equal)[:limit]]))
        pairs = joint[octets]
        distances = tables.distances[pairs].reshape(-1)
        places = (octets[:, np.newaxis] * self._count + np.arange(self._count)).reshape(-1)
        golden, actual = (tables.values[codes].reshape(-1) for codes in (pairs >> 8, pairs & (_OCTETS - 1)))
        kept = self._worst.candidates(distances)
        self._worst.take(places[kept], distances[kept], golden[kept], actual[kept], offset)

    def finish(self) -> tuple[Totals, Totals]:
        """Add all that was counted to the measures; return the totals of both sides."""
        totals = Totals(), Totals()
        if self._pairs is None:
            return totals
        codes, values, *_ = _tables_of(self._name)
        table = np.zeros(1 << self._bits, values.dtype)
        table[codes] = values
        pairs = CodePairs(table, table)
        counts = _by_element(self._pairs, table.size)
        pairs.counts += counts.reshape(-1)
        pairs.measure(self._measures, *self._tolerance)
        for side, occurred in zip(totals, (counts.sum(axis=1), counts.sum(axis=0)), strict=True):
            add_histogram(side, table.astype(np.float64), occurred.tolist(), integer=table.dtype.kind in "iu")
        return totals


def _by_element(pairs: np.ndarray, size: int) -> np.ndarray:
    """How often each pair of ``size`` codes occurred, (size, size), by how often each pair of bytes did.

    Bytes are cut in halves, and these again. No product of matrices: BLAS would share it among threads of its
    own, which wait for each other where the machine is busy.
    """
    counts = pairs.reshape(_OCTETS, _OCTETS)
    while len(counts) > size:
        half = math.isqrt(len(counts))
        quarters = counts.reshape(half, half, half, half)
        counts = quarters.sum(axis=(1, 3)) + quarters.sum(axis=(0, 2))
    return counts
