"""Cache and stores: what is read has the hash that it is named by, whatever has become of the file."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any

import fsspec
import pytest
from hypothesis import given, strategies as st

from pytest_npudump.errors import RequestError, StoreError
from pytest_npudump.golden.objects import (
    IN_USE_SECONDS,
    ObjectCache,
    ObjectStore,
    cached_objects,
    default_folder,
    trim,
)

CONTENT = bytes(range(256)) * 20_000
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


def test_other_bytes_than_the_name_says_leave_what_was_there(tmp_path: Path) -> None:
    cache = ObjectCache(tmp_path)
    words = r"^s3://b/x: is damaged, its bytes have the SHA-256 [0-9a-f]{64}; "
    with pytest.raises(StoreError, match=words):
        cache.write(DIGEST, [CONTENT[:-1]], "s3://b/x")
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []
    cache.write(DIGEST, [CONTENT], "here")
    with pytest.raises(StoreError, match=words):
        cache.write(DIGEST, [b"half of it"], "s3://b/x")
    found = cache.read(DIGEST, len(CONTENT))
    assert found is not None
    assert found.tobytes() == CONTENT


def in_the_way(path: Path) -> None:
    path.unlink()
    path.mkdir()


DAMAGES: dict[str, Callable[[Path], object]] = {
    "flipped": lambda path: path.write_bytes(CONTENT[:700] + bytes([CONTENT[700] ^ 1]) + CONTENT[701:]),
    "cut": lambda path: path.write_bytes(CONTENT[:-1]),
    "longer": lambda path: path.write_bytes(CONTENT + b"\0"),
    "gone": Path.unlink,
    "a folder": in_the_way,
}


@pytest.mark.each("damage", DAMAGES)
def test_a_damaged_file_is_not_read(damage: str, tmp_path: Path) -> None:
    cache = ObjectCache(tmp_path)
    cache.write(DIGEST, [CONTENT], "here")
    DAMAGES[damage](cache.path(DIGEST))
    assert cache.read(DIGEST, len(CONTENT)) is None
    assert cache.has(DIGEST, len(CONTENT)) == (damage == "flipped")  # bytes are looked at where they are read


def test_a_folder_that_cannot_be_written_is_said_with_the_way_out(tmp_path: Path) -> None:
    tmp_path.joinpath("file").write_text("in the way")
    with pytest.raises(StoreError, match=r"cannot be written: Not a directory; .*npudump_tensor_cache"):
        ObjectCache(tmp_path / "file").write(DIGEST, [CONTENT], "here")


@pytest.mark.each(("base", "expected"), [("/c", "/c"), ("", "/h/.cache"), ("relative", "/h/.cache")])
def test_the_cache_lies_where_the_desktop_has_caches(
    base: str, expected: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", base)
    monkeypatch.setenv("HOME", "/h")
    assert default_folder() == Path(expected) / "pytest-npudump" / "tensors"


OLD = IN_USE_SECONDS + 60
SIZE = 100


@pytest.fixture
def cache(tmp_path: Path) -> ObjectCache:
    return ObjectCache(tmp_path / "cache")


def put(cache: ObjectCache, number: int, ago: float) -> str:
    """Write an object that was last used so many seconds ago."""
    content = bytes([number]) * SIZE
    digest = sha256(content).hexdigest()
    cache.write(digest, [content], "the test")
    used = time.time() - ago
    os.utime(cache.path(digest), (used, used))
    return digest


@pytest.mark.each(
    ("ages", "read", "limit", "freed", "left"),
    [
        ([OLD, OLD + 1, OLD + 2, OLD + 3], [], 2, 2, [True, True, False, False]),
        ([OLD, OLD + 1, OLD + 2], [2], 1, 2, [False, False, True]),
        ([OLD, 1, 1, 1], [], 0, 1, [False, True, True, True]),
        ([], [], 0, 0, []),
    ],
    ids=["what was used longest ago goes first", "a read is a use", "what is in use stays", "nothing"],
)
def test_a_cache_is_trimmed(
    *, tmp_path: Path, ages: list[float], read: list[int], limit: int, freed: int, left: list[bool]
) -> None:
    cache = ObjectCache(tmp_path)
    names = [put(cache, number, age) for number, age in enumerate(ages)]
    assert len(cached_objects(cache)) == len(names)
    for number in read:
        assert cache.read(names[number], SIZE) is not None
    assert [trim(cache, limit * SIZE) for _ in range(2)] == [freed * SIZE, 0]
    assert [cache.has(name, SIZE) for name in names] == left


def test_a_tensor_that_is_mapped_keeps_its_bytes(cache: ObjectCache) -> None:
    """Whether its file is removed or another takes its place."""
    name = put(cache, 7, OLD)
    mapped = cache.read(name, SIZE)
    assert mapped is not None
    for one in cached_objects(cache):
        one.path.unlink()
    assert not cache.has(name, SIZE)
    cache.path(name).write_bytes(b"other")
    assert bytes(mapped) == bytes([7]) * SIZE


def test_several_processes_may_trim_at_once(cache: ObjectCache) -> None:
    names = [put(cache, number, OLD + number) for number in range(40)]
    freed: list[int] = []
    threads = [threading.Thread(target=lambda: freed.append(trim(cache, 10 * SIZE))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sum(freed) == 30 * SIZE
    assert [cache.has(name, SIZE) for name in names] == [True] * 10 + [False] * 30


NAME = f"sha256/{DIGEST[:2]}/{DIGEST}"


@dataclass
class Store:
    """A store, and what it holds by name, as something else than our code sees it."""

    url: str
    held: Callable[[], dict[str, bytes]]


@pytest.fixture(params=["memory", "file", "s3"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Store:
    if request.param == "s3":
        server = request.getfixturevalue("s3")
        return Store(server.url, lambda: {k.removeprefix("tensors/"): v for k, v in server.objects().items()})
    if request.param == "file":
        root = tmp_path / "shared folder"
        root.mkdir()
        files = lambda: (path for path in root.rglob("*") if path.is_file())  # noqa: E731 - two of a kind
        return Store(f"file://{root}", lambda: {str(p.relative_to(root)): p.read_bytes() for p in files()})
    fsspec.filesystem("memory").store.clear()
    memory = fsspec.filesystem("memory").store
    return Store("memory://a/b", lambda: {k.removeprefix("/a/b/"): v.getvalue() for k, v in memory.items()})


@pytest.fixture
def source(tmp_path: Path) -> Path:
    path = tmp_path / "source"
    path.write_bytes(CONTENT)
    return path


def test_an_object_is_there_under_its_hash_whole_and_replaced(store: Store, source: Path) -> None:
    objects = ObjectStore(f"{store.url}/")
    assert objects.size(DIGEST) is None
    with pytest.raises(StoreError, match=f"{store.url}/{NAME}: is not there any more"):
        b"".join(objects.read(DIGEST))
    with pytest.raises(StoreError, match="is not there as it was written"):
        objects.write(DIGEST, source, 3)
    objects.write(DIGEST, source, len(CONTENT))
    assert store.held() == {NAME: CONTENT}
    assert objects.size(DIGEST) == len(CONTENT)
    assert b"".join(objects.read(DIGEST)) == CONTENT
    source.write_bytes(b"other")
    objects.write(DIGEST, source, 5)
    assert store.held() == {NAME: b"other"}
    if store.url.startswith("s3"):
        with pytest.raises(StoreError, match="bucket does not exist; make the bucket first"):
            ObjectStore("s3://no-such-bucket/tensors").write(DIGEST, source, 5)


def test_a_store_that_is_renamed_into_is_never_seen_with_half_an_object(
    tmp_path: Path, source: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What has no place among object stores and local files: written aside, then renamed."""
    objects = ObjectStore(f"file://{tmp_path}")
    monkeypatch.setattr(objects, "_protocol", "sftp")
    objects.write(DIGEST, source, len(CONTENT))
    assert (tmp_path / NAME).read_bytes() == CONTENT
    assert [path.name for path in (tmp_path / NAME).parent.iterdir()] == [DIGEST]
    (tmp_path / NAME).unlink()

    def fail(*_: Any, **__: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(type(objects._files), "mv", fail)
    with pytest.raises(StoreError, match=r"cannot be read or written now: .*No space left"):
        objects.write(DIGEST, source, len(CONTENT))
    assert not (tmp_path / NAME).exists()


def test_a_shared_folder_that_is_not_mounted_is_not_made(tmp_path: Path, source: Path) -> None:
    objects = ObjectStore(f"file://{tmp_path}/share")
    for ask in (lambda: objects.size(DIGEST), lambda: objects.write(DIGEST, source, len(CONTENT))):
        with pytest.raises(StoreError, match="no such folder: mount it, or make it first"):
            ask()
    assert not (tmp_path / "share").exists()


def test_a_server_that_is_stopped_is_said_and_not_asked_again_at_once(s3: Any, tmp_path: Path) -> None:
    source = tmp_path / "large"
    source.write_bytes(CONTENT * 4)
    objects, other = ObjectStore(s3.url), ObjectStore(s3.url)
    objects.write(DIGEST, source, len(CONTENT) * 4)
    pieces = other.read(DIGEST)
    next(pieces)
    s3.stop()
    with pytest.raises(StoreError, match="cannot be read or written now"):
        b"".join(pieces)
    with pytest.raises(StoreError, match=f"^{s3.url}: cannot be read or written now: Could not connect"):
        objects.size(DIGEST)
    s3.endpoint = ""
    objects._files = None  # whoever asks it now would see
    with pytest.raises(StoreError, match="cannot be read or written now"):
        objects.write(DIGEST, source, len(CONTENT) * 4)


@pytest.mark.each("url", ["", "store", "/shared", "s3://", "://x", "file://relative/folder"])
def test_what_is_no_address_is_refused(url: str) -> None:
    with pytest.raises(RequestError, match=r"npudump_tensor_store is .*expected an address such as s3://"):
        ObjectStore(url)
    with pytest.raises(RequestError, match="Protocol not known: nowhere"):
        ObjectStore("nowhere://x")


@pytest.mark.e2e
@pytest.mark.each(("package", "url", "extra"), [("fsspec", "memory://x", "store"), ("s3fs", "s3://b", "s3")])
def test_what_is_not_installed_is_named_with_its_extra(package: str, url: str, extra: str, warm: Any) -> None:
    script = f"""
import sys
sys.modules[{package!r}] = None
from pytest_npudump.golden.objects import ObjectStore
try:
    ObjectStore({url!r})
except Exception as error:
    print(type(error).__name__, error)
"""
    words = f"the tensor store {url} needs the package {package!r}, which is not installed: pip install"
    assert warm.run("-c", script) == (0, f"MissingExtraError {words} 'pytest-npudump[{extra}]'\n", "")
