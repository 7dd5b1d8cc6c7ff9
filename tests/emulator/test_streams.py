"""Contexts, streams, events and callbacks: what belongs to which, and what waits for what."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from pytest_npudump.emulator.faults import fail

RESULT = [3.0, 2.0, 2.5, 3.0, 2.0, 2.5]
"""What the small model makes of ones."""


def test_a_model_runs_in_the_context_it_was_loaded_in_only(program: Any, small_model: Path) -> None:
    acl = program.acl
    model = program.load(small_model)
    first, _ = acl.rt.get_context()
    source, target, address = program.datasets()
    assert acl.rt.set_device(1) == 0
    assert acl.mdl.execute(model, source, target) == 107004
    assert "device 0" in acl.get_recent_err_msg()
    second, _ = acl.rt.create_context(0)
    assert acl.mdl.execute_async(model, source, target, 0) == 107004
    assert acl.rt.set_context(first) == 0
    assert acl.mdl.execute(model, source, target) == 0
    assert program.floats(address) == RESULT
    assert acl.rt.destroy_context(second) == 0


def test_model_reaches_no_memory_of_another_device_nor_python_s_own(program: Any, small_model: Path) -> None:
    acl = program.acl
    home, _ = acl.rt.get_context()
    acl.rt.set_device(1)
    foreign = program.memory([1.0] * 6)
    acl.rt.set_context(home)
    model, own = program.load(small_model), program.memory([1.0] * 6)
    assert acl.rt.memcpy(foreign, 24, own, 24, 3) == 107000
    assert "peer access" in acl.get_recent_err_msg()
    assert program.floats(own) == [1.0] * 6
    host, _ = acl.rt.malloc_host(24)
    python = acl.util.bytes_to_ptr(bytes(24))
    for address, code, words in ((foreign, 145000, "device 1"), (python, 145000, "Python"), (host, 0, "")):
        for places in ((address, own), (own, address)):
            assert acl.mdl.execute(model, *(program.dataset((place, 24)) for place in places)) == code
            assert words in (acl.get_recent_err_msg() or "")


def test_addresses_decide_where_a_copy_goes_not_its_kind(program: Any) -> None:
    acl = program.acl
    for kind in range(5):
        first, second = program.memory([1.0] * 6), program.memory([0.0] * 6)
        assert acl.rt.memcpy(second, 24, first, 24, kind) == 0
        assert program.floats(second) == [1.0] * 6
    stream, _ = acl.rt.create_stream()
    hosts = [acl.rt.malloc_host(8)[0] for _ in range(2)]
    assert acl.rt.memcpy_async(hosts[0], 8, hosts[1], 8, 0, stream) == 207000, "from host to host"
    assert acl.rt.memcpy(hosts[0], 8, hosts[1], 8, 0) == 0


def test_a_stream_serves_the_context_it_was_created_in(program: Any, small_model: Path) -> None:
    acl = program.acl
    stream, _ = acl.rt.create_stream()
    acl.rt.set_device(1)
    model = program.load(small_model)
    source, target, address = program.datasets()
    event, _ = acl.rt.create_event()
    calls: dict[str, Callable[[], int]] = {
        "execute_async": lambda: acl.mdl.execute_async(model, source, target, stream),
        "execute_v2": lambda: acl.mdl.execute_v2(model, source, target, stream, 0),
        "memcpy_async": lambda: acl.rt.memcpy_async(address, 24, address, 24, 3, stream),
        "memset_async": lambda: acl.rt.memset_async(address, 24, 0, 24, stream),
        "record_event": lambda: acl.rt.record_event(event, stream),
        "launch_callback": lambda: acl.rt.launch_callback(print, [], 1, stream),
        "destroy_stream": lambda: acl.rt.destroy_stream(stream),
    }
    assert {name: call() for name, call in calls.items()} == dict.fromkeys(calls, 107003)
    assert acl.rt.synchronize_stream(stream) == 0


def test_without_a_context_no_stream_is_waited_for(acl: Any) -> None:
    acl.init()
    for stream in (0, 12345):
        assert acl.rt.synchronize_stream(stream) == 107002
        assert acl.rt.synchronize_stream_with_timeout(stream, 10) == 107002
        assert acl.rt.stream_query(stream) == (65535, 107002)
    assert acl.rt.synchronize_device() == 107002
    assert acl.rt.memcpy(1, 1, 1, 1, 1) == 107002
    assert acl.rt.create_stream_with_config(0, 1) == (0, 107002)
    acl.rt.set_device(0)
    assert acl.rt.synchronize_stream(0) == 0
    assert acl.rt.synchronize_stream(12345) == 107000


def test_a_stream_tells_whether_its_tasks_have_ended(started: Any) -> None:
    stream, ret = started.rt.create_stream_with_config(7, 1)
    assert ret == 0
    assert started.rt.stream_query(stream) == (0, 0)
    assert started.rt.synchronize_stream_with_timeout(stream, 0) == 0
    assert started.rt.synchronize_stream_with_timeout(stream, -2) == 107000
    assert [started.rt.destroy_stream(stream) for _ in range(2)] == [0, 100000]
    assert (started.rt.synchronize_stream(stream), started.rt.synchronize_stream(0)) == (107000, 0)
    assert started.rt.stream_query(stream) == (65535, 107000)


def test_contexts_that_are_none_cannot_be_destroyed(started: Any) -> None:
    default, _ = started.rt.get_context()
    codes = [started.rt.destroy_context(handle) for handle in (0, 12345, default)]
    assert codes == [100000, 107002, 107002]


def test_an_execution_on_a_stream_dumps_what_a_synchronous_one_does(
    program: Any, set_dump: Callable[..., Path], small_model: Path, wire: Any
) -> None:
    root = set_dump(dump_mode="all")
    acl = program.acl
    model = program.load(small_model)
    stream, _ = acl.rt.create_stream()
    source, target, address = program.datasets()
    assert acl.mdl.execute(model, source, target) == 0
    for run in (
        lambda: acl.mdl.execute_async(model, source, target, stream),
        lambda: acl.mdl.execute_v2(model, source, target, stream, 0),
    ):
        acl.rt.memset(address, 24, 0, 24)
        assert run() == 0
        assert acl.rt.synchronize_stream(stream) == 0
        assert program.floats(address) == RESULT
    steps = [
        {
            dump.op_name: [tensor.data for tensor in (*dump.inputs, *dump.outputs)]
            for dump in map(wire.read, root.glob(f"*/0/small/{model}/{index}/*"))
        }
        for index in range(3)
    ]
    assert len(steps[0]) == 5
    assert steps[0] == steps[1] == steps[2]


def test_what_fails_on_a_stream_is_told_by_what_waits_for_it_once(program: Any, small_model: Path) -> None:
    acl = program.acl
    model = program.load(small_model)
    fail("scale")
    stream, _ = acl.rt.create_stream()
    source, target, address = program.datasets()
    for wait in (
        lambda: acl.rt.synchronize_stream(stream),
        lambda: acl.rt.synchronize_stream_with_timeout(stream, 1000),
        acl.rt.synchronize_device,
    ):
        assert acl.mdl.execute_async(model, source, target, stream) == 0
        assert wait() == 507011
        assert "scale" in acl.get_recent_err_msg()
        assert wait() == 0
    assert acl.mdl.execute_v2(model, source, target, stream, 0) == 507011
    assert program.floats(address) == [0.0] * 6


def test_a_stream_gives_no_memory_to_outputs(program: Any, small_model: Path) -> None:
    model = program.load(small_model)
    source, _, _ = program.datasets()
    empty = program.dataset((0, 0))
    assert program.acl.mdl.execute_async(model, source, empty, 0) == 145000


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


def test_an_event_that_was_never_recorded_or_is_none(acl: Any) -> None:
    rt = acl.rt
    acl.init()
    assert rt.create_event() == (0, 107002)
    rt.set_device(0)
    for handle, code in ((0, 100000), (12345, 107000)):
        assert rt.record_event(handle, 0) == rt.destroy_event(handle) == code
        assert rt.query_event(handle) == (0, code)
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


class Callbacks:
    """The thread of the samples: it takes the context and processes reports until it is told to stop."""

    def __init__(self, acl: Any, stream: int) -> None:
        self.acl, self.stream = acl, stream
        self.context, _ = acl.rt.get_context()
        self.running = True
        self.codes: list[int] = []
        self.thread, ret = acl.util.start_thread(self.process, [50])
        assert ret == 0
        assert acl.rt.subscribe_report(self.thread, stream) == 0

    def process(self, arguments: list[int]) -> None:
        assert self.acl.rt.set_context(self.context) == 0
        while self.running:
            self.codes.append(self.acl.rt.process_report(arguments[0]))

    def stop(self) -> int:
        assert self.acl.rt.unsubscribe_report(self.thread, self.stream) == 0
        return self.join()

    def join(self) -> int:
        self.running = False
        code: int = self.acl.util.stop_thread(self.thread)
        return code


@pytest.fixture
def stream(started: Any) -> int:
    made: int = started.rt.create_stream()[0]
    return made


@pytest.fixture
def callbacks(started: Any, stream: int) -> Iterator[Callbacks]:
    made = Callbacks(started, stream)
    yield made
    made.running = False


def test_callbacks_run_in_their_thread_in_the_order_of_the_stream(
    program: Any, small_model: Path, stream: int, callbacks: Callbacks
) -> None:
    acl = program.acl
    model = program.load(small_model)
    seen: list[tuple[int, int, list[float]]] = []

    def collect(arguments: list[int]) -> None:
        number, address = arguments
        seen.append((number, threading.get_ident(), program.floats(address)))

    for number in range(5):
        source, target, address = program.datasets()
        assert acl.mdl.execute_async(model, source, target, stream) == 0
        assert acl.rt.launch_callback(collect, [number, address], 1, stream) == 0
    assert acl.rt.synchronize_stream(stream) == 0
    assert seen == [(number, callbacks.thread, RESULT) for number in range(5)]
    assert callbacks.thread != threading.get_ident()
    assert callbacks.stop() == 0
    assert set(callbacks.codes) <= {0, 507012, 107012}


def test_only_a_callback_that_blocks_holds_its_stream_up(program: Any, stream: int) -> None:
    acl = program.acl
    assert acl.rt.subscribe_report(threading.get_ident(), stream) == 0
    for blocks, held in ((1, [1.0] * 6), (0, [0.0] * 6)):
        address = program.memory([1.0] * 6)
        seen: list[list[float]] = []
        see = lambda _, at=address, seen=seen: seen.append(program.floats(at))  # noqa: E731
        acl.rt.launch_callback(see, [], blocks, stream)
        assert acl.rt.memset_async(address, 24, 0, 24, stream) == 0
        assert program.floats(address) == held
        assert acl.rt.stream_query(stream) == (blocks, 0)
        assert acl.rt.process_report(100) == 0
        assert seen == [held]
        assert program.floats(address) == [0.0] * 6
        assert acl.rt.stream_query(stream) == (0, 0)


def test_an_error_in_a_callback_ends_the_thread_and_is_raised_by_stop_thread(
    started: Any, stream: int, callbacks: Callbacks, capfd: pytest.CaptureFixture[str]
) -> None:
    def broken(_: object) -> None:
        raise ValueError("the callback's own")

    assert started.rt.launch_callback(broken, [], 1, stream) == 0
    assert started.rt.synchronize_stream(stream) == 0
    with pytest.raises(RuntimeError, match="exception=SystemError,msg=thread call failed;"):
        callbacks.join()
    assert "the callback's own" in capfd.readouterr().err


def test_an_error_in_a_callback_comes_out_of_process_report(started: Any, stream: int) -> None:
    seen: list[object] = []
    started.rt.subscribe_report(threading.get_ident(), stream)
    started.rt.launch_callback(lambda _: 1 / 0, [], 1, stream)
    started.rt.launch_callback(seen.append, ["next"], 1, stream)
    with pytest.raises(SystemError, match="process_report") as caught:
        started.rt.process_report(100)
    assert isinstance(caught.value.__cause__, ZeroDivisionError)
    assert seen == []
    assert started.rt.process_report(100) == 0
    assert seen == [["next"]]


def test_a_stream_that_can_never_go_on_is_told_in_place_of_waiting(started: Any) -> None:
    ended, _ = started.util.start_thread(lambda _: None, [])
    assert started.util.stop_thread(ended) == 0
    for thread in (threading.get_ident(), ended):
        stream, _ = started.rt.create_stream()
        assert started.rt.subscribe_report(thread, stream) == 0
        assert started.rt.launch_callback(print, [], 1, stream) == 0
        assert started.rt.synchronize_stream(stream) == 507046
        assert "does not go on" in started.get_recent_err_msg()


def test_a_wait_with_a_time_limit_ends_then(started: Any, stream: int) -> None:
    release = threading.Event()
    thread, _ = started.util.start_thread(lambda _: release.wait(), [])
    started.rt.subscribe_report(thread, stream)
    started.rt.launch_callback(print, [], 1, stream)
    assert started.rt.synchronize_stream_with_timeout(stream, 20) == 507046
    assert started.rt.stream_query(stream) == (1, 0)
    release.set()
    assert started.util.stop_thread(thread) == 0


def test_what_callbacks_need_is_asked_for(started: Any, stream: int) -> None:
    rt = started.rt
    me = threading.get_ident()
    calls: list[Callable[[], int]] = [
        lambda: rt.process_report(10),
        lambda: rt.unsubscribe_report(me, stream),
        lambda: rt.launch_callback(print, [], 1, stream),
        lambda: rt.subscribe_report(me, 12345),
        lambda: rt.subscribe_report(me, stream),
        lambda: rt.subscribe_report(me, stream),
        lambda: rt.unsubscribe_report(me + 1, stream),
        lambda: rt.launch_callback(print, [], 2, stream),
        lambda: rt.process_report(0),
        lambda: rt.process_report(-2),
        lambda: rt.process_report(10),
        lambda: rt.unsubscribe_report(me, stream),
    ]
    expected = [107012, 107011, 107015, 107000, 0, 107011, 107012, 100000, 100000, 100000, 507012, 0]
    assert [call() for call in calls] == expected
    with pytest.raises(TypeError, match="callable"):
        rt.launch_callback("print", [], 1, stream)
    with pytest.raises(TypeError, match="callable"):
        started.util.start_thread(1, [])


def test_a_thread_serves_streams_of_one_device(started: Any, stream: int) -> None:
    me = threading.get_ident()
    assert started.rt.subscribe_report(me, stream) == 0
    assert started.rt.subscribe_report(me, 0) == 0
    started.rt.set_device(1)
    assert started.rt.subscribe_report(me, 0) == 107012


def test_a_thread_that_raises_says_so_when_it_is_stopped(
    started: Any, capfd: pytest.CaptureFixture[str]
) -> None:
    seen: list[Any] = []
    thread, _ = started.util.start_thread(seen.append, [1, 2])
    assert (started.util.stop_thread(thread), seen) == (0, [[1, 2]]), "arguments are one list"
    thread, _ = started.util.start_thread(lambda value: {}[value[0]], ["absent"])
    with pytest.raises(RuntimeError, match="exception=KeyError"):
        started.util.stop_thread(thread)
    assert "absent" in capfd.readouterr().err
    assert started.util.stop_thread(thread) == 100000
