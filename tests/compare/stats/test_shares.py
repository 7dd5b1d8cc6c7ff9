"""How much of its allowance each tensor uses up."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_npudump.compare.stats.allowances import shares_of_allowed
from pytest_npudump.compare.stats.tables import compare_tables
from pytest_npudump.compare.tolerances.tolerance import Rule, Tolerances
from pytest_npudump.dump.records import Stats, TensorKey, TensorRecord
from pytest_npudump.dump.table import StatsTable

LOOSE = Tolerances("exact", (Rule(rtol=0.0, atol=0.5, source="test"),))


def table(**maxima: float | None) -> StatsTable:
    def stats(maximum: float | None) -> Stats:
        shown: dict[str, Any] = {"count": 4, "max": maximum, "min": -1.0, "avg": 0.25, "l2norm": None}
        return Stats(**shown, nan=0, neg_inf=0, pos_inf=0, digits=0)

    return StatsTable.from_records(
        TensorRecord(TensorKey(layer, "output", 0), "Add", "float32", (4,), Path("f"), stats=stats(maximum))
        for layer, maximum in maxima.items()
    )


def shares(golden: StatsTable, actual: StatsTable, tolerances: Tolerances = LOOSE) -> list[float]:
    return shares_of_allowed(compare_tables(golden, actual, tolerances), tolerances).tolist()


def test_is_the_difference_by_what_it_may_be() -> None:
    found = shares(table(a=1.0, b=1.0, c=1.0), table(a=1.0, b=1.25, c=6.0))
    assert found == [0.0, pytest.approx(0.5), pytest.approx(10.0)]


def test_is_infinite_where_nothing_may_differ_or_one_side_is_no_number() -> None:
    assert shares(table(a=1.0), table(a=2.0), Tolerances("exact")) == [math.inf]
    assert shares(table(a=1.0), table(a=math.nan)) == [math.inf]


def test_is_none_of_a_tensor_that_only_one_side_has() -> None:
    found = shares(table(a=1.0, b=1.0), table(b=1.0, c=1.0))
    assert sorted(map(math.isnan, found)) == [False, True, True]


def test_what_is_on_the_side_that_no_rule_judges_counts_nothing() -> None:
    above = Tolerances("exact", (Rule(rtol=0.0, atol=0.5, one_sided="above", source="test"),))
    assert shares(table(a=5.0), table(a=1.0), above) == [0.0]


@given(st.lists(st.tuples(st.floats(-1e6, 1e6), st.floats(-1e6, 1e6)), min_size=1, max_size=8))
def test_exceeds_one_exactly_where_the_comparison_fails(pairs: list[tuple[float, float]]) -> None:
    golden = table(**{f"layer{at}": pair[0] for at, pair in enumerate(pairs)})
    actual = table(**{f"layer{at}": pair[1] for at, pair in enumerate(pairs)})
    comparison = compare_tables(golden, actual, LOOSE)
    found = shares_of_allowed(comparison, LOOSE).tolist()
    assert [verdict.status == "fail" for verdict in comparison.verdicts()] == [share > 1 for share in found]
