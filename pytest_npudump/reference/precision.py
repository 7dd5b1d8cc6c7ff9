"""An ONNX model of 16-bit floats as the same model in float32, so that a reference has its digits.

Every ONNX operator that takes float16 or bfloat16 takes float32 too: weights, constants, declared types and
the types that operators produce are replaced, and the graph stays as it is.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pytest_npudump.emulator.sessions import ModelError, onnx

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

_FLOAT = 1
_HALVES = frozenset({10, 16})
"""``FLOAT``, ``FLOAT16`` and ``BFLOAT16`` of ``TensorProto.DataType``."""

_TYPE_ATTRIBUTES = frozenset({"to", "dtype", "output_datatype", "output_dtype", "stash_type"})
"""Attributes of ONNX operators whose value is a data type."""

_TENSOR, _GRAPH, _TENSORS, _GRAPHS = 4, 5, 9, 10
"""Kinds of attributes that hold tensors or graphs, numbered as ``AttributeProto.AttributeType``."""


def to_float32(model: Any, source: Path) -> bool:
    """Replace float16 and bfloat16 by float32 throughout ``model``, an ONNX ``ModelProto``.

    Weights in other files are read for that.

    Args:
        model: changed in place.
        source: its file, beside which weights in other files lie.

    Returns:
        Whether there was anything to replace.

    Raises:
        ModelError: weights in another file cannot be read.
    """
    changed = False
    for graph in _graphs(model.graph):
        changed |= _convert_graph(graph, source)
    for function in model.functions:
        for node in function.node:
            changed |= _convert_node(node, source)
            for inner in _subgraphs(node):
                for graph in _graphs(inner):
                    changed |= _convert_graph(graph, source)
    return changed


def _graphs(graph: Any) -> Iterator[Any]:
    yield graph
    for node in graph.node:
        for inner in _subgraphs(node):
            yield from _graphs(inner)


def _subgraphs(node: Any) -> Iterator[Any]:
    for attribute in node.attribute:
        if attribute.type == _GRAPH:
            yield attribute.g
        elif attribute.type == _GRAPHS:
            yield from attribute.graphs


def _convert_graph(graph: Any, source: Path) -> bool:
    changed = False
    for tensor in graph.initializer:
        changed |= _convert_tensor(tensor, source)
    for sparse in graph.sparse_initializer:
        changed |= _convert_tensor(sparse.values, source)
    for value in (*graph.input, *graph.output, *graph.value_info):
        changed |= _convert_type(value.type)
    for node in graph.node:
        changed |= _convert_node(node, source)
    return changed


def _convert_node(node: Any, source: Path) -> bool:
    changed = False
    for attribute in node.attribute:
        if attribute.type == _TENSOR:
            changed |= _convert_tensor(attribute.t, source)
        elif attribute.type == _TENSORS:
            for tensor in attribute.tensors:
                changed |= _convert_tensor(tensor, source)
        elif attribute.name in _TYPE_ATTRIBUTES and attribute.i in _HALVES:
            attribute.i = _FLOAT
            changed = True
    return changed


def _convert_tensor(tensor: Any, source: Path) -> bool:
    if tensor.data_type not in _HALVES:
        return False
    helper = onnx().numpy_helper
    try:
        array = helper.to_array(tensor, base_dir=str(source.resolve().parent))
    except Exception as error:
        raise ModelError(f"{source}: the weight {tensor.name!r} cannot be read: {error}") from error
    tensor.CopyFrom(helper.from_array(array.astype("float32"), tensor.name))
    return True


def _convert_type(kind: Any) -> bool:
    changed = False
    for name in ("tensor_type", "sparse_tensor_type"):
        if kind.HasField(name) and getattr(kind, name).elem_type in _HALVES:
            getattr(kind, name).elem_type = _FLOAT
            changed = True
    for name in ("sequence_type", "optional_type"):
        if kind.HasField(name):
            changed |= _convert_type(getattr(kind, name).elem_type)
    return changed
