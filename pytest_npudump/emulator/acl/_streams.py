"""Streams, and the refusals that all of ``acl.rt`` shares.

Sources: ``api_impl.cc`` of hicann/runtime, by function (``StreamSynchronize``, ``StreamDestroy``, ...): every
call needs a context of its thread (107002), most take only a stream of that context (107003).
"""

from __future__ import annotations

from pytest_npudump.emulator.machine import codes
from pytest_npudump.emulator.machine.arguments import parse
from pytest_npudump.emulator.machine.state import process
from pytest_npudump.emulator.machine.streams import DEFAULT_STREAM, FOR_EVER, Stream

_COMPLETE, _NOT_READY, _RESERVED = 0, 1, 0xFFFF
"""``aclrtStreamStatus``."""


def refuse(code: int, message: str) -> int:
    """Leave ``message`` for the application and return ``code``."""
    return process().explain(code, message)


def no_context(call: str) -> int:
    """Return 107002, with what to do about it."""
    return refuse(codes.RT_CONTEXT_NULL, f"{call}: this thread has no context; call acl.rt.set_device first")


def any_stream(call: str, handle: int) -> Stream | int:
    """Return the stream of a handle, of whatever context: 0 is the default one of this thread's context.

    In its place come 107002 without a context, and 107000 for an unknown handle.
    """
    state = process()
    context = state.context
    if context is None:
        return no_context(call)
    if handle == DEFAULT_STREAM:
        return context.stream
    return state.handles.get(handle, Stream) or refuse(
        codes.RT_PARAM_INVALID, f"{call}: {handle:#x} is no stream"
    )


def own_stream(call: str, handle: int) -> Stream | int:
    """Return the stream of a handle as :func:`any_stream` does, or 107003 for one of another context."""
    stream = any_stream(call, handle)
    if isinstance(stream, Stream) and stream.context is not process().context:
        message = (
            f"{call}: {handle:#x} is a stream of another context (device {stream.context.device}); make that "
            f"context this thread's with acl.rt.set_context first"
        )
        return refuse(codes.RT_STREAM_CONTEXT, message)
    return stream


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
    state = process()
    if state.context is None:
        return 0, no_context(call)
    return state.handles.add(Stream(state.context, next(state.stream_ids))), codes.SUCCESS


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
        return _stuck(call, reason)
    with state.streams.changed:
        state.subscriptions.remove(stream)
    state.handles.remove(handle, Stream)
    return codes.SUCCESS


def _stuck(call: str, reason: str) -> int:
    """Return 507046. Where a stream never goes on, CANN waits for ever in place of it."""
    return refuse(codes.RT_STREAM_SYNC_TIMEOUT, f"{call}: the stream does not go on: {reason}")


def known_stream(call: str, handle: int) -> int:
    """Return 0 for a stream, else the code of :func:`any_stream`."""
    stream = any_stream(call, handle)
    return codes.SUCCESS if isinstance(stream, Stream) else stream


def wait_for(call: str, stream: Stream, milliseconds: int) -> int:
    """Wait for a stream: 0, 507046, or the code of what failed on it."""
    reason = process().streams.wait_for(stream, milliseconds)
    if reason:
        return _stuck(call, reason)
    failure = stream.take_failure()
    return codes.SUCCESS if failure is None else refuse(failure.code, f"{call}: {failure.why}")


def synchronize_stream(*args: object) -> int:
    """``(stream) -> ret``, when its tasks have ended; the code of a task that failed on the device."""
    (handle,) = parse("acl.rt.synchronize_stream", "k", args)
    return _synchronize("acl.rt.synchronize_stream", handle, FOR_EVER)


def synchronize_stream_with_timeout(*args: object) -> int:
    """``(stream, milliseconds) -> ret``: 507046 after that time, -1 waits for ever, less is 107000."""
    call = "acl.rt.synchronize_stream_with_timeout"
    handle, milliseconds = parse(call, "ki", args)
    if milliseconds < FOR_EVER:
        return refuse(codes.RT_PARAM_INVALID, f"{call}: {milliseconds} ms; expected -1 or more")
    return _synchronize(call, handle, milliseconds)


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
