"""``acl.mdl``: execution of models, in gears too; loading is in :mod:`pytest_npudump.emulator.acl._models`.

Sources: ``model.cpp`` of hicann/ge's ``acl_model`` and the documents of ``acl.mdl.execute`` and
``acl.mdl.set_dataset_tensor_desc``: a model is loaded, executed and unloaded in one context.
``ModelExecute`` of hicann/runtime's ``api_impl.cc`` has the code for another one: 107004. What goes wrong in
a call that only puts the execution on a stream is told by what waits for that stream.

Gears are the batch sizes, image sizes or dimensions that ATC compiles a model for. An execution's is told the
model in one more input, named ``ascend_mbatch_shape_data``; a model without gears takes none (145013).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np

from pytest_npudump.emulator import codes
from pytest_npudump.emulator.acl._base import DataBuffer, TensorDesc
from pytest_npudump.emulator.acl._calls import CODE, MDL, known, parse
from pytest_npudump.emulator.acl._models import Dataset, ModelDesc, check_ready, loaded
from pytest_npudump.emulator.acl._streams import own_stream, wait_for
from pytest_npudump.emulator.codes import RefusedError, missing
from pytest_npudump.emulator.dumps.exceptions import dumped
from pytest_npudump.emulator.failed_operator import OperatorFailedError
from pytest_npudump.emulator.gears import BATCH, DIMS, IMAGE
from pytest_npudump.emulator.memory import DEVICE
from pytest_npudump.emulator.process import process
from pytest_npudump.emulator.streams import Stream, Work
from pytest_npudump.onnxmodels.sessions import ModelError
from pytest_npudump.onnxmodels.tensor_types import Tensor, nbytes, storage

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pytest_npudump.emulator.gears import Gears
    from pytest_npudump.emulator.memory import Bytes
    from pytest_npudump.emulator.onnx_model import Model, ModelPort


@dataclass(frozen=True, slots=True)
class InputPlace:
    """An input of one execution: which, its shape, and where its bytes are."""

    port: ModelPort
    shape: tuple[int, ...]
    data: Bytes

    def read(self) -> Tensor:
        """Return what is there by now."""
        return Tensor(self.port.dtype, self.shape, self.data.copy().view(storage(self.port.dtype)))


def _unfit(why: str) -> RefusedError:
    return RefusedError(codes.GE_PARAM_INVALID, why)


def _buffers(io: str, ports: Sequence[ModelPort], dataset: Dataset) -> list[DataBuffer]:
    """Return the buffers of a dataset, one a port."""
    if len(ports) != len(dataset.buffers):
        raise _unfit(f"the model has {len(ports)} {io}s, the dataset {len(dataset.buffers)} buffers")
    found = [process().handles.get(handle, DataBuffer) for handle in dataset.buffers]
    if None in found:
        why = f"data buffer {found.index(None)} of the dataset was destroyed"
        raise RefusedError(codes.INVALID_PARAM, why)
    return [buffer for buffer in found if buffer is not None]


def _bytes(model: Model, io: str, port: ModelPort, shape: tuple[int, ...], buffer: DataBuffer) -> Bytes:
    """Return the bytes of a buffer that an input or output of this shape takes."""
    size = nbytes(port.dtype, shape)
    if buffer.size < size:
        why = f"{io} {port.name!r} of shape {list(shape)} has {size} bytes, its buffer {buffer.size}"
        raise _unfit(why)
    if not size:
        return np.empty(0, np.uint8)
    try:
        return process().memory.reached(buffer.address, size, model.device)
    except RefusedError as error:
        raise _unfit(f"{io} {port.name!r}: {error.why}") from None


def inputs_of(model: Model, dataset: Dataset) -> list[InputPlace]:
    """Return every input of this execution; refused where the dataset does not fit the model."""
    buffers = _buffers("input", model.inputs, dataset)
    if model.gears is None:
        sized = enumerate(zip(model.inputs, buffers, strict=True))
        shapes = [_shape(port, dataset.descs.get(at, 0), buffer.size) for at, (port, buffer) in sized]
    else:  # in the gear that the last input tells
        port = model.inputs[-1]
        data = _bytes(model, "input", port, port.shape, buffers[-1])
        values = tuple(int(value) for value in data.copy().view(np.int64))
        gear = model.gears.index(values)
        if gear is None:
            why = "no gear; call acl.mdl.set_dynamic_batch_size or its kin"
            raise _unfit(f"input {port.name!r} holds {values}, {why}")
        shapes = [*model.gears.inputs(gear), port.shape]
    return [
        InputPlace(port, shape, _bytes(model, "input", port, shape, buffer))
        for port, shape, buffer in zip(model.inputs, shapes, buffers, strict=True)
    ]


def _shape(port: ModelPort, desc: int, size: int) -> tuple[int, ...]:
    """Return the shape of this execution's input.

    The one set with ``set_dataset_tensor_desc`` counts; else the model's own, in which one dimension that
    varies follows from the buffer's size.
    """
    told, shape = process().handles.get(desc, TensorDesc), port.shape
    if told is not None:
        same = len(told.shape) == len(shape)
        if not same or any(
            got < 0 or want not in {-1, got} for want, got in zip(shape, told.shape, strict=True)
        ):
            raise _unfit(f"input {port.name!r} takes the shape {list(shape)}, not {list(told.shape)}")
        return told.shape
    if not port.dynamic:
        return shape
    if shape.count(-1) > 1:
        why = "tell this execution's shape with acl.mdl.set_dataset_tensor_desc"
        raise _unfit(f"input {port.name!r} has the shape {list(shape)}: {why}")
    one = nbytes(port.dtype, [1 if dim < 0 else dim for dim in shape])
    if not one or size % one:
        why = f"{size} bytes are no multiple of {one}"
        raise _unfit(f"input {port.name!r} of shape {list(shape)}: {why}")
    return tuple(size // one if dim < 0 else dim for dim in shape)


def check_outputs(model: Model, dataset: Dataset, *, allocate: bool) -> None:
    """Refuse buffers that cannot hold what the model will give, before it runs and dumps."""
    for port, buffer in zip(model.outputs, _buffers("output", model.outputs, dataset), strict=True):
        if buffer.address or buffer.size:
            _bytes(model, "output", port, port.largest or port.shape, buffer)
        elif port.nbytes or not allocate:
            who = "dynamic shapes allow" if port.nbytes else "acl.mdl.execute allows"
            raise _unfit(f"the buffer of output {port.name!r} is NULL, which only {who}")


def store(model: Model, dataset: Dataset, results: tuple[Tensor, ...]) -> None:
    """Write the results of an execution to its output buffers, whose sizes may be known only now.

    An empty buffer gets memory of its own, as with ACL for models with dynamic shapes.
    """
    buffers = _buffers("output", model.outputs, dataset)
    for port, tensor, buffer in zip(model.outputs, results, buffers, strict=True):
        if not tensor.nbytes:
            continue
        if not buffer.address and not buffer.size:
            try:
                buffer.address = process().memory.allocate(tensor.nbytes, DEVICE, model.device)
            except MemoryError:
                why = f"no room for {tensor.nbytes} bytes of output"
                raise RefusedError(codes.RT_MEMORY_ALLOCATION, why) from None
            buffer.size = tensor.nbytes
        _bytes(model, "output", port, tensor.shape, buffer)[:] = tensor.data.view(np.uint8)


@MDL("Ikk")
def execute(model_id: int, inputs: int, outputs: int) -> None:
    """``(model id, inputs, outputs) -> ret``."""
    _prepare(model_id, inputs, outputs, allocate=True)()


@MDL("Ikkk")
def execute_async(model_id: int, inputs: int, outputs: int, handle: int) -> None:
    """``(model id, inputs, outputs, stream) -> ret``: what fails on the device is told by the stream."""
    _put(model_id, inputs, outputs, handle)


@MDL("Ikkkk")
def execute_v2(model_id: int, inputs: int, outputs: int, handle: int, _: int) -> None:
    """``(model id, inputs, outputs, stream, handle) -> ret``, when done; the configuration is unused."""
    wait_for(_put(model_id, inputs, outputs, handle))


def _put(model_id: int, inputs: int, outputs: int, handle: int) -> Stream:
    """Put an execution on a stream, and return the stream."""
    stream = own_stream(handle)
    process().streams.put(stream, Work(stream, _prepare(model_id, inputs, outputs, allocate=False)))
    return stream


def _prepare(model_id: int, inputs: int, outputs: int, *, allocate: bool) -> Callable[[], None]:
    """Check everything that is known before a model runs, and return the run.

    ``allocate`` tells whether empty output buffers get memory: on a stream CANN does not hand it out.
    """
    source, target = known(Dataset, inputs), known(Dataset, outputs)
    check_ready()
    model, state = loaded(model_id), process()
    if model.context is not state.context:
        why = f"the model was loaded in another context (device {model.device}) than this thread's (device "
        message = f"{why}{state.device}); load and run a model in one context (acl.rt.set_context)"
        raise RefusedError(codes.RT_MODEL_CONTEXT, message)
    located = inputs_of(model, source)
    check_outputs(model, target, allocate=allocate)

    def run() -> None:
        try:
            results = model.run([place.read() for place in located], state.clock)
        except OperatorFailedError as error:
            # adump learns of a model as it is loaded: of one that was loaded before it dumps nothing.
            dump = dumped(state.dumping.exception, error.operator, state.clock) if model.registered else ""
            raise RefusedError(codes.RT_MODEL_EXECUTE, f"{error}{dump}") from error
        except ModelError as error:
            raise RefusedError(codes.GE_INTERNAL_ERROR, str(error)) from error
        except OSError as error:
            raise RefusedError(codes.INTERNAL_ERROR, f"the dump cannot be written: {error}") from error
        store(model, target, results)

    return run


_EVERY_INPUT = (1 << 64) - 1
_SHORT, _LONG = 4, 8
"""Bytes of one value: a buffer too small for the long ones gets the short ones."""
_MOST_GEARS = 4096
_QUEUES = "a model with queues takes its data from the device's own scheduler"
_NO_GEARS = (
    "an ONNX file has no gears; say with emulator.gears.compile_for what ATC was told, or tell the shape "
    "with acl.mdl.set_dataset_tensor_desc"
)


@MDL("IkkK")
def set_dynamic_batch_size(model_id: int, dataset: int, index: int, batch: int) -> None:
    """``(model id, dataset, index, batch size) -> ret``."""
    if not batch:
        raise RefusedError(codes.INVALID_PARAM, "the batch size is 0")
    _set(model_id, (dataset, index), _SHORT, lambda gears: _known(gears, BATCH, (batch,)))


@MDL("IkkKK")
def set_dynamic_hw_size(model_id: int, dataset: int, index: int, *size: int) -> None:
    """``(model id, dataset, index, height, width) -> ret``."""
    if 0 in size:
        raise RefusedError(codes.INVALID_PARAM, "the height or the width is 0")
    _set(model_id, (dataset, index), 2 * _SHORT, lambda gears: _known(gears, IMAGE, size))


@MDL("IkkO")
def set_input_dynamic_dims(model_id: int, dataset: int, index: int, given: object) -> None:
    """``(model id, dataset, index, {"dimCount", "name", "dims"}) -> ret``: all dimensions of all inputs.

    145012 where they are more or fewer, or one that does not vary is another.
    """
    call = "acl.mdl.set_input_dynamic_dims"
    (dims,) = parse(call, "v", (given.get("dims") if isinstance(given, dict) else None,))
    if not dims:
        raise RefusedError(codes.INVALID_PARAM, "there are no dimensions")
    _set(model_id, (dataset, index), _SHORT, lambda gears: _varying(gears, dims))


def _varying(gears: Gears, dims: list[int]) -> int:
    """Return the gear that dimensions of all inputs are of."""
    raw = [dim for shape in gears.raw for dim in shape]
    if len(raw) != len(dims) or any(want not in {-1, got} for want, got in zip(raw, dims, strict=True)):
        message = f"the model's inputs have the dimensions {raw}, not {dims}"
        raise RefusedError(codes.GE_DYNAMIC_INPUT_LENGTH_INVALID, message)
    values = tuple(got for want, got in zip(raw, dims, strict=True) if want == -1)
    return _known(gears, DIMS, values)


def _known(gears: Gears, kind: str, values: tuple[int, ...]) -> int:
    """Return which gear has these values."""
    gear = gears.index(values) if gears.option.kind == kind else None
    if gear is None:
        message = f"{values} is none of the model's gears of {gears.option.kind}: {list(gears.option.gears)}"
        raise RefusedError(codes.GE_DYNAMIC_BATCH_SIZE_INVALID, message)
    return gear


def _set(model_id: int, place: tuple[int, int], shortest: int, find: Callable[[Gears], int]) -> None:
    """Write the values of a gear to the buffer at ``place`` (a dataset and an index)."""
    handle, index = place
    state = process()
    dataset = state.handles.get(handle, Dataset)
    buffers = [] if dataset is None else dataset.buffers
    buffer = state.handles.get(buffers[index], DataBuffer) if index < len(buffers) else None
    if buffer is None or not buffer.address:
        raise RefusedError(codes.INVALID_PARAM, f"the dataset has no buffer {index}")
    if buffer.size < shortest:
        message = f"buffer {index} has {buffer.size} bytes, {shortest} are needed"
        raise RefusedError(codes.GE_DYNAMIC_INPUT_LENGTH_INVALID, message)
    model = loaded(model_id)
    if model.gears is None:
        raise RefusedError(codes.GE_DYNAMIC_BATCH_SIZE_INVALID, _NO_GEARS)
    gear = find(model.gears)
    values = model.gears.option.gears[gear]
    if buffer.size < _SHORT * len(values):
        message = f"a buffer has {buffer.size} bytes, {_SHORT * len(values)} are needed"
        raise RefusedError(codes.GE_DYNAMIC_INPUT_LENGTH_INVALID, message)
    long = buffer.size >= _LONG * len(values)
    data = np.array(values, np.int64 if long else np.int32).view(np.uint8)
    state.memory.reached(buffer.address, data.size, model.device)[:] = data
    model.current_shapes = model.gears.outputs[gear]


def _gears(desc: ModelDesc, kind: str) -> list[list[int]]:
    """Return the values of each gear of that kind, of ``dims`` all dimensions of all inputs."""
    gears = None if desc.model is None else desc.model.gears
    if gears is None or gears.option.kind != kind:
        return []
    if kind == DIMS:
        every = [gears.inputs(gear) for gear in range(len(gears.option.gears))]
        return [[dim for shape in shapes for dim in shape] for shapes in every]
    return [list(values) for values in gears.option.gears]


@MDL(ModelDesc, refused=lambda *_: ({}, CODE))
def get_dynamic_batch(desc: ModelDesc) -> dict[str, Any]:
    """``(desc) -> ({"batchCount", "batch"}, ret)``."""
    gears = _gears(desc, BATCH)
    return {"batchCount": len(gears), "batch": [batch for (batch,) in gears]}


@MDL(ModelDesc, "k", refused=lambda *_: ({}, CODE))
def get_dynamic_hw(desc: ModelDesc, _: int) -> dict[str, Any]:
    """``(desc, index) -> ({"hwCount", "hw"}, ret)``."""
    gears = _gears(desc, IMAGE)
    return {"hwCount": len(gears), "hw": gears}


def _asked(desc: ModelDesc, index: int) -> list[list[int]]:
    if index != _EVERY_INPUT:
        raise RefusedError(codes.INVALID_PARAM, f"the index is {index}; expected -1")
    return _gears(desc, DIMS)


@MDL("kKK", refused=lambda *args: (None if args[2] > _MOST_GEARS else [], CODE))
def get_input_dynamic_dims(handle: int, index: int, count: int) -> list[dict[str, Any]]:
    """``(desc, index, gears) -> (list of {"name", "dimCount", "dims"}, ret)``: all dimensions, by gear.

    The index is -1; 100000 for fewer gears than there are, or more than 4096.
    """
    if count > _MOST_GEARS:
        raise RefusedError(codes.INVALID_PARAM, f"{count} gears; at most {_MOST_GEARS}")
    gears = _asked(known(ModelDesc, handle), index)
    if count < len(gears):
        raise RefusedError(codes.INVALID_PARAM, f"{count} gears; the model has {len(gears)}")
    return [{"name": "", "dimCount": len(dims), "dims": dims} for dims in gears]


MDL.table({"get_input_dynamic_gear_count": ((ModelDesc, "K"), (0, CODE), lambda *asked: len(_asked(*asked)))})

globals().update(MDL.calls, __all__=[*MDL.calls])


def __getattr__(name: str) -> NoReturn:
    missing("acl.mdl", name, _QUEUES if name == "load_from_file_with_q" else "")
