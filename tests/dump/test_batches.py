from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from threading import current_thread
from typing import Any

import pytest
from hypothesis import given, strategies as st

from pytest_npudump.dump.batches import run_batches


class Counting(Executor):
    """Does the work here, and keeps what it was given."""

    def __init__(self) -> None:
        self.given: list[Sequence[Any]] = []

    def map(self, fn: Any, *iterables: Any, **_options: Any) -> Iterator[Any]:
        (batches,) = iterables
        self.given = list(batches)
        return map(fn, self.given)


@given(st.lists(st.integers(0, 200 << 20), max_size=300), st.integers(1, 64))
def test_every_item_is_in_one_batch_in_order_and_no_batch_is_needlessly_large(
    weights: list[int], workers: int
) -> None:
    items = list(range(len(weights)))
    executor = Counting()
    found = list(run_batches(sum, items, weights, executor, workers))
    assert [item for batch, _ in found for item in batch] == items
    assert [result for _, result in found] == [sum(batch) for batch, _ in found]
    for batch in executor.given:
        # Without its last item it was not yet enough.
        assert sum(weights[item] for item in batch[:-1]) < 64 << 20
        assert len(batch) <= 64


def test_a_hundred_thousand_small_items_are_a_few_batches_for_each_worker() -> None:
    executor = Counting()
    assert sum(1 for _ in run_batches(len, range(100_000), [1] * 100_000, executor, 4)) <= 64 + 1
    assert min(map(len, executor.given[:-1])) >= 100_000 // 64


def test_large_items_travel_alone() -> None:
    executor = Counting()
    list(run_batches(len, range(8), [1 << 30] * 8, executor, 2))
    assert list(map(len, executor.given)) == [1] * 8


def test_without_an_executor_each_item_is_done_as_its_turn_comes() -> None:
    found = run_batches(list, "abc", [], None)
    assert next(found) == ("a", ["a"])
    assert list(found) == [("b", ["b"]), ("c", ["c"])]


@given(st.lists(st.integers(0, 2 << 20), max_size=300))
def test_without_an_executor_small_items_of_known_size_go_together(weights: list[int]) -> None:
    items = list(range(len(weights)))
    batches = [batch for batch, _ in run_batches(sum, items, weights, None)]
    assert [item for batch in batches for item in batch] == items
    for batch in batches:
        assert len(batch) <= 64
        assert sum(weights[item] for item in batch[:-1]) < 1 << 20
    for batch in batches[:-1]:
        assert len(batch) == 64 or sum(weights[item] for item in batch) >= 1 << 20


@pytest.mark.each(("count", "workers"), [(1, 2), (100, 1)])
def test_a_thread_of_its_own_is_not_asked_for_what_this_one_does_as_well(count: int, workers: int) -> None:
    with ThreadPoolExecutor(workers, thread_name_prefix="worker") as executor:
        found = run_batches(
            lambda _: current_thread().name, range(count), [1 << 30] * count, executor, workers
        )
        assert not any(name.startswith("worker") for _, name in found)


def test_threads_are_not_used_for_nothing() -> None:
    with ThreadPoolExecutor(1) as executor:
        assert not list(run_batches(len, [], [], executor))
