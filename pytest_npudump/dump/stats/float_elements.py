"""The elements of any type of a dump as int16, float32 or float64, for sums under signs."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np

from pytest_npudump.dump.arrays.decode import DecodeError, decode, numpy_dtype, why_opaque
from pytest_npudump.dump.stats.accumulators import is_packed
from pytest_npudump.dump.stats.float import extremes
from pytest_npudump.dump.stats.half import BFLOAT16, FLOAT16, to_float32
from pytest_npudump.dump.values.dtypes import BY_NAME

if TYPE_CHECKING:
    from collections.abc import Callable

    from pytest_npudump.dump.stats.half import HalfType

_HALVES = {"float16": FLOAT16, "bfloat16": BFLOAT16}
_BYTE = 8
_PAIRED = 1 << 14
"""Codes of 8 bits from which on two are looked up at a time."""
_EXACT_BYTES = 2
"""Integers of up to so many bytes add up exactly in columns of 34 float32, those of one byte in int16."""


@dataclass(frozen=True, slots=True)
class Elements:
    """How the pieces of a tensor are read.

    Attributes:
        unit: numpy type that a piece is viewed as.
        per_unit: elements in one unit.
        columns: what elements are converted to, and added up in: int16 for integers of 8 bits, else float32
            where it holds them, else float64.
        values: the first so many elements of units of shape (n,), in an array of any numeric type.
        half: the type of 16 bits that is taken apart by shifts; None for others.
        table: the values of a type of 8 bits, float32 of shape (256,); None for others.
    """

    unit: np.dtype
    per_unit: int
    columns: type[np.int16 | np.float32 | np.float64]
    values: Callable[[np.ndarray, int], np.ndarray]
    half: HalfType | None = None
    table: np.ndarray | None = None

    @property
    def lanes(self) -> int:
        """2 where :meth:`fill` puts each other element first, else 1."""
        return 1 if self.half is None else 2

    def fill(self, units: np.ndarray, count: int, out: np.ndarray) -> np.ndarray | None:
        """Fill ``out``, of shape (n,) and of type ``columns``, with ``count`` elements and then with zeros.

        Those of 16 bits come as :func:`~pytest_npudump.dump.stats.half.to_float32` has them, each other one
        first; n is even there. None where they hold NaN or infinities; those of other types come as such.
        """
        if self.half is not None:
            if units.size < out.size:
                units = np.concatenate([units[:count], np.zeros(out.size - count, units.dtype)])
            return None if extremes(units, self.half.largest) is None else to_float32(units, self.half, out)
        if self.table is not None and count >= _PAIRED and not count % 2:
            pairs = _pairs(self.table.tobytes())
            pairs.take(units[:count].view(np.uint16), out=out[:count].view(np.uint64), mode="clip")
        else:
            np.copyto(out[:count], self.values(units, count), casting="unsafe")
        out[count:] = 0
        return out

    def wide(self, units: np.ndarray, count: int, size: int) -> np.ndarray:
        """The same as float64 of shape (size,), in the order of the elements."""
        if count == size:
            return self.values(units, count).astype(np.float64)
        found = np.zeros(size)
        np.copyto(found[:count], self.values(units, count), casting="unsafe")
        return found


def _plain(units: np.ndarray, count: int) -> np.ndarray:
    return units[:count]


@lru_cache(maxsize=32)
def array_elements(dtype: np.dtype) -> Elements:
    """Elements of arrays of a numpy type; both parts of a complex number are elements.

    Raises:
        DecodeError: the type has no numeric meaning.
    """
    if dtype.name in _HALVES:
        return Elements(dtype, 1, np.float32, _plain, _HALVES[dtype.name])
    if dtype.kind == "c":
        part = np.dtype(f"f{dtype.itemsize // 2}")
        return Elements(part, 1, part.type, _plain)
    if dtype.kind == "b":
        return Elements(np.dtype(np.uint8), 1, np.int16, _plain)
    if dtype.kind in "iu" and dtype.itemsize == 1:
        return Elements(dtype, 1, np.int16, _plain)
    if dtype.kind in "iu" or dtype.name in {"float32", "float64"}:
        small = dtype.name == "float32" or dtype.itemsize <= _EXACT_BYTES
        return Elements(dtype, 1, np.float32 if small else np.float64, _plain)
    if (dtype.itemsize == 1 and dtype.kind not in "SUVmMO") or dtype.name.startswith("float8"):
        return _looked_up(np.arange(256, dtype=np.uint8).view(dtype).astype(np.float32))
    raise DecodeError(f"no projections for arrays of type {dtype}")


def raw_elements(dtype: str) -> Elements:
    """Elements of tensors of the type called ``dtype``, whose pieces are bytes where the type is packed.

    Raises:
        DecodeError: the type has no values.
    """
    if why := why_opaque(dtype):
        raise DecodeError(f"no projections for tensors of type {dtype}: {why}")
    if dtype == "complex32":
        return array_elements(np.dtype(np.float16))
    if not is_packed(dtype):
        return array_elements(numpy_dtype(dtype).newbyteorder("="))
    if dtype in {"bool", "hifloat8"}:
        codes = np.arange(256, dtype=np.uint8)
        return _looked_up(decode(codes, dtype, codes.size).astype(np.float32))

    def values(units: np.ndarray, count: int) -> np.ndarray:
        return decode(units, dtype, count)

    return Elements(np.dtype(np.uint8), _BYTE // BY_NAME[dtype].bits, np.float32, values)


def _looked_up(table: np.ndarray) -> Elements:
    """Elements of a type of 8 bits whose 256 values are given."""

    def values(units: np.ndarray, count: int) -> np.ndarray:
        return table.take(units[:count])

    return Elements(np.dtype(np.uint8), 1, np.float32, values, table=table)


@lru_cache(maxsize=4)
def _pairs(table: bytes) -> np.ndarray:
    """The float32 of each two codes, as one number of 64 bits: of shape (65536,)."""
    values = np.frombuffer(table, np.float32)
    codes = np.arange(1 << 16, dtype=np.uint16).view(np.uint8)
    return values.take(codes).view(np.uint64)
