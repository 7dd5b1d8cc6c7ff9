from __future__ import annotations

import contextlib
import math
from pathlib import Path

import pytest
from hypothesis import given, strategies as st

from pytest_npudump.dump.columns import Execution, FileColumns, TensorColumns
from pytest_npudump.dump.files.step_csv import read_step_csv
from pytest_npudump.dump.names import Place
from pytest_npudump.dump.records import Stats
from pytest_npudump.errors import FormatError

DATA = Path(__file__).parents[2] / "data" / "trees"
BASE = "Op Type,Op Name,Task ID,Stream ID,Timestamp,IO,Slot,Data Size,Data Type,Shape"
PLACE = Place()
START = "Sub,Default_Sub-op0,0,0,1733905446819790,input,0,4,float32"


def write(tmp_path: Path, *lines: str) -> Path:
    path = tmp_path / "statistic.csv"
    path.write_text("".join(f"{line}\n" for line in lines))
    return path


def rows_of(path: Path) -> list[Execution]:
    files, tensors = FileColumns(), TensorColumns()
    read_step_csv(path, PLACE, files, tensors)
    return files.executions(tensors)


def only(tmp_path: Path, *lines: str) -> Execution:
    (row,) = rows_of(write(tmp_path, *lines))
    return row


def stats_of(row: Execution) -> Stats:
    assert row.parts[0].stats is not None
    return row.parts[0].stats


def test_the_columns_of_mindspore_2_2_and_older_are_read(tmp_path: Path) -> None:
    header = (
        f"{BASE},Max Value,Min Value,Avg Value,Count,Negative Zero Count,Positive Zero Count,NaN Count,"
        "Negative Inf Count,Positive Inf Count,Zero Count"
    )
    for extra, cells in (("", ""), (",MD5", ",d41d8cd98f"), (",L2 Value,MD5", ",7.5,d41d8cd98f")):
        row = only(tmp_path, header + extra, f'{START},"(2,3)",3,-1,0.5,6,1,4,0,0,0,1{cells}')
        l2norm = 7.5 if "L2" in extra else None
        assert row.parts[0].shape == (2, 3)
        assert stats_of(row) == Stats(6, 3.0, -1.0, 0.5, l2norm, 0, 0, 0, 1, 6)


def test_trap_14_null_stands_where_nothing_was_finite(tmp_path: Path) -> None:
    header = f"{BASE},Max Value,Min Value,Avg Value,Count,NaN Count"
    row = only(tmp_path, header, f'{START},"(6,)",null,null,null,6,6')
    assert stats_of(row) == Stats(6, None, None, None, None, 6, digits=6)
    assert row.parts[0].shape == (6,)


def test_the_device_s_columns_are_read(tmp_path: Path) -> None:
    header = f"{BASE},Max Value,Min Value,Avg Value,L2Norm Value,Count"
    row = only(tmp_path, header, f'{START},"()",nan,-inf,inf,1.5,1')
    assert math.isnan(stats_of(row).max or 0)
    assert (stats_of(row).min, stats_of(row).avg, stats_of(row).l2norm) == (-math.inf, math.inf, 1.5)


def test_trap_13_msprobe_calls_io_and_format_by_cann_s_names(tmp_path: Path) -> None:
    header = (
        "Op Type,Op Name,Task ID,Stream ID,Timestamp,Input/Output,Slot,Data Size,Data Type,Format,Shape,"
        "Max Value,Min Value,NaN Count,MD5 Value"
    )
    row = only(
        tmp_path, header, "MatMul,net_mm,12,3,1733905446819790,Output,1,24,BF16,FRACTAL_NZ,2x3x2,3,1,0,abc"
    )
    assert (row.op_type, row.layer, row.task, row.stream, row.time) == (
        "MatMul",
        "net_mm",
        12,
        3,
        1733905446819790,
    )
    part = row.parts[0]
    assert (part.io, part.slot, part.dtype, part.format, part.shape) == (
        "output",
        1,
        "bfloat16",
        "FRACTAL_NZ",
        (2, 3, 2),
    )
    assert (stats_of(row).max, stats_of(row).nan) == (3.0, 0)


def test_trap_17_what_msprobe_merged_from_the_host_converter_is_not_trusted(tmp_path: Path) -> None:
    header = f"{BASE.replace('IO', 'Input/Output')},Max Value,Min Value"
    row = only(tmp_path, header, 'A,b,1,2,1733905446819790,input,0,8,UINT64,"(1,)",-7,-7')
    assert stats_of(row).max is None
    mindspore = only(tmp_path, f"{BASE},Max Value", 'A,b,1,2,1733905446819790,input,0,8,uint64,"(1,)",7')
    assert stats_of(mindspore).max == 7


@pytest.mark.each("name", ["Float32", "float32", "FLOAT", "DT_FLOAT", "FLOAT32"])
def test_trap_28_a_type_is_the_same_in_any_case(tmp_path: Path, name: str) -> None:
    row = only(tmp_path, f"{BASE},Max Value", f'A,b,1,2,1733905446819790,input,0,8,{name},"(1,)",7')
    assert row.parts[0].dtype == "float32"


def test_a_header_may_come_again(tmp_path: Path) -> None:
    rows = rows_of(
        write(
            tmp_path,
            f"{BASE},Max Value",
            f'{START},"()",1,',
            f"{BASE},Max Value,Min Value",
            f'{START},"()",1,2',
        )
    )
    assert [stats_of(row).min for row in rows] == [None, 2.0]


@pytest.mark.each(
    "rows",
    [
        (f'{START},"()",3,3',),
        (f'{START},"()",3,3,3,3',),
        (f'{START},"()",3,3,3,,',),
        (f'{START},"()",3,3,3,', f'{START},"()",3,3,3'),
        (f'{START},"()",3,3,3', f'{START},"()",3,3,3,'),
        (f'{START},"(2,3",3,3,3',),
        (f'{START},"()",three,3,3',),
        (f'{START},"()",1_0,3,3',),
        (f'{START},"()",\u0663,3,3',),
        (f'{START},"()",\xa03,3,3',),
        (f'{START},"()"x,3,3,3',),
        (START.replace("input", "inout") + ',"()",3,3,3',),
        (START.replace("1733905446819790", "") + ',"()",3,3,3',),
        (START.replace("Default_Sub-op0", "") + ',"()",3,3,3',),
        ('"Sub',),
    ],
)
def test_a_row_that_does_not_fit_is_an_error_with_its_place(tmp_path: Path, rows: tuple[str, ...]) -> None:
    header = f"{BASE},Max Value,Min Value,L2Norm Value"
    path = write(tmp_path, header, *rows)
    with pytest.raises(FormatError, match=rf"line {len(rows) + 1}: ") as caught:
        rows_of(path)
    assert caught.value.offset == sum(len(line) + 1 for line in (header, *rows[:-1]))


@pytest.mark.each(
    ("text", "reason"),
    [
        ("", "empty"),
        (BASE, "no line feed"),
        (f"{BASE}\n{START}", "no line feed"),
        (f'{START},"()",1\n', "expected a header"),
        ("\n", "expected a header"),
        ("Op Type,Op Name\n", "lacks the columns task, stream, time"),
        (f"{BASE},Max Value,Max Value\n", "twice"),
    ],
)
def test_a_file_without_a_usable_header_is_an_error(tmp_path: Path, text: str, reason: str) -> None:
    path = tmp_path / "statistic.csv"
    path.write_text(text)
    with pytest.raises(FormatError, match=reason):
        rows_of(path)


def test_a_cell_does_not_go_on_in_the_next_line(tmp_path: Path) -> None:
    path = write(tmp_path, f"{BASE},Max Value", '"Sub', 'x",b,0,0,1,input,0,4,float32,"()",1')
    with pytest.raises(FormatError, match="line 2: a quoted cell goes on in the next line"):
        rows_of(path)


def test_a_row_without_any_statistic_says_so(tmp_path: Path) -> None:
    row = only(tmp_path, f"{BASE},Max Value,Min Value", f'{START},"(0,)",null,null')
    assert (row.parts[0].stats, row.parts[0].shape) == (None, (0,))
    assert "no statistics" in row.parts[0].note


@pytest.mark.each("end", ["", ","])
@pytest.mark.each("at", [1, 2, 3])
def test_empty_line_is_an_error_at_its_place_however_the_rows_end(tmp_path: Path, at: int, end: str) -> None:
    lines = [f"{BASE},Max Value", *[f'{START},"()",1{end}'] * 2]
    lines.insert(at, "")
    offset = sum(len(line) + 1 for line in lines[:at])
    with pytest.raises(FormatError, match=f"byte {offset}: line {at + 1}: 0 cells, expected 11 as in"):
        rows_of(write(tmp_path, *lines))


def test_a_header_without_rows_is_a_file_cut_short(tmp_path: Path) -> None:
    with pytest.raises(FormatError, match="line 1: a header and no row"):
        rows_of(write(tmp_path, f"{BASE},Max Value"))


def test_unknown_columns_are_named(tmp_path: Path) -> None:
    row = only(tmp_path, f"{BASE},Median Value,Max Value", f'{START},"()",1,2')
    assert stats_of(row).max == 2.0
    assert row.parts[0].note == "unknown columns were not read: Median Value"


def test_a_missing_file_is_an_error_that_names_it(tmp_path: Path) -> None:
    with pytest.raises(FormatError, match="cannot be read"):
        rows_of(tmp_path / "statistic.csv")


@given(st.binary(max_size=200))
def test_no_bytes_make_the_reader_fail_otherwise_than_by_a_format_error(
    tmp_path_factory: pytest.TempPathFactory, data: bytes
) -> None:
    path = tmp_path_factory.mktemp("hostile") / "statistic.csv"
    path.write_bytes(f"{BASE},Max Value\n".encode() + data + b"\n")
    with contextlib.suppress(FormatError):
        rows_of(path)
