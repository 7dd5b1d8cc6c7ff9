from __future__ import annotations

import os
import socket
from pathlib import Path
from types import MappingProxyType

import pytest

from pytest_npudump.storage.atomic import dump_bytes, load_bytes, messages, post
from pytest_npudump.storage.regular_file import open_regular, read_regular


def test_a_file_is_read_as_it_is(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"a\r\nb")
    (tmp_path / "link").symlink_to("file")
    assert read_regular(tmp_path / "link") == b"a\r\nb"


def test_read_only_mappings_arrive_read_only_with_what_they_hold() -> None:
    content = ("scene", MappingProxyType({"input_output": 0, "deep": MappingProxyType({"a": [1, 2]})}))
    name, found = load_bytes(dump_bytes(content))
    assert (name, found) == content
    assert isinstance(found, MappingProxyType)
    assert isinstance(found["deep"], MappingProxyType)
    with pytest.raises(Exception, match="pickle"):
        dump_bytes(lambda: None)


def test_messages_come_in_order_and_a_torn_one_is_left_out(tmp_path: Path) -> None:
    path = tmp_path / "box"
    assert list(messages(path)) == []
    post(path, "first", {"a": 1})
    whole = path.stat().st_size
    post(path, "second", MappingProxyType({"b": 2}))
    assert list(messages(path)) == [("first", {"a": 1}), ("second", {"b": 2})]
    data = path.read_bytes()
    for size in range(whole, len(data)):
        path.write_bytes(data[:size])
        assert list(messages(path)) == [("first", {"a": 1})]


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
