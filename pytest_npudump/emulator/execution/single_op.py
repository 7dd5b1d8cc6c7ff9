"""Single operators: one-node ONNX models built on the fly."""

from __future__ import annotations

from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from pytest_npudump.onnxmodels import sessions
from pytest_npudump.onnxmodels.tensor_types import from_acl_type, onnx_number

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from pytest_npudump.dump.values.dtypes import DType
    from pytest_npudump.onnxmodels.tensor_types import Tensor

    Attributes = Mapping[str, Any]

_OPSET = 17
_IR_VERSION = 8


class OperatorNotFoundError(Exception):
    """No operator of this type can be emulated."""


class MisusedAttributeError(Exception):
    """An attribute the operator does not have."""


@dataclass(frozen=True, slots=True)
class Node:
    """One ONNX node: type, tensors and attributes."""

    op_type: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    attributes: Attributes


@dataclass(frozen=True, slots=True)
class SingleOperator:
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
        """Execute on ``arrays``.

        Raises:
            ModelError: onnxruntime cannot run it on these inputs.
        """
        results = sessions.run(self.session, dict(zip(self.inputs, arrays, strict=True)), self.outputs)
        return tuple(results[name] for name in self.outputs)


def build(
    op_type: str,
    inputs: Sequence[tuple[int, Sequence[int]]],
    outputs: Sequence[int],
    attributes: Attributes,
) -> SingleOperator:
    """Return the operator for inputs of these ``aclDataType`` and shapes, and outputs of these types.

    Raises:
        OperatorNotFoundError: ONNX has no such operator, or none for such types.
        MisusedAttributeError: the operator has no such attribute.
        ModelError: onnxruntime refuses the operator.
    """
    names = tuple(f"x{index}" for index in range(len(inputs))), tuple(f"y{i}" for i in range(len(outputs)))
    nodes = _nodes(op_type, names[0], names[1], attributes)
    helper = sessions.onnx().helper
    value = helper.make_tensor_value_info
    graph = helper.make_graph(
        [helper.make_node(n.op_type, n.inputs, n.outputs, **n.attributes) for n in nodes],
        op_type,
        [value(name, _type(kind), list(shape)) for name, (kind, shape) in zip(names[0], inputs, strict=True)],
        [value(name, _type(kind), None) for name, kind in zip(names[1], outputs, strict=True)],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", _OPSET)])
    model.ir_version = _IR_VERSION
    return SingleOperator(op_type, sessions.plain_session(model.SerializeToString()), *names)


def _type(number: int) -> int:
    dtype = from_acl_type(number)
    found = None if dtype is None else onnx_number(dtype)
    if found is None:
        raise OperatorNotFoundError(f"aclDataType {number} has no counterpart in ONNX")
    return found


def _nodes(
    op_type: str, inputs: tuple[str, ...], outputs: tuple[str, ...], attributes: Attributes
) -> list[Node]:
    if op_type in _SPECIAL:
        return _SPECIAL[op_type](inputs, outputs, attributes)
    name = _ALIASES.get(op_type, op_type)
    _check_attributes(op_type, name, attributes)
    return [Node(name, inputs, outputs, dict(attributes))]


def _check_attributes(op_type: str, name: str, attributes: Attributes) -> None:
    schemas = sessions.onnx().defs
    try:
        schema = schemas.get_schema(name, _OPSET, "")
    except schemas.SchemaError as error:
        raise OperatorNotFoundError(f"no operator {op_type} is known to the emulator") from error
    unknown = sorted(set(attributes) - set(schema.attributes))
    if unknown:
        raise MisusedAttributeError(f"{op_type}: the emulator knows no attribute {', '.join(unknown)}")


def _matmul(inputs: tuple[str, ...], outputs: tuple[str, ...], attributes: Attributes) -> list[Node]:
    """CANN's MatMul and BatchMatMul: an optional bias, operands transposed in their last two axes."""
    known = {"transpose_x1", "transpose_x2", "adj_x1", "adj_x2", "offset_x"}
    unknown = sorted(set(attributes) - known)
    if unknown:
        raise MisusedAttributeError(f"the emulator knows no attribute {', '.join(unknown)} of MatMul")
    nodes, operands = [], list(inputs[:2])
    for index in range(2):
        if attributes.get(f"transpose_x{index + 1}") or attributes.get(f"adj_x{index + 1}"):
            subscripts = {"equation": "...ij->...ji"}
            nodes.append(Node("Einsum", (operands[index],), (f"t{index}",), subscripts))
            operands[index] = f"t{index}"
    if len(inputs) == len(operands):
        return [*nodes, Node("MatMul", tuple(operands), outputs, {})]
    product = Node("MatMul", tuple(operands), ("product",), {})
    return [*nodes, product, Node("Add", ("product", inputs[2]), outputs, {})]


def _cast(inputs: tuple[str, ...], outputs: tuple[str, ...], attributes: Attributes) -> list[Node]:
    number = attributes.get("dst_type", attributes.get("to"))
    if number is None:
        raise MisusedAttributeError("Cast needs the attribute dst_type")
    return [Node("Cast", inputs, outputs, {"to": _type(number)})]


def _softmax(inputs: tuple[str, ...], outputs: tuple[str, ...], attributes: Attributes) -> list[Node]:
    axes = list(attributes.get("axes", [-1]))
    if len(axes) != 1:
        raise MisusedAttributeError("SoftmaxV2: the emulator takes exactly one of axes")
    return [Node("Softmax", inputs, outputs, {"axis": axes[0]})]


def _slice(inputs: tuple[str, ...], outputs: tuple[str, ...], _: Attributes) -> list[Node]:
    """CANN's Slice takes offsets and sizes where ONNX takes starts and ends."""
    data, offsets, size = inputs
    ends = Node("Add", (offsets, size), ("ends",), {})
    return [ends, Node("Slice", (data, offsets, "ends"), outputs, {})]


def _renamed(name: str, attribute: str, onnx_attribute: str) -> Callable[..., list[Node]]:
    def nodes(inputs: tuple[str, ...], outputs: tuple[str, ...], attributes: Attributes) -> list[Node]:
        renamed = {onnx_attribute if key == attribute else key: value for key, value in attributes.items()}
        _check_attributes(name, name, renamed)
        return [Node(name, inputs, outputs, renamed)]

    return nodes


_ALIASES: Mapping[str, str] = MappingProxyType(
    {"RealDiv": "Div", "Maximum": "Max", "Minimum": "Min", "LogicalNot": "Not", "LogicalAnd": "And"}
)
"""CANN's types that ONNX has under another name."""

_SPECIAL: Mapping[str, Callable[..., list[Node]]] = MappingProxyType(
    {
        "MatMul": _matmul,
        "MatMulV2": _matmul,
        "BatchMatMul": _matmul,
        "BatchMatMulV2": _matmul,
        "Cast": _cast,
        "SoftmaxV2": _softmax,
        "Slice": _slice,
        "ConcatD": _renamed("Concat", "concat_dim", "axis"),
        "TransposeD": _renamed("Transpose", "perm", "perm"),
    }
)
"""CANN's types whose inputs or attributes differ from ONNX's."""
