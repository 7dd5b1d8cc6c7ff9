"""Devices of tests: a lock for each, and the pool of a process that gives them out."""

from __future__ import annotations

import os
import signal
import stat
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from pytest_npudump.errors import DeviceError
from pytest_npudump.plugin.features import devices
from pytest_npudump.plugin.features.devices import FOLDER, DeviceLock, DevicePool, lock_folder

HOLD = """
import os, sys, time
from pathlib import Path
from pytest_npudump.plugin.features.devices import DeviceLock
lock = DeviceLock(Path(sys.argv[1]))
assert lock.take("test_of_another.py::test_it")
if sys.argv[2:] == ["fork"] and not os.fork():
    time.sleep(600)
print("held", flush=True)
if sys.argv[2:]:
    sys.stdin.read()
    lock.give_back()
    print("given back", flush=True)
time.sleep(600)
"""


def _holder(path: Path, *words: str) -> subprocess.Popen[str]:
    process = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(path), *words],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "held\n"
    return process


def _kill(process: subprocess.Popen[str], group: bool = False) -> None:  # noqa: FBT001, FBT002 - plain
    (os.killpg if group else os.kill)(process.pid, signal.SIGKILL)
    process.communicate()


@pytest.mark.e2e
def test_the_lock_of_an_owner_that_was_killed_is_free(tmp_path: Path) -> None:
    """One that is given back is not held on by forked children."""
    lock = DeviceLock(tmp_path / "npu0.lock")
    process = _holder(tmp_path / "npu0.lock")
    try:
        assert not lock.take("me")
        assert f"process {process.pid} of " in lock.holder()
        assert lock.holder().endswith("(test_of_another.py::test_it)")
    finally:
        _kill(process)
    assert lock.take("me")
    assert f"process {os.getpid()} of " in lock.holder()
    lock.give_back()
    process = _holder(tmp_path / "npu0.lock", "fork")
    try:
        assert not lock.take("me")
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.close()
        process.stdin = None
        assert process.stdout.readline() == "given back\n"
        assert lock.take("me")
        lock.give_back()
    finally:
        _kill(process, group=True)


def test_taking_twice_and_giving_back_twice_does_no_harm(tmp_path: Path) -> None:
    lock, other = DeviceLock(tmp_path / "a"), DeviceLock(tmp_path / "a")
    assert lock.take("me")
    assert lock.take("me")
    assert not other.take("other")
    lock.give_back()
    lock.give_back()
    assert other.take("other")
    other.give_back()


def test_the_folder_and_its_files_are_for_all_users(tmp_path: Path) -> None:
    old = os.umask(0o077)
    try:
        folder = lock_folder({FOLDER: str(tmp_path / "a" / "locks")})
        lock = DeviceLock(folder / "npu0.lock")
        assert lock.take("me")
        lock.give_back()
    finally:
        os.umask(old)
    assert stat.S_IMODE(folder.stat().st_mode) == 0o1777
    assert stat.S_IMODE((folder / "npu0.lock").stat().st_mode) == 0o666
    assert lock_folder({FOLDER: str(folder)}) == folder


def test_a_link_in_the_place_of_a_lock_is_not_followed_and_a_file_in_that_of_the_folder_told(
    tmp_path: Path,
) -> None:
    target = tmp_path / "precious"
    target.write_text("content", "utf-8")
    (tmp_path / "npu0.lock").symlink_to(target)
    with pytest.raises(DeviceError, match=FOLDER):
        DeviceLock(tmp_path / "npu0.lock").take("me")
    assert target.read_text("utf-8") == "content"
    with pytest.raises(DeviceError, match=r"is no folder.*NPUDUMP_DEVICE_LOCKS"):
        lock_folder({FOLDER: str(target)})


def test_whatever_another_user_has_written_there_is_no_error(tmp_path: Path) -> None:
    """Nor can it move the cursor."""
    for content, words in (
        (b"", "another process"),
        (b"u\x1b[2J\n", "u[2J"),
        (b"\xff", "\ufffd"),
        (b"o" * 9000, "o" * 197 + "..."),
    ):
        (tmp_path / "a").write_bytes(content)
        assert DeviceLock(tmp_path / "a").holder() == words


def _pool(folder: Path, number: int, first: int = 0) -> DevicePool:
    return DevicePool({i: i for i in range(number)}, folder, first)


def test_processes_of_one_run_and_of_different_ones_have_devices_of_their_own(tmp_path: Path) -> None:
    """Ids of different environments mean one device."""
    found = [_pool(tmp_path, 4, number) for number in range(4)]
    assert [pool.take(1, "a test") for pool in found] == [(0,), (1,), (2,), (3,)]
    for pool in found:
        pool.close()
    for name in "bc":
        (tmp_path / name).mkdir()
    one, other = _pool(tmp_path / "b", 2), _pool(tmp_path / "b", 2)
    assert one.take(1, "a test") == (0,)
    one.give_back()
    assert other.take(1, "a test") == (1,)
    other.give_back()
    assert one.take(1, "the next test") == (0,)
    one.close()
    other.close()
    one, other = (DevicePool({ids[0]: 5, ids[1]: 6}, tmp_path / "c") for ids in ((0, 1), (5, 6)))
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


def test_several_devices_are_the_own_one_and_those_behind_it(tmp_path: Path) -> None:
    """More than there are is an error, and holds nothing."""
    pool = _pool(tmp_path, 4, 2)
    assert pool.take(1, "a test") == (2,)
    pool.give_back()
    assert pool.take(3, "a test") == (2, 3, 0)
    pool.close()
    (tmp_path / "few").mkdir()
    with pytest.raises(DeviceError, match="needs 3 devices, and npudump_devices gives 2"):
        _pool(tmp_path / "few", 2).take(3, "a test")
    lock = DeviceLock(tmp_path / "few" / "npu0.lock")
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
    for number in (1, 2):
        lock = DeviceLock(tmp_path / f"npu{number}.lock")
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
