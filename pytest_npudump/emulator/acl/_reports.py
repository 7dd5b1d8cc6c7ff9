"""``acl.rt.launch_callback`` and its kin: callbacks of streams, run by threads of the application.

Sources: ``rt_synchronize.cpp`` of pyACL's ``rt``; ``callback.cpp``, ``cb_subscribe.cc`` and
``api_impl_david.cc`` of hicann/runtime.
"""

from __future__ import annotations

import threading

from pytest_npudump.emulator.acl._refusals import any_stream, no_context, own_stream, refuse, stuck
from pytest_npudump.emulator.machine import codes
from pytest_npudump.emulator.machine.parse_tuple import parse
from pytest_npudump.emulator.machine.streams import FOR_EVER, Stream
from pytest_npudump.emulator.process.state import process

_BLOCK_TYPES = (0, 1)


def _stream(call: str, handle: int) -> Stream | int:
    """Return a stream of whatever context; only the default one needs a context of this thread."""
    known = process().handles.get(handle, Stream) if handle else None
    return known or any_stream(call, handle)


def subscribe_report(*args: object) -> int:
    """``(thread id, stream) -> ret``: that thread is to run the stream's callbacks.

    107011 for a stream that has a thread, 107012 for a thread that serves another device.
    """
    call = "acl.rt.subscribe_report"
    thread, handle = parse(call, "Kk", args)
    stream = _stream(call, handle)
    if not isinstance(stream, Stream):
        return stream
    state = process()
    with state.streams.changed:
        code, why = state.subscriptions.add(thread, stream)
    return refuse(code, f"{call}: {why}") if code else code


def unsubscribe_report(*args: object) -> int:
    """``(thread id, stream) -> ret``, when the callbacks that block the stream have run.

    107011 for a stream without a thread, 107012 for another thread's. Callbacks that do not block and have
    not run by then never will.
    """
    call = "acl.rt.unsubscribe_report"
    thread, handle = parse(call, "Kk", args)
    stream = _stream(call, handle)
    if not isinstance(stream, Stream):
        return stream
    state = process()
    code, why = state.subscriptions.known(thread, stream)
    if code:
        return refuse(code, f"{call}: {why}")
    reason = state.streams.wait_for(stream, FOR_EVER)
    if reason:
        return stuck(call, reason)
    with state.streams.changed:
        state.subscriptions.remove(stream)
        state.streams.changed.notify_all()
    return codes.SUCCESS


def launch_callback(*args: object) -> int:
    """``(function, list, block type, stream) -> ret``: the function is called with the list.

    Block type 1 lets the stream go on only when it has run, 0 at once. 107015 where no thread is subscribed.
    """
    call = "acl.rt.launch_callback"
    function, argument, block_type, handle = parse(call, "OOik", args)
    if not callable(function):
        raise TypeError("parameter must be callable")
    if block_type not in _BLOCK_TYPES:
        return refuse(codes.INVALID_PARAM, f"{call}: block type {block_type}; expected 0 or 1")
    stream = own_stream(call, handle)
    if not isinstance(stream, Stream):
        return stream
    state = process()
    with state.streams.changed:
        report = state.subscriptions.report(stream, function, argument, blocks=bool(block_type))
        if report is None:
            message = f"{call}: no thread runs this stream's callbacks; call acl.rt.subscribe_report first"
            return refuse(codes.RT_STREAM_NO_CB_REG, message)
        state.streams.put(stream, report)
    return codes.SUCCESS


def process_report(*args: object) -> int:
    """``(milliseconds) -> ret``: waits for callbacks of this thread's streams and runs those that are due.

    100000 for a time of 0 or less than -1 (for ever), 107012 for a thread that is not subscribed, 107002
    where neither its device nor the thread has a context, 507012 where nothing came in that time.

    Raises:
        SystemError: a callback raised something, which is the cause. pyACL leaves the error to the
            interpreter, which finds it when this call returns; callbacks behind it are run by the next call.
    """
    call = "acl.rt.process_report"
    (milliseconds,) = parse(call, "i", args)
    if milliseconds < FOR_EVER or not milliseconds:
        return refuse(codes.INVALID_PARAM, f"{call}: {milliseconds} ms; expected -1, or more than 0")
    state, thread = process(), threading.get_ident()
    subscriptions = state.subscriptions
    served = next((known for known, owner in subscriptions.threads.items() if owner == thread), None)
    if served is None:
        return refuse(codes.RT_THREAD_SUBSCRIBE, f"{call}: thread {thread} is subscribed to no stream")
    if served.context.device not in state.default_contexts and state.context is None:
        return no_context(call)
    pending = subscriptions.pending[thread]
    state.streams.wait(
        lambda: bool(pending) or subscriptions.pending.get(thread) is not pending, milliseconds
    )
    if not pending:
        return refuse(codes.RT_REPORT_TIMEOUT, f"{call}: no callback within {milliseconds} ms")
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
    return codes.SUCCESS
