"""One operator of the reference alone: a model of one node, fed whatever is given."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import ml_dtypes
import numpy as np

from pytest_npudump.dump.values.dtypes import BY_NAME
from pytest_npudump.onnxmodels import sessions
from pytest_npudump.onnxmodels.exposed_session import exposed_session
from pytest_npudump.onnxmodels.sessions import ModelError, onnx
from pytest_npudump.onnxmodels.tensor_types import from_array
from pytest_npudump.onnxmodels.variation import Variation, Varying
from pytest_npudump.reference.reference_model import CONSTANT, piece_of
from pytest_npudump.reference.rounding import EXACT_INPUTS, ROUNDED

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pytest_npudump.onnxmodels.tensor_types import Tensor
    from pytest_npudump.reference.reference_model import Node, ReferenceModel

    Array = np.ndarray[Any, np.dtype[Any]]

_FLOATS = frozenset({1, 11})
"""``FLOAT`` and ``DOUBLE`` of ``TensorProto.DataType``."""


class SingleOperator:
    """A node of the reference with its weights, ready to be run on inputs of fixed types and shapes.

    It is computed as the whole model is: in float32, as written, on one thread.
    """

    def __init__(
        self, model: ReferenceModel, node: Node, feeds: Mapping[str, Array], dtype: str = ""
    ) -> None:
        """Build it.

        Args:
            model: the reference.
            node: which of its operators.
            feeds: an array for each input that is no constant, in the type that the model has there.
            dtype: ``float16`` or ``bfloat16`` rounds its weights to that type, as a device holds them.

        Raises:
            ModelError: onnxruntime refuses the operator, or a weight in another file cannot be read.
        """
        self._outputs = node.operator.outputs
        self._feeds = {name: from_array(BY_NAME[array.dtype.name], array) for name, array in feeds.items()}
        proto = _proto(model, node, self._feeds, dtype)
        self._session = exposed_session(model.path, proto, self._outputs)

    def outputs(self, seed: int | None = None) -> dict[str, Array]:
        """Compute the outputs by name; those that are no numbers are left out.

        Args:
            seed: has floating-point inputs changed by about one unit in the last place.

        Raises:
            ModelError: onnxruntime cannot run it on these inputs.
        """
        feeds = Varying(Variation(seed=seed)).feeds(self._feeds, 0)
        found = sessions.run(self._session, feeds, self._outputs)
        numbers = {name: t for name, t in found.items() if BY_NAME[t.dtype.name].kind != "opaque"}
        return {name: tensor.data.reshape(tensor.shape) for name, tensor in numbers.items()}


def _proto(model: ReferenceModel, node: Node, feeds: Mapping[str, Tensor], dtype: str) -> Any:
    round_to = dtype if dtype in ROUNDED and node.operator.op_type not in EXACT_INPUTS else ""
    proto = piece_of(model, [node], feeds)
    for tensor in proto.graph.initializer:
        tensor.CopyFrom(_rounded(tensor, round_to, str(model.path.parent)))
    for each in proto.graph.node:
        if each.op_type == CONSTANT:
            each.CopyFrom(_rounded_constant(each, round_to))
    return proto


def _rounded(tensor: Any, dtype: str, folder: str) -> Any:
    """Return a weight whose values are those of a 16-bit type, in its own type."""
    if not dtype or tensor.data_type not in _FLOATS:
        return tensor
    helper = onnx().numpy_helper
    try:
        array = helper.to_array(tensor, folder)
    except (OSError, ValueError) as error:
        raise ModelError(f"the weight {tensor.name!r} cannot be read: {error}") from error
    with np.errstate(over="ignore", invalid="ignore"):
        return helper.from_array(array.astype(ROUNDED[dtype][0]).astype(array.dtype), tensor.name)


def _rounded_constant(node: Any, dtype: str) -> Any:
    copy = type(node)()
    copy.CopyFrom(node)
    for attribute in copy.attribute:
        if attribute.name == "value":
            attribute.t.CopyFrom(_rounded(attribute.t, dtype, ""))
    return copy


def rounded_to(array: Array, dtype: str) -> Array:
    """Return floats with the values that a 16-bit type of the device holds, in their own type."""
    if dtype not in ROUNDED or array.dtype.kind != "f":
        return array
    with np.errstate(over="ignore", invalid="ignore"):
        return array.astype(ROUNDED[dtype][0]).astype(array.dtype)


def largest_of(dtype: str) -> float:
    """Return the largest finite number of a floating-point type of the device."""
    return float(ml_dtypes.finfo(ROUNDED[dtype][0] if dtype in ROUNDED else dtype).max)  # type: ignore[no-untyped-call]
