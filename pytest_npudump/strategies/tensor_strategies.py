"""Tensors: a few edge values among others, which shrink to one small tensor with one value in all of it."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from pytest_npudump.strategies.edge_shapes import MOST_ELEMENTS, edges, numpy_type, shapes
from pytest_npudump.strategies.edge_values import values, within
from pytest_npudump.strategies.hypothesis_settings import hypothesis

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import DTypeLike, NDArray

_RAMP = 127
"""Where numbers that count up begin anew; every type holds the ones before."""
_SCALE = 4.0
"""Standard deviation of random numbers: some are integers of more than one bit, few reach 16."""
_STEP = 2.0**-10
"""What they are multiples of, so that none is subnormal."""
_PLACES = 16
"""How many elements of a tensor may have a value of their own."""


def tensors(dtype: DTypeLike = "float16", shape: Any = None, **limits: Any) -> Any:
    """Return a strategy for tensors as numpy arrays.

    One value, numbers that count up, random ones, or all edge values in turn fill a tensor; up to 16 elements
    have others.

    Args:
        dtype: of numpy, or by name one of ml_dtypes (``bfloat16``).
        shape: a shape, or a strategy for shapes; None for :func:`~pytest_npudump.strategies.shapes`.
        limits: what :func:`~pytest_npudump.strategies.values` takes.

    Raises:
        MissingExtraError: hypothesis is not installed.
        ValueError: no value is left.
    """
    return alike(1, dtype, shape, **limits).map(lambda found: found[0])


def alike(count: int, dtype: DTypeLike = "float16", shape: Any = None, **limits: Any) -> Any:
    """Return a strategy for tuples of ``count`` tensors of one shape, as an operator with several takes them.

    Args:
        count: how many.
        dtype: as for :func:`tensors`.
        shape: as for :func:`tensors`.
        limits: as for :func:`tensors`.

    Raises:
        MissingExtraError: hypothesis is not installed.
        ValueError: no value is left.
    """
    st, kind = hypothesis("hypothesis.strategies"), numpy_type(dtype)
    filled = _filled(kind, limits)
    drawn = shapes(kind) if shape is None else st.just(shape) if isinstance(shape, tuple) else shape

    @st.composite  # type: ignore[untyped-decorator]
    def found(draw: Any) -> tuple[NDArray[Any], ...]:
        sizes = draw(drawn)
        return tuple(filled(draw, sizes) for _ in range(count))

    return found()


def matrices(dtype: DTypeLike = "float16", *, max_elements: int = MOST_ELEMENTS, **limits: Any) -> Any:
    """Return a strategy for two matrices that can be multiplied: of shapes (m, k) and (k, n).

    Args:
        dtype: as for :func:`tensors`.
        max_elements: how many each may have.
        limits: as for :func:`tensors`; products of large values overflow.

    Raises:
        MissingExtraError: hypothesis is not installed.
        ValueError: no value is left.
    """
    st, kind = hypothesis("hypothesis.strategies"), numpy_type(dtype)
    filled, side = _filled(kind, limits), st.sampled_from(edges(kind))

    @st.composite  # type: ignore[untyped-decorator]
    def found(draw: Any) -> tuple[NDArray[Any], NDArray[Any]]:
        rows, inner, columns = draw(st.tuples(side, side, side).filter(lambda sizes: fits(*sizes)))
        return filled(draw, (rows, inner)), filled(draw, (inner, columns))

    def fits(rows: int, inner: int, columns: int) -> bool:
        return max(rows, columns) * inner <= max_elements

    return found()


def _filled(kind: np.dtype[Any], limits: dict[str, Any]) -> Callable[[Any, tuple[int, ...]], NDArray[Any]]:
    """Return what draws a tensor of a shape.

    Each way to fill it takes as many choices, so that hypothesis, for which fewer are simpler, shrinks to the
    first.
    """
    st, elements = hypothesis("hypothesis.strategies"), values(kind, **limits)
    listed = np.array(within(kind, **limits)[0], kind)
    ways, seeds = st.sampled_from(("one", "ramp", "random", "edges")), st.integers(0, 2**32 - 1)

    def filled(draw: Any, shape: tuple[int, ...]) -> NDArray[Any]:
        size = math.prod(shape)
        way, value, seed = draw(ways), draw(elements), draw(seeds)
        if way == "one":
            array = np.full(size, value, kind)
        elif way == "edges":
            array = listed[(np.arange(size) + seed) % len(listed)]
        else:
            array = _many(way, seed, size, kind, limits)
        places = st.integers(0, max(size - 1, 0))
        for place, other in draw(st.dictionaries(places, elements, max_size=min(size, _PLACES))).items():
            array[place] = other
        return array.reshape(shape)

    return filled


def _many(way: str, seed: int, size: int, kind: np.dtype[Any], limits: dict[str, Any]) -> NDArray[Any]:
    """Return numbers that count up, or random ones, cut off where the values of the tensor end."""
    random = np.random.default_rng(seed)
    if kind.kind == "b":
        return random.integers(0, 2, size).astype(kind)
    drawn = np.round(random.normal(scale=_SCALE / _STEP, size=size)) * _STEP
    numbers = np.arange(size) % _RAMP + 1 if way == "ramp" else drawn
    low, high = limits.get("minimum"), limits.get("maximum")
    if kind.kind == "u" and low is None:
        low = 0
    cut = numbers if low is None and high is None else np.clip(numbers, low, high)
    array: NDArray[Any] = cut.astype(kind)
    return array
