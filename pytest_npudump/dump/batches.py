"""Much work in few pieces: what is small travels together, to threads, processes or other machines alike."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from concurrent.futures import Executor

Item = TypeVar("Item")
Result = TypeVar("Result")

_LEAST_BYTES, _MOST_BYTES = 4 << 20, 64 << 20
_LEAST_ITEMS = 64
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
        weights: the bytes that each of them makes a worker read; nobody asks without an executor.
        executor: who does it; None for this thread, which does it as well where threads would not help.
        workers: how many the executor has.
    """
    if isinstance(executor, ThreadPoolExecutor) and sum(weights) < _THREADED_BYTES * len(items):
        executor = None
    if executor is None:
        for at in range(len(items)):
            yield (one := items[at : at + 1]), work(one)
        return
    batches = list(_batches(items, weights, workers))
    yield from zip(batches, executor.map(work, batches), strict=True)


def _batches(items: Sequence[Item], weights: Sequence[int], workers: int) -> Iterator[Sequence[Item]]:
    """Cut ``items`` so that no worker waits long for a batch or for the last one, and all have some."""
    first, size = 0, 0
    shares = _SHARES * workers
    enough = min(max(sum(weights) // shares, _LEAST_BYTES), _MOST_BYTES)
    most = max(len(items) // shares, _LEAST_ITEMS)
    for at, weight in enumerate(weights):
        size += weight
        if size >= enough or at - first + 1 >= most:
            yield items[first : at + 1]
            first, size = at + 1, 0
    if first < len(items):
        yield items[first:]
