"""Asynchronous inference with callbacks, in the order of the published sample programs."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

RESULT = [3.0, 2.0, 2.5, 3.0, 2.0, 2.5]


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


@pytest.mark.parametrize(("blocks", "held"), [(1, [1.0] * 6), (0, [0.0] * 6)])
def test_only_a_callback_that_blocks_holds_its_stream_up(
    program: Any, stream: int, blocks: int, held: list[float]
) -> None:
    acl = program.acl
    address = program.memory([1.0] * 6)
    assert acl.rt.subscribe_report(threading.get_ident(), stream) == 0
    seen: list[list[float]] = []
    acl.rt.launch_callback(lambda _: seen.append(program.floats(address)), [], blocks, stream)
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


@pytest.mark.parametrize("own", [True, False], ids=["the-thread-that-waits", "a-thread-that-has-ended"])
def test_a_stream_that_can_never_go_on_is_told_in_place_of_waiting(
    started: Any, stream: int, *, own: bool
) -> None:
    if own:
        thread = threading.get_ident()
    else:
        thread, _ = started.util.start_thread(lambda _: None, [])
        assert started.util.stop_thread(thread) == 0
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
    thread, _ = started.util.start_thread(lambda value: {}[value[0]], ["absent"])
    with pytest.raises(RuntimeError, match="exception=KeyError"):
        started.util.stop_thread(thread)
    assert "absent" in capfd.readouterr().err
    assert started.util.stop_thread(thread) == 100000
