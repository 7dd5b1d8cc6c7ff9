"""Contexts and streams: what belongs to which, and what waits for what."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from pytest_npudump.emulator.faults import fail

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

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


@pytest.mark.parametrize("side", ["input", "output"])
def test_a_model_reaches_no_memory_of_another_device_nor_python_s_own(
    program: Any, small_model: Path, side: str
) -> None:
    acl = program.acl
    home, _ = acl.rt.get_context()
    acl.rt.set_device(1)
    foreign = program.memory([1.0] * 6)
    acl.rt.set_context(home)
    model = program.load(small_model)
    own = program.memory([1.0] * 6)
    for address, words in ((foreign, "device 1"), (acl.util.bytes_to_ptr(bytes(24)), "Python")):
        places = (address, own) if side == "input" else (own, address)
        source, target = (program.dataset((place, 24)) for place in places)
        assert acl.mdl.execute(model, source, target) == 145000
        assert words in acl.get_recent_err_msg()
    host, _ = acl.rt.malloc_host(24)
    places = (host, own) if side == "input" else (own, host)
    assert acl.mdl.execute(model, *(program.dataset((place, 24)) for place in places)) == 0


def test_memory_of_two_devices_is_not_copied_without_peer_access(program: Any) -> None:
    acl = program.acl
    first = program.memory([1.0] * 6)
    acl.rt.set_device(1)
    second = program.memory([0.0] * 6)
    assert acl.rt.memcpy(second, 24, first, 24, 3) == 107000
    assert "peer access" in acl.get_recent_err_msg()
    assert program.floats(first) == [1.0] * 6


@pytest.mark.parametrize("kind", [0, 1, 2, 3, 4])
def test_addresses_decide_where_a_copy_goes_not_its_kind(program: Any, kind: int) -> None:
    acl = program.acl
    first, second = program.memory([1.0] * 6), program.memory([0.0] * 6)
    assert acl.rt.memcpy(second, 24, first, 24, kind) == 0
    assert program.floats(second) == [1.0] * 6


def test_a_stream_copies_nothing_from_host_to_host(started: Any) -> None:
    stream, _ = started.rt.create_stream()
    first, second = (started.rt.malloc_host(8)[0] for _ in range(2))
    assert started.rt.memcpy_async(first, 8, second, 8, 0, stream) == 207000
    assert started.rt.memcpy(first, 8, second, 8, 0) == 0


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
    assert started.rt.destroy_stream(stream) == 0
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
