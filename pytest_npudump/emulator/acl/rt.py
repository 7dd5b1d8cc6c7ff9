"""``acl.rt``: devices, contexts and memory, streams, events and callbacks.

Sources: ``api_impl.cc`` of hicann/runtime, by function (``StreamSynchronize``, ``StreamDestroy``, ...): every
call of ``acl.rt`` needs a context of its thread (107002), most take only a stream of that context (107003);
its ``event.cpp``, ``event.cc``, ``callback.cpp``, ``cb_subscribe.cc`` and ``api_impl_david.cc``;
``rt_synchronize.cpp`` of pyACL's ``rt``.

Sources: ``memory.cpp`` (``MemcpyKindTranslate``), ``api_error.cc`` and ``api_impl.cc`` (``MemCopySync``,
``MemcpyAsync``, ``MemSetSync``) of hicann/runtime, and the documents of ``acl.rt.memcpy``: the kind of a copy
has to be one that there is, but CANN goes by the addresses, whatever the kind says.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any, NoReturn

from pytest_npudump.emulator import codes
from pytest_npudump.emulator.acl._base import CODE, RT, known
from pytest_npudump.emulator.codes import RefusedError, missing, refuse_if
from pytest_npudump.emulator.process import DEVICE, DEVICE_BYTES, DEVICES, HOST, Bytes, process
from pytest_npudump.emulator.streams import (
    DEFAULT,
    DEFAULT_STREAM,
    FOR_EVER,
    TIME_LINE,
    DeviceContext,
    Event,
    Mark,
    Stream,
    Wait,
    Work,
)

_COMPLETE, _NOT_READY, _RESERVED = 0, 1, 0xFFFF
"""``aclrtStreamStatus``."""
_NANOSECONDS = 1_000_000


def here() -> DeviceContext:
    """Return this thread's context; 107002 where it has none."""
    context = process().context
    if context is None:
        raise RefusedError(codes.RT_CONTEXT_NULL, "this thread has no context; call acl.rt.set_device first")
    return context


def any_stream(handle: int) -> Stream:
    """Return the stream of a handle, of whatever context: 0 is the default one of this thread's context.

    107002 without a context, 107000 for an unknown handle.
    """
    context = here()
    if handle == DEFAULT_STREAM:
        return context.stream
    found = process().handles.get(handle, Stream)
    if found is None:
        raise RefusedError(codes.RT_PARAM_INVALID, f"{handle:#x} is no stream")
    return found


def own_stream(handle: int) -> Stream:
    """Return the stream of a handle as :func:`any_stream` does; 107003 for one of another context."""
    stream = any_stream(handle)
    refuse_if(
        stream.context is not process().context,
        codes.RT_STREAM_CONTEXT,
        f"{handle:#x} is a stream of another context (device {stream.context.device}); make that context "
        f"this thread's with acl.rt.set_context first",
    )
    return stream


def drain(stream: Stream, milliseconds: int = FOR_EVER) -> None:
    """Wait until a stream is empty; 507046 where CANN waits for ever, as it never goes on."""
    if reason := process().streams.wait_until(stream, lambda: not stream.steps, milliseconds):
        raise RefusedError(codes.RT_STREAM_SYNC_TIMEOUT, f"the stream does not go on: {reason}")


def wait_for(stream: Stream, milliseconds: int = FOR_EVER) -> None:
    """Wait for a stream; 507046, or the code of what failed on it."""
    drain(stream, milliseconds)
    failure, stream.failure = stream.failure, None
    if failure is not None:
        raise failure


def check_limit(milliseconds: int) -> None:
    """Refuse a time limit that is none (107000); -1 waits for ever."""
    refuse_if(milliseconds < FOR_EVER, codes.RT_PARAM_INVALID, f"{milliseconds} ms; expected -1 or more")


def _create_stream(*_: int) -> int:
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
    refuse_if(flag, codes.RT_FEATURE_NOT_SUPPORT, "the emulator cannot detect overflows")
    any_stream(handle)


RT.table(
    {
        "create_stream": ((), (0, CODE), _create_stream),
        # Neither priority nor flag makes a difference. CANN takes the nearest priority for one outside of 0
        # to 7, and an unknown flag for none.
        "create_stream_with_config": ("ii", (0, CODE), _create_stream),
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


def event(handle: int) -> Event:
    """Return an event; 100000 for NULL, 107000 for what is none."""
    refuse_if(not handle, codes.INVALID_PARAM, "the event is NULL")
    found = process().handles.get(handle, Event)
    if found is None:
        raise RefusedError(codes.RT_PARAM_INVALID, f"{handle:#x} is no event")
    return found


def _create_event(flags: int = DEFAULT) -> int:
    here()
    return process().handles.add(Event(flags))


@RT("k")
def destroy_event(handle: int) -> None:
    """``(event) -> ret``; a stream that waits for it goes on waiting for its mark."""
    event(handle)
    process().handles.remove(handle, Event)


@RT(event, own_stream)
def record_event(marked: Event, stream: Stream) -> None:
    """``(event, stream) -> ret``."""
    with process().streams.changed:
        marked.mark = Mark(stream)
        process().streams.put(stream, marked.mark)


@RT("kk")
def stream_wait_event(handle: int, number: int) -> None:
    """``(stream, event) -> ret``: 107000 for an event that was never recorded."""
    awaited, stream = event(number), own_stream(handle)
    if awaited.mark is None:
        raise RefusedError(
            codes.RT_PARAM_INVALID, "the event was never recorded; call acl.rt.record_event first"
        )
    with process().streams.changed:
        awaited.waiting += 1
        mark = None if awaited.mark is awaited.cleared else awaited.mark
        process().streams.put(stream, Wait(awaited, mark))


@RT("ki")
def synchronize_event_with_timeout(handle: int, milliseconds: int) -> None:
    """``(event, milliseconds) -> ret``: 507047 after that time, -1 waits for ever, less is 107000."""
    check_limit(milliseconds)
    _synchronize(event(handle), milliseconds)


def _synchronize(awaited: Event, milliseconds: int = FOR_EVER) -> None:
    """Wait for an event. Where its stream never goes on, CANN waits for ever in place of the 507047."""
    record = awaited.mark
    if record is None:
        return
    if reason := process().streams.wait_until(record.stream, lambda: record.done, milliseconds):
        raise RefusedError(codes.RT_EVENT_SYNC_TIMEOUT, reason)


@RT("kk", refused=(0.0, CODE))
def event_elapsed_time(start: int, end: int) -> float:
    """``(start, end) -> (milliseconds, ret)``.

    507000 where one was never recorded, 107006 where its mark is not passed or it keeps no time.
    """
    times = []
    for handle in (start, end):
        timed = event(handle)
        if timed.mark is None:
            raise RefusedError(codes.RT_INTERNAL_ERROR, "an event was never recorded")
        refuse_if(
            not timed.recorded or not timed.flags & TIME_LINE,
            codes.RT_EVENT_TIMESTAMP_INVALID,
            "an event's mark is not passed, or it was created without the flag 8",
        )
        times.append(timed.mark.nanoseconds)
    return (times[1] - times[0]) / _NANOSECONDS


RT.table(
    {
        "create_event": ((), (0, CODE), _create_event),
        # only an event with the flag 8 keeps the time
        "create_event_with_flag": ("I", (0, CODE), _create_event),
        # Streams that are told to wait from now on wait for the next mark.
        "reset_event": (
            (event, own_stream),
            CODE,
            lambda of, stream: process().streams.put(stream, Work(stream, of.clear)),
        ),
        # whether its mark is still to be passed; whether it was passed; whether a stream waits for it
        "query_event": (event, (0, CODE), lambda of: int(of.mark is not None and not of.recorded)),
        "query_event_status": (event, (0, CODE), lambda of: int(of.recorded)),
        "query_event_wait_status": (event, (0, CODE), lambda of: int(of.waiting > 0)),
        "synchronize_event": (event, CODE, _synchronize),
    }
)


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
    refuse_if(block_type not in (0, 1), codes.INVALID_PARAM, f"block type {block_type}; expected 0 or 1")
    stream, state = own_stream(handle), process()
    with state.streams.changed:
        callback = state.subscriptions.callback(stream, function, argument, blocks=bool(block_type))
        state.streams.put(stream, callback)


@RT("i")
def process_report(milliseconds: int) -> None:
    """``(milliseconds) -> ret``: waits for callbacks of this thread's streams and runs those that are due.

    100000 for a time of 0 or less than -1 (for ever), 107012 for a thread that is not subscribed, 107002
    where neither its device nor the thread has a context, 507012 where nothing came in that time.

    Raises:
        SystemError: a callback raised something, which is the cause. pyACL leaves the error to the
            interpreter, which finds it when this call returns; callbacks behind it are run by the next call.
    """
    refuse_if(
        milliseconds < FOR_EVER or not milliseconds,
        codes.INVALID_PARAM,
        f"{milliseconds} ms; expected -1, or more than 0",
    )
    state, thread = process(), threading.get_ident()
    subscriptions = state.subscriptions
    with state.streams.changed:  # another thread may be subscribing at this moment
        served = next((stream for stream, owner in subscriptions.threads.items() if owner == thread), None)
    if served is None:
        raise RefusedError(codes.RT_THREAD_SUBSCRIBE, f"thread {thread} is subscribed to no stream")
    if served.context.device not in state.default_contexts:
        here()
    pending = subscriptions.pending[thread]
    state.streams.wait(
        lambda: bool(pending) or subscriptions.pending.get(thread) is not pending, milliseconds
    )
    refuse_if(not pending, codes.RT_REPORT_TIMEOUT, f"no callback within {milliseconds} ms")
    while pending:
        report = pending.popleft()
        try:
            report.function(report.argument)
        except BaseException as error:
            raise SystemError(
                "<built-in function process_report> returned a result with an exception set"
            ) from error
        finally:
            report.done = True
            state.streams.settle()


_RUN_MODE_HOST = 1
_INF_NAN_MODE = 1
_HOST_TO_HOST = 0
_LAST_MEMCPY_KIND = 5
"""``ACL_MEMCPY_HOST_TO_BUF_TO_DEVICE``; 4 is ``ACL_MEMCPY_DEFAULT``."""


def _check(device: int) -> None:
    refuse_if(
        not 0 <= device < DEVICES,
        codes.RT_INVALID_DEVICEID,
        f"device {device} of {DEVICES} emulated devices (0 to {DEVICES - 1})",
    )


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
    refuse_if(not handle, codes.INVALID_PARAM, "the context is NULL")
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
    refuse_if(
        mode != _INF_NAN_MODE, codes.RT_FEATURE_NOT_SUPPORT, "the emulator computes in INF/NAN mode only"
    )


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


def _allocate(size: int, kind: str) -> int:
    refuse_if(not size, codes.INVALID_PARAM, "the size is 0")
    state, device = process(), here().device
    try:
        with state.lock:
            return state.memory.allocate(size, kind, device)
    except (MemoryError, ValueError):
        raise RefusedError(codes.RT_MEMORY_ALLOCATION, f"no room for {size} bytes") from None


def _free(address: int, kind: str) -> None:
    state = process()
    refuse_if(not address, codes.INVALID_PARAM, "the pointer is NULL")
    with state.lock:
        freed = state.memory.free(address, kind)
    refuse_if(not freed, codes.RT_PARAM_INVALID, f"{address:#x} is no {kind} memory that was allocated")


def _copy(  # noqa: PLR0917 - pyACL's list
    destination: int, room: int, source: int, count: int, kind: int, handle: int | None = None
) -> None:
    """Copy at once, or on the stream of ``handle``.

    Between devices that needs ``acl.rt.device_enable_peer_access``, which the emulator does not have; CANN's
    documents name no code for that. A stream copies nothing from host to host (207000).
    """
    refuse_if(not destination or not source, codes.INVALID_PARAM, "a pointer is NULL")
    refuse_if(
        not 0 <= kind <= _LAST_MEMCPY_KIND,
        codes.INVALID_PARAM,
        f"{kind} is no direction (0 to {_LAST_MEMCPY_KIND})",
    )
    refuse_if(not 0 < count <= room, codes.RT_PARAM_INVALID, f"{count} bytes into {room}")
    stream, memory = _place(handle), process().memory
    target, data = _found(destination, count), _found(source, count)
    regions = [memory.region(address, count) for address in (destination, source)]
    devices = {region.device for region in regions if region is not None and region.kind == DEVICE}
    refuse_if(
        len(devices) > 1,
        codes.RT_PARAM_INVALID,
        f"from one device to another ({sorted(devices)}) without peer access",
    )
    refuse_if(
        stream is not None and (kind == _HOST_TO_HOST or not devices),
        codes.RT_FEATURE_NOT_SUPPORT,
        "host to host is not supported on a stream; use acl.rt.memcpy",
    )
    _do(stream, lambda: target.__setitem__(slice(None), data))


def _fill(address: int, room: int, value: int, count: int, handle: int | None = None) -> None:
    refuse_if(not address, codes.INVALID_PARAM, "the pointer is NULL")
    refuse_if(not 0 < count <= room, codes.RT_PARAM_INVALID, f"{count} bytes into {room}")
    stream = _place(handle)
    target = _found(address, count)
    _do(stream, lambda: target.__setitem__(slice(None), value & 0xFF))


def _place(handle: int | None) -> Stream | None:
    """Return the stream to work on, None for work that is done at once."""
    here()
    return None if handle is None else own_stream(handle)


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
