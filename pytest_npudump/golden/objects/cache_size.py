"""How much this machine's cache of stored tensors holds, and what goes first where that is too much."""

from __future__ import annotations

import os
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pytest_npudump.golden.objects.object_cache import ObjectCache

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
