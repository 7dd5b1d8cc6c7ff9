"""The reference: an ONNX model whose inner tensors onnxruntime hands out, in float32."""

from __future__ import annotations

import math
import os
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np

from pytest_npudump.dump.arrays.decode import decode
from pytest_npudump.dump.dtypes import BY_NAME
from pytest_npudump.errors import MissingExtraError, RequestError
from pytest_npudump.onnxmodels import graph as graph_module, sessions
from pytest_npudump.onnxmodels.loaded_files import model_digest
from pytest_npudump.onnxmodels.sessions import exposed_session, fits, holds_halves, onnx, to_float32
from pytest_npudump.onnxmodels.tensor_types import Tensor, from_array, from_ort_type, onnx_number

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

    from pytest_npudump.onnxmodels.graph import Operator

    Array = np.ndarray[Any, np.dtype[Any]]


CONSTANT = "Constant"
"""ONNX's type of a node that is a constant."""
_KEPT_BYTES = 1 << 24
"""Size of the largest file of a model that is kept for the next test."""
BATCH = 1 << 29
"""Bytes of inner tensors that one run of the model hands out; a larger model runs several times."""


@dataclass(frozen=True, slots=True)
class Node:
    """One operator of the reference.

    Attributes:
        operator: its unique name, type, inputs without weights, outputs and place in the order of execution.
        all_inputs: names of everything it reads, weights included; "" for an optional input left out.
        captured: names that graphs inside it read (the branches of ``If``, the body of ``Loop``), their own
            among them.
        inner: types of operators inside it.
    """

    operator: Operator
    all_inputs: tuple[str, ...]
    captured: tuple[str, ...] = ()
    inner: frozenset[str] = frozenset()

    @property
    def types(self) -> frozenset[str]:
        """Its type, and those of operators inside it."""
        return self.inner | {self.operator.op_type}

    @property
    def name(self) -> str:
        """The operator's name."""
        return self.operator.name

    @property
    def fed_by(self) -> tuple[str, ...]:
        """Names of what it reads besides weights and constants, graphs inside it included, each once."""
        return tuple(dict.fromkeys((*self.operator.inputs, *self.operator.captured)))


@dataclass(frozen=True, eq=False)
class ReferenceModel:
    """An ONNX model, read and ready to run.

    Attributes:
        path: its file.
        nodes: its operators in execution order.
        inputs: names of what it has to be fed, in order.
        outputs: names of the graph's outputs.
        raised: whether it holds 16-bit floats, which are computed as float32 here.
        halved: whether it holds 16-bit floats, which are computed as such: in float32 it would be too large.
        proto: its ``ModelProto``.
        sessions: the session in use, by the tensors it hands out.
        pieces: sessions of single small operators, by what they compute; the last ones that were made.
    """

    path: Path
    nodes: tuple[Node, ...]
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    raised: bool
    halved: bool
    proto: Any
    sessions: dict[tuple[str, ...], Any] = field(default_factory=dict)
    pieces: dict[tuple[object, ...], Any] = field(default_factory=dict)
    _ports: dict[str, tuple[str, tuple[int, ...]]] = field(default_factory=dict)

    @classmethod
    def of_file(cls, path: Path) -> ReferenceModel:
        """Return a model as it was read last, where its file is the same, else read it; not to be changed."""
        digest = model_digest(path) if path.is_file() and path.stat().st_size <= _KEPT_BYTES else ""
        return _last_read(path, digest) if digest else cls.read(path)

    @classmethod
    def read(cls, path: Path, *, as_written: bool = False) -> ReferenceModel:
        """Read a model.

        Args:
            path: its file.
            as_written: 16-bit floats stay what they are, and are computed as such.

        Raises:
            RequestError: there is no such file.
            ModelError: it is no ONNX model.
            MissingExtraError: onnx or onnxruntime is not installed.
        """
        if not path.is_file():
            raise RequestError(
                f"reference: there is no file {path}; name an ONNX model, relative to the test file's folder"
            )
        try:
            sessions.onnxruntime()
            proto = sessions.read_model(path)
        except MissingExtraError as error:
            name = error.__cause__.name if isinstance(error.__cause__, ImportError) else None
            package = (name or "onnxruntime").partition(".")[0]
            raise MissingExtraError("reference=", package, "emulator") from error
        halves = not as_written and holds_halves(proto)
        raised = halves and fits(proto)
        if raised:
            to_float32(proto, path)
        graph = proto.graph
        nodes = [node for node in graph.node if node.op_type != "Constant"]
        operators, bodies = graph_module.operators(graph), graph_module.bodies_of(proto)
        return cls(
            path=path,
            nodes=tuple(
                Node(
                    operator,
                    tuple(node.input),
                    tuple(graph_module.read_inside(node)),
                    frozenset(one.op_type for one in graph_module.within(node, bodies)),
                )
                for operator, node in zip(operators, nodes, strict=True)
            ),
            inputs=graph_module.inputs(graph),
            outputs=tuple(value.name for value in graph.output),
            raised=raised,
            halved=halves and not raised,
            proto=proto,
        )

    @property
    def names(self) -> frozenset[str]:
        """Names of its nodes, inputs and tensors, weights left out."""
        nodes = (name for node in self.nodes for name in (node.name, *node.operator.outputs))
        return frozenset((*nodes, *self.inputs))

    @cached_property
    def _written(self) -> Sequence[Any]:
        return [each for each in self.proto.graph.node if each.op_type != CONSTANT]

    def written(self, node: Node) -> Any:
        """Return the ``NodeProto`` of an operator."""
        return self._written[node.operator.task - 1]

    @cached_property
    def held(self) -> Mapping[str, tuple[int, int, Any]]:
        """The graph's content by name: with kind (node, initializer, sparse one) and place."""
        graph = self.proto.graph
        constants = ((name, one) for one in graph.node if one.op_type == CONSTANT for name in one.output)
        weights = ((tensor.name, tensor) for tensor in graph.initializer)
        sparse = ((tensor.values.name, tensor) for tensor in graph.sparse_initializer)
        return {
            name: (kind, place, one)
            for kind, named in enumerate((constants, weights, sparse))
            for place, (name, one) in enumerate(named)
        }

    def run(
        self, feeds: Mapping[str, Array], tensors: Mapping[str, int]
    ) -> Iterator[tuple[str, Array | None]]:
        """Compute inner tensors and hand them out one by one, at most about :data:`BATCH` bytes at a time.

        Args:
            feeds: an array for each of :attr:`inputs`, floats and integers of any width.
            tensors: names of the tensors wanted, and about how many bytes each takes.

        Yields:
            Name and array; None for what is no tensor (a sequence, text).

        Raises:
            ModelError: onnxruntime refuses the model, or the inputs.
            RequestError: an input is missing, or is of another kind than the model's.
        """
        for name in [name for name in tensors if name in self.inputs]:
            yield name, feeds.get(name)
        inner = {name: size for name, size in tensors.items() if name not in self.inputs}
        for names in _batches(inner):
            session = self._session(names)
            given = {port.name: _fed(port, feeds, self.path) for port in session.get_inputs()}
            found = sessions.run(session, given, names)
            for name in names:
                yield name, arrays_of({name: found.pop(name)}).get(name)

    def ports(self, tensors: Collection[str]) -> dict[str, tuple[str, tuple[int, ...]]]:
        """Return type and shape of tensors as the model has them, -1 for a dimension that varies.

        Raises:
            ModelError: onnxruntime refuses the model.
        """
        if not self._ports.keys() >= {*tensors}:
            behind = operators_behind(self.nodes, tensors)  # those alone, of a large model are a few
            made = {name for node in behind for name in node.operator.outputs}
            piece, graph = piece_of(self, behind, {}), self.proto.graph
            piece.graph.input.extend(graph.input)
            told = (*graph.value_info, *graph.output)
            piece.graph.value_info.extend(one for one in told if one.name in made)
            inner = [name for name in tensors if name not in self.inputs]
            session = exposed_session(self.path, piece, inner)
            found = sessions.ports((*session.get_inputs(), *session.get_outputs()))
            self._ports.update((name, (dtype.name, shape)) for name, dtype, shape in found)
        return {name: self._ports[name] for name in tensors if name in self._ports}

    def _session(self, names: Sequence[str]) -> Any:
        key = tuple(names)
        if key not in self.sessions:
            self.sessions.clear()  # one at a time: each holds the weights
            self.sessions[key] = exposed_session(self.path, self.proto, names)
        return self.sessions[key]


@lru_cache(maxsize=1)
def _last_read(path: Path, _digest: str) -> ReferenceModel:
    return ReferenceModel.read(path)


os.register_at_fork(after_in_child=_last_read.cache_clear)  # which holds sessions


def _batches(tensors: Mapping[str, int]) -> Iterator[list[str]]:
    batch: list[str] = []
    total = 0
    for name, size in tensors.items():
        if batch and total + size > BATCH:
            yield batch
            batch, total = [], 0
        batch.append(name)
        total += size
    if batch:
        yield batch


def _fed(port: Any, feeds: Mapping[str, Array], path: Path) -> Any:
    """Return onnxruntime's value of one input: the array in the type that the model declares."""
    if port.name not in feeds:
        raise RequestError(f"{path.name} has an input {port.name!r} that no array is known for")
    array, dtype = feeds[port.name], from_ort_type(port.type)
    found = BY_NAME.get(array.dtype.name)
    exact = found.kind if found is not None else "opaque"
    if exact != dtype.kind and {exact, dtype.kind} != {"int", "bool"}:
        raise RequestError(
            f"input {port.name!r} of {path.name} takes {dtype.name}, the run was given {array.dtype.name}: "
            f"what the model on the device converts by itself has to be given as the reference takes it, "
            f"with npu_dump.reference_inputs({{{port.name!r}: array}})"
        )
    if array.dtype.name != dtype.name:
        with np.errstate(over="ignore", invalid="ignore"):  # beyond the model's type, signalling NaNs
            array = array.astype(dtype.name)
    return from_array(dtype, array)


def arrays_of(tensors: Mapping[str, Tensor]) -> dict[str, Array]:
    """Return tensors as arrays, as those of a dump, without those that are no numbers."""
    numbers = {name: one for name, one in tensors.items() if BY_NAME[one.dtype.name].kind != "opaque"}
    return {
        name: decode(one.data.view(np.uint8), one.dtype.name, math.prod(one.shape)).reshape(one.shape)
        for name, one in numbers.items()
    }


def tensors_of(arrays: Mapping[str, Array]) -> dict[str, Tensor]:
    """Return arrays as onnxruntime is fed them."""
    return {name: from_array(BY_NAME[array.dtype.name], array) for name, array in arrays.items()}


def operators_behind(nodes: Sequence[Node], tensors: Iterable[str]) -> list[Node]:
    """Return the ``nodes`` that compute ``tensors``, directly or not, in execution order."""
    wanted, found = set(tensors), []
    for node in reversed(nodes):
        if wanted.intersection(node.operator.outputs):
            found.append(node)
            wanted.update(node.all_inputs, node.captured)
    return found[::-1]


def piece_of(model: ReferenceModel, nodes: Sequence[Node], feeds: Mapping[str, Tensor]) -> Any:
    """Return a ``ModelProto`` of some operators, without outputs yet; weights in other files stay there.

    Args:
        model: the reference.
        nodes: its operators, in the order of execution.
        feeds: a tensor for each input that neither a constant nor one of ``nodes`` gives: its type and shape
            are those of the piece's input.
    """
    helper = onnx().helper
    given = {*feeds, *(name for node in nodes for name in node.operator.outputs)}
    wanted = {name for node in nodes for name in (*node.all_inputs, *node.captured) if name} - given
    piece = onnx().ModelProto(ir_version=model.proto.ir_version, opset_import=model.proto.opset_import)
    piece.functions.extend(model.proto.functions)
    piece.graph.name = model.proto.graph.name or model.path.stem
    kinds = piece.graph.node, piece.graph.initializer, piece.graph.sparse_initializer
    held = [model.held[name] for name in wanted & model.held.keys()]
    for kind, _, one in sorted(held, key=lambda one: one[:2]):
        kinds[kind].append(one)
    for node in nodes:  # under the name that it has in dumps, which may come from its place in the model
        piece.graph.node.append(model.written(node))
        piece.graph.node[-1].name = node.name
    piece.graph.input.extend(
        helper.make_tensor_value_info(name, onnx_number(tensor.dtype), tensor.shape)
        for name, tensor in feeds.items()
    )
    return piece
