"""Two arrays of one shape, cut into the same contiguous pieces in C order."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_npudump.dump.packed import PackedTensor
from pytest_npudump.dump.stats_chunks import c_order_chunks

if TYPE_CHECKING:
    from collections.abc import Iterator

    import numpy as np

    Values = np.ndarray | PackedTensor

CHUNK = 1 << 18
"""Elements compared at a time: the dozen buffers this takes stay in a last-level cache."""


def paired_chunks(golden: Values, actual: Values) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Pieces of one axis and equal length, aligned and native; either none is packed, or both are."""
    sides = (golden, actual)
    flat = all(isinstance(side, PackedTensor) or side.flags.c_contiguous for side in sides)
    pieces = (
        side.pieces(CHUNK) if isinstance(side, PackedTensor) else c_order_chunks(side, CHUNK, flat=flat)
        for side in sides
    )
    for one, other in zip(*pieces, strict=True):
        yield _ready(one), _ready(other)


def _ready(piece: np.ndarray) -> np.ndarray:
    if piece.flags.aligned and piece.dtype.isnative:
        return piece
    return piece.astype(piece.dtype.newbyteorder("="))
