"""The folder in which this machine keeps stored tensors: read only with the right hash, written whole."""

from __future__ import annotations

import os
import time
from contextlib import suppress
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from pytest_npudump.errors import StoreError
from pytest_npudump.storage.atomic import sweep, write_whole
from pytest_npudump.storage.regular_file import open_regular

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from typing import BinaryIO

    from pytest_npudump.storage.atomic import Chunk

    Bytes = np.ndarray[Any, np.dtype[np.uint8]]


_PIECE = 1 << 20


def default_folder() -> Path:
    """Return the folder below the user's cache directory."""
    base = os.environ.get("XDG_CACHE_HOME", "")
    root = Path(base) if os.path.isabs(base) else Path("~/.cache").expanduser()  # noqa: PTH117 - as XDG has it
    return root / "pytest-npudump" / "tensors"


def object_name(digest: str) -> str:
    """Return where an object lies in a cache or store, relative to its root."""
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
        """Whether there is a file of that size; its bytes are looked at where they are read."""
        try:
            with open_regular(self.path(digest)) as file:
                return os.fstat(file.fileno()).st_size == size
        except OSError:
            return False

    def read(self, digest: str, size: int) -> Bytes | None:
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
                f"space, correct the permissions, or name another folder with --npudump-tensor-cache"
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
"""What was used less long ago stays: another run may have written it and be about to read it."""


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
    chosen, size = [], 0
    for one in objects:
        if size >= beyond or one.used > before:
            break
        chosen.append(one)
        size += one.size
    return remove(chosen)


def remove(objects: Iterable[CachedObject]) -> int:
    """Remove objects; return the number of bytes removed."""
    freed = 0
    for one in objects:
        with suppress(OSError):
            one.path.unlink()
            freed += one.size
    return freed
