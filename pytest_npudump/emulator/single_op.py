"""Single operators: one-node ONNX models built on the fly."""

from __future__ import annotations

from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from pytest_npudump.onnxmodels import sessions
from pytest_npudump.onnxmodels.tensor_types import from_acl_type, onnx_number

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from pytest_npudump.dump.dtypes import DType
    from pytest_npudump.onnxmodels.tensor_types import Tensor

    Attributes = Mapping[str, Any]
    Names = tuple[str, ...]


_OPSET = 17
_IR_VERSION = 8
_ALIASES: Mapping[str, str] = MappingProxyType(
    {
        "RealDiv": "Div",
        "Maximum": "Max",
        "Minimum": "Min",
        "LogicalNot": "Not",
        "LogicalAnd": "And",
        "TransposeD": "Transpose",
    }
)
"""CANN's types that ONNX has under another name."""


class OperatorNotFoundError(Exception):
    """No operator of this type can be emulated."""


class MisusedAttributeError(Exception):
    """An attribute the operator does not have."""


@dataclass(frozen=True, slots=True)
class OnnxOperator:
    """An operator that can be executed.

    Attributes:
        op_type: CANN's type.
        session: onnxruntime's session.
        inputs, outputs: the names of its tensors.
    """

    op_type: str
    session: Any
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]

    def outgoing(self) -> tuple[tuple[str, DType, tuple[int, ...]], ...]:
        """Return name, type and shape of each output, -1 for a dimension that follows from the data."""
        return sessions.ports(self.session.get_outputs())

    def run(self, arrays: Sequence[Tensor]) -> tuple[Tensor, ...]:
        """Execute on ``arrays``."""
        results = sessions.run(self.session, dict(zip(self.inputs, arrays, strict=True)), self.outputs)
        return tuple(results[name] for name in self.outputs)


def build(
    op_type: str,
    inputs: Sequence[tuple[int, Sequence[int]]],
    outputs: Sequence[int],
    attributes: Attributes,
) -> OnnxOperator:
    """Return the operator for inputs of these ``aclDataType`` and shapes, and outputs of these types.

    Raises:
        OperatorNotFoundError: ONNX has no such operator, or none for such types.
        MisusedAttributeError: the operator has no such attribute.
        ModelError: onnxruntime refuses the operator.
    """
    names = tuple(f"x{index}" for index in range(len(inputs))), tuple(f"y{i}" for i in range(len(outputs)))
    if op_type in _SPECIAL:
        nodes = _SPECIAL[op_type](*names, attributes)
    else:
        nodes = [_node(_ALIASES.get(op_type, op_type), *names, attributes, called=op_type)]
    helper = sessions.onnx().helper
    value = helper.make_tensor_value_info
    graph = helper.make_graph(
        nodes,
        op_type,
        [value(name, _type(kind), list(shape)) for name, (kind, shape) in zip(names[0], inputs, strict=True)],
        [value(name, _type(kind), None) for name, kind in zip(names[1], outputs, strict=True)],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", _OPSET)])
    model.ir_version = _IR_VERSION
    return OnnxOperator(op_type, sessions.plain_session(model.SerializeToString()), *names)


def _type(number: int) -> int:
    dtype = from_acl_type(number)
    found = None if dtype is None else onnx_number(dtype)
    if found is None:
        raise OperatorNotFoundError(f"aclDataType {number} has no counterpart in ONNX")
    return found


def _node(op_type: str, inputs: Names, outputs: Names, attributes: Attributes, called: str = "") -> Any:
    """Return a node of ONNX's type, held to its attributes; messages call it ``called``."""
    package = sessions.onnx()
    called = called or op_type
    try:
        schema = package.defs.get_schema(op_type, _OPSET, "")
    except package.defs.SchemaError as error:
        raise OperatorNotFoundError(f"no operator {called} is known to the emulator") from error
    if unknown := sorted(set(attributes) - set(schema.attributes)):
        raise MisusedAttributeError(f"{called}: the emulator knows no attribute {', '.join(unknown)}")
    return package.helper.make_node(op_type, inputs, outputs, **attributes)


def _matmul(inputs: Names, outputs: Names, attributes: Attributes) -> list[Any]:
    """CANN's MatMul and BatchMatMul: an optional bias, operands transposed in their last two axes."""
    known = {"transpose_x1", "transpose_x2", "adj_x1", "adj_x2", "offset_x"}
    if unknown := sorted(set(attributes) - known):
        raise MisusedAttributeError(f"the emulator knows no attribute {', '.join(unknown)} of MatMul")
    nodes, operands = [], list(inputs[:2])
    for index in range(2):
        if attributes.get(f"transpose_x{index + 1}") or attributes.get(f"adj_x{index + 1}"):
            equation = {"equation": "...ij->...ji"}
            nodes.append(_node("Einsum", (operands[index],), (f"t{index}",), equation))
            operands[index] = f"t{index}"
    if len(inputs) == len(operands):
        return [*nodes, _node("MatMul", (*operands,), outputs, {})]
    product = _node("MatMul", (*operands,), ("product",), {})
    return [*nodes, product, _node("Add", ("product", inputs[2]), outputs, {})]


def _cast(inputs: Names, outputs: Names, attributes: Attributes) -> list[Any]:
    number = attributes.get("dst_type", attributes.get("to"))
    if number is None:
        raise MisusedAttributeError("Cast needs the attribute dst_type")
    return [_node("Cast", inputs, outputs, {"to": _type(number)})]


def _softmax(inputs: Names, outputs: Names, attributes: Attributes) -> list[Any]:
    axes = list(attributes.get("axes", [-1]))
    if len(axes) != 1:
        raise MisusedAttributeError("SoftmaxV2: the emulator takes exactly one of axes")
    return [_node("Softmax", inputs, outputs, {"axis": axes[0]})]


def _slice(inputs: Names, outputs: Names, _: Attributes) -> list[Any]:
    """CANN's Slice takes offsets and sizes where ONNX takes starts and ends."""
    data, offsets, size = inputs
    ends = _node("Add", (offsets, size), ("ends",), {})
    return [ends, _node("Slice", (data, offsets, "ends"), outputs, {})]


def _concat(inputs: Names, outputs: Names, attributes: Attributes) -> list[Any]:
    renamed = {"axis" if key == "concat_dim" else key: value for key, value in attributes.items()}
    return [_node("Concat", inputs, outputs, renamed)]


_SPECIAL: Mapping[str, Callable[..., list[Any]]] = MappingProxyType(
    {
        "MatMul": _matmul,
        "MatMulV2": _matmul,
        "BatchMatMul": _matmul,
        "BatchMatMulV2": _matmul,
        "Cast": _cast,
        "SoftmaxV2": _softmax,
        "Slice": _slice,
        "ConcatD": _concat,
    }
)
"""CANN's types whose inputs or attributes differ from ONNX's."""
