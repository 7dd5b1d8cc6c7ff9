"""The cache: what is read has the hash that it is named by, whatever has become of the file."""

from __future__ import annotations

from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_npudump.errors import StoreError
from pytest_npudump.golden.objects import ObjectCache, default_folder

if TYPE_CHECKING:
    from collections.abc import Callable

CONTENT = bytes(range(256)) * 5000
DIGEST = sha256(CONTENT).hexdigest()


@given(parts=st.lists(st.binary(max_size=300), min_size=1))
def test_what_is_written_is_read_back(parts: list[bytes], tmp_path_factory: pytest.TempPathFactory) -> None:
    content = b"".join(parts) or b"x"
    digest = sha256(content).hexdigest()
    cache = ObjectCache(tmp_path_factory.mktemp("cache"))
    cache.write(digest, parts if b"".join(parts) else [b"x"], "here")
    found = cache.read(digest, len(content))
    assert found is not None
    assert found.tobytes() == content
    assert not found.flags.writeable
    assert cache.has(digest, len(content))


def test_other_bytes_than_the_name_says_leave_nothing(tmp_path: Path) -> None:
    cache = ObjectCache(tmp_path)
    with pytest.raises(StoreError, match=r"^s3://b/x: is damaged, its bytes have the SHA-256 [0-9a-f]{64}; "):
        cache.write(DIGEST, [CONTENT[:-1]], "s3://b/x")
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []


def test_an_object_that_is_there_survives_a_write_that_fails(tmp_path: Path) -> None:
    cache = ObjectCache(tmp_path)
    cache.write(DIGEST, [CONTENT], "here")
    with pytest.raises(StoreError):
        cache.write(DIGEST, [b"half of it"], "there")
    found = cache.read(DIGEST, len(CONTENT))
    assert found is not None
    assert found.tobytes() == CONTENT


def flip(path: Path) -> None:
    path.write_bytes(CONTENT[:700] + bytes([CONTENT[700] ^ 1]) + CONTENT[701:])


def cut(path: Path) -> None:
    path.write_bytes(CONTENT[:-1])


def lengthen(path: Path) -> None:
    path.write_bytes(CONTENT + b"\0")


def in_the_way(path: Path) -> None:
    path.unlink()
    path.mkdir()


@pytest.mark.each("damage", [flip, cut, lengthen, Path.unlink, in_the_way])
def test_a_damaged_file_is_not_read(damage: Callable[[Path], None], tmp_path: Path) -> None:
    cache = ObjectCache(tmp_path)
    cache.write(DIGEST, [CONTENT], "here")
    damage(cache.path(DIGEST))
    assert cache.read(DIGEST, len(CONTENT)) is None
    assert cache.has(DIGEST, len(CONTENT)) == (damage is flip)  # bytes are looked at where they are read


def test_what_was_mapped_stays_when_the_file_is_replaced(tmp_path: Path) -> None:
    cache = ObjectCache(tmp_path)
    cache.write(DIGEST, [CONTENT], "here")
    found = cache.read(DIGEST, len(CONTENT))
    cache.path(DIGEST).unlink()
    cache.path(DIGEST).write_bytes(b"other")
    assert found is not None
    assert found.tobytes() == CONTENT


def test_a_folder_that_cannot_be_written_is_said_with_the_way_out(tmp_path: Path) -> None:
    tmp_path.joinpath("file").write_text("in the way")
    with pytest.raises(StoreError, match=r"cannot be written: Not a directory; .*--npudump-tensor-cache"):
        ObjectCache(tmp_path / "file").write(DIGEST, [CONTENT], "here")


@pytest.mark.each(("base", "expected"), [("/c", "/c"), ("", "/h/.cache"), ("relative", "/h/.cache")])
def test_the_cache_lies_where_the_desktop_has_caches(
    base: str, expected: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", base)
    monkeypatch.setenv("HOME", "/h")
    assert default_folder() == Path(expected) / "pytest-npudump" / "tensors"
