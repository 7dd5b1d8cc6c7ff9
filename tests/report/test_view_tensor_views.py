"""The tensors of a comparison as charts show them, and the columns of a strip."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_npudump.compare.stats.tables import compare_tables
from pytest_npudump.compare.tolerances.tolerance import Rule, Tolerances
from pytest_npudump.dump.records import Stats, TensorKey, TensorRecord
from pytest_npudump.dump.table import StatsTable
from pytest_npudump.report.view import (
    CHANGED,
    HIGHEST,
    IDENTICAL,
    LOWEST,
    OUTSIDE,
    SOURCE,
    STATES,
    UNJUDGED,
    UNPAIRED,
    TensorView,
    magnitude,
    strip_columns,
    tensor_views,
)

LOOSE = Tolerances("exact", (Rule(rtol=0.0, atol=0.5, source="test"),))


def table(**maxima: float | None) -> StatsTable:
    def record(layer: str, maximum: float | None) -> TensorRecord:
        key = TensorKey(layer, "output", 0)
        if maximum is None:
            return TensorRecord(key, "Add", "float32", (4,), Path("f"))
        shown: dict[str, Any] = {"count": 4, "max": maximum, "min": -1.0, "avg": 0.25, "l2norm": None}
        stats = Stats(**shown, nan=0, neg_inf=0, pos_inf=0, digits=0)
        return TensorRecord(key, "Add", "float32", (4,), Path("f"), stats=stats)

    return StatsTable.from_records(record(*pair) for pair in maxima.items())


def test_each_way_to_come_out_is_told_from_the_others() -> None:
    golden = table(same=1.0, within=1.0, first=1.0, later=1.0, gone=1.0, unknown=None)
    actual = table(same=1.0, within=1.25, first=9.0, later=8.0, unknown=None, new=1.0)
    comparison = compare_tables(golden, actual, LOOSE)
    views = tensor_views(comparison, LOOSE, {TensorKey("first", "output", 0)})
    assert {view.key.layer: view.state for view in views} == {
        "same": IDENTICAL,
        "within": CHANGED,
        "first": SOURCE,
        "later": OUTSIDE,
        "gone": UNPAIRED,
        "unknown": UNJUDGED,
        "new": UNPAIRED,
    }
    first = next(view for view in views if view.state == SOURCE)
    assert (first.golden[0], first.actual[0], first.decided, first.share) == (1.0, 9.0, "max", 16.0)


def test_heights_are_decades_around_the_tolerance() -> None:
    assert [magnitude(share) for share in (0.0, 1.0, 1000.0, math.inf, math.nan, 1e-9)] == [
        LOWEST,
        0.0,
        pytest.approx(3.0),
        HIGHEST,
        0.0,
        LOWEST,
    ]


@given(st.lists(st.tuples(st.sampled_from(STATES), st.floats(0, 1e9)), max_size=300), st.integers(1, 50))
def test_a_strip_covers_every_tensor_once_and_shows_every_column_at_its_worst(
    given_tensors: list[tuple[str, float]], most: int
) -> None:
    key = TensorKey("a", "output", 0)
    tensors = [TensorView(key, "", state, share, "", "", "", (), ()) for state, share in given_tensors]
    columns = strip_columns(tensors, most)
    covered = [at for column in columns for at in range(column.first, column.last + 1)]
    assert covered == [*range(len(tensors))]
    assert len(columns) == min(most, len(tensors))
    for column in columns:
        states = [tensors[at].state for at in range(column.first, column.last + 1)]
        assert column.state == min(states, key=STATES.index)
