"""Single operators between the calls of ``acl.op`` and onnxruntime.

They run on a stream: what fails on the device is told by what waits for it, as CANN's documents say of every
asynchronous call.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from pytest_npudump.emulator.acl._attributes import OperatorAttributes
from pytest_npudump.emulator.acl._buffers import DataBuffer
from pytest_npudump.emulator.acl._calls import known
from pytest_npudump.emulator.acl._streams import own_stream
from pytest_npudump.emulator.acl._tensor_descs import TensorDesc
from pytest_npudump.emulator.dumps import operator_dump
from pytest_npudump.emulator.dumps.exception_files import Argument, Operator
from pytest_npudump.emulator.dumps.exceptions import dumped
from pytest_npudump.emulator.execution.failed_operator import OperatorFailedError
from pytest_npudump.emulator.execution.single_op import (
    MisusedAttributeError,
    OperatorNotFoundError,
    SingleOperator,
    build,
)
from pytest_npudump.emulator.faults import PLANTED, distorted
from pytest_npudump.emulator.machine import codes
from pytest_npudump.emulator.machine.codes import RefusedError
from pytest_npudump.emulator.machine.streams import Stream, Work
from pytest_npudump.emulator.process.state import process
from pytest_npudump.onnxmodels.sessions import ModelError
from pytest_npudump.onnxmodels.tensor_types import Tensor, from_acl_type, nbytes, storage

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pytest_npudump.dump.values.dtypes import DType
    from pytest_npudump.emulator.machine.memory import Bytes


@dataclass(frozen=True, slots=True)
class OperatorHandle:
    """An operator with the descriptions it was created for."""

    operator: SingleOperator
    inputs: Sequence[TensorDesc]
    outputs: Sequence[TensorDesc]


def create(op_type: str, in_descs: Sequence[int], out_descs: Sequence[int], attr: int) -> OperatorHandle:
    """Return the operator for tensor descriptions and attributes.

    Raises:
        RefusedError: a handle is unknown, or there is no such operator.
    """
    attributes = known(OperatorAttributes, attr).values if attr else {}
    inputs, outputs = ([known(TensorDesc, handle) for handle in side] for side in (in_descs, out_descs))
    return _build(op_type, inputs, outputs, attributes)


def create_cast(source: int, target: int) -> OperatorHandle:
    """Return the operator that converts between two tensor descriptions.

    Raises:
        RefusedError: a handle is unknown, or the types cannot be converted.
    """
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
    """Put an operator on a stream, with the dump, if there is one.

    Raises:
        RefusedError: a handle or a size stands against it.
    """
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
    call = operator_dump.Call(op_type, next(state.operator_tasks), stream.id, stream.context.device)
    settings = state.dumping.settings
    if settings is not None and settings.operators:
        operator_dump.record(settings, call, inputs, outputs, state.clock)


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
    error = OperatorFailedError(Operator(op_type, op_type, *ids, given, outputs), why)
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
