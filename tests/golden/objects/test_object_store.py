"""Stores of three kinds, each looked at past the code under test."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import dataclass
from hashlib import sha256
from typing import TYPE_CHECKING, Any

import fsspec
import pytest
import s3fs  # noqa: F401 - loaded once, or each test would load it

from pytest_npudump.errors import RequestError, StoreError
from pytest_npudump.golden.objects import ObjectStore

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

CONTENT = bytes(range(256)) * 20_000
DIGEST = sha256(CONTENT).hexdigest()
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


def test_an_object_is_there_under_its_hash_whole(store: Store, source: Path) -> None:
    objects = ObjectStore(store.url)
    assert objects.size(DIGEST) is None
    objects.write(DIGEST, source, len(CONTENT))
    assert store.held() == {NAME: CONTENT}
    assert objects.size(DIGEST) == len(CONTENT)
    assert b"".join(objects.read(DIGEST)) == CONTENT


def test_an_object_is_replaced(store: Store, source: Path) -> None:
    objects = ObjectStore(f"{store.url}/")
    objects.write(DIGEST, source, len(CONTENT))
    source.write_bytes(b"other")
    objects.write(DIGEST, source, 5)
    assert store.held() == {NAME: b"other"}


def test_what_is_not_there_is_said(store: Store) -> None:
    with pytest.raises(StoreError, match=f"{store.url}/{NAME}: is not there any more"):
        b"".join(ObjectStore(store.url).read(DIGEST))


def test_a_write_of_another_size_than_was_to_be_is_an_error(store: Store, source: Path) -> None:
    with pytest.raises(StoreError, match="is not there as it was written"):
        ObjectStore(store.url).write(DIGEST, source, 3)


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


@pytest.mark.usefixtures("s3")
def test_a_bucket_that_is_not_there_is_said(source: Path) -> None:
    with pytest.raises(StoreError, match="bucket does not exist; make the bucket first"):
        ObjectStore("s3://no-such-bucket/tensors").write(DIGEST, source, len(CONTENT))


def test_a_server_that_is_down_is_said_and_not_asked_again_at_once(s3: Any, source: Path) -> None:
    objects = ObjectStore(s3.url)
    objects.write(DIGEST, source, len(CONTENT))
    s3.stop()
    with pytest.raises(StoreError, match=f"^{s3.url}: cannot be read or written now: Could not connect"):
        objects.size(DIGEST)
    s3.endpoint = ""
    objects._files = None  # whoever asks it now would see
    with pytest.raises(StoreError, match="cannot be read or written now"):
        objects.write(DIGEST, source, len(CONTENT))


def test_a_server_that_is_stopped_while_an_object_is_read_is_said(s3: Any, tmp_path: Path) -> None:
    large = tmp_path / "large"
    large.write_bytes(CONTENT * 4)
    objects = ObjectStore(s3.url)
    objects.write(DIGEST, large, len(CONTENT) * 4)
    pieces = objects.read(DIGEST)
    next(pieces)
    s3.stop()
    with pytest.raises(StoreError, match="cannot be read or written now"):
        b"".join(pieces)


@pytest.mark.each("url", ["", "store", "/shared", "s3://", "://x", "file://relative/folder"])
def test_what_is_no_address_is_refused(url: str) -> None:
    with pytest.raises(RequestError, match=r"npudump_tensor_store is .*expected an address such as s3://"):
        ObjectStore(url)


def test_a_protocol_that_nobody_knows_is_refused() -> None:
    with pytest.raises(RequestError, match="Protocol not known: nowhere"):
        ObjectStore("nowhere://x")


@pytest.mark.e2e
@pytest.mark.each(("package", "url", "extra"), [("fsspec", "memory://x", "store"), ("s3fs", "s3://b", "s3")])
def test_what_is_not_installed_is_named_with_its_extra(package: str, url: str, extra: str) -> None:
    script = f"""
import sys
sys.modules[{package!r}] = None
from pytest_npudump.golden.objects import ObjectStore
try:
    ObjectStore({url!r})
except Exception as error:
    print(type(error).__name__, error)
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout == (
        f"MissingExtraError the tensor store {url} needs the package {package!r}, which is not installed: "
        f"pip install 'pytest-npudump[{extra}]'\n"
    )
