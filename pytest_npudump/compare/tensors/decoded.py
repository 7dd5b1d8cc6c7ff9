"""Chunks of types that have to be decoded: those of equal bytes are not."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_npudump.compare.tensors.comparer import same_bytes
from pytest_npudump.compare.tensors.paired_chunks import CHUNK
from pytest_npudump.dump.arrays.decode import decode
from pytest_npudump.dump.stats.tensor import raw_accumulator
from pytest_npudump.dump.values.dtypes import BY_NAME

if TYPE_CHECKING:
    import numpy as np

    from pytest_npudump.compare.tensors.comparer import Comparer
    from pytest_npudump.compare.tensors.measures import Measures
    from pytest_npudump.compare.tensors.packed_codes import PackedCodes
    from pytest_npudump.dump.stats.totals import Totals

_BYTE = 8


class PackedComparer:
    """Chunks of bytes of the type called ``name``, whose values ``values`` compares where they differ.

    ``values`` takes the bytes themselves where they are ``coded``; ``codes`` takes many bytes of
    types that have several elements in each.
    """

    def __init__(
        self, name: str, values: Comparer, measures: Measures, *, coded: bool, codes: PackedCodes | None
    ) -> None:
        self._name, self._values, self._measures = name, values, measures
        self._coded, self._codes = coded, codes
        self._equal = raw_accumulator(name, None)

    def add(self, golden: np.ndarray, actual: np.ndarray, offset: int, count: int) -> None:
        """Add ``count`` elements in uint8 of one axis each, the first of which is element ``offset``."""
        whole = golden.size * _BYTE == count * BY_NAME[self._name].bits
        if whole and not self._coded and same_bytes(golden, actual):
            self._equal.add(golden)
            return
        bits, first = BY_NAME[self._name].bits, 0
        if self._codes is not None and self._codes.takes(golden):
            octets = count * bits // _BYTE
            self._codes.add(golden[:octets], actual[:octets], offset)
            first = octets * _BYTE // bits
        for start in range(first, count, CHUNK):
            part, begin = min(CHUNK, count - start), start * bits // _BYTE
            one, other = (self._decoded(side[begin:], part, bits) for side in (golden, actual))
            self._values.add(one, other, offset + start)

    def _decoded(self, chunk: np.ndarray, count: int, bits: int) -> np.ndarray:
        chunk = chunk[: -(-count * bits // _BYTE)]
        return chunk if self._coded else decode(chunk, self._name, count)

    def finish(self) -> tuple[Totals, Totals]:
        """As :meth:`Comparer.finish`."""
        golden, actual = self._values.finish()
        if self._codes is not None:
            for side, totals in zip((golden, actual), self._codes.finish(), strict=True):
                side.merge(totals)
        equal = self._equal.totals()
        if equal.count:
            self._measures.take_equal(equal)
            golden.merge(equal)
            actual.merge(equal)
        return golden, actual
