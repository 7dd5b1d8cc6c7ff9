"""Model descriptions: what a model's inputs and outputs are."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pytest_npudump.emulator.execution import onnx_model as models
from pytest_npudump.emulator.machine import codes
from pytest_npudump.emulator.machine.parse_tuple import parse
from pytest_npudump.emulator.process.state import process
from pytest_npudump.onnxmodels.sessions import ModelError
from pytest_npudump.onnxmodels.tensor_types import FORMAT_ND, acl_number

if TYPE_CHECKING:
    from pytest_npudump.emulator.execution.onnx_model import Model, Port

Dims = dict[str, Any]
_UNDEFINED = -1


@dataclass(slots=True)
class ModelDesc:
    """A description; empty until ``get_desc`` fills it."""

    model: Model | None = None


def create_desc(*_: object) -> int:
    """``() -> handle``."""
    return process().handles.add(ModelDesc())


def destroy_desc(*args: object) -> int:
    """``(desc) -> ret``."""
    (handle,) = parse("acl.mdl.destroy_desc", "k", args)
    found = process().handles.remove(handle, ModelDesc)
    return codes.INVALID_PARAM if found is None else codes.SUCCESS


def get_desc(*args: object) -> int:
    """``(desc, model id) -> ret``; 145003 for an unknown id."""
    handle, model_id = parse("acl.mdl.get_desc", "kI", args)
    state = process()
    desc = state.handles.get(handle, ModelDesc)
    if desc is None:
        return state.explain(codes.INVALID_PARAM, f"acl.mdl.get_desc: {handle:#x} is no model description")
    model = state.models.get(model_id)
    if model is None:
        message = f"acl.mdl.get_desc: no model has the id {model_id}"
        return state.explain(codes.GE_EXEC_MODEL_ID_INVALID, message)
    desc.model = model
    return codes.SUCCESS


def get_desc_from_file(*args: object) -> int:
    """``(desc, path) -> ret`` without loading the model; 145002 for a bad file."""
    handle, path = parse("acl.mdl.get_desc_from_file", "ks", args)
    found = models.resolve(path)
    if found is None:
        message = f"acl.mdl.get_desc_from_file: {path}: no such model"
        return process().explain(codes.GE_EXEC_MODEL_PATH_INVALID, message)
    return _describe(handle, found)


def get_desc_from_mem(*args: object) -> int:
    """``(desc, ptr, size) -> ret`` without loading the model."""
    handle, address, size = parse("acl.mdl.get_desc_from_mem", "kkk", args)
    data = process().memory.find(address, size) if size else None
    return codes.INVALID_PARAM if data is None else _describe(handle, data.tobytes())


def _describe(handle: int, source: Any) -> int:
    state = process()
    desc = state.handles.get(handle, ModelDesc)
    if desc is None:
        return codes.INVALID_PARAM
    try:
        desc.model = models.load(source, None, options=state.gears)
    except ModelError as error:
        return state.explain(codes.GE_EXEC_MODEL_PATH_INVALID, str(error))
    return codes.SUCCESS


def _ports(handle: int, io: str) -> tuple[Port, ...]:
    desc = process().handles.get(handle, ModelDesc)
    if desc is None or desc.model is None:
        return ()
    return desc.model.inputs if io == "input" else desc.model.outputs


def _port(call: str, args: tuple[object, ...], io: str) -> Port | None:
    handle, index = parse(f"acl.mdl.{call}", "kk", args)
    ports = _ports(handle, io)
    return ports[index] if index < len(ports) else None


def get_num_inputs(*args: object) -> int:
    """``(desc) -> inputs``."""
    (handle,) = parse("acl.mdl.get_num_inputs", "k", args)
    return len(_ports(handle, "input"))


def get_num_outputs(*args: object) -> int:
    """``(desc) -> outputs``."""
    (handle,) = parse("acl.mdl.get_num_outputs", "k", args)
    return len(_ports(handle, "output"))


def get_input_size_by_index(*args: object) -> int:
    """``(desc, index) -> bytes``; 0 where a dimension varies."""
    port = _port("get_input_size_by_index", args, "input")
    return 0 if port is None else port.nbytes


def get_output_size_by_index(*args: object) -> int:
    """``(desc, index) -> bytes``; 0 where a dimension varies.

    For such an output an application either passes a buffer it knows to be large enough, or an empty one
    (``acl.create_data_buffer(0, 0)``), which the execution then points to memory of the right size, to be
    freed with ``acl.rt.free``. Both are what ACL offers for models with dynamic shapes.
    """
    port = _port("get_output_size_by_index", args, "output")
    return 0 if port is None else port.nbytes


def _dims(port: Port | None, shape: tuple[int, ...] | None = None) -> tuple[Dims, int]:
    if port is None:
        return {}, codes.INVALID_PARAM
    dims = port.shape if shape is None else shape
    return {"name": port.name, "dimCount": len(dims), "dims": list(dims)}, codes.SUCCESS


def get_input_dims(*args: object) -> tuple[Dims, int]:
    """``(desc, index) -> ({"name", "dimCount", "dims"}, ret)``, -1 for a dimension that varies."""
    return _dims(_port("get_input_dims", args, "input"))


def get_input_dims_v2(*args: object) -> tuple[Dims, int]:
    """``(desc, index) -> ({"name", "dimCount", "dims"}, ret)``."""
    return _dims(_port("get_input_dims_v2", args, "input"))


def get_output_dims(*args: object) -> tuple[Dims, int]:
    """``(desc, index) -> ({"name", "dimCount", "dims"}, ret)``, -1 where one varies; of the largest gear."""
    port = _port("get_output_dims", args, "output")
    return _dims(port, None if port is None else port.largest)


def get_cur_output_dims(*args: object) -> tuple[Dims, int]:
    """``(desc, index) -> ({"name", "dimCount", "dims"}, ret)`` of the last execution.

    Of a model with gears it is the one that was set last, the largest before.
    """
    port = _port("get_cur_output_dims", args, "output")
    handle, index = parse("acl.mdl.get_cur_output_dims", "kk", args)
    desc = process().handles.get(handle, ModelDesc)
    shapes = None if desc is None or desc.model is None else desc.model.current_shapes
    if port is None:
        return _dims(None)
    return _dims(port, port.largest if shapes is None else shapes[index])


def get_input_data_type(*args: object) -> int:
    """``(desc, index) -> aclDataType``."""
    port = _port("get_input_data_type", args, "input")
    return _UNDEFINED if port is None else acl_number(port.dtype)


def get_output_data_type(*args: object) -> int:
    """``(desc, index) -> aclDataType``."""
    port = _port("get_output_data_type", args, "output")
    return _UNDEFINED if port is None else acl_number(port.dtype)


def get_input_format(*args: object) -> int:
    """``(desc, index) -> aclFormat``: ND, the emulator knows no other."""
    return _UNDEFINED if _port("get_input_format", args, "input") is None else FORMAT_ND


def get_output_format(*args: object) -> int:
    """``(desc, index) -> aclFormat``: ND, the emulator knows no other."""
    return _UNDEFINED if _port("get_output_format", args, "output") is None else FORMAT_ND


def get_input_name_by_index(*args: object) -> str:
    """``(desc, index) -> name``."""
    port = _port("get_input_name_by_index", args, "input")
    return "" if port is None else port.name


def get_output_name_by_index(*args: object) -> str:
    """``(desc, index) -> name``."""
    port = _port("get_output_name_by_index", args, "output")
    return "" if port is None else port.name


def _index(call: str, args: tuple[object, ...], io: str) -> tuple[int, int]:
    handle, name = parse(f"acl.mdl.{call}", "ks", args)
    for index, port in enumerate(_ports(handle, io)):
        if port.name == name:
            return index, codes.SUCCESS
    return 0, process().explain(codes.INVALID_PARAM, f"acl.mdl.{call}: the model has no {io} {name!r}")


def get_input_index_by_name(*args: object) -> tuple[int, int]:
    """``(desc, name) -> (index, ret)``."""
    return _index("get_input_index_by_name", args, "input")


def get_output_index_by_name(*args: object) -> tuple[int, int]:
    """``(desc, name) -> (index, ret)``."""
    return _index("get_output_index_by_name", args, "output")


def get_tensor_real_name(*args: object) -> str | None:
    """``(desc, name) -> name`` of an input or output in the model; None where it has no such one.

    CANN shortens names of 128 characters and more, which this turns back. The emulator shortens none.
    """
    handle, name = parse("acl.mdl.get_tensor_real_name", "ks", args)
    ports = (*_ports(handle, "input"), *_ports(handle, "output"))
    return str(name) if name in {port.name for port in ports} else None
