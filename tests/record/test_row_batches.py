from __future__ import annotations

import tracemalloc

import numpy as np
import pytest

from pytest_npudump.record import rows
from pytest_npudump.record.rows import COLUMNS, RowError, parse_rows, parse_table

ROWS = 500
FULL = (*COLUMNS, "count", "digits", "digest")
DTYPES = ("int64", "float16", "int64")
LINES = [
    f"net/layer.{row}:output.0 {DTYPES[row % 3]} 1x{row % 7 + 1} {9007199254740993 + row} -1 0.5 - 0 0 0 "
    f"{row} {row % 2 * 6} md5:{row:04x}\n"
    for row in range(ROWS)
]


@pytest.fixture(autouse=True)
def _small_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rows, "_BATCH", 1000)


@pytest.mark.each("rows", [0, 1, 11, ROWS])
@pytest.mark.each("last", ["\n", ""])
def test_a_table_in_batches_is_the_table_in_one_go(rows: int, last: str) -> None:
    block = "".join(LINES[:rows]).removesuffix("\n") + (last if rows else "")
    found, expected = parse_table(block, FULL, 0), parse_rows(block, FULL, 0)
    for name in ("keys", "op_types", "dtypes", "shapes", "counts", "wide", "digests"):
        assert getattr(found, name) == getattr(expected, name)
    for name in ("values", "known", "digits"):
        np.testing.assert_array_equal(getattr(found, name), getattr(expected, name), strict=True)


@pytest.mark.each("row", [0, 250, ROWS - 1])
def test_a_fault_is_in_the_row_of_the_whole_table(row: int) -> None:
    lines = [*LINES[:row], "x\n", *LINES[row + 1 :]]
    with pytest.raises(RowError, match=f"row {row}: 1 cells, expected 13"):
        parse_table("".join(lines), FULL, 0)


def test_a_tensor_that_occurs_again_in_a_later_batch_is_refused() -> None:
    with pytest.raises(
        RowError, match=r"row 500: the tensor net/layer\.3:output\.0 stands here a second time"
    ):
        parse_table("".join([*LINES, LINES[3]]), FULL, 0)


def test_a_large_table_takes_less_memory_than_its_cells(monkeypatch: pytest.MonkeyPatch) -> None:
    block = "".join(
        f"net/layer.{row}:output.0 float16 1x8 0.123456 -0.5 0.1 0.2 0 0 0\n" for row in range(20_000)
    )

    def peak() -> int:
        tracemalloc.start()
        parse_table(block, COLUMNS, 6)
        found = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return found

    batched = peak()
    monkeypatch.setattr(rows, "_BATCH", len(block))
    assert batched < 0.7 * peak()
