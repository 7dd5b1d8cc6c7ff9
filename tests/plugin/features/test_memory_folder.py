"""Dumps that lie in memory while a session of the emulator lasts."""

from __future__ import annotations

import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from pytest_npudump.plugin.features import memory_folder
from pytest_npudump.plugin.features.memory_folder import open_folder, settle

pytestmark = pytest.mark.skipif(
    not memory_folder.SHARED_MEMORY.is_mount(), reason="there is no /dev/shm here"
)


@pytest.fixture
def shared_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "shm"
    folder.mkdir()
    monkeypatch.setattr(memory_folder, "SHARED_MEMORY", folder)
    monkeypatch.setattr(Path, "is_mount", lambda _: True)
    monkeypatch.setattr(memory_folder, "ROOM", 0)
    return folder


def made(link: Path, *, killed: bool = False) -> Path:
    """Return a new folder, which a session that was killed has not locked any more."""
    found = open_folder(link)
    assert found is not None
    if killed:
        os.close(found[1])
    return found[0]


def test_what_is_left_takes_the_place_of_the_link(shared_memory: Path, tmp_path: Path) -> None:
    link = tmp_path / "base" / "npudump"
    path = made(link)
    (link / "test" / "run1").mkdir(parents=True)
    (link / "test" / "run1" / "dump").write_bytes(b"data")
    (link / "test" / "last").symlink_to("run1")
    (link / "test" / "large").write_bytes(large := os.urandom(3 << 20))
    (link / "test" / "large").chmod(0o444)
    os.utime(link / "test" / "run1" / "dump", ns=(3, 4))
    assert (path / "test" / "run1" / "dump").read_bytes() == b"data"
    assert path.stat().st_mode & 0o777 == 0o700
    settle(path)
    assert not link.is_symlink()
    assert sorted(path.name for path in link.rglob("*")) == ["dump", "large", "last", "run1", "test"]
    assert (link / "test" / "last" / "dump").read_bytes() == b"data"
    assert ((link / "test" / "large").read_bytes(), (link / "test" / "last").is_symlink()) == (large, True)
    assert (link / "test" / "large").stat().st_mode & 0o777 == 0o444
    assert (link / "test" / "run1" / "dump").stat().st_mtime_ns == 4
    assert not any(shared_memory.iterdir())


def test_what_cannot_be_copied_stays_in_memory(shared_memory: Path, tmp_path: Path) -> None:
    link = tmp_path / "npudump"
    path = made(link)
    (link / "dump").write_bytes(b"data")
    os.mkfifo(link / "pipe")
    settle(path)
    assert link.is_symlink()
    assert (link / "dump").read_bytes() == b"data"
    assert [path.name for path in tmp_path.iterdir() if path != shared_memory] == ["npudump"]


def test_what_a_killed_session_has_left_is_put_where_it_belongs(shared_memory: Path, tmp_path: Path) -> None:
    """It is deleted where its link is gone; folders of others, links and live sessions are left alone."""
    alive, kept, gone = (made(tmp_path / name, killed=name != "alive") for name in ("alive", "kept", "gone"))
    for path in (alive, kept, gone):
        (path / "dump").touch()
    (tmp_path / "kept.moving" / "half").mkdir(parents=True)
    (tmp_path / "gone").unlink()
    (tmp_path / "gone").mkdir()
    victim = tmp_path / "victim"
    victim.mkdir()
    prefix = f"npudump-{os.getuid()}-"
    (shared_memory / f"{prefix}link").symlink_to(victim)
    (shared_memory / f"{prefix}open").mkdir(mode=0o755)
    (shared_memory / "npudump-other").mkdir(mode=0o700)
    others = {*shared_memory.iterdir()} - {kept, gone}
    for path in (kept, gone, *others):
        os.utime(path, (0, 0))
    new = made(tmp_path / "new", killed=True)
    assert {*shared_memory.iterdir()} == {*others, new}
    settle(made(tmp_path / "next"))  # so new a folder may be one that is about to be locked
    assert {*shared_memory.iterdir()} == {*others, new}
    assert [path.name for path in (tmp_path / "kept").iterdir()] == ["dump"]
    assert not any((tmp_path / "gone").iterdir())
    assert not (tmp_path / "kept.moving").exists()
    assert not os.path.lexists(tmp_path / "next"), "nothing is left of tests that passed"


@pytest.mark.each("what", ["tmpfs", "machine", "group", "first kind"])
def test_no_folder_is_made_where_there_is_no_room_or_the_name_is_taken(
    shared_memory: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    root = tmp_path / what
    for name in ("groups/memory", "taken"):
        (root / name).mkdir(parents=True)
    monkeypatch.setattr(memory_folder, "ROOM", 1 << 30)
    free = SimpleNamespace(f_bavail=1000 if what == "tmpfs" else 1 << 20, f_frsize=4096)
    monkeypatch.setattr(memory_folder.os, "statvfs", lambda _: free)
    (root / "mem").write_text(
        f"MemTotal: 9 kB\nMemAvailable:   {1000 if what == 'machine' else 1 << 21} kB\n"
    )
    monkeypatch.setattr(memory_folder, "_MEMORY", root / "mem")
    monkeypatch.setattr(memory_folder, "_GROUP", root / "groups")
    names = ("limit_in_bytes", "usage_in_bytes") if what == "first kind" else ("max", "current")
    group = root / "groups" / ("memory" if what == "first kind" else "")
    (group / f"memory.{names[0]}").write_text("2000000000\n" if what in {"group", "first kind"} else "max\n")
    (group / f"memory.{names[1]}").write_text("1500000000\n")
    assert open_folder(root / "npudump") is None
    monkeypatch.setattr(memory_folder, "ROOM", 100)
    assert open_folder(root / "taken") is None
    assert not any(shared_memory.iterdir())
    settle(made(root / "npudump"))


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
    assert any(name.startswith("Conv.block_conv_1.") for name in names)
    result.stdout.fnmatch_lines([f"*{place}/test_small_py_test_bad-*"])
