from __future__ import annotations

import json
import math
from dataclasses import replace
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from pytest_npudump.compare.tensors.difference import compare_tensors, examine_tensors, values_stats
from pytest_npudump.dump.stats.tensor import tensor_stats
from pytest_npudump.errors import RequestError

TYPES = [np.float16, np.float32, np.float64, ml_dtypes.bfloat16]


def _pair(dtype: Any, count: int, *, seed: int = 0, noise: float = 1e-3) -> Any:
    rng = np.random.default_rng(seed)
    golden = rng.standard_normal(count).astype(dtype)
    factors = 1 + noise * rng.standard_normal(count)
    return golden, (golden.astype(np.float64) * factors).astype(dtype)


def _truth(golden: Any, actual: Any, rtol: float, atol: float) -> Any:
    """Every measure by its definition, in float64 over whole arrays."""
    g, a = golden.astype(np.float64).reshape(-1), actual.astype(np.float64).reshape(-1)
    with np.errstate(all="ignore"):
        finite = np.isfinite(g) & np.isfinite(a)
        same = (np.isnan(g) & np.isnan(a)) | (g == a)
        distance = np.abs(a - g)
        outside = (~finite & ~same) | (finite & (distance > atol + rtol * np.abs(g)))
        relative = (distance / np.abs(g))[finite & (g != 0)]
        g, a, distance = g[finite], a[finite], distance[finite]
        return {
            "max_abs": distance.max(initial=0),
            "max_rel": math.inf if np.any((g == 0) & (distance > 0)) else relative.max(initial=0),
            "mean_rel": relative.mean() if relative.size else None,
            "cosine": float(g @ a / np.sqrt(g @ g) / np.sqrt(a @ a)),
            "relative_l2": float(np.sqrt(distance @ distance) / np.sqrt(g @ g)),
            "outside": int(outside.sum()),
        }


def _assert_true(found: Any, golden: Any, actual: Any) -> Any:
    expected = _truth(golden, actual, found.rtol, found.atol)
    assert found.outside == expected.pop("outside")
    for name, value in expected.items():
        assert getattr(found, name) == pytest.approx(value, rel=2e-6), name


@pytest.mark.each("dtype", TYPES, ids=lambda d: np.dtype(d).name)
@pytest.mark.each("count", [1, 7, 5001, 300011])
@pytest.mark.each(("rtol", "atol"), [(1e-3, 1e-4), (0, 0), (0, 1e-3), (1e-3, 0), (1e-2, 1)])
def test_measures_are_those_of_the_definitions(dtype: Any, count: int, rtol: float, atol: float) -> None:
    golden, actual = _pair(dtype, count)
    _assert_true(compare_tensors(golden, actual, rtol=rtol, atol=atol), golden, actual)


@pytest.mark.parametrize("dtype", TYPES, ids=lambda d: np.dtype(d).name)
def test_zeros_in_golden_and_special_values(dtype: Any) -> None:
    golden, actual = _pair(dtype, 300011, seed=1)
    golden[::3] = actual[::3] = 0
    found = compare_tensors(golden, actual, rtol=1e-3, atol=0)
    _assert_true(found, golden, actual)
    assert found.special_equal
    actual[9] = 1
    golden[10] = actual[10] = math.nan
    golden[11] = actual[11] = math.inf
    actual[200000] = math.nan
    actual[250001] = -math.inf
    found = compare_tensors(golden, actual, rtol=1e-3, atol=0)
    _assert_true(found, golden, actual)
    assert (found.special, found.special_different) == (4, 2)
    assert (found.nan_golden, found.nan_actual, found.inf_golden, found.inf_actual) == (1, 2, 1, 2)
    assert found.first_special_different == (200000,)
    assert [e.index for e in found.worst[:3]] == [(200000,), (250001,), (9,)]
    assert "golden has 1 NaN and 1 Inf, actual 2 NaN and 2 Inf; 2 elements differ" in found.special_text()


def test_a_nan_is_never_within_tolerance() -> None:
    found = compare_tensors(
        np.ones(4, np.float32), np.array([1, 1, math.nan, 1], np.float32), rtol=10, atol=1e9
    )
    assert (found.outside, found.within, found.special_equal) == (1, 0.75, False)
    assert math.isnan(found.worst[0].actual)


@pytest.mark.parametrize("dtype", TYPES, ids=lambda d: np.dtype(d).name)
def test_the_worst_elements_with_their_coordinates(dtype: Any) -> None:
    golden = np.zeros((20, 30, 500), dtype)
    actual = golden.copy()
    for rank, index in enumerate([(0, 0, 0), (19, 29, 499), (3, 4, 5), (3, 4, 6), (10, 0, 1)], 1):
        actual[index] = rank
    found = compare_tensors(golden, actual, rtol=0, atol=0, worst=4)
    assert [e.index for e in found.worst] == [(10, 0, 1), (3, 4, 6), (3, 4, 5), (19, 29, 499)]
    assert next((e.golden, e.actual, e.abs, e.rel) for e in found.worst) == (0, 5, 5, math.inf)
    assert found.outside == 5


def test_of_equal_distances_the_first_are_shown() -> None:
    golden = np.zeros(400000, np.float16)
    found = compare_tensors(golden, golden + np.float16(1), rtol=0, atol=0, worst=3)
    assert [e.index for e in found.worst] == [(0,), (1,), (2,)]
    golden = np.random.default_rng(0).integers(0, 3, 300011).astype(np.float16)
    found = compare_tensors(golden, np.zeros_like(golden), rtol=0, atol=0, worst=6)
    assert [e.index for e in found.worst] == [(int(i),) for i in np.flatnonzero(golden == 2)[:6]]


@pytest.mark.parametrize("dtype", TYPES, ids=lambda d: np.dtype(d).name)
def test_ulp_distance_across_zero_and_between_neighbours(dtype: Any) -> None:
    one = np.array(1, dtype)
    up = (
        np.nextafter(one, np.array(2, dtype))
        if dtype is not ml_dtypes.bfloat16
        else np.array(1.0078125, dtype)
    )
    golden = np.array([1, 1, 0, 0], dtype)
    actual = np.array([1, up, -0.0, 0], dtype)
    found = compare_tensors(golden, actual, rtol=0, atol=0)
    assert (found.max_ulp, found.mean_ulp) == (1, 0.25)
    size = np.dtype(dtype).itemsize
    smallest = np.ones(1, f"u{size}").view(dtype)
    assert compare_tensors(smallest, -smallest, rtol=0, atol=0).max_ulp == 2


@pytest.mark.parametrize("dtype", TYPES, ids=lambda d: np.dtype(d).name)
def test_ulp_distance_of_random_pairs_of_both_signs(dtype: Any) -> None:
    golden, _ = _pair(dtype, 300011, seed=2)
    _, actual = _pair(dtype, 300011, seed=3)
    size = np.dtype(dtype).itemsize
    places = []
    for array in (golden, actual):
        codes = array.view(f"u{size}").astype(object)
        top = 1 << (8 * size - 1)
        places.append(np.where(codes >= top, top - codes, codes))
    gaps = np.abs(places[0] - places[1])
    found = compare_tensors(golden, actual, rtol=0, atol=0)
    assert found.max_ulp == max(gaps)
    assert found.mean_ulp == pytest.approx(sum(gaps) / len(gaps), rel=1e-6)


@pytest.mark.parametrize(
    "dtype", [np.float16, np.float32, ml_dtypes.bfloat16], ids=lambda d: np.dtype(d).name
)
@pytest.mark.parametrize("largest", [1, 3, 500, 3000, 4096, 10000, 30000])
def test_ulp_sums_are_exact_whatever_the_largest(dtype: Any, largest: int) -> None:
    size = np.dtype(dtype).itemsize
    codes = np.random.default_rng(largest).integers(0, 200, 300011).astype(f"u{size}")
    gaps = np.random.default_rng(1).integers(0, largest + 1, codes.size)
    gaps[0] = largest
    actual = (codes + gaps).astype(codes.dtype)
    found = compare_tensors(codes.view(dtype), actual.view(dtype), rtol=0, atol=0)
    assert (found.max_ulp, found.mean_ulp) == (largest, gaps.sum() / gaps.size)


@pytest.mark.parametrize("special", [math.inf, -math.inf, math.nan])
@pytest.mark.parametrize("other", [65504, -65504, 0, 1])
@pytest.mark.parametrize("swapped", [False, True])
def test_infinity_is_not_the_largest_float16(special: float, other: float, *, swapped: bool) -> None:
    golden = np.full(5001, other, np.float16)
    actual = golden.copy()
    actual[4001] = special
    if swapped:
        golden, actual = actual, golden
    found = compare_tensors(golden, actual, rtol=1000, atol=1e9)
    assert (found.special_different, found.outside, found.first_special_different) == (1, 1, (4001,))
    same = compare_tensors(actual, actual.copy(), rtol=0, atol=0)
    assert (same.special, same.outside) == (0 if swapped else 1, 0)


@pytest.mark.parametrize("dtype", [np.float16, np.float32], ids=lambda d: np.dtype(d).name)
@pytest.mark.parametrize("share", [1, 2, 40, 5000])
def test_elements_at_the_edge_of_the_tolerance_few_and_many(dtype: Any, share: int) -> None:
    golden = np.linspace(1, 2, 300011).astype(dtype)
    actual = golden.copy()
    actual[::share] = (golden[::share].astype(np.float64) * 1.0009765625).astype(dtype)
    for rtol in (0.0009765625, math.nextafter(0.0009765625, 0), 0.00048828125, 0.002):
        _assert_true(compare_tensors(golden, actual, rtol=rtol, atol=0), golden, actual)
        _assert_true(compare_tensors(golden, actual, rtol=0, atol=rtol), golden, actual)


def test_equal_tensors() -> None:
    golden, _ = _pair(np.float16, 300011)
    found = compare_tensors(golden, golden.copy(), rtol=0, atol=0)
    assert (found.max_abs, found.max_rel, found.mean_rel, found.relative_l2, found.max_ulp) == (0, 0, 0, 0, 0)
    assert (found.cosine, found.within, found.worst) == (pytest.approx(1), 1, ())


@pytest.mark.parametrize(
    ("golden", "actual", "cosine", "relative_l2"),
    [
        ([0, 0], [0, 0], 1, 0),
        ([0, 0], [1, 0], 0, math.inf),
        ([1, 0], [0, 0], 0, 1),
        ([1, 2], [-1, -2], -1, 2),
    ],
)
def test_cosine_and_relative_l2_at_their_limits(
    golden: Any, actual: Any, cosine: float, relative_l2: float
) -> None:
    found = compare_tensors(np.array(golden, np.float32), np.array(actual, np.float32), rtol=0, atol=0)
    assert (found.cosine, found.relative_l2) == (pytest.approx(cosine), pytest.approx(relative_l2))


def test_empty_and_scalar_tensors() -> None:
    empty = compare_tensors(np.zeros((0, 3)), np.zeros((0, 3)), rtol=0, atol=0)
    assert (empty.count, empty.within, empty.mean_rel, empty.worst) == (0, 1, None, ())
    scalar = compare_tensors(np.float32(1).reshape(()), np.float32(2).reshape(()), rtol=0, atol=0)
    assert (scalar.max_abs, scalar.worst[0].index) == (1, ())


@pytest.mark.parametrize(
    ("dtype", "golden", "actual", "gap"),
    [
        (np.uint64, 2**64 - 1, 2**64 - 2, 1),
        (np.uint64, 0, 2**64 - 1, 2**64 - 1),
        (np.int64, -(2**63), 2**63 - 1, 2**64 - 1),
        (np.int64, 2**53, 2**53 + 1, 1),
        (np.uint8, 255, 0, 255),
        (np.int8, -128, 127, 255),
        (np.bool_, True, False, 1),
    ],
)
def test_integers_are_exact(dtype: Any, golden: Any, actual: Any, gap: int) -> None:
    pair = np.array([golden, 1], dtype), np.array([actual, 1], dtype)
    found = compare_tensors(*pair, rtol=0, atol=0)
    assert (found.max_abs, found.outside, found.worst[0].abs) == (gap, 1, gap)
    assert (found.worst[0].golden, found.worst[0].actual) == (golden, actual)
    assert found.max_ulp is None


def test_values_beyond_the_range_of_squares() -> None:
    golden = np.array([1e300, 2e300])
    found = compare_tensors(golden, golden * 1.5, rtol=0, atol=0)
    assert (found.cosine, found.relative_l2) == (pytest.approx(1), pytest.approx(0.5))
    tiny = np.full(40000, 1e-30, np.float32)
    found = compare_tensors(tiny, tiny * np.float32(2), rtol=0.5, atol=0)
    assert (found.outside, found.relative_l2) == (40000, pytest.approx(1))
    large = np.full(40000, 3e38, np.float32)
    assert compare_tensors(large, -large, rtol=0, atol=0).max_abs == pytest.approx(6e38)


def test_tolerance_is_decided_as_in_float64() -> None:
    golden = np.full(200000, 1, np.float32)
    actual = golden.copy()
    actual[7] = np.float32(1.001)
    edge = float(actual[7]) - 1
    assert compare_tensors(golden, actual, rtol=0, atol=edge).outside == 0
    assert compare_tensors(golden, actual, rtol=0, atol=math.nextafter(edge, 0)).outside == 1


def test_complex_numbers() -> None:
    found = compare_tensors(np.array([3 + 4j, 0]), np.array([3 + 4j, 1j]), rtol=0, atol=0.5)
    assert (found.max_abs, found.outside, found.worst[0].actual) == (1, 1, 1j)


def test_views_of_any_order_compare_element_by_element() -> None:
    golden = np.arange(600000, dtype=np.float32).reshape(2, 300, 1000)
    actual = golden.copy()
    actual[1, 2, 3] += 1
    found = compare_tensors(np.asfortranarray(golden), actual, rtol=0, atol=0)
    assert (found.outside, found.worst[0].index) == (1, (1, 2, 3))
    found = compare_tensors(golden[:, ::2], actual[:, ::2], rtol=0, atol=0)
    assert (found.outside, found.worst[0].index) == (1, (1, 1, 3))
    raw = np.frombuffer(b"x" + actual.tobytes(), np.uint8)[1:].view(np.float32).reshape(actual.shape)
    assert compare_tensors(golden, raw, rtol=0, atol=0).outside == 1


@pytest.mark.parametrize(
    ("golden", "actual", "tolerance"),
    [
        (np.zeros(3), np.zeros(4), 0),
        (np.zeros(3, np.int8), np.zeros(3), 0),
        (np.zeros(3, np.int8), np.zeros(3, np.uint8), 0),
        (np.zeros(3), np.zeros(3), -1),
        (np.zeros(3), np.zeros(3), math.nan),
    ],
)
def test_what_cannot_be_compared_is_refused(golden: Any, actual: Any, tolerance: float) -> None:
    with pytest.raises(RequestError):
        compare_tensors(golden, actual, rtol=tolerance, atol=0)


def test_json_holds_plain_values() -> None:
    golden, actual = np.array([1, math.nan, 0]), np.array([1, 2, 3.0])
    found = compare_tensors(golden, actual, rtol=0, atol=0).to_json()
    assert json.loads(json.dumps(found, allow_nan=False)) == found
    assert found["within"] == pytest.approx(1 / 3)
    assert found["max_rel"] == "inf"
    assert found["worst"][0] == {"index": [1], "golden": "nan", "actual": 2.0, "abs": "nan", "rel": "nan"}


@settings(deadline=None, max_examples=200)
@given(
    st.sampled_from([np.float16, np.float32, np.float64]).flatmap(
        lambda d: st.tuples(hnp.arrays(d, (3, 4)), hnp.arrays(d, (3, 4)))
    ),
    st.sampled_from([0, 1e-6, 1e-3, 1]),
    st.sampled_from([0, 1e-6, 1]),
)
def test_no_pair_of_arrays_passes_that_the_definition_fails(
    pair: tuple[np.ndarray, np.ndarray], rtol: float, atol: float
) -> None:
    golden, actual = pair
    found = compare_tensors(golden, actual, rtol=rtol, atol=atol)
    with np.errstate(all="ignore"):
        assert found.outside == _truth(golden, actual, rtol, atol)["outside"]
        same = np.array_equal(golden, actual, equal_nan=True)
    assert same == (compare_tensors(golden, actual, rtol=0, atol=0).outside == 0)
    assert same or found.worst


@pytest.mark.each(
    "dtype",
    [*TYPES, np.int32, np.uint8, np.complex64, ml_dtypes.float8_e4m3fn, np.dtype(">f4"), np.dtype(">f2")],
    ids=lambda d: np.dtype(d).str,
)
@pytest.mark.each("special", [None, math.nan, math.inf])
@pytest.mark.each("count", [0, 1, 5001, 600011])
def test_the_statistics_that_come_with_a_comparison_are_those_of_each_side_alone(
    dtype: Any, special: float | None, count: int
) -> None:
    rng = np.random.default_rng(count)
    values = rng.standard_normal(count) * 20
    golden = (np.abs(values) if np.dtype(dtype).kind == "u" else values).astype(dtype)
    golden[: count // 3] = 0
    actual = golden.copy()
    actual[300000:] = golden[300000:] * np.asarray(2).astype(dtype)
    if special is not None and golden.dtype.kind not in "iu" and count > 1:
        golden[count // 2], actual[-1] = special, special
    found = examine_tensors(golden, actual, rtol=1e-3, atol=0)
    for side, array in ((found.golden, golden), (found.actual, actual)):
        expected = tensor_stats(array)
        bare = {"avg": None, "l2norm": None}
        np.testing.assert_equal(replace(side, **bare), replace(expected, **bare))
        # Neighbours that are added in one row are others where the pieces are cut elsewhere.
        sums = [[stats.avg or 0.0, stats.l2norm or 0.0] for stats in (side, expected)]
        np.testing.assert_allclose(*sums, rtol=1e-8, atol=1e-8)
    assert found.difference == compare_tensors(golden, actual, rtol=1e-3, atol=0) or special is not None


@pytest.mark.parametrize("value", [3e30, 9.9e17, 4.9e16, 1.01e-14, 2e-20])
def test_a_comparison_of_values_at_the_ends_of_float32_squares_has_statistics_too(value: float) -> None:
    golden = np.full(300000, value, np.float32)
    found = examine_tensors(golden, golden * np.float32(2), rtol=1e-3, atol=0)
    assert (found.golden.max, found.actual.max) == (golden.max(), 2 * golden.max())
    assert found.golden.l2norm == pytest.approx(math.sqrt(300000) * float(golden[0]), rel=1e-6)
    assert (found.difference.relative_l2, found.difference.cosine) == (pytest.approx(1), pytest.approx(1))
    assert found.difference.outside == 300000


def test_complex_elements_whose_magnitude_leaves_float64_are_listed() -> None:
    golden = np.array([complex(1.7e308, 1.7e308), 1])
    found = compare_tensors(golden, golden.conjugate(), rtol=1e-7, atol=0)
    assert found.magnitude == math.inf
    assert found.outside == 1
    assert found.worst[0].index == (0,)


@pytest.mark.parametrize("size", [1, (1 << 18) + 1, 3 << 18])
@pytest.mark.parametrize("turned", [False, True])
def test_types_of_unlike_size_are_cut_into_the_same_pieces(size: int, *, turned: bool) -> None:
    import ml_dtypes

    narrow = np.ones(size, ml_dtypes.float8_e4m3fn)
    wide = narrow.astype(np.float16)
    wide[-1] = 2
    sides = (wide, narrow) if turned else (narrow, wide)
    found = compare_tensors(*sides, rtol=1e-3, atol=0)
    assert (found.outside, found.max_abs) == (1, 1.0)


@pytest.mark.each("dtype", [*TYPES, ml_dtypes.float8_e5m2, np.int8, np.uint64, np.complex64])
def test_an_empty_tensor_has_statistics_of_no_element(dtype: Any) -> None:
    stats = values_stats(np.zeros(0, dtype))
    assert (stats.count, stats.max, stats.min, stats.nan) in {(0, None, None, 0), (0, None, None, None)}


def test_real_numbers_held_against_complex_ones_keep_their_statistics() -> None:
    golden, actual = np.full(3, 1 + 2j, np.complex64), np.array([1, np.inf, 2], np.float32)
    found = examine_tensors(golden, actual, rtol=0, atol=0)
    alone = tensor_stats(actual)
    assert (found.actual.max, found.actual.min, found.actual.avg) == (alone.max, alone.min, alone.avg)
    assert (found.actual.pos_inf, found.actual.neg_inf) == (1, 0)
