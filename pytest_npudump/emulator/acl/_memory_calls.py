"""``acl.rt.malloc``, ``acl.rt.memcpy`` and their kin.

Sources: ``memory.cpp`` (``MemcpyKindTranslate``), ``api_error.cc`` and ``api_impl.cc`` (``MemCopySync``,
``MemcpyAsync``, ``MemSetSync``) of hicann/runtime, and the documents of ``acl.rt.memcpy``: the kind of a copy
has to be one that there is, but CANN goes by the addresses, whatever the kind says.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_npudump.emulator.acl._calls import CODE, RT
from pytest_npudump.emulator.acl._streams import here, own_stream
from pytest_npudump.emulator.machine import codes
from pytest_npudump.emulator.machine.codes import RefusedError
from pytest_npudump.emulator.machine.memory import DEVICE, HOST
from pytest_npudump.emulator.machine.streams import Stream, Work
from pytest_npudump.emulator.process.state import process

if TYPE_CHECKING:
    from collections.abc import Callable

    from pytest_npudump.emulator.machine.memory import Bytes

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
