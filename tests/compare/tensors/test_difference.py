"""Elements against elements, of every family of types and content, by definitions in numpy's float64."""

from __future__ import annotations

import json
import math
from itertools import cycle, product
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import example, given, settings, strategies as st

from pytest_npudump.compare.tensors import difference as module
from pytest_npudump.compare.tensors.difference import (
    compare_tensors,
    examine_tensors,
    small_pair,
    values_stats,
)
from pytest_npudump.dump.arrays.decode import DecodeError
from pytest_npudump.dump.stats.tensor import tensor_stats
from pytest_npudump.errors import RequestError

NARROW = ["float16", "bfloat16", "float32"]
FLOATS = [*NARROW, "float64", "float8_e4m3fn", "float8_e5m2", "float8_e8m0fnu"]
INTS = ["bool", "int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64"]
LARGE = (1 << 18) + 4099
CONTENTS = ["plain", "nan", "inf", "lowest", "tiny", "subnormal", "zeros", "codes"]
TOLERANCES = [(1e-3, 0.0), (1e-3, 1e-5), (0.0, 1e-6), (0.0, 0.0), (1e-40, 0.0)]
TIGHT, LOOSE = 1e-12, 3e-6
"""How far a measure may be off, as a share of itself: computed in float64, and in float32."""
EXACT = ("outside", "special", "special_different", "nan_golden", "nan_actual", "inf_golden", "inf_actual")
EXACT += ("first_special_different", "shape", "count")
PATHS = {"small": 8192, "general": 0}
"""Elements up to which a tensor counts as small."""


def _dtype(name: str) -> np.dtype:
    return np.dtype(getattr(ml_dtypes, name, None) or name)


def _codes(dtype: np.dtype, count: int, rng: np.random.Generator) -> Any:
    if dtype.kind == "b":
        return rng.integers(0, 2, count, np.uint8).view(dtype)
    return rng.integers(0, 256, count * dtype.itemsize, np.uint8).view(dtype)


def _content(name: str, content: str, count: int, seed: int) -> Any:
    dtype, rng = _dtype(name), np.random.default_rng(seed)
    if dtype.kind in "biu" or content == "codes":
        return _codes(dtype, count, rng)
    values = rng.standard_normal(count) * {"tiny": 1e-16, "subnormal": 1e-40}.get(content, 1)
    with np.errstate(all="ignore"):
        array = (np.abs(values) if name == "float8_e8m0fnu" else values).astype(dtype)
        places = rng.random(count) < 0.25
        if content == "lowest":
            info = ml_dtypes.finfo(dtype)
            array[places] = info.max if name == "float8_e8m0fnu" else info.min
        elif content in {"nan", "inf", "zeros"}:
            array[places] = {"nan": math.nan, "inf": -math.inf, "zeros": -0.0}[content]
    return array


def _noisy(golden: Any, seed: int, noise: float = 1e-3) -> Any:
    rng, actual = np.random.default_rng(seed), golden.copy()
    places = rng.random(golden.size) < 0.5
    with np.errstate(all="ignore"):
        if golden.dtype.kind in "biu":
            actual[places] = _codes(golden.dtype, golden.size, rng)[places]
        else:
            factors = 1 + noise * rng.standard_normal(golden.size)
            actual[places] = (golden.astype(np.float64) * factors).astype(golden.dtype)[places]
    return actual


@np.errstate(all="ignore")
def _truth(golden: Any, actual: Any, rtol: float, atol: float) -> dict[str, Any]:
    shape, golden, actual = golden.shape, golden.reshape(-1), actual.reshape(-1)
    wide: Any = np.complex128 if golden.dtype.kind == "c" else np.float64
    g, a = golden.astype(wide), actual.astype(wide)
    finite = np.isfinite(g) & np.isfinite(a)
    same = (np.isnan(g) & np.isnan(a)) | (g == a)
    distance = np.abs(a - g)
    if golden.dtype.kind in "iu" and golden.itemsize == 8:
        high, low = (choose(golden, actual).view(np.uint64) for choose in (np.maximum, np.minimum))
        distance = (high - low).astype(np.float64)  # modulo 2**64, within which all distances are
    differ = ~finite & ~same
    outside = differ | (finite & ~((distance <= atol + rtol * np.abs(g)) & (distance < np.inf)))
    g0, a0, d0 = g[finite], a[finite], distance[finite]
    relative = d0[g0 != 0] / np.abs(g0[g0 != 0])
    scale = np.abs(np.concatenate([g0, a0])).max(initial=0) or 1
    g1, a1 = g0 / scale, a0 / scale
    apart = d0 / scale if np.isfinite(d0).all() else np.abs(a1 - g1)
    sides = [side.view(np.float64) for side in (g1, a1, apart)]
    small = g.size < LARGE  # for which Python's sums, which round once, are fast enough
    norms = [math.hypot(*side.tolist()) if small else np.linalg.norm(side) for side in sides]
    first, second = (side.view(np.float64) for side in (g1 / (norms[0] or 1), a1 / (norms[1] or 1)))
    place = np.unravel_index(differ.argmax(), shape) if differ.any() else None
    return {
        "shape": shape,
        "count": g.size,
        "magnitude": np.abs(g0).max(initial=0),
        "norm": float(norms[0]) * float(scale),
        "max_abs": d0.max(initial=0),
        "max_rel": math.inf if np.any((g0 == 0) & (d0 > 0)) else relative.max(initial=0),
        "mean_rel": float(relative.mean()) if relative.size else None,
        "cosine": (math.fsum((first * second).tolist()) if small else first @ second)
        if norms[0] and norms[1]
        else float(norms[0] == norms[1]),
        "relative_l2": norms[2] / norms[0] if norms[0] else (math.inf if norms[2] else 0.0),
        "outside": int(outside.sum()),
        "special": int((~finite).sum()),
        "special_different": int(differ.sum()),
        "nan_golden": int(np.isnan(g).sum()),
        "nan_actual": int(np.isnan(a).sum()),
        "inf_golden": int((np.isinf(g) & ~np.isnan(g)).sum()),
        "inf_actual": int((np.isinf(a) & ~np.isnan(a)).sum()),
        "first_special_different": None if place is None else tuple(int(at) for at in place),
    }


def _places(values: Any) -> Any:
    """Integers in the order of the values, one for each value of the type, 0 for both zeros."""
    wide = object if values.itemsize == 8 else np.int64
    half, codes = 1 << (8 * values.itemsize - 1), values.view(f"u{values.itemsize}").astype(wide)
    return np.where(codes < half, codes, half - codes)


def _check(
    golden: Any, actual: Any, rtol: float, atol: float, bound: float = LOOSE, *, worst: int = 5
) -> Any:
    """Compare, and hold all that comes of it against the definitions; return it."""
    found = examine_tensors(golden, actual, rtol=rtol, atol=atol, worst=worst)
    d, expected = found.difference, _truth(golden, actual, rtol, atol)
    assert {name: getattr(d, name) for name in EXACT} == {name: expected[name] for name in EXACT}
    for name in expected.keys() - EXACT:
        value = expected[name]
        slack = (5e-6 if bound == LOOSE else TIGHT) if name == "cosine" else 0
        near = value if value is None else pytest.approx(value, rel=bound, abs=slack)
        assert getattr(d, name) == near, name
    for side, array in ((found.golden, golden), (found.actual, actual)):
        with np.errstate(all="ignore"):
            stats = tensor_stats(array)
        for field in ("count", "max", "min", "nan", "neg_inf", "pos_inf", "zero"):
            np.testing.assert_equal(getattr(side, field), getattr(stats, field))
        np.testing.assert_allclose(side.l2norm or 0.0, stats.l2norm or 0.0, rtol=1e-8)
        size = 1e-8 * abs(stats.max or 0) if stats.max is not None and math.isfinite(stats.max) else 1e-8
        np.testing.assert_allclose(side.avg or 0.0, stats.avg or 0.0, rtol=1e-8, atol=size)
    flat = golden.reshape(-1), actual.reshape(-1)
    with np.errstate(all="ignore"):
        g, a = (side.astype(np.float64) for side in flat)
        finite = np.isfinite(g) & np.isfinite(a)
    if golden.dtype.kind not in "biu" and golden.dtype.name != "float8_e8m0fnu" and golden.size < LARGE:
        gaps = np.abs(_places(flat[0])[finite] - _places(flat[1])[finite]).tolist()
        assert d.max_ulp == (max(gaps) if gaps else None)
        assert d.mean_ulp == (pytest.approx(sum(gaps) / len(gaps), rel=1e-6) if gaps else None)
    if bound == TIGHT:
        differ = ~finite & ~((np.isnan(g) & np.isnan(a)) | (g == a))
        with np.errstate(invalid="ignore"):
            gap = np.where(finite, np.abs(a - g), 0)
        far = [int(i) for i in np.argsort(-gap, kind="stable")[:worst] if gap[i] > 0]
        places = ([int(i) for i in np.flatnonzero(differ)][:worst] + far)[:worst]
        indices = [tuple(int(i) for i in np.unravel_index(place, golden.shape)) for place in places]
        assert [element.index for element in d.worst] == indices
        np.testing.assert_array_equal([element.golden for element in d.worst], g[places])
        np.testing.assert_array_equal([element.actual for element in d.worst], a[places])
    return found


@pytest.mark.each(
    ("name", "content", "count"),
    [
        *product(FLOATS, CONTENTS, [1000]),
        *product(NARROW, ["plain", "nan", "lowest", "subnormal", "codes"], [LARGE]),  # a kernel of their own
        *product(FLOATS[3:], ["plain", "lowest", "codes"], [LARGE]),
    ],
)
def test_floats_of_any_content_compare_as_defined(name: str, content: str, count: int) -> None:
    golden = _content(name, content, count, 0)
    if count < LARGE or content in {"plain", "nan", "codes"}:
        _check(golden, golden.copy(), 1e-3, 0)
    _check(golden, _noisy(golden, 1), 1e-3, 1e-5 if count == LARGE else 0)
    _check(golden, _content(name, content, count, 3), 0, 0)


@pytest.mark.each("name", ["float32", "bfloat16"])
@pytest.mark.each("places", [5, slice(None)])
def test_squares_of_one_side_or_the_difference_leave_float32(name: str, places: Any) -> None:
    golden, actual = (_content(name, "plain", LARGE, 0) for _ in range(2))
    golden[places] = 1e-22
    actual[places] = 3e-22 if places == 5 else 1
    _check(golden, actual, 1e-3, 0)


@pytest.mark.filterwarnings("ignore:.*encountered in cast:RuntimeWarning")
@pytest.mark.each(
    ("content", "shape"),
    [*product(CONTENTS, [(3, 5, 31)]), *product(["plain", "lowest", "codes"], [(1,), (7,), (32, 256)])],
)
@pytest.mark.each("name", [*NARROW, "float8_e5m2", "float8_e4m3fn"])
@pytest.mark.each("path", PATHS)
def test_both_paths_measure_as_defined(
    name: str, content: str, shape: tuple[int, ...], path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "ROW", PATHS[path])
    golden = _content(name, content, math.prod(shape), 5)
    others = (
        golden.copy(),
        _noisy(golden, 1),
        _noisy(golden, 2, 1e-6),
        _content(name, content, golden.size, 6),
    )
    for actual, tolerance in zip((*others, -golden), TOLERANCES, strict=True):
        _check(golden.reshape(shape), actual.reshape(shape), *tolerance, TIGHT)


HOSTILE = {
    "nothing finite": ([math.nan, math.inf], [math.inf, math.nan]),
    "equal but for the bits of a NaN": ([math.nan, 1.0], [-math.nan, 1.0]),
    "zeros of both signs": ([0.0, -0.0, 1.0], [-0.0, 0.0, 1.0]),
    "golden all zero": ([0.0, 0.0], [0.0, 1.0]),
    "actual all zero": ([1.0, -2.0], [0.0, -0.0]),
    "all zero": ([0.0, 0.0], [0.0, -0.0]),
    "opposite": ([1.0, -2.0, 0.5], [-1.0, 2.0, -0.5]),
    "one NaN, else equal": ([1.0, math.nan, 2.0], [1.0, 1.0, 2.0]),
    "infinities of both signs": ([math.inf, -math.inf], [-math.inf, -math.inf]),
    "the largest beside an infinity": ([65504.0, -65504.0, 0.0], [math.inf, math.inf, -math.inf]),
    "all as far apart": ([0.0] * 9, [1.0] * 9),
}


@pytest.mark.filterwarnings("ignore:.*encountered in cast:RuntimeWarning")
@pytest.mark.each("case", HOSTILE)
@pytest.mark.each("name", [*NARROW, "float64"])
@pytest.mark.each("path", PATHS)
def test_hostile_pairs(name: str, case: str, path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "ROW", PATHS[path])
    golden, actual = (np.array(side, _dtype(name)) for side in HOSTILE[case])
    for tolerance, worst in zip((*TOLERANCES, (1000, 1e9)), cycle([1, 5, 20]), strict=False):
        _check(golden, actual, *tolerance, TIGHT, worst=worst)


SPECIAL: list[tuple[tuple[float, ...], tuple[float, ...]]] = [
    ((math.nan,), ()),
    ((), (math.nan,)),
    ((math.nan,), (math.nan,)),
    ((math.inf,), (math.nan,)),
    ((math.inf, -math.inf), (math.inf, -math.inf)),
    ((math.nan, math.inf), (math.nan,)),
    ((math.nan, -math.inf, math.inf), (-math.inf, math.nan, math.inf)),
]


@pytest.mark.each("name", NARROW)
@pytest.mark.each(
    ("first", "second", "same"),
    [*((*sides, False) for sides in SPECIAL), *((*SPECIAL[number], True) for number in (2, 4, 6))],
)
def test_nan_and_infinities_at_the_same_places_and_at_others(
    name: str, first: tuple[float, ...], second: tuple[float, ...], *, same: bool
) -> None:
    sides = [_content(name, "plain", LARGE, seed) for seed in (0, 1)]
    for seed, (side, values) in enumerate(zip(sides, (first, second), strict=True)):
        rng = np.random.default_rng(2 if same else seed)
        places = np.flatnonzero(rng.random(LARGE) < 0.25)
        for at, value in enumerate(values):
            side[places[at :: len(values)]] = value
        if any(map(math.isnan, values)):  # one of another sign and payload
            codes = side.view(f"u{side.itemsize}")
            codes[places[0]] = np.iinfo(codes.dtype).max
    found = _check(sides[0], sides[1], 1e-3, 0).difference
    assert found.special_equal is not bool(found.special_text())


@pytest.mark.each("name", INTS)
@pytest.mark.each("count", [1000, LARGE])
def test_integers_compare_as_defined(name: str, count: int) -> None:
    golden = _content(name, "codes", count, 0)
    _check(golden, golden.copy(), 0.25, 0)
    for rtol in (0, 0.25):
        _check(golden, _noisy(golden, 1), rtol, 1 if rtol else 0)


RANGES = {name: (np.iinfo(name).min, np.iinfo(name).max) for name in INTS[1:7]}
RANGES |= {"int64": (-(1 << 39), 1 << 39), "uint64": (0, 1 << 39)}
"""The smallest and the largest integers that small tensors of a type may have."""


@pytest.mark.each("name", RANGES)
@pytest.mark.each("worst", [2, 20])
@pytest.mark.each("path", PATHS)
def test_integers_are_measured_exactly_on_both_paths(
    name: str, worst: int, path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "ROW", PATHS[path])
    least, most = RANGES[name]
    golden = np.random.default_rng(0).integers(least, most, 300, name, endpoint=True)
    golden[::7], golden[1], golden[2] = 0, least, most
    noisy, far = golden.copy(), golden.copy()
    noisy[5::11] ^= 1
    far[1], far[2] = most, least
    for actual in (noisy, far, golden[::-1].copy()):
        one, other = golden.tolist(), actual.tolist()
        gaps = [abs(y - x) for x, y in zip(one, other, strict=True)]
        found = examine_tensors(golden, actual, rtol=0.25, atol=1.0, worst=worst)
        d = found.difference
        assert (d.max_abs, d.max_ulp, isinstance(d.max_abs, int)) == (max(gaps), None, True)
        assert d.outside == sum(gap > 1 + abs(x) / 4 for gap, x in zip(gaps, one, strict=True))
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


@pytest.mark.each(
    ("dtype", "golden", "actual", "gap"),
    [
        ("uint64", 2**64 - 1, 2**64 - 2, 1),
        ("uint64", 0, 2**64 - 1, 2**64 - 1),
        ("int64", -(2**63), 2**63 - 1, 2**64 - 1),
        ("int64", 2**53, 2**53 + 1, 1),
        ("uint8", 255, 0, 255),
        ("int8", -128, 127, 255),
        ("bool", True, False, 1),
    ],
)
def test_integers_are_exact(dtype: str, golden: Any, actual: Any, gap: int) -> None:
    pair = np.array([golden, 1], dtype), np.array([actual, 1], dtype)
    found = compare_tensors(*pair, rtol=0, atol=0)
    assert (found.dtype, found.max_abs, found.outside, found.worst[0].abs) == (dtype, gap, 1, gap)
    assert (found.worst[0].golden, found.worst[0].actual) == (golden, actual)


@pytest.mark.each("name", ["int64", "uint64"])
def test_integers_of_64_bits_are_small_while_their_sums_are_exact(name: str) -> None:
    values = np.array([*RANGES[name], 0], name)
    assert small_pair(values, values) is not None
    assert small_pair(values, values + np.array(1, name)) is None
    assert small_pair(np.array([np.iinfo(name).max], name), values[:1]) is None
    if np.iinfo(name).min:
        assert small_pair(values, values - 1) is None


@pytest.mark.each(("name", "base"), [("int64", 1 << 62), ("uint64", (1 << 63) + (1 << 62))])
def test_small_distances_of_large_integers_keep_their_digits(name: str, base: int) -> None:
    steps = np.arange(100_000, dtype=np.int64)
    golden = (steps * 1001).astype(name) + np.array(base, name)
    found = compare_tensors(golden, golden + (steps % 5).astype(name), rtol=0, atol=2)
    assert (found.max_abs, found.outside) == (4, int(np.sum(steps % 5 > 2)))
    norm = math.sqrt(math.fsum(float(value) ** 2 for value in golden.tolist()))
    assert found.norm == pytest.approx(norm, rel=1e-12)
    apart = math.sqrt(float(np.sum((steps % 5) ** 2)))
    assert found.relative_l2 == pytest.approx(apart / norm, rel=1e-12)


def test_the_largest_integers_of_64_bits_are_added_up_exactly() -> None:
    values = np.random.default_rng(0).integers(1 << 63, (1 << 64) - 1, 100_003, np.uint64, endpoint=True)
    values[::1000] = 0
    found, exact = tensor_stats(values), values.tolist()
    assert (found.max, found.min, found.zero) == (max(exact), min(exact), exact.count(0))
    assert found.avg == sum(exact) / len(exact)
    assert found.l2norm == pytest.approx(math.sqrt(sum(value**2 for value in exact)), rel=1e-12)


def _complex(name: str, count: int, seed: int) -> Any:
    """Ordinary numbers, zeros, and NaN and infinities, some beside a part that is large."""
    dtype, rng = np.dtype(name), np.random.default_rng(seed)
    parts = rng.standard_normal((count, 2)).astype(dtype.type(0).real.dtype)
    kinds = rng.integers(0, 12, count)
    largest = np.finfo(parts.dtype).max
    for kind, pair in enumerate(
        [(0, -0.0), (math.nan, largest), (largest, math.inf), (-math.inf, math.nan), (math.inf, 1)]
    ):
        parts[kinds == kind] = pair
    return parts.view(dtype)[:, 0]


@pytest.mark.each("name", ["complex64", "complex128"])
@pytest.mark.each("count", [1000, LARGE])
@pytest.mark.each("equal", [True, False])
def test_complex_numbers_that_are_not_finite_are_counted_and_left_out(
    name: str, count: int, *, equal: bool
) -> None:
    golden = _complex(name, count, 0)
    actual = golden.copy() if equal else _complex(name, count, 1)
    found, expected = (
        examine_tensors(golden, actual, rtol=1e-3, atol=1e-5),
        _truth(golden, actual, 1e-3, 1e-5),
    )
    assert {n: getattr(found.difference, n) for n in EXACT} == {n: expected[n] for n in EXACT}
    for measure in ("norm", "relative_l2", "magnitude", "mean_rel", "max_abs"):
        assert getattr(found.difference, measure) == pytest.approx(expected[measure], rel=3e-6), measure
    assert found.difference.cosine == pytest.approx(expected["cosine"], abs=5e-6)
    if equal:
        assert repr(found.golden) == repr(found.actual) == repr(tensor_stats(golden))


@pytest.mark.each("name", ["float16", "bfloat16"])
@pytest.mark.each("shift", [0, 1, 32768, 40000])
def test_all_bit_patterns_of_16_bits_against_all(name: str, shift: int) -> None:
    golden = np.tile(np.arange(1 << 16, dtype=np.uint16), 3).view(_dtype(name))
    _check(golden, np.roll(golden, shift), 1e-3, 0)


@pytest.mark.each("name", ["float8_e4m3fn", "float8_e5m2", "float8_e8m0fnu", "int8", "uint8"])
@pytest.mark.each("times", [1, 3])
def test_all_pairs_of_codes_of_8_bits(name: str, times: int) -> None:
    codes = np.tile(np.arange(1 << 16, dtype=np.uint16), times).view(np.uint8)
    golden, actual = codes[0::2].copy().view(_dtype(name)), codes[1::2].copy().view(_dtype(name))
    found = _check(golden, actual, 1e-3, 0, TIGHT).difference
    parts = slice(0, 1 << 15), slice(1 << 15, 1 << 16)
    halves = [compare_tensors(golden[part], actual[part], rtol=0, atol=0) for part in parts]
    assert found.max_ulp == (None if halves[0].max_ulp is None else max(half.max_ulp or 0 for half in halves))


@settings(deadline=None, max_examples=120)
@given(
    st.sampled_from([*FLOATS, *INTS, "complex64", "complex128"]), st.sampled_from([1, 1, 1, 9001]), st.data()
)
def test_any_bits_of_any_type_and_length_compare_as_defined(
    name: str, times: int, data: st.DataObject
) -> None:
    dtype = _dtype(name)
    size = data.draw(st.integers(1, 40 if times == 1 else 4)) * dtype.itemsize
    sides = [data.draw(st.binary(min_size=size, max_size=size)) for _ in "ab"]
    if data.draw(st.booleans()):  # the first half is the same
        sides[1] = sides[0][: size // 2] + sides[1][size // 2 :]
    octets = [np.tile(np.frombuffer(side, np.uint8), times) for side in sides]
    golden, actual = ((side & 1 if name == "bool" else side).view(dtype) for side in octets)
    rtol, atol = data.draw(st.sampled_from([0, 1e-3, 1])), data.draw(st.sampled_from([0, 1e-6, 1]))
    found, expected = (
        compare_tensors(golden, actual, rtol=rtol, atol=atol),
        _truth(golden, actual, rtol, atol),
    )
    assert {n: getattr(found, n) for n in EXACT} == {n: expected[n] for n in EXACT}
    for measure in ("magnitude", "max_abs", "max_rel"):
        if not math.isnan(expected[measure]):  # of two complex numbers whose magnitudes leave float64
            assert getattr(found, measure) == pytest.approx(expected[measure], rel=3e-6)
    if dtype.kind != "c" and dtype.itemsize < 8:
        with np.errstate(all="ignore"):
            same = np.array_equal(golden.astype(np.float64), actual.astype(np.float64), equal_nan=True)
        assert same == (compare_tensors(golden, actual, rtol=0, atol=0).outside == 0)


@settings(deadline=None, max_examples=80)
@given(st.sampled_from(NARROW), st.sampled_from(TOLERANCES), st.binary(min_size=8, max_size=256))
@example("float32", (1e-3, 0.0), bytes(64))
def test_any_bits_on_either_path(name: str, tolerance: tuple[float, float], raw: bytes) -> None:
    codes = np.frombuffer(raw[: len(raw) // 8 * 8], np.uint8)
    golden, actual = (side.view(_dtype(name)) for side in np.split(codes, 2))
    for row in PATHS.values():
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(module, "ROW", row)
            _check(golden, actual, *tolerance, TIGHT)


@pytest.mark.each("name", NARROW)
@pytest.mark.each("path", PATHS)
def test_the_last_bit_and_the_edge_of_a_tolerance_are_seen(
    name: str, path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "ROW", PATHS[path])
    golden = np.random.default_rng(0).standard_normal(4096).astype(_dtype(name))
    for place in (0, 2048, 4095):
        actual = golden.copy()
        actual.view(f"u{golden.itemsize}")[place] ^= 1
        found = _check(golden, actual, 0.0, 0.0, TIGHT).difference
        assert (found.outside, found.max_ulp, found.worst[0].index) == (1, 1, (place,))
    golden = np.full(1000, 3.0, _dtype(name))
    actual = golden.copy()
    actual.view(f"u{golden.itemsize}")[::2] += 1
    edge = float(actual[0]) - 3.0
    for atol in (edge, np.nextafter(edge, 0), np.nextafter(edge, 1)):
        _check(golden, actual, 0.0, float(atol), TIGHT)


@pytest.mark.each("rtol", [1e-3, 2.0**-10, 1e-7])
def test_the_tolerance_of_tiny_elements_is_decided_as_in_float64(rtol: float) -> None:
    rng = np.random.default_rng(0)
    golden = (10.0 ** rng.uniform(-44, 0, 70000)).astype(np.float32)
    actual = (golden.astype(np.float64) * (1 + 2 * rtol * rng.random(golden.size))).astype(np.float32)
    wide = golden.astype(np.float64)
    expected = np.count_nonzero(np.abs(actual.astype(np.float64) - wide) > rtol * wide)
    assert compare_tensors(golden, actual, rtol=rtol, atol=0).outside == expected


@pytest.mark.each("name", [*NARROW, "float64"])
def test_no_element_passes_by_a_rounding(name: str) -> None:
    for seed in range(4):
        rng = np.random.default_rng(seed)
        golden = (rng.standard_normal(LARGE // 4) + 3).astype(_dtype(name))
        actual = (golden.astype(np.float64) * (1 + 0.02 * rng.random(golden.size))).astype(_dtype(name))
        wide, other = golden.astype(np.float64), actual.astype(np.float64)
        distance = np.abs(other - wide)
        relative, absolute = float((distance / np.abs(wide)).max()), float(distance.max())
        for share in (1.0, 1 - 1e-9, 1 - 1e-8, 1 - 3e-8, 1 + 3e-8):
            for rtol, atol in (
                (relative * share, 0.0),
                (0.0, absolute * share),
                (relative / 2, absolute * share / 2),
            ):
                expected = np.count_nonzero(distance > atol + rtol * np.abs(wide))
                assert compare_tensors(golden, actual, rtol=rtol, atol=atol).outside == expected


@pytest.mark.each("name", ["float16", "float32"])
@pytest.mark.each("share", [1, 2, 40, 5000])
def test_elements_at_the_edge_of_the_tolerance_few_and_many(name: str, share: int) -> None:
    golden = np.linspace(1, 2, 300011).astype(name)
    actual = golden.copy()
    actual[::share] = (golden[::share].astype(np.float64) * 1.0009765625).astype(name)
    wide = golden.astype(np.float64)
    distance = np.abs(actual.astype(np.float64) - wide)
    for edge in (0.0009765625, math.nextafter(0.0009765625, 0), 0.00048828125, 0.002):
        found = compare_tensors(golden, actual, rtol=edge, atol=0)
        assert found.outside == np.count_nonzero(distance > edge * wide)
        assert compare_tensors(golden, actual, rtol=0, atol=edge).outside == np.count_nonzero(distance > edge)


def test_products_of_numbers_with_the_smallest_ones_are_not_lost() -> None:
    golden = _content("float32", "plain", LARGE, 0)
    steps = np.random.default_rng(1).integers(-3, 4, LARGE).astype(np.float64)
    actual = (steps * np.float64(np.finfo(np.float32).smallest_subnormal)).astype(np.float32)
    wide = golden.astype(np.float64)
    cosine = np.dot(wide, steps) / np.linalg.norm(wide) / np.linalg.norm(steps)
    assert compare_tensors(golden, actual, rtol=1e-3, atol=0).cosine == pytest.approx(cosine, rel=0, abs=1e-6)


@pytest.mark.each("value", [3e30, 9.9e17, 4.9e16, 1.01e-14, 2e-20, 1e-30])
def test_values_at_the_ends_of_float32_squares_are_measured(value: float) -> None:
    golden = np.full(300000, value, np.float32)
    found = examine_tensors(golden, golden * np.float32(2), rtol=1e-3, atol=0)
    assert (found.golden.max, found.actual.max) == (golden.max(), 2 * golden.max())
    assert found.golden.l2norm == pytest.approx(math.sqrt(300000) * float(golden[0]), rel=1e-6)
    assert (found.difference.relative_l2, found.difference.cosine) == (pytest.approx(1), pytest.approx(1))
    assert found.difference.outside == 300000


def test_values_beyond_the_range_of_squares() -> None:
    golden = np.array([1e300, 2e300])
    found = compare_tensors(golden, golden * 1.5, rtol=0, atol=0)
    assert (found.cosine, found.relative_l2) == (pytest.approx(1), pytest.approx(0.5))
    large = np.full(40000, 3e38, np.float32)
    assert compare_tensors(large, -large, rtol=0, atol=0).max_abs == pytest.approx(6e38)
    complex_ones = np.array([complex(1.7e308, 1.7e308), 1])
    found = compare_tensors(complex_ones, complex_ones.conjugate(), rtol=1e-7, atol=0)
    assert (found.magnitude, found.outside, found.worst[0].index) == (math.inf, 1, (0,))


@pytest.mark.each("name", [*NARROW, "float64", "float8_e5m2", "int32", "complex64"])
def test_the_worst_elements_with_their_coordinates(name: str) -> None:
    golden = np.zeros((20, 30, 500), _dtype(name))
    actual = golden.copy()
    for rank, index in enumerate([(0, 0, 0), (19, 29, 499), (3, 4, 5), (3, 4, 6), (10, 0, 1)], 1):
        actual[index] = rank
    found = compare_tensors(golden, actual, rtol=0, atol=0, worst=4)
    assert [e.index for e in found.worst] == [(10, 0, 1), (3, 4, 6), (3, 4, 5), (19, 29, 499)]
    assert next((e.golden, e.actual, e.abs, e.rel) for e in found.worst) == (0, 5, 5, math.inf)
    assert found.outside == 5
    if name != "int32":
        actual[7, 8, 9] = math.nan
        found = compare_tensors(golden, actual, rtol=0, atol=0, worst=4)
        assert [e.index for e in found.worst] == [(7, 8, 9), (10, 0, 1), (3, 4, 6), (3, 4, 5)]


def test_of_equal_distances_the_first_are_shown() -> None:
    golden = np.zeros(400000, np.float16)
    found = compare_tensors(golden, golden + np.float16(1), rtol=0, atol=0, worst=3)
    assert [e.index for e in found.worst] == [(0,), (1,), (2,)]
    golden = np.random.default_rng(0).integers(0, 3, 300011).astype(np.float16)
    found = compare_tensors(golden, np.zeros_like(golden), rtol=0, atol=0, worst=6)
    assert [e.index for e in found.worst] == [(int(i),) for i in np.flatnonzero(golden == 2)[:6]]


@pytest.mark.each("name", NARROW)
@pytest.mark.each("largest", [1, 3, 500, 3000, 4096, 10000, 30000])
def test_ulp_sums_are_exact_whatever_the_largest(name: str, largest: int) -> None:
    codes = np.random.default_rng(largest).integers(0, 200, 300011).astype(f"u{_dtype(name).itemsize}")
    gaps = np.random.default_rng(1).integers(0, largest + 1, codes.size)
    gaps[0] = largest
    actual = (codes + gaps).astype(codes.dtype)
    found = compare_tensors(codes.view(_dtype(name)), actual.view(_dtype(name)), rtol=0, atol=0)
    assert (found.max_ulp, found.mean_ulp) == (largest, gaps.sum() / gaps.size)


@pytest.mark.each("name", [*NARROW, "float64"])
def test_ulp_distance_across_zero_and_of_random_pairs(name: str) -> None:
    smallest = np.ones(1, f"u{_dtype(name).itemsize}").view(_dtype(name))
    assert compare_tensors(smallest, -smallest, rtol=0, atol=0).max_ulp == 2
    golden, actual = (_content(name, "plain", 200_011, seed) for seed in (2, 3))
    gaps = np.abs(_places(golden) - _places(actual))
    found = compare_tensors(golden, actual, rtol=0, atol=0)
    assert found.max_ulp == max(gaps)
    assert found.mean_ulp == pytest.approx(sum(gaps.tolist()) / len(gaps), rel=1e-6)


def test_empty_and_scalar_tensors() -> None:
    empty = compare_tensors(np.zeros((0, 3)), np.zeros((0, 3)), rtol=0, atol=0)
    assert (empty.count, empty.within, empty.mean_rel, empty.worst) == (0, 1, None, ())
    scalar = compare_tensors(np.float32(1).reshape(()), np.float32(2).reshape(()), rtol=0, atol=0)
    assert (scalar.max_abs, scalar.worst[0].index) == (1, ())
    for name in (*FLOATS, "int8", "uint64", "complex64"):
        stats = values_stats(np.zeros(0, _dtype(name)))
        assert (stats.count, stats.max, stats.min) == (0, None, None)


def test_complex_numbers() -> None:
    found = compare_tensors(np.array([3 + 4j, 0]), np.array([3 + 4j, 1j]), rtol=0, atol=0.5)
    assert (found.max_abs, found.outside, found.worst[0].actual) == (1, 1, 1j)
    golden, actual = np.full(3, 1 + 2j, np.complex64), np.array([1, np.inf, 2], np.float32)
    stats, alone = examine_tensors(golden, actual, rtol=0, atol=0).actual, tensor_stats(actual)
    assert (stats.max, stats.min, stats.avg) == (alone.max, alone.min, alone.avg)
    assert (stats.pos_inf, stats.neg_inf) == (1, 0)


def test_views_of_any_order_and_alignment_compare_element_by_element() -> None:
    golden = np.arange(600000, dtype=np.float32).reshape(2, 300, 1000)
    actual = golden.copy()
    actual[1, 2, 3] += 1
    raw = np.frombuffer(b"x" + actual.tobytes(), np.uint8)[1:].view(np.float32).reshape(actual.shape)
    for one, other, index in (
        (np.asfortranarray(golden), actual, (1, 2, 3)),
        (golden[:, ::2], actual[:, ::2], (1, 1, 3)),
        (golden, raw, (1, 2, 3)),
        (golden.astype(">f4"), actual, (1, 2, 3)),
    ):
        found = compare_tensors(one, other, rtol=0, atol=0)
        assert (found.outside, found.worst[0].index) == (1, index)
    for name in NARROW:
        size = _dtype(name).itemsize
        octets = np.random.default_rng(0).integers(0, 256, 1001 * size, np.uint8)
        odd = octets[1 : 1 + 900 * size].view(_dtype(name)).reshape(30, 30)
        for sides in ((odd, odd.copy().T), (odd.T, odd[::-1]), (odd[:, ::2], odd[:, 1::2].copy())):
            found, whole = (
                examine_tensors(*map(form, sides), rtol=1e-3, atol=0) for form in (np.asarray, np.array)
            )
            assert repr(found) == repr(whole)


@pytest.mark.each("size", [1, (1 << 18) + 1, 3 << 18])
@pytest.mark.each("turned", [False, True])
def test_types_of_unlike_size_are_cut_into_the_same_pieces(size: int, *, turned: bool) -> None:
    narrow = np.ones(size, ml_dtypes.float8_e4m3fn)
    wide = narrow.astype(np.float16)
    wide[-1] = 2
    found = compare_tensors(*((wide, narrow) if turned else (narrow, wide)), rtol=1e-3, atol=0)
    assert (found.outside, found.max_abs) == (1, 1.0)


@pytest.mark.each(
    ("golden", "actual", "tolerance"),
    [
        (np.zeros(3), np.zeros(4), 0),
        (np.zeros(3, np.int8), np.zeros(3), 0),
        (np.zeros(3, np.int8), np.zeros(3, np.uint8), 0),
        (np.zeros(3), np.zeros(3), -1),
        (np.zeros(3), np.zeros(3), math.nan),
        (np.zeros(3), np.zeros(3), math.inf),
    ],
)
def test_what_cannot_be_compared_is_refused(golden: Any, actual: Any, tolerance: float) -> None:
    with pytest.raises(RequestError):
        compare_tensors(golden, actual, rtol=tolerance, atol=0)
    with pytest.raises(RequestError):
        compare_tensors(golden, actual, rtol=0, atol=tolerance)


def test_json_and_words_of_what_is_not_finite() -> None:
    golden, actual = np.array([1, math.nan, 0]), np.array([1, 2, 3.0])
    found = compare_tensors(golden, actual, rtol=0, atol=0)
    assert found.special_text().startswith("golden has 1 NaN and 0 Inf, actual 0 NaN and 0 Inf; 1 elements")
    told = found.to_json()
    assert json.loads(json.dumps(told, allow_nan=False)) == told
    assert (told["within"], told["max_rel"]) == (pytest.approx(1 / 3), "inf")
    assert told["worst"][0] == {"index": [1], "golden": "nan", "actual": 2.0, "abs": "nan", "rel": "nan"}


@pytest.mark.each("name", ["float6_e2m3fn", "float6_e3m2fn"])
@pytest.mark.each("size", [8, 200_000])
def test_bytes_of_float6_are_not_taken_for_values(name: str, size: int) -> None:
    golden = np.ones(size, getattr(ml_dtypes, name))
    with pytest.raises(DecodeError, match=f"no statistics for arrays of type {name}"):
        compare_tensors(golden, golden, rtol=0, atol=0)
