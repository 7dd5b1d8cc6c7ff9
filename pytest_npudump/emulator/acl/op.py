"""``acl.op``: single operators, each a one-node ONNX model built on the fly.

They run on a stream: what fails on the device is told by what waits for it, as CANN's documents say of every
asynchronous call.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Any, NoReturn

import numpy as np

from pytest_npudump.dump.dtypes import BY_GE
from pytest_npudump.emulator import codes
from pytest_npudump.emulator.acl._base import CODE, OP, DataBuffer, TensorDesc, destroy, known
from pytest_npudump.emulator.acl.rt import own_stream
from pytest_npudump.emulator.codes import RefusedError, missing, refuse_if
from pytest_npudump.emulator.dumps.exceptions import ExceptionArgument, FailedTask, dumped
from pytest_npudump.emulator.dumps.recorder import OperatorRun, record_operator
from pytest_npudump.emulator.faults import PLANTED, distorted
from pytest_npudump.emulator.onnx_model import OperatorFailedError
from pytest_npudump.emulator.process import Bytes, process
from pytest_npudump.emulator.streams import Stream, Work
from pytest_npudump.onnxmodels import sessions
from pytest_npudump.onnxmodels.sessions import ModelError
from pytest_npudump.onnxmodels.tensor_types import Tensor, from_bytes, nbytes, onnx_number

Attributes = Mapping[str, Any]
Names = tuple[str, ...]

_Place = tuple[TensorDesc, Bytes]


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
        RefusedError: ONNX has no such operator, or none for such types (100024), or it has no such attribute
            (100000).
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
    dtype = BY_GE.get(number)
    found = None if dtype is None else onnx_number(dtype)
    if found is None:
        raise RefusedError(codes.OP_NOT_FOUND, f"aclDataType {number} has no counterpart in ONNX")
    return found


def _node(op_type: str, inputs: Names, outputs: Names, attributes: Attributes, called: str = "") -> Any:
    """Return a node of ONNX's type, held to its attributes; messages call it ``called``."""
    package = sessions.onnx()
    called = called or op_type
    try:
        schema = package.defs.get_schema(op_type, _OPSET, "")
    except package.defs.SchemaError as error:
        raise RefusedError(codes.OP_NOT_FOUND, f"no operator {called} is known to the emulator") from error
    if unknown := sorted(set(attributes) - set(schema.attributes)):
        raise _misused(f"{called}: the emulator knows no attribute {', '.join(unknown)}")
    return package.helper.make_node(op_type, inputs, outputs, **attributes)


_misused = partial(RefusedError, codes.INVALID_PARAM)


def _matmul(inputs: Names, outputs: Names, attributes: Attributes) -> list[Any]:
    """CANN's MatMul and BatchMatMul: an optional bias, operands transposed in their last two axes."""
    known = {"transpose_x1", "transpose_x2", "adj_x1", "adj_x2", "offset_x"}
    if unknown := sorted(set(attributes) - known):
        raise _misused(f"the emulator knows no attribute {', '.join(unknown)} of MatMul")
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
        raise _misused("Cast needs the attribute dst_type")
    return [_node("Cast", inputs, outputs, {"to": _type(number)})]


def _softmax(inputs: Names, outputs: Names, attributes: Attributes) -> list[Any]:
    axes = list(attributes.get("axes", [-1]))
    if len(axes) != 1:
        raise _misused("SoftmaxV2: the emulator takes exactly one of axes")
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


@dataclass(slots=True)
class OperatorAttributes:
    """Attributes of an operator, by name."""

    values: dict[str, Any] = field(default_factory=dict)


def _set(attributes: OperatorAttributes, name: str, value: Any) -> None:
    attributes.values[name] = value


def _set_type(attr: int, name: str, value: int) -> int:
    _set(known(OperatorAttributes, attr), name, value)
    return attr


OP.table(
    {
        "create_attr": ((), 0, lambda: process().handles.add(OperatorAttributes())),
        "destroy_attr": ("k", None, destroy(OperatorAttributes)),
        # attr, name, value -> ret; but for the type, which is answered with the attr, too
        "set_attr_bool": ((OperatorAttributes, "sB"), CODE, lambda at, name, v: _set(at, name, int(bool(v)))),
        "set_attr_data_type": ("ksi", lambda attr, *_: (attr, CODE), _set_type),
        **{
            f"set_attr_{name}": ((OperatorAttributes, f"s{kind}"), CODE, _set)
            for name, kind in (
                ("int", "L"),
                ("float", "f"),
                ("string", "s"),
                ("list_bool", "T"),
                ("list_int", "V"),
                ("list_float", "F"),
                ("list_string", "S"),
            )
        },
    }
)


@dataclass(frozen=True, slots=True)
class OperatorHandle:
    """An operator with the descriptions it was created for."""

    operator: OnnxOperator
    inputs: Sequence[TensorDesc]
    outputs: Sequence[TensorDesc]


def create(op_type: str, in_descs: Sequence[int], out_descs: Sequence[int], attr: int) -> OperatorHandle:
    """Return the operator for tensor descriptions and attributes."""
    attributes = known(OperatorAttributes, attr).values if attr else {}
    inputs, outputs = ([known(TensorDesc, handle) for handle in side] for side in (in_descs, out_descs))
    return _build(op_type, inputs, outputs, attributes)


def create_cast(source: int, target: int) -> OperatorHandle:
    """Return the operator that converts between two tensor descriptions."""
    descs = known(TensorDesc, source), known(TensorDesc, target)
    return _build("Cast", descs[:1], descs[1:], {"dst_type": descs[1].dtype})


def _build(
    op_type: str, inputs: Sequence[TensorDesc], outputs: Sequence[TensorDesc], attributes: dict[str, object]
) -> OperatorHandle:
    ports = [(desc.dtype, desc.shape) for desc in inputs]
    try:
        operator = build(op_type, ports, [desc.dtype for desc in outputs], attributes)
    except ModelError as error:
        raise RefusedError(codes.OP_NOT_FOUND, str(error)) from error
    return OperatorHandle(operator, inputs, outputs)


def run(handle: OperatorHandle, inputs: Sequence[int], outputs: Sequence[int], stream_handle: int) -> None:
    """Put an operator on a stream, with the dump, if there is one."""
    stream = own_stream(stream_handle)
    refuse_if(
        len(inputs) != len(handle.inputs) or len(outputs) != len(handle.outputs),
        codes.INVALID_PARAM,
        "as many data buffers as tensor descriptions are needed",
    )
    sides = ((handle.inputs, inputs), (handle.outputs, outputs))
    places = [
        [(desc, _memory(buffer, desc.nbytes)) for desc, buffer in zip(descs, buffers, strict=True)]
        for descs, buffers in sides
    ]
    # Descriptions whose sizes are not those that the operator is known to give are refused before it runs.
    known_outputs = sessions.ports(handle.operator.session.get_outputs())
    for desc, (_, dtype, shape) in zip(handle.outputs, known_outputs, strict=True):
        refuse_if(
            -1 not in shape and nbytes(dtype, shape) != desc.nbytes,
            codes.INVALID_PARAM,
            f"an output has the shape {list(shape)}, its description {list(desc.shape)}",
        )
    process().streams.put(stream, Work(stream, lambda: _run(handle, places[0], places[1], stream)))


def _read(places: Sequence[_Place]) -> list[Tensor]:
    """Return the tensors that are there now."""
    unknown = next((desc.dtype for desc, _ in places if desc.dtype not in BY_GE), None)
    refuse_if(unknown is not None, codes.INVALID_PARAM, f"aclDataType {unknown} is unknown")
    return [from_bytes(BY_GE[desc.dtype], desc.shape, data.copy()) for desc, data in places]


def _run(handle: OperatorHandle, inputs: Sequence[_Place], outputs: Sequence[_Place], stream: Stream) -> None:
    tensors = _read(inputs)
    if PLANTED.failing_operator(handle.operator.op_type):
        raise _failed(handle, stream, tensors, "a failure that was injected (emulator.faults.fail)")
    try:
        fault = PLANTED.distorting_operator(handle.operator.op_type)
        results = tuple(distorted(result, fault) for result in handle.operator.run(tensors))
    except ModelError as error:
        raise _failed(handle, stream, tensors, str(error)) from error
    for (desc, data), result in zip(outputs, results, strict=True):
        refuse_if(
            desc.nbytes != result.nbytes,
            codes.INVALID_PARAM,
            f"an output has the shape {list(result.shape)}, its description {list(desc.shape)}",
        )
        data[:] = result.data.view(np.uint8)
    try:
        # Inputs are read again: one that is an output too holds the result by now.
        after = _read(inputs)
        state = process()
        call = OperatorRun(
            handle.operator.op_type, next(state.operator_tasks), stream.id, stream.context.device
        )
        if (settings := state.dumping.settings) is not None and settings.operators:
            record_operator(settings, call, after, results, state.clock)
    except OSError as error:
        raise RefusedError(codes.INTERNAL_ERROR, f"the dump cannot be written: {error}") from error


def _failed(handle: OperatorHandle, stream: Stream, inputs: Sequence[Tensor], why: str) -> RefusedError:
    """Return the failure of an operator on the device, its exception dump written."""
    state = process()
    given = [ExceptionArgument(tensor, index) for index, tensor in enumerate(inputs) if tensor.nbytes]
    room = [(BY_GE.get(desc.dtype), desc) for desc in handle.outputs]
    outputs = [
        ExceptionArgument(from_bytes(dtype, desc.shape, np.zeros(desc.nbytes, np.uint8)), index)
        for index, (dtype, desc) in enumerate(room, len(handle.inputs))
        if dtype is not None and desc.nbytes
    ]
    op_type, ids = handle.operator.op_type, (next(state.operator_tasks), stream.id, stream.context.device)
    error = OperatorFailedError(FailedTask(op_type, op_type, *ids, given, outputs), why)
    dump = dumped(state.dumping.exception, error.operator, state.clock)
    return RefusedError(codes.RT_AICORE_EXCEPTION, f"{error}{dump}")


def _memory(handle: int, size: int) -> Bytes:
    buffer = known(DataBuffer, handle)
    if not size:
        return np.empty(0, np.uint8)
    refuse_if(buffer.size < size, codes.INVALID_PARAM, f"a tensor has {size} bytes, its buffer {buffer.size}")
    state = process()
    return state.memory.reached(buffer.address, size, state.device)


@OP("s")
def set_model_dir(directory: str) -> None:
    """``(directory) -> ret``: 100014 for no directory, 100002 the second time.

    The emulator needs no compiled operators: it runs every type it knows, whatever is in there.
    """
    state = process()
    refuse_if(state.operator_directory, codes.REPEAT_INITIALIZE, "set already")
    refuse_if(not Path(directory).is_dir(), codes.OP_LOAD_FAILED, f"{directory} is no directory")
    state.operator_directory = directory


@OP("K")
def set_max_op_queue_num(number: int) -> None:
    """``(number) -> ret``: how many operators may wait; here none ever waits."""
    refuse_if(not number, codes.INVALID_PARAM, "the number is 0")


def _execute(  # noqa: PLR0917 - pyACL's list
    op_type: str,
    in_descs: Sequence[int],
    in_buffers: Sequence[int],
    out_descs: Sequence[int],
    out_buffers: Sequence[int],
    attr: int,
    stream: int,
) -> None:
    run(create(op_type, in_descs, out_descs, attr), in_buffers, out_buffers, stream)


@OP("kkkkBk")
def cast(source: int, data: int, target: int, result: int, _: int, stream: int) -> None:
    """``(source desc, source, target desc, target, truncate, stream) -> ret``."""
    run(create_cast(source, target), [data], [result], stream)


OP.table(
    {
        # type, descriptions and buffers of inputs, those of outputs, attributes, stream
        "execute": ("svvvvkk", CODE, _execute),
        "execute_v2": ("svvvvkk", CODE, _execute),
        "create_handle": ("svvk", (0, CODE), lambda *of: process().handles.add(create(*of))),
        "create_handle_for_cast": ("kkB", (0, CODE), lambda *of: process().handles.add(create_cast(*of[:2]))),
        "destroy_handle": ("k", None, destroy(OperatorHandle)),
        # handle, buffers of inputs and of outputs, stream
        "execute_with_handle": ((OperatorHandle, "vvk"), CODE, run),
    }
)

globals().update(OP.calls, __all__=[*OP.calls])


def __getattr__(name: str) -> NoReturn:
    missing("acl.op", name)
