"""Execution of models: from buffers to tensors and back."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from pytest_npudump.emulator import codes
from pytest_npudump.emulator.acl._buffers import DataBuffer
from pytest_npudump.emulator.acl._datasets import Dataset
from pytest_npudump.emulator.acl._descs import TensorDesc
from pytest_npudump.emulator.acl._exceptions import dumped
from pytest_npudump.emulator.acl._loading import refusal
from pytest_npudump.emulator.arguments import parse
from pytest_npudump.emulator.callback import destination
from pytest_npudump.emulator.failing import OperatorFailedError
from pytest_npudump.emulator.sessions import ModelError
from pytest_npudump.emulator.state import DEFAULT_STREAM, Stream, process
from pytest_npudump.emulator.tensors import Tensor, nbytes, storage

if TYPE_CHECKING:
    from pytest_npudump.emulator.memory import Bytes
    from pytest_npudump.emulator.models import Model, Port


class MisfitError(Exception):
    """An execution that is refused; ``args`` are the code and the message."""


def execute(*args: object) -> int:
    """``(model id, inputs, outputs) -> ret``."""
    return _execute("acl.mdl.execute", *parse("acl.mdl.execute", "Ikk", args))


def execute_async(*args: object) -> int:
    """``(model id, inputs, outputs, stream) -> ret``, done when it returns."""
    *what, stream = parse("acl.mdl.execute_async", "Ikkk", args)
    return _on_stream("acl.mdl.execute_async", stream, what)


def execute_v2(*args: object) -> int:
    """``(model id, inputs, outputs, stream, handle) -> ret``; the configuration handle is unused."""
    *what, stream, _ = parse("acl.mdl.execute_v2", "Ikkkk", args)
    return _on_stream("acl.mdl.execute_v2", stream, what)


def _on_stream(call: str, stream: int, what: list[int]) -> int:
    state = process()
    if stream != DEFAULT_STREAM and state.handles.get(stream, Stream) is None:
        return state.explain(codes.RT_PARAM_INVALID, f"{call}: {stream:#x} is no stream")
    model_id, inputs, outputs = what
    return _execute(call, model_id, inputs, outputs)


def _execute(call: str, model_id: int, inputs: int, outputs: int) -> int:
    state = process()
    try:
        source, target = _dataset(inputs), _dataset(outputs)
        code = refusal(call)
        if code:
            return code
        model = _model(model_id)
        _run(model, source, target)
    except MisfitError as error:
        return state.explain(error.args[0], f"{call}: {error.args[1]}")
    except OperatorFailedError as error:
        return state.explain(codes.RT_MODEL_EXECUTE, f"{call}: {error}{_exception_dump(model, error)}")
    except ModelError as error:
        return state.explain(codes.GE_INTERNAL_ERROR, f"{call}: {error}")
    except OSError as error:
        return state.explain(codes.INTERNAL_ERROR, f"{call}: the dump cannot be written: {error}")
    return codes.SUCCESS


def _exception_dump(model: Model, error: OperatorFailedError) -> str:
    """Write the exception dump if one was on when the model was loaded: that is when adump learns of it."""
    return dumped(error.operator) if model.registered else ""


def _dataset(handle: int) -> Dataset:
    found = process().handles.get(handle, Dataset)
    if found is None:
        raise MisfitError(codes.INVALID_PARAM, "a dataset is NULL or was destroyed")
    return found


def _model(model_id: int) -> Model:
    found = process().models.get(model_id)
    if found is None:
        raise MisfitError(codes.GE_EXEC_MODEL_ID_INVALID, f"no model has the id {model_id}")
    return found


def _run(model: Model, source: Dataset, target: Dataset) -> None:
    state = process()
    tensors = _inputs(model, source)
    _check_outputs(model, target)
    results = model.run(tensors, state.clock, destination(state))
    _store(model, target, results)


def _inputs(model: Model, dataset: Dataset) -> list[Tensor]:
    _same_number("input", len(model.inputs), len(dataset.buffers))
    return [_input(port, dataset, index) for index, port in enumerate(model.inputs)]


def _same_number(io: str, wanted: int, given: int) -> None:
    if wanted != given:
        message = f"the model has {wanted} {io}s, the dataset {given} buffers"
        raise MisfitError(codes.GE_PARAM_INVALID, message)


def _input(port: Port, dataset: Dataset, index: int) -> Tensor:
    buffer = _buffer(dataset, index)
    shape = _shape(port, dataset, index, buffer.size)
    size = nbytes(port.dtype, shape)
    if buffer.size < size:
        message = f"input {port.name!r} of shape {list(shape)} has {size} bytes, its buffer {buffer.size}"
        raise MisfitError(codes.GE_PARAM_INVALID, message)
    data = process().memory.find(buffer.address, size) if size else np.empty(0, np.uint8)
    if data is None:
        message = f"input {port.name!r}: {size} bytes at {buffer.address:#x} are not allocated memory"
        raise MisfitError(codes.GE_PARAM_INVALID, message)
    return Tensor(port.dtype, shape, data.copy().view(storage(port.dtype)))


def _buffer(dataset: Dataset, index: int) -> DataBuffer:
    buffer = process().handles.get(dataset.buffers[index], DataBuffer)
    if buffer is None:
        raise MisfitError(codes.INVALID_PARAM, f"data buffer {index} of the dataset was destroyed")
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
        raise MisfitError(codes.GE_PARAM_INVALID, f"{message} acl.mdl.set_dataset_tensor_desc")
    one = nbytes(port.dtype, [1 if dim < 0 else dim for dim in port.shape])
    if not one or size % one:
        message = f"input {port.name!r} of shape {list(port.shape)}: {size} bytes are no multiple of {one}"
        raise MisfitError(codes.GE_PARAM_INVALID, message)
    return tuple(size // one if dim < 0 else dim for dim in port.shape)


def _fitting(port: Port, shape: tuple[int, ...]) -> tuple[int, ...]:
    fits = len(shape) == len(port.shape) and all(
        got >= 0 and want in {-1, got} for want, got in zip(port.shape, shape, strict=True)
    )
    if not fits:
        message = f"input {port.name!r} takes the shape {list(port.shape)}, not {list(shape)}"
        raise MisfitError(codes.GE_PARAM_INVALID, message)
    return shape


def _check_outputs(model: Model, dataset: Dataset) -> None:
    """Refuse buffers that cannot hold what the model will give, before it runs and dumps."""
    _same_number("output", len(model.outputs), len(dataset.buffers))
    for index, port in enumerate(model.outputs):
        buffer = _buffer(dataset, index)
        if buffer.address or buffer.size:
            _room(port.name, port.shape, buffer, port.nbytes)
        elif not port.dynamic and port.nbytes:
            message = f"the buffer of output {port.name!r} is NULL, which only dynamic shapes allow"
            raise MisfitError(codes.GE_PARAM_INVALID, message)


def _room(name: str, shape: tuple[int, ...], buffer: DataBuffer, size: int) -> Bytes:
    if buffer.size < size:
        message = f"output {name!r} of shape {list(shape)} has {size} bytes, its buffer {buffer.size}"
        raise MisfitError(codes.GE_PARAM_INVALID, message)
    data = process().memory.find(buffer.address, size)
    if data is None:
        message = f"output {name!r}: {size} bytes at {buffer.address:#x} are not allocated memory"
        raise MisfitError(codes.GE_PARAM_INVALID, message)
    return data


def _store(model: Model, dataset: Dataset, results: tuple[Tensor, ...]) -> None:
    for index, (port, tensor) in enumerate(zip(model.outputs, results, strict=True)):
        if not tensor.nbytes:
            continue
        buffer = _buffer(dataset, index)
        if not buffer.address and not buffer.size:
            _allocate(buffer, tensor.nbytes)
        _room(port.name, tensor.shape, buffer, tensor.nbytes)[:] = tensor.data.view(np.uint8)


def _allocate(buffer: DataBuffer, size: int) -> None:
    """Give an empty output buffer memory of its own, as ACL does for models with dynamic shapes."""
    state = process()
    try:
        buffer.address = state.memory.allocate(size, "device", state.device)
    except MemoryError:
        raise MisfitError(codes.RT_MEMORY_ALLOCATION, f"no room for {size} bytes of output") from None
    buffer.size = size
