"""``acl.rt.create_event`` and its kin.

Sources: ``rt_synchronize.cpp`` of pyACL's ``rt``; ``event.cpp``, ``api_impl.cc`` and ``event.cc`` of
hicann/runtime.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_npudump.emulator.acl._calls import CODE, RT
from pytest_npudump.emulator.acl._streams import check_limit, here, own_stream
from pytest_npudump.emulator.machine import codes
from pytest_npudump.emulator.machine.codes import RefusedError
from pytest_npudump.emulator.machine.events import DEFAULT, TIME_LINE, Event, Record, Reset, Wait
from pytest_npudump.emulator.machine.streams import FOR_EVER
from pytest_npudump.emulator.process.state import process

if TYPE_CHECKING:
    from pytest_npudump.emulator.machine.streams import Stream

_NANOSECONDS = 1_000_000


def event(handle: int) -> Event:
    """Return an event.

    Raises:
        RefusedError: 100000 for NULL, 107000 for what is none.
    """
    if not handle:
        raise RefusedError(codes.INVALID_PARAM, "the event is NULL")
    found = process().handles.get(handle, Event)
    if found is None:
        raise RefusedError(codes.RT_PARAM_INVALID, f"{handle:#x} is no event")
    return found


def _create(flags: int = DEFAULT) -> int:
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
        marked.record = Record(stream)
        process().streams.put(stream, marked.record)


@RT("kk")
def stream_wait_event(handle: int, number: int) -> None:
    """``(stream, event) -> ret``: 107000 for an event that was never recorded."""
    awaited, stream = event(number), own_stream(handle)
    if awaited.record is None:
        message = "the event was never recorded; call acl.rt.record_event first"
        raise RefusedError(codes.RT_PARAM_INVALID, message)
    with process().streams.changed:
        awaited.waiting += 1
        mark = None if awaited.record is awaited.cleared else awaited.record
        process().streams.put(stream, Wait(awaited, mark))


@RT("ki")
def synchronize_event_with_timeout(handle: int, milliseconds: int) -> None:
    """``(event, milliseconds) -> ret``: 507047 after that time, -1 waits for ever, less is 107000."""
    check_limit(milliseconds)
    _synchronize(event(handle), milliseconds)


def _synchronize(awaited: Event, milliseconds: int = FOR_EVER) -> None:
    """Wait for an event. Where its stream never goes on, CANN waits for ever in place of the 507047."""
    record = awaited.record
    if record is None:
        return
    reason = process().streams.wait_until(record.stream, lambda: record.done, milliseconds)
    if reason:
        raise RefusedError(codes.RT_EVENT_SYNC_TIMEOUT, reason)


@RT("kk", refused=(0.0, CODE))
def event_elapsed_time(start: int, end: int) -> float:
    """``(start, end) -> (milliseconds, ret)``.

    507000 where one was never recorded, 107006 where its mark is not passed or it keeps no time.
    """
    times = []
    for handle in (start, end):
        timed = event(handle)
        if timed.record is None:
            raise RefusedError(codes.RT_INTERNAL_ERROR, "an event was never recorded")
        if not timed.recorded or not timed.flags & TIME_LINE:
            message = "an event's mark is not passed, or it was created without the flag 8"
            raise RefusedError(codes.RT_EVENT_TIMESTAMP_INVALID, message)
        times.append(timed.record.nanoseconds)
    return (times[1] - times[0]) / _NANOSECONDS


RT.table(
    {
        "create_event": ((), (0, CODE), _create),
        "create_event_with_flag": ("I", (0, CODE), _create),  # only an event with the flag 8 keeps the time
        # Streams that are told to wait from now on wait for the next mark.
        "reset_event": (
            (event, own_stream),
            CODE,
            lambda of, stream: process().streams.put(stream, Reset(of)),
        ),
        # whether its mark is still to be passed; whether it was passed; whether a stream waits for it
        "query_event": (event, (0, CODE), lambda of: int(of.record is not None and not of.recorded)),
        "query_event_status": (event, (0, CODE), lambda of: int(of.recorded)),
        "query_event_wait_status": (event, (0, CODE), lambda of: int(of.waiting > 0)),
        "synchronize_event": (event, CODE, _synchronize),
    }
)
