"""``acl.rt.create_stream`` and its kin."""

from __future__ import annotations

from pytest_npudump.emulator.acl._refusals import (
    any_stream,
    bad_limit,
    new_handle,
    own_stream,
    refuse,
    stuck,
    wait_for,
)
from pytest_npudump.emulator.machine import codes
from pytest_npudump.emulator.machine.parse_tuple import parse
from pytest_npudump.emulator.machine.streams import FOR_EVER, Stream
from pytest_npudump.emulator.process.state import process

_COMPLETE, _NOT_READY, _RESERVED = 0, 1, 0xFFFF
"""``aclrtStreamStatus``."""


def create_stream(*_: object) -> tuple[int, int]:
    """``() -> (stream, ret)``."""
    return _create("acl.rt.create_stream")


def create_stream_with_config(*args: object) -> tuple[int, int]:
    """``(priority, flag) -> (stream, ret)``: neither makes a difference here.

    CANN takes the nearest priority for one outside of 0 to 7, and an unknown flag for none.
    """
    parse("acl.rt.create_stream_with_config", "ii", args)
    return _create("acl.rt.create_stream_with_config")


def _create(call: str) -> tuple[int, int]:
    return new_handle(call, lambda context: Stream(context, next(process().stream_ids)))


def destroy_stream(*args: object) -> int:
    """``(stream) -> ret``, when its tasks have ended; 107003 for a stream of another context."""
    call = "acl.rt.destroy_stream"
    (handle,) = parse(call, "k", args)
    state = process()
    if state.handles.get(handle, Stream) is None:
        return refuse(codes.INVALID_PARAM, f"{call}: {handle:#x} is no stream")
    stream = own_stream(call, handle)
    if not isinstance(stream, Stream):
        return stream
    reason = state.streams.wait_for(stream, FOR_EVER)
    if reason:
        return stuck(call, reason)
    with state.streams.changed:
        state.subscriptions.remove(stream)
    state.handles.remove(handle, Stream)
    return codes.SUCCESS


def synchronize_stream(*args: object) -> int:
    """``(stream) -> ret``, when its tasks have ended; the code of a task that failed on the device."""
    (handle,) = parse("acl.rt.synchronize_stream", "k", args)
    return _synchronize("acl.rt.synchronize_stream", handle, FOR_EVER)


def synchronize_stream_with_timeout(*args: object) -> int:
    """``(stream, milliseconds) -> ret``: 507046 after that time, -1 waits for ever, less is 107000."""
    call = "acl.rt.synchronize_stream_with_timeout"
    handle, milliseconds = parse(call, "ki", args)
    return bad_limit(call, milliseconds) or _synchronize(call, handle, milliseconds)


def _synchronize(call: str, handle: int, milliseconds: int) -> int:
    stream = any_stream(call, handle)
    return wait_for(call, stream, milliseconds) if isinstance(stream, Stream) else stream


def stream_query(*args: object) -> tuple[int, int]:
    """``(stream) -> (status, ret)``: 0 where all tasks have ended, 1 where one has not, 65535 on an error."""
    (handle,) = parse("acl.rt.stream_query", "k", args)
    stream = any_stream("acl.rt.stream_query", handle)
    if not isinstance(stream, Stream):
        return _RESERVED, stream
    return _NOT_READY if stream.steps else _COMPLETE, codes.SUCCESS


def set_stream_overflow_switch(*args: object) -> int:
    """``(stream, flag) -> ret``: detection can only be left off."""
    handle, flag = parse("acl.rt.set_stream_overflow_switch", "kI", args)
    if flag:
        message = "acl.rt.set_stream_overflow_switch: the emulator cannot detect overflows"
        return refuse(codes.RT_FEATURE_NOT_SUPPORT, message)
    return _known("acl.rt.set_stream_overflow_switch", handle)


def get_stream_overflow_switch(*args: object) -> tuple[int, int]:
    """``(stream) -> (flag, ret)``."""
    (handle,) = parse("acl.rt.get_stream_overflow_switch", "k", args)
    return 0, _known("acl.rt.get_stream_overflow_switch", handle)


def _known(call: str, handle: int) -> int:
    """Return 0 for a stream, else the code of :func:`any_stream`."""
    stream = any_stream(call, handle)
    return codes.SUCCESS if isinstance(stream, Stream) else stream
