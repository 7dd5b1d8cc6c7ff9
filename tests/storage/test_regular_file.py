from __future__ import annotations

import os
import socket
from pathlib import Path

import pytest

from pytest_npudump.storage.regular_file import open_regular, read_regular


def test_a_file_is_read_as_it_is(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"a\r\nb")
    (tmp_path / "link").symlink_to("file")
    assert read_regular(tmp_path / "link") == b"a\r\nb"


@pytest.mark.each("kind", ["pipe", "socket", "device", "directory", "nothing"])
def test_what_is_no_file_is_refused_at_once(
    tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)  # a socket's path is short
    path = tmp_path / "odd"
    if kind == "pipe":
        os.mkfifo(path)
    elif kind == "socket":
        with socket.socket(socket.AF_UNIX) as server:
            server.bind(path.name)
    elif kind == "device":
        path.symlink_to("/dev/zero")
    elif kind == "directory":
        path.mkdir()
    before = len(os.listdir("/proc/self/fd"))  # noqa: PTH208 - a count
    with pytest.raises(OSError, match=r"odd"):
        open_regular(path)
    assert len(os.listdir("/proc/self/fd")) == before  # noqa: PTH208 - the same
