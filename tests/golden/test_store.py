from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pytest_npudump.dump.table import StatsTable
from pytest_npudump.errors import GoldenError, GoldenMissingError
from pytest_npudump.golden.store import is_there, read_golden, stage_golden, write_golden
from pytest_npudump.record.record import Record
from pytest_npudump.record.text import render
from pytest_npudump.storage import atomic


@pytest.fixture
def golden(make_table: Callable[..., StatsTable]) -> Any:
    def make(value: Any = 1.0, rows: Any = 1) -> Any:
        table = make_table(
            *[(f"layer{i}:output.0", "float32", (2,), {"max": value + i}) for i in range(rows)]
        )
        return Record("tests/test_a.py::test_a", {"runtime": "emulator"}, table, Path("unused"))

    return make


def test_what_was_written_is_read(tmp_path: Path, golden: Callable[..., Record]) -> None:
    path = tmp_path / "deep" / "er" / "a.yaml"
    assert write_golden(path, golden()) is True
    back = read_golden(path)
    assert (back.path, back.test, back.table.keys) == (path, golden().test, golden().table.keys)


def test_the_same_content_leaves_the_file_untouched(tmp_path: Path, golden: Callable[..., Record]) -> None:
    path = tmp_path / "a.yaml"
    write_golden(path, golden())
    before = path.stat()
    assert write_golden(path, golden()) is False
    assert (path.stat().st_ino, path.stat().st_mtime_ns) == (before.st_ino, before.st_mtime_ns)
    assert write_golden(path, golden(2.0)) is True
    assert read_golden(path).table.value(0, 0) == 2.0


def test_a_missing_file_is_an_error_of_its_own(tmp_path: Path) -> None:
    words = r"none\.yaml: the golden file does not exist; write it with pytest --"
    with pytest.raises(GoldenMissingError, match=words):
        read_golden(tmp_path / "none.yaml")


def test_a_dangling_link_is_a_missing_golden(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").symlink_to(tmp_path / "gone.yaml")
    with pytest.raises(GoldenMissingError):
        read_golden(tmp_path / "a.yaml")


@pytest.mark.each(
    ("content", "message"),
    [
        (b"npudump-golden: 1\ntest: \xff\n", r"line 2: byte 24 is not UTF-8"),
        (b"\xef\xbb\xbfa: 1\n\xff\n", r"line 2: byte 8 is not UTF-8"),
        (b"\n\xff\n", r"line 2: byte 1 is not UTF-8"),
        (b"\x00" * 64, r"not YAML"),
        (b"", r"the file is empty"),
    ],
)
def test_bytes_that_are_no_text_are_refused(tmp_path: Path, content: bytes, message: str) -> None:
    path = tmp_path / "a.yaml"
    path.write_bytes(content)
    with pytest.raises(GoldenError, match=message):
        read_golden(path)


def test_a_directory_in_its_place_is_an_error(tmp_path: Path, golden: Callable[..., Record]) -> None:
    path = tmp_path / "a.yaml"
    path.mkdir()
    with pytest.raises(GoldenError, match="cannot be read"):
        read_golden(path)
    with pytest.raises(GoldenError, match="cannot be written"):
        write_golden(path, golden())
    assert list(tmp_path.iterdir()) == [path]


def test_a_pipe_in_its_place_is_an_error_and_no_wait(tmp_path: Path, golden: Callable[..., Record]) -> None:
    os.mkfifo(tmp_path / "a.yaml")
    with pytest.raises(GoldenError, match="cannot be read: it is a pipe, a socket or a device; move it"):
        read_golden(tmp_path / "a.yaml")
    with pytest.raises(GoldenError, match="cannot be written: it is a pipe, a socket or a device; move it"):
        write_golden(tmp_path / "a.yaml", golden())
    assert (tmp_path / "a.yaml").is_fifo()


def test_a_file_too_large_for_a_golden_is_not_read_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "a.yaml"
    path.write_bytes(b"x" * 11)
    monkeypatch.setattr("pytest_npudump.golden.store.LARGEST", 10)
    with pytest.raises(GoldenError, match="more than 10 bytes"):
        read_golden(path)


def test_a_byte_order_mark_is_read_over(tmp_path: Path, golden: Callable[..., Record]) -> None:
    path = tmp_path / "a.yaml"
    path.write_bytes(b"\xef\xbb\xbf" + render(golden()).encode())
    assert len(read_golden(path).table) == 1


@pytest.mark.parametrize("mode", [0o600, 0o644, 0o664])
def test_an_existing_files_permissions_are_kept(
    tmp_path: Path, golden: Callable[..., Record], mode: int
) -> None:
    path = tmp_path / "a.yaml"
    write_golden(path, golden())
    path.chmod(mode)
    write_golden(path, golden(2.0))
    assert path.stat().st_mode & 0o777 == mode


def test_a_file_that_nobody_may_read_can_be_read_once_it_is_replaced(
    tmp_path: Path, golden: Callable[..., Record]
) -> None:
    path = tmp_path / "a.yaml"
    write_golden(path, golden())
    path.chmod(0o044)
    write_golden(path, golden(2.0))
    assert path.stat().st_mode & 0o777 == 0o644


def test_a_folder_that_may_not_be_entered_is_no_missing_golden(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(path: Path) -> None:
        raise PermissionError(13, "Permission denied", str(path))

    assert not is_there(tmp_path / "a.yaml")
    assert not is_there(tmp_path / "a.yaml" / "b.yaml")
    monkeypatch.setattr(Path, "stat", refused)
    assert is_there(tmp_path / "a.yaml")


def test_a_link_to_a_device_is_neither_read_nor_replaced(
    tmp_path: Path, golden: Callable[..., Record]
) -> None:
    path = tmp_path / "a.yaml"
    path.symlink_to(os.devnull)
    with pytest.raises(GoldenError, match="cannot be read: it is a pipe, a socket or a device"):
        read_golden(path)
    with pytest.raises(GoldenError, match="is a symbolic link"):
        write_golden(path, golden())


def test_a_new_files_permissions_are_those_of_any_new_file(
    tmp_path: Path, golden: Callable[..., Record]
) -> None:
    write_golden(tmp_path / "a.yaml", golden())
    (tmp_path / "b").touch()
    assert (tmp_path / "a.yaml").stat().st_mode == (tmp_path / "b").stat().st_mode


@pytest.mark.parametrize("there", [True, False], ids=["to a file", "to nothing"])
def test_nothing_is_written_through_a_symbolic_link(
    tmp_path: Path, golden: Callable[..., Record], *, there: bool
) -> None:
    real, link = tmp_path / "real" / "a.yaml", tmp_path / "a.yaml"
    real.parent.mkdir()
    if there:
        real.write_bytes(b"mine")
    link.symlink_to(real)
    for write in (write_golden, stage_golden):
        with pytest.raises(
            GoldenError, match=r"a\.yaml: is a symbolic link, through which nothing is written"
        ):
            write(link, golden())
    assert link.is_symlink()
    assert [path.read_bytes() for path in real.parent.iterdir()] == [b"mine"] * there


def test_a_folder_of_goldens_may_be_a_link_and_none_below_it(
    tmp_path: Path, golden: Callable[..., Record]
) -> None:
    elsewhere = tmp_path / "elsewhere"
    (elsewhere / "other").mkdir(parents=True)
    root = tmp_path / "golden"
    root.symlink_to(elsewhere)
    one = replace(golden(), test="test_a.py::test_b")
    assert write_golden(root / "test_a" / "test_b.yaml", one)
    assert (elsewhere / "test_a" / "test_b.yaml").is_file()
    (root / "test_c").symlink_to(elsewhere / "other")
    with pytest.raises(GoldenError, match="test_c: is a symbolic link"):
        write_golden(root / "test_c" / "test_b.yaml", replace(one, test="test_c.py::test_b"))
    assert [*(elsewhere / "other").iterdir()] == []


def test_a_failing_disk_leaves_the_old_golden(
    tmp_path: Path, golden: Callable[..., Record], monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "a.yaml"
    write_golden(path, golden())
    old = path.read_bytes()

    def full(_descriptor: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(atomic.os, "fsync", full)
    with pytest.raises(GoldenError, match=r"a\.yaml: cannot be written: No space left on device"):
        write_golden(path, golden(2.0))
    assert path.read_bytes() == old
    assert list(tmp_path.iterdir()) == [path]


def test_a_really_full_disk_leaves_nothing_half_written(golden: Callable[..., Record]) -> None:
    with pytest.raises(GoldenError, match="cannot be written"):
        write_golden(Path("/proc/npudump/a.yaml"), golden())


def test_what_a_killed_writer_left_is_swept(tmp_path: Path, golden: Callable[..., Record]) -> None:
    path = tmp_path / "a.yaml"
    own = tmp_path / f"{atomic._own_prefix(path)}0123.tmp"
    young, old = tmp_path / ".npudump-other-1.tmp", tmp_path / ".npudump-other-2.tmp"
    for left in (own, young, old):
        left.touch()
    os.utime(old, (0, 0))
    write_golden(path, golden())
    assert sorted(tmp_path.iterdir()) == sorted([path, young])


def test_writers_with_other_temporary_directories_exclude_each_other(
    tmp_path: Path, golden: Callable[..., Record], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(atomic, "_LOCK_SECONDS", 0.05)
    path = tmp_path / "a.yaml"
    with holding(path, tmp_path), pytest.raises(GoldenError, match="another process has held the lock"):
        write_golden(path, golden())
    assert write_golden(path, golden())
    assert beside(path) == ["a.yaml"]


def test_a_lock_that_a_killed_writer_left_holds_nobody_up(
    tmp_path: Path, golden: Callable[..., Record], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(atomic, "_LOCK_SECONDS", 0.05)
    path = tmp_path / "a.yaml"
    with holding(path, tmp_path) as child:
        child.kill()
    assert beside(path) == [atomic.lock_file(path).name]
    assert write_golden(path, golden())
    assert beside(path) == ["a.yaml"]


def test_a_waiting_writer_takes_over_from_one_whose_lock_is_gone(
    tmp_path: Path, golden: Callable[..., Record]
) -> None:
    path = tmp_path / "a.yaml"
    with holding(path, tmp_path) as child:
        waiting = threading.Thread(target=write_golden, args=(path, golden()))
        waiting.start()
        child.communicate(b"")
        waiting.join()
    assert beside(path) == ["a.yaml"]


def test_a_golden_that_is_the_same_needs_no_lock(
    tmp_path: Path, golden: Callable[..., Record], monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "a.yaml"
    write_golden(path, golden())
    monkeypatch.setattr(atomic, "lock_file", lambda _: Path("/proc/npudump/a.lock"))
    assert not write_golden(path, golden())
    with pytest.raises(GoldenError, match="cannot be written"):
        write_golden(path, golden(2.0))


HOLDER = """
import sys
from pathlib import Path
from pytest_npudump.storage import atomic
with atomic.locked(Path(sys.argv[1])):
    print("in", flush=True)
    sys.stdin.read()
"""


@contextmanager
def holding(path: Path, folder: Path) -> Iterator[subprocess.Popen[bytes]]:
    """Have a process with a temporary directory of its own hold the lock of ``path``."""
    (folder / "elsewhere").mkdir()
    with subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={**os.environ, "TMPDIR": str(folder / "elsewhere")},
    ) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == b"in\n"
        yield child
        if child.returncode is None:
            child.communicate(b"")
    (folder / "elsewhere").rmdir()


def beside(path: Path) -> list[str]:
    return sorted(found.name for found in path.parent.iterdir())


WRITER = """
import itertools, os, sys
from pathlib import Path
from pytest_npudump.storage import atomic
target = Path(sys.argv[1])
for i in itertools.count():
    content = b"%d\\n" % i * 20000 + b"end\\n"
    with atomic.locked(target) as real:
        atomic.replace_file(real, [content])
    if i == 0:
        print(os.getpid(), flush=True)
"""


@pytest.mark.e2e
def test_no_kill_tears_or_loses_a_golden(tmp_path: Path, warm: Any) -> None:
    path = tmp_path / "a.yaml"
    chance = random.Random(0)  # noqa: S311 - any spread of moments to kill at
    for _ in range(25):
        with subprocess.Popen([*warm.client, "-c", WRITER, str(path)], stdout=subprocess.PIPE) as child:
            assert child.stdout is not None
            writer = int(child.stdout.readline())
            time.sleep(chance.random() * 0.02)
            os.kill(writer, signal.SIGKILL)
        lines = path.read_bytes().splitlines()
        assert lines[-1] == b"end"
        assert len(lines) == 20001
        assert len(set(lines)) == 2
    with atomic.locked(path) as real:
        atomic.replace_file(real, [b"last"])
    assert [left.name for left in tmp_path.iterdir()] == ["a.yaml"]


@pytest.mark.e2e
def test_writers_in_parallel_each_leave_a_whole_file(tmp_path: Path) -> None:
    path = tmp_path / "a.yaml"
    command = [sys.executable, "-c", WRITER, str(path)]
    children = [subprocess.Popen(command, stdout=subprocess.PIPE) for _ in range(2)]
    try:
        for child in children:
            assert child.stdout is not None
            assert int(child.stdout.readline()) == child.pid
        for _ in range(50):
            lines = path.read_bytes().splitlines()
            assert (len(lines), len(set(lines))) == (20001, 2)
        with atomic.locked(path) as real:
            atomic.replace_file(real, [b"last"])
    finally:
        for child in children:
            child.kill()
            child.communicate()
