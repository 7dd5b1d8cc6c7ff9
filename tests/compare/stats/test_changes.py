"""Has it changed, and is it wrong: two questions about one comparison."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_npudump.compare.stats.tables import compare_tables
from pytest_npudump.compare.tolerances.tolerance import Rule, Tolerances

if TYPE_CHECKING:
    from collections.abc import Callable

    from pytest_npudump.compare.stats.verdict import Comparison
    from pytest_npudump.dump.table import StatsTable

    Make = Callable[..., StatsTable]

BASE: dict[str, Any] = {
    "count": 4,
    "max": 2.5,
    "min": -1.0,
    "avg": 0.5,
    "l2norm": 4.0,
    "nan": 0,
    "neg_inf": 0,
    "pos_inf": 0,
    "digits": None,
}


def compared(make_table: Make, *pairs: tuple[dict[str, Any], dict[str, Any]], dtype: str = "float32") -> Any:
    sides = [
        make_table(*[(f"layer{n}:output.0", dtype, (4,), BASE | pair[s]) for n, pair in enumerate(pairs)])
        for s in (0, 1)
    ]
    return compare_tables(sides[0], sides[1], Tolerances())


def counts(comparison: Comparison) -> tuple[int, int, int]:
    return comparison.identical, comparison.changed, len(comparison.failing)


def test_identical_changed_and_outside_are_told_apart(make_table: Make) -> None:
    found = compared(make_table, ({}, {}), ({}, {"max": 2.5 * (1 + 1e-6)}), ({}, {"max": 2.6}))
    assert counts(found) == (1, 1, 1)
    assert str(found.first_change) == "layer1:output.0"
    assert str(found.first.key) == "layer2:output.0"
    assert [verdict.changed for verdict in found.verdicts()] == [False, True, False]


def test_what_fails_first_is_the_first_change_where_nothing_changed_before(make_table: Make) -> None:
    found = compared(make_table, ({}, {}), ({}, {"max": 2.6}), ({}, {"avg": 0.5 * (1 + 1e-7)}))
    assert str(found.first_change) == "layer1:output.0"
    assert counts(found) == (1, 1, 1)


def test_nothing_changed_has_no_first_change(make_table: Make) -> None:
    found = compared(make_table, ({"avg": math.nan}, {"avg": math.nan}), ({"max": 0.0}, {"max": -0.0}))
    assert found.first_change is None
    assert found.to_json()["first_change"] is None
    assert counts(found) == (2, 0, 0)


@pytest.mark.each(
    ("golden", "actual", "changed"),
    [
        ({"digits": 6, "max": 2.50001}, {"digits": 6, "max": 2.50002}, True),
        ({"digits": 6, "max": 2.50001}, {"digits": 6, "max": 2.50001}, False),
        ({"digits": 6, "max": 2.50001}, {"max": 2.500009}, False),
        ({"digits": 6, "max": 2.50001}, {"max": 2.500016}, True),
        ({"max": 2.500009}, {"digits": 6, "max": 2.50001}, False),
        ({"max": 2.5}, {"max": math.nextafter(2.5, 3)}, True),
    ],
)
def test_a_value_is_compared_with_the_digits_that_are_printed(
    make_table: Make, golden: dict[str, Any], actual: dict[str, Any], *, changed: bool
) -> None:
    found = compared(make_table, (golden, actual))
    assert found.passed == 1
    assert bool(found.changed) is changed


def test_integers_changed_by_one_fail_and_the_order_of_their_sum_is_no_change(make_table: Make) -> None:
    far = compared(make_table, ({"max": 2**60}, {"max": 2**60 + 1}), dtype="int64")
    assert counts(far) == (0, 0, 1)
    near = compared(make_table, ({"avg": 0.5}, {"avg": math.nextafter(0.5, 1)}), dtype="int64")
    assert counts(near) == (1, 0, 0)


finite = st.floats(-1e6, 1e6, width=32)


@given(golden=st.lists(finite, min_size=1, max_size=5), data=st.data())
def test_full_precision_changes_are_exactly_the_values_that_are_not_equal(
    make_table: Make, golden: list[float], data: st.DataObject
) -> None:
    above = [float(np.nextafter(np.float32(g), np.float32(9e9))) for g in golden]
    actual = [data.draw(st.sampled_from(pair)) for pair in zip(golden, above, strict=True)]
    found = compared(make_table, *[({"max": g}, {"max": a}) for g, a in zip(golden, actual, strict=True)])
    unequal = [n for n, (g, a) in enumerate(zip(golden, actual, strict=True)) if g != a]
    assert sorted(found.differing) == unequal
    first = found.first_change
    assert (None if first is None else str(first)) == (f"layer{unequal[0]}:output.0" if unequal else None)


def test_integers_that_no_float_tells_apart_have_changed(make_table: Make) -> None:
    rule = Rule(0.0, 5.0, dtype="int64", reason="a trial")
    sides = [make_table(("a:output.0", "int64", (4,), BASE | {"max": 2**53 + n})) for n in (0, 1)]
    found = compare_tables(*sides, Tolerances(rules=(rule,)))
    assert counts(found) == (0, 1, 0)


def test_the_first_change_within_tolerance_is_none_that_fails(make_table: Make) -> None:
    found = compared(make_table, ({}, {"max": 9.0}), ({}, {"max": 2.5 * (1 + 1e-7)}))
    assert str(found.first_change) == "layer0:output.0"
    assert str(found.first_within) == "layer1:output.0"


def test_a_norm_that_cannot_be_is_no_scale(make_table: Make) -> None:
    found = compared(
        make_table, ({"l2norm": 1e30, "max": 100.0}, {"l2norm": 1e30, "max": 100.0, "avg": 50.0})
    )
    assert counts(found) == (0, 0, 1)
