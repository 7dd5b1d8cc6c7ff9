"""An output against what a reference gives, in units in the last place: no golden and no statistics.

A reference of more precision is rounded to the type of the output first. Next to the largest number either
side may have rounded to infinity, as OpenCL's conformance tests take it: a reference of 65519.9, of which
float16 makes 65504, may be infinite by one unit. A result that is far beyond may not.

Default bounds are meant for operators that work element by element. A sum of many products that cancels is
off by more, and wrong in nothing: such an operator is given bounds of its own.
"""

from __future__ import annotations

from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import ml_dtypes
import numpy as np

from pytest_npudump.compare.tensors.kernel import ulp_gap, unsigned_gap
from pytest_npudump.dump.dtypes import is_exact
from pytest_npudump.errors import RequestError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    Array = NDArray[Any]

NAN = "nan"
INFINITY = "infinity"
ULPS = "ulps"


@dataclass(frozen=True, slots=True)
class UlpBound:
    """A default.

    Attributes:
        ulps: units in the last place.
        source: whose number it is.
    """

    ulps: int
    source: str


ULP_BOUNDS: Mapping[str, UlpBound] = MappingProxyType(
    {
        "float16": UlpBound(2, "OpenCL C 3.0, numerical compliance of half: most built-in functions"),
        "bfloat16": UlpBound(2, "torch.testing.assert_close: rtol 1.6e-2, where a unit is 7.8e-3"),
        "float32": UlpBound(4, "OpenCL C 3.0, single: exp and log 3, sin and cos 4"),
        "float64": UlpBound(4, "OpenCL C 3.0, double: the same"),
    }
)
"""Defaults; integers and bools are compared exactly (``binary`` of Huawei's ops-test-kit)."""


def ulps_allowed(dtype: str, ulps: int | None) -> int:
    """Return the allowed error of an output of a type: the test's, else the default.

    Raises:
        RequestError: there is no default for the type, or less than 0 is asked for.
    """
    if ulps is not None and ulps < 0:
        raise RequestError(f"ulps={ulps}: expected a number of units in the last place, at least 0")
    if ulps is not None or is_exact(dtype):
        return ulps or 0
    if dtype not in ULP_BOUNDS:
        known = ", ".join(ULP_BOUNDS)
        raise RequestError(f"ulps: there is no default for {dtype}, only for integers, {known}; say how many")
    return ULP_BOUNDS[dtype].ulps


@dataclass(frozen=True, slots=True)
class OutputFault:
    """Fault of an output's values.

    Attributes:
        kind: :data:`NAN` where only one side is, :data:`INFINITY` likewise, else :data:`ULPS`.
        wrong: how many elements are, of any kind.
        count: how many elements there are.
        index: the farthest of ``kind``; of NaN and infinities the first.
        got: its value.
        expected: what the reference gives there, in the type of the output.
        ulps: how far apart these are; None where that means nothing.
        allowed: how far they might be.
    """

    kind: str
    wrong: int
    count: int
    index: tuple[int, ...]
    got: float | int
    expected: float | int
    ulps: int | None
    allowed: int


def output_fault(actual: Array, expected: Array, *, ulps: int, atol: float = 0.0) -> OutputFault | None:
    """Hold an output against a reference of its shape; None where each element is near enough.

    Args:
        actual: floats, integers or bools.
        expected: in the same type, or of floats in a wider one.
        ulps: how many units in the last place of the output's type an element may be off; of integers ones.
        atol: an absolute difference that suffices, whatever that is in units.
    """
    got, wide = actual.reshape(-1), expected.reshape(-1)
    if not is_float(actual.dtype):
        boolean = actual.dtype.kind == "b"
        gap = (got != wide).astype(np.uint8) if boolean else unsigned_gap(got, wide)
        return _fault([(ULPS, gap > ulps)], actual, wide, gap, ulps)
    with np.errstate(over="ignore", invalid="ignore"):
        want = wide.astype(actual.dtype)
        exact, here = wide.astype(np.float64), got.astype(np.float64)
        nan = np.isnan(here) != np.isnan(exact)
        number = ~np.isnan(here) & ~np.isnan(exact)
        gap = ulp_gap(np.ascontiguousarray(got), want)
        beyond = number & (np.isinf(here) != np.isinf(want.astype(np.float64)))
        info = ml_dtypes.finfo(actual.dtype)  # type: ignore[no-untyped-call]
        largest = float(info.max)
        unit = largest - float(np.nextafter(info.max, actual.dtype.type(0)))
        near: Array = np.isfinite(exact) & (np.abs(exact) <= largest + (ulps + 1) * unit)
        near &= np.signbit(exact) == np.signbit(here)
        infinite = beyond & ~(near & (gap <= ulps))
        infinite |= number & np.isinf(here) & np.isinf(exact) & (here != exact)
        far = number & ~infinite & (gap > ulps) & ~(np.abs(here - exact) <= atol)
    return _fault([(NAN, nan), (INFINITY, infinite), (ULPS, far)], actual, want, gap, ulps)


def is_float(dtype: np.dtype[Any]) -> bool:
    """Return whether a type is one of floating point, numpy's or ml_dtypes'."""
    if dtype.kind in "biuc":
        return False
    try:
        ml_dtypes.finfo(dtype)  # type: ignore[no-untyped-call]
    except ValueError:
        return False
    return True


def _fault(
    kinds: list[tuple[str, Array]], actual: Array, want: Array, gap: Array, allowed: int
) -> OutputFault | None:
    found = [(kind, where) for kind, where in kinds if where.any()]
    if not found:
        return None
    kind, where = found[0]
    far = kind == ULPS
    at = int(np.argmax(np.where(where, gap, 0))) if far else int(np.argmax(where))
    wrong = sum(int(np.count_nonzero(each)) for _, each in found)
    index = tuple(int(place) for place in np.unravel_index(at, actual.shape)) if actual.ndim else ()
    got, expected = _plain(actual.reshape(-1)[at]), _plain(want[at])
    return OutputFault(kind, wrong, actual.size, index, got, expected, int(gap[at]) if far else None, allowed)


def _plain(value: Any) -> float | int:
    """Return an element as Python's number: exact, as each type fits one of the two."""
    return int(value) if np.asarray(value).dtype.kind in "biu" else float(value)


def same_bits(one: Array, other: Array) -> bool:
    """Return whether two arrays are of one type and shape and hold the same bytes."""
    return one.dtype == other.dtype and one.shape == other.shape and one.tobytes() == other.tobytes()
