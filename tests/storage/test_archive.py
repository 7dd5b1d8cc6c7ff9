"""A folder in one file: what cannot be one is refused, and any other path is itself."""

from __future__ import annotations

import io
import os
import tarfile
from pathlib import Path

import pytest

from pytest_npudump.errors import DumpError
from pytest_npudump.storage.archive import pack, unpacked, with_runs_unpacked

LONG = "/".join(["n" * 200] * 3)


def test_files_come_back_with_their_names(tmp_path: Path) -> None:
    files = {"a": b"", LONG: b"x" * 100_000, "b/\udcff\u540d": b"y", "b/c": b"z" * 512}
    for name, content in files.items():
        (tmp_path / "dump" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "dump" / name).write_bytes(content)
    os.utime(tmp_path / "dump" / "a", (-5, -5))
    pack(tmp_path / "dump", tmp_path / "kept.1")
    for path in (tmp_path / "kept.1", tmp_path / "kept.1.tar"):
        root = unpacked(path)
        found = {
            file.relative_to(root).as_posix(): file.read_bytes() for file in root.rglob("*") if file.is_file()
        }
        assert found == files
    assert unpacked(tmp_path / "kept.1" / "b" / "c").read_bytes() == files["b/c"]
    (tmp_path / "dump.tar").write_bytes(b"a backup that somebody keeps beside the folder")
    for name in (".", "dump", "dump/a", "dump/none", "none"):
        assert unpacked(tmp_path / name) == tmp_path / name
    assert unpacked(Path("none")) == Path("none")
    with pytest.raises(FileExistsError):
        pack(tmp_path / "dump", tmp_path / "kept.1")
    (tmp_path / "kept.1.tar").unlink()
    (tmp_path / "dump" / "a").write_bytes(b"of a later run")
    pack(tmp_path / "dump", tmp_path / "kept.1")
    assert (unpacked(tmp_path / "kept.1") / "a").read_bytes() == b"of a later run"


def test_what_is_written_meanwhile_or_is_no_file_is_not_packed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "dump"
    folder.mkdir()
    (folder / "log").symlink_to("/proc/self/status")  # longer than its size, which is 0
    with pytest.raises(OSError, match="being written"):
        pack(folder, tmp_path / "log")
    (folder / "log").unlink()
    (folder / "folder").symlink_to(tmp_path)
    with pytest.raises(IsADirectoryError):
        pack(folder, tmp_path / "folder")
    (folder / "folder").unlink()

    def refused(_: object) -> None:
        raise PermissionError

    monkeypatch.setattr(os, "scandir", refused)
    with pytest.raises(PermissionError):
        pack(folder, tmp_path / "refused")


def test_folders_of_a_run_and_of_a_test_are_read_with_their_dumps(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "b").write_bytes(b"x")
    places = ("run1/dump", "run2/dump", "run2/dump-one.two")
    for place in places:
        (tmp_path / "test" / place).parent.mkdir(parents=True, exist_ok=True)
        pack(tmp_path / "a", tmp_path / "test" / place)
    (tmp_path / "test" / "run1" / "acl.json").write_bytes(b"{}")
    for path, expected in {
        tmp_path / "test": {*(f"{place}/b" for place in places), "run1/acl.json"},
        tmp_path / "test" / "run2": {"dump/b", "dump-one.two/b"},
        tmp_path / "test" / "run1" / "dump": {"b"},
        tmp_path / "a": {"b"},
    }.items():
        root = with_runs_unpacked(path)
        assert {one.relative_to(root).as_posix() for one in root.rglob("*") if one.is_file()} == expected
    assert root == path
    monkeypatch.chdir(tmp_path / "test" / "run1")
    for path, place in {".": "dump/b", "..": "run1/dump/b", "dump": "b", "../run1": "dump/b"}.items():
        assert (with_runs_unpacked(Path(path)) / place).read_bytes() == b"x"


@pytest.mark.each(
    ("name", "kind", "left"),
    [
        ("../out", tarfile.REGTYPE, None),
        ("/out", tarfile.REGTYPE, None),
        ("a/../../out", tarfile.REGTYPE, None),
        ("link", tarfile.SYMTYPE, None),
        ("link", tarfile.LNKTYPE, None),
        ("pipe", tarfile.FIFOTYPE, None),
        ("a", tarfile.REGTYPE, 700),
        ("a", tarfile.REGTYPE, 100),
    ],
)
def test_what_is_no_file_below_the_folder_or_cut_off_is_refused(
    tmp_path: Path, name: str, kind: bytes, left: int | None
) -> None:
    told = tarfile.TarInfo(name)
    told.type, told.size, told.linkname = kind, 1000 * (kind == tarfile.REGTYPE), str(tmp_path)
    file = tmp_path / "dump.tar"
    with tarfile.open(file, "w") as packed:
        packed.addfile(told, io.BytesIO(bytes(1000)))
    file.write_bytes(file.read_bytes()[:left])
    with pytest.raises(DumpError, match="cannot be unpacked"):
        unpacked(tmp_path / "dump")
    assert [path.name for path in tmp_path.iterdir()] == ["dump.tar"]
