from __future__ import annotations

import json
import os
import signal
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from pytest_npudump.errors import DeviceError
from pytest_npudump.plugin.features.devices import FOLDER, DeviceLock, lock_folder

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
    path = tmp_path / "npu0.lock"
    process = _holder(path)
    lock = DeviceLock(path)
    try:
        assert not lock.take("me")
        assert f"process {process.pid} of " in lock.holder()
        assert lock.holder().endswith("(test_of_another.py::test_it)")
    finally:
        _kill(process)
    assert lock.take("me")
    assert f"process {os.getpid()} of " in lock.holder()
    lock.give_back()


@pytest.mark.e2e
def test_a_lock_that_is_given_back_is_not_held_on_by_forked_children(tmp_path: Path) -> None:
    path = tmp_path / "npu0.lock"
    process = _holder(path, "fork")
    lock = DeviceLock(path)
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


def test_a_link_in_the_place_of_a_lock_is_not_followed(tmp_path: Path) -> None:
    target = tmp_path / "precious"
    target.write_text("content", "utf-8")
    (tmp_path / "npu0.lock").symlink_to(target)
    with pytest.raises(DeviceError, match=FOLDER):
        DeviceLock(tmp_path / "npu0.lock").take("me")
    assert target.read_text("utf-8") == "content"


def test_a_file_in_the_place_of_the_folder_is_told(tmp_path: Path) -> None:
    (tmp_path / "locks").touch()
    with pytest.raises(DeviceError, match=r"is no folder.*NPUDUMP_DEVICE_LOCKS"):
        lock_folder({FOLDER: str(tmp_path / "locks")})


@pytest.mark.each(
    "content",
    [
        b"",
        b"{",
        b"[]",
        b"\xff\xfe",
        b"null",
        b'{"pid": 1}',
        b'{"pid": "x", "user": "u", "since": "s", "owner": "o"}',
        b"[" * 5000,
    ],
)
def test_whatever_another_user_has_written_there_is_no_error(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "a").write_bytes(content)
    assert DeviceLock(tmp_path / "a").holder() == "another process"


def test_what_another_user_has_written_cannot_move_the_cursor(tmp_path: Path) -> None:
    told = {"pid": 1, "user": "u\x1b[2J", "since": "now\n", "owner": "o" * 3000}
    (tmp_path / "a").write_text(json.dumps(told), "utf-8")
    words = DeviceLock(tmp_path / "a").holder()
    assert words.isprintable()
    assert len(words) <= 200
