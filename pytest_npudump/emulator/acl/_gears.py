"""Gears: the batch sizes, image sizes or dimensions that ATC compiles a model for.

Sources: ``model.cpp`` of hicann/ge's ``acl_model`` (``aclmdlSetDynamicBatchSize`` and its kin), and the
documents of ``acl.mdl.set_dynamic_batch_size``, ``acl.mdl.set_dynamic_hw_size`` and
``acl.mdl.set_input_dynamic_dims``. An ONNX file has no gears, they come from ATC's options, so no size can be
set here: the answer is CANN's for a model without them, 145013.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pytest_npudump.emulator import codes
from pytest_npudump.emulator.acl._buffers import DataBuffer
from pytest_npudump.emulator.acl._datasets import Dataset
from pytest_npudump.emulator.acl._model_descs import ModelDesc
from pytest_npudump.emulator.arguments import integers, parse
from pytest_npudump.emulator.state import process

if TYPE_CHECKING:
    from collections.abc import Sequence

_EVERY_INPUT = (1 << 64) - 1
_SHORTEST = 4
_BOTH_SIDES = 8
_MOST_GEARS = 4096
_NO_GEARS = (
    "the model has no gears: the emulator runs ONNX files, and gears come from ATC's --dynamic_batch_size, "
    "--dynamic_image_size and --dynamic_dims; tell the shape with acl.mdl.set_dataset_tensor_desc"
)


def set_dynamic_batch_size(*args: object) -> int:
    """``(model id, dataset, index, batch size) -> ret``."""
    call = "acl.mdl.set_dynamic_batch_size"
    model_id, dataset, index, batch = parse(call, "IkkK", args)
    if not batch:
        return _refuse(call, codes.INVALID_PARAM, "the batch size is 0")
    return _set(call, model_id, (dataset, index), _SHORTEST)


def set_dynamic_hw_size(*args: object) -> int:
    """``(model id, dataset, index, height, width) -> ret``."""
    call = "acl.mdl.set_dynamic_hw_size"
    model_id, dataset, index, height, width = parse(call, "IkkKK", args)
    if not height or not width:
        return _refuse(call, codes.INVALID_PARAM, "the height or the width is 0")
    return _set(call, model_id, (dataset, index), _BOTH_SIDES)


def set_input_dynamic_dims(*args: object) -> int:
    """``(model id, dataset, index, {"dimCount", "name", "dims"}) -> ret``."""
    call = "acl.mdl.set_input_dynamic_dims"
    model_id, dataset, index, dims = parse(call, "IkkO", args)
    if not isinstance(dims, dict) or not isinstance(dims.get("dims"), list):
        raise TypeError(f"{call} args parse failed!")
    if not integers(call, dims["dims"]):
        return _refuse(call, codes.INVALID_PARAM, "there are no dimensions")
    return _set(call, model_id, (dataset, index), _SHORTEST * len(dims["dims"]))


def _set(call: str, model_id: int, place: Sequence[int], shortest: int) -> int:
    """Return what stands against a size; the buffer at ``place`` is to hold it."""
    state = process()
    handle, index = place
    dataset = state.handles.get(handle, Dataset)
    buffers = () if dataset is None else dataset.buffers
    buffer = state.handles.get(buffers[index], DataBuffer) if index < len(buffers) else None
    if buffer is None or not buffer.address:
        return _refuse(call, codes.INVALID_PARAM, f"the dataset has no buffer {index}")
    if buffer.size < shortest:
        message = f"buffer {index} has {buffer.size} bytes, {shortest} are needed"
        return _refuse(call, codes.GE_DYNAMIC_INPUT_LENGTH_INVALID, message)
    if model_id not in state.models:
        return _refuse(call, codes.GE_EXEC_MODEL_ID_INVALID, f"no model has the id {model_id}")
    return _refuse(call, codes.GE_DYNAMIC_BATCH_SIZE_INVALID, _NO_GEARS)


def _refuse(call: str, code: int, why: str) -> int:
    return process().explain(code, f"{call}: {why}")


def get_input_dynamic_gear_count(*args: object) -> tuple[int, int]:
    """``(desc, index) -> (gears, ret)``: none; the index is -1, 100000 for every other."""
    call = "acl.mdl.get_input_dynamic_gear_count"
    handle, index = parse(call, "kK", args)
    return 0, _asked(call, handle, index)


def get_input_dynamic_dims(*args: object) -> tuple[list[dict[str, Any]] | None, int]:
    """``(desc, index, gears) -> (list of {"name", "dimCount", "dims"}, ret)``: none.

    The index is -1, and there are at most 4096 gears.
    """
    call = "acl.mdl.get_input_dynamic_dims"
    handle, index, count = parse(call, "kKK", args)
    if count > _MOST_GEARS:
        return None, _refuse(call, codes.INVALID_PARAM, f"{count} gears; at most {_MOST_GEARS}")
    return [], _asked(call, handle, index)


def _asked(call: str, handle: int, index: int) -> int:
    desc = process().handles.get(handle, ModelDesc)
    if desc is None or desc.model is None:
        return _refuse(call, codes.INVALID_PARAM, f"{handle:#x} is no model description")
    if index != _EVERY_INPUT:
        return _refuse(call, codes.INVALID_PARAM, f"the index is {index}; expected -1")
    return codes.SUCCESS
