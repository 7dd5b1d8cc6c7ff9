"""Statistics of a tensor whose elements arrive piece by piece: one object a tensor, one method a piece.

Sums are rounded piece by piece, so that two ways to cut one tensor may differ in the last digits. Pieces of
:data:`~pytest_npudump.dump.bytes.chunks.CHUNK_BYTES`, counted from the first element, are what files are
read in.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Protocol

import numpy as np

from pytest_npudump.dump.arrays.decode import VIEWED, DecodeError, numpy_dtype
from pytest_npudump.dump.stats.float import Float32
from pytest_npudump.dump.stats.float64 import Float64, Squares
from pytest_npudump.dump.stats.half import BFLOAT16, FLOAT16, Half
from pytest_npudump.dump.stats.int import Codes, Integer, add_histogram
from pytest_npudump.dump.stats.totals import Totals
from pytest_npudump.dump.values.dtypes import BY_NAME
from pytest_npudump.dump.values.small_floats import (
    float4_table,
    hifloat8_table,
    sign_extend,
    unpack,
)

_NO_NUMBERS = {np.bytes_, np.str_, np.void}
_HALVES = {"float16": FLOAT16, "bfloat16": BFLOAT16}
_BYTE = 8


class Running(Protocol):
    """What the statistics of one tensor add up to.

    Attributes:
        dtype: numpy type of the pieces; ``uint8`` for packed types, whose pieces are bytes.
    """

    dtype: np.dtype

    def add(self, piece: np.ndarray) -> None:
        """Add a contiguous, aligned, native piece of shape (n,), n > 0; it may be overwritten afterwards."""

    def totals(self) -> Totals:
        """Return the totals of all pieces so far; they are not to be changed."""


class _Kernel(Protocol):
    def add(self, chunk: np.ndarray) -> None: ...


class _Ordered:
    """Floats and integers of 16 bits and more."""

    def __init__(self, dtype: np.dtype) -> None:
        self.dtype = dtype
        self._totals = Totals()
        self._squares = Squares()
        self._kernel: _Kernel | None = None

    def add(self, piece: np.ndarray) -> None:
        if self._kernel is None:
            self._kernel = _kernel(self._totals, self._squares, self.dtype)
        self._kernel.add(piece)

    def totals(self) -> Totals:
        return self._squares.settled(self._totals)


def _kernel(totals: Totals, squares: Squares, dtype: np.dtype) -> _Kernel:
    if dtype.name == "float32":
        return Float32(totals)
    if dtype.name == "float64":
        return Float64(totals, squares)
    if dtype.name in _HALVES:
        return Half(totals, _HALVES[dtype.name])
    return Integer(totals)


class _Bytes:
    """Types of 8 bits that numpy or ml_dtypes has."""

    def __init__(self, dtype: np.dtype) -> None:
        self.dtype = dtype
        self._codes = Codes()

    def add(self, piece: np.ndarray) -> None:
        self._codes.add(piece.view(np.uint8))

    def totals(self) -> Totals:
        totals = Totals()
        dtype = np.dtype(np.uint8) if self.dtype.kind == "b" else self.dtype
        values = np.arange(256, dtype=np.uint8).view(dtype).astype(np.float64)
        counts = self._codes.histogram.tolist()
        add_histogram(totals, values, counts, integer=self.dtype.kind in "biu")
        return totals


class _Complex:
    """complex64 and complex128."""

    def __init__(self, dtype: np.dtype) -> None:
        self.dtype = dtype
        self._part = np.dtype(np.float32 if dtype.itemsize == 8 else np.float64)  # noqa: PLR2004 - bytes of complex64
        self._parts, self._totals, self._squares = Totals(), Totals(), Squares()

    def add(self, piece: np.ndarray) -> None:
        _kernel(self._parts, self._squares, self._part).add(piece.view(self._part))
        self._totals.count += piece.size
        self._totals.nan += int(np.count_nonzero(np.isnan(piece)))
        self._totals.zero += int(piece.size - np.count_nonzero(piece))

    def totals(self) -> Totals:
        return _of_parts(self._totals, self._squares.settled(self._parts))


class _Complex32:
    """complex32, two float16 each, as bytes."""

    dtype = np.dtype(np.uint8)

    def __init__(self) -> None:
        self._parts, self._totals = Totals(), Totals()

    def add(self, piece: np.ndarray) -> None:
        values = piece.view(np.float16)
        Half(self._parts, FLOAT16).add(values)
        pairs = values.reshape(-1, 2)
        self._totals.count += len(pairs)
        self._totals.nan += int(np.count_nonzero(np.isnan(pairs).any(axis=1)))
        self._totals.zero += int(np.count_nonzero((pairs == 0).all(axis=1)))

    def totals(self) -> Totals:
        return _of_parts(self._totals, self._parts)


def _of_parts(whole: Totals, parts: Totals) -> Totals:
    """Totals of complex numbers: the magnitudes' squares are those of the parts, and there is no order."""
    return replace(
        whole,
        squares=parts.squares,
        scale=parts.scale,
        pos_inf=parts.pos_inf,
        neg_inf=parts.neg_inf,
        ordered=False,
    )


class _Packed:
    """Types below 8 bits, bool and hifloat8, as bytes; the last byte may be filled in part."""

    dtype = np.dtype(np.uint8)

    def __init__(self, name: str, count: int) -> None:
        self._name, self._count = name, count
        self._codes = Codes()
        self._last = np.zeros(1, np.uint8)

    def add(self, piece: np.ndarray) -> None:
        self._codes.add(piece)
        self._last[:] = piece[-1:]

    def totals(self) -> Totals:
        totals = Totals()
        values, counts = _code_counts(self._codes.histogram, self._last, self._name, self._count)
        integer = "int" in self._name or self._name == "bool"
        add_histogram(totals, values, counts.tolist(), integer=integer)
        return totals


def _code_counts(
    histogram: np.ndarray, last: np.ndarray, dtype: str, count: int
) -> tuple[np.ndarray, np.ndarray]:
    """The values of a packed type, float64 of shape (2**bits,), and how often each occurs."""
    bits = BY_NAME[dtype].bits
    values = np.arange(1 << bits, dtype=np.uint8)
    if dtype == "hifloat8":
        return hifloat8_table().astype(np.float64), histogram
    if dtype == "bool":
        return values.astype(np.float64), histogram
    per_byte = _BYTE // bits
    codes = unpack(np.arange(256, dtype=np.uint8), bits, 256 * per_byte).reshape(256, per_byte)
    counts = np.zeros(1 << bits, np.int64)
    for place in range(per_byte):
        np.add.at(counts, codes[:, place], histogram)
    spare = int(histogram.sum()) * per_byte - count
    if spare:
        unused = unpack(last, bits, per_byte, high_first=dtype == "uint1")
        np.subtract.at(counts, unused[per_byte - spare :], 1)
    if dtype.startswith("float4"):
        return float4_table(dtype).astype(np.float64), counts
    signed = dtype.startswith("int")
    return (sign_extend(values, bits) if signed else values).astype(np.float64), counts


def running_array(dtype: np.dtype) -> Running:
    """Statistics of pieces of a numpy array.

    Raises:
        DecodeError: the type has no numeric meaning.
    """
    if dtype.type not in _NO_NUMBERS:
        if dtype.kind == "c":
            return _Complex(dtype)
        if dtype.itemsize == 1 and dtype.kind not in "mMO":
            return _Bytes(dtype)
        if dtype.name in {"float32", "float64", *_HALVES} or dtype.kind in "iu":
            return _Ordered(dtype)
    raise DecodeError(f"no statistics for arrays of type {dtype}")


def is_packed(dtype: str) -> bool:
    """Whether pieces of the dump's type ``dtype`` are bytes: an array of it would have to be a copy."""
    return dtype not in VIEWED


def running_raw(dtype: str, count: int) -> Running:
    """Statistics of the ``count`` elements of a tensor in a dump whose type, called ``dtype``, has values."""
    if dtype == "complex32":
        return _Complex32()
    if is_packed(dtype):
        return _Packed(dtype, count)
    return running_array(numpy_dtype(dtype))
