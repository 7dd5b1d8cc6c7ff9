"""``acl.rt.create_event`` and its kin.

Sources: ``rt_synchronize.cpp`` of pyACL's ``rt``; ``event.cpp``, ``api_impl.cc`` and ``event.cc`` of
hicann/runtime.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_npudump.emulator.acl._refusals import bad_limit, new_handle, own_stream, refuse
from pytest_npudump.emulator.machine import codes
from pytest_npudump.emulator.machine.events import DEFAULT, TIME_LINE, Event, Record, Reset, Wait
from pytest_npudump.emulator.machine.parse_tuple import parse
from pytest_npudump.emulator.machine.streams import FOR_EVER, Stream
from pytest_npudump.emulator.process.state import process

if TYPE_CHECKING:
    from pytest_npudump.emulator.machine.streams import Step

_NANOSECONDS = 1_000_000


def create_event(*_: object) -> tuple[int, int]:
    """``() -> (event, ret)``."""
    return _create("acl.rt.create_event", DEFAULT)


def create_event_with_flag(*args: object) -> tuple[int, int]:
    """``(flag) -> (event, ret)``: only an event with the flag 8 keeps the time."""
    (flag,) = parse("acl.rt.create_event_with_flag", "I", args)
    return _create("acl.rt.create_event_with_flag", flag)


def _create(call: str, flags: int) -> tuple[int, int]:
    return new_handle(call, lambda _: Event(flags))


def destroy_event(*args: object) -> int:
    """``(event) -> ret``; a stream that waits for it goes on waiting for its mark."""
    (handle,) = parse("acl.rt.destroy_event", "k", args)
    event = _event("acl.rt.destroy_event", handle)
    if not isinstance(event, Event):
        return event
    process().handles.remove(handle, Event)
    return codes.SUCCESS


def _event(call: str, handle: int) -> Event | int:
    """Return an event, or 100000 for NULL, 107000 for what is none."""
    if not handle:
        return refuse(codes.INVALID_PARAM, f"{call}: the event is NULL")
    return process().handles.get(handle, Event) or refuse(
        codes.RT_PARAM_INVALID, f"{call}: {handle:#x} is no event"
    )


def _put(call: str, event: int, stream: int) -> tuple[Event, Stream] | int:
    """Return an event and a stream of this thread's context, or the code that stands against it."""
    found = _event(call, event)
    if not isinstance(found, Event):
        return found
    known = own_stream(call, stream)
    return (found, known) if isinstance(known, Stream) else known


def _step(stream: Stream, step: Step) -> int:
    process().streams.put(stream, step)
    return codes.SUCCESS


def record_event(*args: object) -> int:
    """``(event, stream) -> ret``."""
    call = "acl.rt.record_event"
    found = _put(call, *parse(call, "kk", args))
    if isinstance(found, int):
        return found
    event, stream = found
    with process().streams.changed:
        event.record = Record(stream)
        return _step(stream, event.record)


def reset_event(*args: object) -> int:
    """``(event, stream) -> ret``: streams that are told to wait from now on wait for the next mark."""
    call = "acl.rt.reset_event"
    found = _put(call, *parse(call, "kk", args))
    return found if isinstance(found, int) else _step(found[1], Reset(found[0]))


def stream_wait_event(*args: object) -> int:
    """``(stream, event) -> ret``: 107000 for an event that was never recorded."""
    call = "acl.rt.stream_wait_event"
    handle, number = parse(call, "kk", args)
    found = _put(call, number, handle)
    if isinstance(found, int):
        return found
    event, stream = found
    if event.record is None:
        message = f"{call}: the event was never recorded; call acl.rt.record_event first"
        return refuse(codes.RT_PARAM_INVALID, message)
    with process().streams.changed:
        event.waiting += 1
        return _step(stream, Wait(event, None if event.record is event.cleared else event.record))


def query_event(*args: object) -> tuple[int, int]:
    """``(event) -> (status, ret)``: 1 while its mark is not passed, else 0, also where there is none."""
    (handle,) = parse("acl.rt.query_event", "k", args)
    event = _event("acl.rt.query_event", handle)
    if not isinstance(event, Event):
        return 0, event
    return int(event.record is not None and not event.recorded), codes.SUCCESS


def query_event_status(*args: object) -> tuple[int, int]:
    """``(event) -> (status, ret)``: 1 when its mark is passed, else 0, also where there is none."""
    (handle,) = parse("acl.rt.query_event_status", "k", args)
    event = _event("acl.rt.query_event_status", handle)
    return (int(event.recorded), codes.SUCCESS) if isinstance(event, Event) else (0, event)


def query_event_wait_status(*args: object) -> tuple[int, int]:
    """``(event) -> (status, ret)``: 1 while a stream waits for it, else 0."""
    (handle,) = parse("acl.rt.query_event_wait_status", "k", args)
    event = _event("acl.rt.query_event_wait_status", handle)
    return (int(event.waiting > 0), codes.SUCCESS) if isinstance(event, Event) else (0, event)


def synchronize_event(*args: object) -> int:
    """``(event) -> ret``, when its mark is passed; at once where there is none."""
    (handle,) = parse("acl.rt.synchronize_event", "k", args)
    return _synchronize("acl.rt.synchronize_event", handle, FOR_EVER)


def synchronize_event_with_timeout(*args: object) -> int:
    """``(event, milliseconds) -> ret``: 507047 after that time, -1 waits for ever, less is 107000."""
    call = "acl.rt.synchronize_event_with_timeout"
    handle, milliseconds = parse(call, "ki", args)
    return bad_limit(call, milliseconds) or _synchronize(call, handle, milliseconds)


def _synchronize(call: str, handle: int, milliseconds: int) -> int:
    """Wait for an event. Where its stream never goes on, CANN waits for ever in place of the 507047."""
    event = _event(call, handle)
    if not isinstance(event, Event):
        return event
    record = event.record
    if record is None:
        return codes.SUCCESS
    reason = process().streams.wait_until(record.stream, lambda: record.done, milliseconds)
    return refuse(codes.RT_EVENT_SYNC_TIMEOUT, f"{call}: {reason}") if reason else codes.SUCCESS


def event_elapsed_time(*args: object) -> tuple[float, int]:
    """``(start, end) -> (milliseconds, ret)``.

    507000 where one was never recorded, 107006 where its mark is not passed or it keeps no time.
    """
    call = "acl.rt.event_elapsed_time"
    events = [_event(call, handle) for handle in parse(call, "kk", args)]
    times = []
    for event in events:
        if not isinstance(event, Event):
            return 0.0, event
        if event.record is None:
            return 0.0, refuse(codes.RT_INTERNAL_ERROR, f"{call}: an event was never recorded")
        if not event.recorded or not event.flags & TIME_LINE:
            message = f"{call}: an event's mark is not passed, or it was created without the flag 8"
            return 0.0, refuse(codes.RT_EVENT_TIMESTAMP_INVALID, message)
        times.append(event.record.nanoseconds)
    return (times[1] - times[0]) / _NANOSECONDS, codes.SUCCESS
