"""The block of projections in a golden file: written, read back, and refused with its line."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest

from pytest_npudump.dump.records import Stats, TensorKey, TensorRecord
from pytest_npudump.dump.table import StatsTable
from pytest_npudump.errors import GoldenError
from pytest_npudump.record.record import Record
from pytest_npudump.record.rows import render_projections
from pytest_npudump.record.text import parse, render

if TYPE_CHECKING:
    from collections.abc import Sequence


PATH = Path("golden/t.yaml")


def record(layer: str, dtype: str, sums: Sequence[float] | None) -> TensorRecord:
    stats = Stats(count=4, max=1.5, min=-1.5, avg=0.25, l2norm=2.5, nan=0, neg_inf=0, pos_inf=0)
    if sums is not None:
        stats = Stats(**{**{n: getattr(stats, n) for n in Stats.__slots__}, "projections": tuple(sums)})
    return TensorRecord(TensorKey(layer, "output", 0), "", dtype, (4,), Path("f"), stats=stats)


def golden(*records: TensorRecord) -> Record:
    return Record("t", {"runtime": "acl"}, StatsTable.from_records(records), PATH)


def test_a_line_a_tensor_stands_behind_the_table_under_its_key() -> None:
    text = render(
        golden(
            record("conv1", "float32", [1 / 3, -2.0, 0.0, -0.0, 1e10 / 3, 1e-10 / 3, 5.0, 123456789.5]),
            record("shape", "int32", [2**40 + 1, -7, 0, 0, 1, 2, 3, 4]),
            record("none", "float32", None),
        )
    )
    _, _, block = text.partition("projections: |\n")
    assert block == (
        "  conv1:output.0 0.333333333 -2 0 0 3.33333333e+09 3.33333333e-11 5 123456790\n"
        "  shape:output.0 1099511627777 -7 0 0 1 2 3 4\n"
    )


def test_the_tables_lines_are_those_of_a_golden_without_the_block() -> None:
    rows = [record("conv1", "float32", [1.0] * 8), record("fc", "float16", [2.0] * 8)]
    text = render(golden(*rows))
    bare = render(golden(record("conv1", "float32", None), record("fc", "float16", None)))
    assert text.partition("projections: |\n")[0] == bare
    assert parse(bare, PATH).table.projections is None


@pytest.mark.each("dtype", ["float32", "float64", "int64"])
def test_what_is_read_is_written_again_as_it_was(dtype: str) -> None:
    values = np.random.default_rng(0).standard_normal((50, 8)) * 10.0 ** np.arange(-4, 4)
    if dtype == "int64":
        values = np.floor(values * 1e6)
    values[3] = [math.nan, math.inf, -math.inf, 0, 0, 0, 0, 0]
    text = render(golden(*(record(f"l{row}", dtype, sums) for row, sums in enumerate(values.tolist()))))
    found = parse(text, PATH)
    assert render(found) == text
    assert found.table.projections is not None
    np.testing.assert_allclose(found.table.projections, values, rtol=5e-9 if dtype != "int64" else 0)


def test_a_tensor_without_projections_has_no_line_and_the_others_keep_theirs() -> None:
    table = parse(render(golden(record("a", "float32", None), record("b", "float32", [1.0] * 8))), PATH).table
    assert table.projected is not None
    assert table.projected.tolist() == [False, True]
    assert table.projections is not None
    assert np.isnan(table.projections[0]).all()
    assert render_projections(StatsTable.from_records([])) == ""


@pytest.mark.each(
    ("line", "reason"),
    [
        ("conv1:output.0 1 2 3", "3 projections, expected 8"),
        ("conv1:output.0 1 2 3 4 5 6 7 1_0", "'1_0' among the projections is not a number"),
        (
            "conv1:output.0 1 2 3 4 5 6 7 1e999",
            "'1e999' among the projections is beyond the range of float64",
        ),
        ("fc:output.0 1 2 3 4 5 6 7 8", "fc:output.0 has projections here, and no line among the tensors"),
    ],
)
def test_a_line_that_is_none_is_told_by_its_number(line: str, reason: str) -> None:
    text = render(golden(record("conv1", "float32", [1.0] * 8)))
    damaged = text.replace(text.splitlines()[-1], f"  {line}")
    with pytest.raises(GoldenError, match=f"line 8: .*{reason}"):
        parse(damaged, PATH)


def test_a_tensor_that_has_two_lines_is_refused() -> None:
    text = render(golden(record("conv1", "float32", [1.0] * 8)))
    with pytest.raises(
        GoldenError, match=r"line 9: the tensor conv1:output\.0 has projections a second time"
    ):
        parse(text + text.splitlines()[-1] + "\n", PATH)
