"""Distances in units in the last place: how many values of the type away; +0 and -0 are one."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from pytest_npudump.compare.tensors.measures import Measures
    from pytest_npudump.dump.bytes.buffers import Buffers

_BLOCK = 1 << 16
_COLUMNS = 2048
_LEAST_ROWS, _MOST_ROWS = 8, 64


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
    for start in range(0, golden.size, _BLOCK):
        part = slice(start, start + _BLOCK)
        gap = _ordered_gap(golden[part], actual[part], buffers)
        pairs = gap.size
        if finite is not None:
            np.multiply(gap, finite[part], out=gap)
            pairs = int(np.count_nonzero(finite[part]))
        wide = buffers.doubles("ulp", gap.size)
        np.copyto(wide, gap)
        measures.take_ulp(int(np.maximum.reduce(gap)), float(np.add.reduce(wide)), pairs)


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
    if int(np.minimum.reduce(np.bitwise_xor(one, other, out=gap))) < 0:
        return False
    np.abs(np.subtract(one, other, out=gap), out=gap)
    highest = int(np.maximum.reduce(gap))
    measures.take_ulp(highest, float(_exact_sum(gap, highest)), gap.size)
    return True


def _exact_sum(values: np.ndarray, highest: int) -> int:
    """The sum of integers of shape (n,) from 0 to ``highest``, added in their own type while they fit."""
    rows = min(np.iinfo(values.dtype).max // max(highest, 1), _MOST_ROWS)
    whole = values.size - values.size % (rows * _COLUMNS)
    if rows < _LEAST_ROWS:
        return int(np.add.reduce(values, dtype=np.int64))
    partial = np.add.reduce(values[:whole].reshape(-1, rows, _COLUMNS), axis=1, dtype=values.dtype)
    return sum(int(np.add.reduce(part, axis=None, dtype=np.int64)) for part in (partial, values[whole:]))
