from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier
from typing import TYPE_CHECKING

import numpy as np
import pytest

from pytest_npudump.compare.tensors.difference import compare_tensors
from pytest_npudump.dump.bytes.chunks import Buffers, file_pieces, scratch_buffers
from pytest_npudump.errors import FormatError

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.each(("offset", "nbytes", "limit"), [(0, 100, 7), (3, 90, 90), (3, 90, 1000), (10, 0, 5)])
def test_the_pieces_are_the_bytes_asked_for(tmp_path: Path, offset: int, nbytes: int, limit: int) -> None:
    (tmp_path / "a").write_bytes(bytes(range(100)))
    pieces = [bytes(piece) for piece in file_pieces(tmp_path / "a", offset, nbytes, limit)]
    assert b"".join(pieces) == bytes(range(100))[offset : offset + nbytes]
    assert all(len(piece) == limit for piece in pieces[:-1])


def test_two_files_can_be_read_in_turns(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"a" * 100)
    (tmp_path / "b").write_bytes(b"b" * 100)
    both = zip(file_pieces(tmp_path / "a", 0, 100, 7), file_pieces(tmp_path / "b", 0, 100, 7), strict=True)
    assert all(set(bytes(one)) == {ord("a")} and set(bytes(other)) == {ord("b")} for one, other in both)


def test_a_file_that_becomes_shorter_meanwhile_is_an_error_that_names_the_byte(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(bytes(100))
    pieces = file_pieces(tmp_path / "a", 10, 80, 20)
    next(pieces)
    os.truncate(tmp_path / "a", 45)
    with pytest.raises(FormatError, match=r"byte 45: the file became shorter while the tensor was read"):
        list(pieces)


def test_a_folder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(FormatError, match="not a regular file"):
        list(file_pieces(tmp_path, 0, 1, 1))


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
