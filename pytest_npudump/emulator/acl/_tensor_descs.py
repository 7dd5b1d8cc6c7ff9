"""``acl.create_tensor_desc`` and its kin."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace

from pytest_npudump.emulator.machine import codes
from pytest_npudump.emulator.machine.parse_tuple import integers, parse
from pytest_npudump.emulator.process.state import process
from pytest_npudump.onnxmodels.tensor_types import from_acl_type, nbytes

_UNDEFINED = -1


@dataclass(slots=True)
class TensorDesc:
    """Type, shape and layout of a tensor.

    Attributes:
        dtype: ``aclDataType``.
        shape: dimensions.
        format: ``aclFormat``.
        name: its name.
        extra: what was set on it and has no meaning without an NPU: storage and origin formats and shapes.
    """

    dtype: int
    shape: tuple[int, ...]
    format: int
    name: str = ""
    extra: dict[str, object] = field(default_factory=dict)

    @property
    def nbytes(self) -> int:
        """Bytes of the tensor; 0 where a dimension varies or the type is unknown."""
        dtype = from_acl_type(self.dtype)
        return 0 if dtype is None else nbytes(dtype, self.shape)


def _get(handle: int) -> TensorDesc | None:
    return process().handles.get(handle, TensorDesc)


def create_tensor_desc(*args: object) -> int:
    """``(dtype, dims, format) -> handle``."""
    dtype, dims, layout = parse("acl.create_tensor_desc", "ili", args)
    shape = tuple(integers("acl.create_tensor_desc", dims))
    return process().handles.add(TensorDesc(dtype, shape, layout))


def destroy_tensor_desc(*args: object) -> None:
    """``(handle) -> None``."""
    (handle,) = parse("acl.destroy_tensor_desc", "k", args)
    process().handles.remove(handle, TensorDesc)


def get_tensor_desc_type(*args: object) -> int:
    """``(handle) -> aclDataType``; -1 for an unknown handle."""
    desc = _get(*parse("acl.get_tensor_desc_type", "k", args))
    return _UNDEFINED if desc is None else desc.dtype


def get_tensor_desc_format(*args: object) -> int:
    """``(handle) -> aclFormat``; -1 for an unknown handle."""
    desc = _get(*parse("acl.get_tensor_desc_format", "k", args))
    return _UNDEFINED if desc is None else desc.format


def get_tensor_desc_size(*args: object) -> int:
    """``(handle) -> bytes``."""
    desc = _get(*parse("acl.get_tensor_desc_size", "k", args))
    return 0 if desc is None else desc.nbytes


def get_tensor_desc_element_count(*args: object) -> int:
    """``(handle) -> elements``."""
    desc = _get(*parse("acl.get_tensor_desc_element_count", "k", args))
    return 0 if desc is None or any(dim < 0 for dim in desc.shape) else math.prod(desc.shape)


def get_tensor_desc_num_dims(*args: object) -> int:
    """``(handle) -> dimensions``."""
    desc = _get(*parse("acl.get_tensor_desc_num_dims", "k", args))
    return 0 if desc is None else len(desc.shape)


def _dim(handle: int, index: int) -> int | None:
    desc = _get(handle)
    return None if desc is None or index >= len(desc.shape) else desc.shape[index]


def get_tensor_desc_dim(*args: object) -> int:
    """``(handle, index) -> size``; -1 where there is none."""
    dim = _dim(*parse("acl.get_tensor_desc_dim", "kk", args))
    return -1 if dim is None else dim


def get_tensor_desc_dim_v2(*args: object) -> tuple[int, int]:
    """``(handle, index) -> (size, ret)``."""
    dim = _dim(*parse("acl.get_tensor_desc_dim_v2", "kk", args))
    return (0, codes.INVALID_PARAM) if dim is None else (dim, codes.SUCCESS)


def get_tensor_desc_name(*args: object) -> str:
    """``(handle) -> name``."""
    desc = _get(*parse("acl.get_tensor_desc_name", "k", args))
    return "" if desc is None else desc.name


def set_tensor_desc_name(*args: object) -> None:
    """``(handle, name) -> None``."""
    handle, name = parse("acl.set_tensor_desc_name", "ks", args)
    desc = _get(handle)
    if desc is not None:
        desc.name = name


def trans_tensor_desc_format(*args: object) -> tuple[int, int]:
    """``(handle, format) -> (new handle, ret)``."""
    handle, layout = parse("acl.trans_tensor_desc_format", "ki", args)
    desc = _get(handle)
    if desc is None:
        return 0, codes.INVALID_PARAM
    return process().handles.add(replace(desc, format=layout, extra=dict(desc.extra))), codes.SUCCESS


def _remember(call: str, value_code: str, args: tuple[object, ...]) -> int:
    handle, value = parse(f"acl.{call}", "k" + value_code, args)
    desc = _get(handle)
    if desc is None:
        return codes.INVALID_PARAM
    desc.extra[call] = integers(f"acl.{call}", value) if value_code == "l" else value
    return codes.SUCCESS


def set_tensor_format(*args: object) -> int:
    """``(handle, format) -> ret``: the device's layout, which the emulator does not have."""
    return _remember("set_tensor_format", "i", args)


def set_tensor_storage_format(*args: object) -> int:
    """``(handle, format) -> ret``."""
    return _remember("set_tensor_storage_format", "i", args)


def set_tensor_origin_format(*args: object) -> int:
    """``(handle, format) -> ret``."""
    return _remember("set_tensor_origin_format", "i", args)


def set_tensor_shape(*args: object) -> int:
    """``(handle, dims) -> ret``."""
    return _remember("set_tensor_shape", "l", args)


def set_tensor_storage_shape(*args: object) -> int:
    """``(handle, dims) -> ret``."""
    return _remember("set_tensor_storage_shape", "l", args)


def set_tensor_origin_shape(*args: object) -> int:
    """``(handle, dims) -> ret``."""
    return _remember("set_tensor_origin_shape", "l", args)


def set_tensor_place_ment(*args: object) -> int:
    """``(handle, memory type) -> ret``."""
    return _remember("set_tensor_place_ment", "i", args)


def set_tensor_const(*args: object) -> int:
    """``(handle, ptr, size) -> ret``: declares the input's value; the buffer given at execution counts."""
    handle, address, size = parse("acl.set_tensor_const", "kkk", args)
    desc = _get(handle)
    if desc is None:
        return codes.INVALID_PARAM
    desc.extra["set_tensor_const"] = (address, size)
    return codes.SUCCESS
