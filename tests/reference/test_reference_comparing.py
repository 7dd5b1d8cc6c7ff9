"""A whole dump against a reference: what is told, what is lost, what cannot be compared."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from pytest_npudump.dump.records import Stats
from pytest_npudump.reference.reference import Reference
from pytest_npudump.request import DumpRequest

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pytest_npudump.dump.records import TensorRecord
    from pytest_npudump.reference.result import ReferenceResult

    Record = Callable[..., TensorRecord]

X = np.random.default_rng(4).normal(size=(2, 3)).astype(np.float32)
NODES = (("exp", "Exp", ["x"], ["a"]), ("neg", "Neg", ["a"], ["b"]))
LAYERS = {"exp": np.exp(X.astype(np.float64)), "neg": -np.exp(X.astype(np.float64))}


def judged(path: Path, records: list[TensorRecord], **marker: Any) -> ReferenceResult:
    request = DumpRequest(reference=path.name, **marker)
    reference = Reference.of(request, path.parent, None)
    assert reference is not None
    reference.inputs.give({"x": X}, "")
    return reference.judge(records, request)


@pytest.fixture
def records(make_record: Record) -> list[TensorRecord]:
    """The two layers as numpy computes them in float64, six digits printed."""
    return [
        make_record(f"{name}:output.0", np.round(array, 6), dtype="float32") for name, array in LAYERS.items()
    ]


def told(record: TensorRecord, **stats: Any) -> TensorRecord:
    assert record.stats is not None
    return replace(record, stats=replace(record.stats, **stats))


def test_layers_are_what_numpy_computes(
    write_model: Callable[..., Path], records: list[TensorRecord]
) -> None:
    result = judged(write_model(*NODES), records)
    assert result.good, result
    assert (result.compared, result.layers) == (2, 2)


@pytest.mark.parametrize("statistic", ["max", "min", "avg"])
@pytest.mark.parametrize("direction", [-1, 1])
def test_each_statistic_that_differs_fails(
    write_model: Callable[..., Path], records: list[TensorRecord], statistic: str, direction: int
) -> None:
    value = getattr(records[1].stats, statistic)
    off = direction * 2e-3 * float(np.abs(LAYERS["neg"]).max())
    result = judged(write_model(*NODES), [records[0], told(records[1], **{statistic: value + off})])
    assert result.comparison is not None
    assert [str(verdict.key) for verdict in result.comparison.failing] == ["neg:output.0"]
    assert [reason.statistic for reason in result.comparison.failing[0].reasons] == [statistic]


@pytest.mark.parametrize("statistic", ["nan", "pos_inf", "neg_inf"])
def test_nan_and_infinities_fail_whatever_the_tolerance(
    write_model: Callable[..., Path], records: list[TensorRecord], statistic: str
) -> None:
    result = judged(write_model(*NODES), [records[0], told(records[1], **{statistic: 1})], rtol=1e9, atol=1e9)
    assert not result.good


def test_statistic_that_one_tensor_lost_fails(
    write_model: Callable[..., Path], records: list[TensorRecord]
) -> None:
    result = judged(write_model(*NODES), [records[0], told(records[1], avg=None)])
    assert result.comparison is not None
    (verdict,) = result.comparison.failing
    assert verdict.reasons[0].rule == "the reference has a value, the dump does not tell it"


def test_statistic_that_the_reader_found_garbled_is_left_out_and_said(
    write_model: Callable[..., Path], records: list[TensorRecord]
) -> None:
    odd = replace(told(records[1], max=None, min=None), note="max and min are unknown")
    result = judged(write_model(*NODES), [records[0], odd])
    assert result.good
    (note,) = result.notes
    assert "1 tensors were compared in part, such as neg:output.0: max and min are unknown" in note


def test_tensor_of_a_type_without_statistics_is_counted(
    write_model: Callable[..., Path], records: list[TensorRecord]
) -> None:
    bare = replace(records[1], dtype="bfloat16", stats=Stats(count=6))
    result = judged(write_model(*NODES), [records[0], bare])
    assert result.good
    assert result.comparison is not None
    assert result.comparison.unjudged == 1
    assert "of 1 tensors the dump or the reference has no finite statistics" in result.notes[0]


def test_dump_of_nothing_but_such_tensors_is_no_agreement(
    write_model: Callable[..., Path], records: list[TensorRecord]
) -> None:
    bare = [replace(record, dtype="bfloat16", stats=Stats(count=6)) for record in records]
    result = judged(write_model(*NODES), bare)
    assert not result.good
    assert result.problems[0].startswith("no value was compared with model.onnx")


def test_layer_that_ran_several_times_in_a_step_has_no_counterpart(
    write_model: Callable[..., Path], records: list[TensorRecord]
) -> None:
    again = replace(records[0], key=replace(records[0].key, turn=1))
    result = judged(write_model(*NODES), [*records, again])
    assert result.good
    assert (result.compared, result.layers) == (1, 2)
    assert "1 of 2 layers compared" in result.notes[0]


def test_layers_that_share_a_tensor_of_the_reference_are_told(
    write_model: Callable[..., Path], records: list[TensorRecord], tmp_path: Path
) -> None:
    tmp_path.joinpath("map.yaml").write_text("trans: exp\n")
    copied = replace(records[0], key=replace(records[0].key, layer="trans"))
    result = judged(write_model(*NODES), [*records, copied], reference_map="map.yaml")
    assert result.good
    assert any(
        "several layers were compared with one tensor of the reference: a (exp, trans)" in r
        for r in result.remarks
    )


def test_result_is_plain_json(write_model: Callable[..., Path], records: list[TensorRecord]) -> None:
    import json

    result = judged(write_model(*NODES), [records[0], told(records[1], max=float("nan"))])
    assert json.loads(json.dumps(result.to_json()))["first"] == "neg:output.0"
