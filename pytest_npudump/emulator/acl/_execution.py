"""Execution of models: from buffers to tensors and back.

Sources: ``model.cpp`` of hicann/ge's ``acl_model`` and the documents of ``acl.mdl.execute``: a model is
loaded, executed and unloaded in one context. ``ModelExecute`` of hicann/runtime's ``api_impl.cc`` has the
code for another one: 107004. What goes wrong in a call that only puts the execution on a stream is told by
what waits for that stream.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from pytest_npudump.emulator.acl._buffers import DataBuffer
from pytest_npudump.emulator.acl._datasets import Dataset
from pytest_npudump.emulator.acl._descs import TensorDesc
from pytest_npudump.emulator.acl._exceptions import dumped
from pytest_npudump.emulator.acl._loading import refusal
from pytest_npudump.emulator.acl._streams import own_stream, wait_for
from pytest_npudump.emulator.dumping.callback import destination
from pytest_npudump.emulator.machine import codes
from pytest_npudump.emulator.machine.arguments import parse
from pytest_npudump.emulator.machine.memory import DEVICE
from pytest_npudump.emulator.machine.state import process
from pytest_npudump.emulator.machine.streams import (
    FOR_EVER,
    Failure,
    Stream,
    Work,
)
from pytest_npudump.emulator.models.failing import OperatorFailedError
from pytest_npudump.onnxmodels.sessions import ModelError
from pytest_npudump.onnxmodels.tensors import Tensor, nbytes, storage

if TYPE_CHECKING:
    from collections.abc import Callable

    from pytest_npudump.emulator.gears import Gears
    from pytest_npudump.emulator.machine.memory import Bytes
    from pytest_npudump.emulator.models.model import Model, Port


class MisfitError(Exception):
    """An execution that is refused; ``args`` are the code and the message."""


def execute(*args: object) -> int:
    """``(model id, inputs, outputs) -> ret``."""
    call = "acl.mdl.execute"
    state = process()
    try:
        run = _prepare(call, *parse(call, "Ikk", args))
    except MisfitError as error:
        return state.explain(error.args[0], f"{call}: {error.args[1]}")
    failure = run()
    return codes.SUCCESS if failure is None else state.explain(failure.code, f"{call}: {failure.why}")


def execute_async(*args: object) -> int:
    """``(model id, inputs, outputs, stream) -> ret``: what fails on the device is told by the stream."""
    *what, stream = parse("acl.mdl.execute_async", "Ikkk", args)
    placed = _put("acl.mdl.execute_async", stream, what)
    return placed if isinstance(placed, int) else codes.SUCCESS


def execute_v2(*args: object) -> int:
    """``(model id, inputs, outputs, stream, handle) -> ret``, when done; the configuration is unused."""
    call = "acl.mdl.execute_v2"
    *what, stream, _ = parse(call, "Ikkkk", args)
    placed = _put(call, stream, what)
    return placed if isinstance(placed, int) else wait_for(call, placed, FOR_EVER)


def _put(call: str, handle: int, what: list[int]) -> Stream | int:
    """Put an execution on a stream and return the stream, or the code that stands against it."""
    state = process()
    stream = own_stream(call, handle)
    if not isinstance(stream, Stream):
        return stream
    try:
        model_id, inputs, outputs = what
        run = _prepare(call, model_id, inputs, outputs, allocate=False)
    except MisfitError as error:
        return state.explain(error.args[0], f"{call}: {error.args[1]}")
    state.streams.put(stream, Work(stream, run))
    return stream


def _prepare(
    call: str, model_id: int, inputs: int, outputs: int, *, allocate: bool = True
) -> Callable[[], Failure | None]:
    """Check everything that is known before a model runs, and return the run.

    ``allocate`` tells whether empty output buffers get memory: on a stream CANN does not hand it out.

    Raises:
        MisfitError: something stands against it.
    """
    source, target = _dataset(inputs), _dataset(outputs)
    code = refusal(call)
    if code:
        raise MisfitError(code, process().take_message())
    model = _model(model_id)
    located = _inputs(model, source)
    _check_outputs(model, target, allocate=allocate)

    def run() -> Failure | None:
        try:
            _run(model, located, target)
        except MisfitError as error:
            return Failure(*error.args)
        except OperatorFailedError as error:
            return Failure(codes.RT_MODEL_EXECUTE, f"{error}{_exception_dump(model, error)}")
        except ModelError as error:
            return Failure(codes.GE_INTERNAL_ERROR, str(error))
        except OSError as error:
            return Failure(codes.INTERNAL_ERROR, f"the dump cannot be written: {error}")
        return None

    return run


def _exception_dump(model: Model, error: OperatorFailedError) -> str:
    """Write the exception dump if one was on when the model was loaded: that is when adump learns of it."""
    return dumped(error.operator) if model.registered else ""


def _dataset(handle: int) -> Dataset:
    found = process().handles.get(handle, Dataset)
    if found is None:
        raise MisfitError(codes.INVALID_PARAM, "a dataset is NULL or was destroyed")
    return found


def _model(model_id: int) -> Model:
    state = process()
    found = state.models.get(model_id)
    if found is None:
        raise MisfitError(codes.GE_EXEC_MODEL_ID_INVALID, f"no model has the id {model_id}")
    if found.context is not state.context:
        message = (
            f"the model was loaded in another context (device {found.device}) than this thread's (device "
            f"{state.device}); load and run a model in one context (acl.rt.set_context)"
        )
        raise MisfitError(codes.RT_MODEL_CONTEXT, message)
    return found


def _run(model: Model, inputs: list[tuple[Port, tuple[int, ...], Bytes]], target: Dataset) -> None:
    state = process()
    tensors = [
        Tensor(port.dtype, shape, data.copy().view(storage(port.dtype))) for port, shape, data in inputs
    ]
    _store(model, target, model.run(tensors, state.clock, destination(state)))


def _inputs(model: Model, dataset: Dataset) -> list[tuple[Port, tuple[int, ...], Bytes]]:
    """Return every input of this execution with its shape and where its bytes are."""
    _same_number("input", len(model.inputs), len(dataset.buffers))
    told = None if model.gears is None else _geared(model, model.gears, dataset)
    return [(port, *_input(model, dataset, index, told)) for index, port in enumerate(model.inputs)]


def _geared(model: Model, gears: Gears, dataset: Dataset) -> tuple[tuple[int, ...], ...]:
    """Return the shapes of all inputs in the gear that the last one tells."""
    port, buffer = model.inputs[-1], _buffer(dataset, len(model.inputs) - 1)
    if buffer.size < port.nbytes:
        message = f"input {port.name!r} has {port.nbytes} bytes, its buffer {buffer.size}"
        raise MisfitError(codes.GE_PARAM_INVALID, message)
    data = _reached(f"input {port.name!r}", model, buffer, port.nbytes)
    values = tuple(int(value) for value in data.copy().view(np.int64))
    gear = gears.index(values)
    if gear is None:
        message = (
            f"input {port.name!r} holds {values}, no gear; call acl.mdl.set_dynamic_batch_size or its kin"
        )
        raise MisfitError(codes.GE_PARAM_INVALID, message)
    return (*gears.inputs(gear), port.shape)


def _same_number(io: str, wanted: int, given: int) -> None:
    if wanted != given:
        message = f"the model has {wanted} {io}s, the dataset {given} buffers"
        raise MisfitError(codes.GE_PARAM_INVALID, message)


def _input(
    model: Model, dataset: Dataset, index: int, told: tuple[tuple[int, ...], ...] | None
) -> tuple[tuple[int, ...], Bytes]:
    port, buffer = model.inputs[index], _buffer(dataset, index)
    shape = _shape(port, dataset, index, buffer.size) if told is None else told[index]
    size = nbytes(port.dtype, shape)
    if buffer.size < size:
        message = f"input {port.name!r} of shape {list(shape)} has {size} bytes, its buffer {buffer.size}"
        raise MisfitError(codes.GE_PARAM_INVALID, message)
    return shape, _reached(f"input {port.name!r}", model, buffer, size)


def _reached(what: str, model: Model, buffer: DataBuffer, size: int) -> Bytes:
    found = process().memory.reached(buffer.address, size, model.device) if size else np.empty(0, np.uint8)
    if isinstance(found, str):
        raise MisfitError(codes.GE_PARAM_INVALID, f"{what}: {found}")
    return found


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


def _check_outputs(model: Model, dataset: Dataset, *, allocate: bool) -> None:
    """Refuse buffers that cannot hold what the model will give, before it runs and dumps."""
    _same_number("output", len(model.outputs), len(dataset.buffers))
    for index, port in enumerate(model.outputs):
        buffer = _buffer(dataset, index)
        if buffer.address or buffer.size:
            _room(model, port, port.shape, buffer, port.nbytes)
        elif port.nbytes:
            message = f"the buffer of output {port.name!r} is NULL, which only dynamic shapes allow"
            raise MisfitError(codes.GE_PARAM_INVALID, message)
        elif not allocate:
            message = f"the buffer of output {port.name!r} is NULL, which only acl.mdl.execute allows"
            raise MisfitError(codes.GE_PARAM_INVALID, message)


def _room(model: Model, port: Port, shape: tuple[int, ...], buffer: DataBuffer, size: int) -> Bytes:
    if buffer.size < size:
        message = f"output {port.name!r} of shape {list(shape)} has {size} bytes, its buffer {buffer.size}"
        raise MisfitError(codes.GE_PARAM_INVALID, message)
    return _reached(f"output {port.name!r}", model, buffer, size)


def _store(model: Model, dataset: Dataset, results: tuple[Tensor, ...]) -> None:
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
        raise MisfitError(codes.RT_MEMORY_ALLOCATION, f"no room for {size} bytes of output") from None
    buffer.size = size
