"""Statistics of 16-bit floats, through integers.

numpy converts float16 one element at a time. Here max and min come from the codes: read as int16, the
largest code is the largest value, if any value is positive; read as uint16, it is the smallest value, if
any is negative. For the sums two neighbours are taken apart as one int32, by shifts, into two float32.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from pytest_npudump.dump.stats_float import Float32, add_masked

if TYPE_CHECKING:
    from collections.abc import Callable

    from pytest_npudump.dump.stats_totals import Totals

_SIGN = 0x8000
_FLOAT16_BITS = np.int32(0x8FFFE000 - (1 << 32))
_FLOAT16_SCALE = np.float32(2.0**112)
_HIGH_HALF = np.int32(0xFFFF0000 - (1 << 32))


@dataclass(frozen=True, slots=True)
class HalfType:
    """A 16-bit floating-point type.

    Attributes:
        largest: code of the largest finite value.
        split: fills two float32 buffers with the upper and the lower neighbours of int32 pairs.
    """

    largest: int
    split: Callable[[np.ndarray, np.ndarray, np.ndarray], None]


def _split_float16(pairs: np.ndarray, upper: np.ndarray, lower: np.ndarray) -> None:
    """Move sign, exponent and mantissa into float32's places; the bias is corrected by a factor."""
    codes = lower.view(np.int32)
    np.left_shift(pairs, 16, out=codes)
    np.right_shift(codes, 3, out=codes)
    np.right_shift(pairs, 3, out=upper.view(np.int32))
    for values in (upper, lower):
        codes = values.view(np.int32)
        np.bitwise_and(codes, _FLOAT16_BITS, out=codes)
        np.multiply(values, _FLOAT16_SCALE, out=values)


def _split_bfloat16(pairs: np.ndarray, upper: np.ndarray, lower: np.ndarray) -> None:
    """bf16 is the upper half of float32."""
    np.left_shift(pairs, 16, out=lower.view(np.int32))
    np.bitwise_and(pairs, _HIGH_HALF, out=upper.view(np.int32))


FLOAT16 = HalfType(0x7BFF, _split_float16)
BFLOAT16 = HalfType(0x7F7F, _split_bfloat16)


class Half:
    """Adds chunks of a 16-bit type to totals; owns the buffers that this takes."""

    def __init__(self, totals: Totals, kind: HalfType) -> None:
        self.totals = totals
        self._kind = kind
        self._sums = Float32(totals)
        self._values = np.empty(0, np.float32)
        self._codes = np.empty(0, np.uint16)

    def add(self, chunk: np.ndarray) -> None:
        """Add a contiguous chunk of shape (n,), n > 0."""
        codes = chunk.view(np.uint16)
        high, low = int(np.maximum.reduce(chunk.view(np.int16))), int(np.maximum.reduce(codes))
        if high > self._kind.largest or low > self._kind.largest | _SIGN:
            add_masked(self.totals, chunk.astype(np.float32))
            return
        if high < 0:
            high = int(np.minimum.reduce(codes))
        if low < _SIGN:
            low = int(np.minimum.reduce(codes))
        ends = np.array([low, high & 0xFFFF], np.uint16).view(chunk.dtype).astype(np.float64)
        smallest, largest = float(ends[0]), float(ends[1])
        self.totals.extend(smallest, largest)
        self.totals.count += chunk.size
        if smallest <= 0 <= largest:
            self.totals.zero += self._zeros(codes)
        self._sums.add_sums(self._float32(chunk), max(-smallest, largest))

    def _zeros(self, codes: np.ndarray) -> int:
        if self._codes.size < codes.size:
            self._codes = np.empty(codes.size, np.uint16)
        magnitudes = np.left_shift(codes, 1, out=self._codes[: codes.size])
        return int(codes.size - np.count_nonzero(magnitudes))

    def _float32(self, chunk: np.ndarray) -> np.ndarray:
        if self._values.size < chunk.size:
            self._values = np.empty(chunk.size, np.float32)
        return to_float32(chunk, self._kind, self._values[: chunk.size])


def to_float32(chunk: np.ndarray, kind: HalfType, out: np.ndarray) -> np.ndarray:
    """Fill ``out`` with the values of ``chunk``: those at odd places, those at even places, the odd one out.

    Codes of NaN and infinities of float16 do not come out as such; those of bf16 do.
    """
    pairs = chunk.size // 2
    if chunk.size % 2:
        out[-1] = chunk[-1]
    high_first = sys.byteorder == "big"
    places = (
        (slice(pairs, 2 * pairs), slice(0, pairs))
        if high_first
        else (slice(0, pairs), slice(pairs, 2 * pairs))
    )
    kind.split(_pairs(chunk, pairs), out[places[0]], out[places[1]])
    return out


def in_order(values: np.ndarray) -> np.ndarray:
    """A copy of ``values``, which :func:`to_float32` made, in the order of the elements."""
    pairs = values.size // 2
    found: np.ndarray = values.copy()
    found[1 : 2 * pairs : 2] = values[:pairs]
    found[0 : 2 * pairs : 2] = values[pairs : 2 * pairs]
    return found


def _pairs(chunk: np.ndarray, pairs: int) -> np.ndarray:
    found: np.ndarray = chunk[: 2 * pairs].view(np.int32)
    if not found.flags.aligned:
        found = found.copy()
    return found
