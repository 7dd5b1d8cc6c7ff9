"""Golden tensors that lie in a store elsewhere, each under the hash of its bytes.

The cache is the folder of this machine, kept within its limit, the store the place that all share, through
fsspec.
"""

from __future__ import annotations

import os
import time
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, TypeVar

import numpy as np

from pytest_npudump.errors import MissingExtraError, RequestError, StoreError, in_one_line
from pytest_npudump.storage.atomic import sweep, write_whole
from pytest_npudump.storage.regular_file import open_regular

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from pytest_npudump.storage.atomic import Chunk

    Found = TypeVar("Found")


_PIECE = 1 << 20


def default_folder() -> Path:
    """Return the folder below the user's cache directory."""
    base = os.environ.get("XDG_CACHE_HOME", "")
    root = Path(base) if os.path.isabs(base) else Path("~/.cache").expanduser()  # noqa: PTH117 - as XDG has it
    return root / "pytest-npudump" / "tensors"


def object_name(digest: str) -> str:
    """Return the path of an object in a cache or store, relative to its root."""
    return f"sha256/{digest[:2]}/{digest}"


@dataclass(frozen=True, slots=True)
class ObjectCache:
    """The objects of this machine, each in a file named by the SHA-256 of its bytes.

    Attributes:
        folder: made when the first one is written.
    """

    folder: Path

    def path(self, digest: str) -> Path:
        """Return the file of an object, whether it is there or not."""
        return self.folder / object_name(digest)

    def has(self, digest: str, size: int) -> bool:
        """Return whether there is a file of that size; its bytes are checked where they are read."""
        try:
            with open_regular(self.path(digest)) as file:
                return os.fstat(file.fileno()).st_size == size
        except OSError:
            return False

    def read(self, digest: str, size: int) -> np.ndarray[Any, np.dtype[np.uint8]] | None:
        """Map an object, read-only, after its hash was found right; None where it is not there or damaged."""
        try:
            with open_regular(self.path(digest)) as file:
                if os.fstat(file.fileno()).st_size != size or _digest(file) != digest:
                    return None
                with suppress(OSError):  # a cache that is read-only: nothing is removed from it either
                    os.utime(file.fileno())
                # The file that was hashed, whatever has taken its name since.
                return np.asarray(np.memmap(file, dtype=np.uint8, mode="r", shape=(size,)))
        except (OSError, ValueError):
            return None

    def write(self, digest: str, chunks: Iterable[Chunk], origin: str) -> None:
        """Keep an object; a file of that name is replaced.

        Args:
            digest: SHA-256 of its bytes.
            chunks: these.
            origin: where they come from, for errors.

        Raises:
            StoreError: they are other bytes, and nothing is kept of them; or the file cannot be written.
        """
        path = self.path(digest)
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            sweep(path.parent)
            write_whole(path, _checked(digest, chunks, origin))
        except OSError as error:
            raise StoreError(
                f"{path}: the cache of stored tensors cannot be written: {error.strerror or error}; free "
                f"space, correct the permissions, or name another folder with npudump_tensor_cache"
            ) from error


def _checked(digest: str, chunks: Iterable[Chunk], origin: str) -> Iterator[Chunk]:
    found = sha256()
    for chunk in chunks:
        found.update(chunk)
        yield chunk
    if found.hexdigest() != digest:
        raise StoreError(
            f"{origin}: is damaged, its bytes have the SHA-256 {found.hexdigest()}; where it is cached "
            f"'npudump golden remote push --replace' puts it there again, else record the tensor anew with "
            f"--npudump-update-golden"
        )


def _digest(file: BinaryIO) -> str:
    """Return the SHA-256 of a file's bytes, a piece at a time so that none of them stays in memory."""
    found, piece = sha256(), bytearray(_PIECE)
    while count := file.readinto(piece):  # type: ignore[attr-defined]
        found.update(memoryview(piece)[:count])
    return found.hexdigest()


IN_USE_SECONDS = 300
"""Age below which files stay: another run may have written one and be about to read it."""


@dataclass(frozen=True, slots=True)
class CachedObject:
    """A file of the cache.

    Attributes:
        path: the file.
        size: its bytes.
        used: when it was last read or written, in seconds since the epoch.
    """

    path: Path
    size: int
    used: float


def cached_objects(cache: ObjectCache) -> list[CachedObject]:
    """Return the objects of a cache; what is being written is none yet."""
    found = []
    for folder, _, names in os.walk(cache.folder / "sha256"):
        for name in names:
            path = Path(folder, name)
            with suppress(OSError):  # another process has removed it meanwhile
                if not name.startswith("."):
                    told = path.lstat()
                    found.append(CachedObject(path, told.st_size, told.st_mtime))
    return found


def trim(cache: ObjectCache, limit: int) -> int:
    """Remove the objects that were used longest ago until the others have at most ``limit`` bytes.

    Who has one mapped keeps its bytes; who wants it again fetches it.

    Returns:
        The number of bytes removed.
    """
    objects = sorted(cached_objects(cache), key=lambda one: one.used)
    beyond = sum(one.size for one in objects) - limit
    before = time.time() - IN_USE_SECONDS
    freed = 0
    for one in objects:
        if beyond <= 0 or one.used > before:
            break
        beyond -= one.size  # also of what another process removes first
        with suppress(OSError):
            one.path.unlink()
            freed += one.size
    return freed


_SENT = 1 << 22
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


class UnreachableError(StoreError):
    """A store that does not answer, or refuses to."""


class ObjectStore:
    """Objects in a place that fsspec can reach, each under the SHA-256 of its bytes.

    Attributes:
        url: the place.
    """

    def __init__(self, url: str) -> None:
        self._protocol, sign, rest = url.partition("://")
        absolute = self._protocol not in _LOCAL or rest.startswith("/")
        if not (self._protocol and sign and rest and absolute):
            raise RequestError(
                f"npudump_tensor_store is {url!r}, expected an address such as s3://bucket/folder, "
                f"file:///shared/folder or memory://name"
            )
        self.url = url.rstrip("/")
        MissingExtraError.imported(f"the tensor store {self.url}", "fsspec", "store")
        from fsspec.config import conf  # noqa: PLC0415 - an extra
        from fsspec.core import url_to_fs  # noqa: PLC0415 - the same

        options: dict[str, Any] = {"use_listings_cache": False, "skip_instance_cache": True}
        if self._protocol in _S3 and "config_kwargs" not in conf.get("s3", {}):
            options["config_kwargs"] = _PATIENCE
        try:
            files, root = url_to_fs(self.url, **options)
        except (ImportError, ValueError) as error:
            if self._protocol in _S3 and isinstance(error, ImportError):
                raise MissingExtraError(f"the tensor store {self.url}", "s3fs", "s3") from error
            raise RequestError(f"npudump_tensor_store is {self.url!r}: {_words(error)}") from error
        if "config_kwargs" in options:
            files.retries = 1  # s3fs would do all attempts five times, which takes minutes
        self._files, self._root = files, str(root).rstrip("/")
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
        """Return the size of an object in bytes; None where it is not there.

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
            with self._ask(lambda: self._files.open(self._path(digest), "rb", block_size=_SENT)) as file:
                while piece := self._ask(lambda: file.read(_SENT)):
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
                write_whole(Path(path), iter(lambda: file.read(_SENT), b""))
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


def _words(error: Exception) -> str:
    return in_one_line(error) or type(error).__name__
