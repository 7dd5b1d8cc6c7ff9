"""``acl.rt.malloc``, ``acl.rt.memcpy`` and their kin.

Sources: ``memory.cpp`` (``MemcpyKindTranslate``), ``api_error.cc`` and ``api_impl.cc`` (``MemCopySync``,
``MemcpyAsync``, ``MemSetSync``) of hicann/runtime, and the documents of ``acl.rt.memcpy``: the kind of a copy
has to be one that there is, but CANN goes by the addresses, whatever the kind says.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_npudump.emulator.acl._refusals import no_context, own_stream, refuse
from pytest_npudump.emulator.machine import codes
from pytest_npudump.emulator.machine.memory import DEVICE, HOST
from pytest_npudump.emulator.machine.parse_tuple import parse
from pytest_npudump.emulator.machine.streams import Failure, Stream, Work
from pytest_npudump.emulator.process.state import process

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pytest_npudump.emulator.machine.memory import Region

_HOST_TO_HOST = 0
_LAST_MEMCPY_KIND = 5
"""``ACL_MEMCPY_HOST_TO_BUF_TO_DEVICE``; 4 is ``ACL_MEMCPY_DEFAULT``."""


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
    return _allocate("acl.rt.malloc", size, DEVICE)


def malloc_align32(*args: object) -> tuple[int, int]:
    """``(size, policy) -> (ptr, ret)`` of device memory, zeroed."""
    size, _ = parse("acl.rt.malloc_align32", "ki", args)
    return _allocate("acl.rt.malloc_align32", size, DEVICE)


def malloc_cached(*args: object) -> tuple[int, int]:
    """``(size, policy) -> (ptr, ret)`` of device memory, zeroed."""
    size, _ = parse("acl.rt.malloc_cached", "ki", args)
    return _allocate("acl.rt.malloc_cached", size, DEVICE)


def malloc_host(*args: object) -> tuple[int, int]:
    """``(size) -> (ptr, ret)`` of host memory, zeroed."""
    (size,) = parse("acl.rt.malloc_host", "k", args)
    return _allocate("acl.rt.malloc_host", size, HOST)


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
    return _free("acl.rt.free", address, DEVICE)


def free_host(*args: object) -> int:
    """``(ptr) -> ret`` for host memory."""
    (address,) = parse("acl.rt.free_host", "k", args)
    return _free("acl.rt.free_host", address, HOST)


def _copy(call: str, args: Sequence[int], handle: int | None = None) -> int:
    """Copy at once, or on the stream of ``handle``."""
    code, why = _misused(args)
    if code:
        return refuse(code, f"{call}: {why}")
    stream = _place(call, handle)
    if isinstance(stream, int):
        return stream
    destination, _, source, count, kind = args
    memory = process().memory
    regions = [memory.region(address, count) for address in (destination, source)]
    target, data = memory.find(destination, count), memory.find(source, count)
    if target is None or data is None:
        address = destination if target is None else source
        message = f"{call}: {count} bytes at {address:#x} are not allocated memory"
        return refuse(codes.RT_PARAM_INVALID, message)
    code, why = _unfit(regions, kind, asynchronous=stream is not None)
    if code:
        return refuse(code, f"{call}: {why}")
    return _do(stream, lambda: target.__setitem__(slice(None), data))


def _misused(args: Sequence[int]) -> tuple[int, str]:
    """Return the code and the reason that stand against the arguments of a copy, 0 where nothing does.

    The direction only has to be one (``MemcpyKindTranslate`` of hicann/runtime's ``memory.cpp``): pyACL's
    documents of ``acl.rt.memcpy`` say that the addresses decide and ``kind`` is reserved.
    """
    destination, room, source, count, kind = args
    if not destination or not source:
        return codes.INVALID_PARAM, "a pointer is NULL"
    if not 0 <= kind <= _LAST_MEMCPY_KIND:
        return codes.INVALID_PARAM, f"{kind} is no direction (0 to {_LAST_MEMCPY_KIND})"
    if not 0 < count <= room:
        return codes.RT_PARAM_INVALID, f"{count} bytes into {room}"
    return codes.SUCCESS, ""


def _place(call: str, handle: int | None) -> Stream | int | None:
    """Return the stream to work on, None for work that is done at once, or what stands against it."""
    if handle is not None:
        return own_stream(call, handle)
    return None if process().context is not None else no_context(call)


def _unfit(regions: Sequence[Region | None], kind: int, *, asynchronous: bool) -> tuple[int, str]:
    """Return the code and the reason that no copy between two places is possible, 0 where it is.

    Between devices it needs ``acl.rt.device_enable_peer_access``, which the emulator does not have; CANN's
    documents name no code for that. A stream copies nothing from host to host (207000).
    """
    devices = {region.device for region in regions if region is not None and region.kind == DEVICE}
    if len(devices) > 1:
        return codes.RT_PARAM_INVALID, f"from one device to another ({sorted(devices)}) without peer access"
    if asynchronous and (kind == _HOST_TO_HOST or not devices):
        return codes.RT_FEATURE_NOT_SUPPORT, "host to host is not supported on a stream; use acl.rt.memcpy"
    return codes.SUCCESS, ""


def _do(stream: Stream | None, work: Callable[[], None]) -> int:
    def do() -> Failure | None:
        work()
        return None

    if stream is None:
        work()
    else:
        process().streams.put(stream, Work(stream, do))
    return codes.SUCCESS


def memcpy(*args: object) -> int:
    """``(dst, dst_max, src, count, kind) -> ret``."""
    return _copy("acl.rt.memcpy", parse("acl.rt.memcpy", "kkkki", args))


def memcpy_async(*args: object) -> int:
    """``(dst, dst_max, src, count, kind, stream) -> ret``."""
    *copied, stream = parse("acl.rt.memcpy_async", "kkkkik", args)
    return _copy("acl.rt.memcpy_async", copied, stream)


def _fill(call: str, args: Sequence[int], handle: int | None = None) -> int:
    address, room, value, count = args
    if not address:
        return refuse(codes.INVALID_PARAM, f"{call}: the pointer is NULL")
    if not 0 < count <= room:
        return refuse(codes.RT_PARAM_INVALID, f"{call}: {count} bytes into {room}")
    stream = _place(call, handle)
    if isinstance(stream, int):
        return stream
    target = process().memory.find(address, count)
    if target is None:
        message = f"{call}: {count} bytes at {address:#x} are not allocated memory"
        return refuse(codes.RT_PARAM_INVALID, message)
    return _do(stream, lambda: target.__setitem__(slice(None), value & 0xFF))


def memset(*args: object) -> int:
    """``(ptr, max, value, count) -> ret``."""
    return _fill("acl.rt.memset", parse("acl.rt.memset", "kkik", args))


def memset_async(*args: object) -> int:
    """``(ptr, max, value, count, stream) -> ret``."""
    *filled, stream = parse("acl.rt.memset_async", "kkikk", args)
    return _fill("acl.rt.memset_async", filled, stream)
