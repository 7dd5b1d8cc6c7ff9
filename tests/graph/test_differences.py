"""How much tensors differ, held against figures worked out by hand."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import pytest

from pytest_npudump.compare.stats.tables import compare_tables
from pytest_npudump.compare.tolerances.tolerance import Rule, Tolerances
from pytest_npudump.graph.sources import relative_differences, share_of_allowed

if TYPE_CHECKING:
    from collections.abc import Callable

    from pytest_npudump.dump.table import StatsTable

    Make = Callable[..., StatsTable]

BASE: dict[str, Any] = {
    "count": 4,
    "max": 2.0,
    "min": -1.0,
    "avg": 0.5,
    "l2norm": 3.0,
    "nan": 0,
    "pos_inf": 0,
}
TOLERANCES = Tolerances(rules=(Rule(0.25, 0.5),))


def compared(make_table: Make, changed: dict[str, Any], dtype: str = "float32", **before: Any) -> Any:
    sides = [make_table(("a:output.0", dtype, (4,), BASE | before | side)) for side in ({}, changed)]
    return compare_tables(*sides, TOLERANCES)


@pytest.mark.each(
    ("changed", "relative", "share"),
    [
        ({}, 0, 0),
        ({"max": 2.5}, 0.25, 0.5),  # by the magnitude of 2
        ({"min": -1.5}, 0.25, 0.5),
        ({"avg": 0.8}, 0.2, 0.3 / 0.875),  # by the root mean square of 1.5
        ({"l2norm": 3.75}, 0.25, 0.6),  # by itself
        ({"max": 2.5, "l2norm": 3.75}, 0.25, 0.6),
        ({"nan": 1}, math.inf, 0),
        ({"max": math.inf, "pos_inf": 1}, math.inf, math.inf),
        ({"avg": None}, 0, 0),
    ],
)
def test_differences_are_by_the_scale_of_the_tensor(
    make_table: Make, changed: dict[str, Any], relative: float, share: float
) -> None:
    found = compared(make_table, changed)
    assert relative_differences(found).tolist() == [pytest.approx(relative)]
    assert share_of_allowed(found, 0, TOLERANCES) == pytest.approx(share)


def test_projections_tell_the_size_of_a_difference_where_both_sides_have_them(make_table: Make) -> None:
    sums = (3.0, -3.0, 3.0, 3.0, -3.0, 3.0, 3.0, 3.0)
    away = tuple(one + 0.6 for one in sums)
    found = compared(make_table, {"projections": away, "max": 2.1}, projections=sums)
    assert relative_differences(found).tolist() == [pytest.approx(0.2)]  # 0.6 by the l2norm of 3
    assert share_of_allowed(found, 0, TOLERANCES) == pytest.approx(0.6 / (0.5 * 2 + 0.25 * 3))
    found = compared(make_table, {"projections": None, "max": 2.1}, projections=sums)
    assert relative_differences(found).tolist() == [pytest.approx(0.05)]
    found = compared(make_table, {"projections": away, "nan": 1}, projections=sums)
    assert relative_differences(found).tolist() == [math.inf]


def test_equal_nan_and_infinities_are_no_difference(make_table: Make) -> None:
    found = compared(make_table, {}, max=math.inf, min=math.nan, pos_inf=1, nan=2)
    assert relative_differences(found).tolist() == [0]
    assert share_of_allowed(found, 0, TOLERANCES) == 0


def test_another_type_or_shape_is_beyond_any_difference(make_table: Make) -> None:
    golden = make_table(*[(f"{name}:output.0", "float32", (4,), BASE) for name in "abc"])
    actual = make_table(
        ("a:output.0", "float16", (4,), BASE),
        ("b:output.0", "float32", (2, 2), BASE),
        ("d:output.0", "float32", (4,), BASE),
    )
    found = compare_tables(golden, actual, TOLERANCES)
    assert sorted(relative_differences(found).tolist()) == [0, 0, math.inf, math.inf]


def test_a_difference_from_zero_is_beyond_any_scale(make_table: Make) -> None:
    found = compared(make_table, {"max": 1e-3}, max=0.0, min=0.0, avg=0.0, l2norm=0.0)
    assert relative_differences(found).tolist() == [math.inf]
    assert share_of_allowed(found, 0, TOLERANCES) == pytest.approx(2e-3)
