"""Models (``acl.mdl``): loading, descriptions, and datasets, the buffers of inputs or outputs.

Sources: ``model_config.cpp`` of hicann/ge's ``acl_model`` (which attributes a configuration has, and what a
load type needs) and ``mdl_wrap.cpp`` of pyACL (how a value is read). Memory for work and weights is unused.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from pytest_npudump.emulator import codes
from pytest_npudump.emulator import onnx_model as models
from pytest_npudump.emulator.acl._base import DataBuffer, TensorDesc
from pytest_npudump.emulator.acl._calls import CODE, MDL, destroy, known, parse
from pytest_npudump.emulator.codes import NotEmulatedError, RefusedError
from pytest_npudump.emulator.faults import Faults
from pytest_npudump.emulator.process import process
from pytest_npudump.onnxmodels.sessions import ModelError
from pytest_npudump.onnxmodels.tensor_types import FORMAT_ND, acl_number

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from pytest_npudump.emulator.onnx_model import Model, ModelPort


_PRIORITY, _TYPE, _PATH, _ADDRESS, _SIZE = range(5)
_FROM_FILE, _FROM_MEMORY, _WITH_QUEUES = (1, 2), (3, 4), (5, 6)
_LIMITS: Mapping[int, tuple[int, int]] = MappingProxyType({_PRIORITY: (0, 7), _TYPE: (1, 6)})
_READ_AS: Mapping[int, str] = MappingProxyType({_PRIORITY: "i", _TYPE: "K", _PATH: "s"})
_WEIGHT_PATH = 14
"""The last attribute that pyACL has (``ACL_MDL_WEIGHT_PATH_PTR``)."""


def check_ready() -> None:
    """Refuse to load or run a model before ``acl.init`` (145001) or without a device (107002)."""
    state = process()
    if not state.lifecycle.references:
        raise RefusedError(codes.GE_EXEC_NOT_INIT, "call acl.init first")
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
    """Return the ONNX file that stands for ``path``: itself, or ``model.onnx`` beside ``model.om``."""
    file = Path(path)
    found = file.with_suffix(".onnx") if file.suffix == ".om" else file
    if not found.is_file():
        message = f"{path}: no such model; the emulator runs .onnx files, model.onnx for model.om"
        raise RefusedError(codes.GE_EXEC_MODEL_PATH_INVALID, message)
    return found


def model_bytes(address: int, size: int) -> bytes:
    """Return the bytes of an ONNX file that lie in memory."""
    data = process().memory.find(address, size) if size else None
    if data is None:
        message = f"{size} bytes at {address:#x} are not allocated memory"
        raise RefusedError(codes.INVALID_PARAM, message)
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
    """What was set, by attribute."""

    options: dict[int, Any] = field(default_factory=dict)


@MDL(LoadConfig, "iO")
def set_config_opt(config: LoadConfig, attribute: int, value: object) -> None:
    """``(handle, attribute, value) -> ret``: 100000 for a value that the attribute does not take."""
    if not 0 <= attribute <= _WEIGHT_PATH:
        raise RefusedError(codes.INVALID_PARAM, f"there is no attribute {attribute}")
    (read,) = parse("acl.mdl.set_config_opt", _READ_AS.get(attribute, "K"), (value,))
    low, high = _LIMITS.get(attribute, (None, None))
    if (low is not None and not low <= read <= high) or (attribute == _ADDRESS and not read):
        raise RefusedError(codes.INVALID_PARAM, f"attribute {attribute} takes no {read}")
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


_UNDEFINED = -1


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
    if index >= len(ports):
        raise RefusedError(codes.INVALID_PARAM, f"there is no {io} {index}")
    return ports[index]


def _dims(port: ModelPort, shape: tuple[int, ...] | None) -> dict[str, Any]:
    """Return what pyACL makes of an ``aclmdlIODims``, -1 for a dimension that varies."""
    dims = port.shape if shape is None else shape
    return {"name": port.name, "dimCount": len(dims), "dims": list(dims)}


@MDL("kk", refused=lambda *_: ({}, CODE))
def get_cur_output_dims(handle: int, index: int) -> dict[str, Any]:
    """``(desc, index) -> ({"name", "dimCount", "dims"}, ret)`` of the last execution.

    Of a model with gears it is the one that was set last, the largest before.
    """
    port, model = _port("output", handle, index), known(ModelDesc, handle).model
    shapes = None if model is None else model.current_shapes
    return _dims(port, port.largest if shapes is None else shapes[index])


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
        # of an output those of the largest gear
        MDL.table(
            {name: row(lambda *_: ({}, CODE), lambda p: _dims(p, p.largest if io == "output" else None))}
        )


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
    if index >= len(dataset.buffers):
        raise RefusedError(codes.INVALID_PARAM, f"the dataset has no buffer {index}")


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
