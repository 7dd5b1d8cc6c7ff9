"""A piece of a model as a file that stands by itself, and what onnxruntime makes of its inputs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pytest_npudump.dump.values.dtypes import BY_NAME
from pytest_npudump.onnxmodels import sessions
from pytest_npudump.onnxmodels.exposed_session import exposed_session
from pytest_npudump.onnxmodels.sessions import ModelError, onnx
from pytest_npudump.onnxmodels.tensor_types import from_array, onnx_number
from pytest_npudump.reference.reference_model import piece_of
from pytest_npudump.reproduction.drawn import draw_weights

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import numpy as np

    from pytest_npudump.reference.reference_model import Node, ReferenceModel

    Array = np.ndarray[Any, np.dtype[Any]]


@dataclass(frozen=True, slots=True, eq=False)
class ModelPiece:
    """Some operators of a model.

    Attributes:
        content: the bytes of the ONNX file, its weights among them.
        outputs: what onnxruntime computes of its outputs, by name.
    """

    content: bytes
    outputs: Mapping[str, Array]


def cut_piece(
    model: ReferenceModel,
    nodes: Sequence[Node],
    feeds: Mapping[str, Array],
    *,
    tensor: str = "",
    drawn: bool = False,
) -> ModelPiece:
    """Cut operators out of a model.

    Its outputs are those that none of them reads.

    Args:
        model: the model.
        nodes: the operators, in the order of execution.
        feeds: an array for each input of the piece, in the type that the model has there.
        tensor: an output of the piece, whether or not one of them reads it.
        drawn: whether its weights are drawn, with the statistics of those that it has.

    Raises:
        ModelError: onnxruntime refuses the piece, or a weight in another file cannot be read.
    """
    tensors = {name: from_array(BY_NAME[array.dtype.name], array) for name, array in feeds.items()}
    proto = piece_of(model, nodes, tensors)
    try:
        onnx().load_external_data_for_model(proto, str(model.path.parent))
    except (OSError, ValueError) as error:
        raise ModelError(f"{model.path}: a weight in another file cannot be read: {error}") from error
    if drawn:
        draw_weights(proto)
    read = {name for node in nodes for name in (*node.all_inputs, *node.captured)}
    made = [name for node in nodes for name in node.operator.outputs]
    names = [name for name in made if name not in read or name == tensor]
    found = sessions.run(exposed_session(model.path, proto, names), tensors, names)
    proto.graph.output.extend(
        onnx().helper.make_tensor_value_info(name, onnx_number(one.dtype), one.shape)
        for name, one in found.items()
    )
    numbers = {name: one for name, one in found.items() if BY_NAME[one.dtype.name].kind != "opaque"}
    arrays = {name: one.data.reshape(one.shape) for name, one in numbers.items()}
    return ModelPiece(proto.SerializeToString(), arrays)
