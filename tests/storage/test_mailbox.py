"""What processes hand each other."""

from __future__ import annotations

from pathlib import Path
from types import MappingProxyType

import pytest

from pytest_npudump.storage.atomic import dump_bytes, load_bytes, messages, post


def test_read_only_mappings_arrive_read_only_with_what_they_hold() -> None:
    content = ("scene", MappingProxyType({"input_output": 0, "deep": MappingProxyType({"a": [1, 2]})}))
    name, found = load_bytes(dump_bytes(content))
    assert (name, found) == content
    assert isinstance(found, MappingProxyType)
    assert isinstance(found["deep"], MappingProxyType)


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


def test_what_cannot_be_pickled_says_so() -> None:
    with pytest.raises(Exception, match="pickle"):
        dump_bytes(lambda: None)
