"""Whose error: by distances of numpy arrays, whose bounds are computed here once more."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pytest_npudump.compare.stats.tables import compare_tables
from pytest_npudump.compare.tolerances.tolerance import Rule, Tolerances
from pytest_npudump.dump.records import TensorKey, TensorRecord
from pytest_npudump.dump.stats.tensor import tensor_stats
from pytest_npudump.dump.table import StatsTable
from pytest_npudump.reference.blame import DEVICE, DTYPE, Blame, by_rounding
from pytest_npudump.reference.rounding import Rounding

KEY = TensorKey("conv", "output", 0)
EXACT = np.random.default_rng(0).normal(size=4000).astype(np.float32)
NOISE = np.random.default_rng(1).normal(size=4000).astype(np.float32)


def table(array: np.ndarray) -> StatsTable:
    record = TensorRecord(KEY, "Conv", "float16", array.shape, Path("dump"), stats=tensor_stats(array))
    return StatsTable.from_records([record])


def judged(
    device: np.ndarray, rounded: np.ndarray, *rules: Rule, exact: np.ndarray = EXACT
) -> tuple[Any, tuple[Blame, ...]]:
    tolerances = Tolerances("same", rules)
    comparison = compare_tables(table(exact), table(device), tolerances)
    return by_rounding(comparison, {KEY: Rounding.of(exact, rounded)}, tolerances)


def test_rounding_is_what_numpy_measures_in_float64() -> None:
    rounded = EXACT + 0.01 * NOISE
    found = Rounding.of(EXACT.reshape(40, 100), rounded.reshape(40, 100))
    apart = rounded.astype("f8") - EXACT.astype("f8")
    assert found.largest == np.abs(apart).max()
    assert found.norm == pytest.approx(np.linalg.norm(apart))
    assert found.relative == pytest.approx(np.linalg.norm(apart) / np.linalg.norm(EXACT.astype("f8")))
    assert (found.count, found.special) == (4000, 0)
    assert found.of_statistic("nan") is None


def test_elements_that_rounding_makes_infinite_are_counted_apart() -> None:
    found = Rounding.of(np.array([1.0, 1e6, np.inf]), np.array([1.5, np.inf, np.inf]))
    assert (found.largest, found.special, found.count) == (0.5, 1, 1)


@pytest.mark.each(
    ("count", "extremes", "vector"), [(10, 10, 10), (11, 8, 8), (500, 8, 8), (501, 5, 3), (10**6, 5, 3)]
)
def test_factors_are_those_of_neuron_and_of_pytorch_for_small_tensors(
    count: int, extremes: float, vector: float
) -> None:
    found = Rounding(1.0, 1.0, count, 1.0, 1.0)
    assert [found.factor(name) for name in ("max", "min", "max_abs")] == [extremes] * 3
    assert [found.factor(name) for name in ("avg", "l2norm", "relative_l2")] == [vector] * 3


def test_what_rounding_explains_is_no_difference() -> None:
    comparison, blames = judged(EXACT + 0.02 * NOISE[::-1], EXACT + 0.02 * NOISE)
    assert (comparison.ok, comparison.passed, comparison.first, blames) == (True, 1, None, ())


def test_what_rounding_does_not_explain_is_the_devices() -> None:
    comparison, (blame,) = judged(EXACT * np.float32(1.1), EXACT + 0.002 * NOISE)
    assert [str(verdict.key) for verdict in comparison.failing] == [str(KEY)]
    assert comparison.first is not None
    assert comparison.first.key == KEY
    assert blame.whose == DEVICE
    assert blame.ratio > 5
    assert any("which rounding does on the CPU" in reason.rule for reason in comparison.failing[0].reasons)


def test_an_ill_conditioned_tensor_is_the_number_formats_and_fails_beyond_five_percent() -> None:
    comparison, (blame,) = judged(EXACT + 0.5 * NOISE[::-1], EXACT + 0.5 * NOISE)
    assert not comparison.ok
    assert blame.whose == DTYPE
    assert blame.relative == pytest.approx(0.5, rel=0.05)
    assert blame.to_json()["whose"] == "dtype"


def test_a_wrong_device_is_the_devices_in_an_ill_conditioned_tensor_too() -> None:
    _, (blame,) = judged(EXACT + 20 * NOISE[::-1], EXACT + 0.5 * NOISE)
    assert blame.whose == DEVICE


def test_a_rule_that_was_given_stays() -> None:
    rule = Rule(1e-4, 0.0, source="marker", against="reference")
    comparison, blames = judged(EXACT + 0.02 * NOISE[::-1], EXACT + 0.02 * NOISE, rule)
    assert not comparison.ok
    assert all("(marker)" in reason.rule for reason in comparison.failing[0].reasons)
    assert blames == ()


def test_nan_of_the_device_is_never_explained() -> None:
    device = EXACT.copy()
    device[7] = np.nan
    comparison, (blame,) = judged(device, EXACT + 0.02 * NOISE)
    assert not comparison.ok
    assert blame.whose == DEVICE


@pytest.mark.parametrize(("count", "whose"), [(1, DTYPE), (8, DTYPE), (400, DEVICE)])
def test_rounding_that_overflows_explains_about_as_many_nan_and_infinities(count: int, whose: str) -> None:
    rounded, device = EXACT + 0.002 * NOISE, EXACT.copy()
    rounded[:2] = np.inf
    device[:count] = np.nan
    _, (blame,) = judged(device, rounded)
    assert blame.whose == whose


def test_no_rounding_changes_the_number_of_elements() -> None:
    rounded = EXACT.copy()
    rounded[0] = np.inf
    _, (blame,) = judged(EXACT[:-1], rounded)
    assert blame.whose == DEVICE


def test_a_tensor_of_unknown_rounding_keeps_its_verdict() -> None:
    tolerances = Tolerances("same")
    comparison = compare_tables(table(EXACT), table(EXACT * np.float32(1.1)), tolerances)
    found, blames = by_rounding(comparison, {}, tolerances)
    assert found.failing == comparison.failing
    assert blames == ()


def test_one_element_may_be_anything_that_rounding_makes_of_it() -> None:
    rounded, device = EXACT + 0.001 * NOISE, EXACT + 0.001 * NOISE[::-1]
    rounded[5], device[5] = 5.5, 6
    comparison, _ = judged(device, rounded)
    assert np.abs(EXACT).max() < 4.5
    assert comparison.ok
