"""``acl.rt.launch_callback`` and its kin: callbacks of streams, run by threads of the application.

Sources: ``rt_synchronize.cpp`` of pyACL's ``rt``; ``callback.cpp``, ``cb_subscribe.cc`` and
``api_impl_david.cc`` of hicann/runtime.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

from pytest_npudump.emulator.acl._calls import RT
from pytest_npudump.emulator.acl._streams import any_stream, drain, here, own_stream
from pytest_npudump.emulator.machine import codes
from pytest_npudump.emulator.machine.codes import RefusedError
from pytest_npudump.emulator.machine.streams import FOR_EVER, Stream
from pytest_npudump.emulator.process.state import process

if TYPE_CHECKING:
    from collections.abc import Callable

_BLOCK_TYPES = (0, 1)


def _stream(handle: int) -> Stream:
    """Return a stream of whatever context; only the default one needs a context of this thread."""
    return (process().handles.get(handle, Stream) if handle else None) or any_stream(handle)


@RT("K", _stream)
def subscribe_report(thread: int, stream: Stream) -> None:
    """``(thread id, stream) -> ret``: that thread is to run the stream's callbacks.

    107011 for a stream that has a thread, 107012 for a thread that serves another device.
    """
    state = process()
    with state.streams.changed:
        state.subscriptions.add(thread, stream)


@RT("K", _stream)
def unsubscribe_report(thread: int, stream: Stream) -> None:
    """``(thread id, stream) -> ret``, when the callbacks that block the stream have run.

    107011 for a stream without a thread, 107012 for another thread's. Callbacks that do not block and have
    not run by then never will.
    """
    state = process()
    state.subscriptions.check(thread, stream)
    drain(stream)
    with state.streams.changed:
        state.subscriptions.remove(stream)
        state.streams.changed.notify_all()


@RT("OOik")
def launch_callback(function: Callable[[Any], Any], argument: object, block_type: int, handle: int) -> None:
    """``(function, list, block type, stream) -> ret``: the function is called with the list.

    Block type 1 lets the stream go on only when it has run, 0 at once. 107015 where no thread is subscribed.
    """
    if not callable(function):
        raise TypeError("parameter must be callable")
    if block_type not in _BLOCK_TYPES:
        raise RefusedError(codes.INVALID_PARAM, f"block type {block_type}; expected 0 or 1")
    stream, state = own_stream(handle), process()
    with state.streams.changed:
        report = state.subscriptions.report(stream, function, argument, blocks=bool(block_type))
        state.streams.put(stream, report)


@RT("i")
def process_report(milliseconds: int) -> None:
    """``(milliseconds) -> ret``: waits for callbacks of this thread's streams and runs those that are due.

    100000 for a time of 0 or less than -1 (for ever), 107012 for a thread that is not subscribed, 107002
    where neither its device nor the thread has a context, 507012 where nothing came in that time.

    Raises:
        SystemError: a callback raised something, which is the cause. pyACL leaves the error to the
            interpreter, which finds it when this call returns; callbacks behind it are run by the next call.
    """
    if milliseconds < FOR_EVER or not milliseconds:
        raise RefusedError(codes.INVALID_PARAM, f"{milliseconds} ms; expected -1, or more than 0")
    state, thread = process(), threading.get_ident()
    subscriptions = state.subscriptions
    served = next((stream for stream, owner in subscriptions.threads.items() if owner == thread), None)
    if served is None:
        raise RefusedError(codes.RT_THREAD_SUBSCRIBE, f"thread {thread} is subscribed to no stream")
    if served.context.device not in state.default_contexts:
        here()
    pending = subscriptions.pending[thread]
    state.streams.wait(
        lambda: bool(pending) or subscriptions.pending.get(thread) is not pending, milliseconds
    )
    if not pending:
        raise RefusedError(codes.RT_REPORT_TIMEOUT, f"no callback within {milliseconds} ms")
    while pending:
        report = pending.popleft()
        try:
            report.function(report.argument)
        except BaseException as error:
            text = "<built-in function process_report> returned a result with an exception set"
            raise SystemError(text) from error
        finally:
            report.done = True
            state.streams.settle()
