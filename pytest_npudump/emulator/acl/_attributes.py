"""``acl.op.create_attr`` and the setters of attributes."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from pytest_npudump.emulator.machine import codes
from pytest_npudump.emulator.machine.parse_tuple import integers, parse
from pytest_npudump.emulator.process.state import process


@dataclass(slots=True)
class OperatorAttributes:
    """Attributes of an operator, by name."""

    values: dict[str, Any] = field(default_factory=dict)


def create_attr(*_: object) -> int:
    """``() -> handle``."""
    return process().handles.add(OperatorAttributes())


def destroy_attr(*args: object) -> None:
    """``(attr) -> None``."""
    (handle,) = parse("acl.op.destroy_attr", "k", args)
    process().handles.remove(handle, OperatorAttributes)


def _set(handle: int, name: str, value: Any) -> int:
    attributes = process().handles.get(handle, OperatorAttributes)
    if attributes is None:
        return process().explain(codes.INVALID_PARAM, f"{handle:#x} is no operator attribute")
    attributes.values[name] = value
    return codes.SUCCESS


def set_attr_bool(*args: object) -> int:
    """``(attr, name, 0 or 1) -> ret``."""
    handle, name, value = parse("acl.op.set_attr_bool", "ksB", args)
    return _set(handle, name, int(bool(value)))


def set_attr_int(*args: object) -> int:
    """``(attr, name, value) -> ret``."""
    return _set(*parse("acl.op.set_attr_int", "ksL", args))


def set_attr_float(*args: object) -> int:
    """``(attr, name, value) -> ret``, rounded to float32 as in C."""
    handle, name, value = parse("acl.op.set_attr_float", "ksf", args)
    return _set(handle, name, float(np.float32(value)))


def set_attr_string(*args: object) -> int:
    """``(attr, name, value) -> ret``."""
    return _set(*parse("acl.op.set_attr_string", "kss", args))


def set_attr_data_type(*args: object) -> tuple[int, int]:
    """``(attr, name, aclDataType) -> (attr, ret)``."""
    handle, name, value = parse("acl.op.set_attr_data_type", "ksi", args)
    return handle, _set(handle, name, value)


def _members(call: str, values: object) -> list[Any]:
    """Return the members of a list, or of an array, which pyACL takes too."""
    if isinstance(values, np.ndarray):
        return list(values.reshape(-1).tolist())
    if not isinstance(values, list):
        raise TypeError(f"{call} args parse failed!")
    return values


def set_attr_list_bool(*args: object) -> int:
    """``(attr, name, values) -> ret``."""
    handle, name, values = parse("acl.op.set_attr_list_bool", "ksO", args)
    return _set(handle, name, [int(bool(v)) for v in _members("acl.op.set_attr_list_bool", values)])


def set_attr_list_int(*args: object) -> int:
    """``(attr, name, values) -> ret``."""
    call = "acl.op.set_attr_list_int"
    handle, name, values = parse(call, "ksO", args)
    return _set(handle, name, integers(call, _members(call, values)))


def set_attr_list_float(*args: object) -> int:
    """``(attr, name, values) -> ret``, rounded to float32 as in C."""
    call = "acl.op.set_attr_list_float"
    handle, name, values = parse(call, "ksO", args)
    members = (parse(call, "f", (value,))[0] for value in _members(call, values))
    return _set(handle, name, [float(np.float32(value)) for value in members])


def set_attr_list_string(*args: object) -> int:
    """``(attr, name, values) -> ret``."""
    call = "acl.op.set_attr_list_string"
    handle, name, values = parse(call, "ksl", args)
    return _set(handle, name, [parse(call, "s", (value,))[0] for value in values])
