from __future__ import annotations

import signal
import subprocess
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from pytest_npudump.errors import DeviceError
from pytest_npudump.plugin.features import devices
from pytest_npudump.plugin.features.devices import DeviceLock, DevicePool


def _pool(folder: Path, number: int, first: int = 0) -> DevicePool:
    return DevicePool({i: i for i in range(number)}, folder, first)


def test_processes_of_one_run_have_devices_of_their_own(tmp_path: Path) -> None:
    found = [_pool(tmp_path, 4, number) for number in range(4)]
    assert [pool.take(1, "a test") for pool in found] == [(0,), (1,), (2,), (3,)]
    for pool in found:
        pool.close()


def test_processes_of_different_runs_choose_different_devices(tmp_path: Path) -> None:
    one, other = _pool(tmp_path, 2), _pool(tmp_path, 2)
    assert one.take(1, "a test") == (0,)
    one.give_back()
    assert other.take(1, "a test") == (1,)
    other.give_back()
    assert one.take(1, "the next test") == (0,)
    one.close()
    other.close()


def test_ids_of_different_environments_mean_one_device(tmp_path: Path) -> None:
    one = DevicePool({0: 5, 1: 6}, tmp_path)
    other = DevicePool({5: 5, 6: 6}, tmp_path)
    assert one.take(1, "a test") == (0,)
    assert other.take(1, "a test") == (6,)
    one.close()
    other.close()


def test_more_processes_than_devices_wait_and_say_for_whom(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(devices, "_PATIENCE", 0.0)
    one = _pool(tmp_path, 1)
    one.take(1, "test_a.py::test_it")
    said: list[str] = []
    other = DevicePool({0: 0}, tmp_path, 1, lambda words: (said.append(words), one.give_back())[0])
    assert other.take(1, "test_b.py::test_it") == (0,)
    assert len(said) == 1
    assert said[0].startswith("waiting for device 0, held by process ")
    assert "(test_a.py::test_it)" in said[0]
    assert other.waited > 0
    one.close()
    other.close()


def test_several_devices_are_gathered_with_the_own_one_first(tmp_path: Path) -> None:
    pool = _pool(tmp_path, 4, 2)
    assert pool.take(1, "a test") == (2,)
    pool.give_back()
    assert pool.take(3, "a test") == (2, 3, 0)
    pool.give_back()
    other = _pool(tmp_path, 4)
    other.take(1, "a test")
    other.give_back()
    assert set(pool.take(3, "a test")) == {2, 3, 1}  # 0 is another's, though it is free
    pool.close()
    other.close()


def test_more_devices_than_there_are_is_an_error_and_holds_nothing(tmp_path: Path) -> None:
    pool = _pool(tmp_path, 2)
    with pytest.raises(DeviceError, match="needs 3 devices, and npudump_devices gives 2"):
        pool.take(3, "a test")
    lock = DeviceLock(tmp_path / "npu0.lock")
    assert lock.take("other")
    lock.give_back()


def test_an_interrupted_wait_holds_nothing(tmp_path: Path) -> None:
    one, other = _pool(tmp_path, 3), _pool(tmp_path, 3, 1)
    one.take(1, "a test")
    alarm = signal.signal(signal.SIGALRM, signal.default_int_handler)
    signal.setitimer(signal.ITIMER_REAL, 0.1)
    try:
        with pytest.raises(KeyboardInterrupt):
            other.take(3, "another test")
    finally:
        signal.signal(signal.SIGALRM, alarm)
    for name in ("npu1.lock", "npu2.lock", "several.lock"):
        lock = DeviceLock(tmp_path / name)
        assert lock.take("other")
        lock.give_back()
    one.close()
    other.close()


WORK = """
import random, sys, time
from pathlib import Path
from pytest_npudump.plugin.features.devices import DevicePool

folder, number = Path(sys.argv[1]), int(sys.argv[2])
chance, pool = random.Random(number), DevicePool({i: i for i in range(3)}, folder, number)
for _ in range(12):
    held = pool.take(chance.choice((1, 1, 2, 3)), "a test")
    marks = [folder / f"busy{i}" for i in held]
    for mark in marks:
        mark.touch(exist_ok=False)
    time.sleep(0.002)
    for mark in marks:
        mark.unlink()
    pool.give_back()
"""


@pytest.mark.e2e
def test_tests_that_need_one_and_tests_that_need_several_never_meet_and_never_block(
    tmp_path: Path, warm: Any
) -> None:
    words = [*warm.client, "-c", WORK, str(tmp_path)]
    workers = [subprocess.Popen([*words, str(number)]) for number in range(5)]
    assert [worker.wait(60) for worker in workers] == [0] * 5


def test_a_test_that_needs_all_gets_its_turn_among_many_that_need_one(tmp_path: Path) -> None:
    stop = threading.Event()
    singles = [_pool(tmp_path, 2, number) for number in range(2)]

    def run(pool: DevicePool) -> None:
        while not stop.is_set():
            pool.take(1, "a test")
            time.sleep(0.001)
            pool.give_back()
            time.sleep(0.003)

    threads = [threading.Thread(target=run, args=(pool,)) for pool in singles]
    for thread in threads:
        thread.start()
    several = _pool(tmp_path, 2)
    try:
        assert set(several.take(2, "all of them")) == {0, 1}
    finally:
        several.close()
        stop.set()
        for thread in threads:
            thread.join()
        for pool in singles:
            pool.close()
