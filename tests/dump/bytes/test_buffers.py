from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from threading import Barrier

import numpy as np
import pytest

from pytest_npudump.compare.tensors.difference import compare_tensors
from pytest_npudump.dump.bytes.buffers import Buffers, borrowed_buffers


def test_an_array_is_used_again_and_grows_where_more_is_asked_for() -> None:
    buffers = Buffers()
    first = buffers.floats("a", 10)
    assert first.dtype == np.float32
    assert first.shape == (10,)
    assert np.shares_memory(buffers.floats("a", 4), first)
    assert not np.shares_memory(buffers.floats("b", 4), first)
    assert buffers.floats("a", 20).shape == (20,)
    assert buffers.flags("a", 3).dtype == np.bool_


def test_what_is_lent_is_lent_once_and_comes_back() -> None:
    with borrowed_buffers() as one, borrowed_buffers() as other:
        assert one is not other
    with borrowed_buffers() as again:
        assert again is one
    with pytest.raises(ValueError, match="stop"), borrowed_buffers() as failed:
        raise ValueError("stop")
    with borrowed_buffers() as again:
        assert again is failed


def test_threads_do_not_share_buffers() -> None:
    both = Barrier(2)

    def lend(_: int) -> Buffers:
        with borrowed_buffers() as found:
            both.wait(10)
        return found

    with ThreadPoolExecutor(2) as pool:
        one, other = pool.map(lend, range(2))
    assert one is not other


def test_comparisons_in_threads_do_not_disturb_each_other() -> None:
    rng = np.random.default_rng(0)
    golden = rng.standard_normal(300000).astype(np.float16)
    others = [(golden * (1 + number / 100)).astype(np.float16) for number in range(12)]
    expected = [compare_tensors(golden, other, rtol=1e-3, atol=0) for other in others]
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda other: compare_tensors(golden, other, rtol=1e-3, atol=0), others))
    assert found == expected


def test_a_thread_keeps_few_buffers_however_many_come_back() -> None:
    with ExitStack() as stack:
        lent = [stack.enter_context(borrowed_buffers()) for _ in range(20)]
    with ExitStack() as stack:
        again = [stack.enter_context(borrowed_buffers()) for _ in range(20)]
    assert 0 < sum(buffers in lent for buffers in again) < 10
