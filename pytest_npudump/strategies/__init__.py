"""Public: tensors for operator tests with hypothesis, full of the values and shapes that break NPUs.

For ``npu_dump.check_op``; needs the extra ``testing``, which is asked for by the first call::

    from hypothesis import given
    from pytest_npudump import strategies

    @strategies.settings(max_examples=50)
    @given(strategies.tensors("float16"))
    @pytest.mark.npu_dump(scene="check_op")
    def test_relu(npu_dump, x):
        npu_dump.check_op("Relu", x, reference=lambda x: numpy.maximum(x, 0))

Shapes are around the sizes at which a kernel for NPUs begins another block, fractal or repetition.
"""

from __future__ import annotations

import math
from functools import lru_cache
from importlib import import_module
from itertools import chain
from typing import TYPE_CHECKING, Any

import ml_dtypes
import numpy as np

from pytest_npudump.compare.ulps import is_float
from pytest_npudump.errors import MissingExtraError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from numpy.typing import DTypeLike, NDArray


__all__ = ["alike", "matrices", "settings", "shapes", "tensors", "values"]

_FRACTAL = 16
"""Rows of a fractal (FRACTAL_NZ, FRACTAL_Z), and C0 of NC1HWC0 in float16."""
_BLOCK_BYTES = 32
"""A block of memory, which is a fractal's row: C0 elements of FRACTAL_NZ."""
_REPEAT_BYTES = 256
"""Bytes that a vector instruction works on at once."""

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
    return np.dtype(getattr(ml_dtypes, dtype, dtype) if isinstance(dtype, str) else dtype)


_PLAIN = (1.0, 0.0, -1.0, 0.5, 2.0, 3.0, -0.0)
_OF_HALF = (65504.0, 65505.0, 65519.0, 65520.0, 65536.0, 2.0**-14, 2.0**-24, 2.0**-25)
"""Limits of float16: wider types meet them in kernels that compute in float16, or convert to it."""
_WIDTHS = {2: 16, 4: 32, 8: 64}


@lru_cache(maxsize=64)
def edge_values(dtype: np.dtype[Any]) -> tuple[float | int, ...]:
    """Return the values of a type worth a test: some simple ones, then those nearest to 1 first.

    Floats: subnormal and normal numbers where the two meet, the largest numbers, powers of two near the
    limits and where integers end to be exact, the neighbours of 1, what ``exp`` and squares overflow at, the
    limits of float16 and what is just above them, infinities and NaN. Integers: extremes, powers of two,
    where float16, float32 and float64 end to hold every integer, and the neighbours of all these.

    Raises:
        TypeError: it is neither a float nor an integer nor bool.
    """
    if dtype.kind == "b":
        return (True, False)
    if dtype.kind in "iu":
        return _integers(np.iinfo(dtype))
    if not is_float(dtype):
        raise TypeError(f"{dtype}: expected a type of integers, floats or bools")
    near = sorted(_floats(dtype), key=lambda value: (abs(math.log2(abs(value))), value < 0))
    found = chain(_PLAIN, near, (math.inf, -math.inf, math.nan))
    return tuple({value.hex(): value for value in found}.values())  # -0.0 is another one than 0.0


def _floats(dtype: np.dtype[Any]) -> Iterator[float]:
    info = ml_dtypes.finfo(dtype)  # type: ignore[no-untyped-call]
    largest, smallest = float(info.max), float(info.smallest_normal)
    eps = float(info.eps)
    turns = [largest, smallest, 1.0, 1 / eps, 2 / eps, math.sqrt(largest), math.log(largest), *_OF_HALF]
    turns += [2.0 ** (info.maxexp - 1), 2.0 ** (info.maxexp - 2), float(info.smallest_subnormal)]
    with np.errstate(over="ignore", under="ignore"):
        for turn in turns:
            here = dtype.type(turn)
            for value in (here, np.nextafter(here, dtype.type(0)), np.nextafter(here, dtype.type(np.inf))):
                if value and np.isfinite(value):
                    yield float(value)
                    yield -float(value)


def _integers(info: np.iinfo[Any]) -> tuple[int, ...]:
    low, high = int(info.min), int(info.max)
    powers = [1 << bit for bit in (7, 8, 11, 15, 16, 24, 31, 32, 53)]
    turns = [1, 0, -1, 2, high, low, *powers, *(-power for power in powers)]
    near = (turn + step for turn in turns for step in (0, -1, 1))
    return tuple(dict.fromkeys(value for value in near if low <= value <= high))


def values(
    dtype: DTypeLike = "float16",
    *,
    finite: bool = False,
    subnormal: bool = True,
    minimum: float | None = None,
    maximum: float | None = None,
) -> Any:
    """Return a strategy for elements: :func:`edge_values`, and any other value of the type.

    Args:
        dtype: of numpy, or by name one of ml_dtypes (``bfloat16``).
        finite: whether NaN and infinities are left out.
        subnormal: whether there are subnormal numbers, which a device may flush to 0.
        minimum: the smallest value.
        maximum: the largest.

    Raises:
        MissingExtraError: hypothesis is not installed.
        ValueError: no value is left.
    """
    kind = numpy_type(dtype)
    listed, wanted = within(kind, finite=finite, subnormal=subnormal, minimum=minimum, maximum=maximum)
    st = hypothesis("hypothesis.strategies")
    return st.one_of(st.sampled_from(listed), _any(st, kind, minimum, maximum).filter(wanted))


def within(
    kind: np.dtype[Any],
    *,
    finite: bool = False,
    subnormal: bool = True,
    minimum: float | None = None,
    maximum: float | None = None,
) -> tuple[list[float | int], Callable[[float], bool]]:
    """Return the :func:`edge_values` within limits, those of :func:`values`, and a test for others.

    Raises:
        ValueError: no value is left.
    """
    tiny = float(ml_dtypes.finfo(kind).smallest_normal) if is_float(kind) else 0.0  # type: ignore[no-untyped-call]
    bounded = minimum is not None or maximum is not None

    def wanted(value: float) -> bool:
        if not math.isfinite(value):
            return not finite and not bounded
        if not subnormal and 0 < abs(value) < tiny:
            return False
        return (minimum is None or value >= minimum) and (maximum is None or value <= maximum)

    listed = [*filter(wanted, edge_values(kind))]
    if not listed:
        raise ValueError(f"{kind}: no edge value lies between {minimum} and {maximum}")
    return listed, wanted


def _any(st: Any, kind: np.dtype[Any], minimum: float | None, maximum: float | None) -> Any:
    """Return a strategy for any value between two, rounded to the type."""
    if kind.kind == "b":
        return st.booleans()
    if kind.kind in "iu":
        info = np.iinfo(kind)
        low = info.min if minimum is None else max(int(info.min), math.ceil(minimum))
        high = info.max if maximum is None else min(int(info.max), math.floor(maximum))
        return st.integers(int(low), int(high))
    plain = kind.kind == "f"
    width = _WIDTHS[kind.itemsize] if plain else 32
    held = [None if end is None else float(_TYPES[width](end)) for end in (minimum, maximum)]
    rounded = st.floats(*held, width=width)
    return rounded if plain else rounded.map(lambda value: float(kind.type(value)))


_TYPES = {16: np.float16, 32: np.float32, 64: np.float64}


def hypothesis(module: str = "hypothesis") -> Any:
    """Return hypothesis, or a module of it.

    Raises:
        MissingExtraError: it is not installed.
    """
    try:
        return import_module(module)
    except ModuleNotFoundError as error:
        raise MissingExtraError("pytest_npudump.strategies", "hypothesis", "testing") from error


def settings(**changes: Any) -> Any:
    """Return ``hypothesis.settings`` for a test that takes ``npu_dump``, as a decorator.

    An example has no deadline, as a device takes the time it takes; none is run only to explain a failure
    by lines of Python; and hypothesis is told that all share the fixture, which gives each a dump of its own.

    Args:
        changes: settings of hypothesis, which go before these.

    Raises:
        MissingExtraError: hypothesis is not installed.
    """
    checks, phases = hypothesis().HealthCheck, hypothesis().Phase
    ours = {
        "deadline": None,
        "phases": [phase for phase in phases if phase is not phases.explain],
        "suppress_health_check": [checks.function_scoped_fixture, checks.too_slow],
    }
    return hypothesis().settings(**{**ours, **changes})


_RAMP = 127
"""Number at which a count begins anew; every type holds the ones before."""
_SCALE = 4.0
"""Standard deviation of random numbers: some are integers of more than one bit, few reach 16."""
_STEP = 2.0**-10
"""Unit of the counted values, so that none is subnormal."""
_PLACES = 16
"""Number of a tensor's elements that may have a value of their own."""


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
        small = st.tuples(side, side, side).filter(lambda m: max(m[0], m[2]) * m[1] <= max_elements)
        rows, inner, columns = draw(small)
        return filled(draw, (rows, inner)), filled(draw, (inner, columns))

    return found()


def _filled(kind: np.dtype[Any], limits: dict[str, Any]) -> Callable[[Any, tuple[int, ...]], NDArray[Any]]:
    """Return a strategy's draw of a tensor by shape.

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
