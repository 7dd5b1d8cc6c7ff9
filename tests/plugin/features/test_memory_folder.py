"""Dumps that lie in memory while a session of the emulator lasts."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from pytest_npudump.dump.reader import read_dump
from pytest_npudump.plugin.features import memory_folder
from pytest_npudump.plugin.features.memory_folder import MemoryFolder
from pytest_npudump.storage.archive import unpacked

pytestmark = pytest.mark.skipif(
    not memory_folder._is_tmpfs(memory_folder.SHARED_MEMORY), reason="there is no /dev/shm here"
)


@pytest.fixture
def shared_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "shm"
    folder.mkdir()
    monkeypatch.setattr(memory_folder, "SHARED_MEMORY", folder)
    monkeypatch.setattr(memory_folder, "_is_tmpfs", lambda _: True)
    monkeypatch.setattr(memory_folder, "ROOM", 0)
    return folder


def made(link: Path) -> MemoryFolder:
    folder = MemoryFolder.open(link)
    assert folder is not None
    return folder


def test_what_is_left_takes_the_place_of_the_link(shared_memory: Path, tmp_path: Path) -> None:
    link = tmp_path / "base" / "npudump"
    folder = made(link)
    (link / "test" / "run1").mkdir(parents=True)
    (link / "test" / "run1" / "dump").write_bytes(b"data")
    (link / "test" / "last").symlink_to("run1")
    (link / "test" / "large").write_bytes(large := os.urandom(3 << 20))
    (link / "test" / "large").chmod(0o444)
    (link / "test").chmod(0o500)
    os.utime(link / "test", ns=(1, 2))
    os.utime(link / "test" / "run1" / "dump", ns=(3, 4))
    assert (folder.path / "test" / "run1" / "dump").read_bytes() == b"data"
    assert folder.path.stat().st_mode & 0o777 == 0o700
    folder.close()
    assert not link.is_symlink()
    assert sorted(path.name for path in link.rglob("*")) == ["dump", "large", "last", "run1", "test"]
    assert (link / "test" / "last" / "dump").read_bytes() == b"data"
    assert ((link / "test" / "large").read_bytes(), (link / "test" / "last").is_symlink()) == (large, True)
    assert [(link / "test" / name).stat().st_mode & 0o777 for name in ("large", ".")] == [0o444, 0o500]
    assert [(link / "test" / name).stat().st_mtime_ns for name in ("run1/dump", ".")] == [4, 2]
    (link / "test").chmod(0o700)
    assert not any(shared_memory.iterdir())
    folder.close()  # as a session may that ends twice


@pytest.mark.usefixtures("shared_memory")
@pytest.mark.parametrize("end", ["killed", "ended"])
def test_dumps_of_runs_are_kept_as_one_file_each(tmp_path: Path, end: str) -> None:
    link, trees = tmp_path / "npudump", Path(__file__).parents[2] / "data" / "trees"
    folder, test = made(link), link / "test-1"
    samples = {"run1/dump": "acl-stats", "run1/dump-one": "acl-tensor", "run2/dump": "acl-tensor"}
    for place, sample in samples.items():
        shutil.copytree(trees / sample, test / place)
    (test / "run3" / "dump" / "folder").mkdir(parents=True)
    (test / "run3" / "dump" / "link").symlink_to("folder")
    if end == "killed":
        (tmp_path / "npudump.moving" / "half").mkdir(parents=True)
        os.close(folder._descriptor)
        alive = made(tmp_path / "alive")
        assert folder.path.exists(), "so new a folder may be one that is about to be locked"
        for path in (folder.path, alive.path):
            os.utime(path, (0, 0))
        made(tmp_path / "next").close()
        assert alive.path.is_dir(), "a session that lives keeps its folder"
        alive.close()
        assert not folder.path.exists()
    else:
        folder.close()
    left = {path.relative_to(test).as_posix() for path in test.rglob("*") if path.is_file()}
    assert left == {"run1/dump.tar", "run1/dump-one.tar", "run2/dump.tar"}
    assert (test / "run3" / "dump" / "link").is_symlink(), "a dump with more than files is a folder"
    assert not (tmp_path / "npudump.moving").exists()
    for place, sample in samples.items():
        before = read_dump(trees / sample)
        for path in (test / place, test / f"{place}.tar"):
            now = read_dump(path)
            assert [(one.key, one.stats) for one in now.records] == [
                (one.key, one.stats) for one in before.records
            ]
            assert not now.problems
        file = before.records[0].path
        assert unpacked(test / place / file.relative_to(trees / sample)).read_bytes() == file.read_bytes()


@pytest.mark.parametrize("pipe", ["pipe", "run1/dump/pipe"])
def test_what_cannot_be_copied_stays_in_memory(shared_memory: Path, tmp_path: Path, pipe: str) -> None:
    link = tmp_path / "npudump"
    folder = made(link)
    (link / "dump").write_bytes(b"data")
    (link / "run1" / "dump").mkdir(parents=True)
    os.mkfifo(link / pipe)
    folder.close()
    assert link.is_symlink()
    assert (link / "dump").read_bytes() == b"data"
    assert [path.name for path in tmp_path.iterdir() if path != shared_memory] == ["npudump"]


def test_what_a_killed_session_has_left_is_deleted_where_its_link_is_gone(
    shared_memory: Path, tmp_path: Path
) -> None:
    """Other people's folders and links are left alone."""
    folder = made(tmp_path / "killed")
    (folder.path / "dump").touch()
    os.close(folder._descriptor)
    (tmp_path / "killed").unlink()
    (tmp_path / "killed").mkdir()
    os.utime(folder.path, (0, 0))
    made(tmp_path / "next").close()
    assert not any(shared_memory.iterdir())
    assert not any((tmp_path / "killed").iterdir())
    victim = tmp_path / "victim"
    victim.mkdir()
    (shared_memory / f"{memory_folder._prefix()}link").symlink_to(victim)
    (shared_memory / f"{memory_folder._prefix()}open").mkdir(mode=0o755)
    (shared_memory / "npudump-other").mkdir(mode=0o700)
    for path in shared_memory.iterdir():
        os.utime(path, (0, 0))
    made(tmp_path / "npudump").close()
    assert victim.is_dir()
    assert len([*shared_memory.iterdir()]) == 3


@pytest.mark.parametrize("what", ["tmpfs", "machine", "group", "slice", "first kind"])
def test_no_folder_is_made_where_there_is_no_room(
    shared_memory: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    monkeypatch.setattr(memory_folder, "ROOM", 1 << 30)
    free = SimpleNamespace(f_bavail=1000 if what == "tmpfs" else 1 << 20, f_frsize=4096)
    monkeypatch.setattr(memory_folder.os, "statvfs", lambda _: free)
    memory = tmp_path / "meminfo"
    memory.write_text(f"MemTotal: 9 kB\nMemAvailable:   {1000 if what == 'machine' else 1 << 21} kB\n")
    monkeypatch.setattr(memory_folder, "_MEMORY", memory)
    groups = {"group": "", "slice": "user.slice/session.scope", "first kind": "memory/docker/7f"}
    limited = tmp_path / "groups" / groups.get(what, "")
    limited.mkdir(parents=True)
    names = ("limit_in_bytes", "usage_in_bytes") if what == "first kind" else ("max", "current")
    (limited / f"memory.{names[0]}").write_text("2000000000\n" if what in groups else "max\n")
    (limited / f"memory.{names[1]}").write_text("1500000000\n")
    own = tmp_path / "own"
    own.write_text("4:cpu,memory:/docker/7f/inner\n0::/user.slice/session.scope/inner\n")
    monkeypatch.setattr(memory_folder, "_GROUPS", tmp_path / "groups")
    monkeypatch.setattr(memory_folder, "_OWN_GROUPS", own)
    assert MemoryFolder.open(tmp_path / "npudump") is None
    assert not any(shared_memory.iterdir())
    monkeypatch.setattr(memory_folder, "ROOM", 100)
    made(tmp_path / "npudump").close()


def test_a_name_that_is_taken_is_left_alone_and_nothing_is_left_of_tests_that_passed(
    shared_memory: Path, tmp_path: Path
) -> None:
    made(tmp_path / "npudump").close()
    assert not os.path.lexists(tmp_path / "npudump")
    assert not any(shared_memory.iterdir())
    (tmp_path / "npudump").mkdir()
    assert MemoryFolder.open(tmp_path / "npudump") is None
    assert not any(shared_memory.iterdir())


@pytest.mark.parametrize("option", ["", "--npudump-output", "-onpudump_keep_dumps=all"])
def test_dumps_of_tests_that_fail_are_where_the_report_says(
    project: Any, tmp_path: Path, option: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They lie on the disk from the start where the user names the folder, or keeps all that goes there."""
    base = tmp_path / "base"
    given = option == "--npudump-output"
    options = [f"{option}={tmp_path / 'named'}"] if given else [*filter(None, [option])]
    place = tmp_path / "named" / "dumps" if given else base / "npudump"
    monkeypatch.setattr(memory_folder, "ROOM", 0)
    project.path.joinpath("tox.ini").unlink(missing_ok=True)
    project.test_file(
        f"""
        import os
        def run(npu_dump, expected):
            where = os.path.realpath({str(place)!r})
            assert where.startswith("/dev/shm/npudump-") is {not option}
            with open("where.txt", "w") as file:
                file.write(where)
            with npu_dump.load_model("small.onnx") as model:
                model.run(np.zeros((1, 1, 8, 8), np.float32) + expected)

        @pytest.mark.npu_dump
        def test_good(npu_dump):
            run(npu_dump, 1)

        @pytest.mark.npu_dump
        def test_bad(npu_dump):
            run(npu_dump, int(os.environ["VALUE"]))
        """
    )
    monkeypatch.setenv("VALUE", "1")
    assert project.run("--npudump-update-golden", f"--basetemp={base}", *options).ret == 0
    monkeypatch.setenv("VALUE", "2")
    result = project.run(f"--basetemp={base}", *options, passed=1, failed=1)
    assert bool(option) == Path(project.path.joinpath("where.txt").read_text()).exists()
    assert not place.is_symlink()
    kept = {path.name.partition("-")[0].removeprefix("test_small_py_") for path in place.glob("test_small*")}
    assert kept == ({"test_good", "test_bad"} if "all" in option else {"test_bad"})
    names = {path.name for path in place.rglob("*") if path.is_file()}
    assert any(name.startswith("Conv.block_conv_1.") for name in names) is bool(option)
    if not option:
        assert names == {"acl.json", "dump.tar", "report.json", "report.txt"}
    result.stdout.fnmatch_lines([f"*{place}/test_small_py_test_bad-*"])
