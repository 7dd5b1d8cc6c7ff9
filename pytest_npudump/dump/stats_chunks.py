"""Cutting an array of any layout into contiguous, aligned pieces that fit a cache."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterator

CHUNK_BYTES = 1 << 20
"""Bytes of input taken at a time: a call of numpy costs about a microsecond, which this outweighs, and
what a chunk needs in all stays in a last-level cache. Measured best between 512 KiB and 2 MiB."""


def chunks(array: np.ndarray) -> Iterator[np.ndarray]:
    """All elements of ``array`` in contiguous, aligned, native pieces of one axis.

    The first element of ``array`` comes first; else the order is that of memory. A piece is a view where
    possible, else a buffer that the next piece overwrites.
    """
    flat = _flat(array)
    limit = max(CHUNK_BYTES // array.itemsize, 1)
    ready = array.flags.aligned and array.dtype.isnative
    buffer = None if ready else np.empty(min(limit, array.size), array.dtype.newbyteorder("="))
    for part in [flat] if flat is not None else _slabs(array, limit):
        for start in range(0, part.size, limit):
            piece = part[start : start + limit]
            if buffer is not None:
                aligned = buffer[: piece.size]
                np.copyto(aligned, piece)
                piece = aligned
            yield piece


def _flat(array: np.ndarray) -> np.ndarray | None:
    """One axis over the memory of ``array``, or None where it has gaps or runs backwards."""
    if any(stride < 0 for stride in array.strides):
        return None
    ordered = array.transpose(np.argsort([-stride for stride in array.strides], kind="stable"))
    return ordered.reshape(-1) if ordered.flags.c_contiguous else None


def _slabs(array: np.ndarray, limit: int) -> Iterator[np.ndarray]:
    """Copies of parts of an array with gaps, in C order, each of at most ``limit`` elements."""
    if array.size <= limit or array.ndim == 0:
        yield np.ascontiguousarray(array).reshape(-1)
        return
    inner = array.size // len(array)
    step = limit // inner
    if not step:
        for row in array:
            yield from _slabs(row, limit)
        return
    for start in range(0, len(array), step):
        yield np.ascontiguousarray(array[start : start + step]).reshape(-1)


def c_order_chunks(array: np.ndarray, limit: int, *, flat: bool) -> Iterator[np.ndarray]:
    """Contiguous pieces in C order of at most ``limit`` elements.

    How the pieces are cut depends on the shape, ``limit`` and ``flat`` alone; ``flat`` asks for views and
    is for contiguous arrays.
    """
    if not flat:
        yield from _slabs(array, limit)
        return
    whole = array.reshape(-1)
    for start in range(0, whole.size, limit):
        yield whole[start : start + limit]
