"""The sums of the columns of blocks under the signs of places, and of these under the signs of columns.

A block is rows of so many elements as it has columns, of which the last row is shorter.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np

from pytest_npudump.dump.stats.signs import BLOCK, COLUMNS, column_signs, place_signs

if TYPE_CHECKING:
    from numpy.typing import NDArray


def padded(count: int) -> int:
    """Elements of the rows of a block, or of the blocks, that hold so many."""
    whole = count - count % BLOCK
    return whole + min(-(-(count - whole) // COLUMNS) * COLUMNS, BLOCK)


def column_sums(lanes: np.ndarray) -> np.ndarray:
    """The sums of the columns of blocks under the signs of their places, of shape (blocks, COLUMNS).

    Args:
        lanes: int16, float32 or float64 of shape (1, n), the elements, or of shape (2, n), each other one and
            those between: whole blocks, or some rows of one.
    """
    columns = COLUMNS // len(lanes)
    blocks = max(lanes.shape[1] * len(lanes) // BLOCK, 1)
    found = []
    for lane, signs in zip(
        lanes.reshape(len(lanes), blocks, -1), _place_signs(len(lanes), lanes.dtype), strict=True
    ):
        size = lane.shape[1]
        rows = size // columns
        whole = rows * columns
        sums = np.einsum(
            "brc,rc->bc", lane[:, :whole].reshape(blocks, rows, columns), signs[:whole].reshape(rows, columns)
        )
        if whole < size:
            sums[:, : size - whole] += lane[:, whole:] * signs[whole:size]
        found.append(sums)
    return found[0] if len(found) == 1 else np.stack(found, axis=-1).reshape(blocks, COLUMNS)


def column_products(columns: np.ndarray) -> NDArray[np.float64]:
    """The sums of blocks whose columns have these sums, (blocks, 8), not finite where one of a column is not.

    One product a block, so that its result does not depend on the blocks that come with it.
    """
    wide = columns.astype(np.float64, copy=False)
    return np.asarray(np.matmul(column_signs(), wide[:, :, np.newaxis])[:, :, 0])


@lru_cache(maxsize=4)
def _place_signs(lanes: int, dtype: np.dtype) -> np.ndarray:
    """The signs of places, of shape (lanes, BLOCK / lanes)."""
    return np.ascontiguousarray(place_signs().astype(dtype).reshape(-1, lanes).T)
