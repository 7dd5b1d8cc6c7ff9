"""Chunks of types that have to be decoded: those of equal bytes are not."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from pytest_npudump.compare.tensors.comparer import same_bytes
from pytest_npudump.dump.arrays.decode import decode
from pytest_npudump.dump.bytes.buffers import scratch_buffers
from pytest_npudump.dump.stats.float import extremes
from pytest_npudump.dump.stats.half import FLOAT16, to_float32
from pytest_npudump.dump.stats.running import running_raw
from pytest_npudump.dump.values.dtypes import BY_NAME

if TYPE_CHECKING:
    from pytest_npudump.compare.tensors.comparer import Comparer
    from pytest_npudump.compare.tensors.measures import Measures
    from pytest_npudump.dump.stats.totals import Totals

_BYTE = 8
_NEAR = np.float32(1 - 1e-6)
"""Share of the largest square, in float32, from which on an element may be the largest one."""


class PackedComparer:
    """Chunks of bytes of the type called ``name``, whose values ``values`` compares where they differ.

    ``values`` takes the codes themselves of types that it has a table for.
    """

    def __init__(self, name: str, values: Comparer, measures: Measures, *, coded: bool) -> None:
        self._name, self._values, self._measures = name, values, measures
        self._coded = coded
        self._equal = running_raw(name, None)

    def add(self, golden: np.ndarray, actual: np.ndarray, offset: int, count: int) -> None:
        """Add ``count`` elements in uint8 of one axis each, the first of which is element ``offset``."""
        whole = golden.size * _BYTE == count * BY_NAME[self._name].bits
        if whole and same_bytes(golden, actual) and self._add_equal(golden):
            return
        self._values.add(self._decoded(golden, count), self._decoded(actual, count), offset)

    def _add_equal(self, chunk: np.ndarray) -> bool:
        if self._name == "complex32":
            if extremes(chunk.view(np.float16), FLOAT16.largest) is None:
                return False
            self._measures.magnitude = max(self._measures.magnitude, _largest_complex(chunk))
        self._equal.add(chunk)
        return True

    def _decoded(self, chunk: np.ndarray, count: int) -> np.ndarray:
        return chunk if self._coded else decode(chunk, self._name, count)

    def finish(self) -> tuple[Totals, Totals]:
        """As :meth:`Comparer.finish`."""
        golden, actual = self._values.finish()
        equal = self._equal.totals()
        if equal.count:
            self._measures.take_equal(equal)
            golden.merge(equal)
            actual.merge(equal)
        return golden, actual


def _largest_complex(chunk: np.ndarray) -> float:
    """The largest magnitude of finite complex32, given as bytes."""
    halves = chunk.view(np.float16)
    parts = to_float32(halves, FLOAT16, scratch_buffers().floats("values", halves.size))
    real, imaginary = parts[: halves.size // 2], parts[halves.size // 2 :]
    squares = real * real
    squares += imaginary * imaginary
    places = np.flatnonzero(squares >= squares.max() * _NEAR)
    return float(np.hypot(real[places].astype(np.float64), imaginary[places].astype(np.float64)).max())
