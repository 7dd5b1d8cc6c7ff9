"""Is an operator's output what its own inputs give? Neither the golden nor other operators have a say in it.

Distances are L2 norms of the difference by that of what was recomputed, in float64. How far off a healthy
operator is was measured on seven models (PP-OCR's, magika, silero-vad), each operator on the inputs that it
had, against onnxruntime. Beside that stands what the operator itself makes of inputs that differ by a unit in
the last place: a sum that cancels is off by more than others, and wrong in nothing.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import numpy as np

from pytest_npudump.dump.table import squeezed
from pytest_npudump.reference.single_operator import largest_of, rounded_to

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    Array = np.ndarray[Any, np.dtype[Any]]

CONVICTED = "convicted"
ACQUITTED = "acquitted"
UNKNOWN = "unknown"

MARGIN = 4.0
"""By how much measured noise may be exceeded: so far single layers that were held out exceeded theirs."""

_MATRIX = frozenset({"Conv", "ConvTranspose", "Gemm", "MatMul"})
"""Operators of the matrix unit, which may take float32 operands as HF32, with 11 bits of mantissa."""
_TIES = frozenset({"ArgMax", "ArgMin", "TopK", "NonMaxSuppression", "Unique"})
"""Operators that may take either of equal values."""
_HALF_STEP = 2.0**12
"""Units in the last place of float32 in one of HF32 and of float16."""


@dataclass(frozen=True, slots=True)
class Healthy:
    """How far a healthy operator may be off, as relative L2.

    Attributes:
        usual: with accumulators and operands of float32.
        most: with what a device may use instead.
        means: what that is; "" where nothing is known to be.
    """

    usual: float
    most: float
    means: str = ""


HEALTHY: Mapping[str, Healthy] = MappingProxyType(
    {
        "float32": Healthy(1.2e-6, 1.1e-3, "HF32 operands"),
        "float16": Healthy(4.9e-5, 4.2e-3, "float16 accumulators"),
        "bfloat16": Healthy(1.9e-4, 1.9e-4),
    }
)
"""Measured noise of healthy operators by the type of their output."""


def healthy(op_type: str, dtype: str, noise: float, *, plain: bool) -> Healthy | None:
    """Return how far an operator may be off, :data:`MARGIN` included; None for a type that was not measured.

    Args:
        op_type: ONNX's.
        dtype: of its output on the device.
        noise: how far inputs that differ by a unit in the last place of float32 put its output off.
        plain: whether it is known to compute with float32 operands and accumulators, as the emulator does.
    """
    known = HEALTHY.get(dtype)
    if known is None:
        return None
    usual = MARGIN * max(known.usual, noise)
    if plain or not known.means or (dtype == "float32" and op_type not in _MATRIX):
        return Healthy(usual, usual)
    return Healthy(usual, MARGIN * max(known.most, _HALF_STEP * noise), known.means)


@dataclass(frozen=True, slots=True)
class Alone:
    """What an operator alone says of its output.

    Attributes:
        verdict: :data:`CONVICTED`, :data:`ACQUITTED` or :data:`UNKNOWN`.
        apart: relative L2 distance of the output from what its inputs give; NaN where it was not measured.
        allowed: the distance beyond which it is convicted; NaN where none applies.
        why: why it is unknown, or what convicts it other than the distance; "" for none.
    """

    verdict: str
    apart: float = math.nan
    allowed: float = math.nan
    why: str = ""


def judge_alone(
    op_type: str,
    dtype: str,
    output: Array,
    readings: Sequence[Array],
    *,
    noise: float = 0.0,
    plain: bool = False,
    finite: bool = True,
) -> Alone:
    """Hold an operator's output against what its inputs give.

    Args:
        op_type: ONNX's type of the operator.
        dtype: of the output on the device.
        output: its values, in the host's layout.
        readings: what the inputs give, in the wide type, by each way in which a healthy device may hold the
            weights; the nearest counts.
        noise: as for :func:`healthy`.
        plain: the same.
        finite: whether its inputs are; devices differ in what they make of NaN and infinities.
    """
    expected = readings[0]
    if squeezed(output.shape) != squeezed(expected.shape):
        shapes = f"its shape is {list(output.shape)}, these inputs give {list(expected.shape)}"
        return Alone(UNKNOWN, why=shapes)
    if expected.dtype.kind in "iub":
        return of_integers(op_type, output.reshape(expected.shape), expected)
    bounds = healthy(op_type, dtype, noise, plain=plain)
    if bounds is None or expected.dtype.kind != "f":
        return Alone(UNKNOWN, why=f"how far a healthy operator is off in {dtype} is not known")
    actual = output.reshape(expected.shape).astype(np.float64)
    forms = (form for one in readings for form in (one, _rounded_either_way(one, dtype, actual, noise)))
    apart = min(distance(actual, one.astype(np.float64), largest_of(dtype)) for one in forms)
    return by_distance(apart, bounds, finite=finite)


def _rounded_either_way(wide: Array, dtype: str, actual: Array, noise: float) -> Array:
    """Return a result rounded to a 16-bit type; where noise of float32 decides to which side, as it was.

    One large element on the brink may be most of a tensor's norm.
    """
    if rounded_to(wide, dtype) is wide:
        return wide
    finite = np.where(np.isfinite(wide), wide, 0.0)
    scale = _norm(finite.astype(np.float64)) / math.sqrt(max(finite.size, 1))
    brink = MARGIN * max(HEALTHY["float32"].usual, noise) * np.maximum(np.abs(finite), scale)
    with np.errstate(invalid="ignore", over="ignore"):
        low, high = rounded_to(wide - brink, dtype), rounded_to(wide + brink, dtype)
        return np.where(np.isnan(actual), rounded_to(wide, dtype), np.clip(actual, low, high))


def by_distance(apart: float, bounds: Healthy, *, finite: bool) -> Alone:
    """Return the verdict on an output that is so far off what finite, or other, inputs give."""
    if math.isinf(apart) and not finite:
        return Alone(UNKNOWN, why="its inputs hold NaN or infinities, of which devices make different things")
    if math.isinf(apart):
        why = "NaN, infinities or nothing but zeros are not where these inputs have them"
        return Alone(CONVICTED, apart, bounds.most, why)
    if bounds.usual < apart <= bounds.most:
        why = (
            f"{bounds.means} may put it off by {bounds.most:.2g}, float32 by no more than {bounds.usual:.2g}"
        )
        return Alone(UNKNOWN, apart, bounds.most, why)
    return Alone(ACQUITTED if apart <= bounds.usual else CONVICTED, apart, bounds.most)


def of_integers(op_type: str, output: Array, expected: Array) -> Alone:
    """Return the verdict on an output of integers or booleans, of the shape of what is expected."""
    wrong = int(np.count_nonzero(output != expected))
    if not wrong:
        return Alone(ACQUITTED, 0.0, 0.0)
    if op_type in _TIES:
        return Alone(
            UNKNOWN, why=f"{wrong} of {output.size} values differ, and ties are not told from errors there"
        )
    if "Quant" in op_type or op_type.startswith(("QLinear", "Cast")):
        near = np.abs(output.astype(np.float64) - expected.astype(np.float64)).max() <= 1
        if near:
            return Alone(UNKNOWN, why=f"{wrong} of {output.size} values differ by 1, as rounding may have it")
    return Alone(CONVICTED, why=f"{wrong} of {output.size} values are not what these inputs give")


def distance(actual: Array, expected: Array, largest: float) -> float:
    """Return the relative L2 distance; infinite where NaN, infinities or a tensor of zeros are not matched.

    What the device's type cannot hold may be infinite there, or its largest number.
    """
    beyond = np.abs(expected) > largest
    held = beyond & (np.abs(actual) >= largest) & (np.sign(actual) == np.sign(expected))
    finite = np.isfinite(expected) & ~held
    with np.errstate(invalid="ignore"):
        same = held | (actual == expected) | (np.isnan(actual) & np.isnan(expected))
    if not np.all(same | (finite & np.isfinite(actual))):
        return math.inf
    difference = _norm(np.where(same, 0.0, actual - np.where(finite, expected, 0.0)))
    scale = _norm(np.where(finite, expected, 0.0))
    return difference / scale if scale else math.inf if difference else 0.0


def _norm(array: Array) -> float:
    return math.sqrt(float(np.sum(np.square(array))))


def noise_of(outputs: Mapping[str, Array], moved: Mapping[str, Array], name: str) -> float:
    """Return how far inputs that moved by a unit in the last place put an output off, as relative L2."""
    here, there = outputs[name], moved.get(name)
    if there is None or here.dtype.kind != "f" or here.shape != there.shape:
        return 0.0
    apart = distance(there.astype(np.float64), here.astype(np.float64), math.inf)
    return apart if math.isfinite(apart) else 0.0
