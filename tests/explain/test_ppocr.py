"""A real model that CANN's own code dumped, in float16, against onnxruntime in float32.

The samples are PP-OCR's angle classifier as CANN's device-side code wrote it: statistics of all 258
operators, and tensors in NC1HWC0, of which some have padded channels. Its input is numpy's
``default_rng(0).normal``.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from pytest_npudump.dump.reader import read_dump
from pytest_npudump.dump.records import Stats, TensorKey, TensorRecord
from pytest_npudump.explain.reference import Reference
from pytest_npudump.request import DumpRequest
from tests.conftest import real_table

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pytest_npudump.dump.table import StatsTable
    from pytest_npudump.explain.reference import ReferenceResult

    Judged = Callable[..., ReferenceResult]

DATA = Path(__file__).parents[1] / "data"


@pytest.fixture(scope="module")
def judged(classifier: Path) -> Callable[..., ReferenceResult]:
    """Judge statistics of every operator, or tensors, by name, each once for what the marker says."""
    fed = np.load(classifier.with_suffix(".npz"))["x"]
    known: dict[str, ReferenceResult] = {}

    def judge(name: str | Sequence[TensorRecord], **marker: Any) -> ReferenceResult:
        key = repr((name, marker))
        if key not in known:
            records = records_of(real_table(name)) if isinstance(name, str) else name
            request = DumpRequest(reference=classifier.name, **marker)
            reference = Reference.of(request, classifier.parent, None)
            assert reference is not None
            reference.inputs.give({"x": fed}, "")
            known[key] = reference.judge(records, request)
        return known[key]

    return judge


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


def test_statistics_of_every_operator_agree_within_a_hundredth_of_the_magnitude(judged: Judged) -> None:
    result = judged("golden")
    assert (result.problems, result.notes) == ((), ())
    assert result.good
    assert (result.compared, result.layers) == (258, 258)
    result = judged("golden", rtol=1e-2)
    assert result.good, [str(verdict.key) for verdict in result.comparison.failing]  # type: ignore[union-attr]


def test_nan_and_a_changed_weight_are_found_where_they_came_in(judged: Judged) -> None:
    for comparison in (judged("nan").comparison, judged("regressed", rtol=1e-2).comparison):
        assert comparison is not None
        assert comparison.first is not None
        assert str(comparison.first.key) == "net/Conv@21:output.0"
    assert not judged("regressed").good


def test_tensors_in_nc1hwc0_with_padded_channels_agree_element_by_element(judged: Judged) -> None:
    records = tensors("golden")
    assert {record.format for record in records} == {"NC1HWC0", "ND"}
    assert {record.dtype for record in records} == {"float16"}
    padded = [r for r in records if r.key.layer == "net/Conv@19" and r.key.io == "output"]
    assert [(r.shape, r.original_shape) for r in padded] == [((1, 2, 1, 1, 16), (1, 22, 1, 1))]
    result = judged(records)
    assert result.good
    assert result.comparison is not None
    assert result.comparison.compared == len(records)
    at = result.comparison.actual.keys.index("net/Conv@19:output.0")
    assert result.comparison.actual.shapes[at] == "1x22x1x1"
