"""The data of an execution: from the buffers of a dataset to tensors, and back.

Source: the documents of ``acl.mdl.execute``, ``acl.mdl.set_dataset_tensor_desc`` and their kin.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from pytest_npudump.emulator.acl._buffers import DataBuffer
from pytest_npudump.emulator.acl._tensor_descs import TensorDesc
from pytest_npudump.emulator.machine import codes
from pytest_npudump.emulator.machine.codes import RefusedError
from pytest_npudump.emulator.machine.memory import DEVICE
from pytest_npudump.emulator.process.state import process
from pytest_npudump.onnxmodels.tensor_types import Tensor, nbytes, storage

if TYPE_CHECKING:
    from pytest_npudump.emulator.acl._datasets import Dataset
    from pytest_npudump.emulator.execution.onnx_model import Model, Port
    from pytest_npudump.emulator.gears import Gears
    from pytest_npudump.emulator.machine.memory import Bytes


@dataclass(frozen=True, slots=True)
class Given:
    """An input of one execution: which, its shape, and where its bytes are."""

    port: Port
    shape: tuple[int, ...]
    data: Bytes

    def read(self) -> Tensor:
        """Return what is there by now."""
        return Tensor(self.port.dtype, self.shape, self.data.copy().view(storage(self.port.dtype)))


def inputs_of(model: Model, dataset: Dataset) -> list[Given]:
    """Return every input of this execution.

    Raises:
        RefusedError: the dataset does not fit the model.
    """
    _same_number("input", len(model.inputs), len(dataset.buffers))
    told = None if model.gears is None else _geared(model, model.gears, dataset)
    return [Given(port, *_input(model, dataset, index, told)) for index, port in enumerate(model.inputs)]


def _geared(model: Model, gears: Gears, dataset: Dataset) -> tuple[tuple[int, ...], ...]:
    """Return the shapes of all inputs in the gear that the last one tells."""
    port, buffer = model.inputs[-1], _buffer(dataset, len(model.inputs) - 1)
    if buffer.size < port.nbytes:
        message = f"input {port.name!r} has {port.nbytes} bytes, its buffer {buffer.size}"
        raise RefusedError(codes.GE_PARAM_INVALID, message)
    data = _reached(f"input {port.name!r}", model, buffer, port.nbytes)
    values = tuple(int(value) for value in data.copy().view(np.int64))
    gear = gears.index(values)
    if gear is None:
        message = (
            f"input {port.name!r} holds {values}, no gear; call acl.mdl.set_dynamic_batch_size or its kin"
        )
        raise RefusedError(codes.GE_PARAM_INVALID, message)
    return (*gears.inputs(gear), port.shape)


def _same_number(io: str, wanted: int, given: int) -> None:
    if wanted != given:
        message = f"the model has {wanted} {io}s, the dataset {given} buffers"
        raise RefusedError(codes.GE_PARAM_INVALID, message)


def _input(
    model: Model, dataset: Dataset, index: int, told: tuple[tuple[int, ...], ...] | None
) -> tuple[tuple[int, ...], Bytes]:
    port, buffer = model.inputs[index], _buffer(dataset, index)
    shape = _shape(port, dataset, index, buffer.size) if told is None else told[index]
    size = nbytes(port.dtype, shape)
    if buffer.size < size:
        message = f"input {port.name!r} of shape {list(shape)} has {size} bytes, its buffer {buffer.size}"
        raise RefusedError(codes.GE_PARAM_INVALID, message)
    return shape, _reached(f"input {port.name!r}", model, buffer, size)


def _reached(what: str, model: Model, buffer: DataBuffer, size: int) -> Bytes:
    if not size:
        return np.empty(0, np.uint8)
    try:
        return process().memory.reached(buffer.address, size, model.device)
    except RefusedError as error:
        raise RefusedError(codes.GE_PARAM_INVALID, f"{what}: {error.why}") from None


def _buffer(dataset: Dataset, index: int) -> DataBuffer:
    buffer = process().handles.get(dataset.buffers[index], DataBuffer)
    if buffer is None:
        raise RefusedError(codes.INVALID_PARAM, f"data buffer {index} of the dataset was destroyed")
    return buffer


def _shape(port: Port, dataset: Dataset, index: int, size: int) -> tuple[int, ...]:
    """Return the shape of this execution's input.

    The one set with ``set_dataset_tensor_desc`` counts; else the model's own, in which one dimension that
    varies follows from the buffer's size.
    """
    desc = process().handles.get(dataset.descs.get(index, 0), TensorDesc)
    if desc is not None:
        return _fitting(port, desc.shape)
    if not port.dynamic:
        return port.shape
    if port.shape.count(-1) > 1:
        message = f"input {port.name!r} has the shape {list(port.shape)}: tell this execution's shape with"
        raise RefusedError(codes.GE_PARAM_INVALID, f"{message} acl.mdl.set_dataset_tensor_desc")
    one = nbytes(port.dtype, [1 if dim < 0 else dim for dim in port.shape])
    if not one or size % one:
        message = f"input {port.name!r} of shape {list(port.shape)}: {size} bytes are no multiple of {one}"
        raise RefusedError(codes.GE_PARAM_INVALID, message)
    return tuple(size // one if dim < 0 else dim for dim in port.shape)


def _fitting(port: Port, shape: tuple[int, ...]) -> tuple[int, ...]:
    fits = len(shape) == len(port.shape) and all(
        got >= 0 and want in {-1, got} for want, got in zip(port.shape, shape, strict=True)
    )
    if not fits:
        message = f"input {port.name!r} takes the shape {list(port.shape)}, not {list(shape)}"
        raise RefusedError(codes.GE_PARAM_INVALID, message)
    return shape


def check_outputs(model: Model, dataset: Dataset, *, allocate: bool) -> None:
    """Refuse buffers that cannot hold what the model will give, before it runs and dumps.

    Raises:
        RefusedError: one cannot, or none is given and none may be allocated.
    """
    _same_number("output", len(model.outputs), len(dataset.buffers))
    for index, port in enumerate(model.outputs):
        buffer = _buffer(dataset, index)
        if buffer.address or buffer.size:
            _room(model, port, port.shape, buffer, port.nbytes)
        elif port.nbytes:
            message = f"the buffer of output {port.name!r} is NULL, which only dynamic shapes allow"
            raise RefusedError(codes.GE_PARAM_INVALID, message)
        elif not allocate:
            message = f"the buffer of output {port.name!r} is NULL, which only acl.mdl.execute allows"
            raise RefusedError(codes.GE_PARAM_INVALID, message)


def _room(model: Model, port: Port, shape: tuple[int, ...], buffer: DataBuffer, size: int) -> Bytes:
    if buffer.size < size:
        message = f"output {port.name!r} of shape {list(shape)} has {size} bytes, its buffer {buffer.size}"
        raise RefusedError(codes.GE_PARAM_INVALID, message)
    return _reached(f"output {port.name!r}", model, buffer, size)


def store(model: Model, dataset: Dataset, results: tuple[Tensor, ...]) -> None:
    """Write the results of an execution to its output buffers.

    Raises:
        RefusedError: a buffer is too small for a shape that only the execution has told.
    """
    for index, (port, tensor) in enumerate(zip(model.outputs, results, strict=True)):
        if not tensor.nbytes:
            continue
        buffer = _buffer(dataset, index)
        if not buffer.address and not buffer.size:
            _allocate(buffer, tensor.nbytes, model.device)
        _room(model, port, tensor.shape, buffer, tensor.nbytes)[:] = tensor.data.view(np.uint8)


def _allocate(buffer: DataBuffer, size: int, device: int) -> None:
    """Give an empty output buffer memory of its own, as ACL does for models with dynamic shapes."""
    try:
        buffer.address = process().memory.allocate(size, DEVICE, device)
    except MemoryError:
        raise RefusedError(codes.RT_MEMORY_ALLOCATION, f"no room for {size} bytes of output") from None
    buffer.size = size
