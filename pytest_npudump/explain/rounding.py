"""Rounding of a number format, apart from a device's error against the reference.

Three things are compared: the device with the reference in float32, and the reference rounded to the device's
types after every operator, on the CPU, with the same. What a :class:`Rounding` explains is no difference, on
top of what two runs of the same numerics may differ by (as in PyTorch's ``multiplier * error + tolerance``).

The device may be a few times as far off as that, as it adds up in another order: the elements
:data:`FARTHEST` times as far as the farthest one of the rounded reference, the tensor as a vector
:data:`FURTHER` times. These are bounds of AWS Neuron's accuracy checks (worst L-inf ratio under 5, worst L2
ratio under 3). The second is also PyTorch's multiplier for 16-bit types (``torch._dynamo.utils.same``), whose
larger ones for tensors of few elements are :data:`SMALL`.

By the triangle inequality bounds of elements hold for statistics: max and min differ by no more than the
farthest element does, the norm by no more than the norm of the difference, and the mean by no more than its
root mean square.

A tensor that is farther off than :data:`USELESS` as a vector fails all the same. So does, where rounding
alone puts it as far off, one of which anything is farther off than :data:`FLAT`. At a cosine below 0.99 it
is not the reference's tensor, and to say so is not to say that the device computed wrongly.
"""

from __future__ import annotations

import importlib
import math
from collections import defaultdict
from dataclasses import dataclass, replace
from functools import partial
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import ml_dtypes
import numpy as np

from pytest_npudump.compare.stats.verdict import FAIL, GRAPH_INPUT, Comparison, Reason, Verdict
from pytest_npudump.compare.tensors.element_verdict import MAX_ABS, RELATIVE_L2, SPECIAL, with_failing
from pytest_npudump.compare.tolerances.rules import floats_among
from pytest_npudump.dump.table import MEASURED, STATISTICS
from pytest_npudump.onnxmodels.sessions import ModelError, exposed_session, onnx, weight_of

if TYPE_CHECKING:
    Array = np.ndarray[Any, np.dtype[Any]]
    from collections.abc import Iterable, Mapping

    from pytest_npudump.compare.tolerances.tolerance import Tolerances
    from pytest_npudump.dump.records import TensorKey, TensorRecord
    from pytest_npudump.explain.comparison import Compared
    from pytest_npudump.explain.reference_model import ReferenceModel


FARTHEST = 5.0
FURTHER = 3.0
SMALL = ((10, 10.0), (500, 8.0))
"""Elements up to which a tensor is small, and the factor that it has at least."""


@dataclass(frozen=True, slots=True)
class Rounding:
    """Effect of rounding after every operator on a tensor of the reference.

    Attributes:
        largest: of the distances of its elements.
        norm: l2norm of the difference.
        count: of its elements.
        reference: l2norm of the tensor in float32.
        magnitude: largest magnitude of an element of it.
        special: elements that are NaN or infinite when rounded, and are not in float32.
    """

    largest: float
    norm: float
    count: int
    reference: float
    magnitude: float
    special: int = 0

    @classmethod
    def of(cls, reference: Array, rounded: Array) -> Rounding:
        """Compare two arrays of one shape; pairs that are not finite count for nothing."""
        exact = reference.astype(np.float64).reshape(-1)
        with np.errstate(invalid="ignore", over="ignore"):
            apart = rounded.astype(np.float64).reshape(-1) - exact
        finite = np.isfinite(apart)
        special = int(np.count_nonzero(np.isfinite(exact) & ~finite))
        exact, apart = exact[finite], apart[finite]
        return cls(
            largest=float(np.abs(apart).max(initial=0.0)),
            norm=float(np.linalg.norm(apart)),
            count=exact.size,
            reference=float(np.linalg.norm(exact)),
            magnitude=float(np.abs(exact).max(initial=0.0)),
            special=special,
        )

    @property
    def relative(self) -> float:
        """The relative L2 distance."""
        return self.norm / self.reference if self.reference else math.inf if self.norm else 0.0

    def of_statistic(self, statistic: str) -> tuple[float, float] | None:
        """Return the effect of rounding on a statistic, and its scale; None where it has none."""
        root = math.sqrt(max(self.count, 1))
        return {
            "max": (self.largest, self.magnitude),
            "min": (self.largest, self.magnitude),
            MAX_ABS: (self.largest, self.magnitude),
            "avg": (self.norm / root, self.reference / root),
            "l2norm": (self.norm, self.reference),
            RELATIVE_L2: (self.relative, 1.0),
        }.get(statistic)

    def factor(self, statistic: str) -> float:
        """Return the allowed ratio of a device's error to the rounded reference's."""
        small = next((factor for size, factor in SMALL if self.count <= size), 0.0)
        return max(FARTHEST if statistic in {"max", "min", MAX_ABS} else FURTHER, small)


ROUNDED: Mapping[str, tuple[Any, int]] = MappingProxyType(
    {"float16": (np.float16, 10), "bfloat16": (ml_dtypes.bfloat16, 16)}
)
"""Types that are rounded to, and their numbers in ``TensorProto.DataType``."""

_FLOAT = 1
EXACT_INPUTS = frozenset({"Resize", "Upsample", "Range", "QuantizeLinear", "DequantizeLinear"})
"""Operators with constants that say where, not how much: rounded, they would make other shapes or codes."""
_CASTS_BFLOAT16 = 13
"""The first version of ONNX's operators in which ``Cast`` knows bfloat16."""


def rounded_model(model: ReferenceModel, dtypes: Mapping[str, str], default: str) -> ReferenceModel:
    """Return ``model`` such that tensors are rounded behind the operator that writes them, and weights are.

    Operators themselves compute in float32, as the cores of an NPU do that accumulate in float32. What
    operators round inside of them, and what branches and bodies of loops hold, is not rounded.

    Args:
        model: the reference, in float32.
        dtypes: types on the device, by the names of the reference's tensors.
        default: the type of tensors that are not among them; float32 rounds nothing.

    Raises:
        ModelError: a weight in another file cannot be read, or onnxruntime refuses the model.
    """
    proto = type(model.proto)()
    proto.CopyFrom(model.proto)
    version = next((opset.version for opset in proto.opset_import if opset.domain in ("", "ai.onnx")), 0)
    if "bfloat16" in {default, *dtypes.values()} and version < _CASTS_BFLOAT16:
        try:
            convert = importlib.import_module("onnx.version_converter").convert_version
            proto = convert(proto, _CASTS_BFLOAT16)
        except Exception as error:
            raise ModelError(
                f"{model.path} cannot be converted to opset {_CASTS_BFLOAT16}: {error}"
            ) from error
    exact = {name for node in proto.graph.node if node.op_type in EXACT_INPUTS for name in node.input[1:]}
    every = [name for node in model.proto.graph.node for name in node.output if name]
    ports = exposed_session(model.path, model.proto, every).get_outputs()
    floats = {port.name for port in ports if port.type == "tensor(float)"}
    floats -= _computed_from_shapes(proto.graph) | exact
    make, nodes = onnx().helper.make_node, []
    for node in proto.graph.node:
        copy = type(node)()
        copy.CopyFrom(node)
        nodes.append(copy)
        for place, name in enumerate(node.output):
            dtype = dtypes.get(name, default)
            if name in floats and dtype in ROUNDED:
                raw, narrow = f"{name}:unrounded", f"{name}:narrow"
                copy.output[place] = raw
                nodes.append(make("Cast", [raw], [narrow], to=ROUNDED[dtype][1]))
                nodes.append(make("Cast", [narrow], [name], to=_FLOAT))
    del proto.graph.node[:]
    proto.graph.node.extend(nodes)
    for tensor in proto.graph.initializer if default in ROUNDED else ():
        if tensor.data_type != _FLOAT or tensor.name in exact:
            continue
        array = rounded_to(weight_of(tensor, model.path), default)
        tensor.CopyFrom(onnx().numpy_helper.from_array(array, tensor.name))
    return replace(model, proto=proto, sessions={})


def rounded_to(array: Array, dtype: str) -> Array:
    """Return floats with the values that a type of :data:`ROUNDED` holds, in their own type; others as is."""
    if dtype not in ROUNDED or array.dtype.kind != "f":
        return array
    with np.errstate(over="ignore", invalid="ignore"):  # beyond the type, signalling NaNs
        return array.astype(ROUNDED[dtype][0]).astype(array.dtype)


def largest_of(dtype: str) -> float:
    """Return the largest finite number of a floating-point type of the device."""
    return float(ml_dtypes.finfo(ROUNDED[dtype][0] if dtype in ROUNDED else dtype).max)  # type: ignore[no-untyped-call]


def smallest_of(dtype: str) -> float:
    """Return the smallest normal number of such a type."""
    return float(ml_dtypes.finfo(ROUNDED[dtype][0] if dtype in ROUNDED else dtype).smallest_normal)  # type: ignore[no-untyped-call]


def _computed_from_shapes(graph: Any) -> frozenset[str]:
    """Return tensors that are made of shapes and constants alone: no device rounds sizes to 16 bits."""
    constant = {tensor.name for tensor in graph.initializer}
    found: set[str] = set()
    for node in graph.node:
        if node.op_type == "Constant":
            constant.update(node.output)
        inputs = [name for name in node.input if name and name not in constant]
        if node.op_type in {"Shape", "Size"} or (inputs and all(name in found for name in inputs)):
            found.update(node.output)
    return frozenset(found)


USELESS = 0.14
"""Relative L2 distance at which the cosine is 0.99, the bound of msit and msprobe for a network."""

FLAT = 0.05
"""The other bound of msit and msprobe (preset ``om-net``), where rounding alone is beyond :data:`USELESS`."""

COUNTS = STATISTICS[MEASURED:]
"""Numbers of elements that are NaN, or infinite."""

DEVICE = "device"
DTYPE = "dtype"


@dataclass(frozen=True, slots=True)
class Blame:
    """Whose error a tensor's difference from the reference is.

    Attributes:
        key: which tensor.
        whose: :data:`DEVICE` or :data:`DTYPE`.
        statistic: what is farthest off.
        device: how far the device is off.
        rounding: how far rounding may have put it off, without any factor.
        relative: relative L2 distance of the rounded reference.
    """

    key: TensorKey
    whose: str
    statistic: str
    device: float
    rounding: float
    relative: float

    @property
    def ratio(self) -> float:
        """Ratio of the error to that of rounding."""
        return self.device / self.rounding if self.rounding else math.inf

    def to_json(self) -> dict[str, Any]:
        """Return it as plain JSON data; an infinite ratio is null."""
        return {
            "key": str(self.key),
            "whose": self.whose,
            "statistic": self.statistic,
            "device": self.device,
            "rounding": self.rounding,
            "ratio": self.ratio if math.isfinite(self.ratio) else None,
            "rounding_relative_l2": self.relative,
        }


def by_rounding(
    comparison: Comparison, roundings: Mapping[TensorKey, Rounding], tolerances: Tolerances
) -> tuple[Comparison, tuple[Blame, ...]]:
    """Remove mismatches that rounding explains from the verdicts; name whose error the others are.

    Args:
        comparison: judged by bounds for the same numerics, and by rules.
        roundings: what rounding does to the counterparts of the tensors that fail.
        tolerances: those bounds and rules; what a rule decided stays.
    """
    tolerances = tolerances.for_layers_of(comparison.golden.keys, comparison.actual.keys)
    dtypes = dict(zip(comparison.golden.keys, comparison.golden.dtypes, strict=True))
    failing: list[Verdict] = []
    blames: list[Blame] = []
    for verdict in comparison.failing:
        rounding = roundings.get(verdict.key)
        if rounding is None or not verdict.reasons:
            failing.append(verdict)
            continue
        judged = [_judged(reason, rounding) for reason in verdict.reasons]
        rule = partial(_by_rule, verdict, dtypes.get(str(verdict.key), ""), tolerances)
        fixed = [rule(reason.statistic) for reason in verdict.reasons]
        reasons = [
            reason if by_rule else after
            for reason, by_rule, (after, _) in zip(verdict.reasons, fixed, judged, strict=True)
        ]
        if kept := tuple(reason for reason in reasons if reason is not None):
            failing.append(replace(verdict, reasons=kept))
            if not any(fixed):
                whose = DTYPE if all(explained for _, explained in judged) else DEVICE
                blames.append(_blame(verdict.key, whose, kept, rounding))
    return with_failing(comparison, tuple(failing), len(failing) - len(comparison.failing)), tuple(blames)


def _by_rule(verdict: Verdict, dtype: str, tolerances: Tolerances, name: str) -> bool:
    """Return whether a rule of a person decides about a statistic, or the elements, and no preset."""
    statistic = "max" if name in (MAX_ABS, RELATIVE_L2) else name
    if statistic not in {"max", "min", "avg", "l2norm"}:
        return False
    decided = tolerances.decide(verdict.key.layer, dtype, statistic, op_type=verdict.op_type)
    return not decided.source.startswith("preset")


def _judged(reason: Reason, rounding: Rounding) -> tuple[Reason | None, bool]:
    """Return why a statistic still fails, or None, and whether rounding explains it.

    It explains NaN and infinities where it makes about as many of them.
    """
    known, apart = rounding.of_statistic(reason.statistic), reason.difference
    if known is None or apart is None:
        if reason.statistic in COUNTS:
            return reason, abs(reason.difference or 0.0) <= FARTHEST * rounding.special
        return reason, rounding.special > 0 and (reason.statistic == SPECIAL or known is not None)
    error, scale = known
    floor, factor = reason.allowed or 0.0, rounding.factor(reason.statistic)
    allowed = floor + factor * error
    limit = math.inf  # one element may be anything, as long as the tensor as a vector is the reference's
    if rounding.relative >= USELESS:
        limit = FLAT
    elif reason.statistic in {"avg", "l2norm", RELATIVE_L2}:
        limit = USELESS
    useless = max(limit * scale, floor) if math.isfinite(limit) else limit
    if abs(apart) <= min(allowed, useless):
        return None, True
    if abs(apart) > allowed:
        rule = f"{factor:g} x {error:.3g}, which rounding does on the CPU, beyond {reason.rule}"
        return replace(reason, allowed=allowed, rule=rule), False
    rule = f"rounding on the CPU does as much ({error:.3g}), and {100 * limit:.3g} % is the limit"
    return replace(reason, allowed=useless, rule=rule), True


def _blame(key: TensorKey, whose: str, reasons: tuple[Reason, ...], rounding: Rounding) -> Blame:
    """Describe a failing tensor by the statistic that is farthest from what rounding does."""
    measured = [
        (abs(reason.difference), known[0], reason.statistic)
        for reason in reasons
        if (known := rounding.of_statistic(reason.statistic)) is not None and reason.difference is not None
    ]
    if not measured:
        return Blame(key, whose, reasons[0].statistic, math.inf, 0.0, rounding.relative)
    apart, error, statistic = max(measured, key=lambda one: one[0] / one[1] if one[1] else math.inf)
    return Blame(key, whose, statistic, apart, error, rounding.relative)


def coarsest(dtypes: Iterable[str]) -> str:
    """Return the type for rounding tensors without a type in the dump; "" for none.

    A dump with floats that are narrower than 16 bits is not judged by rounding, and has none either.
    """
    floats = {*floats_among(dtypes)}
    if not floats <= {*ROUNDED, "float32", "float64"}:
        return ""
    return next((dtype for dtype in ("bfloat16", "float16") if dtype in floats), "")


def only_wide(dtypes: Iterable[str]) -> bool:
    """Return whether a dump has floats, none narrower than float32, so that no rounding is allowed for."""
    floats = floats_among(dtypes)
    return bool(floats) and {*floats} <= {"float32", "float64"}


def three_ways(
    compared: Compared, model: ReferenceModel, dtype: str, tolerances: Tolerances
) -> tuple[Compared, tuple[Blame, ...], tuple[str, ...]]:
    """Return the comparison without what rounding explains, whose error the rest is, and notes.

    The reference runs once more, and its rounded twin with it, for the tensors that fail.

    Args:
        compared: by the bounds for the same numerics.
        model: the reference.
        dtype: what :func:`coarsest` returned.
        tolerances: those bounds, and rules.

    Raises:
        ModelError: onnxruntime cannot run the reference rounded, or computes other shapes.
    """
    failing = {verdict.key for verdict in compared.comparison.failing if verdict.status == FAIL}
    if not failing:
        return compared, (), ()
    dtypes: dict[str, str] = {}
    wanted: defaultdict[TensorKey, dict[str, list[tuple[TensorKey, TensorRecord]]]] = defaultdict(dict)
    for expected, found in zip(compared.expected, compared.matching.matches, strict=True):
        record, tensor = found.record, found.counterpart.tensor
        if record.key.io == "output" and record.op_type != GRAPH_INPUT:
            dtypes[tensor] = record.dtype
        if expected.golden.key in failing:
            wanted[record.key.execution].setdefault(tensor, []).append((expected.golden.key, record))
    rounded = rounded_model(model, dtypes, dtype)
    roundings: dict[TensorKey, Rounding] = {}
    for execution, tensors in wanted.items():
        feeds = compared.feeds.of(execution)
        sizes = {name: max((record.size or 0) * 2 for _, record in held) for name, held in tensors.items()}
        given = {  # as the device's first operators take it
            name: rounded_to(array, dtype) if array.dtype == np.float32 else array
            for name, array in feeds.items()
        }
        pairs = zip(model.run(feeds, sizes), rounded.run(given, sizes), strict=True)
        for (name, exact), (_, narrow) in pairs:
            if exact is None or narrow is None or exact.dtype.kind != "f":
                continue
            if exact.shape != narrow.shape:
                raise ModelError(f"rounded, {name} has the shape {narrow.shape} in place of {exact.shape}")
            rounding = Rounding.of(exact, narrow)
            roundings.update(dict.fromkeys((key for key, _ in tensors[name]), rounding))
    comparison, blames = by_rounding(compared.comparison, roundings, tolerances)
    notes: tuple[str, ...] = ()
    lost = [key for key, rounding in roundings.items() if rounding.relative >= USELESS]
    if lost:  # the number format leaves nothing that a device could be held to
        share = 100 * roundings[lost[0]].relative
        words = (
            f"reference {model.path.name}: rounding to {dtype} after every operator, on the CPU, puts "
            f"{len(lost)} of its tensors {100 * USELESS:.0f} % or more off float32, first {lost[0]} "
            f"({share:.3g} %): the model is ill-conditioned in {dtype} there, whatever the device does"
        )
        notes = (words,)
    return replace(compared, comparison=comparison), blames, notes
