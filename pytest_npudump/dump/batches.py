"""Much work in few pieces: what is small travels together, to threads, processes or other machines alike."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from typing import TypeVar

Item = TypeVar("Item")
Result = TypeVar("Result")

_LEAST_BYTES, _MOST_BYTES = 4 << 20, 64 << 20
_LEAST_ITEMS = 64
_HERE_BYTES = 1 << 20
"""Bytes of a batch that is done in this thread, after which it can say how far it is."""

_SHARES = 16
"""Batches of a large dump for each worker. Measured: batches of 4 MiB cost two threads 5 to 10 %."""

_THREADED_BYTES = 1 << 18
"""Bytes of an item from which threads gain: below, most of the time goes where Python's lock is held."""


def run_batches(
    work: Callable[[Sequence[Item]], Result],
    items: Sequence[Item],
    weights: Sequence[int],
    executor: Executor | None,
    workers: int = 1,
) -> Iterator[tuple[Sequence[Item], Result]]:
    """Yield batches of ``items`` with what ``work`` makes of them, in order.

    Args:
        work: for other processes a function of a module, as it travels to them like the items.
        items: what to work on.
        weights: the bytes that each of them makes a worker read. Empty without an executor: each item is
            done by itself.
        executor: who does it; None for this thread, which does it as well where threads would not help.
        workers: how many the executor has.
    """
    alone = workers == 1 or len(items) == 1 or sum(weights) < _THREADED_BYTES * len(items)
    if alone and isinstance(executor, ThreadPoolExecutor):
        executor = None
    if executor is None:
        for batch in _cut(items, weights or [_HERE_BYTES] * len(items), _HERE_BYTES, _LEAST_ITEMS):
            yield batch, work(batch)
        return
    batches = list(_batches(items, weights, workers))
    yield from zip(batches, executor.map(work, batches), strict=True)


def _batches(items: Sequence[Item], weights: Sequence[int], workers: int) -> Iterator[Sequence[Item]]:
    """Cut ``items`` so that no worker waits long for a batch or for the last one, and all have some."""
    shares = _SHARES * workers
    enough = min(max(sum(weights) // shares, _LEAST_BYTES), _MOST_BYTES)
    return _cut(items, weights, enough, max(len(items) // shares, _LEAST_ITEMS))


def _cut(items: Sequence[Item], weights: Sequence[int], enough: int, most: int) -> Iterator[Sequence[Item]]:
    """Batches of ``enough`` bytes or of ``most`` items, whichever are fewer."""
    first, size = 0, 0
    for at, weight in enumerate(weights):
        size += weight
        if size >= enough or at - first + 1 >= most:
            yield items[first : at + 1]
            first, size = at + 1, 0
    if first < len(items):
        yield items[first:]
