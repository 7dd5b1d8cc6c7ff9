"""A tensor by itself, and what is drawn of one or two, against numpy in float64."""

from __future__ import annotations

import json
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, strategies as st
from hypothesis.extra import numpy as arrays, numpy as hnp
from numpy.typing import NDArray

from pytest_npudump.compare.tensors import picture, picture as module
from pytest_npudump.compare.tensors.picture import (
    BINS,
    HIGHEST,
    LOWEST,
    NO_NUMBER,
    SIDE,
    Picture,
    describe_tensor,
    draw,
    draw_alone,
)

FLOATS = (
    np.float16,
    np.float32,
    np.float64,
    ml_dtypes.bfloat16,
    ml_dtypes.float8_e5m2,
    ml_dtypes.float8_e4m3fn,
)
EXACT = (np.int8, np.uint8, np.int16, np.uint16, np.int32, np.uint32, np.int64, np.uint64, np.bool_)


def first(mask: NDArray[np.bool_]) -> tuple[int, ...] | None:
    """Coordinates of the first true element, by enumeration."""
    return next((index for index, value in np.ndenumerate(mask) if value), None)


def reference(array: NDArray[Any]) -> dict[str, Any]:
    """Return what the description has to say; floats through float64, integers as Python's own."""
    if array.dtype.kind in "biu":
        values = np.array(array.astype(object) + 0, object)
        nan = infinite = np.zeros(array.shape, bool)
    else:
        with np.errstate(all="ignore"):
            values = np.abs(array) if array.dtype.kind == "c" else array.astype(np.float64)
        nan, infinite = np.isnan(values), np.isinf(values)
    finite = ~(nan | infinite)
    kept = values[finite].tolist()
    top, bottom = (max(kept), min(kept)) if kept else (None, None)
    return {
        "dtype": array.dtype.name,
        "shape": array.shape,
        "max": top,
        "min": bottom,
        "max_at": first(finite & (values == top).astype(bool)) if kept else None,
        "min_at": first(finite & (values == bottom).astype(bool)) if kept else None,
        "nan": int(nan.sum()),
        "pos_inf": int((infinite & (values > 0).astype(bool)).sum()),
        "neg_inf": int((infinite & (values < 0).astype(bool)).sum()),
        "zero": sum(value == 0 for value in values.ravel().tolist()),
        "first_nan": first(nan),
        "first_inf": first(infinite),
    }


@pytest.fixture(params=[None, 1, 7], ids=["one-chunk", "chunks-of-1", "chunks-of-7"])
def _chunk(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.param:
        monkeypatch.setattr(picture, "_CHUNK", request.param)


def special_values(dtype: Any) -> NDArray[Any]:
    rng = np.random.default_rng(5)
    values = rng.normal(scale=3, size=(3, 4, 5))
    values[0, 0, :] = 0.0
    values[1, 2, 3] = np.nan
    values[2, 3, 4] = np.nan
    if dtype is not ml_dtypes.float8_e4m3fn:
        values[0, 1, 2] = np.inf
        values[2, 0, 0] = -np.inf
    return values.astype(dtype)


@pytest.mark.usefixtures("_chunk")
@pytest.mark.parametrize("dtype", FLOATS)
def test_extremes_nan_and_infinities_of_floats_lie_where_numpy_finds_them(dtype: Any) -> None:
    array = special_values(dtype)
    assert describe_tensor(array).to_json() == reference(array)


@pytest.mark.usefixtures("_chunk")
@pytest.mark.parametrize("dtype", EXACT)
def test_integers_and_bools_are_exact(dtype: Any) -> None:
    limits = (0, 1) if dtype is np.bool_ else (np.iinfo(dtype).min, np.iinfo(dtype).max)
    array = np.array([[1, limits[1], 0], [limits[0], 1, limits[1]], [0, 0, limits[0]]], dtype)
    found = describe_tensor(array).to_json()
    assert found == reference(array)
    assert (type(found["max"]), found["max"], found["min"]) == (int, limits[1], limits[0])


@pytest.mark.usefixtures("_chunk")
@pytest.mark.parametrize("dtype", [np.complex64, np.complex128])
def test_complex_tensors_are_described_by_their_magnitude(dtype: Any) -> None:
    array = np.array([3 + 4j, 0, complex("nan"), complex("inf"), -5j, complex("nan+infj")], dtype)
    found = describe_tensor(array)
    assert found.to_json() == reference(array)
    assert (found.max, found.max_at, found.zero, found.nan, found.pos_inf) == (5.0, (0,), 1, 1, 2)


@pytest.mark.each(
    "array",
    [
        np.array(2.5, np.float32),
        np.array(np.nan),
        np.ones((), bool),
        np.array(-0.0, np.float16),
        np.zeros((0,), np.float32),
        np.zeros((2, 0, 3), np.int8),
        np.full((2, 2), np.nan, np.float16),
        np.full((2, 2), -np.inf, ml_dtypes.bfloat16),
        np.array([-0.0, 0.0]),
        np.array([65504, -65504], np.float16),
        np.array([3e38, -3e38], ml_dtypes.bfloat16),
        np.array([5e-324, 0.0]),
    ],
    ids=repr,
)
def test_scalars_empty_and_extreme_tensors(array: NDArray[Any]) -> None:
    assert describe_tensor(array).to_json() == reference(array)


def test_views_in_any_order_and_read_only_bytes_are_described_as_strict_json() -> None:
    array = special_values(np.float32)
    views = array.transpose(2, 0, 1)[::-1], np.frombuffer(array.tobytes(), np.float32)
    for view in views:
        assert describe_tensor(view).to_json() == reference(view)
    data = describe_tensor(np.array([np.nan, np.inf])).to_json()
    back = json.loads(json.dumps(data, allow_nan=False))
    assert (back["max"], back["nan"], back["first_inf"]) == (None, 1, [1])


@given(
    hnp.arrays(
        st.sampled_from([np.float16, np.float32, np.float64]),
        hnp.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=5),
        elements=st.sampled_from([0.0, -0.0, 1.0, -2.0, 0.5, np.nan, np.inf, -np.inf]),
    )
)
def test_any_array_is_described_as_numpy_does(array: NDArray[Any]) -> None:
    assert describe_tensor(array).to_json() == reference(array)


ANY_FLOATS = arrays.arrays(
    np.float64,
    arrays.array_shapes(max_dims=4, max_side=9),
    elements=st.floats(-1e6, 1e6, allow_subnormal=False),
)


def drawn(golden: np.ndarray, actual: np.ndarray, **tolerance: float) -> Picture:
    found = draw(golden, actual, **({"rtol": 0.0, "atol": 1.0} | tolerance))
    assert found is not None
    return found


@given(ANY_FLOATS, st.integers(0, 2**32 - 1))
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


def test_nothing_is_drawn_of_empty_and_complex_tensors_and_of_one_alone_its_values() -> None:
    for empty in (np.zeros((0, 3)), np.zeros(2, np.complex64)):
        assert draw(empty, empty, rtol=0, atol=0) is None
        assert draw_alone(empty) is None
    alone = draw_alone(np.array([0.0, 1.0, np.nan]))
    assert alone is not None
    assert (sum(alone.actual), alone.special, alone.golden, alone.errors) == (2, 1, (), ())


def test_the_widest_range_is_no_overflow_and_the_size_does_not_grow_with_the_tensor() -> None:
    widest = np.finfo(np.float64).max * np.array([-1.0, 1.0])
    found = drawn(widest, widest)
    assert (found.golden[0], found.golden[-1]) == (1, 1)
    golden = np.random.default_rng(3).normal(size=(300, 400))
    assert len(str(drawn(golden, golden + 1).to_json())) < 8000
