"""What is drawn of two tensors, against numpy's own histograms and a loop over the elements."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from pytest_npudump.compare.tensors import picture as module
from pytest_npudump.compare.tensors.picture import (
    BINS,
    HIGHEST,
    LOWEST,
    NO_NUMBER,
    SIDE,
    Picture,
    draw,
    draw_alone,
)

FLOATS = arrays.arrays(
    np.float64,
    arrays.array_shapes(max_dims=4, max_side=9),
    elements=st.floats(-1e6, 1e6, allow_subnormal=False),
)


def drawn(golden: np.ndarray, actual: np.ndarray, **tolerance: float) -> Picture:
    found = draw(golden, actual, **({"rtol": 0.0, "atol": 1.0} | tolerance))
    assert found is not None
    return found


@given(FLOATS, st.integers(0, 2**32 - 1))
def test_every_element_is_in_one_bin_of_values_and_one_of_errors_or_equal(
    golden: np.ndarray, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    actual = golden + rng.choice([0.0, 1e-3, 10.0], golden.shape)
    found = drawn(golden, actual)
    assert sum(found.golden) == sum(found.actual) == golden.size
    assert sum(found.errors) + found.equal == golden.size
    assert found.equal == np.count_nonzero(golden == actual)
    assert (found.low, found.high) == (min(golden.min(), actual.min()), max(golden.max(), actual.max()))


def test_values_are_in_the_bins_that_numpy_puts_them_in() -> None:
    golden = np.random.default_rng(1).normal(size=(7, 33))
    actual = golden * 1.5
    found = drawn(golden, actual)
    for counts, values in ((found.golden, golden), (found.actual, actual)):
        expected, _ = np.histogram(values, BINS, (found.low, found.high))
        assert np.abs(np.cumsum(counts) - np.cumsum(expected)).max() <= 1  # an element at a border


def test_errors_are_in_decades_of_what_an_element_may_be_off() -> None:
    golden = np.full(3, 2.0)
    off = np.array([1e-3, 0.5, 300.0])
    found = drawn(golden, golden + off, rtol=0.25, atol=0.0)
    decades = np.log10(off / 0.5)
    width = (HIGHEST - LOWEST) / BINS
    assert [at for at, count in enumerate(found.errors) if count] == [
        int((decade - LOWEST) / width) for decade in decades
    ]


@pytest.mark.each("shape", [(3, 5), (2, 3, 4), (200, 150), (1, 70000), (9000,)])
def test_the_map_shows_the_worst_element_of_each_cell(
    shape: tuple[int, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "CHUNK", 1000)
    rng = np.random.default_rng(2)
    golden = rng.normal(size=shape)
    actual = golden + rng.choice([0.0, 1.0, 100.0], shape, p=[0.9, 0.09, 0.01])
    found = drawn(golden, actual)
    assert max(found.rows, found.columns) <= SIDE
    down = int(np.prod(shape[: found.axes], dtype=int))
    across = golden.size // down
    worst = np.zeros((found.rows, found.columns))
    for flat, error in enumerate(np.abs(actual - golden).ravel()):
        cell = (flat // across * found.rows // down, flat % across * found.columns // across)
        worst[cell] = max(worst[cell], error)
    levels = np.frombuffer(found.cells, np.uint8).reshape(worst.shape)
    assert np.array_equal(levels == 0, worst == 0)
    assert levels[worst > 50].min(initial=254) > levels[worst < 50].max(initial=0)


def test_what_is_no_number_is_counted_apart_and_marked_in_the_map() -> None:
    golden = np.array([1.0, np.nan, np.inf, 1.0])
    actual = np.array([np.nan, np.nan, -np.inf, 1.0])
    found = drawn(golden, actual)
    assert (found.equal, found.special, sum(found.errors)) == (2, 2, 0)
    assert sorted(found.cells) == [0, 0, NO_NUMBER, NO_NUMBER]


@pytest.mark.each("dtype", ["float16", "bool", "int8", "uint64", "bfloat16", "float8_e4m3fn"])
def test_any_type_that_float64_holds_can_be_drawn(dtype: str) -> None:
    kind = np.dtype(getattr(ml_dtypes, dtype, dtype))
    golden, actual = np.zeros((2, 3), kind), np.ones((2, 3), kind)
    assert sum(drawn(golden, actual).errors) == 6


def test_the_widest_range_of_values_is_no_overflow() -> None:
    largest = np.finfo(np.float64).max
    found = drawn(np.array([-largest, largest]), np.array([-largest, largest]))
    assert (found.golden[0], found.golden[-1]) == (1, 1)


def test_nothing_is_drawn_of_empty_and_complex_tensors() -> None:
    for empty in (np.zeros((0, 3)), np.zeros(2, np.complex64)):
        assert draw(empty, empty, rtol=0, atol=0) is None
        assert draw_alone(empty) is None


def test_a_tensor_alone_has_its_values_only() -> None:
    found = draw_alone(np.array([0.0, 1.0, np.nan]))
    assert found is not None
    assert (sum(found.actual), found.special, found.golden, found.errors) == (2, 1, (), ())


def test_its_size_does_not_grow_with_the_tensor() -> None:
    golden = np.random.default_rng(3).normal(size=(300, 400))
    assert len(str(drawn(golden, golden + 1).to_json())) < 8000
