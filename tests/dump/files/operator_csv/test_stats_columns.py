"""Many files at once say what each of them says by itself, of whatever kind they are."""

from __future__ import annotations

import csv
import math
import random
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from pytest_npudump.dump.columns import TensorColumns
from pytest_npudump.dump.files.operator_csv.reader import read_operator_csv
from pytest_npudump.dump.files.operator_csv.stats_columns import read_stats_columns
from pytest_npudump.dump.files.stats_cells import DIGITS
from pytest_npudump.dump.parts import TensorPart, unique_parts
from pytest_npudump.errors import FormatError

if TYPE_CHECKING:
    from pathlib import Path

BASE = "Input/Output,Index,Data Size,Data Type,Format,Shape"
DEFAULT = f"{BASE},Max Value,Min Value,Avg Value,Count,Nan Count,Negative Inf Count,Positive Inf Count"
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
    "1.5",
    "-2",
    "nan",
    "-inf",
    "1e+30",
    "",
    "NA",
    "-",
    "1_0",
    "٣",
    "0x1",
    "9007199254740993",
    "1" * 400,
)
COUNTS = ("0", "3", "", "NA", "-1", "+1", "2.0")
TYPES = (
    "DT_FLOAT",
    "DT_FLOAT16",
    "DT_INT64",
    "DT_INT8",
    "DT_BF16",
    "DT_BOOL",
    "DT_UINT32",
    "DT_DOUBLE",
    "-",
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


def one_by_one(folder: Path, names: list[str]) -> tuple[list[list[TensorPart]], list[str]]:
    parts: list[list[TensorPart]] = []
    problems = []
    for name in names:
        try:
            parts.append(list(unique_parts(read_operator_csv(folder / name), folder / name)))
        except FormatError as error:  # noqa: PERF203 - each by itself
            parts.append([])
            problems.append(str(error))
    return parts, problems


def by_file(columns: TensorColumns, count: int) -> list[list[TensorPart]]:
    parts: list[list[TensorPart]] = [[] for _ in range(count)]
    for at, file in enumerate(columns.file):
        part = TensorPart(
            columns.io[at],
            columns.slot[at],
            columns.dtype[at],
            columns.shape[at],
            columns.format[at],
            columns.size[at],
            columns.stats_of(at),
            columns.note[at],
            digest=columns.digest[at],
        )
        parts[file].append(part)
    return parts


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
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
    columns, problems = read_stats_columns(str(folder), names)
    parts, expected = one_by_one(folder, names)
    # repr tells 1 from 1.0, and takes NaN for NaN.
    assert repr(by_file(columns, len(files))) == repr(parts)
    assert [str(problem) for problem in problems] == expected


def test_the_values_are_those_that_csv_and_float_read(tmp_path: Path) -> None:
    generator = random.Random(0)  # noqa: S311 - values for a test
    names = []
    for number in range(600):
        values = [generator.gauss(0, 10.0 ** generator.randint(-30, 30)) for _ in range(3)]
        line = f"8,DT_FLOAT,ND,3,{values[0]:g},{values[1]:g},{values[2]:g},3,0,0,{number}"
        names.append(f"{number}.csv")
        (tmp_path / names[-1]).write_text(f"{DEFAULT}\nInput,0,{line}\nOutput,{number},{line}\n")
    columns, problems = read_stats_columns(str(tmp_path), names)
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
    assert at == len(columns) == 1200


def test_a_file_that_cannot_be_opened_is_a_problem_and_costs_no_other(tmp_path: Path) -> None:
    (tmp_path / "1.csv").write_text(f"{DEFAULT}\nInput,0,8,DT_FLOAT,ND,2,nan,1,1,2,1,0,0\n")
    columns, (problem,) = read_stats_columns(str(tmp_path), ["0.csv", "1.csv"])
    assert str(problem) == f"{tmp_path / '0.csv'}: cannot be read: No such file or directory"
    assert list(columns.file) == [1]
    stats = columns.stats_of(0)
    assert stats is not None
    assert math.isnan(stats.max or 0)


def test_columns_of_pieces_are_put_behind_each_other_whatever_their_kind() -> None:
    def piece(values: list[float | None]) -> TensorColumns:
        parts = [TensorPart("input", at, "float32", (1,)) for at in range(len(values))]
        columns = TensorColumns.of({0: parts}, DIGITS)
        columns.told = [True] * len(values)
        columns.stats = (None, values if any(value is not None for value in values) else None, *([None] * 7))
        return columns

    whole = TensorColumns.of({}, DIGITS)
    for number, values in enumerate(([1.0], [None], [2.0, None], [], [3.0])):
        whole.append(piece(values), number)
    assert [found.max for at in range(len(whole)) if (found := whole.stats_of(at))] == [
        1.0,
        None,
        2.0,
        None,
        3.0,
    ]
    assert list(whole.file) == [0, 1, 2, 2, 4]
