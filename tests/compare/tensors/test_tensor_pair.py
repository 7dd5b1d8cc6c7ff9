"""Pairs that are compared together, each of them alone, and the verdict on their elements."""

from __future__ import annotations

from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from pytest_npudump.compare.tensors.difference import compare_tensors
from pytest_npudump.compare.tensors.element_verdict import element_reasons
from pytest_npudump.compare.tensors.tensor_pair import Pair, PairElements, compare_pair, compare_pairs
from pytest_npudump.compare.tolerances.tolerance import Tolerances
from pytest_npudump.dump.records import Payload, TensorKey, TensorRecord

TYPES = {
    "float32": np.float32,
    "float16": np.float16,
    "bfloat16": ml_dtypes.bfloat16,
    "int8": np.int8,
    "int32": np.int32,
    "bool": np.bool_,
    "float8_e4m3fn": ml_dtypes.float8_e4m3fn,
    "float64": np.float64,
}
COUNTS = (1, 7, 256, 8192, 8193)


def _record(path: Path, array: Any, dtype: str, shape: tuple[int, ...] | None = None) -> TensorRecord:
    path.write_bytes(array.tobytes())
    payload = Payload(path, 0, array.nbytes)
    shape = array.shape if shape is None else shape
    return TensorRecord(TensorKey(path.stem, "output", 0), "Relu", dtype, shape, path, "ND", payload=payload)


def _actual(rng: Any, golden: Any, number: int) -> Any:
    """The same; a few elements off; all off; NaN and infinities in it."""
    kind = golden.dtype.type
    if number % 4 == 0:
        return golden.copy()
    actual = golden.copy()
    chosen = rng.random(golden.shape) < (0.1 if number % 4 == 1 else 1.0)
    actual[chosen] = rng.integers(0, 2, int(chosen.sum())).astype(kind)
    if number % 4 == 3 and golden.dtype.kind not in "biu":
        actual[::3] = kind(np.nan)
    return actual


@pytest.fixture
def pairs(tmp_path: Path) -> list[tuple[Pair, Any, Any]]:
    """Pairs of many types and sizes, in no order, each with its two arrays."""
    rng = np.random.default_rng(0)
    found = []
    for name, kind in TYPES.items():
        for count in COUNTS:
            for number in range(6):
                golden = (rng.standard_normal(count) * 3).astype(kind)
                actual = _actual(rng, golden, number)
                stem = f"{name}_{count}_{number}"
                one = _record(tmp_path / f"{stem}.golden", golden, name)
                other = _record(tmp_path / f"{stem}.actual", actual, name)
                found.append((Pair(one, other, "ND", rtol=0.01 * number, atol=0.001), golden, actual))
    rng.shuffle(found)
    return found


def test_pairs_together_are_found_as_each_of_them_alone_and_measured_as_numpy_does(
    pairs: list[tuple[Pair, Any, Any]],
) -> None:
    assert compare_pairs([]) == []
    for found, (pair, golden, actual) in zip(compare_pairs([one for one, *_ in pairs]), pairs, strict=True):
        one, other = golden.astype(np.float64), actual.astype(np.float64)
        finite = np.isfinite(one) & np.isfinite(other)
        gaps = np.abs(other - one)[finite]
        difference = found.difference
        assert difference is not None
        assert found.golden is not None
        assert found.golden.key == pair.golden.key
        assert difference.count == golden.size
        assert difference.max_abs == pytest.approx(gaps.max(initial=0), rel=1e-6)
        outside = np.count_nonzero(~(gaps <= pair.atol + pair.rtol * np.abs(one[finite])))
        assert difference.outside == outside + np.count_nonzero(~finite)
        assert difference.special_different == np.count_nonzero(~finite)
        alone = compare_pair(pair)
        for side, expected in ((found.golden, alone.golden), (found.actual, alone.actual)):
            assert side is not None
            assert expected is not None
            assert side.key == expected.key
            _assert_alike(asdict(side.stats), asdict(expected.stats))
        assert alone.difference is not None
        _assert_alike(difference.to_json(), alone.difference.to_json())


def _assert_alike(found: Any, expected: Any) -> None:
    """Assert that two dictionaries are equal, but for the last digits of sums."""
    for name, value in expected.items():
        if name in {"avg", "l2norm", "norm", "cosine", "relative_l2", "mean_rel"} and value is not None:
            assert found[name] == pytest.approx(value, rel=1e-12, abs=1e-15, nan_ok=True), name
        else:
            assert repr(found[name]) == repr(value), name


def test_a_pair_that_cannot_be_read_is_a_problem_of_its_own(pairs: list[tuple[Pair, Any, Any]]) -> None:
    chosen = [one for one, *_ in pairs if one.nbytes == 2 * 1024]
    lost = chosen[1].actual
    assert lost is not None
    lost.path.unlink()
    found = compare_pairs(chosen)
    assert [bool(one.problems) for one in found] == [at == 1 for at in range(len(chosen))]
    assert str(lost.path) in str(found[1].problems[0])
    assert chosen[0].actual is not None
    without = replace(chosen[0], actual=replace(chosen[0].actual, payload=None))
    (problem,) = compare_pair(without).problems
    assert str(problem) == f"{problem.path}: {problem.path}: no data for {chosen[0].actual.key}"


def test_tensors_of_two_shapes_or_types_are_no_pair_of_elements(tmp_path: Path) -> None:
    array = np.arange(12, dtype=np.int32)
    flat, square = _record(tmp_path / "a", array, "int32"), _record(tmp_path / "b", array, "int32", (3, 4))
    other = _record(tmp_path / "c", array.astype(np.int8), "int8")
    for found in compare_pairs([Pair(flat, square, "ND"), Pair(flat, other, "ND")]):
        assert found.difference is None
        assert "elements not compared" in found.note
        assert found.golden is not None
        assert found.golden.stats is not None
        assert found.golden.stats.max == 11
        assert compare_pair(Pair(found.golden, None, "ND")).golden is found.golden


JUDGED_TYPES = ["float16", "bfloat16", "float32", "float64", "complex64", "complex128"]


def _numbers(dtype: str, count: int) -> np.ndarray:
    found = np.dtype(getattr(ml_dtypes, dtype, None) or dtype)
    rng = np.random.default_rng(0)
    values = rng.standard_normal(count)
    return (values + 1j * rng.standard_normal(count) if found.kind == "c" else values).astype(found)


def _reasons(golden: np.ndarray, actual: np.ndarray, preset: str = "default") -> list[str]:
    rule = Tolerances(preset).decide("layer", golden.dtype.name, "max")
    difference = compare_tensors(golden, actual, rtol=rule.rtol, atol=rule.atol)
    return [reason.statistic for reason in element_reasons(PairElements(difference=difference), rule)]


@pytest.mark.each("dtype", JUDGED_TYPES)
@pytest.mark.each("infinite", [(), (np.inf,), (np.inf, -np.inf), (np.nan,), (np.nan, np.inf, -np.inf)])
def test_one_element_of_a_million_that_is_off_fails_whatever_else_is_not_finite(
    dtype: str, infinite: tuple[float, ...]
) -> None:
    golden = _numbers(dtype, 1 << 20)
    golden[3 : 3 + len(infinite)] = infinite
    actual = golden.copy()
    assert _reasons(golden, actual) == []
    actual[1000] += golden.dtype.type(0.5)
    assert "max_abs" in _reasons(golden, actual)


@pytest.mark.each("dtype", JUDGED_TYPES)
def test_noise_below_the_tolerance_passes_beside_infinities(dtype: str) -> None:
    golden = _numbers(dtype, 4096)
    step = Tolerances().decide("layer", dtype, "max").rtol * 0.6
    actual = (golden.astype(np.complex128 if golden.dtype.kind == "c" else np.float64) * (1 + step)).astype(
        golden.dtype
    )
    golden[:2] = actual[:2] = np.inf, -np.inf
    assert not np.array_equal(golden, actual)
    assert _reasons(golden, actual) == []
    assert _reasons(golden, np.where(golden == golden[9], np.nan, golden), "exact") == ["NaN and Inf"]


@pytest.mark.each("mask", [-1e9, float(np.finfo(np.float32).min)])
@pytest.mark.each(
    ("change", "failing"),
    [(0.0, []), (1e-5, []), (1e-3, ["max_abs"]), ("exchanged", ["max_abs"]), ("mask", [])],
)
def test_elements_beside_a_mask_are_judged_by_the_extreme_beside_it(
    mask: float, change: float | str, failing: list[str]
) -> None:
    golden = _numbers("float32", 64)
    golden[::4] = mask
    actual = golden.copy()
    moved = [0] if change == "mask" else [1, 2, 3]
    if change == "mask":
        change = -1e-7
    actual[moved] = golden[moved[::-1]] if isinstance(change, str) else golden[moved] * (1 + change)
    rule = Tolerances("same").decide("layer", "float32", "max")
    difference = compare_tensors(golden, actual, rtol=rule.rtol, atol=rule.atol)
    found = element_reasons(PairElements(difference=difference), rule, beside=float(golden.max()))
    assert [reason.statistic for reason in found] == failing


def test_small_elements_beside_a_large_one_are_judged_as_a_vector_and_by_the_large_one() -> None:
    golden = _numbers("float32", 4096)
    golden[7] = 1e6
    flipped = golden.copy()
    flipped[100:200] *= -1
    assert _reasons(golden, flipped) == []
    golden[7] = 1.0
    flipped[7] = 1.0
    assert _reasons(golden, flipped) == ["max_abs", "relative_l2"]


@pytest.mark.each("dtype", ["float32", "float16", "bfloat16", "float64"])
@pytest.mark.each("factor", [0.5, 1e-3, -1e-3, -1.0, 100.0])
def test_cosine_and_relative_l2_of_a_lost_factor_are_those_of_float64(dtype: str, factor: float) -> None:
    golden = _numbers(dtype, 300_000)
    actual = (golden.astype(np.float64) * factor).astype(golden.dtype)
    found = compare_tensors(golden, actual, rtol=1e-3, atol=0)
    g, a = golden.astype(np.float64), actual.astype(np.float64)
    assert found.cosine == pytest.approx(g @ a / np.linalg.norm(g) / np.linalg.norm(a), abs=3e-6)
    assert found.relative_l2 == pytest.approx(np.linalg.norm(a - g) / np.linalg.norm(g), rel=2e-6, abs=1e-9)
    assert found.magnitude == np.abs(g).max()
    assert found.norm == pytest.approx(np.linalg.norm(g), rel=1e-6)
