"""Bytes that hold several elements each: how often each pair of bytes occurs tells every measure, exactly.

The types of 1, 2 and 4 bits have neither NaN nor infinities. What is counted for pairs of bytes becomes
what :class:`~pytest_npudump.compare.tensors.code_pairs.CodePairs` counts for pairs of elements.
"""

from __future__ import annotations

from functools import cached_property, reduce
from typing import TYPE_CHECKING

import numpy as np

from pytest_npudump.compare.tensors.code_pairs import WORTH_PAIRS, CodePairs, joint_codes, places_of
from pytest_npudump.dump.arrays.decode import decode
from pytest_npudump.dump.stats.int import add_histogram, count_codes
from pytest_npudump.dump.stats.totals import Totals
from pytest_npudump.dump.values.dtypes import BY_NAME
from pytest_npudump.dump.values.small_floats import unpack

if TYPE_CHECKING:
    from pytest_npudump.compare.tensors.measures import Measures
    from pytest_npudump.compare.tensors.worst import Worst
    from pytest_npudump.dump.bytes.buffers import Buffers

_OCTETS = 256
_BLOCK = 1 << 19


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
        return self._pairs is not None or golden.size >= WORTH_PAIRS

    def add(self, golden: np.ndarray, actual: np.ndarray, offset: int) -> None:
        """Add two chunks of whole bytes, uint8 of shape (n,), the first element of which is ``offset``."""
        for start in range(0, golden.size, _BLOCK):
            part = slice(start, start + _BLOCK)
            joint = joint_codes(golden[part], actual[part], self._buffers)
            counts = np.zeros(_OCTETS * _OCTETS, np.int64)
            count_codes(joint, counts)
            self._pairs = counts if self._pairs is None else self._pairs + counts
            self._list_worst(joint, counts, offset + start * self._count)

    @cached_property
    def _values(self) -> np.ndarray:
        """The elements of each byte, of shape (256, n)."""
        octets = np.arange(_OCTETS, dtype=np.uint8)
        return decode(octets, self._name, _OCTETS * self._count).reshape(_OCTETS, self._count)

    @cached_property
    def _distances(self) -> np.ndarray:
        """|actual - golden| of the elements of each pair of bytes, of shape (65536, n)."""
        values = self._values.astype(np.int16) if self._values.dtype.kind in "iu" else self._values
        apart: np.ndarray = np.abs(values[np.newaxis] - values[:, np.newaxis])
        return apart.reshape(_OCTETS * _OCTETS, self._count)

    @cached_property
    def _farthest(self) -> np.ndarray:
        return reduce(np.maximum, self._distances.T)

    def _list_worst(self, joint: np.ndarray, counts: np.ndarray, offset: int) -> None:
        """Look for the bytes whose elements belong in the list, if the chunk has any."""
        limit, reach = self._worst.limit, self._farthest
        far = np.flatnonzero((counts > 0) & (reach > self._worst.threshold))
        if not far.size:
            return
        far = far[np.argsort(-reach[far], kind="stable")]
        enough = int(np.searchsorted(np.cumsum(counts[far]), limit))
        least = reach[far[min(enough, far.size - 1)]]
        farther, equal = far[reach[far] > least], far[reach[far] == least]
        octets = np.sort(np.concatenate([places_of(joint, farther), places_of(joint, equal)[:limit]]))
        pairs = joint[octets]
        distances = self._distances[pairs].reshape(-1)
        places = (octets[:, np.newaxis] * self._count + np.arange(self._count)).reshape(-1)
        golden, actual = (self._values[codes].reshape(-1) for codes in (pairs >> 8, pairs & (_OCTETS - 1)))
        kept = self._worst.candidates(distances)
        self._worst.take(places[kept], distances[kept], golden[kept], actual[kept], offset)

    def finish(self) -> tuple[Totals, Totals]:
        """Add all that was counted to the measures; return the totals of both sides."""
        totals = Totals(), Totals()
        if self._pairs is None:
            return totals
        codes = unpack(
            np.arange(_OCTETS, dtype=np.uint8),
            self._bits,
            _OCTETS * self._count,
            high_first=self._name == "uint1",
        ).reshape(_OCTETS, self._count)
        table = np.zeros(_OCTETS, self._values.dtype)
        table[codes] = self._values
        pairs = CodePairs(table, table)
        counts = pairs.counts.reshape(_OCTETS, _OCTETS)
        by_octets = self._pairs.reshape(_OCTETS, _OCTETS).astype(np.float64)
        for place in codes.T:
            is_code = (place[:, np.newaxis] == np.arange(1 << self._bits)).astype(np.float64)
            counts[: 1 << self._bits, : 1 << self._bits] += np.rint(is_code.T @ by_octets @ is_code).astype(
                np.int64
            )
        pairs.measure(self._measures, *self._tolerance)
        for side, occurred in zip(totals, (counts.sum(axis=1), counts.sum(axis=0)), strict=True):
            add_histogram(side, table.astype(np.float64), occurred.tolist(), integer=table.dtype.kind in "iu")
        return totals
