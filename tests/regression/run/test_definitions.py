"""Statistics by callback against goldens of CANN's writers, real containers and rows of their CSV files."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from pytest_npudump.compare.stats.tables import compare_tables
from pytest_npudump.compare.tolerances.tolerance import Tolerances
from pytest_npudump.dump.callback.receiver import DumpReceiver
from pytest_npudump.dump.reader import read_dump
from pytest_npudump.dump.records import Stats
from pytest_npudump.dump.table import StatsTable
from pytest_npudump.regression.run.definitions import as_recorded, is_printed
from pytest_npudump.request import DumpRequest

if TYPE_CHECKING:
    from pytest_npudump.dump.records import Dump

TREES = sorted((Path(__file__).parents[2] / "data" / "trees" / "acl-dtypes").iterdir())
CALLBACK = DumpRequest(transport="callback")


def _streamed(root: Path, *, acl: bool = False) -> Dump:
    receiver = DumpReceiver(root)
    for path in root.rglob("*"):
        if path.is_file() and path.suffix != ".csv":
            data = path.read_bytes()
            chunk = {"file_name": str(path), "data_buf": data, "buf_len": len(data), "flag": 0}
            receiver({**chunk, "is_last_chunk": 1, "offset": -1})
    return receiver.dump(acl=acl)


def _printed(root: Path, folder: Path) -> StatsTable:
    """The golden that CANN's CSV of the same tensors makes."""
    for path in root.rglob("*.csv"):
        (folder / path.name).write_bytes(path.read_bytes())
    return StatsTable.from_records(read_dump(folder).records)


@pytest.mark.parametrize("root", TREES, ids=lambda path: path.name)
def test_tensors_agree_with_what_cann_printed_of_them(root: Path, tmp_path: Path) -> None:
    golden = _printed(root, tmp_path)
    own, device = _streamed(root), _streamed(root, acl=True)
    chosen = as_recorded(own, device, golden)
    comparison = compare_tables(golden, StatsTable.from_records(chosen.records), Tolerances())
    assert comparison.ok, comparison.failing
    assert comparison.compared == len(golden)


def _table(make_table: Any, **changes: Any) -> StatsTable:
    stats = {
        "count": 3,
        "max": 2.0,
        "min": 1.0,
        "avg": 1.5,
        "nan": 0,
        "neg_inf": 0,
        "pos_inf": 0,
        "digits": 6,
    }
    found: StatsTable = make_table(("a/b:output.0", "float32", (3,), stats | changes))
    return found


@pytest.fixture
def dumps() -> tuple[Dump, Dump]:
    """One tensor with alignment behind its shape: of the shape, and as the device counts."""
    own = _streamed(TREES[0])
    record = replace(own.records[0], key=replace(own.records[0].key, layer="a_b", io="output", slot=0))
    made = [
        Stats(count, 2.0, low, avg, 3.0, 0, 0, 0, 0) for count, low, avg in ((3, 1.0, 1.5), (8, 0.0, 0.5))
    ]
    own, device = (replace(own, records=(replace(record, stats=stats),)) for stats in made)
    return own, device


@pytest.mark.parametrize(
    ("row", "chosen"),
    [
        ({}, 3),
        ({"count": 8}, 8),
        ({"digits": None}, 3),
        ({"count": 8, "digits": None}, 3),
        ({"max": None, "min": None, "avg": None}, 8),
        ({"max": math.nan, "min": math.nan}, 3),
    ],
)
def test_each_row_tells_which_writer_made_it(
    make_table: Any, dumps: tuple[Dump, Dump], row: dict[str, Any], chosen: int
) -> None:
    (record,) = as_recorded(*dumps, _table(make_table, **row)).records
    assert record.stats is not None
    assert record.stats.count == chosen


def test_types_that_the_device_leaves_out_are_compared_where_the_host_has_them(
    make_table: Any, dumps: tuple[Dump, Dump]
) -> None:
    own, device = dumps
    device = replace(device, records=(replace(device.records[0], stats=None, note="none"),))
    assert as_recorded(own, device, _table(make_table)).records == own.records
    bare = _table(make_table, max=None, min=None, avg=None, nan=None, neg_inf=None, pos_inf=None)
    assert as_recorded(own, device, bare).records == device.records


def test_a_tensor_that_the_golden_does_not_have_stays_as_it_is(
    make_table: Any, dumps: tuple[Dump, Dump]
) -> None:
    own, device = dumps
    other = make_table(("c:output.0", "float32", (3,), {"count": 8, "max": 1.0, "digits": 6}))
    assert as_recorded(own, device, other) == own


def test_only_a_callback_meets_a_printed_golden(make_table: Any) -> None:
    assert is_printed(CALLBACK, _table(make_table))
    assert not is_printed(CALLBACK, _table(make_table, digits=None))
    assert not is_printed(CALLBACK, None)
    assert not is_printed(DumpRequest(), _table(make_table))
