"""``acl.op``: single operators, between its calls and onnxruntime.

They run on a stream: what fails on the device is told by what waits for it, as CANN's documents say of every
asynchronous call.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np

from pytest_npudump.emulator import codes
from pytest_npudump.emulator.acl._base import DataBuffer, TensorDesc
from pytest_npudump.emulator.acl._calls import CODE, OP, destroy, known
from pytest_npudump.emulator.acl._streams import own_stream
from pytest_npudump.emulator.codes import RefusedError, missing
from pytest_npudump.emulator.dumps.exceptions import Argument, FailedTask, dumped
from pytest_npudump.emulator.dumps.recorder import OperatorRun, record_operator
from pytest_npudump.emulator.failed_operator import OperatorFailedError
from pytest_npudump.emulator.faults import PLANTED, distorted
from pytest_npudump.emulator.process import process
from pytest_npudump.emulator.single_op import (
    MisusedAttributeError,
    OnnxOperator,
    OperatorNotFoundError,
    build,
)
from pytest_npudump.emulator.streams import Stream, Work
from pytest_npudump.onnxmodels.sessions import ModelError
from pytest_npudump.onnxmodels.tensor_types import Tensor, from_acl_type, nbytes, storage

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pytest_npudump.dump.dtypes import DType
    from pytest_npudump.emulator.memory import Bytes


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
    except MisusedAttributeError as error:
        raise RefusedError(codes.INVALID_PARAM, str(error)) from error
    except (OperatorNotFoundError, ModelError) as error:
        raise RefusedError(codes.OP_NOT_FOUND, str(error)) from error
    return OperatorHandle(operator, inputs, outputs)


def run(handle: OperatorHandle, inputs: Sequence[int], outputs: Sequence[int], stream_handle: int) -> None:
    """Put an operator on a stream, with the dump, if there is one."""
    stream = own_stream(stream_handle)
    if len(inputs) != len(handle.inputs) or len(outputs) != len(handle.outputs):
        raise RefusedError(codes.INVALID_PARAM, "as many data buffers as tensor descriptions are needed")
    sides = ((handle.inputs, inputs), (handle.outputs, outputs))
    places = [
        [_Place(desc, _memory(buffer, desc.nbytes)) for desc, buffer in zip(descs, buffers, strict=True)]
        for descs, buffers in sides
    ]
    _check_outputs(handle)
    process().streams.put(stream, Work(stream, lambda: _run(handle, places[0], places[1], stream)))


def _check_outputs(handle: OperatorHandle) -> None:
    """Refuse descriptions whose sizes are not those that the operator is known to give, before it runs."""
    for desc, (_, dtype, shape) in zip(handle.outputs, handle.operator.outgoing(), strict=True):
        if -1 not in shape and nbytes(dtype, shape) != desc.nbytes:
            message = f"an output has the shape {list(shape)}, its description {list(desc.shape)}"
            raise RefusedError(codes.INVALID_PARAM, message)


@dataclass(frozen=True, slots=True)
class _Place:
    """Where a tensor is."""

    desc: TensorDesc
    data: Bytes

    def read(self) -> Tensor:
        dtype = _dtype(self.desc)
        return Tensor(dtype, self.desc.shape, self.data.copy().view(storage(dtype)))


def _run(handle: OperatorHandle, inputs: Sequence[_Place], outputs: Sequence[_Place], stream: Stream) -> None:
    tensors = [place.read() for place in inputs]
    if PLANTED.failing_operator(handle.operator.op_type):
        raise _failed(handle, stream, tensors, "a failure that was injected (emulator.faults.fail)")
    try:
        fault = PLANTED.distorting_operator(handle.operator.op_type)
        results = tuple(distorted(result, fault) for result in handle.operator.run(tensors))
    except ModelError as error:
        raise _failed(handle, stream, tensors, str(error)) from error
    for place, result in zip(outputs, results, strict=True):
        if place.desc.nbytes != result.nbytes:
            message = (
                f"an output has the shape {list(result.shape)}, its description {list(place.desc.shape)}"
            )
            raise RefusedError(codes.INVALID_PARAM, message)
        place.data[:] = result.data.view(np.uint8)
    try:
        # Inputs are read again: one that is an output too holds the result by now.
        after = [place.read() for place in inputs]
        _dump(handle.operator.op_type, stream, after, results)
    except OSError as error:
        raise RefusedError(codes.INTERNAL_ERROR, f"the dump cannot be written: {error}") from error


def _dump(op_type: str, stream: Stream, inputs: Sequence[Tensor], outputs: Sequence[Tensor]) -> None:
    """Write the dump of one execution, if single operators are dumped; it is a task either way."""
    state = process()
    call = OperatorRun(op_type, next(state.operator_tasks), stream.id, stream.context.device)
    settings = state.dumping.settings
    if settings is not None and settings.operators:
        record_operator(settings, call, inputs, outputs, state.clock)


def _failed(handle: OperatorHandle, stream: Stream, inputs: Sequence[Tensor], why: str) -> RefusedError:
    """Return the failure of an operator on the device, its exception dump written."""
    state = process()
    given = [Argument(tensor, index) for index, tensor in enumerate(inputs) if tensor.nbytes]
    room = [(from_acl_type(desc.dtype), desc) for desc in handle.outputs]
    outputs = [
        Argument(Tensor(dtype, desc.shape, np.zeros(desc.nbytes, np.uint8).view(storage(dtype))), index)
        for index, (dtype, desc) in enumerate(room, len(handle.inputs))
        if dtype is not None and desc.nbytes
    ]
    op_type, ids = handle.operator.op_type, (next(state.operator_tasks), stream.id, stream.context.device)
    error = OperatorFailedError(FailedTask(op_type, op_type, *ids, given, outputs), why)
    dump = dumped(state.dumping.exception, error.operator, state.clock)
    return RefusedError(codes.RT_AICORE_EXCEPTION, f"{error}{dump}")


def _dtype(desc: TensorDesc) -> DType:
    dtype = from_acl_type(desc.dtype)
    if dtype is None:
        raise RefusedError(codes.INVALID_PARAM, f"aclDataType {desc.dtype} is unknown")
    return dtype


def _memory(handle: int, size: int) -> Bytes:
    buffer = known(DataBuffer, handle)
    if not size:
        return np.empty(0, np.uint8)
    if buffer.size < size:
        message = f"a tensor has {size} bytes, its buffer {buffer.size}"
        raise RefusedError(codes.INVALID_PARAM, message)
    state = process()
    return state.memory.reached(buffer.address, size, state.device)


@OP("s")
def set_model_dir(directory: str) -> None:
    """``(directory) -> ret``: 100014 for no directory, 100002 the second time.

    The emulator needs no compiled operators: it runs every type it knows, whatever is in there.
    """
    state = process()
    if state.operator_directory:
        raise RefusedError(codes.REPEAT_INITIALIZE, "set already")
    if not Path(directory).is_dir():
        raise RefusedError(codes.OP_LOAD_FAILED, f"{directory} is no directory")
    state.operator_directory = directory


@OP("K")
def set_max_op_queue_num(number: int) -> None:
    """``(number) -> ret``: how many operators may wait; here none ever waits."""
    if not number:
        raise RefusedError(codes.INVALID_PARAM, "the number is 0")


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
