"""The operators of an ONNX model, each computed again from the very inputs that a run dumped of it.

:class:`ModelBench` has them judged alone, with what lies upstream of those that are acquitted.
"""

from __future__ import annotations

import math
import re
from collections import defaultdict
from dataclasses import dataclass, field, replace
from functools import cache, cached_property
from itertools import islice
from typing import TYPE_CHECKING, Any

import numpy as np

from pytest_npudump.compare.stats.verdict import GRAPH_INPUT
from pytest_npudump.dump.arrays.decode import load, why_opaque
from pytest_npudump.dump.arrays.layouts import LayoutError, host_array
from pytest_npudump.dump.records import TensorKey, TensorRecord, sanitise
from pytest_npudump.dump.table import squeezed
from pytest_npudump.errors import said
from pytest_npudump.explain.matches import MAPPED, NAME, Match, NameMap, Names, match
from pytest_npudump.explain.operator_alone import (
    CONVICTED,
    DUMPED,
    FED,
    HEALTHY,
    MARGIN,
    MOST_UPSTREAM,
    NO_OPERATOR,
    WEIGHTED,
    Alone,
    Healthy,
    JudgedOperator,
    NotAtHandError,
    Search,
    distance,
    healthy,
    isolate,
    masked,
    nearest_first,
    norm,
)
from pytest_npudump.explain.reference_model import Node, ReferenceModel, arrays_of, piece_of, tensors_of
from pytest_npudump.explain.rounding import EXACT_INPUTS, ROUNDED, largest_of, rounded_to, smallest_of
from pytest_npudump.language.text import first_of
from pytest_npudump.onnxmodels import sessions
from pytest_npudump.onnxmodels.graph import draws_random, every_tensor
from pytest_npudump.onnxmodels.sessions import ModelError, exposed_session, onnx
from pytest_npudump.onnxmodels.variation import Variation, Varying
from pytest_npudump.record.edges import SEVERAL, UNKNOWN, Edges, Port

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping, Sequence

    from pytest_npudump.explain.operator_alone import Changes
    from pytest_npudump.onnxmodels.tensor_types import Tensor

    Array = np.ndarray[Any, np.dtype[Any]]

_MATRIX = frozenset({"Conv", "ConvTranspose", "Gemm", "MatMul"})
"""Operators of the matrix unit."""
_ARITHMETIC = frozenset({"Add", "Div", "Mul", "Pow", "Sqrt"})
"""Operators that round each element by itself, of the inputs' magnitudes or of its own."""
_ROUNDINGS = 8
"""Roundings of such an element, at most."""
_MAGNITUDES = "magnitudes"
_STEPS = {"float32": 0.0, "float16": 2.0**-9, "bfloat16": 2.0**-6, "float32 on a device": 2.0**-9}
"""Relative rounding of operands and results by the type, where that is known; a device may take HF32."""
_TIES = frozenset({"ArgMax", "ArgMin", "TopK", "NonMaxSuppression", "Unique"})
"""Operators that may take either of equal values."""
_SELECTING = frozenset(
    {
        "Where",
        "Gather",
        "GatherElements",
        "GatherND",
        "Slice",
        "Split",
        "Concat",
        "Transpose",
        "Reshape",
        "Flatten",
    }
    | {"Squeeze", "Unsqueeze", "Expand", "Tile", "Pad", "Identity", "Max", "Min", "Clip", "Relu", "MaxPool"}
    | {"DepthToSpace", "SpaceToDepth", "ReduceMax", "ReduceMin", "GlobalMaxPool"}
)
"""Operators that only select, move or copy elements."""
_OF_ONE_AXIS = frozenset({"ArgMax", "ArgMin", "TopK"})
"""Those of them whose output is indices along an axis."""
_SEED = 0
_FLOATS = frozenset({1, 11})
"""``FLOAT`` and ``DOUBLE`` of ``TensorProto.DataType``."""
_COUNTED = re.compile(r"[A-Z][A-Za-z0-9]*_\d+")
"""Names that parsers of ONNX give to operators without one: the type, and how many of these came before."""
_APPROXIMATED = 1e-2
"""Relative L2 by which no approximation of a function on a device is off, as a permutation of values is."""
_KEPT, _KEPT_BYTES = 32, 1 << 20
"""Number of operators' sessions that a model keeps, and the size of the largest such operator."""
_LAYOUTS = {4: "NCHW", 5: "NCDHW"}
_CAST = "Cast"
_IN_PLACE = frozenset({_CAST, "Identity", "TransData"})
"""Types of operators that convert a tensor and leave each value in its place; all but casts keep it, too."""


@dataclass(frozen=True, eq=False)
class DumpedOperator:
    """An operator of a model, and what one execution of a run dumped of it: onnxruntime computes it again.

    It is computed as the whole model is: in float32, as written, on one thread.

    Attributes:
        model: the model, of which weights are.
        node: the operator.
        tensor: name of one of its outputs.
        feeds: an array for each input that is no constant, in type and shape of the model.
        output: the values of :attr:`tensor`, in the host's layout.
        dtype: their type on the device.
        how: by what the layer was matched, as in :mod:`pytest_npudump.explain.matches`.
        plain: whether the device is known to compute with float32 operands and accumulators.
    """

    model: ReferenceModel
    node: Node
    tensor: str
    feeds: Mapping[str, Array]
    output: Array
    dtype: str
    how: str
    plain: bool = False

    @property
    def name(self) -> str:
        """The operator's name."""
        return self.node.name

    def expected(self) -> Array:
        """Compute the output again.

        Raises:
            ModelError: onnxruntime cannot run the operator on these inputs.
            NotAtHandError: its output is no tensor of numbers.
        """
        if self.tensor not in self._computed:
            raise NotAtHandError("its output is no tensor of numbers")
        return self._computed[self.tensor]

    def healthy(self, _: Array) -> Healthy:
        """Return a healthy device's error limit."""
        matrix = not self.node.types.isdisjoint(_MATRIX)
        return healthy(self.dtype, self._noise, plain=self.plain, matrix=matrix)

    def floats(self, actual: Array, expected: Array, _: Healthy) -> Iterator[tuple[Array, Array]]:
        """Yield the output and what it may be: weights as they are, or of the device's type, and rounded."""
        readings = [expected]
        if self.dtype != expected.dtype.name:
            readings.append(self._run(self._session(self.dtype))[self.tensor])
        for reading in readings:
            yield actual, reading
            yield actual, rounded_either_way(reading, self.dtype, actual, self._noise)

    def integers(self, expected: Array) -> Iterator[tuple[Array, str]]:
        """Yield the output of integers or booleans; of indices, those of values that are as large, too."""
        yield expected, ""
        if self._tied(expected):
            yield self.output.reshape(expected.shape), said("takes the other of equal values")

    def selects(self) -> bool:
        """Return whether it only selects, moves or copies elements."""
        return self.node.types <= _SELECTING

    def sized(self) -> bool:
        """Return whether its inputs decide its output's size: on a device a buffer may be the larger one."""
        kind = self.node.operator.op_type
        return self.node.types == {kind} and kind not in _TIES and (self.plain or self.selects())

    def finite(self) -> bool:
        """Return whether its inputs are finite."""
        floats = (array for array in self.feeds.values() if array.dtype.kind == "f")
        return all(bool(np.isfinite(array).all()) for array in floats)

    def beyond(self, actual: Array, expected: Array) -> int | None:
        """Count elements that are farther off than rounding explains; None where that is not known.

        A sum of n products is off by n roundings of the sum of their magnitudes, at most, and by the products
        of what is below normal numbers, which may be taken as 0. Nothing is known of how a device sums in
        small types, and of convolutions by transforms.
        """
        step, products = _STEPS.get(self.dtype if self.plain else f"{self.dtype} on a device"), self._products
        if step is None or not products:
            return None
        session, least = self._session(_MAGNITUDES), smallest_of(self.dtype)
        sizes = {name: np.abs(one) for name, one in self.feeds.items()}
        of = np.maximum(self._run(session, sizes)[self.tensor], np.abs(expected), dtype=np.float64)
        limit = (2.0**-22 * products + step) * of + least
        for name in sizes.keys() & {*self.model.written(self.node).input[:2]}:
            small = np.where(sizes[name] < least, sizes[name], 0).astype(sizes[name].dtype)
            if small.any():
                limit += self._run(session, {**sizes, name: small})[self.tensor]
        with np.errstate(invalid="ignore"):
            off = np.abs(actual - expected) > limit
        return int(np.count_nonzero(off & (np.abs(expected) <= largest_of(self.dtype))))

    @property
    def _products(self) -> int:
        """Number of products in each sum, or of roundings; 0 where unknown."""
        kind, names = self.node.operator.op_type, self.model.written(self.node).input
        if kind in _ARITHMETIC and self.node.types == {kind}:
            return _ROUNDINGS
        given = {name: array.shape for name, array in self.feeds.items()}
        held = ((name, self.model.held.get(name)) for name in names)
        given |= {name: tuple(one[2].dims) for name, one in held if one and hasattr(one[2], "dims")}
        if self.node.types != {kind} or kind not in _MATRIX or not given.keys() >= {*names[:2]}:
            return 0
        first, second = (given[name] for name in names[:2])
        if kind in {"MatMul", "Gemm"}:  # of a matrix that is transposed it is one of the two
            return max(first[-2:], default=0) if kind == "Gemm" else first[-1] + 1
        taken = math.prod(second[1:] if kind == "Conv" else (second[0], *second[2:])) + 1
        return taken if self.plain else 0

    def excuse(self, actual: Array, expected: Array, apart: float) -> str:
        """Return why a healthy operator may give wrong integers; "" where none may."""
        if not math.isnan(apart):
            return ""
        types, wrong = self.node.types, int(np.count_nonzero(actual != expected))
        if not types.isdisjoint(_TIES) and self._tied(expected) is None:
            return f"{wrong} of {actual.size} values differ, and ties are not told from errors there"
        rounds = any("Quant" in one or one.startswith("QLinear") for one in types)
        if any(one.startswith(_CAST) for one in types):
            rounds |= any(one.dtype.kind == "f" for one in self.feeds.values())
        if not rounds or not {actual.dtype.kind, expected.dtype.kind} <= {*"iu"}:
            return ""
        apart_by = np.maximum(actual, expected) - np.minimum(actual, expected)  # floats hold no int64
        if np.isin(apart_by, (0, 1)).all():
            return f"{wrong} of {actual.size} values differ by 1, as rounding may have it"
        return ""

    def _tied(self, expected: Array) -> bool | None:
        """Return whether indices of a TopK or ArgMax have the same values as others; None where unknown."""
        kind, names = self.node.operator.op_type, self.node.operator.inputs
        data, several = self.feeds.get(next(iter(names), "")), kind == "TopK"
        if data is None or kind not in _OF_ONE_AXIS or self.node.types != {kind}:
            return None
        written = self.model.written(self.node)
        if written.input[0] != names[0]:  # but a weight
            return None
        if [*written.output[several:]] != [self.tensor]:  # the values of a TopK
            return False
        given = {one.name: one.i for one in written.attribute}
        axis = given.get("axis", -1 if several else 0)
        found = [one.astype(np.int64) for one in (self.output.reshape(expected.shape), expected)]
        if not several and not given.get("keepdims", 1):
            found = [np.expand_dims(one, axis) for one in found]
        if not found[0].size or not 0 <= found[0].min() <= found[0].max() < data.shape[axis]:
            return False
        here, there = (np.take_along_axis(data, one, axis) for one in found)
        if several and not given.get("sorted", 1):
            here, there = np.sort(here, axis), np.sort(there, axis)
        each_once = bool(np.diff(np.sort(found[0], axis), axis=axis).all())
        return each_once and np.array_equal(here, there, equal_nan=data.dtype.kind == "f")

    @cached_property
    def _as_written(self) -> Any:
        return self._session("")

    @cached_property
    def _computed(self) -> dict[str, Array]:
        return self._run(self._as_written)

    @cached_property
    def _noise(self) -> float:
        """Change of the output, as relative L2, when inputs move by a unit in the last place."""
        here, there = self._computed[self.tensor], self._run(self._as_written, seed=_SEED).get(self.tensor)
        if there is None or here.dtype.kind != "f" or here.shape != there.shape:
            return 0.0
        apart = distance(there.astype(np.float64), here.astype(np.float64), math.inf)
        return apart if math.isfinite(apart) else 0.0

    @cached_property
    def _tensors(self) -> dict[str, Tensor]:
        return tensors_of(self.feeds)

    def _run(
        self, session: Any, given: Mapping[str, Array] | None = None, seed: int | None = None
    ) -> dict[str, Array]:
        """Compute the outputs that are numbers; a seed moves floats by about a unit in the last place.

        Of the inputs, unless others are given.
        """
        tensors = self._tensors if given is None else tensors_of(given)
        feeds = Varying(Variation(seed=seed)).feeds(tensors, 0)
        for name, tensor in feeds.items():
            own = tensors[name].data
            if tensor.data is not own and own.dtype.kind == "f" and (mask := masked(own)).any():
                tensor.data[mask] = own[mask]  # a constant, which no operator rounds
        return arrays_of(sessions.run(session, feeds, self.node.operator.outputs))

    def _session(self, dtype: str) -> Any:
        """Return a session of the operator: weights as written, rounded to a type, or their magnitudes."""
        given = ((name, one.dtype.name, tuple(one.shape)) for name, one in self._tensors.items())
        kept, key = self.model.pieces, (self.name, dtype, *given)
        if key not in kept:
            proto = self._piece(dtype)
            session = exposed_session(self.model.path, proto, self.node.operator.outputs)
            if proto.ByteSize() > _KEPT_BYTES or proto.functions:  # which may draw random numbers
                return session
            if len(kept) == _KEPT:
                del kept[next(iter(kept))]
            kept[key] = session
        return kept[key]

    def _piece(self, dtype: str) -> Any:
        proto = piece_of(self.model, [self.node], self._tensors)
        rounds = dtype in ROUNDED and self.node.operator.op_type not in EXACT_INPUTS
        if rounds or dtype == _MAGNITUDES:
            helper = onnx().numpy_helper
            for attribute in proto.graph.node[-1].attribute if dtype == _MAGNITUDES else ():
                if attribute.f < 0:
                    attribute.f = -attribute.f
            for tensor in every_tensor(proto):
                if tensor.data_type not in _FLOATS:
                    continue
                try:
                    array = helper.to_array(tensor, str(self.model.path.parent))
                except (OSError, ValueError) as error:
                    raise ModelError(f"the weight {tensor.name!r} cannot be read: {error}") from error
                array = rounded_to(array, dtype) if rounds else np.abs(array)
                tensor.CopyFrom(helper.from_array(array, tensor.name))
        return proto


def rounded_either_way(wide: Array, dtype: str, actual: Array, noise: float) -> Array:
    """Return a result rounded to a 16-bit type; where noise of float32 decides to which side, as it was.

    One large element on the brink may be most of a tensor's norm.
    """
    if rounded_to(wide, dtype) is wide:
        return wide
    finite = np.where(np.isfinite(wide), wide, 0.0)
    numbers = finite.astype(np.float64)
    numbers = numbers[~masked(numbers)]
    scale = norm(numbers) / math.sqrt(max(numbers.size, 1))
    brink = MARGIN * max(HEALTHY["float32"].usual, noise) * np.maximum(np.abs(finite), scale)
    with np.errstate(invalid="ignore", over="ignore"):
        low, high = rounded_to(wide - brink, dtype), rounded_to(wide + brink, dtype)
        return np.where(np.isnan(actual), rounded_to(wide, dtype), np.clip(actual, low, high))


@dataclass(frozen=True, slots=True)
class OperatorDump:
    """Dump of some operators, by the requested outputs.

    Where what ran may be another graph than the model, as a reference is, an operator's inputs are those that
    its own record has, or what feeds it there, and never what the model has in that place.
    """

    model: ReferenceModel
    edges: Edges | None
    plain: bool
    _outputs: Mapping[str, Match]
    _at_hand: Mapping[tuple[TensorKey, str], TensorRecord]
    _dumped: Mapping[tuple[TensorKey, str, int], TensorRecord | None]
    _inputs: Mapping[tuple[TensorKey, str], Sequence[TensorRecord]]
    _ports: Mapping[str, tuple[str, tuple[int, ...]]] = field(default_factory=dict)

    @classmethod
    def read(
        cls,
        model: ReferenceModel,
        mapping: NameMap,
        records: Sequence[TensorRecord],
        wanted: Sequence[TensorKey],
        *,
        others: Sequence[TensorKey] = (),
        upstream: int = 0,
        edges: Edges | None = None,
        plain: bool = False,
    ) -> OperatorDump:
        """Find the operators of outputs.

        Args:
            model: the reference.
            mapping: names that it does not know.
            records: tensors of one run: the outputs, and what feeds them.
            wanted: the outputs.
            others: further outputs.
            upstream: how many operators are asked for upstream of each wanted one, at most.
            edges: which tensor fed which in that run; None where it ran this very graph.
            plain: whether the device is known to compute with float32 operands and accumulators.

        Raises:
            DumpError: the header of a tensor file cannot be read.
            ModelError: onnxruntime refuses the model.
        """
        records = [*_inputs_once(records)]
        matching = match(records, model, mapping)
        at_hand: dict[tuple[TensorKey, str], TensorRecord] = {}
        dumped: dict[tuple[TensorKey, str, int], TensorRecord | None] = {}
        inputs: defaultdict[tuple[TensorKey, str], list[TensorRecord]] = defaultdict(list)
        for found in matching.matches:
            at_hand.setdefault((found.record.key.execution, found.counterpart.tensor), found.record)
        for record in records:
            execution, layer = record.key.execution, sanitise(record.key.layer)
            if record.key.io == "input":
                inputs[execution, layer].append(record)
            else:
                place = execution, layer, record.key.slot
                dumped[place] = None if place in dumped else record  # of several turns none is the one
        outputs = {str(found.record.key.sanitised): found for found in matching.matches}
        found_here = cls(model, edges, plain, outputs, at_hand, dumped, inputs)
        fed_by = cache(found_here.feeders)
        further = (key for one in wanted for key in islice(nearest_first(one, fed_by), upstream))
        keys = dict.fromkeys(str(key.sanitised) for key in (*wanted, *others, *further))
        matches = [outputs[key] for key in keys if key in outputs]
        nodes = [one.counterpart.node for one in matches if not _why_no_operator(one, model, plain=plain)]
        names = {name for node in nodes if node for name in (*node.fed_by, *node.operator.outputs)}
        return replace(found_here, _ports=model.ports(names) if names else {})

    def feeders(self, key: TensorKey) -> tuple[TensorKey, ...]:
        """Return the outputs that the operator of one reads, and that have all they need to be judged."""
        return tuple(maker for maker, why in self.makers(key) if not why)

    def makers(self, key: TensorKey) -> Iterator[tuple[TensorKey, str]]:
        """Yield the outputs that the operator of one reads, and why they cannot be judged; "" where they can.

        Of one that was dumped with its reader only it is that input.
        """
        found = self._outputs.get(str(key.sanitised))
        if found is None or found.counterpart.node is None:
            return
        execution = found.record.key.execution
        for name, read in self._given(found)[0].items():
            made = self._at_hand.get((execution, name))
            one = self._outputs.get(str(made.key.sanitised)) if made is not None else None
            if made is None or made.key.io == "input":
                yield (
                    read.key,
                    NO_OPERATOR if name in self.model.inputs else "operator not dumped",
                )
            elif one is not None:
                yield made.key, _why_no_operator(one, self.model, plain=self.plain) or self._given(one)[1]

    def size(self, key: TensorKey) -> int:
        """Return the bytes of what is read to judge an output."""
        found = self._outputs.get(str(key.sanitised))
        return sum(one.size or 0 for one in (found.record, *self._given(found)[0].values())) if found else 0

    def inputs(self, key: TensorKey) -> str:
        """Return the origin of an operator's inputs, as :class:`JudgedOperator` has it."""
        found = self._outputs.get(str(key.sanitised))
        given = self._given(found)[0].values() if found is not None else ()
        if not given:
            return ""
        if not all(one.key.io == "input" for one in given):  # the graph's are as fed, not as they were read
            return FED
        node = found.counterpart.node if found is not None else None
        weighted = node is not None and not self.model.held.keys().isdisjoint(self.model.written(node).input)
        return WEIGHTED if weighted else DUMPED

    def _given(self, found: Match) -> tuple[dict[str, TensorRecord], str]:
        """Return an operator's inputs on the device, by the model's names, and why some are missing."""
        node, model = found.counterpart.node, self.model.path.name
        execution, layer = found.record.key.execution, sanitise(found.record.key.layer)
        names = (*node.operator.inputs, *node.operator.captured) if node is not None else ()
        makers: dict[str, Port] = {}
        others: list[str] = []
        own = self._inputs.get((execution, layer), ())
        matches = (self._outputs.get(str(record.key.sanitised)) for record in own)
        fed: dict[str, TensorRecord | None] = {
            one.counterpart.tensor: one.record for one in matches if one is not None
        }
        if self.edges is None:
            fed = {name: fed.get(name) or self._at_hand.get((execution, name)) for name in names}
        else:
            ports = [port for port in self.edges.feeds.get(layer, (UNKNOWN,)) if port is not None]
            if UNKNOWN in ports or SEVERAL in ports:
                if len(own) != len(names):  # where weights are among them, they may be computed on the device
                    return {}, said("its inputs in the run are not known; set graph= in the marker")
            elif len(ports) != len(names):
                words = said(
                    "computed tensors that it reads: {ran} in the run, {expected} in {model}",
                    ran=len(ports),
                    expected=len(names),
                    model=model,
                )
                return {}, words
            else:
                makers = dict(zip(names, ports, strict=True))
            for name, port in makers.items():
                if name not in fed:
                    fed[name], is_it = self._converted(execution, port, name)
                    others += [] if is_it else [port.layer]
        given = {name: record for name in names if (record := fed.get(name)) is not None}
        lacking = [
            makers[name].layer if name in makers else name
            for name in dict.fromkeys(names)
            if name not in given
        ]
        missing = ", ".join(map(repr, lacking[:3]))
        if others:
            return given, said(
                "in the run it reads {others}, which {model} does not have there",
                others=first_of(others),
                model=model,
            )
        words = said("it reads {missing}, which the second run has not dumped", missing=missing)
        return given, words if missing else ""

    def _converted(self, execution: TensorKey, port: Port, name: str) -> tuple[TensorRecord | None, bool]:
        """Return a port's tensor, converted or as it is, and whether it is one of the model.

        It is, as far as is known, where it was not dumped.
        """
        assert self.edges is not None  # noqa: S101 - asked for only then
        at = self._dumped.get((execution, sanitise(port.layer), port.slot))
        cast: TensorRecord | None = None
        seen: set[TensorKey] = set()
        while at is not None and at.key not in seen:
            match = self._outputs.get(str(at.key.sanitised))
            if match is not None and match.counterpart.tensor == name:
                return cast or at, True
            behind = self.edges.feeds.get(sanitise(at.key.layer), (UNKNOWN,))
            if match is not None or at.op_type not in _IN_PLACE or len(behind) != 1 or behind[0] is None:
                return None, False
            cast = cast or (at if at.op_type == _CAST else None)
            seen.add(at.key)
            at = self._dumped.get((execution, sanitise(behind[0].layer), behind[0].slot))
        return None, at is None

    def op_type(self, key: TensorKey) -> str:
        """Return ONNX's type of the operator that computes an output; "" where it has no counterpart."""
        found = self._outputs.get(str(key.sanitised))
        node = found.counterpart.node if found is not None else None
        return node.operator.op_type if node is not None else ""

    def operator(self, key: TensorKey) -> DumpedOperator:
        """Return the operator that computes an output, with its arrays.

        Raises:
            NotAtHandError: it has no counterpart, is not one operator alone, or its inputs were not dumped.
            DumpError: a tensor cannot be read.
        """
        found = self._outputs.get(str(key.sanitised))
        if found is None:
            raise NotAtHandError("the second run has no such tensor, or it has no counterpart in the model")
        given, why = self._given(found)
        node, record = found.counterpart.node, found.record
        if why := _why_no_operator(found, self.model, plain=self.plain) or why:
            raise NotAtHandError(why)
        assert node is not None  # noqa: S101 - the reason above
        tensor = found.counterpart.tensor
        feeds = {name: _fed(one, *self._ports[name]) for name, one in given.items()}
        output = host_of(record, len(self._ports[tensor][1]))
        how = found.counterpart.how
        return DumpedOperator(self.model, node, tensor, feeds, output, record.dtype, how, self.plain)


def _inputs_once(records: Sequence[TensorRecord]) -> Iterator[TensorRecord]:
    """Yield the records, an input of the graph once however many operators it was dumped with.

    One that was not the same each time is left out: something has written to it.
    """
    inputs: dict[tuple[TensorKey, str], list[TensorRecord]] = {}
    for record in records:
        if record.op_type == GRAPH_INPUT:
            inputs.setdefault((record.key.execution, sanitise(record.key.layer)), []).append(record)
        else:
            yield record
    for first, *others in inputs.values():
        whole = host_of(first, 0) if others and first.payload is not None else None
        if whole is None or all(np.array_equal(host_of(o, 0), whole, equal_nan=True) for o in others):
            yield replace(first, key=replace(first.key, turn=0))


def _why_no_operator(found: Match, model: ReferenceModel, *, plain: bool) -> str:
    """Return why a tensor is not the output of one operator that can be recomputed.

    What is inside an operator rounds again and again: 16 bits, and HF32, leave nothing of a healthy error.
    """
    node, record = found.counterpart.node, found.record
    if record.key.io != "output" or found.of_input or node is None:
        return NO_OPERATOR
    random = next(filter(draws_random, sorted(node.types)), "")
    reasons = (
        (
            found.counterpart.how not in (NAME, MAPPED),
            f"it is fused of several operators, of which {node.name} is the last",
        ),
        (
            node.captured and (not plain or model.raised or record.dtype in ROUNDED),
            f"graphs inside of {node.operator.op_type} may round otherwise than on the CPU",
        ),
        (random, f"{random} draws random numbers"),
        (model.halved, "the model is too large to be computed in float32"),
    )
    return next((words for applies, words in reasons if applies), "")


def host_of(record: TensorRecord, axes: int) -> Array:
    """Return a dumped tensor in the host's layout, of so many axes."""
    if record.payload is None or record.shape is None or why_opaque(record.dtype):
        raise NotAtHandError(f"{record.key} has no values in the dump")
    try:
        return host_array(load(record.payload, record.dtype, record.shape), record, _LAYOUTS.get(axes, "ND"))
    except LayoutError as error:
        raise NotAtHandError(
            f"the layout {record.format} of {record.key} cannot be undone: {error}"
        ) from error


def _fed(record: TensorRecord, dtype: str, shape: tuple[int, ...]) -> Array:
    """Return a dumped tensor as the model takes it.

    Args:
        record: the tensor.
        dtype: its type in the model.
        shape: its dimensions there, -1 for one that varies; () where they are not known.
    """
    array = host_of(record, len(shape))
    if shape and -1 not in shape:
        if squeezed(array.shape) != squeezed(shape):
            raise NotAtHandError(f"{record.key} is {list(array.shape)}, the model has {list(shape)} there")
        array = array.reshape(shape)
    if shape and array.ndim != len(shape):
        raise NotAtHandError(f"{record.key} has {array.ndim} axes, the model has {len(shape)} there")
    wanted = "i" if dtype == "int4" else np.dtype(dtype).kind
    if wanted not in "fiub" or (wanted in "iub") != (array.dtype.kind in "iub"):
        raise NotAtHandError(f"{record.key} is {record.dtype}, the model has {dtype} there")
    return array.astype(dtype)


@dataclass(frozen=True, slots=True)
class ModelBench:
    """Recomputation of a model's operators.

    Attributes:
        model: the ONNX model.
        mapping: names that it does not know.
        own: whether it is the model that ran, or lies beside it.
        converted: whether it lies beside what ran.
        plain: whether the device is known to compute with float32 operands and accumulators.
        edges: which tensor fed which in what ran; None where that is known to be the model's own graph.
    """

    model: ReferenceModel
    mapping: NameMap
    own: bool = False
    converted: bool = False
    plain: bool = False
    edges: Edges | None = None

    def isolate(
        self,
        suspects: Sequence[TensorKey],
        records: Sequence[TensorRecord],
        present: Collection[str],
        changed: Collection[str] = (),
        *,
        explained: Collection[TensorKey] = (),
        others: Sequence[TensorKey] = (),
        search: Search | None = None,
        changes: Changes | None = None,
    ) -> tuple[JudgedOperator, ...]:
        """Judge outputs by what the inputs of their operators give, and what lies upstream of the acquitted.

        Args:
            suspects: the outputs.
            records: tensors of one run: these, and what feeds them, as outputs of others or as inputs.
            present: names of all layers of that run, by which fused operators are known.
            changed: sanitised keys of outputs that are known to be others than in the golden: upstream of the
                suspects a device's own way to compute convicts no operator that is none of these.
            explained: suspects with other weights or attributes: upstream of these no cause is looked for.
            others: outputs that are judged besides, as those upstream are.
            search: what is spent on all that are no suspects, and where that ended.
            changes: what the golden tells of an output.

        Raises:
            DumpError: the header of a tensor file cannot be read.
            ModelError: onnxruntime refuses the model.
        """
        found = OperatorDump.read(
            self.model,
            self.mapping,
            records,
            suspects,
            others=others,
            upstream=MOST_UPSTREAM,
            edges=self.edges,
            plain=self.plain,
        )
        layers = {sanitise(layer) for layer in present}

        def isolated(key: TensorKey, operators: Sequence[DumpedOperator], alone: Alone) -> JudgedOperator:
            upstream = key not in suspects
            if alone.verdict == CONVICTED:
                alone = alone.unless(self._doubt(operators[0], layers))
            near = not _APPROXIMATED < alone.apart < math.inf
            # What fails behind a source has changed for that reason alone.
            known = key not in others and str(key.sanitised) in changed
            if near and upstream and not self.plain and not known:
                alone = alone.unless("it is not known to have changed since the golden")
            kind, model = found.op_type(key), self.model.path.name
            inputs = found.inputs(key) if operators else ""
            return JudgedOperator(
                key, kind, model, self.own, alone, self.converted, upstream=upstream, inputs=inputs
            )

        judged = isolate(
            suspects,
            lambda key: [found.operator(key)],
            isolated,
            cache(lambda key: () if key in explained else found.feeders(key)),
            others=others,
            size=found.size,
            search=search,
            changes=changes,
        )
        if search is not None and CONVICTED not in {one.alone.verdict for one in judged}:
            for one in (one for one in judged if one.key in suspects or one.key not in others):
                for maker, why in found.makers(one.key) if one.key not in explained else ():
                    if why and why != NO_OPERATOR and maker not in others:
                        search.end(maker, why)
        return judged

    def _doubt(self, operator: DumpedOperator, layers: set[str]) -> str:
        """Return why an operator that is wrong may be another one on the device; "" where it is the one."""
        if operator.how == MAPPED:
            return ""
        names = Names(self.model, self.mapping, {})
        if not self.plain and (follower := names.absorbed(operator.node, layers)) is not None:
            return f"{follower.name}, which alone follows it, was not dumped and may be fused into it"
        counted = not self.model.written(operator.node).name
        if self.edges is not None and not self.converted and counted:
            inputs = {*map(sanitise, self.model.inputs)}
            others = [x for x in layers - inputs if _COUNTED.fullmatch(x) and names.node(x) is None]
            if others:
                return (
                    f"it has no name of its own but is counted, and {self.model.path.name} has no "
                    f"{min(others)} that was counted with it: it may be another operator there"
                )
        return ""
