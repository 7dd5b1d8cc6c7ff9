"""The cache of this machine is kept within its limit: what was used longest ago goes first."""

from __future__ import annotations

import os
import threading
import time
from hashlib import sha256
from typing import TYPE_CHECKING

import pytest

from pytest_npudump.golden.objects import IN_USE_SECONDS, ObjectCache, cached_objects, remove, trim

if TYPE_CHECKING:
    from pathlib import Path

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


def test_what_was_used_longest_ago_goes_first(cache: ObjectCache) -> None:
    names = [put(cache, number, OLD + number) for number in range(4)]
    assert trim(cache, 2 * SIZE) == 2 * SIZE
    assert [cache.has(name, SIZE) for name in names] == [True, True, False, False]
    assert trim(cache, 2 * SIZE) == 0


def test_a_read_is_a_use(cache: ObjectCache) -> None:
    names = [put(cache, number, OLD + number) for number in range(3)]
    assert cache.read(names[2], SIZE) is not None
    assert trim(cache, SIZE) == 2 * SIZE
    assert [cache.has(name, SIZE) for name in names] == [False, False, True]


def test_what_another_run_may_be_about_to_read_stays(cache: ObjectCache) -> None:
    names = [put(cache, 0, OLD), *(put(cache, number, 1) for number in range(1, 4))]
    assert trim(cache, 0) == SIZE
    assert [cache.has(name, SIZE) for name in names] == [False, True, True, True]


def test_a_tensor_that_is_mapped_keeps_its_bytes(cache: ObjectCache) -> None:
    name = put(cache, 7, OLD)
    mapped = cache.read(name, SIZE)
    assert mapped is not None
    remove(cached_objects(cache))
    assert not cache.has(name, SIZE)
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


def test_no_cache_holds_nothing(cache: ObjectCache) -> None:
    assert cached_objects(cache) == []
    assert trim(cache, 0) == 0
