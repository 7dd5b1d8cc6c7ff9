"""Calls for gears: the batch sizes, image sizes or dimensions that ATC compiles a model for.

Sources: ``model.cpp`` of hicann/ge's ``acl_model`` (``aclmdlSetDynamicBatchSize`` and its kin), and the
documents of ``acl.mdl.set_dynamic_batch_size``, ``acl.mdl.set_dynamic_hw_size`` and
``acl.mdl.set_input_dynamic_dims``. A size is told the model in one more input, named
``ascend_mbatch_shape_data``; a model without gears takes none (145013).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from pytest_npudump.emulator.acl._buffers import DataBuffer
from pytest_npudump.emulator.acl._datasets import Dataset
from pytest_npudump.emulator.acl._model_descs import ModelDesc
from pytest_npudump.emulator.acl._refusals import RefusedError
from pytest_npudump.emulator.execution.dynamic_shapes import BATCH, DIMS, IMAGE
from pytest_npudump.emulator.machine import codes
from pytest_npudump.emulator.machine.parse_tuple import integers, parse
from pytest_npudump.emulator.process.state import process

if TYPE_CHECKING:
    from collections.abc import Callable

    from pytest_npudump.emulator.execution.dynamic_shapes import Gears
    from pytest_npudump.emulator.execution.onnx_model import Model

_EVERY_INPUT = (1 << 64) - 1
_SHORT, _LONG = 4, 8
"""Bytes of one value: a buffer too small for the long ones gets the short ones."""
_MOST_GEARS = 4096
_NO_GEARS = (
    "an ONNX file has no gears; say with emulator.gears.compile_for what ATC was told, or tell the shape "
    "with acl.mdl.set_dataset_tensor_desc"
)


def set_dynamic_batch_size(*args: object) -> int:
    """``(model id, dataset, index, batch size) -> ret``."""
    call = "acl.mdl.set_dynamic_batch_size"
    model_id, dataset, index, batch = parse(call, "IkkK", args)
    if not batch:
        return _refuse(call, codes.INVALID_PARAM, "the batch size is 0")
    return _set(call, model_id, (dataset, index), _SHORT, lambda gears: _known(gears, BATCH, (batch,)))


def set_dynamic_hw_size(*args: object) -> int:
    """``(model id, dataset, index, height, width) -> ret``."""
    call = "acl.mdl.set_dynamic_hw_size"
    model_id, dataset, index, *size = parse(call, "IkkKK", args)
    if 0 in size:
        return _refuse(call, codes.INVALID_PARAM, "the height or the width is 0")
    return _set(call, model_id, (dataset, index), 2 * _SHORT, lambda gears: _known(gears, IMAGE, tuple(size)))


def set_input_dynamic_dims(*args: object) -> int:
    """``(model id, dataset, index, {"dimCount", "name", "dims"}) -> ret``: all dimensions of all inputs.

    145012 where they are more or fewer, or one that does not vary is another.
    """
    call = "acl.mdl.set_input_dynamic_dims"
    model_id, dataset, index, given = parse(call, "IkkO", args)
    if not isinstance(given, dict) or not isinstance(given.get("dims"), list):
        raise TypeError(f"{call} args parse failed!")
    dims = integers(call, given["dims"])
    if not dims:
        return _refuse(call, codes.INVALID_PARAM, "there are no dimensions")
    return _set(call, model_id, (dataset, index), _SHORT, lambda gears: _varying(gears, dims))


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


def _set(
    call: str, model_id: int, place: tuple[int, int], shortest: int, find: Callable[[Gears], int]
) -> int:
    """Write the values of a gear to the buffer at ``place`` (a dataset and an index)."""
    try:
        buffer = _buffer(*place, shortest)
        model, gears = _model(model_id)
        gear = find(gears)
        _write(model, buffer, gears.option.gears[gear])
    except RefusedError as error:
        return error.told(call)
    model.current_shapes = gears.outputs[gear]
    return codes.SUCCESS


def _model(model_id: int) -> tuple[Model, Gears]:
    model = process().models.get(model_id)
    if model is None:
        raise RefusedError(codes.GE_EXEC_MODEL_ID_INVALID, f"no model has the id {model_id}")
    if model.gears is None:
        raise RefusedError(codes.GE_DYNAMIC_BATCH_SIZE_INVALID, _NO_GEARS)
    return model, model.gears


def _buffer(handle: int, index: int, shortest: int) -> DataBuffer:
    state = process()
    dataset = state.handles.get(handle, Dataset)
    buffers = [] if dataset is None else dataset.buffers
    buffer = state.handles.get(buffers[index], DataBuffer) if index < len(buffers) else None
    if buffer is None or not buffer.address:
        raise RefusedError(codes.INVALID_PARAM, f"the dataset has no buffer {index}")
    if buffer.size < shortest:
        message = f"buffer {index} has {buffer.size} bytes, {shortest} are needed"
        raise RefusedError(codes.GE_DYNAMIC_INPUT_LENGTH_INVALID, message)
    return buffer


def _write(model: Model, buffer: DataBuffer, values: tuple[int, ...]) -> None:
    if buffer.size < _SHORT * len(values):
        message = f"a buffer has {buffer.size} bytes, {_SHORT * len(values)} are needed"
        raise RefusedError(codes.GE_DYNAMIC_INPUT_LENGTH_INVALID, message)
    long = buffer.size >= _LONG * len(values)
    data = np.array(values, np.int64 if long else np.int32).view(np.uint8)
    found = process().memory.reached(buffer.address, data.size, model.device)
    if isinstance(found, str):
        raise RefusedError(codes.INVALID_PARAM, found)
    found[:] = data


def _refuse(call: str, code: int, why: str) -> int:
    return process().explain(code, f"{call}: {why}")


def _gears(desc: int, kind: str) -> list[list[int]] | None:
    """Return the values of each gear of that kind; None for no description."""
    found = process().handles.get(desc, ModelDesc)
    if found is None:
        return None
    gears = None if found.model is None else found.model.gears
    if gears is None or gears.option.kind != kind:
        return []
    if kind == DIMS:
        every = [gears.inputs(gear) for gear in range(len(gears.option.gears))]
        return [[dim for shape in shapes for dim in shape] for shapes in every]
    return [list(values) for values in gears.option.gears]


def get_dynamic_batch(*args: object) -> tuple[dict[str, Any], int]:
    """``(desc) -> ({"batchCount", "batch"}, ret)``."""
    (handle,) = parse("acl.mdl.get_dynamic_batch", "k", args)
    gears = _gears(handle, BATCH)
    if gears is None:
        return {}, codes.INVALID_PARAM
    return {"batchCount": len(gears), "batch": [batch for (batch,) in gears]}, codes.SUCCESS


def get_dynamic_hw(*args: object) -> tuple[dict[str, Any], int]:
    """``(desc, index) -> ({"hwCount", "hw"}, ret)``."""
    handle, _ = parse("acl.mdl.get_dynamic_hw", "kk", args)
    gears = _gears(handle, IMAGE)
    return (
        ({}, codes.INVALID_PARAM) if gears is None else ({"hwCount": len(gears), "hw": gears}, codes.SUCCESS)
    )


def get_input_dynamic_gear_count(*args: object) -> tuple[int, int]:
    """``(desc, index) -> (gears, ret)``; the index is -1, 100000 for every other."""
    call = "acl.mdl.get_input_dynamic_gear_count"
    gears, code = _asked(call, *parse(call, "kK", args))
    return len(gears), code


def get_input_dynamic_dims(*args: object) -> tuple[list[dict[str, Any]] | None, int]:
    """``(desc, index, gears) -> (list of {"name", "dimCount", "dims"}, ret)``: all dimensions, by gear.

    The index is -1; 100000 for fewer gears than there are, or more than 4096.
    """
    call = "acl.mdl.get_input_dynamic_dims"
    handle, index, count = parse(call, "kKK", args)
    if count > _MOST_GEARS:
        return None, _refuse(call, codes.INVALID_PARAM, f"{count} gears; at most {_MOST_GEARS}")
    gears, code = _asked(call, handle, index)
    if count < len(gears):
        return [], _refuse(call, codes.INVALID_PARAM, f"{count} gears; the model has {len(gears)}")
    return [{"name": "", "dimCount": len(dims), "dims": dims} for dims in gears], code


def _asked(call: str, handle: int, index: int) -> tuple[list[list[int]], int]:
    gears = _gears(handle, DIMS)
    if gears is None:
        return [], _refuse(call, codes.INVALID_PARAM, f"{handle:#x} is no model description")
    if index != _EVERY_INPUT:
        return [], _refuse(call, codes.INVALID_PARAM, f"the index is {index}; expected -1")
    return gears, codes.SUCCESS
