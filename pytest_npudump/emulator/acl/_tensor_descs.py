"""``acl.create_tensor_desc`` and its kin."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from pytest_npudump.emulator.acl._calls import ACL, CODE, destroy
from pytest_npudump.emulator.machine import codes
from pytest_npudump.emulator.machine.codes import RefusedError
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
    """

    dtype: int
    shape: tuple[int, ...]
    format: int
    name: str = ""

    @property
    def nbytes(self) -> int:
        """Bytes of the tensor; 0 where a dimension varies or the type is unknown."""
        dtype = from_acl_type(self.dtype)
        return 0 if dtype is None else nbytes(dtype, self.shape)


def _elements(desc: TensorDesc) -> int:
    return 0 if any(dim < 0 for dim in desc.shape) else math.prod(desc.shape)


def _dim(desc: TensorDesc, index: int) -> int:
    if index >= len(desc.shape):
        raise RefusedError(codes.INVALID_PARAM, f"there is no dimension {index}")
    return desc.shape[index]


def _set_name(desc: TensorDesc, name: str) -> None:
    desc.name = name


ACL.table(
    {
        "create_tensor_desc": (
            "ivi",
            0,
            lambda dtype, dims, layout: process().handles.add(TensorDesc(dtype, tuple(dims), layout)),
        ),
        "destroy_tensor_desc": ("k", None, destroy(TensorDesc)),
        "get_tensor_desc_type": (TensorDesc, _UNDEFINED, lambda desc: desc.dtype),
        "get_tensor_desc_format": (TensorDesc, _UNDEFINED, lambda desc: desc.format),
        "get_tensor_desc_size": (TensorDesc, 0, lambda desc: desc.nbytes),
        "get_tensor_desc_element_count": (TensorDesc, 0, _elements),
        "get_tensor_desc_num_dims": (TensorDesc, 0, lambda desc: len(desc.shape)),
        "get_tensor_desc_dim": ((TensorDesc, "k"), -1, _dim),
        "get_tensor_desc_dim_v2": ((TensorDesc, "k"), (0, CODE), _dim),
        "get_tensor_desc_name": (TensorDesc, "", lambda desc: desc.name),
        "set_tensor_desc_name": ((TensorDesc, "s"), None, _set_name),
        "trans_tensor_desc_format": (
            (TensorDesc, "i"),
            (0, CODE),
            lambda desc, layout: process().handles.add(replace(desc, format=layout)),
        ),
    }
)
# What these set has no meaning without an NPU: the device's layouts and shapes, and where it lies. A constant
# input has the value that its buffer holds at execution.
for _name, _value in (
    ("set_tensor_format", "i"),
    ("set_tensor_storage_format", "i"),
    ("set_tensor_origin_format", "i"),
    ("set_tensor_place_ment", "i"),
    ("set_tensor_shape", "v"),
    ("set_tensor_storage_shape", "v"),
    ("set_tensor_origin_shape", "v"),
    ("set_tensor_const", "kk"),
):
    ACL.table({_name: ((TensorDesc, _value), CODE, lambda *_: None)})
