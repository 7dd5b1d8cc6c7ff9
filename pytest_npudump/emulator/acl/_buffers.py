"""``acl.create_data_buffer`` and its kin."""

from __future__ import annotations

from dataclasses import dataclass

from pytest_npudump.emulator.machine import codes
from pytest_npudump.emulator.machine.parse_tuple import parse
from pytest_npudump.emulator.process.state import process


@dataclass(slots=True)
class DataBuffer:
    """An address and a size in bytes; neither is checked before the buffer is used, as in ACL."""

    address: int
    size: int


def create_data_buffer(*args: object) -> int:
    """``(ptr, size) -> handle``."""
    address, size = parse("acl.create_data_buffer", "kk", args)
    return process().handles.add(DataBuffer(address, size))


def destroy_data_buffer(*args: object) -> int:
    """``(handle) -> ret``."""
    (handle,) = parse("acl.destroy_data_buffer", "k", args)
    found = process().handles.remove(handle, DataBuffer)
    return codes.INVALID_PARAM if found is None else codes.SUCCESS


def get_data_buffer_addr(*args: object) -> int:
    """``(handle) -> ptr``."""
    (handle,) = parse("acl.get_data_buffer_addr", "k", args)
    buffer = process().handles.get(handle, DataBuffer)
    return 0 if buffer is None else buffer.address


def _size(call: str, args: tuple[object, ...]) -> int:
    (handle,) = parse(call, "k", args)
    buffer = process().handles.get(handle, DataBuffer)
    return 0 if buffer is None else buffer.size


def get_data_buffer_size(*args: object) -> int:
    """``(handle) -> bytes``."""
    return _size("acl.get_data_buffer_size", args)


def get_data_buffer_size_v2(*args: object) -> int:
    """``(handle) -> bytes``."""
    return _size("acl.get_data_buffer_size_v2", args)


def update_data_buffer(*args: object) -> int:
    """``(handle, ptr, size) -> ret``."""
    handle, address, size = parse("acl.update_data_buffer", "kkk", args)
    buffer = process().handles.get(handle, DataBuffer)
    if buffer is None:
        return codes.INVALID_PARAM
    buffer.address, buffer.size = address, size
    return codes.SUCCESS
