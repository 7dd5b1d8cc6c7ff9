"""How a call is refused, and what most calls ask for before they do anything.

Sources: ``api_impl.cc`` of hicann/runtime, by function (``StreamSynchronize``, ``StreamDestroy``, ...): every
call of ``acl.rt`` needs a context of its thread (107002), most take only a stream of that context (107003).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_npudump.emulator.machine import codes
from pytest_npudump.emulator.machine.streams import DEFAULT_STREAM, FOR_EVER, Stream
from pytest_npudump.emulator.process.state import process

if TYPE_CHECKING:
    from collections.abc import Callable

    from pytest_npudump.emulator.machine.streams import Context


class RefusedError(Exception):
    """Something that stands against a call.

    Attributes:
        code: what the call returns.
        why: for ``acl.get_recent_err_msg``.
    """

    def __init__(self, code: int, why: str) -> None:
        super().__init__(code, why)
        self.code = code
        self.why = why

    def told(self, call: str) -> int:
        """Leave the reason for the application and return the code."""
        return refuse(self.code, f"{call}: {self.why}")


def refuse(code: int, message: str) -> int:
    """Leave ``message`` for the application and return ``code``."""
    return process().explain(code, message)


def no_context(call: str) -> int:
    """Return 107002, with what to do about it."""
    return refuse(codes.RT_CONTEXT_NULL, f"{call}: this thread has no context; call acl.rt.set_device first")


def stuck(call: str, reason: str) -> int:
    """Return 507046. Where a stream never goes on, CANN waits for ever in place of it."""
    return refuse(codes.RT_STREAM_SYNC_TIMEOUT, f"{call}: the stream does not go on: {reason}")


def bad_limit(call: str, milliseconds: int) -> int:
    """Return 107000 for a time limit that is none, else 0; -1 waits for ever."""
    if milliseconds >= FOR_EVER:
        return codes.SUCCESS
    return refuse(codes.RT_PARAM_INVALID, f"{call}: {milliseconds} ms; expected -1 or more")


def new_handle(call: str, make: Callable[[Context], object]) -> tuple[int, int]:
    """Return a handle for what ``make`` creates in this thread's context, and 0 or 107002."""
    state = process()
    context = state.context
    if context is None:
        return 0, no_context(call)
    return state.handles.add(make(context)), codes.SUCCESS


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


def wait_for(call: str, stream: Stream, milliseconds: int) -> int:
    """Wait for a stream: 0, 507046, or the code of what failed on it."""
    reason = process().streams.wait_for(stream, milliseconds)
    if reason:
        return stuck(call, reason)
    failure = stream.take_failure()
    return codes.SUCCESS if failure is None else refuse(failure.code, f"{call}: {failure.why}")
