"""Single operators between the calls of ``acl.op`` and onnxruntime."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from pytest_npudump.emulator import codes, operator_dump
from pytest_npudump.emulator.acl._attributes import OperatorAttributes
from pytest_npudump.emulator.acl._buffers import DataBuffer
from pytest_npudump.emulator.acl._descs import TensorDesc
from pytest_npudump.emulator.acl._exceptions import dumped
from pytest_npudump.emulator.arguments import integers
from pytest_npudump.emulator.exception_files import Argument
from pytest_npudump.emulator.failing import OperatorFailedError, single_operator
from pytest_npudump.emulator.faults import failing_operator
from pytest_npudump.emulator.sessions import ModelError
from pytest_npudump.emulator.single_op import (
    MisusedAttributeError,
    OperatorNotFoundError,
    SingleOperator,
    build,
)
from pytest_npudump.emulator.state import DEFAULT_STREAM, Stream, process
from pytest_npudump.emulator.tensors import Tensor, from_acl_type, storage

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pytest_npudump.emulator.memory import Bytes


class RefusedError(Exception):
    """A call that is refused; ``args`` are the code and the message."""


@dataclass(frozen=True, slots=True)
class OperatorHandle:
    """An operator with the descriptions it was created for."""

    operator: SingleOperator
    inputs: tuple[TensorDesc, ...]
    outputs: tuple[TensorDesc, ...]


def create(
    call: str, op_type: str, in_descs: list[object], out_descs: list[object], attr: int
) -> OperatorHandle:
    """Return the operator for tensor descriptions and attributes.

    Raises:
        RefusedError: a handle is unknown, or there is no such operator.
    """
    attributes = process().handles.get(attr, OperatorAttributes)
    if attr and attributes is None:
        raise RefusedError(codes.INVALID_PARAM, f"{attr:#x} is no operator attribute")
    inputs, outputs = (_descs(integers(call, side)) for side in (in_descs, out_descs))
    return _build(op_type, inputs, outputs, {} if attributes is None else attributes.values)


def create_cast(source: int, target: int) -> OperatorHandle:
    """Return the operator that converts between two tensor descriptions.

    Raises:
        RefusedError: a handle is unknown, or the types cannot be converted.
    """
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


def run(handle: OperatorHandle, inputs: list[int], outputs: list[int], stream: int) -> None:
    """Execute on data buffers and write the dump, if there is one.

    Raises:
        RefusedError: a handle, a size, the device or the operator itself stands against it.
    """
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
    stream_id = DEFAULT_STREAM if known is None else known.id
    if failing_operator(handle.operator.op_type):
        raise _failed(handle, stream_id, tensors, "a failure that was planted (emulator.faults.fail)")
    try:
        results = handle.operator.run(tensors)
    except ModelError as error:
        raise _failed(handle, stream_id, tensors, str(error)) from error
    for desc, target, result in zip(handle.outputs, room, results, strict=True):
        if desc.nbytes != result.nbytes:
            message = f"an output has the shape {list(result.shape)}, its description {list(desc.shape)}"
            raise RefusedError(codes.INVALID_PARAM, message)
        target[:] = result.data.view(np.uint8)
    _dump(handle, inputs, results, stream_id)


def _failed(handle: OperatorHandle, stream: int, inputs: Sequence[Tensor], why: str) -> RefusedError:
    """Return the error of an operator that failed on the device, its exception dump written."""
    state = process()
    operator = single_operator(handle.operator.op_type, stream, state.device, inputs)
    room = [(from_acl_type(desc.dtype), desc) for desc in handle.outputs]
    outputs = [
        Argument(Tensor(dtype, desc.shape, np.zeros(desc.nbytes, np.uint8).view(storage(dtype))), index)
        for index, (dtype, desc) in enumerate(room, len(handle.inputs))
        if dtype is not None and desc.nbytes
    ]
    error = OperatorFailedError(replace(operator, outputs=outputs), why)
    return RefusedError(codes.RT_AICORE_EXCEPTION, f"{error}{dumped(error.operator)}")


def _dump(handle: OperatorHandle, inputs: list[int], results: tuple[Tensor, ...], stream: int) -> None:
    """Record the execution. Inputs are read again: one that is an output too holds the result by now."""
    after = [_read(desc, buffer) for desc, buffer in zip(handle.inputs, inputs, strict=True)]
    try:
        operator_dump.record(process(), handle.operator.op_type, stream, after, results)
    except OSError as error:
        raise RefusedError(codes.INTERNAL_ERROR, f"the dump cannot be written: {error}") from error


def _read(desc: TensorDesc, buffer: int) -> Tensor:
    dtype = from_acl_type(desc.dtype)
    if dtype is None:
        raise RefusedError(codes.INVALID_PARAM, f"aclDataType {desc.dtype} is unknown")
    return Tensor(dtype, desc.shape, _memory(buffer, desc.nbytes).copy().view(storage(dtype)))


def _memory(handle: int, size: int) -> Bytes:
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
