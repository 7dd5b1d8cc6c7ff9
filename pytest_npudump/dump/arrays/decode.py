"""Decoding of a tensor's bytes to an array: a view of the file where numpy or ml_dtypes has the type.

Packed types: the first element lies in the low bits of a byte, in UINT1 in the high bit (as msaccucmp
unpacks it). For float4 the order decides only which of two neighbours comes first, not their values. Types
that have to be unpacked are read a piece at a time: memory does not grow with them.

npy files are read as CANN's, MindSpore's and torch's tools write them, and never with pickle.
MindSpore saves bf16 under the descr ``<E2`` (2.10.0) or ``<T2`` (older), which numpy refuses to load. Its CPU
kernels compute some operators of float16 and float64 in float32: their files hold float32, and header and
name still say the network's type. Floats of 8 bits go by their names, in our own files.
"""

from __future__ import annotations

import ast
import math
import struct
import sys
from dataclasses import dataclass
from functools import cache, lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import ml_dtypes
import numpy as np

from pytest_npudump.dump.arrays.layouts import JoinedTensor, host_values, lies_in
from pytest_npudump.dump.dtypes import BY_NAME
from pytest_npudump.dump.filebytes import RawFile, c_order_chunks, open_raw, pieces_of, raw_bytes
from pytest_npudump.errors import DumpError, FormatError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pytest_npudump.dump.records import Payload, TensorRecord


MAGIC = b"\x93NUMPY"

_VERSION = struct.Struct("<BB")
_LENGTHS = {1: struct.Struct("<H"), 2: struct.Struct("<I"), 3: struct.Struct("<I")}
_HEADER_LIMIT = 1 << 20
_DIM_LIMIT = 1 << 63
_BFLOAT16 = {"<E2", "<T2", "bfloat16"}
_NARROW = ("float8_e4m3fn", "float8_e5m2", "float8_e8m0fnu", "float8_e4m3fnuz", "float8_e5m2fnuz")
_PLAIN: dict[str, np.dtype] = {
    **{
        dtype.str: dtype
        for code in "?bBhHiIqQefdFD"
        for dtype in (np.dtype(f"<{code}"), np.dtype(f">{code}"))
    },
    "bfloat16": np.dtype(ml_dtypes.bfloat16),
    **{name: np.dtype(getattr(ml_dtypes, name)) for name in _NARROW},
}


_FLOAT32, _COMPUTED_AS_FLOAT32 = np.dtype("<f4"), {np.dtype("<f2"), np.dtype("<f8")}


@dataclass(frozen=True, slots=True)
class NpyHeader:
    """Header of an npy file.

    Attributes:
        dtype: of the elements; bf16 as ``ml_dtypes.bfloat16``.
        shape: as in the header.
        fortran_order: whether the first axis varies fastest.
        offset: first byte of the data.
        nbytes: bytes of data.
        said: the type that the header names; that of the elements but for what MindSpore mislabels.
    """

    dtype: np.dtype
    shape: tuple[int, ...]
    fortran_order: bool
    offset: int
    nbytes: int
    said: np.dtype


def read_npy_header(path: Path, *, may_be_float32: bool = False) -> NpyHeader:
    """Read and check the header of an npy file of version 1, 2 or 3.

    Args:
        path: the file.
        may_be_float32: whether a header of float16 or float64 may stand before float32, which the number of
            bytes then tells: so in a tree of MindSpore's.

    Raises:
        FormatError: no npy file, an element type that is no plain number, or not exactly the bytes of
            data that the header asks for.
    """
    with open_raw(path) as file:
        return npy_header(file, may_be_float32=may_be_float32)


def load_npy(path: Path, *, may_be_float32: bool = False) -> np.ndarray:
    """The array of an npy file, as a read-only view of the file's pages.

    Arguments and exceptions are those of :func:`read_npy_header`.
    """
    with open_raw(path) as file:
        header = npy_header(file, may_be_float32=may_be_float32)
        data = file.map(header.offset, header.nbytes, "the array")
    array: np.ndarray = data.view(header.dtype)
    return array.reshape(header.shape[::-1]).T if header.fortran_order else array.reshape(header.shape)


def npy_header(
    file: RawFile, begin: int = 0, size: int | None = None, *, may_be_float32: bool = False
) -> NpyHeader:
    """Read and check a header as :func:`read_npy_header` does, in a part of a file.

    Args:
        file: an open one.
        begin: first byte of the part.
        size: of the part; None for the whole file.
        may_be_float32: as there.

    Raises:
        FormatError: as there.
    """
    end = file.size if size is None else begin + size
    if (magic := file.read(begin, len(MAGIC), "the magic")) != MAGIC:
        raise file.error(begin, f"begins with {magic!r}, expected {MAGIC!r}: this is no npy file")
    major, minor = _VERSION.unpack(file.read(begin + len(MAGIC), _VERSION.size, "the version"))
    if major not in _LENGTHS or minor:
        raise file.error(begin + len(MAGIC), f"npy version {major}.{minor}, expected 1.0, 2.0 or 3.0")
    start = begin + len(MAGIC) + _VERSION.size
    form = _LENGTHS[major]
    (length,) = form.unpack(file.read(start, form.size, "the header's length"))
    start += form.size
    if length > _HEADER_LIMIT:
        raise file.error(start, f"header of {length} bytes, expected at most {_HEADER_LIMIT}")
    text = file.read(start, length, "the header").decode("utf-8" if major == 3 else "latin-1", "replace")  # noqa: PLR2004 - npy version 3 means UTF-8
    dtype, shape, fortran = _parsed(file, text, start)
    offset = start + length
    count, held = math.prod(shape), dtype
    if (
        may_be_float32
        and count
        and dtype in _COMPUTED_AS_FLOAT32
        and end - offset == count * _FLOAT32.itemsize
    ):
        held = _FLOAT32
    nbytes = count * held.itemsize
    if offset + nbytes != end:
        raise file.error(
            offset,
            f"the array needs {nbytes} bytes, the file has {end - offset} for it: "
            "it is truncated or damaged, collect the dump again",
        )
    return NpyHeader(held, shape, fortran, offset, nbytes, dtype)


def _parsed(file: RawFile, text: str, start: int) -> tuple[np.dtype, tuple[int, ...], bool]:
    try:
        fields = ast.literal_eval(text.strip())
        descr, fortran, shape = fields["descr"], fields["fortran_order"], fields["shape"]
    except (SyntaxError, ValueError, TypeError, KeyError, RecursionError, MemoryError) as error:
        raise file.error(
            start, f"the header is no dictionary of descr, fortran_order and shape: {text[:80]!r}"
        ) from error
    is_shape = isinstance(shape, tuple) and all(type(dim) is int and 0 <= dim < _DIM_LIMIT for dim in shape)
    if not is_shape or not isinstance(fortran, bool) or len(fields) != 3:  # noqa: PLR2004 - the three named above
        raise file.error(start, f"the header has an impossible shape or order: {text[:80]!r}")
    dtype = _PLAIN.get("bfloat16" if descr in _BFLOAT16 else descr) if isinstance(descr, str) else None
    if dtype is None:
        raise file.error(
            start, f"element type {descr!r}, expected a plain number such as '<f4' (or '<E2', '<T2' for bf16)"
        )
    return dtype, shape, fortran


_NAN, _INFINITY = 0x80, 0x6F
_SUBNORMALS = 8
_SUBNORMAL_BIAS = 23
_DOTS = ((2, 0b11, 4, 1), (2, 0b10, 3, 2), (2, 0b01, 2, 3), (3, 0b001, 1, 3), (4, 0b0001, 0, 3))
"""HIFLOAT8's prefixes: (prefix width, prefix, exponent width, mantissa width)."""


@cache
def hifloat8_table() -> np.ndarray:
    """The 256 values of HIFLOAT8, float32 of shape (256,), by code.

    Source: formats.md 1.8, checked against Huawei's package ``en_dtypes`` 0.0.4. CANN's own msaccucmp
    decodes 49 of them wrongly.
    """
    return _value_table(_hifloat8, 8)


@cache
def float4_table(name: str) -> np.ndarray:
    """The 16 values of ``float4_e2m1fn`` or ``float4_e1m2fn``, float32 of shape (16,), by code.

    Both have exponent bias 1 and neither has infinities or NaN.
    """
    mantissa_bits = {"float4_e2m1fn": 1, "float4_e1m2fn": 2}[name]
    return _value_table(lambda code: _minifloat(code, mantissa_bits), 4)


def _value_table(value: Callable[[int], float], bits: int) -> np.ndarray:
    table = np.array([value(code) for code in range(1 << bits)], np.float32)
    table.flags.writeable = False
    return table


def _hifloat8(code: int) -> float:
    if code == _NAN:
        return float("nan")
    sign = -1.0 if code & 0x80 else 1.0
    rest = code & 0x7F
    if rest == _INFINITY:
        return sign * float("inf")
    if rest < _SUBNORMALS:
        return sign * 2.0 ** (rest - _SUBNORMAL_BIAS) if rest else 0.0
    for width, prefix, exponent_bits, mantissa_bits in _DOTS:
        if rest >> (7 - width) == prefix:
            mantissa = (rest & ((1 << mantissa_bits) - 1)) / (1 << mantissa_bits)
            # The exponent is a sign, then a magnitude with a hidden 1.
            field, hidden = rest >> mantissa_bits, 1 << exponent_bits >> 1
            magnitude = hidden | field & (hidden - 1) if hidden else 0
            return sign * 2.0 ** (-magnitude if field & hidden else magnitude) * (1.0 + mantissa)
    raise AssertionError(code)


def _minifloat(code: int, mantissa_bits: int) -> float:
    sign = -1.0 if code & 8 else 1.0
    exponent = (code & 7) >> mantissa_bits
    mantissa = (code & ((1 << mantissa_bits) - 1)) / (1 << mantissa_bits)
    return sign * (2.0 ** (exponent - 1) * (1.0 + mantissa) if exponent else mantissa)


def unpack(data: np.ndarray, bits: int, count: int, *, high_first: bool = False) -> np.ndarray:
    """The first ``count`` codes of ``bits`` (1, 2 or 4) bits in ``data``, uint8 of shape (count,).

    The first element of a byte lies in its low bits, or with ``high_first`` in its high bits.
    """
    per_byte = 8 // bits
    shifts = np.arange(per_byte, dtype=np.uint8) * np.uint8(bits)
    if high_first:
        shifts = shifts[::-1]
    data = data[: -(-count // per_byte)]
    codes = data[:, None] >> shifts & np.uint8((1 << bits) - 1)
    flat: np.ndarray = codes.reshape(-1)[:count]
    return flat


def sign_extend(codes: np.ndarray, bits: int) -> np.ndarray:
    """Two's complement codes of ``bits`` bits in uint8, as int8 of the same shape."""
    shift = np.uint8(8 - bits)
    signed: np.ndarray = (codes << shift).view(np.int8) >> np.int8(8 - bits)
    return signed


VIEWED = frozenset(
    {
        "float32",
        "float16",
        "float64",
        "int8",
        "uint8",
        "int16",
        "uint16",
        "int32",
        "uint32",
        "int64",
        "uint64",
    }
    | {"complex64", "complex128", "bfloat16", "float8_e5m2", "float8_e4m3fn", "float8_e8m0fnu"}
)
"""Types that are read without a copy."""

_WHY_OPAQUE = {
    "float6_e3m2fn": "CANN does not document how three bytes hold four FLOAT6 values",
    "float6_e2m3fn": "CANN does not document how three bytes hold four FLOAT6 values",
    "hifloat4": "CANN does not document the values of HIFLOAT4",
}


class DecodeError(DumpError):
    """A tensor whose bytes have no values: an opaque or unknown type, or too few bytes."""


def load(payload: Payload, dtype: str, shape: tuple[int, ...] | None) -> np.ndarray:
    """The values of a tensor, of ``shape``, or of one axis where ``shape`` is None.

    numpy's types, bf16 and fp8 (as ``ml_dtypes``) are read-only views of the file, of any alignment.
    bool is bool, or uint8 where a byte is neither 0 nor 1 (ACL's statistics show such bytes as they are).
    Copies: int4, int2 as int8; uint1, uint2 as uint8; complex32 as complex64; hifloat8, float4 as float32.

    Raises:
        DecodeError: the type has no values, or the payload is smaller than the shape.
        FormatError: the file cannot be read or no longer has the bytes.
    """
    if payload.kind == "npy":
        array = load_npy(payload.path, may_be_float32=dtype == "float32")
        check_npy_type(payload, array.dtype, dtype)
        if shape is not None and array.size != math.prod(shape):
            raise FormatError(payload.path, f"the array has shape {array.shape}, the record says {shape}")
        return array if shape is None else array.reshape(shape)
    if why := why_opaque(dtype):
        raise DecodeError(f"{payload.path}: no values: {why}; the bytes are readable as they are")
    data = raw_bytes(payload)
    if payload.kind == "strided":
        flat = decode(data, dtype, len(data) * 8 // BY_NAME[dtype].bits)
        sizes, strides = zip(*((size, stride * flat.itemsize) for size, stride in payload.axes), strict=True)
        view: np.ndarray = np.ndarray(sizes, flat.dtype, flat.view(np.uint8).data, 0, strides)
        return view if shape is None else view.reshape(shape)
    count = len(data) * 8 // BY_NAME[dtype].bits if shape is None else math.prod(shape)
    needed = (count * BY_NAME[dtype].bits + 7) // 8
    if needed > len(data):
        raise too_short(payload, dtype, count, len(data))
    return decode(data[:needed], dtype, count).reshape((count,) if shape is None else shape)


def too_short(payload: Payload, dtype: str, count: int, nbytes: int) -> DecodeError:
    """The error for a payload that has ``nbytes``, which are too few for ``count`` elements."""
    needed = (count * BY_NAME[dtype].bits + 7) // 8
    return DecodeError(
        f"{payload.path}, byte {payload.offset}: {count} elements of {dtype} need {needed} bytes, "
        f"the tensor has {nbytes}"
    )


def why_opaque(dtype: str) -> str:
    """Return why the type called ``dtype`` has no values; "" if it has."""
    found = BY_NAME.get(dtype)
    if found is None:
        return f"type {dtype} is not known to this version"
    if found.kind == "opaque":
        return f"CANN gives {found.cann} no numeric meaning in a dump"
    return _WHY_OPAQUE.get(dtype, "")


def is_packed(dtype: str) -> bool:
    """Return whether pieces of the dump's type ``dtype`` are bytes, as an array of it would be a copy."""
    return dtype not in VIEWED


@lru_cache(maxsize=64)
def numpy_dtype(dtype: str) -> np.dtype:
    """The numpy type for one of the types in VIEWED, little-endian."""
    found: np.dtype
    if hasattr(np, dtype):
        found = np.dtype(dtype).newbyteorder("<")
    elif sys.byteorder == "little":
        found = np.dtype(getattr(ml_dtypes, dtype))
    else:
        raise DecodeError(f"{dtype} is readable on little-endian machines only")
    return found


def check_npy_type(payload: Payload, found: np.dtype, dtype: str) -> None:
    """Raise FormatError where an npy file has float16 and its record says ``dtype`` is bfloat16."""
    if found == np.float16 and dtype == "bfloat16":
        raise FormatError(payload.path, "the array is float16, the record says bfloat16")


def decode(data: np.ndarray, dtype: str, count: int) -> np.ndarray:
    """The ``count`` elements, (count,), of a type that has values, which the bytes in ``data`` are.

    Types are those of :func:`load`, which also says what is a view.
    """
    values: np.ndarray
    if dtype in VIEWED:
        values = data.view(numpy_dtype(dtype))
    elif dtype == "bool":
        values = data if data.max(initial=0) > 1 else data.view(np.bool_)
    elif dtype == "hifloat8":
        values = hifloat8_table()[data]
    elif dtype == "complex32":
        with np.errstate(invalid="ignore"):  # aarch64 reports signalling NaNs of float16
            values = data.view("<f2").astype(np.float32).view(np.complex64)
    else:
        bits = BY_NAME[dtype].bits
        values = unpack(data, bits, count, high_first=dtype == "uint1")
        if dtype.startswith("float4"):
            values = float4_table(dtype)[values]
        elif dtype.startswith("int"):
            values = sign_extend(values, bits)
    return values


_BYTE = 8
_CODES: dict[int, np.dtype[Any]] = {8: np.dtype(np.uint8), 32: np.dtype(np.uint32)}
"""Types as which elements of so many bits are moved."""


class PackedTensor:
    """The values that ``load`` would give for a raw payload of such a type, of which only pieces are held.

    Attributes:
        name: of the type in the dump.
        shape, size: of the tensor.
        dtype: numpy type of the values.

    Raises:
        DecodeError: the payload is smaller than the shape.
        FormatError: the file cannot be read.
    """

    def __init__(self, payload: Payload, name: str, shape: tuple[int, ...]) -> None:
        self.shape = shape
        self.size = math.prod(shape)
        self._payload, self.name, self._bits = payload, name, BY_NAME[name].bits
        if self._nbytes(self.size) > payload.nbytes:
            raise too_short(payload, name, self.size, payload.nbytes)
        self.dtype = decode(np.empty(0, np.uint8), name, 0).dtype

    def _nbytes(self, count: int) -> int:
        return (count * self._bits + _BYTE - 1) // _BYTE

    def pieces(self, limit: int) -> Iterator[np.ndarray]:
        """All values in C order, in pieces of shape (n,), n at most ``limit``, which is a multiple of 8."""
        yield from (decode(octets, self.name, count) for octets, count in self.octets(limit))

    def octets(self, limit: int) -> Iterator[tuple[np.ndarray, int]]:
        """The bytes of each of these pieces, uint8 of one axis, and how many values they hold."""
        octets = raw_bytes(self._payload)[: self._nbytes(self.size)]
        left = self.size
        for piece in c_order_chunks(octets, limit * self._bits // _BYTE, flat=True):
            yield piece, min(limit, left)
            left -= limit


class CodedTensor:
    """The values of a tensor whose elements take whole bytes and have to be decoded, in a host layout.

    Attributes:
        name: of the type in the dump.
        shape, size: of the tensor on the host.
        dtype: numpy type of the values.
    """

    def __init__(self, codes: np.ndarray | JoinedTensor, name: str) -> None:
        self.shape, self.size = codes.shape, codes.size
        self._codes, self.name = codes, name
        self.dtype = decode(np.empty(0, np.uint8), name, 0).dtype

    def pieces(self, limit: int) -> Iterator[np.ndarray]:
        """All values in C order, cut as :func:`c_order_chunks` cuts an array of this shape."""
        yield from (decode(octets, self.name, count) for octets, count in self.octets(limit))

    def octets(self, limit: int) -> Iterator[tuple[np.ndarray, int]]:
        """The bytes of each of these pieces, uint8 of one axis, and how many values they hold."""
        yield from ((part.view(np.uint8), part.size) for part in pieces_of(self._codes, limit))


def coded_tensor(record: TensorRecord, layout: str) -> CodedTensor | None:
    """The tensor of a record in the host layout called ``layout``, if it is of such a type.

    Raises:
        DecodeError: the payload is smaller than the shape.
        FormatError: the file cannot be read.
        LayoutError: the layout cannot be converted, or the shapes do not fit it.
    """
    payload, shape, name = record.payload, record.shape, record.dtype
    if payload is None or shape is None or payload.kind != "raw" or name in VIEWED or name == "bool":
        return None
    if why_opaque(name) or BY_NAME[name].bits not in _CODES:
        return None
    codes = _CODES[BY_NAME[name].bits]
    count, octets = math.prod(shape), raw_bytes(payload)
    if count * codes.itemsize > octets.size:
        raise too_short(payload, name, count, octets.size)
    array = octets[: count * codes.itemsize].view(codes).reshape(shape)
    return CodedTensor(host_values(array, record, layout), name)


def packed_tensor(record: TensorRecord, layout: str) -> PackedTensor | None:
    """The tensor of a record, if it is of such a type and lies in the host layout called ``layout`` already.

    Raises:
        DecodeError: the payload is smaller than the shape.
        FormatError: the file cannot be read.
    """
    payload, shape, name = record.payload, record.shape, record.dtype
    if payload is None or shape is None or payload.kind != "raw":
        return None
    if name in VIEWED or name == "bool" or why_opaque(name) or not lies_in(record, layout):
        return None
    return PackedTensor(payload, name, shape)
