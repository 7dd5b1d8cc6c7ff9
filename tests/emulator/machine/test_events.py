"""Events: time between marks, and streams that wait for each other."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def held(started: Any) -> int:
    """A stream that a callback holds up until this thread processes reports."""
    stream, _ = started.rt.create_stream()
    assert started.rt.subscribe_report(threading.get_ident(), stream) == 0
    assert started.rt.launch_callback(lambda _: None, [], 1, stream) == 0
    number: int = stream
    return number


def test_events_measure_an_inference(program: Any, small_model: Path) -> None:
    rt = program.acl.rt
    model = program.load(small_model)
    source, target, _ = program.datasets()
    stream, _ = rt.create_stream()
    (start, _), (end, _) = rt.create_event(), rt.create_event_with_flag(8)
    assert rt.record_event(start, stream) == 0
    assert program.acl.mdl.execute_async(model, source, target, stream) == 0
    assert rt.record_event(end, stream) == 0
    assert rt.synchronize_event(end) == 0
    there, ret = rt.event_elapsed_time(start, end)
    assert ret == 0
    assert 0 < there < 60_000
    assert rt.event_elapsed_time(end, start) == (pytest.approx(-there), 0)
    assert [rt.destroy_event(event) for event in (start, end, end)] == [0, 0, 107000]


def test_a_stream_waits_for_the_mark_of_another(program: Any, held: int) -> None:
    rt = program.acl.rt
    other, _ = rt.create_stream()
    event, _ = rt.create_event()
    address = program.memory([1.0] * 6)
    assert rt.record_event(event, held) == 0
    assert rt.stream_wait_event(other, event) == 0
    assert rt.memset_async(address, 24, 0, 24, other) == 0
    assert (rt.query_event(event), rt.query_event_status(event)) == ((1, 0), (0, 0))
    assert rt.query_event_wait_status(event) == (1, 0)
    assert rt.stream_query(other) == (1, 0)
    assert program.floats(address) == [1.0] * 6
    assert rt.process_report(100) == 0
    assert rt.synchronize_stream(other) == 0
    assert program.floats(address) == [0.0] * 6
    assert (rt.query_event(event), rt.query_event_status(event)) == ((0, 0), (1, 0))
    assert rt.query_event_wait_status(event) == (0, 0)


def test_after_a_reset_a_stream_waits_for_the_next_mark(started: Any) -> None:
    rt = started.rt
    streams = [rt.create_stream()[0] for _ in range(2)]
    event, _ = rt.create_event()
    assert rt.record_event(event, streams[0]) == 0
    assert rt.reset_event(event, streams[0]) == 0
    assert rt.stream_wait_event(streams[1], event) == 0
    assert rt.stream_query(streams[1]) == (1, 0)
    assert rt.record_event(event, streams[0]) == 0
    assert rt.stream_query(streams[1]) == (0, 0)


def test_an_event_that_was_never_recorded(started: Any) -> None:
    rt = started.rt
    event, _ = rt.create_event()
    assert rt.synchronize_event(event) == 0
    assert (rt.query_event(event), rt.query_event_status(event)) == ((0, 0), (0, 0))
    assert rt.stream_wait_event(0, event) == 107000
    assert rt.event_elapsed_time(event, event) == (0.0, 507000)


def test_time_needs_marks_that_were_passed_and_a_flag(started: Any, held: int) -> None:
    rt = started.rt
    (waiting, _), (untimed, _), (timed, _) = (
        rt.create_event(),
        rt.create_event_with_flag(1),
        rt.create_event(),
    )
    assert [rt.record_event(*places) for places in ((waiting, held), (untimed, 0), (timed, 0))] == [0, 0, 0]
    assert rt.event_elapsed_time(timed, waiting) == (0.0, 107006)
    assert rt.event_elapsed_time(untimed, timed) == (0.0, 107006)
    assert rt.event_elapsed_time(timed, timed) == (0.0, 0)


def test_waiting_for_an_event_has_a_limit(started: Any, held: int) -> None:
    rt = started.rt
    event, _ = rt.create_event()
    rt.record_event(event, held)
    assert rt.synchronize_event_with_timeout(event, -2) == 107000
    assert rt.synchronize_event_with_timeout(event, 5) == 507047
    assert rt.synchronize_event(event) == 507047
    assert rt.process_report(100) == 0
    assert rt.synchronize_event_with_timeout(event, 5) == 0


def test_events_need_a_context_and_a_handle(acl: Any) -> None:
    acl.init()
    assert acl.rt.create_event() == (0, 107002)
    acl.rt.set_device(0)
    for handle, code in ((0, 100000), (12345, 107000)):
        assert acl.rt.record_event(handle, 0) == code
        assert acl.rt.destroy_event(handle) == code
        assert acl.rt.query_event(handle) == (0, code)
