"""Shapes around the sizes at which a kernel for NPUs begins another block, fractal or repetition."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from pytest_npudump.strategies.hypothesis_settings import hypothesis

if TYPE_CHECKING:
    from numpy.typing import DTypeLike

_FRACTAL = 16
"""Rows of a fractal (FRACTAL_NZ, FRACTAL_Z), and C0 of NC1HWC0 in float16."""
_BLOCK_BYTES = 32
"""A block of memory, which is a fractal's row: C0 elements of FRACTAL_NZ."""
_REPEAT_BYTES = 256
"""What a vector instruction works on at once."""

MOST_ELEMENTS = 1 << 14


def edges(dtype: DTypeLike) -> list[int]:
    """Return the sizes of an axis worth a test: 1, 2, and those around blocks, fractals and repetitions."""
    size = numpy_type(dtype).itemsize
    blocks = {_FRACTAL, 2 * _FRACTAL, _BLOCK_BYTES // size, 2 * _BLOCK_BYTES // size, _REPEAT_BYTES // size}
    return sorted({1, 2, *(block + step for block in blocks for step in (-1, 0, 1) if block > 1)})


def shapes(
    dtype: DTypeLike = "float16",
    *,
    min_dims: int = 1,
    max_dims: int = 4,
    max_elements: int = MOST_ELEMENTS,
) -> Any:
    """Return a strategy for shapes whose axes have the sizes of :func:`edges`; it shrinks to ones.

    The last axis is drawn first, so that each size is as likely there whatever stands before it.

    Args:
        dtype: type of the elements: a block has as many as 32 bytes hold.
        min_dims: fewest axes; 0 allows scalars.
        max_dims: most axes.
        max_elements: how many elements there may be.

    Raises:
        MissingExtraError: hypothesis is not installed.
        ValueError: no shape is left.
    """
    if not 0 <= min_dims <= max_dims or max_elements < 1:
        raise ValueError(f"{min_dims=}, {max_dims=}, {max_elements=}: no shape is so")
    st, sizes = hypothesis("hypothesis.strategies"), edges(dtype)

    @st.composite  # type: ignore[untyped-decorator]
    def shape(draw: Any) -> tuple[int, ...]:
        found: tuple[int, ...] = ()
        for _ in range(draw(st.integers(min_dims, max_dims))):
            room = max_elements // math.prod(found)
            found = (draw(st.sampled_from([size for size in sizes if size <= room])), *found)
        return found

    return shape()


def numpy_type(dtype: DTypeLike) -> np.dtype[Any]:
    """Return a type of numpy, or of ml_dtypes by its name (``bfloat16``).

    Raises:
        TypeError: there is none.
    """
    if isinstance(dtype, str):
        import ml_dtypes  # noqa: PLC0415 - only where one is named

        dtype = getattr(ml_dtypes, dtype, dtype)
    return np.dtype(dtype)
