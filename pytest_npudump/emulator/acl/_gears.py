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
from pytest_npudump.emulator.acl._calls import CODE, MDL, known, parse
from pytest_npudump.emulator.acl._datasets import Dataset
from pytest_npudump.emulator.acl._load import loaded
from pytest_npudump.emulator.acl._model_descs import ModelDesc
from pytest_npudump.emulator.gears import BATCH, DIMS, IMAGE
from pytest_npudump.emulator.machine import codes
from pytest_npudump.emulator.machine.codes import RefusedError
from pytest_npudump.emulator.process.state import process

if TYPE_CHECKING:
    from collections.abc import Callable

    from pytest_npudump.emulator.gears import Gears

_EVERY_INPUT = (1 << 64) - 1
_SHORT, _LONG = 4, 8
"""Bytes of one value: a buffer too small for the long ones gets the short ones."""
_MOST_GEARS = 4096
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
