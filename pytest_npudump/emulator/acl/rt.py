"""``acl.rt``: devices, contexts, streams and memory."""

from __future__ import annotations

from typing import TYPE_CHECKING, NoReturn

from pytest_npudump.emulator import codes
from pytest_npudump.emulator.arguments import parse
from pytest_npudump.emulator.memory import DEVICE_BYTES
from pytest_npudump.emulator.state import DEFAULT_STREAM, DEVICES, Context, Stream, process
from pytest_npudump.emulator.unsupported import missing

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = [
    "create_context",
    "create_stream",
    "destroy_context",
    "destroy_stream",
    "free",
    "free_host",
    "get_context",
    "get_device",
    "get_device_count",
    "get_device_sat_mode",
    "get_mem_info",
    "get_run_mode",
    "get_stream_overflow_switch",
    "malloc",
    "malloc_align32",
    "malloc_cached",
    "malloc_host",
    "memcpy",
    "memcpy_async",
    "memset",
    "memset_async",
    "reset_device",
    "reset_device_force",
    "set_context",
    "set_device",
    "set_device_sat_mode",
    "set_stream_overflow_switch",
    "synchronize_device",
    "synchronize_stream",
]

_RUN_MODE_HOST = 1
_INF_NAN_MODE = 1
_LAST_MEMCPY_KIND = 3


def _refuse(code: int, message: str) -> int:
    return process().explain(code, message)


def set_device(*args: object) -> int:
    """``(device) -> ret``: makes the device's default context the calling thread's."""
    (device,) = parse("acl.rt.set_device", "i", args)
    if not 0 <= device < DEVICES:
        message = f"acl.rt.set_device: device {device} of {DEVICES} emulated devices (0 to {DEVICES - 1})"
        return _refuse(codes.RT_INVALID_DEVICEID, message)
    state = process()
    with state.lock:
        state.device_uses[device] += 1
        if device not in state.default_contexts:
            state.default_contexts[device] = state.handles.add(Context(device))
    state.context_handle = state.default_contexts[device]
    return codes.SUCCESS


def reset_device(*args: object) -> int:
    """``(device) -> ret``: after as many calls as of ``set_device`` the device's memory is freed."""
    (device,) = parse("acl.rt.reset_device", "i", args)
    return _reset(device, process().device_uses[device] - 1)


def reset_device_force(*args: object) -> int:
    """``(device) -> ret``: frees the device's memory whoever else uses it."""
    (device,) = parse("acl.rt.reset_device_force", "i", args)
    return _reset(device, 0)


def _reset(device: int, uses: int) -> int:
    if not 0 <= device < DEVICES:
        return _refuse(codes.RT_INVALID_DEVICEID, f"acl.rt.reset_device: there is no device {device}")
    state = process()
    with state.lock:
        state.device_uses[device] = max(uses, 0)
        if uses <= 0:
            state.memory.release_device(device)
            handle = state.default_contexts.pop(device, 0)
            state.handles.remove(handle, Context)
    return codes.SUCCESS


def get_device(*_: object) -> tuple[int, int]:
    """``() -> (device, ret)``."""
    context = process().context
    if context is None:
        return 0, _no_context("acl.rt.get_device")
    return context.device, codes.SUCCESS


def get_device_count(*_: object) -> tuple[int, int]:
    """``() -> (devices, ret)``."""
    return DEVICES, codes.SUCCESS


def get_run_mode(*_: object) -> tuple[int, int]:
    """``() -> (mode, ret)``: always 1, ``ACL_HOST``."""
    return _RUN_MODE_HOST, codes.SUCCESS


def _no_context(call: str) -> int:
    return _refuse(codes.RT_CONTEXT_NULL, f"{call}: this thread has no context; call acl.rt.set_device first")


def create_context(*args: object) -> tuple[int, int]:
    """``(device) -> (context, ret)``: the new context is the calling thread's."""
    (device,) = parse("acl.rt.create_context", "i", args)
    if not 0 <= device < DEVICES:
        return 0, _refuse(codes.RT_INVALID_DEVICEID, f"acl.rt.create_context: there is no device {device}")
    state = process()
    state.context_handle = state.handles.add(Context(device))
    return state.context_handle, codes.SUCCESS


def destroy_context(*args: object) -> int:
    """``(context) -> ret``."""
    (handle,) = parse("acl.rt.destroy_context", "k", args)
    if process().handles.remove(handle, Context) is None:
        return _refuse(codes.INVALID_PARAM, f"acl.rt.destroy_context: {handle:#x} is no context")
    return codes.SUCCESS


def set_context(*args: object) -> int:
    """``(context) -> ret``."""
    (handle,) = parse("acl.rt.set_context", "k", args)
    state = process()
    if state.handles.get(handle, Context) is None:
        return _refuse(codes.INVALID_PARAM, f"acl.rt.set_context: {handle:#x} is no context")
    state.context_handle = handle
    return codes.SUCCESS


def get_context(*_: object) -> tuple[int, int]:
    """``() -> (context, ret)``."""
    state = process()
    if state.context is None:
        return 0, _no_context("acl.rt.get_context")
    return state.context_handle, codes.SUCCESS


def create_stream(*_: object) -> tuple[int, int]:
    """``() -> (stream, ret)``."""
    state = process()
    context = state.context
    if context is None:
        return 0, _no_context("acl.rt.create_stream")
    return state.handles.add(Stream(context.device, next(state.stream_ids))), codes.SUCCESS


def destroy_stream(*args: object) -> int:
    """``(stream) -> ret``."""
    (handle,) = parse("acl.rt.destroy_stream", "k", args)
    if process().handles.remove(handle, Stream) is None:
        return _refuse(codes.INVALID_PARAM, f"acl.rt.destroy_stream: {handle:#x} is no stream")
    return codes.SUCCESS


def _known_stream(call: str, handle: int) -> int:
    if handle != DEFAULT_STREAM and process().handles.get(handle, Stream) is None:
        return _refuse(codes.RT_PARAM_INVALID, f"{call}: {handle:#x} is no stream")
    return codes.SUCCESS


def synchronize_stream(*args: object) -> int:
    """``(stream) -> ret``: nothing to wait for, calls of the emulator return when their work is done."""
    (handle,) = parse("acl.rt.synchronize_stream", "k", args)
    return _known_stream("acl.rt.synchronize_stream", handle)


def synchronize_device(*_: object) -> int:
    """``() -> ret``."""
    return codes.SUCCESS if process().context is not None else _no_context("acl.rt.synchronize_device")


def _allocate(call: str, size: int, kind: str) -> tuple[int, int]:
    state = process()
    if not size:
        return 0, _refuse(codes.INVALID_PARAM, f"{call}: the size is 0")
    if state.context is None:
        return 0, _no_context(call)
    try:
        with state.lock:
            return state.memory.allocate(size, kind, state.context.device), codes.SUCCESS
    except (MemoryError, ValueError):
        return 0, _refuse(codes.RT_MEMORY_ALLOCATION, f"{call}: no room for {size} bytes")


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
        return _refuse(codes.INVALID_PARAM, f"{call}: the pointer is NULL")
    with state.lock:
        if state.memory.free(address, kind):
            return codes.SUCCESS
    return _refuse(codes.RT_PARAM_INVALID, f"{call}: {address:#x} is no {kind} memory that was allocated")


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
        return _refuse(codes.INVALID_PARAM, f"{call}: a pointer is NULL")
    if not 0 < count <= room:
        return _refuse(codes.RT_PARAM_INVALID, f"{call}: {count} bytes into {room}")
    if not 0 <= kind <= _LAST_MEMCPY_KIND:
        return _refuse(codes.RT_PARAM_INVALID, f"{call}: {kind} is no direction (0 to 3)")
    memory = process().memory
    target, data = memory.find(destination, count), memory.find(source, count)
    if target is None or data is None:
        address = destination if target is None else source
        message = f"{call}: {count} bytes at {address:#x} are not allocated memory"
        return _refuse(codes.RT_PARAM_INVALID, message)
    target[:] = data
    return codes.SUCCESS


def memcpy(*args: object) -> int:
    """``(dst, dst_max, src, count, kind) -> ret``."""
    return _copy("acl.rt.memcpy", parse("acl.rt.memcpy", "kkkki", args))


def memcpy_async(*args: object) -> int:
    """``(dst, dst_max, src, count, kind, stream) -> ret``, done when it returns."""
    *copied, stream = parse("acl.rt.memcpy_async", "kkkkik", args)
    return _known_stream("acl.rt.memcpy_async", stream) or _copy("acl.rt.memcpy_async", copied)


def _fill(call: str, address: int, room: int, value: int, count: int) -> int:
    if not address:
        return _refuse(codes.INVALID_PARAM, f"{call}: the pointer is NULL")
    if not 0 < count <= room:
        return _refuse(codes.RT_PARAM_INVALID, f"{call}: {count} bytes into {room}")
    target = process().memory.find(address, count)
    if target is None:
        message = f"{call}: {count} bytes at {address:#x} are not allocated memory"
        return _refuse(codes.RT_PARAM_INVALID, message)
    target[:] = value & 0xFF
    return codes.SUCCESS


def memset(*args: object) -> int:
    """``(ptr, max, value, count) -> ret``."""
    return _fill("acl.rt.memset", *parse("acl.rt.memset", "kkik", args))


def memset_async(*args: object) -> int:
    """``(ptr, max, value, count, stream) -> ret``, done when it returns."""
    *filled, stream = parse("acl.rt.memset_async", "kkikk", args)
    return _known_stream("acl.rt.memset_async", stream) or _fill("acl.rt.memset_async", *filled)


def get_mem_info(*args: object) -> tuple[int, int, int]:
    """``(attribute) -> (free, total, ret)`` in bytes."""
    parse("acl.rt.get_mem_info", "i", args)
    state = process()
    if state.context is None:
        return 0, 0, _no_context("acl.rt.get_mem_info")
    return DEVICE_BYTES - state.memory.used(state.context.device), DEVICE_BYTES, codes.SUCCESS


def get_device_sat_mode(*_: object) -> tuple[int, int]:
    """``() -> (mode, ret)``: always 1, INF/NAN: that is how a CPU computes."""
    return _INF_NAN_MODE, codes.SUCCESS


def set_device_sat_mode(*args: object) -> int:
    """``(mode) -> ret``: only the INF/NAN mode there is."""
    (mode,) = parse("acl.rt.set_device_sat_mode", "i", args)
    if mode != _INF_NAN_MODE:
        message = "acl.rt.set_device_sat_mode: the emulator computes in INF/NAN mode only"
        return _refuse(codes.RT_FEATURE_NOT_SUPPORT, message)
    return codes.SUCCESS


def set_stream_overflow_switch(*args: object) -> int:
    """``(stream, flag) -> ret``: detection can only be left off."""
    handle, flag = parse("acl.rt.set_stream_overflow_switch", "kI", args)
    if flag:
        message = "acl.rt.set_stream_overflow_switch: the emulator cannot detect overflows"
        return _refuse(codes.RT_FEATURE_NOT_SUPPORT, message)
    return _known_stream("acl.rt.set_stream_overflow_switch", handle)


def get_stream_overflow_switch(*args: object) -> tuple[int, int]:
    """``(stream) -> (flag, ret)``."""
    (handle,) = parse("acl.rt.get_stream_overflow_switch", "k", args)
    return 0, _known_stream("acl.rt.get_stream_overflow_switch", handle)


def __getattr__(name: str) -> NoReturn:
    missing("acl.rt", name)
