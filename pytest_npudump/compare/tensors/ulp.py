"""Distances in units in the last place: how many values of the type away; +0 and -0 are one."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from pytest_npudump.dump.bytes.buffers import Buffers

if TYPE_CHECKING:
    from pytest_npudump.compare.tensors.measures import Measures

_BLOCK_BYTES = 1 << 18
_COLUMNS = 2048
_PROBE = 2048
"""Elements among which those of unlike chunks most often have unlike signs."""
_LEAST_ROWS, _MOST_ROWS = 8, 32
_LONG = 8
"""Bytes of the type whose distances may add up to more than 64 bits hold."""


def add_ulp(
    measures: Measures,
    golden: np.ndarray,
    actual: np.ndarray,
    buffers: Buffers,
    *,
    finite: np.ndarray | None = None,
) -> None:
    """Add the distances of two chunks of one floating-point type, of shape (n,).

    ``finite`` is set where neither is NaN or infinite; None where all are.
    """
    block = _BLOCK_BYTES // golden.itemsize
    for start in range(0, golden.size, block):
        part = slice(start, start + block)
        gap = _ordered_gap(golden[part], actual[part], buffers)
        pairs = gap.size
        if finite is not None:
            np.multiply(gap, finite[part], out=gap)
            pairs = int(np.count_nonzero(finite[part]))
        highest = int(np.maximum.reduce(gap))
        measures.take_ulp(highest, _sum(gap, highest, buffers), pairs)


def distances(one: np.ndarray, other: np.ndarray) -> np.ndarray:
    """Return how many values of their floating-point type two flat arrays are apart, as unsigned integers.

    An infinity is the next value behind the largest number; of NaN the distance means nothing.
    """
    apart: np.ndarray = _ordered_gap(one, other, Buffers()).copy()
    return apart


def _sum(gap: np.ndarray, highest: int, buffers: Buffers) -> float:
    """The sum of distances of shape (n,), the largest of which is ``highest``."""
    if gap.itemsize < _LONG:
        return float(_exact_sum(gap, highest, buffers))
    wide = buffers.doubles("ulp", gap.size)
    np.copyto(wide, gap)
    return float(np.add.reduce(wide))


def _ordered_gap(golden: np.ndarray, actual: np.ndarray, buffers: Buffers) -> np.ndarray:
    one, other = ordered(golden, "ulp one", buffers), ordered(actual, "ulp other", buffers)
    unsigned = np.dtype(f"u{one.itemsize}")
    high: np.ndarray = np.maximum(one, other, out=buffers.array("ulp high", one.size, one.dtype)).view(
        unsigned
    )
    low = np.minimum(one, other, out=one).view(unsigned)
    np.subtract(high, low, out=high)
    return high


def ordered(values: np.ndarray, name: str, buffers: Buffers) -> np.ndarray:
    """Signed integers of the size of ``values``, in the order of the values and as far apart as they."""
    signed = np.dtype(f"i{values.itemsize}")
    if values.dtype.name == "float8_e8m0fnu":
        found = buffers.array(name, values.size, np.dtype(np.int16))
        np.copyto(found, values.view(np.uint8))
        return found
    codes = values.view(signed)
    found, sign = buffers.array(name, codes.size, signed), buffers.array("ulp high", codes.size, signed)
    np.right_shift(codes, 8 * codes.itemsize - 1, out=sign)
    np.bitwise_and(sign, np.iinfo(signed).max, out=found)
    np.bitwise_xor(found, codes, out=found)
    np.subtract(found, sign, out=found)
    return found


def add_near_ulp(measures: Measures, golden: np.ndarray, actual: np.ndarray, buffers: Buffers) -> bool:
    """Add the distances of chunks of 16 or 32-bit floats whose signs are the same, or return False.

    Codes of one sign are in the order of the magnitudes, and their distance fits a code.
    """
    signed = np.dtype(f"i{golden.dtype.itemsize}")
    one, other = golden.view(signed), actual.view(signed)
    gap = buffers.array("distance", golden.size, signed)
    if int(np.minimum.reduce(np.bitwise_xor(one[:_PROBE], other[:_PROBE]))) < 0:
        return False
    if int(np.minimum.reduce(np.bitwise_xor(one, other, out=gap))) < 0:
        return False
    np.abs(np.subtract(one, other, out=gap), out=gap)
    highest = int(np.maximum.reduce(gap))
    measures.take_ulp(highest, float(_exact_sum(gap, highest, buffers)), gap.size)
    return True


def _exact_sum(values: np.ndarray, highest: int, buffers: Buffers) -> int:
    """The sum of integers of shape (n,) from 0 to ``highest``, added in their own type while they fit.

    The halves of the digits of larger ones are added apart.
    """
    rows = min(np.iinfo(values.dtype).max // max(highest, 1), _MOST_ROWS)
    if rows < _LEAST_ROWS:
        digits = 4 * values.itemsize
        part, most = buffers.array("ulp part", values.size, values.dtype), (1 << digits) - 1
        upper = _exact_sum(np.right_shift(values, digits, out=part), highest >> digits, buffers)
        return (upper << digits) + _exact_sum(np.bitwise_and(values, most, out=part), most, buffers)
    whole = values.size - values.size % (rows * _COLUMNS)
    partial = np.add.reduce(values[:whole].reshape(-1, rows, _COLUMNS), axis=1, dtype=values.dtype)
    return sum(int(np.add.reduce(part, axis=None, dtype=np.int64)) for part in (partial, values[whole:]))
