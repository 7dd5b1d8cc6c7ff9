"""The lines of a golden: read back as they are written, and told by line where they are none."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, strategies as st

from pytest_npudump.dump.records import Stats, TensorKey, TensorRecord
from pytest_npudump.dump.stats.compact_projections import as_printed
from pytest_npudump.dump.stats.projections import project
from pytest_npudump.dump.stats.tensor import tensor_stats
from pytest_npudump.dump.table import StatsTable
from pytest_npudump.errors import GoldenError
from pytest_npudump.record.record import Record
from pytest_npudump.record.rows import Pointer, RowError, read_pointers, render_projections
from pytest_npudump.record.text import check_edge_lines, parse, render
from tests.conftest import table_of

PATH = Path("golden/test_a.yaml")
HEAD = (
    "npudump-golden: 1\ntest: test_a.py::test_a\nproducer: {runtime: acl}\n"
    "columns: tensor dtype shape max min avg l2norm nan -inf +inf\ntensors: |\n"
)
ROW = "  {} float32 2 1 1 1 - 0 0 0{}\n"


def text(**ends: str) -> str:
    return HEAD + "".join(ROW.format(layer, end) for layer, end in ends.items())


@pytest.mark.each("stamp", ["2026-11-23", "2026-11-23 1f3a5c7e9b2d"])
def test_a_stamp_is_of_its_tensor_and_written_as_it_was(stamp: str) -> None:
    written = text(conv="", **{"relu#step=1": f" # {stamp}"}, fc="")
    golden = parse(written, PATH)
    assert golden.changed == {"relu#step=1:output.0": stamp}
    assert len(golden.table) == 3
    assert render(golden) == written


def test_rounded_projections_stand_in_a_column_and_counts_of_0_in_none() -> None:
    array = np.arange(1, 65, dtype=np.float32)
    stats = replace(tensor_stats(array), projections=project(array))
    one = TensorRecord(TensorKey("conv", "output", 0), "", "float32", (64,), Path("f"), stats=stats)
    table = StatsTable.from_records(as_printed([one]))
    written = render(Record("t", {}, table, PATH))
    back = parse(written, PATH)
    assert "columns: tensor dtype shape max min avg l2norm sums\n" in written
    assert back.table.known.tolist() == table.known.tolist()
    assert (back.table.summed, back.table.projections.tolist()) == (True, table.projections.tolist())  # type: ignore[union-attr]
    assert render(back) == written


@pytest.mark.each("end", [" # looks better", " # ", " # 2026-11-23 main", " # 2026-11-23  1f3a5c7e"])
def test_what_is_no_stamp_is_told_with_its_line(end: str) -> None:
    with pytest.raises(GoldenError, match=r"line 7: .* is no day and commit"):
        parse(text(conv="", relu=end), PATH)


def record(layer: str, dtype: str, sums: Sequence[float] | None) -> TensorRecord:
    stats = Stats(count=4, max=1.5, min=-1.5, avg=0.25, l2norm=2.5, nan=0, neg_inf=0, pos_inf=0)
    if sums is not None:
        stats = Stats(**{**{n: getattr(stats, n) for n in Stats.__slots__}, "projections": tuple(sums)})
    return TensorRecord(TensorKey(layer, "output", 0), "", dtype, (4,), Path("f"), stats=stats)


def golden(*records: TensorRecord) -> Record:
    return Record("t", {"runtime": "acl"}, StatsTable.from_records(records), PATH)


def test_a_line_a_tensor_stands_behind_the_table_under_its_key() -> None:
    sums = {
        "conv1": [1 / 3, -2.0, 0.0, -0.0, 1e10 / 3, 1e-10 / 3, 5.0, 123456789.5],
        "shape": [2**40 + 1, -7, 0, 0, 1, 2, 3, 4],
        "none": None,
    }
    dtypes = {"conv1": "float32", "shape": "int32", "none": "float32"}
    table, _, block = render(
        golden(*(record(name, dtypes[name], of) for name, of in sums.items()))
    ).partition("projections: |\n")
    assert block == (
        "  conv1:output.0 0.333333333 -2 0 0 3.33333333e+09 3.33333333e-11 5 123456790\n"
        "  shape:output.0 1099511627777 -7 0 0 1 2 3 4\n"
    )
    bare = render(golden(*(record(name, dtypes[name], None) for name in sums)))
    assert table == bare
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


def test_a_line_that_is_none_is_told_by_its_number() -> None:
    text = render(golden(record("conv1", "float32", [1.0] * 8)))
    line = text.splitlines()[-1]
    numbers = " among the projections is "
    for instead, reason in {
        "  conv1:output.0 1 2 3": "line 8: .*3 projections, expected 8",
        "  conv1:output.0 1 2 3 4 5 6 7 1_0": f"line 8: .*'1_0'{numbers}not a number",
        "  conv1:output.0 1 2 3 4 5 6 7 1e999": f"line 8: .*'1e999'{numbers}beyond the range of float64",
        "  fc:output.0 1 2 3 4 5 6 7 8": "line 8: .*fc:output.0 has projections here, and no line among the",
        f"{line}\n{line}": r"line 9: the tensor conv1:output\.0 has projections a second time",
    }.items():
        with pytest.raises(GoldenError, match=reason):
            parse(text.replace(line, instead), PATH)


TEXT = "x <\nconv1 < x:output.0 - ?\nrelu <\n"
KEYS = ("x:output.0", "conv1:output.0", "conv1#turn=1:output.0", "relu:input.0", "relu:output.0")


@pytest.mark.each(
    ("text", "row", "reason"),
    [
        *((f"{TEXT}{line}\n", 3, "is no edge") for line in ("", "conv x:output.0", "< x:output.0")),
        *((f"{TEXT}conv{end}\n", 3, "is no edge") for end in ("#step=1 < x:output.0", " < x:output")),
        *((f"{TEXT}conv < {fed}\n", 3, "is no edge") for fed in ("x:input.0", "x#step=1:output.0")),
        *((f"{TEXT}conv < {fed}\n", 3, "is no edge") for fed in (" x:output.0", "x:output.0 ")),
        (TEXT + "x < relu:output.0\n", 3, "'x' stands here a second time"),
        (TEXT[:-1], 2, "the file ends within this line"),
        (TEXT[:-6], 2, "is no edge"),
    ],
)
def test_any_other_line_of_edges_is_damage(text: str, row: int, reason: str) -> None:
    for good in (TEXT, "", TEXT + "more < * a:b:output.1 c:output.0\n"):
        check_edge_lines(good)
    with pytest.raises(RowError, match=reason) as caught:
        check_edge_lines(text)
    assert caught.value.row == row


def test_a_golden_with_damaged_edges_is_refused_by_its_line() -> None:
    table = table_of(*[(key, "float32", (4,), {"count": 4, "max": 1.0}) for key in KEYS])
    path = Path("test_ocr.yaml")
    golden = Record("t", {}, table, path, blocks={"edges": TEXT})
    text = render(golden)
    assert parse(text, path).blocks == {"edges": TEXT}
    damaged = render(replace(golden, blocks={"edges": TEXT.replace("conv1 <", "conv1 >")}))
    line = damaged.splitlines().index("  conv1 > x:output.0 - ?") + 1
    with pytest.raises(
        GoldenError, match=rf"test_ocr.yaml, line {line}: .* is no edge.*--npudump-update-golden"
    ):
        parse(damaged, path)


DIGEST = "30c148aa6693ffd0a191f004de6bbf978acb6deca2cd429d8d27256a219042b3"
LINE = f"fc:output.0 float32 1x4x6x6 sha256:{DIGEST} 576 0613f9d9"


def test_a_line_is_read_that_is_whole_and_of_a_tensor_of_its_own() -> None:
    expected = Pointer("fc:output.0", "float32", (1, 4, 6, 6), DIGEST, 576, "0613f9d9")
    assert read_pointers(f"{LINE}\n") == {"fc:output.0": expected}
    with pytest.raises(RowError, match=r"fc:output\.0 stands here a second time"):
        read_pointers(f"{LINE}\n{LINE}\n")
    with pytest.raises(RowError, match="ends within this line"):
        read_pointers(LINE)


@given(
    st.lists(st.integers(0, 9), max_size=5),
    st.sampled_from(["float32", "bool", "float8_e4m3fn", "complex64"]),
    st.binary(min_size=32, max_size=32),
)
def test_what_is_written_is_read_back(shape: list[int], dtype: str, digest: bytes) -> None:
    size = 4
    for dim in shape:
        size *= dim
    pointer = Pointer("a#2:input.1", dtype, tuple(shape), digest.hex(), size, "00000000")
    assert read_pointers(pointer.line()) == {"a#2:input.1": pointer}


@pytest.mark.each(
    "line",
    [
        "",
        "fc:output.0",
        LINE.replace("sha256:", "md5:"),
        LINE.replace(DIGEST, DIGEST.upper()),
        LINE.replace(DIGEST, DIGEST[:-1]),
        LINE.replace(DIGEST, f"../{DIGEST[3:]}"),
        LINE.replace("1x4x6x6", "?"),
        LINE.replace("1x4x6x6", "1x-4x6x6"),
        LINE.replace("576", "-576"),
        LINE.replace("576", "577"),
        f"{LINE} more",
        LINE.replace("float32", "Float32"),
    ],
)
def test_what_is_no_line_is_refused_and_named(line: str) -> None:
    with pytest.raises(RowError) as raised:
        read_pointers(f"{LINE.replace('fc', 'other')}\n{line}\n")
    assert raised.value.row == 1
