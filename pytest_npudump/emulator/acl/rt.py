"""``acl.rt``: devices, contexts, memory, and what :mod:`pytest_npudump.emulator.acl._streams` adds to it.

Sources: ``memory.cpp`` (``MemcpyKindTranslate``), ``api_error.cc`` and ``api_impl.cc`` (``MemCopySync``,
``MemcpyAsync``, ``MemSetSync``) of hicann/runtime, and the documents of ``acl.rt.memcpy``: the kind of a copy
has to be one that there is, but CANN goes by the addresses, whatever the kind says.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NoReturn

from pytest_npudump.emulator import codes
from pytest_npudump.emulator.acl._calls import CODE, RT, known
from pytest_npudump.emulator.acl._streams import here, own_stream, wait_for
from pytest_npudump.emulator.codes import RefusedError, missing
from pytest_npudump.emulator.memory import DEVICE, DEVICE_BYTES, HOST
from pytest_npudump.emulator.process import DEVICES, process
from pytest_npudump.emulator.streams import DeviceContext, Stream, Work

if TYPE_CHECKING:
    from collections.abc import Callable

    from pytest_npudump.emulator.memory import Bytes


_RUN_MODE_HOST = 1
_INF_NAN_MODE = 1


def _check(device: int) -> None:
    if not 0 <= device < DEVICES:
        message = f"device {device} of {DEVICES} emulated devices (0 to {DEVICES - 1})"
        raise RefusedError(codes.RT_INVALID_DEVICEID, message)


@RT("i")
def set_device(device: int) -> None:
    """``(device) -> ret``: makes the device's default context the calling thread's."""
    _check(device)
    state = process()
    with state.lock:
        state.device_uses[device] += 1
        if device not in state.default_contexts:
            state.default_contexts[device] = state.handles.add(DeviceContext(device))
    state.context_handle = state.default_contexts[device]


def _reset(device: int, uses: int) -> None:
    _check(device)
    state = process()
    with state.lock:
        state.device_uses[device] = max(uses, 0)
        if uses <= 0:
            state.memory.release_device(device)
            handle = state.default_contexts.pop(device, 0)
            state.handles.remove(handle, DeviceContext)


@RT("i", refused=(0, CODE))
def create_context(device: int) -> int:
    """``(device) -> (context, ret)``: the new context is the calling thread's."""
    _check(device)
    state = process()
    state.context_handle = state.handles.add(DeviceContext(device))
    return state.context_handle


@RT("k")
def destroy_context(handle: int) -> None:
    """``(context) -> ret``: 107002 for what is no context, and for one that ``set_device`` has created.

    Source: ``ContextDestroy`` of hicann/runtime's ``api_impl.cc``.
    """
    if not handle:
        raise RefusedError(codes.INVALID_PARAM, "the context is NULL")
    state = process()
    default = handle in state.default_contexts.values()
    if default or state.handles.remove(handle, DeviceContext) is None:
        what = "the default context of a device" if default else "no context"
        raise RefusedError(codes.RT_CONTEXT_NULL, f"{handle:#x} is {what}")


@RT("k")
def set_context(handle: int) -> None:
    """``(context) -> ret``."""
    known(DeviceContext, handle)
    process().context_handle = handle


@RT(refused=(0, CODE))
def get_context() -> int:
    """``() -> (context, ret)``."""
    here()
    return process().context_handle


@RT()
def synchronize_device() -> None:
    """``() -> ret``, when all streams of the context's device are done; the code of what failed on them."""
    device, handles = here().device, process().handles
    every = [*(context.stream for context in handles.all(DeviceContext)), *handles.all(Stream)]
    failed = []
    for stream in every:
        if stream.context.device == device:
            try:
                wait_for(stream)
            except RefusedError as error:
                failed.append(error)
    if failed:
        raise failed[0]


@RT("i", refused=(0, 0, CODE))
def get_mem_info(_: int) -> tuple[int, int]:
    """``(attribute) -> (free, total, ret)`` in bytes."""
    return DEVICE_BYTES - process().memory.used(here().device), DEVICE_BYTES


@RT("i")
def set_device_sat_mode(mode: int) -> None:
    """``(mode) -> ret``: only the INF/NAN mode there is."""
    if mode != _INF_NAN_MODE:
        raise RefusedError(codes.RT_FEATURE_NOT_SUPPORT, "the emulator computes in INF/NAN mode only")


RT.table(
    {
        # After as many calls as of set_device the device's memory is freed, at once where it is forced.
        "reset_device": ("i", CODE, lambda device: _reset(device, process().device_uses[device] - 1)),
        "reset_device_force": ("i", CODE, lambda device: _reset(device, 0)),
        "get_device": ((), (0, CODE), lambda: here().device),
        "get_device_count": ((), (0, CODE), lambda: DEVICES),
        "get_run_mode": ((), (0, CODE), lambda: _RUN_MODE_HOST),
        "get_device_sat_mode": ((), (0, CODE), lambda: _INF_NAN_MODE),  # that is how a CPU computes
    }
)


_HOST_TO_HOST = 0
_LAST_MEMCPY_KIND = 5
"""``ACL_MEMCPY_HOST_TO_BUF_TO_DEVICE``; 4 is ``ACL_MEMCPY_DEFAULT``."""


def _allocate(size: int, kind: str) -> int:
    if not size:
        raise RefusedError(codes.INVALID_PARAM, "the size is 0")
    state, device = process(), here().device
    try:
        with state.lock:
            return state.memory.allocate(size, kind, device)
    except (MemoryError, ValueError):
        raise RefusedError(codes.RT_MEMORY_ALLOCATION, f"no room for {size} bytes") from None


def _free(address: int, kind: str) -> None:
    state = process()
    if not address:
        raise RefusedError(codes.INVALID_PARAM, "the pointer is NULL")
    with state.lock:
        freed = state.memory.free(address, kind)
    if not freed:
        message = f"{address:#x} is no {kind} memory that was allocated"
        raise RefusedError(codes.RT_PARAM_INVALID, message)


def _copy(  # noqa: PLR0917 - pyACL's list
    destination: int, room: int, source: int, count: int, kind: int, handle: int | None = None
) -> None:
    """Copy at once, or on the stream of ``handle``.

    Between devices that needs ``acl.rt.device_enable_peer_access``, which the emulator does not have; CANN's
    documents name no code for that. A stream copies nothing from host to host (207000).
    """
    if not destination or not source:
        raise RefusedError(codes.INVALID_PARAM, "a pointer is NULL")
    if not 0 <= kind <= _LAST_MEMCPY_KIND:
        raise RefusedError(codes.INVALID_PARAM, f"{kind} is no direction (0 to {_LAST_MEMCPY_KIND})")
    if not 0 < count <= room:
        raise RefusedError(codes.RT_PARAM_INVALID, f"{count} bytes into {room}")
    stream, memory = _place(handle), process().memory
    target, data = _found(destination, count), _found(source, count)
    regions = [memory.region(address, count) for address in (destination, source)]
    devices = {region.device for region in regions if region is not None and region.kind == DEVICE}
    if len(devices) > 1:
        message = f"from one device to another ({sorted(devices)}) without peer access"
        raise RefusedError(codes.RT_PARAM_INVALID, message)
    if stream is not None and (kind == _HOST_TO_HOST or not devices):
        message = "host to host is not supported on a stream; use acl.rt.memcpy"
        raise RefusedError(codes.RT_FEATURE_NOT_SUPPORT, message)
    _do(stream, lambda: target.__setitem__(slice(None), data))


def _fill(address: int, room: int, value: int, count: int, handle: int | None = None) -> None:
    if not address:
        raise RefusedError(codes.INVALID_PARAM, "the pointer is NULL")
    if not 0 < count <= room:
        raise RefusedError(codes.RT_PARAM_INVALID, f"{count} bytes into {room}")
    stream = _place(handle)
    target = _found(address, count)
    _do(stream, lambda: target.__setitem__(slice(None), value & 0xFF))


def _place(handle: int | None) -> Stream | None:
    """Return the stream to work on, None for work that is done at once."""
    if handle is not None:
        return own_stream(handle)
    here()
    return None


def _found(address: int, count: int) -> Bytes:
    found = process().memory.find(address, count)
    if found is None:
        raise RefusedError(codes.RT_PARAM_INVALID, f"{count} bytes at {address:#x} are not allocated memory")
    return found


def _do(stream: Stream | None, work: Callable[[], None]) -> None:
    if stream is None:
        work()
    else:
        process().streams.put(stream, Work(stream, work))


RT.table(
    {
        # Memory is zeroed; the policy makes no difference.
        "malloc": ("ki", (0, CODE), lambda size, _: _allocate(size, DEVICE)),
        "malloc_align32": ("ki", (0, CODE), lambda size, _: _allocate(size, DEVICE)),
        "malloc_cached": ("ki", (0, CODE), lambda size, _: _allocate(size, DEVICE)),
        "malloc_host": ("k", (0, CODE), lambda size: _allocate(size, HOST)),
        "free": ("k", CODE, lambda address: _free(address, DEVICE)),
        "free_host": ("k", CODE, lambda address: _free(address, HOST)),
        # destination, its size, source, bytes, kind; address, its size, value, bytes
        "memcpy": ("kkkki", CODE, _copy),
        "memcpy_async": ("kkkkik", CODE, _copy),
        "memset": ("kkik", CODE, _fill),
        "memset_async": ("kkikk", CODE, _fill),
    }
)


globals().update(RT.calls, __all__=[*RT.calls])


def __getattr__(name: str) -> NoReturn:
    missing("acl.rt", name)
