"""Values at which kernels for NPUs go wrong: where a type ends, where it changes, and where float16 does."""

from __future__ import annotations

import math
from functools import lru_cache
from itertools import chain
from typing import TYPE_CHECKING, Any

import ml_dtypes
import numpy as np

from pytest_npudump.compare.ulps import is_float
from pytest_npudump.strategies.edge_shapes import numpy_type
from pytest_npudump.strategies.hypothesis_settings import hypothesis

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from numpy.typing import DTypeLike

_PLAIN = (1.0, 0.0, -1.0, 0.5, 2.0, 3.0, -0.0)
_OF_HALF = (65504.0, 65505.0, 65519.0, 65520.0, 65536.0, 2.0**-14, 2.0**-24, 2.0**-25)
"""Where float16 ends: wider types meet them in kernels that compute in float16, or convert to it."""
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
    once = dict.fromkeys(map(_Exact, chain(_PLAIN, near, (math.inf, -math.inf, math.nan))))
    return tuple(map(float, once))


class _Exact(float):
    """A float that differs from its negative where both are 0, and equals itself where it is NaN."""

    __slots__ = ()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, float) and self.hex() == other.hex()

    def __hash__(self) -> int:
        return hash(self.hex())


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
    """Return the :func:`edge_values` within limits, which are those of :func:`values`, and what tells others.

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
