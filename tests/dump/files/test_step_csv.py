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

TIME = 1733905446819790
START = f"Sub,Default_Sub-op0,0,0,{TIME},input,0,4,float32"


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


def test_trap_14_null_stands_where_nothing_was_finite_and_what_is_not_read_is_said(tmp_path: Path) -> None:
    header = f"{BASE},Max Value,Min Value,Avg Value"
    row = only(tmp_path, f"{header},Count,NaN Count", f'{START},"(6,)",null,null,null,6,6')
    assert stats_of(row) == Stats(6, None, None, None, None, 6, digits=6)
    assert row.parts[0].shape == (6,)
    row = only(tmp_path, f"{header},L2Norm Value,Count", f'{START},"()",nan,-inf,inf,1.5,1')
    assert math.isnan(stats_of(row).max or 0)
    assert (stats_of(row).min, stats_of(row).avg, stats_of(row).l2norm) == (-math.inf, math.inf, 1.5)
    row = only(tmp_path, f"{BASE},Max Value,Min Value", f'{START},"(0,)",null,null')
    assert (row.parts[0].stats, row.parts[0].shape) == (None, (0,))
    assert "no statistics" in row.parts[0].note
    row = only(tmp_path, f"{BASE},Median Value,Max Value", f'{START},"()",1,2')
    assert stats_of(row).max == 2.0
    assert row.parts[0].note == "unknown columns were not read: Median Value"


def test_trap_13_msprobe_calls_io_and_format_by_cann_s_names(tmp_path: Path) -> None:
    header = (
        "Op Type,Op Name,Task ID,Stream ID,Timestamp,Input/Output,Slot,Data Size,Data Type,Format,Shape,"
        "Max Value,Min Value,NaN Count,MD5 Value"
    )
    line = f"MatMul,net_mm,12,3,{TIME},Output,1,24,BF16,FRACTAL_NZ,2x3x2,3,1,0,abc"
    row = only(tmp_path, header, line)
    assert (row.op_type, row.layer, row.task, row.stream, row.time) == ("MatMul", "net_mm", 12, 3, TIME)
    part = row.parts[0]
    assert (part.io, part.slot, part.dtype) == ("output", 1, "bfloat16")
    assert (part.format, part.shape) == ("FRACTAL_NZ", (2, 3, 2))
    assert (stats_of(row).max, stats_of(row).nan) == (3.0, 0)


def test_trap_17_what_msprobe_merged_from_the_host_converter_is_not_trusted(tmp_path: Path) -> None:
    header = f"{BASE.replace('IO', 'Input/Output')},Max Value,Min Value"
    row = only(tmp_path, header, f'A,b,1,2,{TIME},input,0,8,UINT64,"(1,)",-7,-7')
    assert stats_of(row).max is None
    mindspore = only(tmp_path, f"{BASE},Max Value", f'A,b,1,2,{TIME},input,0,8,uint64,"(1,)",7')
    assert stats_of(mindspore).max == 7


def test_trap_28_a_type_is_the_same_in_any_case_and_a_header_may_come_again(tmp_path: Path) -> None:
    for name in ("Float32", "float32", "FLOAT", "DT_FLOAT", "FLOAT32"):
        row = only(tmp_path, f"{BASE},Max Value", f'A,b,1,2,{TIME},input,0,8,{name},"(1,)",7')
        assert row.parts[0].dtype == "float32"
    again = (f"{BASE},Max Value,Min Value", f'{START},"()",1,2')
    rows = rows_of(write(tmp_path, f"{BASE},Max Value", f'{START},"()",1,', *again))
    assert [stats_of(row).min for row in rows] == [None, 2.0]


@pytest.mark.each(
    "rows",
    [
        *((f'{START},"()",3,3{end}',) for end in ("", ",3,3", ",3,,")),
        (f'{START},"()",3,3,3,', f'{START},"()",3,3,3'),
        (f'{START},"()",3,3,3', f'{START},"()",3,3,3,'),
        *((f"{START},{shape},3,3,3",) for shape in ('"(2,3"', '"()"x')),
        *((f'{START},"()",{number},3,3',) for number in ("three", "1_0", "\u0663", "\xa03")),
        *((START.replace(*change) + ',"()",3,3,3',) for change in (("input", "inout"), (str(TIME), ""))),
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


QUOTED = '"Sub\nx",b,0,0,1,input,0,4,float32,"()",1\n'


@pytest.mark.each(
    ("text", "reason"),
    [
        (None, "cannot be read"),
        ("", "empty"),
        (BASE, "no line feed"),
        (f"{BASE}\n{START}", "no line feed"),
        (f'{START},"()",1\n', "expected a header"),
        ("\n", "expected a header"),
        ("Op Type,Op Name\n", "lacks the columns task, stream, time"),
        (f"{BASE},Max Value,Max Value\n", "twice"),
        (f"{BASE},Max Value\n", "line 1: a header and no row"),
        (f"{BASE},Max Value\n{QUOTED}", "line 2: a quoted cell goes on in the next line"),
    ],
)
def test_a_file_without_a_usable_header_or_rows_is_an_error(
    tmp_path: Path, text: str | None, reason: str
) -> None:
    path = tmp_path / "statistic.csv"
    if text is not None:
        path.write_text(text)
    with pytest.raises(FormatError, match=reason):
        rows_of(path)


@pytest.mark.each("end", ["", ","])
@pytest.mark.each("at", [1, 2, 3])
def test_empty_line_is_an_error_at_its_place_however_the_rows_end(tmp_path: Path, at: int, end: str) -> None:
    lines = [f"{BASE},Max Value", *[f'{START},"()",1{end}'] * 2]
    lines.insert(at, "")
    offset = sum(len(line) + 1 for line in lines[:at])
    with pytest.raises(FormatError, match=f"byte {offset}: line {at + 1}: 0 cells, expected 11 as in"):
        rows_of(write(tmp_path, *lines))


@given(st.binary(max_size=200))
def test_no_bytes_make_the_reader_fail_otherwise_than_by_a_format_error(
    tmp_path_factory: pytest.TempPathFactory, data: bytes
) -> None:
    path = tmp_path_factory.mktemp("hostile") / "statistic.csv"
    path.write_bytes(f"{BASE},Max Value\n".encode() + data + b"\n")
    with contextlib.suppress(FormatError):
        rows_of(path)
