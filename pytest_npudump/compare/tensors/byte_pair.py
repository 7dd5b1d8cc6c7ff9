"""Bytes of two tensors whose type has no values."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from pytest_npudump.dump.bytes.chunks import c_order_chunks
from pytest_npudump.dump.bytes.rawfile import raw_bytes

if TYPE_CHECKING:
    from pytest_npudump.dump.records import Payload

_PIECE = 1 << 18


def unequal_bytes(golden: Payload, actual: Payload) -> int:
    """How many bytes differ; of two sizes, by how many one is longer.

    Raises:
        FormatError: a file cannot be read.
    """
    one, other = raw_bytes(golden), raw_bytes(actual)
    if one.size != other.size:
        return abs(one.size - other.size)
    pieces = (c_order_chunks(array, _PIECE, flat=True) for array in (one, other))
    return sum(_unequal(first, second) for first, second in zip(*pieces, strict=True))


def _unequal(first: np.ndarray, second: np.ndarray) -> int:
    return 0 if np.array_equal(first, second) else int(np.count_nonzero(first != second))
