"""The inputs and outputs of a loaded model, as pyACL describes them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from pytest_npudump.dump.values.dtypes import BY_GE
from pytest_npudump.errors import RequestError, RuntimeUnavailableError
from pytest_npudump.runtime.acl.return_codes import value

_BITS = 8


def numpy_dtype(number: int) -> np.dtype[Any]:
    """Return the numpy type of an ``aclDataType``, ml_dtypes' where numpy has none.

    Raises:
        RuntimeUnavailableError: elements of this type have no numpy representation, or share bytes.
    """
    name = BY_GE[number].name if number in BY_GE else f"number {number}"
    if number in BY_GE and BY_GE[number].bits % _BITS:
        raise RuntimeUnavailableError(
            f"the model has a tensor of the type {name}, several elements of which share a byte; give such "
            f"a model to acl.mdl yourself, with npu_dump.config_path"
        )
    try:
        return np.dtype(name)
    except TypeError:
        import ml_dtypes  # noqa: PLC0415 - only models with such types need it

        if hasattr(ml_dtypes, name):
            found: np.dtype[Any] = np.dtype(getattr(ml_dtypes, name))
            return found
    raise RuntimeUnavailableError(f"the model has a tensor of the type {name}, which numpy cannot hold")


@dataclass(frozen=True, slots=True)
class Tensor:
    """An input or output.

    Attributes:
        name: the model's own.
        dtype: of its elements.
        acl_dtype: the same as an ``aclDataType``.
        shape: its dimensions; negative where an execution decides.
        size: in bytes; 0 where an execution decides.
    """

    name: str
    dtype: np.dtype[Any]
    acl_dtype: int
    shape: tuple[int, ...]
    size: int

    @property
    def dynamic(self) -> bool:
        """Whether an execution decides on a dimension."""
        return any(dim < 0 for dim in self.shape)

    def accept(self, array: np.ndarray, model: str) -> np.ndarray:
        """Return ``array`` as contiguous memory.

        Raises:
            RequestError: it would have to be converted.
        """
        __tracebackhide__ = True
        array = np.asarray(array)
        fits = len(array.shape) == len(self.shape) and all(
            want in (-1, got) for want, got in zip(self.shape, array.shape, strict=True)
        )
        if array.dtype != self.dtype or not fits:
            raise RequestError(
                f"input {self.name!r} of {model} takes {self.dtype} of shape {list(self.shape)}, "
                f"got {array.dtype} of shape {list(array.shape)}"
            )
        return np.ascontiguousarray(array).reshape(array.shape)


def describe(acl: Any, desc: int, io: str) -> tuple[Tensor, ...]:
    """Return the tensors of a direction, ``input`` or ``output``, in the model's order.

    Raises:
        AclError: ACL does not describe one.
        RuntimeUnavailableError: numpy cannot hold one.
    """
    __tracebackhide__ = True
    mdl = acl.mdl
    count = getattr(mdl, f"get_num_{io}s")(desc)
    tensors = []
    for index in range(count):
        dims = value(acl, f"acl.mdl.get_{io}_dims()", getattr(mdl, f"get_{io}_dims")(desc, index))
        number = getattr(mdl, f"get_{io}_data_type")(desc, index)
        tensors.append(
            Tensor(
                name=getattr(mdl, f"get_{io}_name_by_index")(desc, index),
                dtype=numpy_dtype(number),
                acl_dtype=number,
                shape=tuple(int(dim) for dim in dims["dims"]),
                size=getattr(mdl, f"get_{io}_size_by_index")(desc, index),
            )
        )
    return tuple(tensors)
