from __future__ import annotations

import contextlib
import csv
import math
import random
import re
from array import array
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, example, given, settings, strategies as st

from pytest_npudump.dump.columns import TensorColumns, TensorPart
from pytest_npudump.dump.files.operator_csv import DIGITS, parse_operator_csv, read_operator_csv
from pytest_npudump.dump.records import Stats
from pytest_npudump.errors import FormatError

DATA = Path(__file__).parents[2] / "data" / "trees"
BASE = "Input/Output,Index,Data Size,Data Type,Format,Shape"
DEFAULT = f"{BASE},Max Value,Min Value,Avg Value,Count,Nan Count,Negative Inf Count,Positive Inf Count"
CUSTOM = f"{BASE},Count,Max Value,Min Value,Avg Value,Nan Count,Negative Inf Count,Positive Inf Count,l2norm"
STICKY = (
    f"{BASE},Count,Max Value,Min Value,Avg Value,Count,Nan Count,Negative Inf Count,Positive Inf Count,l2norm"
)


def by_file(columns: TensorColumns, count: int) -> list[list[TensorPart]]:
    parts = columns.parts()
    return [parts.get(at, []) for at in range(count)]


def parse_bytes(data: bytes) -> list[TensorPart]:
    columns, problems = parse_operator_csv({0: data}, lambda _: Path("x.csv"))
    for problem in problems.values():
        raise problem
    return by_file(columns, 1)[0]


def read(path: Path) -> list[TensorPart]:
    columns, problems = read_operator_csv(str(path.parent), [path.name])
    for problem in problems:
        raise problem
    return by_file(columns, 1)[0]


def parse(*lines: str) -> list[TensorPart]:
    return parse_bytes("".join(f"{line}\n" for line in lines).encode())


def only(*lines: str) -> TensorPart:
    (row,) = parse(*lines)
    return row


def stats_of(row: TensorPart) -> Stats:
    assert row.stats is not None
    return row.stats


def host_files(name: str) -> list[tuple[str, ...]]:
    """The files that one process of CANN's converter wrote, in order (see the samples' README)."""
    text = (DATA / "acl-stats-host" / name).read_text()
    return [tuple(part.splitlines()) for part in re.split(r"\[.* ok=1\]\n", text)[1:]]


NAMES = "FLOAT FLOAT16 INT8 UINT8 INT16 UINT16 INT32 INT64 UINT32 UINT64 BOOL DOUBLE"
FOLDERS = {f"{at}_{name}": name.lower() for at, name in enumerate(NAMES.split(), 1)}


@pytest.mark.each("folder", FOLDERS)
def test_what_the_device_printed_is_what_numpy_finds_in_its_tensor(folder: str) -> None:
    dtype = {"float": "float32", "double": "float64"}.get(FOLDERS[folder], FOLDERS[folder])
    files = list((DATA / "acl-dtypes" / folder).iterdir())
    (table,) = (path for path in files if path.suffix == ".csv")
    (tensor,) = (path for path in files if path.suffix != ".csv")
    row = read(table)[0]
    values = np.frombuffer(tensor.read_bytes()[-240:], np.uint8 if dtype == "bool" else np.dtype(dtype))
    stats = stats_of(row)
    assert (row.dtype, row.shape, stats.count) == (dtype, values.shape, values.size)
    if values.dtype.kind == "f":
        known = values[~np.isnan(values)]
        assert (stats.max, stats.min) == (float(f"{known.max():.6g}"), float(f"{known.min():.6g}"))
        assert stats.nan == values.size - known.size
    else:
        assert (stats.max, stats.min, type(stats.max)) == (int(values.max()), int(values.min()), int)
        assert stats.avg == pytest.approx(sum(map(int, values)) / values.size, rel=1e-5)


def test_trap_13_all_spellings_of_the_headers_mean_the_same() -> None:
    row = "Input,0,8,DT_FLOAT,ND,2,2,1,1.5,0,0,0,2.23607"
    expected = Stats(None, 2.0, 1.0, 1.5, 2.23607, 0, 0, 0, None, 6)
    for nan in ("Nan Count", "NaN Count"):
        for norm in ("l2norm", "L2Norm Value", "L2 Value"):
            header = (
                f"{BASE},Max Value,Min Value,Avg Value,{nan},Negative Inf Count,Positive Inf Count,{norm}"
            )
            assert stats_of(only(header, row)) == expected
    assert only(f"{BASE},Max Value", "output,3,8,DT_FLOAT,ND,2,2").io == "output"


@pytest.mark.each("mark", ["", "NA", "-", "UNKNOW", "null"])
def test_trap_14_each_no_value_mark_is_unknown(mark: str) -> None:
    cells = ",".join([mark] * 7)
    row = only(DEFAULT, f"Input,0,8,DT_FLOAT,ND,2,{cells}")
    assert row.stats is None
    assert "no statistics" in row.note
    named = only(DEFAULT, f"Input,0,8,{mark or '-'},{mark or '-'},-,{cells}")
    assert named.format == ""
    assert named.shape == ()


def test_trap_15_types_without_statistics_keep_what_is_known_of_them() -> None:
    path = next(DATA.joinpath("acl-dtypes", "27_BF16").glob("*.csv"))
    (bf16,) = read(path)
    assert (bf16.dtype, bf16.shape, bf16.size, bf16.stats) == ("-", (120,), 240, None)
    (pair,) = read(next(DATA.joinpath("acl-dtypes", "16_COMPLEX64").glob("*.csv")))
    assert (pair.dtype, pair.shape, pair.stats) == ("complex64", (30,), None)
    host = parse(*host_files("one_process_sticky.txt")[0])[1]
    assert (host.dtype, stats_of(host).max, stats_of(host).min) == ("bfloat16", 3.14159, -math.inf)


def test_trap_16_a_failed_row_of_a_chosen_set_is_one_cell_short() -> None:
    good, failed = parse(*host_files("fresh_process_custom.txt")[0])
    assert stats_of(good) == Stats(4, 1.0, -1.0, 0.5, 1.5, 0, 0, 0, None, 6)
    assert failed.stats is None
    assert failed.shape == (4,)


def test_trap_16_after_a_default_set_count_moves_and_the_header_has_it_twice() -> None:
    _, _, wide, narrow = host_files("one_process_sticky.txt")
    good, failed = parse(*wide)
    assert stats_of(good) == Stats(4, 1.0, -1.0, 0.5, 1.5, 0, 0, 0, None, 6)
    assert stats_of(failed) == Stats(4, None, None, None, None, None, None, None, None, 6)
    assert stats_of(only(*narrow)) == Stats(None, 1.0, -1.0, None, 1.5, digits=6)


def test_trap_16_a_header_may_come_again_in_the_middle() -> None:
    rows = parse(
        DEFAULT,
        *(f"Input,{slot},4,DT_INT32,ND,1,7,7,7,1,0,0,0" for slot in range(10)),
        DEFAULT,
        "Output,10,4,DT_INT32,ND,1,8,8,8,1,0,0,0",
    )
    assert [row.slot for row in rows] == list(range(11))
    assert stats_of(rows[-1]).max == 8


def test_trap_16_a_later_chunk_may_lay_its_cells_out_otherwise_than_the_header_says() -> None:
    fresh = [f"Input,{slot},16,DT_FLOAT,ND,4,4,1,-1,0.5,0,0,0,1.5" for slot in range(10)]
    late = "Output,0,16,DT_FLOAT,ND,4,9,-1,0.5,4,0,0,0,1.5"
    assert stats_of(parse(CUSTOM, *fresh, late)[-1]) == Stats(4, 9.0, -1.0, 0.5, 1.5, 0, 0, 0, None, 6)
    with pytest.raises(FormatError, match=r"line 2: .*no reading agrees with the shape"):
        parse(CUSTOM, late)


def test_a_row_that_two_layouts_read_differently_is_refused() -> None:
    fresh = [f"Input,{slot},16,DT_FLOAT,ND,4,4,1,-1,0.5,0,0,0,1.5" for slot in range(10)]
    with pytest.raises(FormatError, match=r"line 12: .*two readings agree with the shape"):
        parse(CUSTOM, *fresh, "Output,0,16,DT_FLOAT,ND,4,4,7,-1,4,0,0,0,1.5")
    same = parse(CUSTOM, *fresh, "Output,0,16,DT_FLOAT,ND,4,4,4,4,4,0,0,0,8")[-1]
    assert stats_of(same).max == 4.0


@pytest.mark.each(
    ("header", "row"),
    [
        (DEFAULT, "Input,0,8,DT_FLOAT,ND,2,2,1,1.5,2,0,0"),
        (DEFAULT, "Input,0,8,DT_FLOAT,ND,2,2,1,1.5,2,0,0,0,0"),
        (DEFAULT, "Input,0,8,DT_FLOAT,ND,2,2,1,1.5,2,0,0,0,"),
        (DEFAULT, "Input,0,8"),
        (CUSTOM, "Input,0,16,DT_FLOAT,ND,4,1,-1,0.5,0,0,0,1.5"),
        (CUSTOM, "Input,0,16,DT_FLOAT,ND,4,5,1,-1,0.5,0,0,0,1.5"),
        (STICKY, "Input,0,16,DT_FLOAT,ND,4,4,1,-1,0.5,4,0,0,0,1.5"),
        (STICKY, "Input,0,16,DT_FLOAT,ND,4,1,-1,0.5,5,0,0,0,1.5"),
    ],
)
def test_a_row_whose_cells_cannot_be_assigned_is_an_error_with_its_place(header: str, row: str) -> None:
    with pytest.raises(FormatError, match=rf"x\.csv, byte {len(header) + 1}: line 2: ") as caught:
        parse(header, row)
    assert caught.value.offset == len(header) + 1


@pytest.mark.each(
    "row",
    [
        *("Input,0,8,DT_FLOAT,ND,2,x,1,1.5,2,0,0,0", "Input,0,8,DT_FLOAT,ND,2,2_0,1,1.5,2,0,0,0"),
        *("Input,0,8,DT_FLOAT,ND,2,2,1,1.5,-2,0,0,0", "Input,0,8,DT_FLOAT,ND,2,2,1,1.5,2.0,0,0,0"),
        *("Input,0,8,DT_FLOAT,ND,2y,2,1,1.5,2,0,0,0", "Input,0,8,DT_FLOAT,ND,2x-3,2,1,1.5,2,0,0,0"),
        *("Input,a,8,DT_FLOAT,ND,2,2,1,1.5,2,0,0,0", "Input,,8,DT_FLOAT,ND,2,2,1,1.5,2,0,0,0"),
        *("Inputs,0,8,DT_FLOAT,ND,2,2,1,1.5,2,0,0,0", "Input,0,big,DT_FLOAT,ND,2,2,1,1.5,2,0,0,0"),
    ],
)
def test_a_cell_of_the_wrong_kind_is_an_error_with_its_line(row: str) -> None:
    with pytest.raises(FormatError, match=r"line 2: "):
        parse(DEFAULT, row)


@pytest.mark.each(
    "header",
    [
        *("", "Input,0,8,DT_FLOAT,ND,2,2,1,1.5,2,0,0,0"),
        *("Input/Output,Index,Data Size,Format,Data Type,Shape,Max Value", f"{BASE},Max Value,Max Value"),
        *(f"{BASE},Count,Max Value,Count,Nan Count,Count", f"{BASE},Max Value,Count,Count"),
    ],
)
def test_an_unknown_header_is_an_error(header: str) -> None:
    with pytest.raises(FormatError, match=r"line 1: "):
        parse(header)


def test_an_unknown_column_is_named_and_the_others_are_read() -> None:
    row = only(f"{BASE},Max Value,Median Value,Min Value", "Input,0,8,DT_FLOAT,ND,2,2,1.5,1")
    assert (stats_of(row).max, stats_of(row).min) == (2.0, 1.0)
    assert row.note == "unknown columns were not read: Median Value"


def test_a_file_that_is_cut_short_or_no_text_is_an_error(tmp_path: Path) -> None:
    for data, reason in (
        (b"", "the file is empty"),
        (DEFAULT.encode(), "no line feed"),
        (f"{DEFAULT}\n".encode(), "a header and no row"),
        (f"{DEFAULT}\nInput,0,8,DT_FLOAT,ND,2,2,1,1.5,2,0,0,1".encode(), "no line feed"),
        (f"{DEFAULT}\nInput,0,8,DT_FLOAT,ND,2\xff\n".encode("latin-1"), "expected ASCII"),
        (b"\0" * 100 + b"\n", "expected a header"),
    ):
        with pytest.raises(FormatError, match=reason):
            parse_bytes(data)
    path = tmp_path / "x.csv"
    with pytest.raises(FormatError, match=r"x\.csv: cannot be read"):
        read(path)
    with path.open("wb") as file:
        file.truncate(1 << 40)  # which is not read to its end
    with pytest.raises(FormatError, match="no text file of a dump"):
        read(path)


def test_a_trailing_nul_and_carriage_returns_are_taken() -> None:
    text = f"{DEFAULT}\r\nInput,0,8,DT_FLOAT,ND,2,2,1,1.5,2,0,0,0\r\n"
    (row,) = parse_bytes(text.encode() + b"\0")
    assert stats_of(row).pos_inf == 0


HOST, FEW, LONE = f"{BASE},Count,Max Value,Min Value", f"{BASE},Max Value,Min Value", f"{BASE},Max Value"


@pytest.mark.each(
    ("header", "row", "high", "low", "note"),
    [
        (HOST, "Output,1,64,DT_UINT64,NCHW,8,8,705032704,1", None, None, "32 bits"),  # words of the host
        (DEFAULT, "Output,1,64,DT_UINT64,NCHW,8,705032704,1,2.5e+09,8,0,0,0", None, None, "32 bits"),
        (DEFAULT, "Input,0,12,DT_UINT32,ND,3,-1,0,1.43166e+09,3,0,0,0", 4294967295, 0, "signed"),
        (DEFAULT, "Input,0,12,DT_UINT32,ND,3,4294967295,0,1.43166e+09,3,0,0,0", 4294967295, 0, ""),
        (
            DEFAULT,  # only the device can have written it
            "Input,0,240,DT_DOUBLE,ND,30,1.33818e+306,-1.50058e+231,4.46061e+304,30,0,0,0",
            1.33818e306,
            -1.50058e231,
            "",
        ),
        (DEFAULT, "Input,0,240,DT_DOUBLE,ND,30,12,-7,4.46061e+304,30,0,0,0", None, None, "32 bits"),
        (FEW, "Input,0,8,DT_UINT64,ND,1,7,7", 7, 7, ""),
        (DEFAULT, "Input,0,1,DT_BOOL,ND,1,-1,0,0.5,1,0,0,0", None, None, "32 bits"),
        (f"{BASE},Avg Value", "Input,0,8,DT_UINT64,ND,1,7", None, None, ""),
        *(
            (LONE, f"Input,0,8,DT_FLOAT,ND,2,{text}", float(text), None, "")
            for text in ("nan", "-nan", "NaN", "NAN", "inf", "-inf", "Inf")
        ),
    ],
)
def test_trap_17_extremes_are_right_or_unknown(
    header: str, row: str, high: float | None, low: float | None, note: str
) -> None:
    found = only(header, row)
    assert repr((stats_of(found).max, stats_of(found).min)) == repr((high, low))
    assert note in found.note
    assert bool(note) is bool(found.note)


def test_trap_17_the_real_host_file_gives_no_wrong_extreme() -> None:
    rows = parse(*host_files("one_process_sticky.txt")[0])
    by_type = {row.dtype: stats_of(row) for row in rows}
    assert by_type["uint64"].max is None  # 5000000000 was printed as 705032704
    assert by_type["float64"].max is None
    assert by_type["-"].max is None
    assert (by_type["int64"].max, by_type["int64"].count) == (100, 80000)


def test_an_empty_shape_cell_of_the_tlv_writer_is_a_scalar_and_too_many_dims_are_unknown() -> None:
    assert only(f"{BASE},Max Value", "Input,0,4,DT_FLOAT,ND,,2").shape == ()
    assert only(f"{BASE},Max Value", "Input,0,4,DT_FLOAT,ND,NA,2").shape is None


@given(st.integers(-(2**63), 2**63 - 1), st.integers(0, 2**63))
def test_wide_integers_stay_exact(value: int, count: int) -> None:
    row = only(DEFAULT, f"Input,0,8,DT_INT64,ND,1,{value},{value},1.5,{count},0,0,0")
    assert (stats_of(row).max, stats_of(row).min, stats_of(row).count) == (value, value, count)


@pytest.mark.parametrize("before", ["", f"{DEFAULT}\n", f"{CUSTOM}\n"])
@given(st.binary(max_size=300))
def test_no_bytes_make_the_reader_fail_otherwise_than_by_a_format_error(before: str, data: bytes) -> None:
    with contextlib.suppress(FormatError):
        parse_bytes(before.encode() + data + b"\n")


@given(st.data())
def test_a_row_cut_anywhere_is_never_read_as_other_numbers(data: st.DataObject) -> None:
    line = "Input,0,16,DT_FLOAT,ND,4,4,1.25,-1.5,0.5,0,0,0,1.75"
    cut = data.draw(st.integers(0, len(line) - 1))
    with pytest.raises(FormatError):
        parse_bytes(f"{CUSTOM}\n{line[:cut]}".encode())


@pytest.mark.each("dtype", ["DT_", ""])
def test_a_row_without_the_name_of_a_type_is_damaged(dtype: str) -> None:
    with pytest.raises(FormatError, match=r"line 2: .* is no data type"):
        parse_bytes(f"{DEFAULT}\nInput,0,8,{dtype},ND,1,1,1,1.5,1,0,0,0\n".encode())


HEADERS = (
    DEFAULT,
    f"{BASE},Count,Max Value,Min Value,Avg Value,Nan Count",
    f"{BASE},Count,Max Value,Min Value,l2norm",
    f"{BASE},Count,Max Value,Min Value,Count,Nan Count",
    f"{BASE},Max Value,Min Value,MD5",
    f"{BASE},Count,l2norm",
    f"{BASE},Max Value,Median Value",
    BASE,
    BASE.lower(),
    f"{BASE},Max Value,Max Value",
)
SHAPES = {"3x4": "12", "-": "1", "0x3": "0", "NA": "1", "(2,3)": "6", "": "1"}

NUMBERS = (
    *("1.5", "-2", "nan", "-inf", "1e+30", "", "NA", "-", "1_0", "٣", "0x1", "9007199254740993"),
    "1" * 400,
)
COUNTS = ("0", "3", "", "NA", "-1", "+1", "2.0")
TYPES = (
    *("DT_FLOAT", "DT_FLOAT16", "DT_INT64", "DT_INT8", "DT_BF16", "DT_BOOL", "DT_UINT32", "DT_DOUBLE", "-"),
    "x",
)
usual = st.integers(0, 9)


@st.composite
def rows(draw: st.DrawFn, header: str) -> str:
    """Draw a row: mostly a plain one, with any oddity now and then."""
    shape = draw(st.sampled_from(tuple(SHAPES))) if not draw(usual) else "3x4"
    cells = [draw(st.sampled_from(("Input", "Output")))]
    cells += [draw(st.sampled_from(("0", "1", "2")) if draw(usual) else st.sampled_from(COUNTS))]
    cells += ["8", draw(st.sampled_from(TYPES) if not draw(st.integers(0, 3)) else st.just("DT_FLOAT"))]
    cells += [draw(st.sampled_from(("ND", "NCHW", "-", "UNKNOW"))), shape]
    for title in header.split(",")[6:]:
        if title == "Count":
            cells.append(SHAPES[shape] if draw(usual) else draw(st.sampled_from(COUNTS)))
        elif "Count" in title:
            cells.append(draw(st.sampled_from(COUNTS)) if not draw(usual) else "0")
        else:
            number = f"{draw(st.floats(-1e6, 1e6)):g}"
            cells.append(draw(st.sampled_from(NUMBERS)) if not draw(usual) else number)
    if not draw(usual):
        cells = cells[: draw(st.integers(0, len(cells)))] if draw(st.booleans()) else [*cells, "0"]
    if not draw(usual):
        cells[6:] = [""] * len(cells[6:])
    return ",".join(cells)


@st.composite
def contents(draw: st.DrawFn) -> bytes:
    """Draw the bytes of a file: mostly whole, under the default header."""
    header = DEFAULT if draw(st.integers(0, 2)) else draw(st.sampled_from(HEADERS))
    found = draw(st.lists(rows(header), min_size=0 if not draw(usual) else 1, max_size=4))
    if not draw(usual):
        found = (found * 6)[: draw(st.integers(8, 13))]
    if not draw(usual):
        found.insert(draw(st.integers(0, len(found))), header)
    data = "".join(f"{line}\n" for line in (header, *found)).encode()
    odd = draw(st.sampled_from(("", "", "", "", "nul", "crlf", "cut", "cr", "empty", "headless")))
    return {
        "nul": data + b"\0",
        "crlf": data.replace(b"\n", b"\r\n"),
        "cut": data[: draw(st.integers(0, len(data)))],
        "cr": data.replace(b",", b"\r,", 20),
        "empty": b"",
        "headless": data[data.find(b"\n") + 1 :],
    }.get(odd, data)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(contents(), min_size=1, max_size=6))
@example([f"{DEFAULT}\nInput,0,8,DT_INT64,ND,2,9007199254740993,-9007199254740993,0,2,0,0,0\n".encode()])
@example(
    [f"{DEFAULT}\nOutput,0,8,DT_FLOAT,ND,2,1,1,1,2,0,0,0\nInput,0,8,DT_FLOAT,ND,2,1,1,1,2,0,0,0\n".encode()]
)
@example([f"{DEFAULT}\nInput,0,8,DT_UINT32,ND,2,-inf,-inf,-inf,2,0,0,0\n".encode()])
@example([f"{DEFAULT}\nInput,0,8,DT_BF16,ND,2,,,,,,,\n".encode()] * 2)
def test_many_files_at_once_say_what_each_says_by_itself(folder: Path, files: list[bytes]) -> None:
    for old in folder.iterdir():
        old.unlink()
    names = [f"{at}.csv" for at in range(len(files))]
    for name, data in zip(names, files, strict=True):
        (folder / name).write_bytes(data)
    columns, problems = read_operator_csv(str(folder), names)
    parts: list[list[TensorPart]] = []
    expected: list[str] = []
    for name in names:
        one, failed = read_operator_csv(str(folder), [name])
        parts += by_file(one, 1)
        expected += map(str, failed)
    # repr tells 1 from 1.0, and takes NaN for NaN.
    assert repr(by_file(columns, len(files))) == repr(parts)
    assert list(map(str, problems)) == expected


def test_the_values_are_those_that_csv_and_float_read(tmp_path: Path) -> None:
    generator = random.Random(0)  # noqa: S311 - values for a test
    names = []
    for number in range(200):
        values = [generator.gauss(0, 10.0 ** generator.randint(-30, 30)) for _ in range(3)]
        line = f"8,DT_FLOAT,ND,3,{values[0]:g},{values[1]:g},{values[2]:g},3,0,0,{number}"
        names.append(f"{number}.csv")
        (tmp_path / names[-1]).write_text(f"{DEFAULT}\nInput,0,{line}\nOutput,{number},{line}\n")
    columns, problems = read_operator_csv(str(tmp_path), names)
    assert not problems
    at = 0
    for name in names:
        with (tmp_path / name).open(newline="") as file:
            for row in csv.DictReader(file):
                stats = columns.stats_of(at)
                assert stats is not None
                assert (stats.max, stats.min, stats.avg) == tuple(
                    float(row[title]) for title in ("Max Value", "Min Value", "Avg Value")
                )
                assert (stats.pos_inf, columns.slot[at]) == (
                    int(row["Positive Inf Count"]),
                    int(row["Index"]),
                )
                at += 1
    assert at == len(columns) == 400


def test_a_file_that_cannot_be_opened_is_a_problem_and_costs_no_other(tmp_path: Path) -> None:
    (tmp_path / "1.csv").write_text(f"{DEFAULT}\nInput,0,8,DT_FLOAT,ND,2,nan,1,1,2,1,0,0\n")
    columns, (problem,) = read_operator_csv(str(tmp_path), ["0.csv", "1.csv"])
    assert str(problem) == f"{tmp_path / '0.csv'}: cannot be read: No such file or directory"
    assert list(columns.file) == [1]
    stats = columns.stats_of(0)
    assert stats is not None
    assert math.isnan(stats.max or 0)


def test_columns_of_pieces_are_put_behind_each_other_whatever_their_kind() -> None:
    def piece(values: list[float | None]) -> TensorColumns:
        count = len(values)
        told = values if any(value is not None for value in values) else None
        return TensorColumns(
            array("q", [0] * count),
            ["input"] * count,
            list(range(count)),
            ["float32"] * count,
            [(1,)] * count,
            [""] * count,
            [None] * count,
            [""] * count,
            [""] * count,
            [DIGITS] * count,
            (None, told, *([None] * 7)),
        )

    whole = TensorColumns()
    pieces: list[list[float | None]] = [[1.0], [None], [2.0, None], [], [3.0]]
    for number, values in enumerate(pieces):
        whole.append(piece(values), number)
    assert [found.max for at in range(len(whole)) if (found := whole.stats_of(at))] == [
        1.0,
        None,
        2.0,
        None,
        3.0,
    ]
    assert list(whole.file) == [0, 1, 2, 2, 4]
