"""An ONNX model of 16-bit floats as the same model in float32, so that a reference has its digits.

Every ONNX operator that takes float16 or bfloat16 takes float32 too: weights, constants, declared types and
the types that operators produce are replaced, and the graph stays as it is.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from pytest_npudump.onnxmodels.graph import every_graph, every_node, every_tensor
from pytest_npudump.onnxmodels.sessions import ModelError, onnx

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

LIMIT = 2**31 - 1
"""Bytes of the largest protobuf message, which is what onnxruntime is given."""

_BYTES = 4
_FLOAT = 1
_HALVES = frozenset({10, 16})
"""``FLOAT``, ``FLOAT16`` and ``BFLOAT16`` of ``TensorProto.DataType``."""

_TYPE_ATTRIBUTES = frozenset({"to", "dtype", "output_datatype", "output_dtype", "stash_type"})
"""Attributes of ONNX operators whose value is a data type."""


def holds_halves(model: Any) -> bool:
    """Whether ``model``, an ONNX ``ModelProto``, holds anything that :func:`to_float32` would replace."""
    values = (value for graph in every_graph(model) for value in _values(graph))
    declared = (value.type.tensor_type.elem_type for value in values)
    weights = (tensor.data_type for tensor in every_tensor(model))
    types = (a.i for node in every_node(model) for a in node.attribute if a.name in _TYPE_ATTRIBUTES)
    return any(number in _HALVES for numbers in (declared, weights, types) for number in numbers)


def fits(model: Any) -> bool:
    """Whether ``model`` in float32 is one message still; protobuf has none beyond :data:`LIMIT` bytes."""
    halves = sum(math.prod(t.dims) for t in every_tensor(model) if t.data_type in _HALVES)
    return bool(model.ByteSize() + _BYTES * halves <= LIMIT)


def _values(graph: Any) -> Iterator[Any]:
    yield from (*graph.input, *graph.output, *graph.value_info)


def to_float32(model: Any, source: Path) -> None:
    """Replace float16 and bfloat16 by float32 throughout ``model``, an ONNX ``ModelProto``.

    Weights in other files are read for that.

    Args:
        model: changed in place.
        source: its file, beside which weights in other files lie.

    Raises:
        ModelError: weights in another file cannot be read.
    """
    for tensor in every_tensor(model):
        _convert_tensor(tensor, source)
    for node in every_node(model):
        for attribute in node.attribute:
            if attribute.name in _TYPE_ATTRIBUTES and attribute.i in _HALVES:
                attribute.i = _FLOAT
    for graph in every_graph(model):
        for value in _values(graph):
            _convert_type(value.type)


def _convert_tensor(tensor: Any, source: Path) -> None:
    if tensor.data_type not in _HALVES:
        return
    helper = onnx().numpy_helper
    try:
        array = helper.to_array(tensor, base_dir=str(source.resolve().parent))
    except Exception as error:
        raise ModelError(f"{source}: the weight {tensor.name!r} cannot be read: {error}") from error
    with np.errstate(invalid="ignore"):  # signalling NaNs
        tensor.CopyFrom(helper.from_array(array.astype("float32"), tensor.name))


def _convert_type(kind: Any) -> None:
    for name in ("tensor_type", "sparse_tensor_type"):
        if kind.HasField(name) and getattr(kind, name).elem_type in _HALVES:
            getattr(kind, name).elem_type = _FLOAT
    for name in ("sequence_type", "optional_type"):
        if kind.HasField(name):
            _convert_type(getattr(kind, name).elem_type)
