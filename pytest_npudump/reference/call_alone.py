"""Is what a call gave on the device what it gives on the CPU? For calls of ATen operators.

The bounds are those of :mod:`pytest_npudump.reference.operator_alone`. The noise on top of them is the call's
own: what a unit in the last place of its arguments makes of its result, how far the CPU in float32 is from
the CPU in float64, and, of 16-bit results, how far the CPU's kernel of that type is off. A call that is off
by less than a few of these is never convicted, whatever it computes.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Protocol

import ml_dtypes
import numpy as np

from pytest_npudump.dump.table import squeezed
from pytest_npudump.reference.operator_alone import (
    CONVICTED,
    HEALTHY,
    MARGIN,
    UNKNOWN,
    Alone,
    Healthy,
    by_distance,
    distance,
    healthy,
    of_integers,
)
from pytest_npudump.reference.single_operator import largest_of, rounded_to
from pytest_npudump.runtime.aten.recompute import NotRecomputedError, Reading

if TYPE_CHECKING:
    from collections.abc import Iterator

    Array = np.ndarray[Any, np.dtype[Any]]

MATRIX = frozenset(
    {"mm", "bmm", "addmm", "addbmm", "baddbmm", "addmv", "mv", "dot", "matmul", "linear"}
    | {"convolution", "_convolution", "convolution_backward", "conv2d"}
)
"""Operators of the matrix unit."""

_TIES = frozenset(
    {"argmax", "argmin", "argsort", "cummax", "cummin", "kthvalue", "max", "median", "min", "mode"}
    | {"nanmedian", "sort", "topk", "unique", "_unique2", "max_pool2d_with_indices", "adaptive_max_pool2d"}
)
"""Operators that may give the place of either of equal values."""

_JUMPS = frozenset({"div", "floor_divide", "fmod", "remainder", "__lshift__", "__rshift__"})
"""Operators whose result jumps where a quotient is almost an integer, or that C leaves undefined."""

_JUMP = "its result jumps where a quotient is almost an integer"

_CASTS = frozenset({"_to_copy", "copy", "to", "_foreach_copy"})

_MOST_NOISE = 0.05
"""Noise beyond which a call says nothing: in what it makes of its arguments no digit is certain."""

_FLUSHED = 1 + 2.0**-5
"""What is below as many times the smallest normal number may be rounded to less than that, and be zero."""

_INNER_ROUNDING = {"float16": 2.0**-11, "bfloat16": 2.0**-8}
"""How far one rounding to the type inside of a kernel puts a value off, at most."""


class Call(Protocol):
    """A call that can be computed again."""

    @property
    def name(self) -> str:
        """As torch prints it."""

    @property
    def operator(self) -> str:
        """ATen's name of it, without overload."""

    def recomputed(self, reading: Reading) -> list[Array | None]:
        """Return what it gives on the CPU; raises :class:`NotRecomputedError`."""

    def floats(self) -> list[Array]:
        """Return the floating-point memory it was given."""


def judge_call(
    call: Call, place: int, dtype: str, output: Array, *, wide: str = "float32", plain: bool = False
) -> Alone:
    """Hold what a call gave against what it gives on the CPU.

    Args:
        call: which.
        place: of the result, among the results of the call.
        dtype: of the result on the device.
        output: its values, in the host's layout.
        wide: ``float32`` or ``float64``, in which the CPU computes.
        plain: whether its matrix unit is known to take float32 operands as they are.
    """
    result = _Result(call, place, dtype, wide)
    try:
        expected = result.read(Reading(wide))
        if squeezed(output.shape) != squeezed(expected.shape):
            shapes = f"its shape is {list(output.shape)}, on the CPU it is {list(expected.shape)}"
            return Alone(UNKNOWN, why=shapes)
        actual = output.reshape(expected.shape)
        if expected.dtype.kind in "iub":
            return _of_integers(result, actual)
        return _of_floats(result, actual, expected, plain=plain)
    except NotRecomputedError as error:
        return Alone(UNKNOWN, why=str(error))


def held_against_cpu(
    call: Call, place: int, dtype: str, *, wide: str = "float32", plain: bool = False
) -> tuple[Array, float | None]:
    """Return what a call gives on the CPU, and beyond which relative L2 distance from that it is convicted.

    The distance is None where all values have to be equal.

    Args:
        call: as for :func:`judge_call`, as is all that follows.
        place: among its results.
        dtype: of the result on the device.
        wide: in which the CPU computes.
        plain: whether float32 operands are taken as they are.

    Raises:
        NotRecomputedError: the CPU cannot compute it, or no bounds are known.
    """
    result = _Result(call, place, dtype, wide)
    expected = result.read(Reading(wide))
    if expected.dtype.kind in "iub":
        return expected, None
    return expected, _bounds(result, expected, plain=plain)[0].most


@dataclass(frozen=True, slots=True)
class _Result:
    """One result of a call, as :func:`judge_call` takes it."""

    call: Call
    place: int
    dtype: str
    wide: str

    @property
    def operator(self) -> str:
        return self.call.operator.rstrip("_")

    @property
    def jumps(self) -> bool:
        """Whether the operator does; a division does where it rounds to integers."""
        plain = self.operator == "div" and not self.call.name.endswith("_mode")
        return self.operator in _JUMPS and not plain

    def read(self, reading: Reading) -> Array:
        found = self.call.recomputed(reading)
        result = found[self.place] if self.place < len(found) else None
        if result is None:
            raise NotRecomputedError("on the CPU it gives nothing that could be compared")
        return result

    def given_finite(self) -> bool:
        return all(bool(np.isfinite(_wide(array)).all()) for array in self.call.floats())


def _of_floats(result: _Result, output: Array, expected: Array, *, plain: bool) -> Alone:
    dtype = result.dtype
    bounds, native = _bounds(result, expected, plain=plain)
    largest = largest_of(dtype)
    apart = min(
        distance(_at_the_limit(one, form, largest, bounds.most), form, largest)
        for one, form in _forms(result, _wide(output), expected)
    )
    alone = by_distance(apart, bounds, finite=result.given_finite())
    if alone.verdict == CONVICTED and (why := _why_not_wrong(result, expected, apart, native)):
        return replace(alone, verdict=UNKNOWN, why=why)
    return alone


def _bounds(result: _Result, expected: Array, *, plain: bool) -> tuple[Healthy, float]:
    """Return how far a healthy device may be off, and how far the CPU's kernel of its type is.

    Raises:
        NotRecomputedError: that is not known, or as good as anything.
    """
    dtype = result.dtype
    if dtype not in HEALTHY or expected.dtype.kind != "f":
        raise NotRecomputedError(f"how far a healthy operator is off in {dtype} is not known")
    noise = _noise(result, expected)
    if noise > _MOST_NOISE:
        raise NotRecomputedError("a unit in the last place of its arguments makes another result of it")
    kind = "MatMul" if result.operator in MATRIX else ""
    bounds = healthy(kind, dtype, noise, plain=plain and dtype == "float32")
    assert bounds is not None  # noqa: S101 - the type has some
    native = _native_distance(result, expected)
    return _with_inner_rounding(dtype, native, bounds), native


def _why_not_wrong(result: _Result, expected: Array, apart: float, native: float) -> str:
    """Say why a result that is far off may be a healthy operator's all the same; "" where it is not."""
    if math.isinf(apart) and not np.any(expected):
        return "on the CPU it gives nothing but zeros, of which no share can be taken"
    if math.isinf(apart) and math.isinf(native):
        return "a kernel of its type on the CPU overflows on the way, too"
    return _JUMP if result.jumps else ""


def _noise(result: _Result, expected: Array) -> float:
    """Return how far float32 may put this call off on a healthy device; infinite where it may be anything."""
    other = result.read(Reading("float64" if result.wide == "float32" else "float32"))
    moved = result.read(Reading(result.wide, moved=True))
    if {other.shape, moved.shape} != {expected.shape}:
        return math.inf
    with np.errstate(over="ignore"):
        held = [_wide(one.astype(np.float32)) for one in (other, moved)]
    return max(distance(one, _wide(expected), largest_of(result.dtype)) for one in held)


def _native_distance(result: _Result, expected: Array) -> float:
    """Return how far off the CPU's kernel of the very 16-bit type is; 0 where it has none."""
    if result.dtype not in _INNER_ROUNDING:
        return 0.0
    try:
        native = result.read(Reading(""))
    except NotRecomputedError:
        return 0.0
    return distance(_wide(native), _wide(expected), largest_of(result.dtype))


def _with_inner_rounding(dtype: str, native: float, bounds: Healthy) -> Healthy:
    """Return bounds in which a kernel may round to its type between its steps, as the CPU's may."""
    most = MARGIN * max(_INNER_ROUNDING.get(dtype, 0.0), native if math.isfinite(native) else 0.0)
    if most <= bounds.most:
        return bounds
    return Healthy(bounds.usual, most, f"rounding to {dtype} between its steps")


def _forms(result: _Result, actual: Array, expected: Array) -> Iterator[tuple[Array, Array]]:
    """Yield the output and what it may be, by each way in which a device may hold what it is given."""
    dtype, wide = result.dtype, result.wide
    readings = [expected]
    if dtype in _INNER_ROUNDING:
        readings.append(result.read(Reading(wide, rounded=dtype)))
    for reading in readings:
        yield actual, _wide(reading)
        yield actual, _wide(rounded_to(reading, dtype))
    smallest = _FLUSHED * float(ml_dtypes.finfo(dtype).smallest_normal)  # type: ignore[no-untyped-call]
    if any(bool((np.abs(_wide(a)) < smallest).any()) for a in (actual, expected, *result.call.floats())):
        flushed = _wide(result.read(Reading(wide, flushed=True)))
        below = (np.abs(actual) <= smallest) & (np.abs(flushed) <= smallest)
        yield np.where(below, 0.0, actual), np.where(below, 0.0, flushed)


def _at_the_limit(actual: Array, expected: Array, largest: float, share: float) -> Array:
    """Return the output with what is expected where one is infinite and the other as good as that."""
    edge = largest * (1 - min(share, 0.5))
    both = (np.abs(actual) >= edge) & (np.abs(expected) >= edge)
    infinite = np.isinf(actual) | np.isinf(expected)
    return np.where(both & infinite & (np.sign(actual) == np.sign(expected)), expected, actual)


def _of_integers(result: _Result, output: Array) -> Alone:
    """Judge integers and booleans, which may depend on the very type that the arguments have."""
    found = [alone for kind in ("float64", "") if (alone := _of_reading(result, output, Reading(kind)))]
    if not found:
        return Alone(UNKNOWN, why="on the CPU it gives nothing that could be compared")
    best = min(found, key=lambda alone: alone.verdict == CONVICTED)
    if best.verdict == CONVICTED and (why := _why_not_wrong_integers(result, output)):
        return replace(best, verdict=UNKNOWN, why=why)
    return best


def _why_not_wrong_integers(result: _Result, output: Array) -> str:
    if result.operator in _TIES:
        return "ties are not told from errors there"
    if result.jumps:
        return _JUMP
    if not result.given_finite():
        return "its inputs hold NaN or infinities, of which devices make different things"
    if result.operator in _CASTS and output.dtype.kind in "iu":
        largest = np.iinfo(output.dtype).max
        if any(bool((np.abs(_wide(array)) > largest).any()) for array in result.call.floats()):
            return f"its inputs hold values beyond those of {result.dtype}"
    return ""


def _of_reading(result: _Result, output: Array, reading: Reading) -> Alone | None:
    """Judge by one reading; None where the CPU has none."""
    try:
        expected = result.read(reading)
    except NotRecomputedError:
        return None
    if expected.shape != output.shape or expected.dtype.kind not in "iub":
        return None
    return of_integers("", output, expected)


def _wide(array: Array) -> Array:
    return array.astype(np.float64)
