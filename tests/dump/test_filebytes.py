from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from pathlib import Path
from threading import Barrier, current_thread
from typing import Any

import numpy as np
import pytest
from hypothesis import given, strategies as st

from pytest_npudump.compare.tensors.difference import compare_tensors
from pytest_npudump.dump.arrays.decode import load
from pytest_npudump.dump.filebytes import (
    Buffers,
    c_order_chunks,
    chunks,
    file_pieces,
    raw_bytes,
    release,
    scratch_buffers,
)
from pytest_npudump.dump.reader import run_batches
from pytest_npudump.dump.records import Payload
from pytest_npudump.errors import FormatError

_MEBIBYTES = 64


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("large") / "values"
    with path.open("wb") as file:
        file.write(b"odd")
        for number in range(_MEBIBYTES):
            file.write(np.full(1 << 18, number, np.float32).tobytes())
    return path


def _view(path: Path) -> np.ndarray:
    return load(Payload(path, 3, _MEBIBYTES << 20), "float32", (_MEBIBYTES, 1 << 18))


def _resident() -> int:
    """MiB of memory this process has, mapped files included."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmRSS")) >> 10


@pytest.mark.each(
    "pieces", [chunks, lambda array: c_order_chunks(array, 1 << 17, flat=True)], ids=["memory", "c order"]
)
def test_a_large_tensor_is_read_without_being_held(large: Path, pieces: Any) -> None:
    array = _view(large)
    before, sums, most = _resident(), 0.0, 0
    for piece in pieces(array):
        sums += float(piece.sum(dtype=np.float64))
        most = max(most, _resident())
    assert sums == sum(range(_MEBIBYTES)) * float(1 << 18)
    assert most - before < 40


def test_released_pages_are_read_again_and_memory_that_is_no_file_is_left_alone(
    large: Path, tmp_path: Path
) -> None:
    part = _view(large)[8:22]
    expected = part.copy()
    release(part[2:12])
    np.testing.assert_array_equal(part, expected)
    array = np.arange(1 << 16)
    release(array)
    np.testing.assert_array_equal(array, np.arange(1 << 16))
    (tmp_path / "f").write_bytes(bytes(1 << 16))
    private = np.memmap(tmp_path / "f", np.uint8, "c")
    private[:] = 7
    release(private)
    assert private.min() == 7


@pytest.mark.each("nbytes", [0, 8, 1 << 15])
@pytest.mark.each("kind", ["missing", "directory", "pipe", "short"])
def test_bytes_of_a_file_that_has_changed_are_refused_whatever_their_number(
    kind: str, nbytes: int, tmp_path: Path
) -> None:
    path = tmp_path / "file"
    if kind == "directory":
        path.mkdir()
    elif kind == "pipe":
        os.mkfifo(path)
    elif kind == "short":
        path.write_bytes(b"1234")
    with pytest.raises(FormatError):
        raw_bytes(Payload(path, 5, nbytes))


@pytest.mark.each("nbytes", [0, 1, 1 << 14, (1 << 14) + 1])
def test_bytes_of_a_payload_are_those_of_the_file_and_read_only(nbytes: int, tmp_path: Path) -> None:
    content = np.random.default_rng(0).bytes(1 << 15)
    (tmp_path / "file").write_bytes(content)
    found = raw_bytes(Payload(tmp_path / "file", 3, nbytes))
    assert found.tobytes() == content[3 : 3 + nbytes]
    assert not nbytes or not found.flags.writeable


@pytest.mark.each(("offset", "nbytes", "limit"), [(0, 100, 7), (3, 90, 90), (3, 90, 1000), (10, 0, 5)])
def test_the_pieces_are_the_bytes_asked_for(tmp_path: Path, offset: int, nbytes: int, limit: int) -> None:
    (tmp_path / "a").write_bytes(bytes(range(100)))
    pieces = [bytes(piece) for piece in file_pieces(tmp_path / "a", offset, nbytes, limit)]
    assert b"".join(pieces) == bytes(range(100))[offset : offset + nbytes]
    assert all(len(piece) == limit for piece in pieces[:-1])


def test_two_files_can_be_read_in_turns_and_a_folder_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"a" * 100)
    (tmp_path / "b").write_bytes(b"b" * 100)
    both = zip(file_pieces(tmp_path / "a", 0, 100, 7), file_pieces(tmp_path / "b", 0, 100, 7), strict=True)
    assert all(set(bytes(one)) == {ord("a")} and set(bytes(other)) == {ord("b")} for one, other in both)
    with pytest.raises(FormatError, match="Is a directory"):
        list(file_pieces(tmp_path, 0, 1, 1))


def test_a_file_that_becomes_shorter_meanwhile_is_an_error_that_names_the_byte(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(bytes(100))
    pieces = file_pieces(tmp_path / "a", 10, 80, 20)
    next(pieces)
    os.truncate(tmp_path / "a", 45)
    with pytest.raises(FormatError, match=r"byte 45: the file became shorter while the tensor was read"):
        list(pieces)


def test_an_array_is_used_again_and_grows_where_more_is_asked_for() -> None:
    buffers = Buffers()
    first = buffers.floats("a", 10)
    assert first.dtype == np.float32
    assert first.shape == (10,)
    assert np.shares_memory(buffers.floats("a", 4), first)
    assert not np.shares_memory(buffers.floats("b", 4), first)
    assert buffers.floats("a", 20).shape == (20,)
    assert buffers.flags("a", 3).dtype == np.bool_


def test_threads_do_not_share_buffers() -> None:
    both = Barrier(2)

    def own(_: int) -> Buffers:
        both.wait(10)
        return scratch_buffers()

    with ThreadPoolExecutor(2) as pool:
        one, other = pool.map(own, range(2))
    assert one is not other


def test_comparisons_in_threads_do_not_disturb_each_other() -> None:
    rng = np.random.default_rng(0)
    golden = rng.standard_normal(300000).astype(np.float16)
    others = [(golden * (1 + number / 100)).astype(np.float16) for number in range(12)]
    expected = [compare_tensors(golden, other, rtol=1e-3, atol=0) for other in others]
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda other: compare_tensors(golden, other, rtol=1e-3, atol=0), others))
    assert found == expected


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


def test_a_hundred_thousand_small_items_are_a_few_batches_and_large_ones_travel_alone() -> None:
    executor = Counting()
    assert sum(1 for _ in run_batches(len, range(100_000), [1] * 100_000, executor, 4)) <= 64 + 1
    assert min(map(len, executor.given[:-1])) >= 100_000 // 64
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
