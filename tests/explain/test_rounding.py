"""Whether a difference is the device's error or its number format's."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import ml_dtypes
import numpy as np
import pytest

from pytest_npudump.compare.stats.tables import compare_tables
from pytest_npudump.compare.tolerances.rules import reference_tolerances
from pytest_npudump.compare.tolerances.tolerance import Rule, Tolerances
from pytest_npudump.dump.records import TensorKey, TensorRecord
from pytest_npudump.dump.stats.tensor import tensor_stats
from pytest_npudump.dump.table import StatsTable
from pytest_npudump.explain import rounding
from pytest_npudump.explain.reference import Reference
from pytest_npudump.explain.reference_model import ReferenceModel
from pytest_npudump.explain.rounding import (
    DEVICE,
    DTYPE,
    Blame,
    Rounding,
    by_rounding,
    coarsest,
    only_wide,
    rounded_model,
    rounded_to,
)
from pytest_npudump.onnxmodels.sessions import ModelError
from pytest_npudump.request import DumpRequest
from tests.explain.conftest import make_record

if TYPE_CHECKING:
    from collections.abc import Callable

    from pytest_npudump.explain.reference import ReferenceResult


KEY = TensorKey("conv", "output", 0)
EXACT = np.random.default_rng(0).normal(size=4000).astype(np.float32)
NOISE = np.random.default_rng(1).normal(size=4000).astype(np.float32)


def table(array: np.ndarray) -> StatsTable:
    record = TensorRecord(KEY, "Conv", "float16", array.shape, Path("dump"), stats=tensor_stats(array))
    return StatsTable.from_records([record])


def explained(
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
    found = Rounding.of(np.array([1.0, 1e6, np.inf]), np.array([1.5, np.inf, np.inf]))
    assert (found.largest, found.special, found.count) == (0.5, 1, 1)
    # Factors are those of Neuron, and of PyTorch for small tensors.
    for count, extremes, vector in ((10, 10, 10), (11, 8, 8), (500, 8, 8), (501, 5, 3), (10**6, 5, 3)):
        found = Rounding(1.0, 1.0, count, 1.0, 1.0)
        assert [found.factor(name) for name in ("max", "min", "max_abs")] == [extremes] * 3
        assert [found.factor(name) for name in ("avg", "l2norm", "relative_l2")] == [vector] * 3


def test_what_rounding_explains_is_no_difference_where_it_is_known_and_no_rule_was_given() -> None:
    device, rounded = EXACT + 0.02 * NOISE[::-1], EXACT + 0.02 * NOISE
    comparison, blames = explained(device, rounded)
    assert (comparison.ok, comparison.passed, comparison.first, blames) == (True, 1, None, ())
    comparison, blames = explained(device, rounded, Rule(1e-4, 0.0, source="marker", against="reference"))
    assert not comparison.ok
    assert all("(marker)" in reason.rule for reason in comparison.failing[0].reasons)
    assert blames == ()
    tolerances = Tolerances("same")
    comparison = compare_tables(table(EXACT), table(EXACT * np.float32(1.1)), tolerances)
    found, blames = by_rounding(comparison, {}, tolerances)
    assert (found.failing, blames) == (comparison.failing, ())
    rounded, device = EXACT + 0.001 * NOISE, EXACT + 0.001 * NOISE[::-1]
    rounded[5], device[5] = 5.5, 6  # one element may be anything that rounding makes of it
    comparison, _ = explained(device, rounded)
    assert np.abs(EXACT).max() < 4.5
    assert comparison.ok


def test_what_rounding_does_not_explain_is_the_devices() -> None:
    comparison, (blame,) = explained(EXACT * np.float32(1.1), EXACT + 0.002 * NOISE)
    assert [str(verdict.key) for verdict in comparison.failing] == [str(KEY)]
    assert comparison.first is not None
    assert comparison.first.key == KEY
    assert blame.whose == DEVICE
    assert blame.ratio > 5
    assert any("which rounding does on the CPU" in reason.rule for reason in comparison.failing[0].reasons)


def test_an_ill_conditioned_tensor_is_the_number_formats_and_fails_beyond_five_percent() -> None:
    comparison, (blame,) = explained(EXACT + 0.5 * NOISE[::-1], EXACT + 0.5 * NOISE)
    assert not comparison.ok
    assert blame.whose == DTYPE
    assert blame.relative == pytest.approx(0.5, rel=0.05)
    assert blame.to_json()["whose"] == "dtype"
    _, (blame,) = explained(EXACT + 20 * NOISE[::-1], EXACT + 0.5 * NOISE)
    assert blame.whose == DEVICE


def test_nan_and_infinities_are_explained_where_rounding_makes_about_as_many() -> None:
    for infinite, count, whose in ((0, 1, DEVICE), (2, 1, DTYPE), (2, 8, DTYPE), (2, 400, DEVICE)):
        rounded, device = EXACT + 0.002 * NOISE, EXACT.copy()
        rounded[:infinite] = np.inf
        device[:count] = np.nan
        comparison, (blame,) = explained(device, rounded)
        assert (comparison.ok, blame.whose) == (False, whose)
    rounded = EXACT.copy()
    rounded[0] = np.inf
    _, (blame,) = explained(EXACT[:-1], rounded)
    assert blame.whose == DEVICE, "no rounding changes the number of elements"


Y = np.random.default_rng(0).normal(size=(20, 30)).astype(np.float32)


def test_the_coarsest_of_the_16_bit_types_is_rounded_to() -> None:
    cases: tuple[tuple[list[str], str, bool], ...] = (
        (["float32", "float16", "int32"], "float16", False),
        (["bfloat16", "float16"], "bfloat16", False),
        (["float32", "int8"], "", True),
        (["float64"], "", True),
        (["float16", "float8_e4m3fn"], "", False),
        (["int8", "bool"], "", False),
        ([], "", False),
    )
    for dtypes, expected, wide in cases:
        assert (coarsest(dtypes), only_wide(dtypes)) == (expected, wide), dtypes


@pytest.fixture
def judge(write_model: Callable[..., Path]) -> Callable[..., ReferenceResult]:
    """Judge a device whose exp is ``factor`` times as large, and of a type, against the model."""

    def judged(factor: float, dtype: str, **marker: Any) -> ReferenceResult:
        path = write_model(("exp", "Exp", ["x"], ["y"]), shape=Y.shape)
        request = DumpRequest(reference=path.name, **marker)
        reference = Reference.of(request, path.parent, None)
        assert reference is not None
        reference.inputs.give({"x": Y}, "")
        record: TensorRecord = make_record("exp:output.0", (np.exp(Y) * factor).astype(dtype), op_type="Exp")
        return reference.judge([record], request)

    return judged


@pytest.mark.parametrize(("dtype", "factor"), [("float16", 1.03), ("float32", 1.0005)])
def test_what_the_flat_preset_passes_is_found(
    judge: Callable[..., ReferenceResult], dtype: str, factor: float
) -> None:
    assert judge(1, dtype).good
    assert judge(factor, dtype, preset="om-net").good
    assert not judge(factor, dtype).good


def test_hf32_has_its_own_bounds_in_float32(judge: Callable[..., ReferenceResult]) -> None:
    result = judge(1.0005, "float32")
    assert not result.good
    assert any('preset="hf32"' in note for note in result.notes)
    assert judge(1.0005, "float32", preset="hf32").good
    assert not judge(1.05, "float32", preset="hf32").good
    request = DumpRequest(reference="m.onnx")
    assert reference_tolerances(request, None, "hf32").hf32, "the run's count where the marker has none"
    assert not reference_tolerances(replace(request, preset="same"), None, "hf32").hf32


def test_a_model_that_cannot_be_run_rounded_is_judged_by_the_preset_with_a_note(
    judge: Callable[..., ReferenceResult], monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise ModelError("no kernel for it")

    monkeypatch.setattr(rounding, "rounded_model", refuse)
    result = judge(1.03, "float16")
    assert result.good
    words = "compared by the preset om-net: it cannot run in float16: no kernel for it"
    assert any(words in note for note in result.notes)
    assert not judge(1.08, "float16").good


X = np.random.default_rng(0).normal(size=(2, 3)).astype(np.float32)
W = np.random.default_rng(1).normal(size=(3, 4)).astype(np.float32)
TYPES = {"float16": np.float16, "bfloat16": ml_dtypes.bfloat16}


def ran(model: ReferenceModel, feed: np.ndarray, *names: str) -> dict[str, np.ndarray | None]:
    return dict(model.run({model.inputs[0]: feed}, dict.fromkeys(names, 1)))


def to(dtype: str, array: np.ndarray) -> np.ndarray:
    return np.asarray(array.astype(TYPES[dtype]).astype(np.float32))


@pytest.mark.parametrize("dtype", TYPES)
def test_every_output_and_weight_is_rounded(write_model: Callable[..., Path], dtype: str) -> None:
    path = write_model(
        ("mm", "MatMul", ["x", "w"], ["a"]), ("add", "Add", ["a", "b"], ["y"]), weights={"w": W, "b": W[0]}
    )
    model = rounded_model(ReferenceModel.read(path), {}, dtype)
    found = ran(model, rounded_to(X, dtype), "a", "y")
    a = to(dtype, to(dtype, X) @ to(dtype, W))
    np.testing.assert_allclose(found["a"], a, rtol=2**-7, atol=0)  # sums of three in another order
    np.testing.assert_array_equal(found["y"], to(dtype, found["a"] + to(dtype, W[0])))


def test_each_tensor_has_the_type_of_its_own_and_the_reference_stays(
    write_model: Callable[..., Path],
) -> None:
    path = write_model(
        ("exp", "Exp", ["x"], ["a"]), ("neg", "Neg", ["a"], ["b"]), ("abs", "Abs", ["b"], ["y"])
    )
    reference = ReferenceModel.read(path)
    before = ran(reference, X, "y")["y"]
    model = rounded_model(reference, {"a": "float32", "y": "bfloat16"}, "float16")
    found = ran(model, X, "a", "b", "y")
    np.testing.assert_allclose(found["a"], np.exp(X), rtol=1e-6)
    np.testing.assert_array_equal(found["b"], to("float16", -found["a"]))  # type: ignore[operator]
    np.testing.assert_array_equal(found["y"], to("bfloat16", to("float16", found["a"])))  # type: ignore[arg-type]
    np.testing.assert_array_equal(ran(reference, X, "y")["y"], before)


def test_sizes_are_not_rounded_and_values_beyond_the_type_are_infinite(
    write_model: Callable[..., Path],
) -> None:
    """300 is no bfloat16: a shape computed in floats would be another one."""
    path = write_model(
        ("shape", "Shape", ["x"], ["s"]),
        ("float", "Cast", ["s"], ["f"]),
        ("one", "Mul", ["f", "c"], ["g"]),
        ("int", "Cast", ["g"], ["h"]),
        ("fill", "Expand", ["v", "h"], ["e"]),
        ("y", "Add", ["e", "x"], ["y"]),
        shape=(1, 301),
        weights={"c": np.ones(2, np.float32), "v": np.ones(1, np.float32)},
        float={"to": 1},
        int={"to": 7},
    )
    model = rounded_model(ReferenceModel.read(path), {}, "bfloat16")
    assert ran(model, np.ones((1, 301), np.float32), "y")["y"].shape == (1, 301)  # type: ignore[union-attr]
    assert rounded_to(np.array([1e6], np.float32), "float16").tolist() == [np.inf]
    assert rounded_to(np.array([70000]), "float16").tolist() == [70000]
    assert rounded_to(X, "float32") is X
