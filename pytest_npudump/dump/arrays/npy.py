"""npy files as CANN's, MindSpore's and torch's tools write them; never with pickle.

MindSpore saves bf16 under the descr ``<E2`` (2.10.0) or ``<T2`` (older), which numpy refuses to load. Its CPU
kernels compute some operators of float16 and float64 in float32: their files hold float32, and header and
name still say the network's type. Floats of 8 bits go by their names, in our own files.
"""

from __future__ import annotations

import ast
import math
import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING

import ml_dtypes
import numpy as np

from pytest_npudump.dump.filebytes import RawFile, open_raw

if TYPE_CHECKING:
    from pathlib import Path

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


_COMPUTED_AS_FLOAT32 = {np.dtype("<f2"), np.dtype("<f8")}


@dataclass(frozen=True, slots=True)
class NpyHeader:
    """What the header of an npy file says.

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
        return _header(file, may_be_float32=may_be_float32)


def load_npy(path: Path, *, may_be_float32: bool = False) -> np.ndarray:
    """The array of an npy file, as a read-only view of the file's pages.

    Arguments and exceptions are those of :func:`read_npy_header`.
    """
    with open_raw(path) as file:
        header = _header(file, may_be_float32=may_be_float32)
        data = file.map(header.offset, header.nbytes, "the array")
    array: np.ndarray = data.view(header.dtype)
    return array.reshape(header.shape[::-1]).T if header.fortran_order else array.reshape(header.shape)


def _header(file: RawFile, *, may_be_float32: bool) -> NpyHeader:
    magic = file.read(0, len(MAGIC), "the magic")
    if magic != MAGIC:
        raise file.error(0, f"begins with {magic!r}, expected {MAGIC!r}: this is no npy file")
    major, minor = _VERSION.unpack(file.read(len(MAGIC), _VERSION.size, "the version"))
    if major not in _LENGTHS or minor:
        raise file.error(len(MAGIC), f"npy version {major}.{minor}, expected 1.0, 2.0 or 3.0")
    start = len(MAGIC) + _VERSION.size
    form = _LENGTHS[major]
    (length,) = form.unpack(file.read(start, form.size, "the header's length"))
    start += form.size
    if length > _HEADER_LIMIT:
        raise file.error(start, f"header of {length} bytes, expected at most {_HEADER_LIMIT}")
    text = file.read(start, length, "the header").decode("utf-8" if major == 3 else "latin-1", "replace")  # noqa: PLR2004 - npy version 3 means UTF-8
    dtype, shape, fortran = _parsed(file, text, start)
    offset = start + length
    held = _held(dtype, math.prod(shape), file.size - offset) if may_be_float32 else dtype
    nbytes = math.prod(shape) * held.itemsize
    if offset + nbytes != file.size:
        raise file.error(
            offset,
            f"the array needs {nbytes} bytes, the file has {file.size - offset} for it: "
            "it is truncated or damaged, collect the dump again",
        )
    return NpyHeader(held, shape, fortran, offset, nbytes, dtype)


def _held(said: np.dtype, count: int, nbytes: int) -> np.dtype:
    """Return the type of ``count`` elements in ``nbytes`` bytes whose header says ``said``."""
    float32 = np.dtype("<f4")
    return float32 if count and said in _COMPUTED_AS_FLOAT32 and nbytes == count * float32.itemsize else said


def _parsed(file: RawFile, text: str, start: int) -> tuple[np.dtype, tuple[int, ...], bool]:
    try:
        fields = ast.literal_eval(text.strip())
        descr, fortran, shape = fields["descr"], fields["fortran_order"], fields["shape"]
    except (SyntaxError, ValueError, TypeError, KeyError, RecursionError, MemoryError) as error:
        raise file.error(
            start, f"the header is no dictionary of descr, fortran_order and shape: {text[:80]!r}"
        ) from error
    if not _is_shape(shape) or not isinstance(fortran, bool) or len(fields) != 3:  # noqa: PLR2004 - the three named above
        raise file.error(start, f"the header has an impossible shape or order: {text[:80]!r}")
    return _dtype(file, descr, start), shape, fortran


def _is_shape(shape: object) -> bool:
    return isinstance(shape, tuple) and all(type(dim) is int and 0 <= dim < _DIM_LIMIT for dim in shape)


def _dtype(file: RawFile, descr: object, start: int) -> np.dtype:
    if isinstance(descr, str):
        name = "bfloat16" if descr in _BFLOAT16 else descr
        found: np.dtype | None = _PLAIN.get(name)
        if found is not None:
            return found
    raise file.error(
        start, f"element type {descr!r}, expected a plain number such as '<f4' (or '<E2', '<T2' for bf16)"
    )
