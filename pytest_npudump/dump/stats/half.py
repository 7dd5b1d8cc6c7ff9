"""Statistics of 16-bit floats, through integers.

numpy converts float16 one element at a time. Here max, min and zeros come from the codes, and for the sums
two neighbours are taken apart as one int32, by shifts, into two float32.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from pytest_npudump.dump.stats.float import Kernel, zero_codes

if TYPE_CHECKING:
    from collections.abc import Callable

    from pytest_npudump.dump.bytes.buffers import Buffers
    from pytest_npudump.dump.stats.totals import Totals

_SIGN = 0x8000
_FLOAT16_BITS = np.int32(0x8FFFE000 - (1 << 32))
_FLOAT16_SCALE = np.float32(2.0**112)
_HALF_BITS, _EXPONENT_SHIFT = np.int32(16), np.int32(3)
_HIGH_HALF = np.int32(0xFFFF0000 - (1 << 32))


@dataclass(frozen=True, slots=True)
class HalfType:
    """A 16-bit floating-point type.

    Attributes:
        largest: code of the largest finite value.
        split: fills float32 of shape (2 * k,) with the lower neighbours of int32 pairs of shape (k,), then
            with the upper ones.
    """

    largest: int
    split: Callable[[np.ndarray, np.ndarray], None]


def _split_float16(pairs: np.ndarray, out: np.ndarray) -> None:
    """Move sign, exponent and mantissa into float32's places; the bias is corrected by a factor."""
    codes = out.view(np.int32)
    lower = np.left_shift(pairs, _HALF_BITS, out=codes[: pairs.size])
    np.right_shift(lower, _EXPONENT_SHIFT, out=lower)
    np.right_shift(pairs, _EXPONENT_SHIFT, out=codes[pairs.size :])
    np.bitwise_and(codes, _FLOAT16_BITS, out=codes)
    np.multiply(out, _FLOAT16_SCALE, out=out)


def _split_bfloat16(pairs: np.ndarray, out: np.ndarray) -> None:
    """bf16 is the upper half of float32."""
    codes = out.view(np.int32)
    np.left_shift(pairs, _HALF_BITS, out=codes[: pairs.size])
    np.bitwise_and(pairs, _HIGH_HALF, out=codes[pairs.size :])


FLOAT16 = HalfType(0x7BFF, _split_float16)
BFLOAT16 = HalfType(0x7F7F, _split_bfloat16)


class Half(Kernel):
    """Adds chunks of a 16-bit type to totals."""

    def __init__(self, totals: Totals, kind: HalfType, buffers: Buffers | None = None) -> None:
        super().__init__(totals, buffers)
        self._kind = kind
        self.largest = kind.largest

    def _values(self, chunk: np.ndarray) -> np.ndarray:
        """:func:`in_order` puts them into the order of the elements."""
        return to_float32(chunk, self._kind, self._buffers.floats("values", chunk.size))

    def _zeros(self, chunk: np.ndarray) -> int:
        """Zeros of both signs."""
        codes, flags, found = chunk.view(np.uint16), self._buffers.flags("zeros", chunk.size), 0
        for present, code in zip(zero_codes(chunk), (0, _SIGN), strict=True):
            if present:
                found += int(np.count_nonzero(np.equal(codes, code, out=flags)))
        return found


def to_float32(chunk: np.ndarray, kind: HalfType, out: np.ndarray) -> np.ndarray:
    """Fill ``out`` with the values of ``chunk``: each other one, those between, the one without a neighbour.

    :func:`in_order` knows which come first.

    Codes of NaN and infinities of float16 do not come out as such.
    """
    pairs = chunk.size // 2
    if chunk.size % 2:
        out[-1] = chunk[-1]
    kind.split(_pairs(chunk, pairs), out[: 2 * pairs])
    return out


def in_order(values: np.ndarray, out: np.ndarray) -> np.ndarray:
    """Fill ``out`` with ``values``, which :func:`to_float32` made, in the order of the elements."""
    pairs = values.size // 2
    lower = 0 if sys.byteorder == "little" else 1
    out[lower : 2 * pairs : 2] = values[:pairs]
    out[1 - lower : 2 * pairs : 2] = values[pairs : 2 * pairs]
    out[2 * pairs :] = values[2 * pairs :]
    return out


def _pairs(chunk: np.ndarray, pairs: int) -> np.ndarray:
    found: np.ndarray = chunk[: 2 * pairs].view(np.int32)
    if not found.flags.aligned:
        found = found.copy()
    return found
