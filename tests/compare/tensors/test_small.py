"""Small tensors on the path of their own, and on that of the large ones, against definitions in float64."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from pytest_npudump.compare.tensors import difference as small
from pytest_npudump.compare.tensors.difference import Examined, examine_tensors

if TYPE_CHECKING:
    from collections.abc import Callable

TYPES = {"float16": np.float16, "bfloat16": ml_dtypes.bfloat16, "float32": np.float32}
TOLERANCES = [(1e-3, 0.0), (1e-3, 1e-5), (0.0, 1e-6), (0.0, 0.0), (1e-40, 0.0)]
BOUND = {"small": 1e-13, "general": 3e-6}
"""How far a measure may be off, as a share of itself."""


@pytest.fixture(params=["small", "general"])
def path(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Which of the two ways a comparison takes."""
    if request.param == "general":
        monkeypatch.setattr(small, "ROW", 0)
    return str(request.param)


def _places(values: Any) -> Any:
    """Python integers in the order of the values, one for each value of the type, 0 for both zeros."""
    half = 1 << (8 * values.itemsize - 1)
    codes = [int(code) for code in values.view(f"u{values.itemsize}").tolist()]
    return np.array([code if code < half else half - code for code in codes], object)


def _dot(one: Any, other: Any) -> float:
    return math.fsum(x * y for x, y in zip(one.tolist(), other.tolist(), strict=True))


def _assert_true(
    golden: Any, actual: Any, tolerance: tuple[float, float], bound: float, worst: int = 5
) -> Examined:
    """Compare, and assert all that comes of it; return it."""
    rtol, atol = tolerance
    shape = golden.shape
    found = examine_tensors(golden, actual, rtol=rtol, atol=atol, worst=worst)
    golden, actual = golden.reshape(-1), actual.reshape(-1)
    d = found.difference
    with np.errstate(all="ignore"):
        g, a = golden.astype(np.float64), actual.astype(np.float64)
        finite = np.isfinite(g) & np.isfinite(a)
        differ = ~finite & ~((np.isnan(g) & np.isnan(a)) | (g == a))
        g0, a0 = g[finite], a[finite]
        gaps = np.abs(a0 - g0)
        outside = differ.sum() + np.count_nonzero(~(gaps <= atol + rtol * np.abs(g0)))
        relative = gaps[g0 != 0] / np.abs(g0[g0 != 0])
    assert (d.shape, d.dtype, d.count) == (shape, golden.dtype.name, g.size)
    assert (d.outside, d.special, d.special_different) == (outside, (~finite).sum(), differ.sum())
    assert (d.nan_golden, d.nan_actual) == (np.isnan(g).sum(), np.isnan(a).sum())
    assert (d.inf_golden, d.inf_actual) == (np.isinf(g).sum(), np.isinf(a).sum())
    first = tuple(int(i) for i in np.unravel_index(differ.argmax(), shape)) if differ.any() else None
    assert d.first_special_different == first
    assert d.magnitude == np.abs(g0).max(initial=0)
    assert d.max_abs == pytest.approx(gaps.max(initial=0), rel=bound, abs=0)
    changed = np.any((g0 == 0) & (gaps > 0))
    assert d.max_rel == (math.inf if changed else pytest.approx(relative.max(initial=0), rel=bound, abs=0))
    mean = math.fsum(relative.tolist()) / relative.size if relative.size else None
    assert d.mean_rel == (mean if mean is None else pytest.approx(mean, rel=bound, abs=0))
    squares, more, apart = _dot(g0, g0), _dot(a0, a0), _dot(a0 - g0, a0 - g0)
    assert d.norm == pytest.approx(math.sqrt(squares), rel=bound, abs=0)
    if squares:
        assert d.relative_l2 == pytest.approx(math.sqrt(apart) / math.sqrt(squares), rel=bound, abs=0)
    else:
        assert d.relative_l2 == (math.inf if apart else 0)
    cosine = (
        _dot(g0, a0) / math.sqrt(squares) / math.sqrt(more)
        if squares and more
        else float(not squares and not more)
    )
    assert d.cosine == pytest.approx(cosine, rel=0, abs=max(bound, 1e-12))
    _assert_ulp(d, golden[finite], actual[finite])
    _assert_worst(d, (g, a), finite, differ, worst=worst if bound < 1e-9 else 0)
    _assert_statistics(found.golden, g)
    _assert_statistics(found.actual, a)
    return found


def _assert_ulp(found: Any, golden: Any, actual: Any) -> None:
    gaps = np.abs(_places(golden) - _places(actual)).tolist()
    assert found.max_ulp == (max(gaps) if gaps else None)
    assert found.mean_ulp == (sum(gaps) / len(gaps) if gaps else None)


def _assert_worst(found: Any, sides: Any, finite: Any, differ: Any, *, worst: int) -> None:
    """Different special pairs first, then the farthest apart, of equal ones the first."""
    if not worst:
        return
    g, a = sides
    with np.errstate(invalid="ignore"):
        gaps = np.where(finite, np.abs(a - g), 0)
    far = [int(i) for i in np.argsort(-gaps, kind="stable") if gaps[i] > 0][:worst]
    places = ([int(i) for i in np.flatnonzero(differ)][:worst] + far)[:worst]
    indices = [tuple(int(i) for i in np.unravel_index(place, found.shape)) for place in places]
    assert [element.index for element in found.worst] == indices
    np.testing.assert_array_equal([element.golden for element in found.worst], g[places])
    np.testing.assert_array_equal([element.actual for element in found.worst], a[places])


def _assert_statistics(found: Any, values: Any) -> None:
    known, finite = values[~np.isnan(values)], values[np.isfinite(values)]
    assert (found.count, found.nan) == (values.size, np.isnan(values).sum())
    assert (found.neg_inf, found.pos_inf) == ((values == -math.inf).sum(), (values == math.inf).sum())
    assert found.zero == (values == 0).sum()
    np.testing.assert_equal(found.max, known.max() + 0 if known.size else math.nan)
    np.testing.assert_equal(found.min, known.min() + 0 if known.size else math.nan)
    if finite.size == values.size:
        assert found.avg == pytest.approx(
            math.fsum(values.tolist()) / values.size, rel=1e-9, abs=1e-12 * np.abs(values).max()
        )
        assert found.l2norm == pytest.approx(math.sqrt(_dot(values, values)), rel=1e-9, abs=0)
    else:
        assert not math.isfinite(found.avg)
        np.testing.assert_equal(found.l2norm, math.nan if np.isnan(values).any() else math.inf)


def _plain(rng: Any, dtype: Any, count: int) -> Any:
    return rng.standard_normal(count).astype(dtype)


def _masked(value: float) -> Callable[..., Any]:
    def content(rng: Any, dtype: Any, count: int) -> Any:
        values = _plain(rng, dtype, count)
        values[rng.random(count) < 0.25] = ml_dtypes.finfo(dtype).min if value == -1 else value
        return values

    return content


def _codes(rng: Any, dtype: Any, count: int) -> Any:
    return rng.integers(0, 256, count * np.dtype(dtype).itemsize, np.uint8).view(dtype)


def _subnormal(rng: Any, dtype: Any, count: int) -> Any:
    size = np.dtype(dtype).itemsize
    signs = rng.integers(0, 2, count).astype(f"u{size}") << (8 * size - 1)
    return (signs | rng.integers(0, 60, count).astype(f"u{size}")).view(dtype)


CONTENTS = {
    "plain": _plain,
    "nan": _masked(math.nan),
    "inf": _masked(-math.inf),
    "lowest": _masked(-1),
    "zeros": _masked(-0.0),
    "subnormal": _subnormal,
    "any bits": _codes,
}


@pytest.mark.filterwarnings("ignore:.*encountered in cast:RuntimeWarning")
@pytest.mark.parametrize("content", CONTENTS)
@pytest.mark.parametrize("name", TYPES)
@pytest.mark.parametrize("shape", [(1,), (7,), (256,), (3, 5, 31), (4095,), (32, 256)])
def test_both_paths_measure_as_defined(name: str, content: str, shape: tuple[int, ...], path: str) -> None:
    rng = np.random.default_rng(len(content))
    count = math.prod(shape)
    golden = CONTENTS[content](rng, TYPES[name], count)
    with np.errstate(all="ignore"):
        noisy = (golden.astype(np.float64) * (1 + 1e-3 * rng.standard_normal(count))).astype(TYPES[name])
    some = np.where(rng.random(count) < 0.9, golden, noisy)
    for actual in (golden.copy(), noisy, some, CONTENTS[content](rng, TYPES[name], count), -golden):
        for tolerance in TOLERANCES:
            _assert_true(golden.reshape(shape), actual.reshape(shape), tolerance, BOUND[path])


_HOSTILE = {
    "nothing finite": ([math.nan, math.inf], [math.inf, math.nan]),
    "equal but for the bits of a NaN": ([math.nan, 1.0], [-math.nan, 1.0]),
    "zeros of both signs": ([0.0, -0.0, 1.0], [-0.0, 0.0, 1.0]),
    "golden all zero": ([0.0, 0.0], [0.0, 1.0]),
    "actual all zero": ([1.0, -2.0], [0.0, -0.0]),
    "opposite": ([1.0, -2.0, 0.5], [-1.0, 2.0, -0.5]),
    "one NaN, else equal": ([1.0, math.nan, 2.0], [1.0, 1.0, 2.0]),
    "infinities of both signs": ([math.inf, -math.inf], [-math.inf, -math.inf]),
    "the largest beside an infinity": ([6.0e4, 1.0], [math.inf, 1.0]),
    "all as far apart": ([0.0] * 9, [1.0] * 9),
}


@pytest.mark.filterwarnings("ignore:.*encountered in cast:RuntimeWarning")
@pytest.mark.parametrize("case", _HOSTILE)
@pytest.mark.parametrize("name", TYPES)
@pytest.mark.parametrize("worst", [1, 5, 20])
def test_hostile_pairs(name: str, case: str, worst: int, path: str) -> None:
    golden, actual = (np.array(side, TYPES[name]) for side in _HOSTILE[case])
    for tolerance in TOLERANCES:
        _assert_true(golden, actual, tolerance, BOUND[path], worst)


@pytest.mark.parametrize("name", TYPES)
def test_an_element_of_thousands_that_differs_by_the_last_bit_is_seen(name: str, path: str) -> None:
    golden = np.random.default_rng(0).standard_normal(4096).astype(TYPES[name])
    for place in (0, 2048, 4095):
        actual = golden.copy()
        actual.view(f"u{golden.itemsize}")[place] ^= 1
        found = _assert_true(golden, actual, (0.0, 0.0), BOUND[path]).difference
        assert (found.outside, found.max_ulp, found.worst[0].index) == (1, 1, (place,))


@pytest.mark.parametrize("name", TYPES)
def test_the_edge_of_a_tolerance_is_that_of_float64(name: str, path: str) -> None:
    golden = np.full(1000, 3.0, TYPES[name])
    actual = golden.copy()
    actual.view(f"u{golden.itemsize}")[::2] += 1
    edge = float(actual[0]) - 3.0
    for atol in (edge, np.nextafter(edge, 0), np.nextafter(edge, 1)):
        _assert_true(golden, actual, (0.0, float(atol)), BOUND[path])


@pytest.mark.parametrize("name", TYPES)
def test_views_of_any_order_and_alignment(name: str) -> None:
    rng = np.random.default_rng(0)
    raw = rng.integers(0, 256, 1001 * np.dtype(TYPES[name]).itemsize, np.uint8)
    odd = raw[1 : 1 + 900 * np.dtype(TYPES[name]).itemsize].view(TYPES[name]).reshape(30, 30)
    _assert_true(odd, odd.copy().T, (1e-3, 0.0), BOUND["small"])
    _assert_true(odd.T, odd[::-1], (1e-3, 0.0), BOUND["small"])
    _assert_true(odd[:, ::2], odd[:, 1::2].copy(), (1e-3, 0.0), BOUND["small"])


@settings(deadline=None, max_examples=200, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.sampled_from(sorted(TYPES)), st.sampled_from(TOLERANCES), st.binary(min_size=8, max_size=256))
@example("float32", (1e-3, 0.0), bytes(64))
def test_any_bits_on_either_path(path: str, name: str, tolerance: tuple[float, float], raw: bytes) -> None:
    codes = np.frombuffer(raw[: len(raw) // 8 * 8], np.uint8)
    golden, actual = (side.view(TYPES[name]) for side in np.split(codes, 2))
    _assert_true(golden, actual, tolerance, BOUND[path])


RANGES = {name: (np.iinfo(name).min, np.iinfo(name).max) for name in ("int8", "uint8", "int16", "uint16")}
RANGES |= {name: (np.iinfo(name).min, np.iinfo(name).max) for name in ("int32", "uint32")}
RANGES |= {"int64": (-(1 << 39), 1 << 39), "uint64": (0, 1 << 39)}
"""The smallest and the largest integers that small tensors of a type may have."""


@pytest.mark.parametrize("name", ["int64", "uint64"])
def test_integers_of_64_bits_are_small_while_their_sums_are_exact(name: str) -> None:
    values = np.array([*RANGES[name], 0], name)
    assert small.small_pair(values, values) is not None
    assert small.small_pair(values, values + np.array(1, name)) is None
    assert small.small_pair(np.array([np.iinfo(name).max], name), values[:1]) is None
    if np.iinfo(name).min:
        assert small.small_pair(values, values - 1) is None


@pytest.mark.parametrize("name", RANGES)
@pytest.mark.parametrize("worst", [2, 20])
@pytest.mark.usefixtures("path")
def test_integers_are_measured_exactly_on_both_paths(name: str, worst: int) -> None:
    rng = np.random.default_rng(0)
    least, most = RANGES[name]
    golden = rng.integers(least, most, 300, name, endpoint=True)
    golden[::7], golden[1], golden[2] = 0, least, most
    noisy = golden.copy()
    noisy[5::11] ^= 1
    far = golden.copy()
    far[1], far[2] = most, least
    for actual in (noisy, far, golden[::-1].copy()):
        one, other = golden.tolist(), actual.tolist()
        gaps = [abs(y - x) for x, y in zip(one, other, strict=True)]
        found = examine_tensors(golden, actual, rtol=0.25, atol=1.0, worst=worst)
        d = found.difference
        assert d.max_abs == max(gaps)
        assert isinstance(d.max_abs, int)
        assert d.outside == sum(gap > 1 + abs(x) / 4 for gap, x in zip(gaps, one, strict=True))
        assert d.max_ulp is None
        order = sorted((-gap, at) for at, gap in enumerate(gaps) if gap)[:worst]
        assert [(e.index, e.golden, e.actual, e.abs) for e in d.worst] == [
            ((at,), one[at], other[at], -gap) for gap, at in order
        ]
        assert all(isinstance(e.golden, int) for e in d.worst)
        for stats, values in ((found.golden, one), (found.actual, other)):
            assert (stats.max, stats.min, stats.zero) == (max(values), min(values), values.count(0))
            assert isinstance(stats.max, int)
            assert stats.avg == pytest.approx(sum(values) / 300, rel=1e-15)
            assert stats.l2norm == pytest.approx(math.sqrt(sum(x * x for x in values)), rel=1e-12)


@pytest.mark.parametrize("name", ["float8_e5m2", "float8_e4m3fn"])
def test_every_pair_of_codes_of_fp8_is_measured_as_defined_on_both_paths(name: str, path: str) -> None:
    dtype = getattr(ml_dtypes, name)
    codes = np.arange(256, dtype=np.uint8)
    for turn in range(0, 256, 5):
        golden, actual = codes.view(dtype), np.roll(codes, turn).view(dtype)
        _assert_true(golden, actual, (0.1, 0.0), BOUND[path])


@pytest.mark.usefixtures("path")
def test_a_bool_is_the_byte_that_it_is_on_both_paths() -> None:
    golden = np.array([True, False, True, True])
    d = examine_tensors(golden, ~golden, rtol=0, atol=0).difference
    assert (d.dtype, d.outside, d.max_abs, d.worst[0].golden) == ("bool", 4, 1, 1)
