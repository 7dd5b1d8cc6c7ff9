"""``acl.mdl``: models, their descriptions, and datasets, which are the buffers of inputs or outputs.

Sources: ``model_config.cpp`` of hicann/ge's ``acl_model`` (which attributes a configuration has, and what a
load type needs) and ``mdl_wrap.cpp`` of pyACL (how a value is read). Memory for work and weights is unused.

Sources: ``model.cpp`` of hicann/ge's ``acl_model`` and the documents of ``acl.mdl.execute`` and
``acl.mdl.set_dataset_tensor_desc``: a model is loaded, executed and unloaded in one context.
``ModelExecute`` of hicann/runtime's ``api_impl.cc`` has the code for another one: 107004. What goes wrong in
a call that only puts the execution on a stream is told by what waits for that stream.

Gears are the batch sizes, image sizes or dimensions that ATC compiles a model for. An ONNX file has none, and
a model without gears takes none (145013): its shapes are told with ``acl.mdl.set_dataset_tensor_desc``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any, NoReturn

import numpy as np

from pytest_npudump.emulator import codes, onnx_model as models
from pytest_npudump.emulator.acl._base import CODE, MDL, DataBuffer, TensorDesc, destroy, known, parse
from pytest_npudump.emulator.acl.rt import own_stream, wait_for
from pytest_npudump.emulator.codes import NotEmulatedError, RefusedError, missing, refuse_if
from pytest_npudump.emulator.dumps.exceptions import dumped
from pytest_npudump.emulator.faults import Faults
from pytest_npudump.emulator.onnx_model import Model, ModelPort, OperatorFailedError
from pytest_npudump.emulator.process import DEVICE, Bytes, process
from pytest_npudump.emulator.streams import Stream, Work
from pytest_npudump.language.text import number_of
from pytest_npudump.onnxmodels.sessions import ModelError
from pytest_npudump.onnxmodels.tensor_types import FORMAT_ND, Tensor, acl_number, from_bytes, nbytes

_PRIORITY, _TYPE, _PATH, _ADDRESS, _SIZE = range(5)
_FROM_FILE, _FROM_MEMORY, _WITH_QUEUES = (1, 2), (3, 4), (5, 6)
_LIMITS: Mapping[int, tuple[int, int]] = MappingProxyType({_PRIORITY: (0, 7), _TYPE: (1, 6)})
_READ_AS: Mapping[int, str] = MappingProxyType({_PRIORITY: "i", _TYPE: "K", _PATH: "s"})
_WEIGHT_PATH = 14
"""The last attribute that pyACL has (``ACL_MDL_WEIGHT_PATH_PTR``)."""
_UNDEFINED = -1


def check_ready() -> None:
    """Refuse to load or run a model before ``acl.init`` (145001) or without a device (107002)."""
    state = process()
    refuse_if(not state.lifecycle.references, codes.GE_EXEC_NOT_INIT, "call acl.init first")
    if state.context is None:
        raise RefusedError(codes.RT_CONTEXT_NULL, "call acl.rt.set_device first")


def _load(source: Path | bytes, bad: int) -> int:
    state = process()
    check_ready()
    with state.lock:
        try:
            model = models.load(source, state.dumping.settings, varying=state.varying)
        except ModelError as error:
            raise RefusedError(bad, str(error)) from error
        model.id, model.context = next(state.model_ids), state.context
        model.registered = state.dumping.exception is not None
        model.dumped = state.dumped
        if model.inside:
            state.inside[model.name] = model.inside
        state.models[model.id] = model
    return model.id


def model_file(path: str) -> Path:
    """Return the ONNX file for ``path``: itself, or ``model.onnx`` beside ``model.om``."""
    file = Path(path)
    found = file.with_suffix(".onnx") if file.suffix == ".om" else file
    refuse_if(
        not found.is_file(),
        codes.GE_EXEC_MODEL_PATH_INVALID,
        f"{path}: no such model; the emulator runs .onnx files, model.onnx for model.om",
    )
    return found


def model_bytes(address: int, size: int) -> bytes:
    """Return the bytes of an ONNX file that lie in memory."""
    data = process().memory.find(address, size) if size else None
    if data is None:
        raise RefusedError(codes.INVALID_PARAM, f"{size} bytes at {address:#x} are not allocated memory")
    return data.tobytes()


def _load_file(path: str, *_: int) -> int:
    return _load(model_file(path), codes.GE_EXEC_MODEL_PATH_INVALID)


def _load_memory(address: int, size: int, *_: int) -> int:
    return _load(model_bytes(address, size), codes.GE_EXEC_MODEL_DATA_SIZE_INVALID)


def loaded(model_id: int) -> Model:
    """Return the model of an id; 145003 where there is none."""
    found = process().models.get(model_id)
    if found is None:
        raise RefusedError(codes.GE_EXEC_MODEL_ID_INVALID, f"no model has the id {model_id}")
    return found


@MDL("I")
def unload(model_id: int) -> None:
    """``(model id) -> ret``; 145003 for an unknown id.

    Objects that only pointers refer to, inputs of this model most of all, are let go.
    """
    loaded(model_id)
    state = process()
    with state.lock:
        state.models.pop(model_id, None)
    state.memory.let_go()


@dataclass(slots=True)
class LoadConfig:
    """Load settings, by attribute."""

    options: dict[int, Any] = field(default_factory=dict)


@MDL(LoadConfig, "iO")
def set_config_opt(config: LoadConfig, attribute: int, value: object) -> None:
    """``(handle, attribute, value) -> ret``: 100000 for a value that the attribute does not take."""
    refuse_if(not 0 <= attribute <= _WEIGHT_PATH, codes.INVALID_PARAM, f"there is no attribute {attribute}")
    (read,) = parse("acl.mdl.set_config_opt", _READ_AS.get(attribute, "K"), (value,))
    low, high = _LIMITS.get(attribute, (None, None))
    refuse_if(
        (low is not None and not low <= read <= high) or (attribute == _ADDRESS and not read),
        codes.INVALID_PARAM,
        f"attribute {attribute} takes no {read}",
    )
    config.options[attribute] = read


@MDL(LoadConfig, refused=(0, CODE))
def load_with_config(config: LoadConfig) -> int:
    """``(handle) -> (model id, ret)``: 100000 where what the load type needs was not set.

    Queues are of the device's own scheduler.

    Raises:
        NotEmulatedError: a load type of queues, or external weights of a model in memory.
    """
    options, kind = config.options, config.options.get(_TYPE)
    if kind in _WITH_QUEUES:
        raise NotEmulatedError("acl.mdl.load_with_config", "queues are of the device's own scheduler")
    if kind in _FROM_FILE and _PATH in options and _WEIGHT_PATH not in options:
        return _load_file(options[_PATH])
    if kind in _FROM_MEMORY and _ADDRESS in options and options.get(_SIZE):
        if _WEIGHT_PATH in options:
            raise NotEmulatedError("acl.mdl.load_with_config", "a directory of weights for a model in memory")
        return _load_memory(options[_ADDRESS], options[_SIZE])
    raise RefusedError(codes.INVALID_PARAM, "the handle has not all that loading needs")


MDL.table(
    {
        # path; address, size; then address and size of memory for work and for weights
        "load_from_file": ("s", (0, CODE), _load_file),
        "load_from_file_with_mem": ("skkkk", (0, CODE), _load_file),
        "load_from_mem": ("kk", (0, CODE), _load_memory),
        "load_from_mem_with_mem": ("kkkkkk", (0, CODE), _load_memory),
        # no bytes for work, and the file's size for the weights
        "query_size": ("s", (0, 0, CODE), lambda path: (0, model_file(path).stat().st_size)),
        "query_size_from_mem": ("kk", (0, 0, CODE), lambda *place: (0, len(model_bytes(*place)))),
        "create_config_handle": ((), 0, lambda: process().handles.add(LoadConfig())),
        "destroy_config_handle": ("k", CODE, destroy(LoadConfig)),
    }
)


@dataclass(slots=True)
class ModelDesc:
    """A description; empty until ``get_desc`` fills it."""

    model: Model | None = None

    def ports(self, io: str) -> tuple[ModelPort, ...]:
        """Return the model's inputs or outputs; none while it is empty."""
        if self.model is None:
            return ()
        return self.model.inputs if io == "input" else self.model.outputs


@MDL(ModelDesc, "I")
def get_desc(desc: ModelDesc, model_id: int) -> None:
    """``(desc, model id) -> ret``; 145003 for an unknown id."""
    desc.model = loaded(model_id)


def _describe(desc: ModelDesc, source: Path | bytes) -> None:
    """Fill a description without loading the model."""
    try:
        desc.model = models.load(source, None, faults=Faults())
    except ModelError as error:
        raise RefusedError(codes.GE_EXEC_MODEL_PATH_INVALID, str(error)) from error


def _port(io: str, handle: int, index: int) -> ModelPort:
    ports = known(ModelDesc, handle).ports(io)
    refuse_if(index >= len(ports), codes.INVALID_PARAM, f"there is no {io} {index}")
    return ports[index]


def _dims(port: ModelPort, shape: tuple[int, ...] | None = None) -> dict[str, Any]:
    """Return pyACL's form of an ``aclmdlIODims``, -1 for a dimension that varies."""
    dims = port.shape if shape is None else shape
    return {"name": port.name, "dimCount": len(dims), "dims": list(dims)}


@MDL("kk", refused=lambda *_: ({}, CODE))
def get_cur_output_dims(handle: int, index: int) -> dict[str, Any]:
    """``(desc, index) -> ({"name", "dimCount", "dims"}, ret)`` of the last execution."""
    port, model = _port("output", handle, index), known(ModelDesc, handle).model
    shapes = None if model is None else model.current_shapes
    return _dims(port, None if shapes is None else shapes[index])


def _index(io: str, desc: ModelDesc, name: str) -> int:
    for index, port in enumerate(desc.ports(io)):
        if port.name == name:
            return index
    raise RefusedError(codes.INVALID_PARAM, f"the model has no {io} {name!r}")


@MDL(ModelDesc, "s", refused=None)
def get_tensor_real_name(desc: ModelDesc, name: str) -> str | None:
    """``(desc, name) -> name`` of an input or output in the model; None where it has no such one.

    CANN shortens names of 128 characters and more, which this turns back. The emulator shortens none.
    """
    ports = (*desc.ports("input"), *desc.ports("output"))
    return name if name in {port.name for port in ports} else None


MDL.table(
    {
        "create_desc": ((), 0, lambda: process().handles.add(ModelDesc())),
        "destroy_desc": ("k", CODE, destroy(ModelDesc)),
        "get_desc_from_file": ((ModelDesc, "s"), CODE, lambda desc, path: _describe(desc, model_file(path))),
        "get_desc_from_mem": (
            (ModelDesc, "kk"),
            CODE,
            lambda desc, *place: _describe(desc, model_bytes(*place)),
        ),
    }
)


def _of_ports(io: str) -> None:
    """Make the calls that there are of inputs and of outputs alike.

    The size of an output is 0 where a dimension varies. For it an application passes either a buffer that it
    knows to be large enough, or an empty one (``acl.create_data_buffer(0, 0)``), which the execution then
    points to memory of the right size, to be freed with ``acl.rt.free``.
    """

    def row(refused: Any, what: Callable[[ModelPort], Any]) -> Any:
        return "kk", refused, lambda handle, index: what(_port(io, handle, index))

    MDL.table(
        {
            f"get_num_{io}s": (ModelDesc, 0, lambda desc: len(desc.ports(io))),
            f"get_{io}_size_by_index": row(0, lambda port: port.nbytes),
            f"get_{io}_data_type": row(_UNDEFINED, lambda port: acl_number(port.dtype)),
            f"get_{io}_format": row(_UNDEFINED, lambda _: FORMAT_ND),  # the emulator knows no other
            f"get_{io}_name_by_index": row("", lambda port: port.name),
            f"get_{io}_index_by_name": ((ModelDesc, "s"), (0, CODE), lambda desc, n: _index(io, desc, n)),
        }
    )
    for name in ("get_input_dims", "get_input_dims_v2") if io == "input" else ("get_output_dims",):
        MDL.table({name: row(lambda *_: ({}, CODE), _dims)})


_of_ports("input")
_of_ports("output")


@dataclass(slots=True)
class Dataset:
    """Handles of data buffers, and the shapes set for this execution.

    Attributes:
        buffers: handles of data buffers, in the model's order.
        descs: by index, the handle of the tensor description that tells the shape.
    """

    buffers: list[int] = field(default_factory=list)
    descs: dict[int, int] = field(default_factory=dict)


def _check(dataset: Dataset, index: int) -> None:
    refuse_if(index >= len(dataset.buffers), codes.INVALID_PARAM, f"the dataset has no buffer {index}")


@MDL("kk", refused=lambda dataset, _: (dataset, CODE))
def add_dataset_buffer(dataset: int, buffer: int) -> int:
    """``(dataset, buffer) -> (dataset, ret)``."""
    known(DataBuffer, buffer)
    known(Dataset, dataset).buffers.append(buffer)
    return dataset


@MDL(Dataset, "k", refused=0)
def get_dataset_buffer(dataset: Dataset, index: int) -> int:
    """``(dataset, index) -> buffer``; 0 where there is none."""
    _check(dataset, index)
    return dataset.buffers[index]


@MDL("kkk", refused=lambda dataset, *_: (dataset, CODE))
def set_dataset_tensor_desc(dataset: int, desc: int, index: int) -> int:
    """``(dataset, tensor desc, index) -> (dataset, ret)``: the shape of a dynamic input."""
    found = known(Dataset, dataset)
    known(TensorDesc, desc)
    _check(found, index)
    found.descs[index] = desc
    return dataset


MDL.table(
    {
        "create_dataset": ((), 0, lambda: process().handles.add(Dataset())),
        "destroy_dataset": ("k", CODE, destroy(Dataset)),  # its buffers stay
        "get_dataset_num_buffers": (Dataset, 0, lambda dataset: len(dataset.buffers)),
        # that was set; 0 where none was
        "get_dataset_tensor_desc": ((Dataset, "k"), 0, lambda dataset, index: dataset.descs.get(index, 0)),
    }
)


_QUEUES = "a model with queues takes its data from the device's own scheduler"
_NO_GEARS = (
    "an ONNX file has no gears, which ATC compiles a model for; tell the shape with "
    "acl.mdl.set_dataset_tensor_desc"
)


def _unfit(why: str) -> RefusedError:
    return RefusedError(codes.GE_PARAM_INVALID, why)


def _buffers(io: str, ports: Sequence[ModelPort], dataset: Dataset) -> list[DataBuffer]:
    """Return the buffers of a dataset, one a port."""
    if len(ports) != len(dataset.buffers):
        given = number_of(len(dataset.buffers), "buffer")
        raise _unfit(f"the model has {number_of(len(ports), io)}, the dataset {given}")
    found = [process().handles.get(handle, DataBuffer) for handle in dataset.buffers]
    if None in found:
        raise RefusedError(
            codes.INVALID_PARAM, f"data buffer {found.index(None)} of the dataset was destroyed"
        )
    return [buffer for buffer in found if buffer is not None]


def _bytes(model: Model, io: str, port: ModelPort, shape: tuple[int, ...], buffer: DataBuffer) -> Bytes:
    """Return the bytes of a buffer that an input or output of this shape takes."""
    size = nbytes(port.dtype, shape)
    if buffer.size < size:
        raise _unfit(f"{io} {port.name!r} of shape {list(shape)} has {size} bytes, its buffer {buffer.size}")
    if not size:
        return np.empty(0, np.uint8)
    try:
        return process().memory.reached(buffer.address, size, model.device)
    except RefusedError as error:
        raise _unfit(f"{io} {port.name!r}: {error.why}") from None


def inputs_of(model: Model, dataset: Dataset) -> list[tuple[ModelPort, tuple[int, ...], Bytes]]:
    """Return port, shape and memory of every input; refused where the dataset does not fit the model."""
    buffers = _buffers("input", model.inputs, dataset)
    sized = enumerate(zip(model.inputs, buffers, strict=True))
    shapes = [_shape(port, dataset.descs.get(at, 0), buffer.size) for at, (port, buffer) in sized]
    return [
        (port, shape, _bytes(model, "input", port, shape, buffer))
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
        raise _unfit(
            f"input {port.name!r} has the shape {list(shape)}: tell this execution's shape with "
            f"acl.mdl.set_dataset_tensor_desc"
        )
    one = nbytes(port.dtype, [1 if dim < 0 else dim for dim in shape])
    if not one or size % one:
        raise _unfit(f"input {port.name!r} of shape {list(shape)}: {size} bytes are no multiple of {one}")
    return tuple(size // one if dim < 0 else dim for dim in shape)


def check_outputs(model: Model, dataset: Dataset, *, allocate: bool) -> None:
    """Refuse buffers that cannot hold what the model will give, before it runs and dumps."""
    for port, buffer in zip(model.outputs, _buffers("output", model.outputs, dataset), strict=True):
        if buffer.address or buffer.size:
            _bytes(model, "output", port, port.shape, buffer)
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
                raise RefusedError(
                    codes.RT_MEMORY_ALLOCATION, f"no room for {tensor.nbytes} bytes of output"
                ) from None
            buffer.size = tensor.nbytes
        _bytes(model, "output", port, tensor.shape, buffer)[:] = tensor.data.view(np.uint8)


@MDL("Ikk")
def execute(model_id: int, inputs: int, outputs: int) -> None:
    """``(model id, inputs, outputs) -> ret``."""
    _prepare(model_id, inputs, outputs, allocate=True)()


@MDL("Ikkk")
def execute_async(model_id: int, inputs: int, outputs: int, handle: int) -> None:
    """``(model id, inputs, outputs, stream) -> ret``: failures on the device are the stream's."""
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
    refuse_if(
        model.context is not state.context,
        codes.RT_MODEL_CONTEXT,
        f"the model was loaded in another context (device {model.device}) than this thread's (device "
        f"{state.device}); load and run a model in one context (acl.rt.set_context)",
    )
    located = inputs_of(model, source)
    check_outputs(model, target, allocate=allocate)

    def run() -> None:
        try:
            given = [from_bytes(port.dtype, shape, data.copy()) for port, shape, data in located]
            results = model.run(given, state.clock)
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


def _refuse_gear(*_: object) -> NoReturn:
    raise RefusedError(codes.GE_DYNAMIC_BATCH_SIZE_INVALID, _NO_GEARS)


MDL.table(
    {
        # model, dataset, index, and the gear
        "set_dynamic_batch_size": ("IkkK", CODE, _refuse_gear),
        "set_dynamic_hw_size": ("IkkKK", CODE, _refuse_gear),
        "set_input_dynamic_dims": ("IkkO", CODE, _refuse_gear),
        "get_dynamic_batch": (
            ModelDesc,
            lambda *_: ({}, CODE),
            lambda _: {"batchCount": 0, "batch": []},
        ),
        "get_dynamic_hw": ((ModelDesc, "k"), lambda *_: ({}, CODE), lambda *_: {"hwCount": 0, "hw": []}),
        "get_input_dynamic_gear_count": ((ModelDesc, "K"), (0, CODE), lambda *_: 0),
        "get_input_dynamic_dims": ((ModelDesc, "KK"), lambda *_: ([], CODE), lambda *_: []),
    }
)

globals().update(MDL.calls, __all__=[*MDL.calls])


def __getattr__(name: str) -> NoReturn:
    missing("acl.mdl", name, _QUEUES if name == "load_from_file_with_q" else "")
