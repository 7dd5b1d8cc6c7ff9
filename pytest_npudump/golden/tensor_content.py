"""Bytes of tensors as golden files keep them, and what tells one content from another."""

from __future__ import annotations

import math
from collections import Counter
from hashlib import blake2b
from typing import TYPE_CHECKING, Any

import ml_dtypes
import numpy as np

from pytest_npudump.errors import GoldenError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    Tensor = np.ndarray[Any, np.dtype[Any]]

SAFETENSORS_NAMES = {
    "float64": "F64",
    "float32": "F32",
    "float16": "F16",
    "bfloat16": "BF16",
    "float8_e4m3fn": "F8_E4M3",
    "float8_e5m2": "F8_E5M2",
    "int64": "I64",
    "int32": "I32",
    "int16": "I16",
    "int8": "I8",
    "uint64": "U64",
    "uint32": "U32",
    "uint16": "U16",
    "uint8": "U8",
    "bool": "BOOL",
}
"""Types that every version of safetensors knows; others are kept as bytes with their name in the metadata."""

_COMPLEX = ("complex64", "complex128")
_CHUNK = 1 << 22


def copies_of(tensors: Mapping[str, tuple[Tensor, str]]) -> dict[str, str]:
    """Return by key text of each tensor that is another one's copy, bit for bit, that one's key."""
    sizes = Counter(array.nbytes for array, _ in tensors.values())
    first: dict[tuple[object, ...], str] = {}
    copies = {}
    for key, (array, name) in sorted(tensors.items()):
        if sizes[array.nbytes] > 1 and array.nbytes:
            content = (array.dtype.name, name, array.shape, _digest(array))
            original = first.setdefault(content, key)
            if original != key:
                copies[key] = original
    return copies


def tensors_digest(tensors: Mapping[str, tuple[Tensor, str]]) -> str:
    """Return a hash of the keys, types, shapes and values that :func:`save_tensors` would write."""
    digest = blake2b(digest_size=16)
    for key, (array, name) in sorted(tensors.items()):
        little = portable(array)
        digest.update(f"{key} {little.dtype.name} {name} {little.shape}\n".encode())
        for chunk in chunks(little):
            digest.update(chunk)
    return digest.hexdigest()


def _digest(array: Tensor) -> bytes:
    digest = blake2b(digest_size=32)
    for chunk in chunks(portable(array)):
        digest.update(chunk)
    return digest.digest()


def portable(array: Tensor) -> Tensor:
    """Return an array as it is written: contiguous and little-endian."""
    little = np.ascontiguousarray(array, dtype=array.dtype.newbyteorder("<"))
    # ascontiguousarray makes a scalar one-dimensional.
    result: Tensor = little.reshape(array.shape)
    return result


def chunks(array: Tensor) -> Iterator[memoryview]:
    """Return the bytes of a contiguous array, 4 MiB at a time."""
    flat: Any = array.reshape(-1).view(np.uint8)
    return (memoryview(flat[at : at + _CHUNK]) for at in range(0, flat.size, _CHUNK))


def viewed(chunk: Tensor, name: object, shape: Any, what: str) -> Tensor:
    """Return bytes as an array.

    Args:
        chunk: the bytes.
        name: of numpy's or ml_dtypes' type, as :func:`portable` arrays have it.
        shape: of the array.
        what: whose bytes they are, for errors.

    Raises:
        GoldenError: these do not go together.
    """
    dtype = _dtype(name) if _is_shape(shape) else None
    if dtype is None or math.prod(shape) * dtype.itemsize != chunk.size:
        raise GoldenError(
            f"{what} has {chunk.size} bytes, type {name!r} and shape {shape!r}, which do not go together; "
            f"restore the file from version control"
        )
    view: Tensor = chunk.view(dtype).reshape(shape)
    return view


def _is_shape(shape: object) -> bool:
    return isinstance(shape, list | tuple) and all(type(size) is int and size >= 0 for size in shape)


def _dtype(name: object) -> np.dtype[Any] | None:
    """The type of that name, little-endian; None for what is no plain number (objects, texts, records)."""
    if not isinstance(name, str):
        return None
    if name in SAFETENSORS_NAMES.keys() - {"bfloat16", "float8_e4m3fn", "float8_e5m2"} or name in _COMPLEX:
        little: np.dtype[Any] = np.dtype(name).newbyteorder("<")
        return little
    scalar = getattr(ml_dtypes, name, None)
    return np.dtype(scalar) if isinstance(scalar, type) and issubclass(scalar, np.generic) else None
