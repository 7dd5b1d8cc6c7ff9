"""``acl.op``: single operators."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

import numpy as np

from pytest_npudump.emulator import codes, operator_dump
from pytest_npudump.emulator.acl._attributes import (
    OperatorAttributes,
    create_attr,
    destroy_attr,
    set_attr_bool,
    set_attr_data_type,
    set_attr_float,
    set_attr_int,
    set_attr_list_bool,
    set_attr_list_float,
    set_attr_list_int,
    set_attr_list_string,
    set_attr_string,
)
from pytest_npudump.emulator.acl._buffers import DataBuffer
from pytest_npudump.emulator.acl._descs import TensorDesc
from pytest_npudump.emulator.arguments import integers, parse
from pytest_npudump.emulator.sessions import ModelError
from pytest_npudump.emulator.single_op import (
    MisusedAttributeError,
    OperatorNotFoundError,
    SingleOperator,
    build,
)
from pytest_npudump.emulator.state import DEFAULT_STREAM, Stream, process
from pytest_npudump.emulator.tensors import Tensor, from_acl_type, storage
from pytest_npudump.emulator.unsupported import missing

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = [
    "cast",
    "create_attr",
    "create_handle",
    "create_handle_for_cast",
    "destroy_attr",
    "destroy_handle",
    "execute",
    "execute_v2",
    "execute_with_handle",
    "set_attr_bool",
    "set_attr_data_type",
    "set_attr_float",
    "set_attr_int",
    "set_attr_list_bool",
    "set_attr_list_float",
    "set_attr_list_int",
    "set_attr_list_string",
    "set_attr_string",
    "set_max_op_queue_num",
    "set_model_dir",
]


class RefusedError(Exception):
    """A call that is refused; ``args`` are the code and the message."""


@dataclass(frozen=True, slots=True)
class OperatorHandle:
    """An operator with the descriptions it was created for."""

    operator: SingleOperator
    inputs: tuple[TensorDesc, ...]
    outputs: tuple[TensorDesc, ...]


def set_model_dir(*args: object) -> int:
    """``(directory) -> ret``: 100014 for no directory, 100002 the second time.

    The emulator needs no compiled operators: it runs every type it knows, whatever is in there.
    """
    (directory,) = parse("acl.op.set_model_dir", "s", args)
    state = process()
    if state.operator_directory:
        return state.explain(codes.REPEAT_INITIALIZE, "acl.op.set_model_dir: set already")
    if not Path(directory).is_dir():
        return state.explain(codes.OP_LOAD_FAILED, f"acl.op.set_model_dir: {directory} is no directory")
    state.operator_directory = directory
    return codes.SUCCESS


def set_max_op_queue_num(*args: object) -> int:
    """``(number) -> ret``: how many operators may wait; here none ever waits."""
    (number,) = parse("acl.op.set_max_op_queue_num", "K", args)
    return codes.SUCCESS if number else codes.INVALID_PARAM


def execute(*args: object) -> int:
    """``(type, in descs, in buffers, out descs, out buffers, attr, stream) -> ret``."""
    return _execute("acl.op.execute", args)


def execute_v2(*args: object) -> int:
    """``(type, in descs, in buffers, out descs, out buffers, attr, stream) -> ret``."""
    return _execute("acl.op.execute_v2", args)


def _execute(call: str, args: tuple[object, ...]) -> int:
    op_type, in_descs, in_buffers, out_descs, out_buffers, attr, stream = parse(call, "sllllkk", args)
    try:
        handle = _create(call, op_type, in_descs, out_descs, attr)
        _run(call, handle, integers(call, in_buffers), integers(call, out_buffers), stream)
    except RefusedError as error:
        return process().explain(error.args[0], f"{call}: {error.args[1]}")
    return codes.SUCCESS


def create_handle(*args: object) -> tuple[int, int]:
    """``(type, in descs, out descs, attr) -> (handle, ret)``."""
    call = "acl.op.create_handle"
    op_type, in_descs, out_descs, attr = parse(call, "sllk", args)
    try:
        handle = _create(call, op_type, in_descs, out_descs, attr)
    except RefusedError as error:
        return 0, process().explain(error.args[0], f"{call}: {error.args[1]}")
    return process().handles.add(handle), codes.SUCCESS


def destroy_handle(*args: object) -> None:
    """``(handle) -> None``."""
    (handle,) = parse("acl.op.destroy_handle", "k", args)
    process().handles.remove(handle, OperatorHandle)


def execute_with_handle(*args: object) -> int:
    """``(handle, in buffers, out buffers, stream) -> ret``."""
    call = "acl.op.execute_with_handle"
    number, in_buffers, out_buffers, stream = parse(call, "kllk", args)
    handle = process().handles.get(number, OperatorHandle)
    if handle is None:
        return process().explain(codes.INVALID_PARAM, f"{call}: {number:#x} is no operator handle")
    try:
        _run(call, handle, integers(call, in_buffers), integers(call, out_buffers), stream)
    except RefusedError as error:
        return process().explain(error.args[0], f"{call}: {error.args[1]}")
    return codes.SUCCESS


def create_handle_for_cast(*args: object) -> tuple[int, int]:
    """``(source desc, target desc, truncate) -> (handle, ret)``."""
    call = "acl.op.create_handle_for_cast"
    source, target, _ = parse(call, "kkB", args)
    try:
        handle = _create_cast(source, target)
    except RefusedError as error:
        return 0, process().explain(error.args[0], f"{call}: {error.args[1]}")
    return process().handles.add(handle), codes.SUCCESS


def cast(*args: object) -> int:
    """``(source desc, source, target desc, target, truncate, stream) -> ret``."""
    call = "acl.op.cast"
    source, data, target, result, _, stream = parse(call, "kkkkBk", args)
    try:
        _run(call, _create_cast(source, target), [data], [result], stream)
    except RefusedError as error:
        return process().explain(error.args[0], f"{call}: {error.args[1]}")
    return codes.SUCCESS


def _create(
    call: str, op_type: str, in_descs: list[object], out_descs: list[object], attr: int
) -> OperatorHandle:
    attributes = process().handles.get(attr, OperatorAttributes)
    if attr and attributes is None:
        raise RefusedError(codes.INVALID_PARAM, f"{attr:#x} is no operator attribute")
    inputs, outputs = (_descs(integers(call, side)) for side in (in_descs, out_descs))
    return _build(op_type, inputs, outputs, {} if attributes is None else attributes.values)


def _create_cast(source: int, target: int) -> OperatorHandle:
    inputs, outputs = _descs([source]), _descs([target])
    return _build("Cast", inputs, outputs, {"dst_type": outputs[0].dtype})


def _build(
    op_type: str,
    inputs: tuple[TensorDesc, ...],
    outputs: tuple[TensorDesc, ...],
    attributes: dict[str, object],
) -> OperatorHandle:
    ports = [(desc.dtype, desc.shape) for desc in inputs]
    try:
        operator = build(op_type, ports, [desc.dtype for desc in outputs], attributes)
    except OperatorNotFoundError as error:
        raise RefusedError(codes.OP_NOT_FOUND, str(error)) from error
    except MisusedAttributeError as error:
        raise RefusedError(codes.INVALID_PARAM, str(error)) from error
    except ModelError as error:
        raise RefusedError(codes.OP_NOT_FOUND, str(error)) from error
    return OperatorHandle(operator, inputs, outputs)


def _descs(handles: Sequence[int]) -> tuple[TensorDesc, ...]:
    found = [process().handles.get(handle, TensorDesc) for handle in handles]
    known = tuple(desc for desc in found if desc is not None)
    if len(known) != len(found):
        raise RefusedError(codes.INVALID_PARAM, "a tensor description is NULL or was destroyed")
    return known


def _run(call: str, handle: OperatorHandle, inputs: list[int], outputs: list[int], stream: int) -> None:
    state = process()
    known = state.handles.get(stream, Stream)
    if stream != DEFAULT_STREAM and known is None:
        raise RefusedError(codes.RT_PARAM_INVALID, f"{stream:#x} is no stream")
    if state.context is None:
        raise RefusedError(codes.RT_CONTEXT_NULL, "this thread has no context; call acl.rt.set_device first")
    if len(inputs) != len(handle.inputs) or len(outputs) != len(handle.outputs):
        raise RefusedError(codes.INVALID_PARAM, "as many data buffers as tensor descriptions are needed")
    tensors = [_read(desc, buffer) for desc, buffer in zip(handle.inputs, inputs, strict=True)]
    room = [_memory(buffer, desc.nbytes) for desc, buffer in zip(handle.outputs, outputs, strict=True)]
    try:
        results = handle.operator.run(tensors)
    except ModelError as error:
        raise RefusedError(codes.GE_INTERNAL_ERROR, str(error)) from error
    for desc, target, result in zip(handle.outputs, room, results, strict=True):
        if desc.nbytes != result.nbytes:
            message = f"an output has the shape {list(result.shape)}, its description {list(desc.shape)}"
            raise RefusedError(codes.INVALID_PARAM, message)
        target[:] = result.data.view(np.uint8)
    try:
        stream_id = DEFAULT_STREAM if known is None else known.id
        operator_dump.record(state, handle.operator.op_type, stream_id, tensors, results)
    except OSError as error:
        raise RefusedError(codes.INTERNAL_ERROR, f"{call}: the dump cannot be written: {error}") from error


def _read(desc: TensorDesc, buffer: int) -> Tensor:
    dtype = from_acl_type(desc.dtype)
    if dtype is None:
        raise RefusedError(codes.INVALID_PARAM, f"aclDataType {desc.dtype} is unknown")
    return Tensor(dtype, desc.shape, _memory(buffer, desc.nbytes).copy().view(storage(dtype)))


def _memory(handle: int, size: int) -> np.ndarray[tuple[int], np.dtype[np.uint8]]:
    buffer = process().handles.get(handle, DataBuffer)
    if buffer is None:
        raise RefusedError(codes.INVALID_PARAM, "a data buffer is NULL or was destroyed")
    if not size:
        return np.empty(0, np.uint8)
    found = process().memory.find(buffer.address, size) if buffer.size >= size else None
    if found is None:
        message = f"{size} bytes at {buffer.address:#x} are not memory of the buffer, which has {buffer.size}"
        raise RefusedError(codes.INVALID_PARAM, message)
    return found


def __getattr__(name: str) -> NoReturn:
    missing("acl.op", name)
