"""Operators of the reference as a model of their own, with the weights that they read."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pytest_npudump.onnxmodels.sessions import onnx
from pytest_npudump.onnxmodels.tensor_types import onnx_number

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pytest_npudump.onnxmodels.tensor_types import Tensor
    from pytest_npudump.reference.reference_model import Node, ReferenceModel

CONSTANT = "Constant"
"""ONNX's type of a node that is a constant."""


def constants_of(model: ReferenceModel) -> frozenset[str]:
    """Return the names of weights and constants of a model: what an operator reads and no dump holds."""
    graph = model.proto.graph
    made = (name for node in graph.node if node.op_type == CONSTANT for name in node.output)
    sparse = (tensor.values.name for tensor in graph.sparse_initializer)
    return frozenset((*(tensor.name for tensor in graph.initializer), *sparse, *made))


def piece_of(model: ReferenceModel, nodes: Sequence[Node], feeds: Mapping[str, Tensor]) -> Any:
    """Return a ``ModelProto`` of some operators, without outputs yet; weights in other files stay there.

    Args:
        model: the reference.
        nodes: its operators, in the order of execution.
        feeds: a tensor for each input that neither a constant nor one of ``nodes`` gives: its type and shape
            are those of the piece's input.
    """
    helper = onnx().helper
    graph = model.proto.graph
    every = [each for each in graph.node if each.op_type != CONSTANT]
    given = {*feeds, *(name for node in nodes for name in node.operator.outputs)}
    wanted = {name for node in nodes for name in (*node.all_inputs, *node.captured) if name} - given
    piece = onnx().ModelProto(ir_version=model.proto.ir_version, opset_import=model.proto.opset_import)
    piece.functions.extend(model.proto.functions)
    piece.graph.name = graph.name or model.path.stem
    piece.graph.node.extend(
        each for each in graph.node if each.op_type == CONSTANT and wanted.intersection(each.output)
    )
    piece.graph.node.extend(_named(every[node.operator.task - 1], node.name) for node in nodes)
    piece.graph.initializer.extend(tensor for tensor in graph.initializer if tensor.name in wanted)
    sparse = (tensor for tensor in graph.sparse_initializer if tensor.values.name in wanted)
    piece.graph.sparse_initializer.extend(sparse)
    piece.graph.input.extend(
        helper.make_tensor_value_info(name, onnx_number(tensor.dtype), tensor.shape)
        for name, tensor in feeds.items()
    )
    return piece


def _named(node: Any, name: str) -> Any:
    """Return a node under the name that it has in dumps, which may come from its place in the whole model."""
    copy = type(node)()
    copy.CopyFrom(node)
    copy.name = name
    return copy
