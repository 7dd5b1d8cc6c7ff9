"""A model as a list of nodes, each a session of onnxruntime of its own: every tensor is in our hands.

One thread and no optimisation, as in the emulator; a whole run gives the same bits as its dumped model.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx
import onnxruntime as ort
from onnx import helper, numpy_helper

from pytest_npudump.record.edges import Edges, GraphNode as Operator, Port

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pytest_npudump.dump.records import TensorKey
    from verdicts.models import Source


SCALED = {"Conv", "MatMul", "ConvTranspose", "Gemm"}
"""Operators that multiply by weights."""


@dataclass(frozen=True)
class Remembered(Edges):
    """Edges that find out once what feeds the same tensors: each rule asks it of each fault."""

    _known: dict[tuple[TensorKey, ...], Any] = field(default_factory=dict, compare=False)

    def parents_of(self, keys: Sequence[TensorKey]) -> list[tuple[tuple[int, ...], bool]]:
        """As of any edges."""
        asked = tuple(keys)
        if asked not in self._known:
            self._known[asked] = Edges.parents_of(self, keys)
        return [*self._known[asked]]


@dataclass
class Node:
    """One operator.

    Attributes:
        index: in execution order, counted from 0 among those whose inputs are not all constant.
        proto: its ``NodeProto``, whose inputs and outputs are names of tensors.
        constants: those of its inputs that are constant.
    """

    index: int
    proto: Any
    constants: dict[str, np.ndarray]
    _sessions: dict[Any, Any] = field(default_factory=dict)

    @property
    def name(self) -> str:
        return str(self.proto.name)

    @property
    def op_type(self) -> str:
        return str(self.proto.op_type)

    @property
    def inputs(self) -> list[str]:
        """Names of the tensors that it reads, without constants."""
        return [name for name in self.proto.input if name and name not in self.constants]

    @property
    def outputs(self) -> list[str]:
        return [name for name in self.proto.output if name]

    @property
    def weight(self) -> str | None:
        """The name of its largest constant of floats."""
        floats = {name: a.size for name, a in self.constants.items() if a.dtype == np.float32 and a.size > 1}
        return max(floats, key=lambda name: floats[name]) if floats else None

    def run(self, tensors: Mapping[str, np.ndarray], opset: int) -> list[np.ndarray]:
        """Compute the outputs; a session is made for the first inputs of a type and kept."""
        feeds = {name: tensors[name] for name in self.inputs}
        kinds = tuple(array.dtype.str for array in feeds.values())
        if kinds not in self._sessions:
            self._sessions[kinds] = session(self.proto, feeds, self.constants, opset)
        found: list[np.ndarray] = self._sessions[kinds].run(self.outputs, feeds)
        return found

    def changed(self, proto: Any = None, **constants: np.ndarray) -> Node:
        """The same with another ``NodeProto``, or other constants."""
        return Node(self.index, self.proto if proto is None else proto, self.constants | constants)


def session(
    proto: Any, feeds: Mapping[str, np.ndarray], constants: Mapping[str, np.ndarray], opset: int
) -> Any:
    """A session of one node."""
    inputs = [
        helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(array.dtype), None)
        for name, array in feeds.items()
    ]
    outputs = [onnx.ValueInfoProto(name=name) for name in proto.output if name]
    weights = [numpy_helper.from_array(array, name) for name, array in constants.items()]
    graph = helper.make_graph([proto], "node", inputs, outputs, weights)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)
    return ort.InferenceSession(model.SerializeToString(), options(), providers=["CPUExecutionProvider"])


def options(threads: int = 1, *, optimised: bool = False) -> Any:
    """Options of sessions, those of the emulator's dumped models unless told otherwise."""
    found = ort.SessionOptions()
    found.log_severity_level = 3
    found.intra_op_num_threads = threads
    found.inter_op_num_threads = 1
    level = ort.GraphOptimizationLevel
    found.graph_optimization_level = level.ORT_ENABLE_ALL if optimised else level.ORT_DISABLE_ALL
    return found


@dataclass
class Network:
    """A model taken apart.

    Attributes:
        source: where it came from.
        model: the ``ModelProto``.
        nodes: in execution order; constants are computed already.
        feed: the input, by its tensor's name.
    """

    source: Source
    model: Any
    nodes: list[Node]
    feed: dict[str, np.ndarray]

    @property
    def opset(self) -> int:
        return int(self.model.opset_import[0].version)

    def following(self, node: Node) -> list[Node]:
        """``node`` and all that depend on it, in execution order."""
        changed = set(node.outputs)
        found = [node]
        for other in self.nodes[node.index + 1 :]:
            if changed.intersection(other.inputs):
                changed.update(other.outputs)
                found.append(other)
        return found

    def parents(self) -> dict[int, set[int]]:
        """The nodes that each one reads from, by index."""
        makers = {name: node.index for node in self.nodes for name in node.outputs}
        return {node.index: {makers[name] for name in node.inputs if name in makers} for node in self.nodes}

    def edges(self) -> Edges:
        """What feeds each node, as the package has it."""
        ports: dict[str, Port | None] = dict.fromkeys(self.feed)
        ports |= {name: Port(node.name, at) for node in self.nodes for at, name in enumerate(node.outputs)}
        nodes = [Operator(node.name, node.op_type, tuple(map(ports.get, node.inputs))) for node in self.nodes]
        found = Edges.of(nodes, self.source.name)
        return Remembered(found.feeds, found.told_by)

    def consumers(self) -> dict[str, list[Node]]:
        """The nodes that read each tensor."""
        found: defaultdict[str, list[Node]] = defaultdict(list)
        for node in self.nodes:
            for name in node.inputs:
                found[name].append(node)
        return found


def load(source: Source) -> Network:
    """Take a model apart; what depends on constants only is computed."""
    model = onnx.load(str(source.path))
    opset = int(model.opset_import[0].version)
    constants = {tensor.name: numpy_helper.to_array(tensor) for tensor in model.graph.initializer}
    nodes: list[Node] = []
    for number, proto in enumerate(model.graph.node):
        if not proto.name:
            proto.name = f"{proto.op_type}_{number}"
        if proto.op_type == "Constant":
            constants[proto.output[0]] = numpy_helper.to_array(proto.attribute[0].t)
            continue
        own = {name: constants[name] for name in proto.input if name in constants}
        node = Node(len(nodes), proto, own)
        if not node.inputs:
            constants.update(zip(node.outputs, node.run({}, opset), strict=True))
        else:
            nodes.append(node)
    (feed,) = (value.name for value in model.graph.input if value.name not in constants)
    return Network(source, model, nodes, {feed: source.feed()})
