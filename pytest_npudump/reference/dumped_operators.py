"""Operators of the reference with what a run dumped of them: inputs and outputs, as the model has them."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field, replace
from itertools import islice
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import numpy as np

from pytest_npudump.compare.stats.first_divergence import GRAPH_INPUT
from pytest_npudump.dump.arrays.decode import load, why_opaque
from pytest_npudump.dump.arrays.layouts import LayoutError, host_array
from pytest_npudump.dump.records import sanitise
from pytest_npudump.dump.table import squeezed
from pytest_npudump.errors import NpudumpError
from pytest_npudump.graph.edges import SEVERAL, UNKNOWN
from pytest_npudump.language.excerpt import first_of
from pytest_npudump.onnxmodels.random_operators import draws_random
from pytest_npudump.reference.counterparts import MAPPED, NAME
from pytest_npudump.reference.feeds import Execution
from pytest_npudump.reference.matches import match
from pytest_npudump.reference.upstream import nearest_first

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from pytest_npudump.dump.records import TensorKey, TensorRecord
    from pytest_npudump.graph.edges import Edges, Port
    from pytest_npudump.reference.matches import Match
    from pytest_npudump.reference.name_map import NameMap
    from pytest_npudump.reference.reference_model import Node, ReferenceModel

    Array = np.ndarray[Any, np.dtype[Any]]
    TypeAndShape = tuple[str, tuple[int, ...]]

_LAYOUTS = {4: "NCHW", 5: "NCDHW"}
_CAST = "Cast"
_IN_PLACE = frozenset({_CAST, "Identity", "TransData"})
"""Types of operators that convert a tensor and leave each value in its place; all but casts keep it, too."""


class NotAtHandError(NpudumpError):
    """Why an operator cannot be judged by its inputs, or run on them."""


@dataclass(frozen=True, slots=True)
class DumpedOperator:
    """An operator, and what one execution of a run dumped of it.

    Attributes:
        node: the operator.
        tensor: name of one of its outputs.
        feeds: an array for each input that is no constant, in type and shape of the model.
        output: the values of :attr:`tensor`, in the host's layout.
        dtype: their type on the device.
        how: by what the layer was matched, as in :mod:`pytest_npudump.reference.counterparts`.
    """

    node: Node
    tensor: str
    feeds: Mapping[str, Array]
    output: Array
    dtype: str
    how: str


@dataclass(frozen=True, slots=True)
class DumpedOperators:
    """What a run dumped of some operators, by the outputs that are asked for.

    Where what ran may be another graph than the model, as a reference is, an operator's inputs are those that
    its own record has, or what feeds it there, and never what the model has in that place.
    """

    model: ReferenceModel
    edges: Edges | None
    _outputs: Mapping[str, Match]
    _at_hand: Mapping[tuple[Execution, str], TensorRecord]
    _dumped: Mapping[tuple[Execution, str, int], TensorRecord | None]
    _inputs: Mapping[tuple[Execution, str], Sequence[TensorRecord]]
    _ports: Mapping[str, TypeAndShape] = field(default_factory=dict)

    @classmethod
    def read(
        cls,
        model: ReferenceModel,
        mapping: NameMap,
        records: Sequence[TensorRecord],
        wanted: Sequence[TensorKey],
        *,
        upstream: int = 0,
        edges: Edges | None = None,
    ) -> DumpedOperators:
        """Find the operators of outputs.

        Args:
            model: the reference.
            mapping: names that it does not know.
            records: tensors of one run: the outputs, and what feeds them.
            wanted: the outputs.
            upstream: how many operators are asked for upstream of each of these, at most.
            edges: which tensor fed which in that run; None where it ran this very graph.

        Raises:
            DumpError: the header of a tensor file cannot be read.
            ModelError: onnxruntime refuses the model.
        """
        records = [*_inputs_once(records)]
        matching = match(records, model, mapping)
        at_hand: dict[tuple[Execution, str], TensorRecord] = {}
        dumped: dict[tuple[Execution, str, int], TensorRecord | None] = {}
        inputs: defaultdict[tuple[Execution, str], list[TensorRecord]] = defaultdict(list)
        for found in matching.matches:
            at_hand.setdefault((Execution.of(found.record), found.counterpart.tensor), found.record)
        for record in records:
            execution, layer = Execution.of(record), sanitise(record.key.layer)
            if record.key.io == "input":
                inputs[execution, layer].append(record)
            else:
                place = execution, layer, record.key.slot
                dumped[place] = None if place in dumped else record  # of several turns none is the one
        outputs = {str(found.record.key.sanitised): found for found in matching.matches}
        found_here = cls(model, edges, outputs, at_hand, dumped, inputs)
        further = (key for one in wanted for key in islice(nearest_first(one, found_here.feeders), upstream))
        names = dict.fromkeys(str(key.sanitised) for key in (*wanted, *further))
        ports = _ports(model, [outputs[name] for name in names if name in outputs])
        return replace(found_here, _ports=ports)

    def feeders(self, key: TensorKey) -> tuple[TensorKey, ...]:
        """Return the outputs that the operator of one reads, and that have all they need to be judged."""
        found = self._outputs.get(str(key.sanitised))
        node = found.counterpart.node if found is not None else None
        if found is None or node is None:
            return ()
        execution = Execution.of(found.record)
        fed = (self._at_hand.get((execution, name)) for name in self._given(found, node)[0])
        return tuple(record.key for record in fed if record is not None and self._is_complete(record.key))

    def _is_complete(self, key: TensorKey) -> bool:
        found = self._outputs.get(str(key.sanitised))
        node = found.counterpart.node if found is not None else None
        if found is None or node is None or _why_not(found, self.model):
            return False
        return not self._given(found, node)[1]

    def _given(self, found: Match, node: Node) -> tuple[dict[str, TensorRecord], str]:
        """Return what the device gave an operator, by the model's names, and why that is not all of it."""
        execution, layer = Execution.of(found.record), sanitise(found.record.key.layer)
        names, model = node.operator.inputs, self.model.path.name
        if self.edges is None:
            fed = {name: self._at_hand.get((execution, name)) for name in names}
            return _all_dumped(fed)
        own = self._inputs.get((execution, layer), ())
        matches = (self._outputs.get(str(record.key.sanitised)) for record in own)
        fed = {one.counterpart.tensor: one.record for one in matches if one is not None}
        ports = [port for port in self.edges.feeds.get(layer, (UNKNOWN,)) if port is not None]
        if UNKNOWN in ports or SEVERAL in ports:
            if len(own) == len(names):  # where weights are among them, they may be computed on the device
                return _all_dumped({name: fed.get(name) for name in names})
            return {}, "what feeds it in what ran is not known; graph= in the marker can tell"
        if len(ports) != len(names):
            return {}, f"{len(ports)} computed tensors feed it in what ran, and {len(names)} in {model}"
        others, makers = [], dict(zip(names, ports, strict=True))
        for name, port in makers.items():
            if name not in fed:
                fed[name], is_it = self._converted(execution, port, name)
                others += [] if is_it else [port.layer]
        given, why = _all_dumped({name: fed[name] for name in names}, makers)
        if others:
            why = f"in what ran it is fed by {first_of(others)}, which {model} does not have there"
        return given, why

    def _converted(self, execution: Execution, port: Port, name: str) -> tuple[TensorRecord | None, bool]:
        """Return what a port put out, and whether that is a tensor of the model, converted or as it is.

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
        node, record = found.counterpart.node, found.record
        if why := _why_not(found, self.model):
            raise NotAtHandError(why)
        assert node is not None  # noqa: S101 - the reason above
        given, why = self._given(found, node)
        if why:
            raise NotAtHandError(why)
        tensor = found.counterpart.tensor
        feeds = {name: _fed(one, *self._ports[name]) for name, one in given.items()}
        output = host_of(record, len(self._ports[tensor][1]))
        return DumpedOperator(node, tensor, feeds, output, record.dtype, found.counterpart.how)


def _all_dumped(
    fed: Mapping[str, TensorRecord | None], makers: Mapping[str, Port] = MappingProxyType({})
) -> tuple[dict[str, TensorRecord], str]:
    """Return the records there are, and which are missing, by what makes them there if that is known."""
    missing = [
        makers[name].layer if name in makers else name for name, record in fed.items() if record is None
    ]
    names = ", ".join(map(repr, missing[:3]))
    why = f"of its inputs the second run has not dumped {names}" if names else ""
    return {name: record for name, record in fed.items() if record is not None}, why


def _ports(model: ReferenceModel, wanted: Sequence[Match]) -> dict[str, TypeAndShape]:
    nodes = [found.counterpart.node for found in wanted if not _why_not(found, model)]
    names = {name for node in nodes if node for name in (*node.fed_by, *node.operator.outputs)}
    return model.ports(names) if names else {}


def _inputs_once(records: Sequence[TensorRecord]) -> Iterator[TensorRecord]:
    """Yield the records, an input of the graph once however many operators it was dumped with.

    One that was not the same each time is left out: something has written to it.
    """
    inputs: dict[tuple[Execution, str], list[TensorRecord]] = {}
    for record in records:
        if record.op_type == GRAPH_INPUT:
            inputs.setdefault((Execution.of(record), sanitise(record.key.layer)), []).append(record)
        else:
            yield record
    for first, *others in inputs.values():
        whole = host_of(first, 0) if others and first.payload is not None else None
        if whole is None or all(np.array_equal(host_of(o, 0), whole, equal_nan=True) for o in others):
            yield replace(first, key=replace(first.key, turn=0))


def _why_not(found: Match, model: ReferenceModel) -> str:
    node = found.counterpart.node
    if found.record.key.io != "output" or found.of_input or node is None:
        return "no operator computes it"
    if found.counterpart.how not in (NAME, MAPPED):
        return f"it is fused of several operators, of which {node.name} is the last"
    if node.captured:
        return f"{node.operator.op_type} computes with graphs inside of it"
    if draws_random(node.operator.op_type):
        return f"{node.operator.op_type} draws random numbers"
    return "the model is too large to be computed in float32" if model.halved else ""


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
    kinds = ("f", "iub")
    wanted = np.dtype(dtype).kind
    numeric = array.dtype.kind if array.dtype.kind in "iub" else "f"
    if not any(wanted in kind and numeric in kind for kind in kinds):
        raise NotAtHandError(f"{record.key} is {record.dtype}, the model has {dtype} there")
    return array.astype(dtype)
