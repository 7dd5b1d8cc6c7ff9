"""A real model that CANN's own code dumped, in float16, against onnxruntime in float32.

The samples are PP-OCR's angle classifier as CANN's device-side code wrote it: statistics of all 258
operators, and tensors in NC1HWC0, of which some have padded channels. Its input is numpy's
``default_rng(0).normal``.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from pytest_npudump.dump.reader import read_dump
from pytest_npudump.dump.records import Stats, TensorKey, TensorRecord
from pytest_npudump.explain.reference import Reference
from pytest_npudump.request import DumpRequest

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pytest_npudump.dump.table import StatsTable
    from pytest_npudump.explain.reference import ReferenceResult

DATA = Path(__file__).parents[1] / "data"


def judged(model: Path, records: Sequence[TensorRecord], **marker: object) -> ReferenceResult:
    request = DumpRequest(reference=model.name, **marker)  # type: ignore[arg-type]
    reference = Reference.of(request, model.parent, None)
    assert reference is not None
    reference.inputs.give({"x": np.load(model.with_suffix(".npz"))["x"]}, "")
    return reference.judge(records, request)


def records_of(table: StatsTable) -> list[TensorRecord]:
    """Records of a statistics table as the reader of the dump gives them."""
    records = []
    for row, text in enumerate(table.keys):
        shape = tuple(map(int, table.shapes[row].split("x")))
        cells = [table.value(row, column) for column in range(7)]
        stats = Stats(
            table.counts[row], cells[0], cells[1], cells[2], None, *cells[4:5], cells[5], cells[6], digits=6
        )  # type: ignore[arg-type]
        key = TensorKey.parse(text)
        records.append(TensorRecord(key, table.op_types[row], table.dtypes[row], shape, DATA, stats=stats))
    return records


def tensors(name: str) -> tuple[TensorRecord, ...]:
    return read_dump(DATA / "reference" / name).records


def test_statistics_of_every_operator_agree(classifier: Path, ppocr_cls: object) -> None:
    result = judged(classifier, records_of(ppocr_cls("golden")))  # type: ignore[operator]
    assert result.problems == ()
    assert result.good
    assert (result.compared, result.layers) == (258, 258)
    assert result.notes == ()


def test_statistics_agree_within_a_hundredth_of_the_magnitude(classifier: Path, ppocr_cls: object) -> None:
    result = judged(classifier, records_of(ppocr_cls("golden")), rtol=1e-2)  # type: ignore[operator]
    assert result.good, [str(verdict.key) for verdict in result.comparison.failing]  # type: ignore[union-attr]


def test_nan_is_found_where_it_came_in(classifier: Path, ppocr_cls: object) -> None:
    result = judged(classifier, records_of(ppocr_cls("nan")))  # type: ignore[operator]
    assert result.comparison is not None
    assert str(result.comparison.first.key) == "net/Conv@21:output.0"  # type: ignore[union-attr]


def test_changed_weight_is_found_at_its_layer_with_the_tolerance_of_one_operator(
    classifier: Path, ppocr_cls: object
) -> None:
    records = records_of(ppocr_cls("regressed"))  # type: ignore[operator]
    result = judged(classifier, records, rtol=1e-2)
    assert result.comparison is not None
    assert str(result.comparison.first.key) == "net/Conv@21:output.0"  # type: ignore[union-attr]
    assert not judged(classifier, records).good


def test_tensors_in_nc1hwc0_with_padded_channels_agree_element_by_element(classifier: Path) -> None:
    records = tensors("golden")
    assert {record.format for record in records} == {"NC1HWC0", "ND"}
    padded = [r for r in records if r.key.layer == "net/Conv@19" and r.key.io == "output"]
    assert [(r.shape, r.original_shape) for r in padded] == [((1, 2, 1, 1, 16), (1, 22, 1, 1))]
    result = judged(classifier, records)
    assert result.good
    assert result.comparison is not None
    assert result.comparison.compared == len(records)
    assert result.comparison.actual.shapes[result.comparison.actual.keys.index("net/Conv@19:output.0")] == (
        "1x22x1x1"
    )


def test_tensors_of_the_regressed_model_fail_from_the_first_dumped_layer_behind_the_change(
    classifier: Path,
) -> None:
    result = judged(classifier, tensors("regressed"))
    assert result.comparison is not None
    first = result.comparison.first
    assert first is not None
    assert str(first.key) == "net/Conv@22:input.0"
    assert "relative_l2" in {reason.statistic for reason in first.reasons}


def test_layers_before_the_change_agree(classifier: Path) -> None:
    result = judged(classifier, [r for r in tensors("regressed") if "Add@6" in r.key.layer])
    assert result.good


def test_types_of_the_samples_are_those_of_the_device() -> None:
    assert {record.dtype for record in tensors("golden")} == {"float16"}


def test_a_rule_by_operator_decides_against_the_reference(classifier: Path, ppocr_cls: object) -> None:
    records = records_of(ppocr_cls("regressed"))  # type: ignore[operator]
    comparison = judged(classifier, records).comparison
    assert comparison is not None
    types = {verdict.op_type for verdict in comparison.failing}
    rule = {"rtol": 1e3, "atol": 1e3, "reason": "other weights", "against": "reference"}
    rules = [{**rule, "op_type": name} for name in types]
    assert types
    assert judged(classifier, records, tolerances=tuple(rules)).good
    result = judged(classifier, records, tolerances=(*rules, {**rules[0], "op_type": "Cnov"}))
    assert "op_type=Cnov" in result.problems[0]
