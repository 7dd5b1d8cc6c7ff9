"""Inputs that differ by about a unit in the last place: no more, alike for one seed, and never non-finite."""

from __future__ import annotations

import ml_dtypes
import numpy as np
from hypothesis import given, strategies as st
from hypothesis.extra.numpy import arrays

from pytest_npudump.dump.dtypes import BY_NAME
from pytest_npudump.onnxmodels.tensor_types import Tensor
from pytest_npudump.onnxmodels.variation import PLAIN, Variation, Varying, perturbed

FLOATS = (np.float16, np.float32, np.float64, ml_dtypes.bfloat16)


def tensor(array: np.ndarray) -> Tensor:
    return Tensor(BY_NAME[array.dtype.name], array.shape, array)


def moved(array: np.ndarray, seed: int = 1, execution: int = 0) -> np.ndarray:
    found = perturbed(array, (seed, execution, 0))
    assert found is not None
    assert found.dtype == array.dtype
    assert found.shape == array.shape
    return found


@given(arrays(np.float32, 16, elements=st.floats(-(2.0**100), 2.0**100, width=32)), st.integers(0, 9))
def test_each_element_goes_to_a_neighbour_at_most(array: np.ndarray, seed: int) -> None:
    after = moved(array, seed)
    reached = np.abs(after.view(np.int32).astype(np.int64) - array.view(np.int32))
    assert reached.max() <= 2  # numbers just below a power of two have a step of half the size
    assert (after[array == 0] == 0).all()


def test_about_half_of_the_elements_of_each_type_move_and_the_lowest_value_stays_finite() -> None:
    for dtype in FLOATS:
        array = np.random.default_rng(0).uniform(1, 2, 10_000).astype(dtype)
        assert 0.3 < (moved(array) != array).mean() < 0.7
        lowest = np.full(100, ml_dtypes.finfo(dtype).min, dtype)
        after = moved(lowest)
        assert np.isfinite(after).all()
        assert (after <= lowest[0] / 2).all()


def test_zeros_nan_and_infinities_stay() -> None:
    array = np.array([0.0, -0.0, np.nan, np.inf, -np.inf], np.float32)
    np.testing.assert_array_equal(moved(array), array)


def test_both_parts_of_complex_numbers_move() -> None:
    array = np.full(1000, 1.5 + 2.5j, np.complex64)
    after = moved(array)
    assert (after.real != 1.5).any()
    assert (after.imag != 2.5).any()
    assert np.abs(after - array).max() < 1e-6


def test_a_seed_an_execution_and_an_input_decide() -> None:
    array = np.random.default_rng(0).normal(size=100)
    np.testing.assert_array_equal(moved(array, 3), moved(array, 3))
    assert (moved(array, 3) != moved(array, 4)).any()
    assert (moved(array, 3, 0) != moved(array, 3, 1)).any()
    both = Varying(Variation(seed=3)).feeds({"x": tensor(array), "y": tensor(array)}, 0)
    assert (both["x"].data != both["y"].data).any()


def test_what_is_no_float_is_left_and_named() -> None:
    for dtype in (np.int64, np.uint8, np.bool_, ml_dtypes.int4):
        array, varying = np.ones(4, dtype), Varying(Variation(seed=1))
        assert varying.feeds({"ids": tensor(array)}, 0)["ids"].data is array
        assert (varying.unperturbed, varying.perturbed) == ({"ids"}, set())


def test_a_plain_run_has_the_inputs_it_was_given_and_what_a_variation_reached_stays_until_the_next() -> None:
    feeds = {"x": tensor(np.ones(4)), "ids": tensor(np.ones(4, np.int32))}
    varying = Varying()
    assert varying.variation is PLAIN
    assert varying.variation.plain
    assert varying.feeds(feeds, 0) is feeds
    varying.begin(Variation(seed=1))
    assert not varying.variation.plain
    varying.feeds(feeds, 0)
    for _ in range(2):
        assert (varying.unperturbed, varying.perturbed) == ({"ids"}, {"x"})
        varying.begin(PLAIN)
    varying.begin(Variation(seed=3))
    assert not varying.unperturbed | varying.perturbed
