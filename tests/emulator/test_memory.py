"""Memory, pointers, devices and streams: right calls work, wrong ones are refused and never crash."""

from __future__ import annotations

import ctypes
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, strategies as st

from pytest_npudump.emulator import process as memory_module
from pytest_npudump.emulator.process import MachineMemory, process


def test_bytes_go_to_the_device_and_back(started: Any) -> None:
    """Through pointers that are real addresses, and into an object of bytes."""
    acl = started
    data = bytes(range(200))
    device, ret = acl.rt.malloc(200, 0)
    assert ret == 0
    assert device % 64 == 0
    assert acl.rt.memcpy(device, 200, acl.util.bytes_to_ptr(data), 200, 1) == 0
    host, ret = acl.rt.malloc_host(100)
    assert ret == 0
    assert acl.rt.memcpy(host, 100, device + 50, 100, 2) == 0
    assert acl.util.ptr_to_bytes(host, 100) == data[50:150]
    assert acl.rt.memset(device, 200, 7, 3) == 0
    assert acl.util.ptr_to_bytes(device, 4) == b"\7\7\7\3"
    target = bytes(4)
    assert acl.rt.memcpy(acl.util.bytes_to_ptr(target), 4, device, 4, 2) == 0
    assert target == b"\7\7\7\3"
    ctypes.memmove(device, b"abcd", 4)
    assert acl.util.ptr_to_bytes(device, 4) == b"abcd"
    assert acl.rt.free(device) == 0
    assert acl.rt.free_host(host) == 0


def test_shared_single_bytes_of_the_interpreter_are_never_written(started: Any) -> None:
    acl = started
    pointer = acl.util.bytes_to_ptr(bytes([65]))
    device, _ = acl.rt.malloc(1, 0)
    acl.rt.memset(device, 1, 66, 1)
    assert acl.rt.memcpy(pointer, 1, device, 1, 2) == 0
    assert acl.util.ptr_to_bytes(pointer, 1) == b"B"
    assert bytes([65]) == b"A"


def test_memcpy_refuses_what_would_crash(started: Any) -> None:
    device, _ = started.rt.malloc(64, 0)
    host, _ = started.rt.malloc_host(64)
    for change, code in (
        ({"dst": 0}, 100000),
        ({"src": 0}, 100000),
        ({"dst_max": 63}, 107000),
        ({"count": 0}, 107000),
        ({"count": 65, "dst_max": 65}, 107000),
        ({"dst": 12345}, 107000),
        ({"src": 12345}, 107000),
        ({"kind": 9}, 100000),
        ({"kind": -1}, 100000),
    ):
        args = {"dst": device, "dst_max": 64, "src": host, "count": 64, "kind": 1} | change
        assert started.rt.memcpy(*args.values()) == code, change
        assert "acl.rt.memcpy" in started.get_recent_err_msg()


@given(address=st.integers(0, 2**64 - 1), size=st.integers(0, 2**64 - 1))
def test_unknown_memory_is_never_found(address: int, size: int) -> None:
    memory = MachineMemory()
    start = memory.allocate(100, "device", 0)
    found = memory.find(address, size)
    inside = start <= address and address + size <= start + 100
    assert (found is not None) == inside


def test_memory_is_found_to_its_last_byte_and_no_further() -> None:
    memory = MachineMemory()
    first, second = memory.allocate(100, "device", 0), memory.allocate(50, "host", 0)
    for start, size in ((first, 100), (second, 50)):
        assert memory.find(start, size) is not None
        assert memory.find(start + size - 1, 1) is not None
        assert memory.find(start, size + 1) is None


def test_memory_is_freed_once_and_by_its_own_function(started: Any) -> None:
    rt = started.rt
    for (address, _), free, other in (
        (rt.malloc(8, 0), rt.free, rt.free_host),
        (rt.malloc_host(8), rt.free_host, rt.free),
    ):
        assert other(address) == 107000
        assert [free(place) for place in (address + 1, address, address, 0)] == [107000, 0, 107000, 100000]
        with pytest.raises(ValueError, match="not allocated"):
            started.util.ptr_to_bytes(address, 8)


def test_free_memory_shrinks_and_grows_and_nothing_or_too_much_is_refused(started: Any) -> None:
    before, total, ret = started.rt.get_mem_info(1)
    assert (total, ret) == (memory_module.DEVICE_BYTES, 0)
    address, _ = started.rt.malloc(1000, 0)
    assert started.rt.get_mem_info(1)[0] == before - 1000
    started.rt.free(address)
    assert started.rt.get_mem_info(1)[0] == before
    for size, code in ((0, 100000), (total + 1, 207001), (2**64 - 1, 207001)):
        assert started.rt.malloc(size, 0) == (0, code)
    assert started.rt.malloc_host(2**63) == (0, 207001)


def test_reset_device_frees_its_memory_at_the_last_user(started: Any) -> None:
    acl = started
    acl.rt.set_device(0)
    address, _ = acl.rt.malloc(8, 0)
    acl.rt.reset_device(0)
    assert acl.util.ptr_to_bytes(address, 8) == bytes(8)
    acl.rt.reset_device(0)
    with pytest.raises(ValueError, match="not allocated"):
        acl.util.ptr_to_bytes(address, 8)
    assert acl.rt.malloc(8, 0) == (0, 107002)


def test_borrowed_objects_are_let_go_only_when_nobody_holds_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory_module, "BORROWED_BYTES", 1000)
    memory = MachineMemory()
    held = np.zeros(400, np.uint8)
    kept = memory.borrow(held.ctypes.data, 400, held)
    for _ in range(50):
        data = np.zeros(300, np.uint8)
        assert memory.find(memory.borrow(data.ctypes.data, 300, data), 300) is not None
    del data
    assert memory.find(kept, 400) is not None
    assert memory._borrowed_bytes <= 1000 + 400
    monkeypatch.setattr(memory_module, "BORROWED_OBJECTS", 10)
    memory = MachineMemory()
    for _ in range(100):
        data = np.zeros(8, np.uint8)
        memory.borrow(data.ctypes.data, 8, data)
    assert len(memory._borrowed) <= 11


@pytest.mark.filterwarnings("ignore:.*deprecated")
def test_numpy_pointers_share_memory(started: Any) -> None:
    util, array = started.util, np.arange(6, dtype=np.float32).reshape(2, 3)
    with pytest.warns(Warning, match="deprecated"):
        pointer = util.numpy_to_ptr(array)
    assert util.ptr_to_bytes(pointer, 24) == array.tobytes()
    with pytest.warns(Warning, match="deprecated"):
        view = util.ptr_to_numpy(pointer, (3, 2), 11)
    view[0, 0] = 42
    assert array[0, 0] == 42
    with pytest.warns(Warning, match="deprecated"):
        pointer, contiguous = util.numpy_contiguous_to_ptr(array[:, ::2])
    assert util.ptr_to_bytes(pointer, 16) == contiguous.tobytes()
    with pytest.warns(Warning, match="discontiguous"):
        pointer = util.numpy_to_ptr(array[::-1])
    assert util.ptr_to_bytes(pointer, 12) == array[1].tobytes()
    pointer = util.numpy_to_ptr(np.arange(1000.0))
    assert util.ptr_to_numpy(pointer, (1000,), 12).sum() == 499500, "a view outlives the object"
    address, _ = started.rt.malloc(64, 0)
    for number in (17, 18, 999, -5):  # types without a fixed size
        with pytest.raises(TypeError):
            util.ptr_to_numpy(address, (1,), number)
    with pytest.raises(ValueError, match="byte"):
        util.bytes_to_ptr(bytearray(4))
    with pytest.raises(ValueError, match="ndarray"):
        util.numpy_to_ptr([1, 2])


def test_unknown_devices_and_calls_without_one_are_refused(acl: Any) -> None:
    for device in (-1, 8, 100):
        codes = acl.rt.set_device(device), acl.rt.create_context(device), acl.rt.reset_device(device)
        assert codes == (107001, (0, 107001), 107001)
    codes = acl.rt.get_device(), acl.rt.malloc(1, 0), acl.rt.create_stream(), acl.rt.synchronize_device()
    assert codes == ((0, 107002), (0, 107002), (0, 107002), 107002)


def test_each_thread_has_its_own_context(started: Any) -> None:
    acl = started
    context, ret = acl.rt.get_context()
    assert ret == 0
    seen: list[Any] = []

    def work() -> None:
        seen.append(acl.rt.get_device())
        acl.rt.set_context(context)
        seen.append(acl.rt.get_device())

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert seen == [(0, 107002), (0, 0)]


def test_tensor_descriptions_tell_what_they_were_given(acl: Any) -> None:
    desc = acl.create_tensor_desc(1, [2, 3], 2)
    assert acl.get_tensor_desc_type(desc) == 1
    assert acl.get_tensor_desc_format(desc) == 2
    assert acl.get_tensor_desc_size(desc) == 12
    assert acl.get_tensor_desc_element_count(desc) == 6
    assert acl.get_tensor_desc_num_dims(desc) == 2
    assert acl.get_tensor_desc_dim(desc, 1) == 3
    assert acl.get_tensor_desc_dim_v2(desc, 2) == (0, 100000)
    acl.set_tensor_desc_name(desc, "name")
    assert acl.get_tensor_desc_name(desc) == "name"
    other, ret = acl.trans_tensor_desc_format(desc, 0)
    assert (acl.get_tensor_desc_format(other), ret) == (0, 0)
    assert acl.set_tensor_storage_format(desc, 3) == 0
    assert acl.destroy_tensor_desc(desc) is None
    assert acl.get_tensor_desc_size(desc) == 0
    assert acl.set_tensor_shape(desc, [1]) == 100000


@given(value=st.floats(width=16, allow_nan=False))
def test_half_precision_goes_both_ways_and_types_have_sizes(value: float) -> None:
    from pytest_npudump.emulator import acl

    assert acl.float16_to_float(acl.float_to_float16(value)) == value
    assert acl.float_to_float16(value) == int(np.float16(value).view(np.uint16))
    assert [acl.float_to_float16(large) for large in (1e9, -1e9)] == [0x7C00, 0xFC00]
    sizes = {0: 4, 1: 2, 9: 8, 12: 1, 27: 2, 28: 0, -1: 0}
    assert {number: acl.data_type_size(number) for number in sizes} == sizes


def test_inputs_of_a_model_do_not_outlive_it(started: Any, program: Any, small_model: Path) -> None:
    held = b"\1" * 24
    kept = started.util.bytes_to_ptr(held)
    for _ in range(3):
        model_id = program.load(small_model)
        source, target, _ = program.datasets()
        assert started.mdl.execute(model_id, source, target) == 0
        assert started.mdl.unload(model_id) == 0
    memory = process().memory
    assert list(memory._borrowed) == [kept]
    assert memory._borrowed_bytes == 24
    assert started.util.ptr_to_bytes(kept, 24) == held
