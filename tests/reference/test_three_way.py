"""When a dump is judged by what rounding does, and by what it is judged where that cannot be known."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from pytest_npudump.onnxmodels.sessions import ModelError
from pytest_npudump.reference import three_way
from pytest_npudump.reference.reference import Reference
from pytest_npudump.reference.three_way import coarsest, only_wide
from pytest_npudump.reference.tolerances import reference_tolerances
from pytest_npudump.request import DumpRequest

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pytest_npudump.dump.records import TensorRecord
    from pytest_npudump.reference.result import ReferenceResult

X = np.random.default_rng(0).normal(size=(20, 30)).astype(np.float32)


@pytest.mark.each(
    ("dtypes", "expected"),
    [
        (["float32", "float16", "int32"], "float16"),
        (["bfloat16", "float16"], "bfloat16"),
        (["float32", "int8"], ""),
        (["float16", "float8_e4m3fn"], ""),
        (["int8", "bool"], ""),
        ([], ""),
    ],
)
def test_the_coarsest_of_the_16_bit_types_is_rounded_to(dtypes: list[str], expected: str) -> None:
    assert coarsest(dtypes) == expected


def test_floats_that_are_not_narrower_than_the_references_are_wide() -> None:
    assert only_wide(["float32", "int8"])
    assert only_wide(["float64"])
    assert not any(map(only_wide, (["float32", "float16"], ["int8", "bool"], [])))


@pytest.fixture
def judge(
    write_model: Callable[..., Path], make_record: Callable[..., Any]
) -> Callable[..., ReferenceResult]:
    """Judge a device whose exp is ``factor`` times as large, and of a type, against the model."""

    def judged(factor: float, dtype: str, **marker: Any) -> ReferenceResult:
        path = write_model(("exp", "Exp", ["x"], ["y"]), shape=X.shape)
        request = DumpRequest(reference=path.name, **marker)
        reference = Reference.of(request, path.parent, None)
        assert reference is not None
        reference.inputs.give({"x": X}, "")
        record: TensorRecord = make_record("exp:output.0", (np.exp(X) * factor).astype(dtype), op_type="Exp")
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
    assert any('numerics="hf32"' in note for note in result.notes)
    assert judge(1.0005, "float32", numerics="hf32").good
    assert not judge(1.05, "float32", numerics="hf32").good


def test_the_runs_numerics_count_where_the_marker_has_none() -> None:
    assert reference_tolerances(DumpRequest(reference="m.onnx"), None, "hf32").hf32
    assert not reference_tolerances(DumpRequest(reference="m.onnx", numerics="same"), None, "hf32").hf32


def test_a_model_that_cannot_be_run_rounded_is_judged_by_the_preset_with_a_note(
    judge: Callable[..., ReferenceResult], monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise ModelError("no kernel for it")

    monkeypatch.setattr(three_way, "rounded_model", refuse)
    result = judge(1.03, "float16")
    assert result.good
    words = "judged by the preset om-net, as it cannot be run rounded to float16: no kernel for it"
    assert any(words in note for note in result.notes)
    assert not judge(1.08, "float16").good
