from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from pytest_npudump.compare.tensors.difference import compare_tensors
from pytest_npudump.compare.tensors.element_verdict import element_reasons
from pytest_npudump.compare.tensors.tensor_pair import Elements
from pytest_npudump.compare.tolerances.tolerance import Tolerances

TYPES = ["float16", "bfloat16", "float32", "float64", "complex64", "complex128"]


def _numbers(dtype: str, count: int) -> np.ndarray:
    found = np.dtype(getattr(ml_dtypes, dtype, None) or dtype)
    rng = np.random.default_rng(0)
    values = rng.standard_normal(count)
    return (values + 1j * rng.standard_normal(count) if found.kind == "c" else values).astype(found)


def _reasons(golden: np.ndarray, actual: np.ndarray) -> list[str]:
    rule = Tolerances().decide("layer", golden.dtype.name, "max")
    difference = compare_tensors(golden, actual, rtol=rule.rtol, atol=rule.atol)
    return [reason.statistic for reason in element_reasons(Elements(difference=difference), rule)]


@pytest.mark.each("dtype", TYPES)
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


@pytest.mark.each("dtype", TYPES)
def test_noise_below_the_tolerance_passes_beside_infinities(dtype: str) -> None:
    golden = _numbers(dtype, 4096)
    step = Tolerances().decide("layer", dtype, "max").rtol * 0.6
    actual = (golden.astype(np.complex128 if golden.dtype.kind == "c" else np.float64) * (1 + step)).astype(
        golden.dtype
    )
    golden[:2] = actual[:2] = np.inf, -np.inf
    assert not np.array_equal(golden, actual)
    assert _reasons(golden, actual) == []


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
@pytest.mark.each("factor", [1.0, 0.5, 1e-2, 1e-3, -1e-3, 2.0, -1.0, 100.0])
def test_cosine_and_relative_l2_of_a_lost_factor_are_those_of_float64(dtype: str, factor: float) -> None:
    golden = _numbers(dtype, 300_000)
    actual = (golden.astype(np.float64) * factor).astype(golden.dtype)
    found = compare_tensors(golden, actual, rtol=1e-3, atol=0)
    g, a = golden.astype(np.float64), actual.astype(np.float64)
    assert found.cosine == pytest.approx(g @ a / np.linalg.norm(g) / np.linalg.norm(a), abs=3e-6)
    assert found.relative_l2 == pytest.approx(np.linalg.norm(a - g) / np.linalg.norm(g), rel=2e-6, abs=1e-9)
    assert found.magnitude == np.abs(g).max()
    assert found.norm == pytest.approx(np.linalg.norm(g), rel=1e-6)
