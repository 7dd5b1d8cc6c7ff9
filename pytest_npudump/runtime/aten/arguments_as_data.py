"""The arguments of a call as plain JSON data, and back: nothing of it is ever executed."""

from __future__ import annotations

import math
import sys
from typing import TYPE_CHECKING, Any

from pytest_npudump.runtime.aten.host_copy import NotCopiedError, View

if TYPE_CHECKING:
    from collections.abc import Mapping

_NAMED = ("dtype", "layout", "memory_format")
"""Types of torch whose values are known by name."""


def as_data(value: Any, memory: Mapping[tuple[int, str], str]) -> Any:
    """Return an argument as data: what JSON has no word for as an object whose only key says what it is.

    Args:
        value: of a :class:`~.host_copy.HostCopy`, with views in place of tensors.
        memory: the names of the pieces of memory.

    Raises:
        NotCopiedError: it is of a type that cannot be written.
    """
    if isinstance(value, View):
        return {"tensor": [memory[value.memory], list(value.sizes), list(value.strides), value.offset]}
    if isinstance(value, list | tuple):
        return [as_data(each, memory) for each in value]
    if isinstance(value, complex):
        return {"complex": [as_data(value.real, memory), as_data(value.imag, memory)]}
    if isinstance(value, float) and not math.isfinite(value):
        return {"float": str(value)}
    if value is None or isinstance(value, bool | int | float | str):
        return value
    return _of_torch(value)


def _of_torch(value: Any) -> Any:
    torch = sys.modules["torch"]
    if isinstance(value, torch.device):
        return {"device": str(value)}
    for kind in _NAMED:
        if isinstance(value, getattr(torch, kind)):
            return {kind: str(value).rpartition(".")[2]}
    raise NotCopiedError(f"an argument of type {type(value).__name__} cannot be written to a file")


def from_data(data: Any, dtypes: Mapping[str, str]) -> Any:
    """Return the argument that :func:`as_data` was given; the pieces of memory have numbers for addresses.

    Args:
        data: of an argument.
        dtypes: of the pieces of memory, in the order of their numbers.

    Raises:
        ValueError: it is no such data.
    """
    if isinstance(data, list):
        return [from_data(each, dtypes) for each in data]
    if not isinstance(data, dict):
        return data
    ((kind, value),) = data.items()
    if kind == "tensor":
        name, sizes, strides, offset = value
        return View(([*dtypes].index(name), dtypes[name]), tuple(sizes), tuple(strides), offset)
    if kind == "complex":
        return complex(*(from_data(part, dtypes) for part in value))
    return _named(kind, value)


def _named(kind: str, value: str) -> Any:
    torch = sys.modules["torch"]
    if kind == "float":
        return float(value)
    if kind == "device":
        return torch.device("cpu")
    if kind in _NAMED:
        return getattr(torch, value)
    raise ValueError(f"unknown kind of argument {kind!r}")
