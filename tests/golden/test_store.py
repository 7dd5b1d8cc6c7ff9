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
from pathlib import Path
from typing import Any

import pytest

from pytest_npudump.dump.records import Stats, TensorKey, TensorRecord
from pytest_npudump.dump.table import StatsTable
from pytest_npudump.errors import GoldenError, GoldenMissingError
from pytest_npudump.golden.store import is_there, read_golden, stage_golden, write_golden
from pytest_npudump.record.record import Record
from pytest_npudump.storage import atomic


def golden(path: Path, value: float = 1.0, test: str = "tests/test_a.py::test_a") -> Record:
    stats = Stats(max=value)
    row = TensorRecord(TensorKey("layer0", "output", 0), "", "float32", (2,), Path("d"), stats=stats)
    return Record(test, {"runtime": "emulator"}, StatsTable.from_records([row]), path)


def fails(what: Callable[..., object], path: Path, words: str, kind: type[GoldenError] = GoldenError) -> None:
    with pytest.raises(kind, match=words):
        what(path if what is read_golden else golden(path))


def test_what_was_written_is_read(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "er" / "a.yaml"
    assert write_golden(golden(path)) is True
    back = read_golden(path)
    assert (back.path, back.test, back.table.keys) == (path, golden(path).test, golden(path).table.keys)
    path.write_bytes(b"\xef\xbb\xbf" + path.read_bytes())  # a byte order mark is read over
    assert len(read_golden(path).table) == 1


def test_the_same_content_leaves_the_file_untouched(tmp_path: Path) -> None:
    path = tmp_path / "a.yaml"
    write_golden(golden(path))
    before = path.stat()
    assert write_golden(golden(path)) is False
    assert (path.stat().st_ino, path.stat().st_mtime_ns) == (before.st_ino, before.st_mtime_ns)
    assert write_golden(golden(path, 2.0)) is True
    assert read_golden(path).table.value(0, 0) == 2.0


def test_a_missing_file_or_a_link_to_none_is_an_error_of_its_own(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").symlink_to(tmp_path / "gone.yaml")
    for name in ("none", "a"):
        words = rf"{name}\.yaml: the golden file does not exist; write it with pytest --"
        fails(read_golden, tmp_path / f"{name}.yaml", words, GoldenMissingError)


@pytest.mark.each(
    ("content", "message"),
    [
        (b"npudump-golden: 1\ntest: \xff\n", r"line 2: byte 24 is not UTF-8"),
        (b"\xef\xbb\xbfa: 1\n\xff\n", r"line 2: byte 8 is not UTF-8"),
        (b"\n\xff\n", r"line 2: byte 1 is not UTF-8"),
        (b"\x00" * 64, r"not YAML"),
        (b"", r"the file is empty"),
        (b"x" * 101, "more than 100 bytes"),
    ],
)
def test_bytes_that_are_no_text_or_too_many_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, content: bytes, message: str
) -> None:
    monkeypatch.setattr("pytest_npudump.golden.store.LARGEST", 100)
    (tmp_path / "a.yaml").write_bytes(content)
    fails(read_golden, tmp_path / "a.yaml", message)


NO_FILE = "it is a pipe, a socket or a device"


@pytest.mark.each(
    ("make", "read", "written"),
    [
        (Path.mkdir, "cannot be read", "cannot be written"),
        (os.mkfifo, f"cannot be read: {NO_FILE}; move it", f"cannot be written: {NO_FILE}; move it"),
        (lambda path: path.symlink_to(os.devnull), f"cannot be read: {NO_FILE}", "is a symbolic link"),
    ],
    ids=["a directory", "a pipe, for which nobody waits", "a link to a device"],
)
def test_what_is_no_file_is_neither_read_nor_replaced(
    tmp_path: Path, make: Callable[[Path], object], read: str, written: str
) -> None:
    path = tmp_path / "a.yaml"
    make(path)
    before = path.lstat()
    fails(read_golden, path, read)
    fails(write_golden, path, written)
    assert list(tmp_path.iterdir()) == [path]
    assert (path.lstat().st_ino, path.lstat().st_mode) == (before.st_ino, before.st_mode)


def test_permissions_are_kept_but_its_owner_may_read_it(tmp_path: Path) -> None:
    path = tmp_path / "a.yaml"
    write_golden(golden(path))
    (tmp_path / "b").touch()
    assert path.stat().st_mode == (tmp_path / "b").stat().st_mode
    for value, (mode, kept) in enumerate({0o600: 0o600, 0o644: 0o644, 0o664: 0o664, 0o044: 0o644}.items(), 2):
        path.chmod(mode)
        assert write_golden(golden(path, value))
        assert path.stat().st_mode & 0o777 == kept, oct(mode)


def test_a_folder_that_may_not_be_entered_is_no_missing_golden(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(path: Path) -> None:
        raise PermissionError(13, "Permission denied", str(path))

    assert not is_there(tmp_path / "a.yaml")
    assert not is_there(tmp_path / "a.yaml" / "b.yaml")
    monkeypatch.setattr(Path, "stat", refused)
    assert is_there(tmp_path / "a.yaml")


def test_nothing_is_written_through_a_symbolic_link(tmp_path: Path) -> None:
    real, link = tmp_path / "real" / "a.yaml", tmp_path / "a.yaml"
    real.parent.mkdir()
    link.symlink_to(real)
    for content in ([], [b"mine"]):
        for mine in content:
            real.write_bytes(mine)
        for write in (write_golden, stage_golden):
            fails(write, link, r"a\.yaml: is a symbolic link, through which nothing is written")
        assert link.is_symlink()
        assert [path.read_bytes() for path in real.parent.iterdir()] == content


def test_a_folder_of_goldens_may_be_a_link_and_none_below_it(tmp_path: Path) -> None:
    elsewhere, root = tmp_path / "elsewhere", tmp_path / "golden"
    (elsewhere / "other").mkdir(parents=True)
    root.symlink_to(elsewhere)
    assert write_golden(golden(root / "test_a" / "test_b.yaml", test="test_a.py::test_b"))
    assert (elsewhere / "test_a" / "test_b.yaml").is_file()
    (root / "test_c").symlink_to(elsewhere / "other")
    with pytest.raises(GoldenError, match="test_c: is a symbolic link"):
        write_golden(golden(root / "test_c" / "test_b.yaml", test="test_c.py::test_b"))
    assert [*(elsewhere / "other").iterdir()] == []


def test_a_failing_disk_leaves_the_old_golden(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "a.yaml"
    write_golden(golden(path, 2.0))
    old = path.read_bytes()

    def full(_descriptor: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(atomic.os, "fsync", full)
    fails(write_golden, path, r"a\.yaml: cannot be written: No space left on device")
    assert path.read_bytes() == old
    assert list(tmp_path.iterdir()) == [path]
    fails(write_golden, Path("/proc/npudump/a.yaml"), "cannot be written")


def test_what_a_killed_writer_left_is_swept(tmp_path: Path) -> None:
    path = tmp_path / "a.yaml"
    own = tmp_path / f"{atomic._own_prefix(path)}0123.tmp"
    young, old = tmp_path / ".npudump-other-1.tmp", tmp_path / ".npudump-other-2.tmp"
    for left in (own, young, old):
        left.touch()
    os.utime(old, (0, 0))
    write_golden(golden(path))
    assert sorted(tmp_path.iterdir()) == sorted([path, young])


def test_writers_with_other_temporary_directories_exclude_each_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Until one is killed, or ends: a lock that is left or gone holds nobody up."""
    path = tmp_path / "a.yaml"
    with holding(path, tmp_path) as child:
        waiting = threading.Thread(target=write_golden, args=(golden(path),))
        waiting.start()
        child.communicate(b"")
        waiting.join()
    assert beside(path) == ["a.yaml"]
    monkeypatch.setattr(atomic, "_LOCK_SECONDS", 0.05)
    with holding(path, tmp_path) as child:
        with pytest.raises(GoldenError, match="another process has held the lock"):
            write_golden(golden(path, 2.0))
        child.kill()
    assert beside(path) == sorted(["a.yaml", atomic.lock_file(path).name])
    assert write_golden(golden(path, 2.0))
    assert beside(path) == ["a.yaml"]


def test_a_golden_that_is_the_same_needs_no_lock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "a.yaml"
    write_golden(golden(path, 2.0))
    monkeypatch.setattr(atomic, "lock_file", lambda _: Path("/proc/npudump/a.lock"))
    assert not write_golden(golden(path, 2.0))
    fails(write_golden, path, "cannot be written")


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
def test_writers_in_parallel_each_leave_a_whole_file(tmp_path: Path, warm: Any) -> None:
    path, writers = tmp_path / "a.yaml", list[int]()
    command = [*warm.client, "-c", WRITER, str(path)]
    children = [subprocess.Popen(command, stdout=subprocess.PIPE) for _ in range(2)]
    try:
        for child in children:
            assert child.stdout is not None
            writers.append(int(child.stdout.readline()))
        for _ in range(50):
            lines = path.read_bytes().splitlines()
            assert (len(lines), len(set(lines))) == (20001, 2)
        assert write_golden(golden(path))
    finally:
        for writer in writers:
            os.kill(writer, signal.SIGKILL)
        for child in children:
            child.communicate()
