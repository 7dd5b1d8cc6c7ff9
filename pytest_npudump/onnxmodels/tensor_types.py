"""Data types as onnxruntime, ACL and the dump files number them, and tensors as raw bytes."""

from __future__ import annotations

import ctypes
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import ml_dtypes
import numpy as np

from pytest_npudump.dump.dtypes import BY_NAME, DType

FORMAT_ND = 2

_ORT_NAMES: Mapping[str, str] = MappingProxyType(
    {
        "float": "float32",
        "double": "float64",
        "float8e4m3fn": "float8_e4m3fn",
        "float8e5m2": "float8_e5m2",
        "float8e8m0": "float8_e8m0fnu",
        "float4e2m1": "float4_e2m1fn",
    }
)
"""onnxruntime's names that differ from this package's."""

_ONNX_NUMBERS: Mapping[str, int] = MappingProxyType(
    {
        "float32": 1,
        "uint8": 2,
        "int8": 3,
        "uint16": 4,
        "int16": 5,
        "int32": 6,
        "int64": 7,
        "bool": 9,
        "float16": 10,
        "float64": 11,
        "uint32": 12,
        "uint64": 13,
        "complex64": 14,
        "complex128": 15,
        "bfloat16": 16,
        "float8_e4m3fn": 17,
        "float8_e5m2": 19,
        "int4": 22,
    }
)
"""``TensorProto.DataType`` of ONNX."""

_STORAGE: Mapping[str, Any] = MappingProxyType(
    {name: getattr(ml_dtypes, name) for name in ("bfloat16", "float8_e4m3fn", "float8_e5m2")}
)


_BUILTIN = frozenset(_ONNX_NUMBERS) - frozenset(_STORAGE) - {"int4"}
"""Types of ONNX that numpy itself has."""


@dataclass(frozen=True, slots=True)
class Tensor:
    """One tensor's type, shape and bytes.

    Attributes:
        dtype: its data type; ``RESOURCE`` for what is no tensor (a sequence), which has no bytes.
        shape: its dimensions; ``()`` for a scalar.
        data: its elements, flat, in numpy's or ml_dtypes' type; plain bytes where neither has one.
    """

    dtype: DType
    shape: tuple[int, ...]
    data: np.ndarray[Any, np.dtype[Any]]

    @property
    def nbytes(self) -> int:
        """Bytes of the data."""
        return self.data.nbytes


def from_ort_type(name: str) -> DType:
    """Return the data type of onnxruntime's ``tensor(float16)``; RESOURCE for anything but a tensor."""
    if not name.startswith("tensor(") or not name.endswith(")"):
        return BY_NAME["resource"]
    inner = name[len("tensor(") : -1]
    return BY_NAME.get(_ORT_NAMES.get(inner, inner), BY_NAME["undefined"])


def onnx_number(dtype: DType) -> int | None:
    """Return the type's number in ONNX, or None where ONNX has no such type."""
    return _ONNX_NUMBERS.get(dtype.name)


def acl_number(dtype: DType) -> int:
    """Return the type's ``aclDataType``; -1 (``ACL_DT_UNDEFINED``) where it has none."""
    return -1 if dtype.ge is None or dtype.name == "undefined" else dtype.ge


def nbytes(dtype: DType, shape: Sequence[int]) -> int:
    """Bytes of a tensor; 0 where a dimension is unknown (negative) or the type has no fixed size."""
    return 0 if any(dim < 0 for dim in shape) else (math.prod(shape) * dtype.bits + 7) // 8


def storage(dtype: DType) -> np.dtype[Any]:
    """Return the numpy or ml_dtypes type that holds elements of ``dtype``; bytes where neither has one."""
    if dtype.name in _STORAGE:
        extended: np.dtype[Any] = np.dtype(_STORAGE[dtype.name])
        return extended
    return np.dtype(dtype.name if in_numpy(dtype) else "uint8")


def in_numpy(dtype: DType) -> bool:
    """Return whether numpy itself has the type."""
    return dtype.kind != "opaque" and dtype.name in _BUILTIN


def from_bytes(dtype: DType, shape: tuple[int, ...], data: np.ndarray[Any, np.dtype[np.uint8]]) -> Tensor:
    """Return a tensor of these bytes, which stay its memory."""
    return Tensor(dtype, shape, data.view(storage(dtype)))


def from_array(dtype: DType, array: np.ndarray[Any, np.dtype[Any]]) -> Tensor:
    """Return a tensor with the array's shape and elements; of int4 two a byte, the first in its low bits."""
    flat = np.ascontiguousarray(array).reshape(-1)
    if dtype.name == "int4":
        codes = np.append(flat.astype(np.int8), np.zeros(flat.size % 2, np.int8)).view(np.uint8) & 15
        flat = codes[::2] | codes[1::2] << 4
    return Tensor(dtype, array.shape, flat)


def from_result(array: np.ndarray[Any, np.dtype[Any]]) -> Tensor:
    """Return a result of onnxruntime of a type that numpy has; its memory is shared."""
    return from_array(BY_NAME[array.dtype.name], array)


def from_ort_value(value: Any) -> Tensor:
    """Return onnxruntime's value as a tensor of any type; its memory is shared, and kept alive."""
    if not value.is_tensor():
        return Tensor(BY_NAME["resource"], (), np.empty(0, np.uint8))
    dtype, shape = from_ort_type(value.data_type()), tuple(value.shape())
    size = 0 if dtype.name == "string" else nbytes(dtype, shape)
    if not size:
        kind = np.dtype(np.uint8) if dtype.name == "string" else storage(dtype)
        return Tensor(dtype, shape, np.empty(0, kind))
    memory: Any = (ctypes.c_uint8 * size).from_address(value.data_ptr())
    memory.owner = value
    return Tensor(dtype, shape, np.frombuffer(memory, storage(dtype)))
