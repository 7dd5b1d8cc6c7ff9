"""``acl.rt.create_stream`` and its kin, and the context and the streams that other calls work on.

Sources: ``api_impl.cc`` of hicann/runtime, by function (``StreamSynchronize``, ``StreamDestroy``, ...): every
call of ``acl.rt`` needs a context of its thread (107002), most take only a stream of that context (107003).
"""

from __future__ import annotations

from pytest_npudump.emulator.acl._calls import CODE, RT, known
from pytest_npudump.emulator.machine import codes
from pytest_npudump.emulator.machine.codes import RefusedError
from pytest_npudump.emulator.machine.streams import DEFAULT_STREAM, FOR_EVER, Context, Stream
from pytest_npudump.emulator.process.state import process

_COMPLETE, _NOT_READY, _RESERVED = 0, 1, 0xFFFF
"""``aclrtStreamStatus``."""


def here() -> Context:
    """Return this thread's context.

    Raises:
        RefusedError: 107002, it has none.
    """
    context = process().context
    if context is None:
        raise RefusedError(codes.RT_CONTEXT_NULL, "this thread has no context; call acl.rt.set_device first")
    return context


def any_stream(handle: int) -> Stream:
    """Return the stream of a handle, of whatever context: 0 is the default one of this thread's context.

    Raises:
        RefusedError: 107002 without a context, 107000 for an unknown handle.
    """
    context = here()
    if handle == DEFAULT_STREAM:
        return context.stream
    found = process().handles.get(handle, Stream)
    if found is None:
        raise RefusedError(codes.RT_PARAM_INVALID, f"{handle:#x} is no stream")
    return found


def own_stream(handle: int) -> Stream:
    """Return the stream of a handle as :func:`any_stream` does.

    Raises:
        RefusedError: as there, and 107003 for a stream of another context.
    """
    stream = any_stream(handle)
    if stream.context is not process().context:
        why = (
            f"{handle:#x} is a stream of another context (device {stream.context.device}); make that context"
        )
        raise RefusedError(codes.RT_STREAM_CONTEXT, f"{why} this thread's with acl.rt.set_context first")
    return stream


def drain(stream: Stream, milliseconds: int = FOR_EVER) -> None:
    """Wait until a stream is empty.

    Raises:
        RefusedError: 507046. Where a stream never goes on, CANN waits for ever in place of it.
    """
    reason = process().streams.wait_for(stream, milliseconds)
    if reason:
        raise RefusedError(codes.RT_STREAM_SYNC_TIMEOUT, f"the stream does not go on: {reason}")


def wait_for(stream: Stream, milliseconds: int = FOR_EVER) -> None:
    """Wait for a stream.

    Raises:
        RefusedError: 507046, or the code of what failed on it.
    """
    drain(stream, milliseconds)
    failure = stream.take_failure()
    if failure is not None:
        raise failure


def check_limit(milliseconds: int) -> None:
    """Refuse a time limit that is none (107000); -1 waits for ever."""
    if milliseconds < FOR_EVER:
        raise RefusedError(codes.RT_PARAM_INVALID, f"{milliseconds} ms; expected -1 or more")


def _create(*_: int) -> int:
    return process().handles.add(Stream(here(), next(process().stream_ids)))


@RT("k")
def destroy_stream(handle: int) -> None:
    """``(stream) -> ret``, when its tasks have ended; 107003 for a stream of another context."""
    known(Stream, handle)
    stream = own_stream(handle)
    drain(stream)
    state = process()
    with state.streams.changed:
        state.subscriptions.remove(stream)
    state.handles.remove(handle, Stream)


@RT("ki")
def synchronize_stream_with_timeout(handle: int, milliseconds: int) -> None:
    """``(stream, milliseconds) -> ret``: 507046 after that time, -1 waits for ever, less is 107000."""
    check_limit(milliseconds)
    wait_for(any_stream(handle), milliseconds)


@RT("kI")
def set_stream_overflow_switch(handle: int, flag: int) -> None:
    """``(stream, flag) -> ret``: detection can only be left off."""
    if flag:
        raise RefusedError(codes.RT_FEATURE_NOT_SUPPORT, "the emulator cannot detect overflows")
    any_stream(handle)


RT.table(
    {
        "create_stream": ((), (0, CODE), _create),
        # Neither priority nor flag makes a difference. CANN takes the nearest priority for one outside of 0
        # to 7, and an unknown flag for none.
        "create_stream_with_config": ("ii", (0, CODE), _create),
        # when its tasks have ended; the code of a task that failed on the device
        "synchronize_stream": (any_stream, CODE, wait_for),
        "stream_query": (
            any_stream,
            (_RESERVED, CODE),
            lambda stream: _NOT_READY if stream.steps else _COMPLETE,
        ),
        "get_stream_overflow_switch": (any_stream, (0, CODE), lambda _: 0),
    }
)
