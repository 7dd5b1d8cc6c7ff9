"""Loading and unloading of models.

Sources: ``model_config.cpp`` of hicann/ge's ``acl_model`` (which attributes a configuration has, and what a
load type needs) and ``mdl_wrap.cpp`` of pyACL (how a value is read). Memory for work and weights is unused.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from pytest_npudump.emulator.acl._calls import CODE, MDL, destroy, parse
from pytest_npudump.emulator.execution import onnx_model as models
from pytest_npudump.emulator.machine import codes
from pytest_npudump.emulator.machine.codes import RefusedError
from pytest_npudump.emulator.process.state import process
from pytest_npudump.emulator.unsupported import NotEmulatedError
from pytest_npudump.onnxmodels.sessions import ModelError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pytest_npudump.emulator.execution.onnx_model import Model

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
    """Return the ONNX file that stands for ``path``: itself, or ``model.onnx`` beside ``model.om``.

    Raises:
        RefusedError: there is none.
    """
    file = Path(path)
    found = file.with_suffix(".onnx") if file.suffix == ".om" else file
    if not found.is_file():
        message = f"{path}: no such model; the emulator runs .onnx files, model.onnx for model.om"
        raise RefusedError(codes.GE_EXEC_MODEL_PATH_INVALID, message)
    return found


def model_bytes(address: int, size: int) -> bytes:
    """Return the bytes of an ONNX file that lie in memory.

    Raises:
        RefusedError: that is no memory.
    """
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
    """Return the model of an id.

    Raises:
        RefusedError: 145003, there is none.
    """
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
