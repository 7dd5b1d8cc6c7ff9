from __future__ import annotations

import pickle
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pytest_npudump.dump.records import Payload, Stats, TensorKey, TensorRecord
from pytest_npudump.dump.table import STATISTICS, StatsTable, layer_of, shape_count, shape_text
from pytest_npudump.errors import DumpError


def record(
    layer: str = "a", slot: int = 0, dtype: str = "float32", shape: Any = (2,), path: str = "d", **stats: Any
) -> Any:
    key = TensorKey(layer, "output", slot)
    return TensorRecord(key, "Add", dtype, shape, Path(path), stats=Stats(**stats) if stats else None)


def test_columns_hold_what_records_say() -> None:
    table = StatsTable.from_records(
        [record(count=2, max=1.5, min=-1.0, avg=0.25, l2norm=2.0, nan=0, neg_inf=0, pos_inf=1, digits=6)]
    )
    assert table.keys == ("a:output.0",)
    assert (table.op_types, table.dtypes, table.shapes, table.counts) == (
        ("Add",),
        ("float32",),
        ("2",),
        (2,),
    )
    np.testing.assert_array_equal(table.values, [[1.5, -1.0, 0.25, 2.0, 0, 0, 1]])
    assert table.known.all()
    assert table.digits.tolist() == [6]
    table = StatsTable.from_records([])
    assert len(table) == 0
    assert table.values.shape == table.known.shape == (0, len(STATISTICS))


def test_values_keep_their_kind_and_integers_beyond_float64_are_exact() -> None:
    """Those of a float tensor are floats even where integral; one that is unknown is None and not NaN."""
    for value in (2**53 + 1, 2**63 - 1, 2**64 - 1, -(2**63)):
        found = StatsTable.from_records([record(dtype="uint64", max=value, min=0)]).value(0, 0)
        assert (found, type(found)) == (value, int)
    table = StatsTable.from_records([record(max=4, min=float(2**60), nan=3)])
    assert [type(table.value(0, at)) for at in (0, 1, 4)] == [float, float, int]
    assert table.wide == {}
    table = StatsTable.from_records([record(max=float("nan"), min=None)])
    assert np.isnan(table.value(0, 0))
    assert table.value(0, 1) is None


def test_many_cells_at_once_are_what_each_is_by_itself() -> None:
    table = StatsTable.from_records(
        [
            record(max=4.0, min=float("nan"), avg=0.5, nan=3),
            record("b", dtype="int64", max=2**53 + 1, min=-7, avg=2.0, nan=0),
            record("c", dtype="-", max=float("inf")),
        ]
    )
    rows, columns = np.indices(table.values.shape).reshape(2, -1)
    found = table.cells(rows, columns)
    expected = [table.value(row, column) for row, column in zip(rows.tolist(), columns.tolist(), strict=True)]
    assert list(map(repr, found)) == list(map(repr, expected))
    assert list(map(type, found)) == list(map(type, expected))


def test_rows_are_the_same_only_digit_for_digit() -> None:
    plain: dict[str, Any] = {"max": 4.0, "min": float("nan"), "avg": 0.5, "nan": 3, "digits": 6}
    wide = {**plain, "dtype": "int64", "max": 2**53 + 1}
    pairs = [
        (plain, plain, True),
        (plain, {**plain, "avg": np.nextafter(0.5, 1)}, False),
        (plain, {**plain, "min": None}, False),
        (plain, {**plain, "min": -0.5}, False),
        (plain, {**plain, "digits": 7}, False),
        (plain, {**plain, "dtype": "float16"}, False),
        (plain, {**plain, "shape": (1, 2)}, False),
        (wide, wide, True),
        (wide, {**wide, "max": 2**53}, False),
    ]
    here, there = (
        StatsTable.from_records([record(str(at), **pair[side]) for at, pair in enumerate(pairs)])
        for side in (0, 1)
    )
    assert here.same_rows(there).tolist() == [same for *_, same in pairs]
    sums = [here.with_projections({0: [1.0, number]}) for number in (2.0, 2.0, 2.5)]
    assert [sums[0].same_rows(other)[0] for other in (*sums, here)] == [True, True, False, False]


def test_counts_are_the_producers_or_of_the_shape_and_digits_of_rows_that_say_something() -> None:
    table = StatsTable.from_records([record(dtype="bfloat16", shape=(2, 3)), record("b", shape=None)])
    assert table.counts == (6, None)
    assert not table.known.any()
    assert StatsTable.from_records([record(shape=(2, 3), count=8)]).counts == (8,)
    for other, digits in ((record("b"), [6, 6]), (record("b", max=1.0), [6, 0])):
        assert StatsTable.from_records([record(digits=6, max=1.0), other]).digits.tolist() == digits


def test_two_records_of_one_key_are_an_error_that_names_both_files() -> None:
    with pytest.raises(DumpError, match=r"two\.csv and one\.csv both claim the tensor a:output\.0"):
        StatsTable.from_records([record(path="one.csv"), record(path="two.csv")])


def test_an_integer_beyond_float64s_range_is_an_error() -> None:
    with pytest.raises(DumpError, match="beyond the range"):
        StatsTable.from_records([record(dtype="int64", max=10**400)])


@pytest.mark.each(
    ("shape", "text", "count"),
    [
        ((1, 8, 24), "1x8x24", 192),
        ((), "-", 1),
        (None, "?", None),
        ((0, 3), "0x3", 0),
        ((-1, 3), "-1x3", None),
    ],
)
def test_shapes_as_text(shape: Any, text: str, count: int) -> None:
    assert shape_text(shape) == text
    assert shape_count(text) == count


@pytest.mark.each("layer", ["conv1", "a/b.c", "a b", "x#y", "p%q", "a:b", "层"])
def test_the_layer_is_found_in_a_keys_text(layer: str) -> None:
    assert layer_of(str(TensorKey(layer, "input", 3, turn=2, rank=1))) == layer


KEY = TensorKey("conv", "output", 0, step=1)
RECORD = TensorRecord(KEY, "Conv", "float16", (1, 2), Path("x"), stats=Stats(count=2, max=1.0))


def test_records_are_equal_hashed_ordered_and_travel_to_other_processes() -> None:
    again = pickle.loads(pickle.dumps(RECORD))  # noqa: S301 - just pickled
    assert again == RECORD
    assert hash(again) == hash(RECORD)
    assert len({KEY, TensorKey("conv", "output", 0, step=1), replace(KEY, step=0)}) == 2
    assert min(KEY, TensorKey("add", "output", 0)).layer == "add"
    assert Payload(Path("x"), 0, 4) == Payload(Path("x"), 0, 4, "raw")
