"""Bytes of tensors as golden files keep them, and what tells one content from another."""

from __future__ import annotations

from collections import Counter
from hashlib import blake2b
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    Tensor = np.ndarray[Any, np.dtype[Any]]

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
