"""Two arrays of one shape, cut into the same contiguous pieces in C order."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from pytest_npudump.dump.bytes.chunks import pieces_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pytest_npudump.dump.arrays.layouts import JoinedTensor
    from pytest_npudump.dump.arrays.packed import CodedTensor, PackedTensor

    Values = np.ndarray | PackedTensor | CodedTensor | JoinedTensor

CHUNK = 1 << 18
"""Elements compared at a time: the dozen buffers this takes stay in a last-level cache."""


OCTETS = 1 << 20
"""Bytes of packed types taken at a time while they are equal."""


def paired_chunks(golden: Values, actual: Values) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Pieces of one axis and equal length, aligned and native; either none is packed, or both are."""
    sides = (golden, actual)
    flat = all(isinstance(side, np.ndarray) and side.flags.c_contiguous for side in sides)
    limit = min(map(_limit, sides))
    yield from zip(*(_ready_pieces(side, limit, flat=flat) for side in sides), strict=True)


def value_chunks(values: Values) -> Iterator[np.ndarray]:
    """Pieces of one axis in C order, aligned and native."""
    yield from _ready_pieces(values, _limit(values), flat=False)


def _limit(values: Values) -> int:
    return CHUNK if values.dtype.itemsize > 1 else 4 * CHUNK


def _ready_pieces(values: Values, limit: int, *, flat: bool) -> Iterator[np.ndarray]:
    """Aligned and native pieces; ``flat`` is as for :func:`c_order_chunks`."""
    for piece in pieces_of(values, limit, flat=flat):
        ready = piece.flags.aligned and piece.dtype.isnative
        yield piece if ready else piece.astype(piece.dtype.newbyteorder("="))
