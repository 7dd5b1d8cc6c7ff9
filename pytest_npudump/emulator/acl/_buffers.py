"""``acl.create_data_buffer`` and its kin."""

from __future__ import annotations

from dataclasses import dataclass

from pytest_npudump.emulator.acl._calls import ACL, CODE, destroy
from pytest_npudump.emulator.process.state import process


@dataclass(slots=True)
class DataBuffer:
    """An address and a size in bytes; neither is checked before the buffer is used, as in ACL."""

    address: int
    size: int


@ACL(DataBuffer, "kk")
def update_data_buffer(buffer: DataBuffer, address: int, size: int) -> None:
    """``(handle, ptr, size) -> ret``."""
    buffer.address, buffer.size = address, size


ACL.table(
    {
        "create_data_buffer": ("kk", 0, lambda ptr, size: process().handles.add(DataBuffer(ptr, size))),
        "destroy_data_buffer": ("k", CODE, destroy(DataBuffer)),
        "get_data_buffer_addr": (DataBuffer, 0, lambda buffer: buffer.address),
        "get_data_buffer_size": (DataBuffer, 0, lambda buffer: buffer.size),
        "get_data_buffer_size_v2": (DataBuffer, 0, lambda buffer: buffer.size),
    }
)
