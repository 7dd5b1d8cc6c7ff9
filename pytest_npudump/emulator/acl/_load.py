"""Loading and unloading of models."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_npudump.emulator.execution import onnx_model as models
from pytest_npudump.emulator.machine import codes
from pytest_npudump.emulator.machine.parse_tuple import parse
from pytest_npudump.emulator.process.state import process
from pytest_npudump.onnxmodels.sessions import ModelError

if TYPE_CHECKING:
    from pathlib import Path


def refusal(call: str) -> int:
    """Why no model can be loaded or run now: before ``acl.init`` 145001, without a device 107002; or 0."""
    state = process()
    if not state.lifecycle.references:
        return state.explain(codes.GE_EXEC_NOT_INIT, f"{call}: call acl.init first")
    if state.context is None:
        return state.explain(codes.RT_CONTEXT_NULL, f"{call}: call acl.rt.set_device first")
    return codes.SUCCESS


def _load(call: str, source: Path | bytes, bad: int) -> tuple[int, int]:
    state = process()
    code = refusal(call)
    if code:
        return 0, code
    with state.lock:
        try:
            model = models.load(
                source,
                state.dumping.settings,
                faults=state.faults,
                varying=state.varying,
                options=state.gears,
            )
        except ModelError as error:
            return 0, state.explain(bad, f"{call}: {error}")
        model.id, model.context = next(state.model_ids), state.context
        model.registered = state.dumping.exception is not None
        model.dumped = state.dumped
        if model.inside:
            state.inside[model.name] = model.inside
        state.models[model.id] = model
    return model.id, codes.SUCCESS


def load_file(call: str, path: str) -> tuple[int, int]:
    """Load a file for a call: ``(model id, ret)``."""
    found = models.resolve(path)
    if found is None:
        message = f"{call}: {path}: no such model; the emulator runs .onnx files, model.onnx for model.om"
        return 0, process().explain(codes.GE_EXEC_MODEL_PATH_INVALID, message)
    return _load(call, found, codes.GE_EXEC_MODEL_PATH_INVALID)


def load_memory(call: str, address: int, size: int) -> tuple[int, int]:
    """Load the bytes of a file for a call: ``(model id, ret)``."""
    data = process().memory.find(address, size) if size else None
    if data is None:
        message = f"{call}: {size} bytes at {address:#x} are not allocated memory"
        return 0, process().explain(codes.INVALID_PARAM, message)
    return _load(call, data.tobytes(), codes.GE_EXEC_MODEL_DATA_SIZE_INVALID)


def load_from_file(*args: object) -> tuple[int, int]:
    """``(path) -> (model id, ret)``."""
    (path,) = parse("acl.mdl.load_from_file", "s", args)
    return load_file("acl.mdl.load_from_file", path)


def load_from_file_with_mem(*args: object) -> tuple[int, int]:
    """``(path, work ptr, work size, weight ptr, weight size) -> (model id, ret)``; the memory is unused."""
    path, *_ = parse("acl.mdl.load_from_file_with_mem", "skkkk", args)
    return load_file("acl.mdl.load_from_file_with_mem", path)


def load_from_mem(*args: object) -> tuple[int, int]:
    """``(ptr, size) -> (model id, ret)`` for the bytes of an ONNX file."""
    address, size = parse("acl.mdl.load_from_mem", "kk", args)
    return load_memory("acl.mdl.load_from_mem", address, size)


def load_from_mem_with_mem(*args: object) -> tuple[int, int]:
    """``(ptr, size, work ptr, work size, weight ptr, weight size) -> (model id, ret)``."""
    address, size, *_ = parse("acl.mdl.load_from_mem_with_mem", "kkkkkk", args)
    return load_memory("acl.mdl.load_from_mem_with_mem", address, size)


def unload(*args: object) -> int:
    """``(model id) -> ret``; 145003 for an unknown id.

    Objects that only pointers refer to, inputs of this model most of all, are let go.
    """
    (model_id,) = parse("acl.mdl.unload", "I", args)
    state = process()
    with state.lock:
        if state.models.pop(model_id, None) is None:
            message = f"acl.mdl.unload: no model has the id {model_id}"
            return state.explain(codes.GE_EXEC_MODEL_ID_INVALID, message)
    state.memory.let_go()
    return codes.SUCCESS


def query_size(*args: object) -> tuple[int, int, int]:
    """``(path) -> (work bytes, weight bytes, ret)``: 0 work, and the file's size for the weights."""
    (path,) = parse("acl.mdl.query_size", "s", args)
    found = models.resolve(path)
    if found is None:
        message = f"acl.mdl.query_size: {path}: no such model"
        return 0, 0, process().explain(codes.GE_EXEC_MODEL_PATH_INVALID, message)
    return 0, found.stat().st_size, codes.SUCCESS


def query_size_from_mem(*args: object) -> tuple[int, int, int]:
    """``(ptr, size) -> (work bytes, weight bytes, ret)``."""
    address, size = parse("acl.mdl.query_size_from_mem", "kk", args)
    if not size or process().memory.find(address, size) is None:
        return 0, 0, codes.INVALID_PARAM
    return 0, size, codes.SUCCESS
