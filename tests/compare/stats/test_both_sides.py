"""What both sides of a comparison tell."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_npudump.compare.stats.allowances import told_by_both
from pytest_npudump.compare.stats.tables import compare_tables
from pytest_npudump.compare.tolerances.tolerance import Tolerances

if TYPE_CHECKING:
    from collections.abc import Callable

    from pytest_npudump.dump.table import StatsTable

SUMS = [1.0] * 8


def told(table: StatsTable, statistic: str) -> dict[str, bool]:
    return dict(zip(table.keys, table.tells(statistic).tolist(), strict=True))


def test_what_one_side_lacks_of_a_shared_tensor_is_left_out(make_table: Callable[..., StatsTable]) -> None:
    norm = {"max": 1.0, "l2norm": 1.0}
    golden = make_table(
        ("gone:output.0", "float32", (1,), norm),
        ("a:output.0", "float32", (1,), norm),
        ("b:output.0", "float32", (1,), {"max": 1.0}),
    ).with_projections({0: SUMS, 1: SUMS})
    actual = make_table(
        ("b:output.0", "float32", (1,), norm),
        ("a:output.0", "float32", (1,), norm),
        ("new:output.0", "float32", (1,), norm),
    ).with_projections({0: SUMS, 1: SUMS, 2: SUMS})
    here, there = told_by_both(compare_tables(golden, actual, Tolerances()))
    for statistic in ("l2norm", "projections"):
        assert told(here, statistic) == {"gone:output.0": True, "a:output.0": True, "b:output.0": False}
        assert told(there, statistic) == {"b:output.0": False, "a:output.0": True, "new:output.0": True}
    assert all(told(here, "max").values())
    assert told(golden, "l2norm")["a:output.0"]
    assert told(actual, "projections")["b:output.0"]


def test_projections_of_one_side_alone_are_left_out(make_table: Callable[..., StatsTable]) -> None:
    plain = make_table(("a:output.0", "float32", (1,), {"max": 1.0}))
    projected = plain.with_projections({0: SUMS})
    here, there = told_by_both(compare_tables(projected, plain, Tolerances()))
    assert not here.tells("projections").any()
    assert not there.tells("projections").any()
