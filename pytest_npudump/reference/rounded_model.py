"""The reference in the device's precision: every operator's output is rounded to the type it has there.

Operators themselves compute in float32, as the cores of an NPU do that accumulate in float32. What operators
round inside of them, and what branches and bodies of loops hold, is not rounded.
"""

from __future__ import annotations

import importlib
from dataclasses import replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import ml_dtypes
import numpy as np

from pytest_npudump.onnxmodels.sessions import ModelError, exposed_session, onnx

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping
    from pathlib import Path

    from pytest_npudump.reference.reference_model import ReferenceModel

    Array = np.ndarray[Any, np.dtype[Any]]

ROUNDED: Mapping[str, tuple[Any, int]] = MappingProxyType(
    {"float16": (np.float16, 10), "bfloat16": (ml_dtypes.bfloat16, 16)}
)
"""Types that are rounded to, and their numbers in ``TensorProto.DataType``."""

_FLOAT = 1
EXACT_INPUTS = frozenset({"Resize", "Upsample", "Range", "QuantizeLinear", "DequantizeLinear"})
"""Operators with constants that say where, not how much: rounded, they would make other shapes or codes."""
_CASTS_BFLOAT16 = 13
"""The first version of ONNX's operators in which ``Cast`` knows bfloat16."""
_SHAPES = frozenset({"Shape", "Size"})


def rounded_model(model: ReferenceModel, dtypes: Mapping[str, str], default: str) -> ReferenceModel:
    """Return ``model`` such that tensors are rounded behind the operator that writes them, and weights are.

    Args:
        model: the reference, in float32.
        dtypes: types on the device, by the names of the reference's tensors.
        default: the type of tensors that are not among them; float32 rounds nothing.

    Raises:
        ModelError: a weight in another file cannot be read, or onnxruntime refuses the model.
    """
    proto = _castable(model, {default, *dtypes.values()})
    exact = {name for node in proto.graph.node if node.op_type in EXACT_INPUTS for name in node.input[1:]}
    floats = _float_tensors(model)
    shapes = _computed_from_shapes(proto.graph)
    nodes = []
    for node in proto.graph.node:
        nodes.append(node)
        for place, name in enumerate(node.output):
            dtype = dtypes.get(name, default)
            if name in floats and name not in shapes | exact and dtype in ROUNDED:
                node.output[place] = f"{name}:unrounded"
                nodes += _casts(name, ROUNDED[dtype][1])
    kept = [_copied(node) for node in nodes]
    del proto.graph.node[:]
    proto.graph.node.extend(kept)
    if default in ROUNDED:
        _round_weights(proto.graph, default, exact, model.path)
    return replace(model, proto=proto, sessions={})


def rounded_feeds(feeds: Mapping[str, Array], default: str) -> dict[str, Array]:
    """Return inputs as the device's first operators take them: floats rounded to the ``default`` type."""
    return {name: rounded(array, default) for name, array in feeds.items()}


def rounded(array: Array, dtype: str) -> Array:
    """Return float32 values rounded to a type of :data:`ROUNDED`; anything else as it is."""
    if array.dtype != np.float32 or dtype not in ROUNDED:
        return array
    with np.errstate(over="ignore", invalid="ignore"):  # beyond the type, signalling NaNs
        return array.astype(ROUNDED[dtype][0]).astype(np.float32)


def _castable(model: ReferenceModel, dtypes: Collection[str]) -> Any:
    """Return a copy of the model in a version of ONNX that has casts to these types."""
    proto = type(model.proto)()
    proto.CopyFrom(model.proto)
    version = next((opset.version for opset in proto.opset_import if opset.domain in ("", "ai.onnx")), 0)
    if "bfloat16" not in dtypes or version >= _CASTS_BFLOAT16:
        return proto
    try:
        return importlib.import_module("onnx.version_converter").convert_version(proto, _CASTS_BFLOAT16)
    except Exception as error:
        raise ModelError(f"{model.path} cannot be converted to opset {_CASTS_BFLOAT16}: {error}") from error


def _float_tensors(model: ReferenceModel) -> frozenset[str]:
    """Return the names of the float32 tensors that operators write, as onnxruntime infers their types."""
    names = [name for node in model.proto.graph.node for name in node.output if name]
    session = exposed_session(model.path, model.proto, names)
    return frozenset(port.name for port in session.get_outputs() if port.type == "tensor(float)")


def _computed_from_shapes(graph: Any) -> frozenset[str]:
    """Return tensors that are made of shapes and constants alone: no device rounds sizes to 16 bits."""
    constant = {tensor.name for tensor in graph.initializer}
    found: set[str] = set()
    for node in graph.node:
        if node.op_type == "Constant":
            constant.update(node.output)
        inputs = [name for name in node.input if name and name not in constant]
        if node.op_type in _SHAPES or (inputs and all(name in found for name in inputs)):
            found.update(node.output)
    return frozenset(found)


def _casts(name: str, number: int) -> Iterator[Any]:
    make = onnx().helper.make_node
    yield make("Cast", [f"{name}:unrounded"], [f"{name}:narrow"], to=number)
    yield make("Cast", [f"{name}:narrow"], [name], to=_FLOAT)


def _copied(node: Any) -> Any:
    copy = type(node)()
    copy.CopyFrom(node)
    return copy


def _round_weights(graph: Any, dtype: str, exact: Collection[str], source: Path) -> None:
    helper = onnx().numpy_helper
    for tensor in graph.initializer:
        if tensor.data_type != _FLOAT or tensor.name in exact:
            continue
        try:
            array = helper.to_array(tensor, base_dir=str(source.resolve().parent))
        except Exception as error:
            raise ModelError(f"{source}: the weight {tensor.name!r} cannot be read: {error}") from error
        tensor.CopyFrom(helper.from_array(rounded(array, dtype), tensor.name))
