"""Statistics of a tensor whose elements arrive piece by piece: one object a tensor, one method a piece.

Sums are rounded piece by piece, so that two ways to cut one tensor may differ in the last digits. Pieces of
:data:`~pytest_npudump.dump.bytes.chunks.CHUNK_BYTES`, counted from the first element, are what files are
read in.
"""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache
from typing import TYPE_CHECKING, Protocol

import numpy as np

from pytest_npudump.dump.arrays.decode import VIEWED, DecodeError, numpy_dtype
from pytest_npudump.dump.bytes.buffers import scratch_buffers
from pytest_npudump.dump.stats.float import Float32, Kernel
from pytest_npudump.dump.stats.float64 import Float64
from pytest_npudump.dump.stats.half import BFLOAT16, FLOAT16, Half
from pytest_npudump.dump.stats.int import Byte, Codes, Integer, add_histogram
from pytest_npudump.dump.stats.totals import Totals
from pytest_npudump.dump.values.dtypes import BY_NAME
from pytest_npudump.dump.values.small_floats import float4_table, hifloat8_table, sign_extend, unpack

if TYPE_CHECKING:
    from pytest_npudump.dump.bytes.buffers import Buffers

_NO_NUMBERS = {np.bytes_, np.str_, np.void}
_HALVES = {"float16": FLOAT16, "bfloat16": BFLOAT16}
_BYTE = 8
_MAGNITUDES, _INFINITY = 0x7FFF7FFF, 0x7C00
"""Of two float16: their codes without the signs. Of one: the code of infinity."""


@lru_cache(maxsize=64)
def dtype_name(dtype: np.dtype) -> str:
    """Numpy's name of a type; it takes numpy three microseconds to put it together."""
    return str(dtype.name)


class Accumulator(Protocol):
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


class Ordered:
    """Integers, bool as such, and floats of 16 bits and more."""

    def __init__(self, dtype: np.dtype, buffers: Buffers | None = None) -> None:
        self.dtype = dtype
        self._totals = Totals()
        self.kernel = _kernel(self._totals, dtype, buffers)

    @property
    def float_kernel(self) -> Kernel:
        """What measures pieces of floats of 16 and 32 bits."""
        assert isinstance(self.kernel, Kernel)  # noqa: S101 - asked of these types only
        return self.kernel

    def add(self, piece: np.ndarray) -> None:
        """As :meth:`Accumulator.add`."""
        self.kernel.add(piece)

    def totals(self) -> Totals:
        """As :meth:`Accumulator.totals`."""
        return self._totals


def _kernel(totals: Totals, dtype: np.dtype, buffers: Buffers | None = None) -> _Kernel:
    name = dtype_name(dtype)
    if name == "float32":
        return Float32(totals, buffers)
    if name == "float64":
        return Float64(totals)
    if name in _HALVES:
        return Half(totals, _HALVES[name], buffers)
    return Integer(totals) if dtype.itemsize > 1 else Byte(totals)


class _Bytes:
    """Floats of 8 bits that ml_dtypes has."""

    def __init__(self, dtype: np.dtype) -> None:
        self.dtype = dtype
        self._codes = Codes()

    def add(self, piece: np.ndarray) -> None:
        self._codes.add(piece.view(np.uint8))

    def totals(self) -> Totals:
        totals = Totals()
        values = np.arange(256, dtype=np.uint8).view(self.dtype).astype(np.float64)
        add_histogram(totals, values, self._codes.histogram.tolist(), integer=False)
        return totals


class _Complex:
    """complex64 and complex128."""

    def __init__(self, dtype: np.dtype) -> None:
        self.dtype = dtype
        self._part = np.dtype(np.float32 if dtype.itemsize == 8 else np.float64)  # noqa: PLR2004 - bytes of complex64
        self._parts, self._totals = Totals(), Totals()
        self._kernel = _kernel(self._parts, self._part)

    def add(self, piece: np.ndarray) -> None:
        parts = piece.view(self._part)
        self._kernel.add(parts)
        self._totals.count += piece.size
        self._totals.nan += int(np.count_nonzero(np.isnan(piece)))
        moved = np.not_equal(parts, 0, out=scratch_buffers().flags("zeros", parts.size))
        self._totals.zero += int(piece.size - np.count_nonzero(moved.view(np.uint16)))

    def totals(self) -> Totals:
        return _of_parts(self._totals, self._parts)


class _Complex32:
    """complex32, two float16 each, as bytes."""

    dtype = np.dtype(np.uint8)

    def __init__(self) -> None:
        self._parts, self._totals = Totals(), Totals()

    def add(self, piece: np.ndarray) -> None:
        nan = self._parts.nan
        Half(self._parts, FLOAT16).add(piece.view(np.float16))
        codes = piece.view(np.uint32)
        magnitudes = scratch_buffers().array("magnitudes", codes.size, codes.dtype)
        np.bitwise_and(codes, np.uint32(_MAGNITUDES), out=magnitudes)
        self._totals.count += magnitudes.size
        self._totals.zero += int(magnitudes.size - np.count_nonzero(magnitudes))
        if self._parts.nan > nan:
            pairs = (magnitudes.view(np.uint16) > _INFINITY).view(np.uint16)
            self._totals.nan += int(np.count_nonzero(pairs))

    def totals(self) -> Totals:
        return _of_parts(self._totals, self._parts)


def _of_parts(whole: Totals, parts: Totals) -> Totals:
    """Totals of complex numbers: the magnitudes' squares are those of the parts, and there is no order."""
    return replace(
        whole,
        squares=parts.squares,
        pos_inf=parts.pos_inf,
        neg_inf=parts.neg_inf,
        ordered=False,
    )


class _Packed:
    """Types below 8 bits and hifloat8, as bytes; the last byte may be filled in part."""

    dtype = np.dtype(np.uint8)

    def __init__(self, name: str, count: int | None) -> None:
        self._name, self._count = name, count
        self._codes = Codes()
        self._last = np.zeros(1, np.uint8)

    def add(self, piece: np.ndarray) -> None:
        self._codes.add(piece)
        self._last[:] = piece[-1:]

    def totals(self) -> Totals:
        totals = Totals()
        values, counts = _code_counts(self._codes.histogram, self._last, self._name, self._count)
        add_histogram(totals, values, counts.tolist(), integer="int" in self._name)
        return totals


def _code_counts(
    histogram: np.ndarray, last: np.ndarray, dtype: str, count: int | None
) -> tuple[np.ndarray, np.ndarray]:
    """The values of a packed type, float64 of shape (2**bits,), and how often each occurs."""
    bits = BY_NAME[dtype].bits
    values = np.arange(1 << bits, dtype=np.uint8)
    if dtype == "hifloat8":
        return hifloat8_table().astype(np.float64), histogram
    per_byte = _BYTE // bits
    codes = unpack(np.arange(256, dtype=np.uint8), bits, 256 * per_byte).reshape(256, per_byte)
    counts = np.zeros(1 << bits, np.int64)
    for place in range(per_byte):
        np.add.at(counts, codes[:, place], histogram)
    spare = 0 if count is None else int(histogram.sum()) * per_byte - count
    if spare:
        unused = unpack(last, bits, per_byte, high_first=dtype == "uint1")
        np.subtract.at(counts, unused[per_byte - spare :], 1)
    if dtype.startswith("float4"):
        return float4_table(dtype).astype(np.float64), counts
    signed = dtype.startswith("int")
    return (sign_extend(values, bits) if signed else values).astype(np.float64), counts


def array_accumulator(dtype: np.dtype) -> Accumulator:
    """Statistics of pieces of a numpy array.

    Raises:
        DecodeError: the type has no numeric meaning.
    """
    if dtype.type not in _NO_NUMBERS:
        if dtype.kind == "c":
            return _Complex(dtype)
        if dtype_name(dtype) in {"float32", "float64", *_HALVES} or dtype.kind in "biu":
            return Ordered(dtype)
        if dtype.itemsize == 1 and dtype.kind not in "mMO":
            return _Bytes(dtype)
    raise DecodeError(f"no statistics for arrays of type {dtype}")


def is_packed(dtype: str) -> bool:
    """Whether pieces of the dump's type ``dtype`` are bytes: an array of it would have to be a copy."""
    return dtype not in VIEWED


def raw_accumulator(dtype: str, count: int | None) -> Accumulator:
    """Statistics of the ``count`` elements of a tensor in a dump whose type, called ``dtype``, has values.

    None stands for all that the bytes hold.
    """
    if dtype == "complex32":
        return _Complex32()
    if dtype == "bool":
        return Ordered(np.dtype(np.uint8))
    if is_packed(dtype):
        return _Packed(dtype, count)
    return array_accumulator(numpy_dtype(dtype))
