"""Every family of types, whatever the content, against the definitions in numpy's float64."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pytest_npudump.compare.tensors.difference import compare_tensors, examine_tensors
from pytest_npudump.compare.tensors.tensor_pair import Pair, compare_pair
from pytest_npudump.dump.arrays.decode import PackedTensor, load
from pytest_npudump.dump.dtypes import BY_NAME
from pytest_npudump.dump.records import Payload, TensorKey, TensorRecord
from pytest_npudump.dump.stats.tensor import tensor_stats

if TYPE_CHECKING:
    from pathlib import Path


FLOATS = ["float16", "bfloat16", "float32", "float64", "float8_e4m3fn", "float8_e5m2", "float8_e8m0fnu"]
INTS = ["bool", "int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64"]
LARGE = (1 << 18) + 4099
CONTENTS = ["plain", "nan", "inf", "lowest", "tiny", "subnormal", "zeros", "codes"]


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
            array[places] = (
                ml_dtypes.finfo(dtype).max if name == "float8_e8m0fnu" else ml_dtypes.finfo(dtype).min
            )
        elif content != "plain" and content in {"nan", "inf", "zeros"}:
            array[places] = {"nan": math.nan, "inf": -math.inf, "zeros": -0.0}[content]
    return array


def _noisy(golden: Any, seed: int) -> Any:
    rng = np.random.default_rng(seed)
    actual = golden.copy()
    places = rng.random(golden.size) < 0.5
    with np.errstate(all="ignore"):
        if golden.dtype.kind in "biu":
            actual[places] = _codes(golden.dtype, golden.size, rng)[places]
        else:
            factors = 1 + 1e-3 * rng.standard_normal(golden.size)
            changed = (golden.astype(np.float64) * factors).astype(golden.dtype)
            actual[places] = changed[places]
    return actual


def _truth(golden: Any, actual: Any, rtol: float, atol: float) -> dict[str, Any]:
    with np.errstate(all="ignore"):
        wide: Any = np.complex128 if golden.dtype.kind == "c" else np.float64
        g, a = golden.astype(wide), actual.astype(wide)
        finite = np.isfinite(g) & np.isfinite(a)
        same = (np.isnan(g) & np.isnan(a)) | (g == a)
        if golden.dtype.kind in "biu":
            exact = [[int(v) for v in side.tolist()] for side in (golden, actual)]
            distance = np.array([float(abs(y - x)) for x, y in zip(*exact, strict=True)])
        else:
            distance = np.abs(a - g)
        differ = ~finite & ~same
        outside = differ | (finite & ~((distance <= atol + rtol * np.abs(g)) & (distance < np.inf)))
        g0, a0, d0 = g[finite], a[finite], distance[finite]
        relative = d0[g0 != 0] / np.abs(g0[g0 != 0])
        mean = float(relative.mean()) if relative.size else None
        changed = np.any((g0 == 0) & (d0 > 0))
        scale = np.abs(np.concatenate([g0, a0])).max(initial=0) or 1
        g1, a1 = g0 / scale, a0 / scale
        norms = [math.hypot(*side.view(np.float64).tolist()) for side in (g1, a1, a1 - g1)]
        first, second = (side.view(np.float64) for side in (g1 / (norms[0] or 1), a1 / (norms[1] or 1)))
        product = math.fsum((first * second).tolist())
    return {
        "magnitude": np.abs(g0).max(initial=0),
        "norm": float(norms[0]) * float(scale),
        "max_abs": d0.max(initial=0),
        "max_rel": math.inf if changed else relative.max(initial=0),
        "mean_rel": mean,
        "cosine": product if norms[0] and norms[1] else float(norms[0] == norms[1]),
        "relative_l2": norms[2] / norms[0] if norms[0] else (math.inf if norms[2] else 0.0),
        "outside": int(outside.sum()),
        "special": int((~finite).sum()),
        "special_different": int(differ.sum()),
        "nan_golden": int(np.isnan(g).sum()),
        "nan_actual": int(np.isnan(a).sum()),
        "inf_golden": int((np.isinf(g) & ~np.isnan(g)).sum()),
        "inf_actual": int((np.isinf(a) & ~np.isnan(a)).sum()),
        "first_special_different": (int(differ.argmax()),) if differ.any() else None,
    }


_EXACT = ("outside", "special", "special_different", "nan_golden", "nan_actual", "inf_golden", "inf_actual")


def _assert_measures(golden: Any, actual: Any, rtol: float, atol: float) -> None:
    found, expected = (
        compare_tensors(golden, actual, rtol=rtol, atol=atol),
        _truth(golden, actual, rtol, atol),
    )
    names = (*_EXACT, "first_special_different")
    assert {n: getattr(found, n) for n in names} == {n: expected[n] for n in names}
    for name in set(expected) - set(names):
        value = expected[name]
        near = value if value is None else pytest.approx(value, rel=3e-6, abs=5e-6 if name == "cosine" else 0)
        assert getattr(found, name) == near, name


@pytest.mark.each("content", CONTENTS)
@pytest.mark.each("name", FLOATS)
@pytest.mark.each("count", [1000, LARGE])
def test_floats_of_any_content_compare_as_defined(name: str, content: str, count: int) -> None:
    golden = _content(name, content, count, 0)
    _assert_measures(golden, golden.copy(), 1e-3, 0)
    _assert_measures(golden, _noisy(golden, 1), 1e-3, 0)
    _assert_measures(golden, _noisy(golden, 2), 1e-4, 1e-5)
    _assert_measures(golden, _content(name, content, count, 3), 0, 0)


def test_products_of_numbers_with_the_smallest_ones_are_not_lost() -> None:
    golden = _content("float32", "plain", LARGE, 0)
    steps = np.random.default_rng(1).integers(-3, 4, LARGE).astype(np.float64)
    actual = (steps * np.float64(np.finfo(np.float32).smallest_subnormal)).astype(np.float32)
    wide = golden.astype(np.float64)
    cosine = np.dot(wide, steps) / np.linalg.norm(wide) / np.linalg.norm(steps)
    found = compare_tensors(golden, actual, rtol=1e-3, atol=0)
    assert found.cosine == pytest.approx(cosine, rel=0, abs=1e-6)


@pytest.mark.parametrize("name", ["float16", "bfloat16", "float32"])
@pytest.mark.parametrize(
    ("first", "second"),
    [
        ((math.nan,), ()),
        ((), (math.nan,)),
        ((math.nan,), (math.nan,)),
        ((math.inf,), (math.nan,)),
        ((math.inf, -math.inf), (math.inf, -math.inf)),
        ((math.nan, math.inf), (math.nan,)),
        ((math.nan, -math.inf, math.inf), (-math.inf, math.nan, math.inf)),
    ],
)
@pytest.mark.parametrize("same", [False, True])
def test_nan_and_infinities_of_one_side_or_both_at_the_same_places_and_at_others(
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
    _assert_measures(sides[0], sides[1], 1e-3, 0)


@pytest.mark.parametrize("name", INTS)
@pytest.mark.parametrize("count", [1000, LARGE])
def test_integers_compare_as_defined(name: str, count: int) -> None:
    golden = _content(name, "codes", count, 0)
    for rtol in (0, 0.25):
        _assert_measures(golden, golden.copy(), rtol, 0)
        _assert_measures(golden, _noisy(golden, 1), rtol, 1 if rtol else 0)


@pytest.mark.parametrize(("name", "base"), [("int64", 1 << 62), ("uint64", (1 << 63) + (1 << 62))])
def test_small_distances_of_large_integers_keep_their_digits(name: str, base: int) -> None:
    steps = np.arange(100_000, dtype=np.int64)
    golden = (steps * 1001).astype(name) + np.array(base, name)
    actual = golden + (steps % 5).astype(name)
    found = compare_tensors(golden, actual, rtol=0, atol=2)
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


@pytest.mark.parametrize("name", ["complex64", "complex128"])
@pytest.mark.parametrize("count", [1000, LARGE])
@pytest.mark.parametrize("equal", [True, False])
def test_complex_numbers_that_are_not_finite_are_counted_and_left_out(
    name: str, count: int, *, equal: bool
) -> None:
    golden = _complex(name, count, 0)
    actual = golden.copy() if equal else _complex(name, count, 1)
    found = compare_tensors(golden, actual, rtol=1e-3, atol=1e-5)
    wide = [side.astype(np.complex128) for side in (golden, actual)]
    nan = [np.isnan(side) for side in wide]
    infinite = [np.isinf(side) & ~lost for side, lost in zip(wide, nan, strict=True)]
    special = nan[0] | infinite[0] | nan[1] | infinite[1]
    same = (nan[0] & nan[1]) | (wide[0] == wide[1])
    assert (found.nan_golden, found.nan_actual) == (nan[0].sum(), nan[1].sum())
    assert (found.inf_golden, found.inf_actual) == (infinite[0].sum(), infinite[1].sum())
    assert (found.special, found.special_different) == (special.sum(), (special & ~same).sum())
    one, other = (side[~special] for side in wide)
    beyond = np.abs(other - one) > 1e-5 + 1e-3 * np.abs(one)
    assert found.outside == (special & ~same).sum() + beyond.sum()
    assert found.norm == pytest.approx(np.linalg.norm(one), rel=2e-6)
    assert found.relative_l2 == pytest.approx(np.linalg.norm(other - one) / np.linalg.norm(one), rel=3e-6)
    assert found.magnitude == np.abs(one).max()
    if equal:
        assert found.mean_rel == 0
        assert found.cosine == pytest.approx(1)
        sides = examine_tensors(golden, actual, rtol=0, atol=0)
        assert repr(sides.golden) == repr(sides.actual) == repr(tensor_stats(golden))


@pytest.mark.parametrize("name", ["float16", "bfloat16"])
@pytest.mark.parametrize("shift", [0, 1, 32768, 40000])
def test_all_bit_patterns_of_16_bits_against_all(name: str, shift: int) -> None:
    golden = np.tile(np.arange(1 << 16, dtype=np.uint16), 3).view(_dtype(name))
    _assert_measures(golden, np.roll(golden, shift), 1e-3, 0)


@pytest.mark.parametrize("name", ["float8_e4m3fn", "float8_e5m2", "float8_e8m0fnu", "int8", "uint8"])
@pytest.mark.parametrize("times", [1, 3])
def test_all_pairs_of_codes_of_8_bits(name: str, times: int) -> None:
    codes = np.tile(np.arange(1 << 16, dtype=np.uint16), times).view(np.uint8)
    golden, actual = codes[0::2].copy().view(_dtype(name)), codes[1::2].copy().view(_dtype(name))
    _assert_measures(golden, actual, 1e-3, 0)
    found = compare_tensors(golden, actual, rtol=0, atol=0)
    halves = [
        compare_tensors(golden[part], actual[part], rtol=0, atol=0)
        for part in (slice(0, 1 << 15), slice(1 << 15, 1 << 16))
    ]
    assert found.max_ulp == (None if halves[0].max_ulp is None else max(half.max_ulp or 0 for half in halves))
    g, a = golden.astype(np.float64), actual.astype(np.float64)
    with np.errstate(invalid="ignore"):
        finite, distance = np.isfinite(g) & np.isfinite(a), np.abs(a - g)
    special = np.flatnonzero(~finite & ~((np.isnan(g) & np.isnan(a)) | (g == a)))[:5].tolist()
    places = np.flatnonzero(finite)
    far = places[np.lexsort((places, -distance[places]))][:5].tolist()
    assert [element.index[0] for element in found.worst] == (special + far)[:5]


@pytest.mark.each("name", [*FLOATS, *INTS])
@pytest.mark.each("content", ["plain", "nan", "inf", "lowest"])
def test_statistics_that_come_with_a_comparison_are_those_of_each_side(name: str, content: str) -> None:
    golden = _content(name, content, LARGE, 0)
    actual = golden.copy()
    actual[LARGE // 2 :] = _content(name, content, LARGE, 1)[LARGE // 2 :]
    found = examine_tensors(golden, actual, rtol=1e-3, atol=0)
    for side, array in ((found.golden, golden), (found.actual, actual)):
        expected = tensor_stats(array)
        for field in ("count", "max", "min", "nan", "neg_inf", "pos_inf", "zero"):
            np.testing.assert_equal(getattr(side, field), getattr(expected, field))
        np.testing.assert_allclose(side.l2norm, expected.l2norm, rtol=1e-8)
        np.testing.assert_allclose(side.avg, expected.avg, rtol=1e-8, atol=1e-8 * abs(expected.max or 0))


@settings(deadline=None, max_examples=200)
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
    assert {n: getattr(found, n) for n in _EXACT} == {n: expected[n] for n in _EXACT}
    for measure in ("magnitude", "max_abs", "max_rel"):
        if not math.isnan(expected[measure]):  # of two complex numbers whose magnitudes leave float64
            assert getattr(found, measure) == pytest.approx(expected[measure], rel=3e-6)


@pytest.mark.parametrize("rtol", [1e-3, 2.0**-10, 1e-7])
def test_the_tolerance_of_tiny_elements_is_decided_as_in_float64(rtol: float) -> None:
    rng = np.random.default_rng(0)
    golden = (10.0 ** rng.uniform(-44, 0, 70000)).astype(np.float32)
    actual = (golden.astype(np.float64) * (1 + 2 * rtol * rng.random(golden.size))).astype(np.float32)
    wide = golden.astype(np.float64)
    expected = np.count_nonzero(np.abs(actual.astype(np.float64) - wide) > rtol * wide)
    assert compare_tensors(golden, actual, rtol=rtol, atol=0).outside == expected


@pytest.mark.parametrize("name", ["float16", "bfloat16", "float32", "float64"])
def test_no_element_passes_by_a_rounding(name: str) -> None:
    for seed in range(12):
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


@pytest.mark.parametrize("name", ["int4", "int2", "uint2", "uint1", "hifloat8", "float4_e2m1fn", "complex32"])
@pytest.mark.parametrize("count", [77, LARGE])
def test_packed_types_compare_as_their_values(name: str, count: int, tmp_path: Path) -> None:
    nbytes = (count * BY_NAME[name].bits + 7) // 8
    codes = np.random.default_rng(0).integers(0, 0x60, nbytes, np.uint8)
    other = codes.copy()
    other[nbytes // 2] ^= 0x11
    key, records = TensorKey("conv", "output", 0), []
    for file, octets in (("golden", codes), ("same", codes), ("other", other)):
        (tmp_path / file).write_bytes(octets.tobytes())
        payload = Payload(tmp_path / file, 0, nbytes)
        records.append(TensorRecord(key, "Conv", name, (count,), tmp_path / file, "ND", payload=payload))
    golden = load(records[0].payload, name, (count,))
    for record in records[1:]:
        found = compare_pair(Pair(records[0], record, "ND", rtol=1e-3)).difference
        actual = load(record.payload, name, (count,))
        assert found is not None
        wide = [side.astype(np.complex128) for side in (golden, actual)]
        assert found.outside == np.count_nonzero(np.abs(wide[1] - wide[0]) > 1e-3 * np.abs(wide[0]))
        assert found.magnitude == pytest.approx(np.abs(wide[0]).max(), rel=1e-15)
        assert found.norm == pytest.approx(np.linalg.norm(wide[0]), rel=1e-6)
        product = np.vdot(wide[0], wide[1]).real / np.linalg.norm(wide[0]) / np.linalg.norm(wide[1])
        assert found.cosine == pytest.approx(product, rel=2e-6)


@pytest.mark.parametrize("count", [77, LARGE])
@pytest.mark.parametrize("equal", [0.0, 0.5, 1.0])
def test_complex32_that_is_not_finite_compares_as_complex64(count: int, equal: float, tmp_path: Path) -> None:
    halves = [_content("float16", "codes", 2 * count, seed) for seed in (0, 1)]
    same = int(equal * count) * 2
    halves[1][:same] = halves[0][:same]
    packed = []
    for side, name in zip(halves, ("golden", "actual"), strict=True):
        (tmp_path / name).write_bytes(side.tobytes())
        packed.append(PackedTensor(Payload(tmp_path / name, 0, side.nbytes), "complex32", (count,)))
    wide = [side.astype(np.float32).view(np.complex64) for side in halves]
    found, expected = (
        examine_tensors(*sides, rtol=1e-3, atol=1e-3)
        for sides in ((packed[0], packed[1]), (wide[0], wide[1]))
    )
    for measure, value in expected.difference.to_json().items():
        if isinstance(value, (int, float)):
            assert getattr(found.difference, measure) == pytest.approx(value, rel=3e-6), measure
    assert repr(found.difference.worst) == repr(expected.difference.worst)
    assert found.difference.first_special_different == expected.difference.first_special_different
    for one, other in ((found.golden, expected.golden), (found.actual, expected.actual)):
        assert (one.count, one.nan, one.zero) == (other.count, other.nan, other.zero)
        assert one.l2norm == pytest.approx(other.l2norm, rel=1e-6, nan_ok=True)
