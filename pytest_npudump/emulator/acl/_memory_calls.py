"""``acl.rt.malloc``, ``acl.rt.memcpy`` and their kin."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_npudump.emulator import codes
from pytest_npudump.emulator.acl._streams import known_stream, no_context, refuse
from pytest_npudump.emulator.arguments import parse
from pytest_npudump.emulator.state import process

if TYPE_CHECKING:
    from collections.abc import Sequence

_LAST_MEMCPY_KIND = 3


def _allocate(call: str, size: int, kind: str) -> tuple[int, int]:
    state = process()
    if not size:
        return 0, refuse(codes.INVALID_PARAM, f"{call}: the size is 0")
    if state.context is None:
        return 0, no_context(call)
    try:
        with state.lock:
            return state.memory.allocate(size, kind, state.context.device), codes.SUCCESS
    except (MemoryError, ValueError):
        return 0, refuse(codes.RT_MEMORY_ALLOCATION, f"{call}: no room for {size} bytes")


def malloc(*args: object) -> tuple[int, int]:
    """``(size, policy) -> (ptr, ret)`` of device memory, zeroed."""
    size, _ = parse("acl.rt.malloc", "ki", args)
    return _allocate("acl.rt.malloc", size, "device")


def malloc_align32(*args: object) -> tuple[int, int]:
    """``(size, policy) -> (ptr, ret)`` of device memory, zeroed."""
    size, _ = parse("acl.rt.malloc_align32", "ki", args)
    return _allocate("acl.rt.malloc_align32", size, "device")


def malloc_cached(*args: object) -> tuple[int, int]:
    """``(size, policy) -> (ptr, ret)`` of device memory, zeroed."""
    size, _ = parse("acl.rt.malloc_cached", "ki", args)
    return _allocate("acl.rt.malloc_cached", size, "device")


def malloc_host(*args: object) -> tuple[int, int]:
    """``(size) -> (ptr, ret)`` of host memory, zeroed."""
    (size,) = parse("acl.rt.malloc_host", "k", args)
    return _allocate("acl.rt.malloc_host", size, "host")


def _free(call: str, address: int, kind: str) -> int:
    state = process()
    if not address:
        return refuse(codes.INVALID_PARAM, f"{call}: the pointer is NULL")
    with state.lock:
        if state.memory.free(address, kind):
            return codes.SUCCESS
    return refuse(codes.RT_PARAM_INVALID, f"{call}: {address:#x} is no {kind} memory that was allocated")


def free(*args: object) -> int:
    """``(ptr) -> ret`` for device memory."""
    (address,) = parse("acl.rt.free", "k", args)
    return _free("acl.rt.free", address, "device")


def free_host(*args: object) -> int:
    """``(ptr) -> ret`` for host memory."""
    (address,) = parse("acl.rt.free_host", "k", args)
    return _free("acl.rt.free_host", address, "host")


def _copy(call: str, args: Sequence[int]) -> int:
    destination, room, source, count, kind = args
    if not destination or not source:
        return refuse(codes.INVALID_PARAM, f"{call}: a pointer is NULL")
    if not 0 < count <= room:
        return refuse(codes.RT_PARAM_INVALID, f"{call}: {count} bytes into {room}")
    if not 0 <= kind <= _LAST_MEMCPY_KIND:
        return refuse(codes.RT_PARAM_INVALID, f"{call}: {kind} is no direction (0 to 3)")
    memory = process().memory
    target, data = memory.find(destination, count), memory.find(source, count)
    if target is None or data is None:
        address = destination if target is None else source
        message = f"{call}: {count} bytes at {address:#x} are not allocated memory"
        return refuse(codes.RT_PARAM_INVALID, message)
    target[:] = data
    return codes.SUCCESS


def memcpy(*args: object) -> int:
    """``(dst, dst_max, src, count, kind) -> ret``."""
    return _copy("acl.rt.memcpy", parse("acl.rt.memcpy", "kkkki", args))


def memcpy_async(*args: object) -> int:
    """``(dst, dst_max, src, count, kind, stream) -> ret``, done when it returns."""
    *copied, stream = parse("acl.rt.memcpy_async", "kkkkik", args)
    return known_stream("acl.rt.memcpy_async", stream) or _copy("acl.rt.memcpy_async", copied)


def _fill(call: str, address: int, room: int, value: int, count: int) -> int:
    if not address:
        return refuse(codes.INVALID_PARAM, f"{call}: the pointer is NULL")
    if not 0 < count <= room:
        return refuse(codes.RT_PARAM_INVALID, f"{call}: {count} bytes into {room}")
    target = process().memory.find(address, count)
    if target is None:
        message = f"{call}: {count} bytes at {address:#x} are not allocated memory"
        return refuse(codes.RT_PARAM_INVALID, message)
    target[:] = value & 0xFF
    return codes.SUCCESS


def memset(*args: object) -> int:
    """``(ptr, max, value, count) -> ret``."""
    return _fill("acl.rt.memset", *parse("acl.rt.memset", "kkik", args))


def memset_async(*args: object) -> int:
    """``(ptr, max, value, count, stream) -> ret``, done when it returns."""
    *filled, stream = parse("acl.rt.memset_async", "kkikk", args)
    return known_stream("acl.rt.memset_async", stream) or _fill("acl.rt.memset_async", *filled)
