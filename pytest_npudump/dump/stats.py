"""Statistics of tensors, in one pass of cache-sized chunks whatever the size.

The definitions: max and min over all elements that are not NaN, infinities included (NaN where all are
NaN); avg and l2norm after IEEE's rules, so NaN as soon as one element is NaN or both infinities occur
in avg; l2norm is infinite with an infinity. bool counts as its byte. The bounds of the rounding errors
are in :mod:`pytest_npudump.dump.stats_float`; integer sums and all types up to 8 bits are exact.

ACL's device-side statistics differ (``acl=True``): a NaN in the first element makes max and min NaN,
while any later NaN is ignored; and it has statistics for a few types only.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING, Protocol

import numpy as np

from pytest_npudump.dump.decode import DecodeError, load, raw_bytes, why_opaque
from pytest_npudump.dump.dtypes import BY_NAME
from pytest_npudump.dump.records import Stats
from pytest_npudump.dump.small_floats import float4_table, hifloat8_table, sign_extend, unpack
from pytest_npudump.dump.stats_chunks import chunks
from pytest_npudump.dump.stats_float import Float32, Float64
from pytest_npudump.dump.stats_half import BFLOAT16, FLOAT16, Half
from pytest_npudump.dump.stats_int import Codes, Integer, add_histogram
from pytest_npudump.dump.stats_totals import Totals

if TYPE_CHECKING:
    from pytest_npudump.dump.records import Payload

ACL_TYPES = frozenset(
    {"float32", "float16", "float64", "bool", "int8", "uint8", "int16", "uint16", "int32", "uint32"}
    | {"int64", "uint64"}
)
"""The types that ACL's device-side statistics have numbers for (formats.md 1.3, last column)."""

_NO_NUMBERS = {np.bytes_, np.str_, np.void}


class _Kernel(Protocol):
    def add(self, chunk: np.ndarray) -> None: ...


def tensor_stats(array: np.ndarray, *, acl: bool = False) -> Stats:
    """The statistics of ``array``: any shape, strides and alignment, any numeric type of a dump.

    Complex: l2norm is that of the magnitudes, an element is NaN if a part is; max, min, avg and the
    counts of infinities are None. With ``acl`` all but ``count`` is None for types that ACL leaves out.

    Raises:
        DecodeError: the array's type has no numeric meaning.
    """
    if acl and (array.dtype.name not in ACL_TYPES or not array.size):
        return Stats(count=array.size)
    with np.errstate(all="ignore"):
        found = _totals(array).stats()
        if acl and array.dtype.kind == "f" and math.isnan(first := float(array.flat[0])):
            found = replace(found, max=first, min=first)
    return found


def payload_stats(payload: Payload, dtype: str, count: int, *, acl: bool = False) -> Stats | None:
    """The statistics of the first ``count`` elements of a payload of the type called ``dtype``.

    Memory does not grow with the payload. None where the type has no values, or ``acl`` is set and ACL
    has no statistics for it.

    Raises:
        DecodeError: the payload is smaller than ``count`` elements.
        FormatError: the file cannot be read.
    """
    if why_opaque(dtype) or (acl and dtype not in ACL_TYPES):
        return None
    bits = BY_NAME[dtype].bits
    if payload.kind == "raw" and (bits < 8 or dtype in {"hifloat8", "complex32", "bool"}):  # noqa: PLR2004 - bits of a byte
        return _packed_stats(payload, dtype, count, acl=acl)
    return tensor_stats(load(payload, dtype, (count,) if payload.kind == "raw" else None), acl=acl)


def _totals(array: np.ndarray) -> Totals:
    totals = Totals()
    name = array.dtype.name
    if array.dtype.type in _NO_NUMBERS or array.dtype.kind in "mMO":
        raise DecodeError(f"no statistics for arrays of type {array.dtype}")
    if array.dtype.kind == "c":
        _add_complex(totals, array)
    elif array.dtype.itemsize == 1:
        _add_bytes(totals, array)
    elif name == "float64":
        kernel = Float64(totals)
        _add(kernel, array)
        kernel.finish(chunks(array))
    else:
        _add(_kernel(totals, array.dtype), array)
    return totals


def _kernel(totals: Totals, dtype: np.dtype) -> _Kernel:
    if dtype.name == "float32":
        return Float32(totals)
    if dtype.name in {"float16", "bfloat16"}:
        return Half(totals, FLOAT16 if dtype.name == "float16" else BFLOAT16)
    if dtype.kind in "iu":
        return Integer(totals)
    raise DecodeError(f"no statistics for arrays of type {dtype}")


def _add(kernel: _Kernel, array: np.ndarray) -> None:
    for chunk in chunks(array):
        kernel.add(chunk)


def _add_bytes(totals: Totals, array: np.ndarray) -> None:
    codes = Codes()
    _add(codes, array.view(np.uint8))
    dtype = np.dtype(np.uint8) if array.dtype.kind == "b" else array.dtype
    values = np.arange(256, dtype=np.uint8).view(dtype).astype(np.float64)
    add_histogram(totals, values, codes.histogram.tolist(), integer=array.dtype.kind in "biu")


def _add_complex(totals: Totals, array: np.ndarray) -> None:
    part = np.dtype(np.float32 if array.dtype.itemsize == 8 else np.float64)  # noqa: PLR2004 - bytes of complex64
    parts = Totals()
    for chunk in chunks(array):
        kernel = Float32(parts) if part.itemsize == 4 else Float64(parts)  # noqa: PLR2004 - bytes of float32
        kernel.add(chunk.view(part))
        totals.count += chunk.size
        totals.nan += int(np.count_nonzero(np.isnan(chunk)))
        totals.zero += int(chunk.size - np.count_nonzero(chunk))
    if part.itemsize == 8:  # noqa: PLR2004 - bytes of float64
        Float64(parts).finish(chunk.view(part) for chunk in chunks(array))
    totals.squares, totals.scale, totals.ordered = parts.squares, parts.scale, False
    totals.pos_inf, totals.neg_inf = parts.pos_inf, parts.neg_inf


def _packed_stats(payload: Payload, dtype: str, count: int, *, acl: bool) -> Stats:
    """Statistics of a type that would have to be copied to be an array."""
    needed = (count * BY_NAME[dtype].bits + 7) // 8
    data = raw_bytes(payload)
    if needed > len(data):
        raise DecodeError(
            f"{payload.path}, byte {payload.offset}: {count} elements of {dtype} need {needed} bytes, "
            f"the tensor has {len(data)}"
        )
    if dtype == "complex32":
        return _complex32_stats(data[:needed], count)
    if acl and not count:
        return Stats(count=0)
    codes = Codes()
    _add(codes, data[:needed])
    totals = Totals()
    values, counts = _code_counts(codes.histogram, data[:needed], dtype, count)
    add_histogram(totals, values, counts.tolist(), integer="int" in dtype or dtype == "bool")
    return totals.stats()


def _code_counts(
    histogram: np.ndarray, data: np.ndarray, dtype: str, count: int
) -> tuple[np.ndarray, np.ndarray]:
    """The values of a packed type, float64 of shape (2**bits,), and how often each occurs."""
    bits = BY_NAME[dtype].bits
    values = np.arange(1 << bits, dtype=np.uint8)
    if dtype == "hifloat8":
        return hifloat8_table().astype(np.float64), histogram
    if dtype == "bool":
        return values.astype(np.float64), histogram
    per_byte = 8 // bits
    codes = unpack(np.arange(256, dtype=np.uint8), bits, 256 * per_byte).reshape(256, per_byte)
    counts = np.zeros(1 << bits, np.int64)
    for place in range(per_byte):
        np.add.at(counts, codes[:, place], histogram)
    spare = len(data) * per_byte - count
    if spare:
        last = unpack(data[-1:], bits, per_byte, high_first=dtype == "uint1")
        np.subtract.at(counts, last[per_byte - spare :], 1)
    if dtype.startswith("float4"):
        return float4_table(dtype).astype(np.float64), counts
    signed = dtype.startswith("int")
    return (sign_extend(values, bits) if signed else values).astype(np.float64), counts


def _complex32_stats(data: np.ndarray, count: int) -> Stats:
    totals, parts = Totals(count=count, ordered=False), Totals()
    for chunk in chunks(data):
        values = chunk.view(np.float16)
        with np.errstate(all="ignore"):
            Half(parts, FLOAT16).add(values)
            pairs = values.reshape(-1, 2)
            totals.nan += int(np.count_nonzero(np.isnan(pairs).any(axis=1)))
            totals.zero += int(np.count_nonzero((pairs == 0).all(axis=1)))
    totals.squares, totals.pos_inf, totals.neg_inf = parts.squares, parts.pos_inf, parts.neg_inf
    return totals.stats()
