"""The store that all machines share: objects under their hash, in whatever fsspec can reach.

An object is never changed: who has one of that name and size need not write it. It is there whole or not at
all: object stores have it so by themselves, elsewhere it gets its name when it is complete.
"""

from __future__ import annotations

import os
import time
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pytest_npudump.errors import MissingExtraError, RequestError, StoreError
from pytest_npudump.golden.objects.object_cache import object_name
from pytest_npudump.storage.atomic import write_whole
from pytest_npudump.storage.regular_file import open_regular

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import TypeVar

    Found = TypeVar("Found")

_PIECE = 1 << 22
_WHOLE = frozenset({"s3", "s3a", "gs", "gcs", "az", "abfs", "abfss", "oss", "memory"})
"""Protocols of stores in which a file is seen when all of it has been sent."""
_LOCAL = frozenset({"file", "local"})
_S3 = frozenset({"s3", "s3a"})
_PATIENCE = {
    "connect_timeout": 5,
    "read_timeout": 15,
    "retries": {"total_max_attempts": 3, "mode": "standard"},
}
"""Seconds and attempts for a server that does not answer: a test waits for all of them."""
_DOWN_SECONDS = 60


@lru_cache(maxsize=8)
def object_store(url: str) -> ObjectStore:
    """Return the store at ``url``, the same one each time, so that connections are shared.

    Raises:
        RequestError: it is no address of a store.
        MissingExtraError: what reaches it is not installed.
    """
    return ObjectStore(url)


def check_url(url: str) -> str:
    """Return an address without slashes at its end.

    Raises:
        RequestError: it names no protocol, or a place that depends on the current folder.
    """
    protocol, sign, rest = url.partition("://")
    absolute = protocol not in _LOCAL or rest.startswith("/")
    if not (protocol and sign and rest and absolute):
        raise RequestError(
            f"npudump_tensor_store is {url!r}, expected an address such as s3://bucket/folder, "
            f"file:///shared/folder or memory://name"
        )
    return url.rstrip("/")


class UnreachableError(StoreError):
    """A store that does not answer, or refuses to."""


class ObjectStore:
    """Objects in a place that fsspec can reach, each under the SHA-256 of its bytes.

    Attributes:
        url: the place.
    """

    def __init__(self, url: str) -> None:
        self.url = check_url(url)
        self._protocol = self.url.partition("://")[0]
        self._files, self._root = _filesystem(self.url, self._protocol)
        self._down = (0.0, "")

    def look(self) -> None:
        """Ask for something that is not there.

        Raises:
            UnreachableError: nobody answers.
        """
        self.size("0" * 64)

    def place(self, digest: str) -> str:
        """Return the address of an object."""
        return f"{self.url}/{object_name(digest)}"

    def size(self, digest: str) -> int | None:
        """Return how many bytes an object has; None where it is not there.

        Raises:
            StoreError: the store cannot be asked.
        """
        self._look_at_root()
        try:
            return int(self._ask(lambda: self._files.info(self._path(digest)))["size"])
        except FileNotFoundError:
            return None

    def read(self, digest: str) -> Iterator[bytes]:
        """Yield the bytes of an object, unchecked.

        Raises:
            StoreError: it is not there, or the store cannot be read.
        """
        try:
            with self._ask(lambda: self._files.open(self._path(digest), "rb", block_size=_PIECE)) as file:
                while piece := self._ask(lambda: file.read(_PIECE)):
                    yield piece
        except FileNotFoundError as error:
            raise StoreError(f"{self.place(digest)}: is not there any more") from error

    def write(self, digest: str, source: Path, size: int) -> None:
        """Put a file's bytes into the store, in place of an object of that name.

        Args:
            digest: the SHA-256 of its bytes.
            source: the file.
            size: how many bytes it has.

        Raises:
            StoreError: they are not there; what was there before is as it was.
        """
        self._look_at_root()
        try:
            self._ask(lambda: self._put(source, self._path(digest)))
        except FileNotFoundError as error:
            raise StoreError(
                f"{self.url}: cannot be written: {_words(error)}; make the bucket first"
            ) from error
        if self.size(digest) != size:
            raise StoreError(f"{self.place(digest)}: is not there as it was written: {size} bytes; try again")

    def _put(self, source: Path, path: str) -> None:
        if self._protocol in _LOCAL:
            Path(path).parent.mkdir(parents=True, exist_ok=True)
            with open_regular(source) as file:
                write_whole(Path(path), iter(lambda: file.read(_PIECE), b""))
        elif self._protocol in _WHOLE:
            self._files.put_file(str(source), path)
        else:
            folder, _, name = path.rpartition("/")
            temporary = f"{folder}/.npudump-{name[:16]}-{os.urandom(4).hex()}.tmp"
            self._files.makedirs(folder, exist_ok=True)
            self._files.put_file(str(source), temporary)
            self._files.mv(temporary, path)

    def _look_at_root(self) -> None:
        """Refuse a shared folder that is not there, as one that is not mounted: it is never made here."""
        if self._protocol in _LOCAL and not Path(self._root).is_dir():
            raise UnreachableError(f"{self.url}: there is no such folder: mount it, or make it first")

    def _path(self, digest: str) -> str:
        return f"{self._root}/{object_name(digest)}"

    def _ask(self, question: Callable[[], Found]) -> Found:
        """Ask the store; one that did not answer is not asked again for a while: each test would wait."""
        since, why = self._down
        if why and time.monotonic() - since < _DOWN_SECONDS:
            raise UnreachableError(why)
        try:
            return question()
        except FileNotFoundError:
            raise
        except PermissionError as error:
            raise UnreachableError(
                f"{self.url}: access is denied: {_words(error)}; look at the credentials of this machine"
            ) from error
        except Exception as error:  # what lies behind fsspec raises what it likes
            why = f"{self.url}: cannot be read or written now: {_words(error)}"
            self._down = (time.monotonic(), why)
            raise UnreachableError(why) from error


def _filesystem(url: str, protocol: str) -> tuple[Any, str]:
    try:
        from fsspec.config import conf  # noqa: PLC0415 - an extra
        from fsspec.core import url_to_fs  # noqa: PLC0415 - the same
    except ImportError:
        raise MissingExtraError(f"the tensor store {url}", "fsspec", "store") from None
    options: dict[str, Any] = {"use_listings_cache": False, "skip_instance_cache": True}
    if protocol in _S3 and "config_kwargs" not in conf.get("s3", {}):
        options["config_kwargs"] = _PATIENCE
    try:
        files, root = url_to_fs(url, **options)
    except ImportError as error:
        if protocol in _S3:
            raise MissingExtraError(f"the tensor store {url}", "s3fs", "s3") from error
        raise RequestError(f"npudump_tensor_store is {url!r}: {_words(error)}") from error
    except ValueError as error:
        raise RequestError(f"npudump_tensor_store is {url!r}: {_words(error)}") from error
    if "config_kwargs" in options:
        files.retries = 1  # s3fs would do all attempts five times, which takes minutes
    return files, str(root).rstrip("/")


def _words(error: Exception) -> str:
    return " ".join(str(error).split()) or type(error).__name__
