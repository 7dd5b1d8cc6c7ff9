from __future__ import annotations

import math
import os
import subprocess
import sys
from functools import reduce
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from pytest_npudump.dump.stats import sums as stats_sums
from pytest_npudump.dump.stats.sums import (
    DOT_ADDITIONS,
    SUM_ADDITIONS,
    additions,
    block_dot,
    block_sum,
    row_dots,
    row_length,
)

UNIT = 2.0**-24
TREES = st.recursive(st.just(1), lambda parts: st.tuples(parts, parts), max_leaves=40)


@pytest.fixture
def blas(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Put another BLAS in the place of the machine's; what was found out of that one is forgotten."""

    def replace(dots: Any) -> None:
        monkeypatch.setattr(stats_sums, "row_dots", dots)
        _forget()

    yield replace
    monkeypatch.undo()
    _forget()


def _forget() -> None:
    stats_sums.row_length.cache_clear()
    stats_sums._row_additions.cache_clear()


def _one_after_the_other(rows: np.ndarray) -> np.ndarray:
    return np.asarray(np.add.accumulate(rows, axis=1)[:, -1])


def _in_lanes(lanes: int) -> Any:
    return lambda rows: _one_after_the_other(
        np.add.accumulate(rows.reshape(len(rows), -1, lanes), axis=1)[:, -1]
    )


def _leaves(tree: Any) -> int:
    return 1 if tree == 1 else _leaves(tree[0]) + _leaves(tree[1])


def _depth(tree: Any) -> int:
    return 0 if tree == 1 else 1 + max(_depth(tree[0]), _depth(tree[1]))


def _added(tree: Any, rows: np.ndarray) -> Any:
    """Rows of float32 added up in the order of the tree, the leaves from left to right."""
    if tree == 1:
        return np.asarray(rows[:, 0])
    split = _leaves(tree[0])
    return _added(tree[0], rows[:, :split]) + _added(tree[1], rows[:, split:])


def test_the_additions_of_known_orders_are_found() -> None:
    assert additions(_one_after_the_other, 100) == 99
    assert additions(_in_lanes(8), 64) == 7 + 7
    assert additions(lambda rows: reduce(np.add, np.moveaxis(rows, 1, 0)[::-1]), 33) == 32
    assert additions(lambda rows: rows[:, 0].copy(), 1) == 0


@settings(deadline=None, max_examples=100)
@given(TREES, st.randoms(use_true_random=False))
def test_the_additions_of_any_order_are_found(tree: Any, random: Any) -> None:
    count = _leaves(tree)
    places = random.sample(range(count), count)
    assert additions(lambda rows: _added(tree, rows[:, places]), count) == _depth(tree)


@pytest.mark.each("most", [SUM_ADDITIONS, DOT_ADDITIONS])
def test_rows_of_blas_that_adds_one_after_other_are_as_short_as_the_bound_asks(most: int, blas: Any) -> None:
    blas(lambda one, other: _one_after_the_other(one * other))
    assert row_length(most) == {15: 16, 31: 32}[most]


@pytest.mark.each(("lanes", "length"), [(4, 32), (8, 64), (16, 128), (32, 256), (64, 512)])
def test_rows_are_longer_the_more_lanes_there_are(lanes: int, length: int, blas: Any) -> None:
    def halves(rows: np.ndarray) -> np.ndarray:
        return np.asarray(rows[:, 0]) if rows.shape[1] == 1 else halves(rows[:, ::2] + rows[:, 1::2])

    blas(
        lambda one, other: halves(
            np.add.accumulate((one * other).reshape(len(one), -1, lanes), axis=1)[:, -1]
        )
    )
    assert row_length(SUM_ADDITIONS) == length


def test_the_rows_of_this_machine_keep_the_bounds_wherever_the_large_term_stands() -> None:
    for most, error in ((SUM_ADDITIONS, SUM_ADDITIONS * UNIT), (DOT_ADDITIONS, (DOT_ADDITIONS + 1) * UNIT)):
        length = row_length(most)
        rows = np.full((length, length), UNIT * 1.0001, np.float32)
        np.fill_diagonal(rows, 1)
        found = row_dots(rows, np.ones(length, np.float32)).astype(np.float64)
        assert np.abs(found / rows.sum(axis=1, dtype=np.float64) - 1).max() <= error


@pytest.mark.each("size", [1, 255, 32767, 32768, 33000, 300001])
@pytest.mark.each("dtype", [np.float32, np.float64])
def test_sums_and_inner_products_are_those_of_exact_sums(size: int, dtype: Any) -> None:
    rng = np.random.default_rng(size)
    one, other = (rng.standard_normal(size).astype(dtype) for _ in range(2))
    products = one.astype(np.float64) * other.astype(np.float64)
    assert abs(block_dot(one, other) - math.fsum(products.tolist())) <= 2e-6 * np.abs(products).sum()
    squares = math.fsum((one.astype(np.float64) ** 2).tolist())
    assert math.sqrt(block_dot(one, one)) == pytest.approx(math.sqrt(squares), rel=1e-6)
    if dtype == np.float32:
        assert abs(block_sum(one) - math.fsum(one.tolist())) <= 9e-7 * np.abs(one).sum()


def test_what_is_short_or_float64_is_added_in_float64() -> None:
    short = np.full(32767, 0.1, np.float32)
    assert block_sum(short) == pytest.approx(32767 * float(short[0]), rel=1e-12)
    assert block_dot(short, short) == pytest.approx(32767 * float(short[0]) ** 2, rel=1e-12)
    wide = np.full(1 << 17, 0.1)
    assert block_dot(wide, wide) == pytest.approx(math.fsum([0.1 * 0.1] * (1 << 17)), rel=1e-13)


def test_numpy_without_vecdot_gives_the_same_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = np.random.default_rng(0).standard_normal((7, 256)).astype(np.float32)
    for other in (rows, rows[0]):
        monkeypatch.setattr(stats_sums, "_HAS_VECDOT", False)
        found = row_dots(rows, other)
        monkeypatch.undo()
        np.testing.assert_allclose(found, row_dots(rows, other), rtol=1e-5, atol=1e-5)
        assert found.shape == (7,)


_SUMS = """
import numpy as np
from pytest_npudump.dump.stats.tensor import tensor_stats
values = np.random.default_rng(0).standard_normal(1 << 20)
for dtype in (np.float32, np.float64, np.int32):
    found = tensor_stats((values * 100).astype(dtype))
    print(found.avg.hex(), found.l2norm.hex())
"""


def test_the_number_of_threads_of_blas_changes_nothing() -> None:
    found = {
        subprocess.run(
            [sys.executable, "-c", _SUMS],
            env={**os.environ, "OPENBLAS_NUM_THREADS": number},
            check=True,
            capture_output=True,
        ).stdout
        for number in ("1", "4")
    }
    assert len(found) == 1
