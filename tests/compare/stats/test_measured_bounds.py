"""How many tensors have measured bounds: those that an explanation of the tolerances names, and no others."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_npudump.compare.stats.allowances import allowances, bounds_by_measurement
from pytest_npudump.compare.stats.tables import compare_tables
from pytest_npudump.compare.tolerances.calibrated import Calibrated
from pytest_npudump.compare.tolerances.tolerance import Rule, Tolerances
from pytest_npudump.dump.table import layer_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from pytest_npudump.dump.table import StatsTable

    Make = Callable[..., StatsTable]

BASE: dict[str, Any] = {"count": 4, "max": 2.0, "min": -1.0, "avg": 0.5, "l2norm": 4.0}
DTYPES = ("float32", "float16", "int32")
NUMBERS = ("-", "1e-9", "2e-7", "1e-6", "3e-6", "1e-5", "2e-4", "1e-2", "inf")
RULES = (
    Rule(1e-7, 0.0, layer="block/*", source="marker"),
    Rule(1e-7, 0.0, layer="block_1", statistic="max", source="marker"),
    Rule(1e-7, 0.0, op_type="Conv*", dtype="float32", source="marker"),
    Rule(1e-7, 0.0, dtype="float16", statistic="avg", source="marker"),
)


def measured_by(keys: tuple[str, ...], cells: tuple[str, ...], *, widens: bool = True) -> Calibrated:
    return Calibrated.of(keys, cells, source="calibrated: 9 members, factor 5", widens=widens)


@given(data=st.data())
def test_as_many_are_counted_as_an_explanation_names(make_table: Make, data: st.DataObject) -> None:
    averages = st.sampled_from(({}, {"avg": np.nan}, {"avg": None}))
    layers = [f"block/{n}" for n in range(data.draw(st.integers(1, 6)))]
    rows = [
        (f"{layer}:output.0", data.draw(st.sampled_from(DTYPES)), (4,), BASE | data.draw(averages))
        for layer in layers
    ]
    cells = tuple(
        ",".join(data.draw(st.sampled_from(NUMBERS)) for _ in range(data.draw(st.sampled_from((4, 5)))))
        for _ in layers
    )
    types = tuple(data.draw(st.sampled_from(("Conv2D", "Add"))) for _ in layers)
    golden = make_table(*rows)
    actual = replace(golden, op_types=types)
    measured = measured_by(golden.keys, cells, widens=data.draw(st.booleans()))
    rules = tuple(data.draw(st.lists(st.sampled_from(RULES), max_size=2)))
    preset = data.draw(st.sampled_from(("same", "other", "exact")))
    tolerances = Tolerances(preset, rules).with_measured(measured)
    named = {
        one.key
        for one in allowances(actual, tolerances, {*map(layer_of, actual.keys)})
        if tolerances.is_measured(one.rule)
    }
    found = compare_tables(golden, actual, tolerances)
    assert bounds_by_measurement(found, tolerances) == len(named)


@pytest.mark.each(
    ("cell", "count"),
    [
        ("2.6e-7,3e-7,2.6e-7,2.6e-7", 0),  # 5 times these is within 2e-5, 5e-6 and 1e-5
        ("3.9e-6,3.9e-6,9e-7,1.9e-6", 0),
        ("4.1e-6,-,-,-", 1),
        ("-,-,1.1e-6,-", 1),
        ("-,-,-,2.1e-6", 1),
        ("-,-,-,-,1e-2", 0),  # the golden has no projections
        ("inf,-,-,-", 0),  # a scale of 0 gets no bound
    ],
)
def test_noise_within_the_preset_s_bound_is_none(make_table: Make, cell: str, count: int) -> None:
    table = make_table(("conv:output.0", "float32", (4,), BASE), ("fc:output.0", "float32", (4,), BASE))
    tolerances = Tolerances("same").with_measured(measured_by(table.keys, (cell, "-")))
    assert bounds_by_measurement(compare_tables(table, table, tolerances), tolerances) == count


def test_a_tensor_that_only_the_golden_has_is_not_counted(make_table: Make) -> None:
    rows = [(f"{name}:output.0", "float32", (4,), BASE) for name in ("conv", "fc")]
    golden = make_table(*rows)
    tolerances = Tolerances("same").with_measured(measured_by(golden.keys, ("1e-3,-,-,-", "1e-3,-,-,-")))
    found = compare_tables(golden, make_table(rows[0]), tolerances)
    assert bounds_by_measurement(found, tolerances) == 1


def test_what_was_measured_says_how_many_strayed_and_of_how_many_it_is_the_bound() -> None:
    keys = ("a:output.0", "b:output.0", "c:output.0")
    cells = ("1e-3,-,-,-", "1e-9,-,-,-", "-")
    assert measured_by(keys, cells).describe(1) == (
        "1 of the 2 tensors that strayed have measured bounds wider than the preset's "
        "(calibrated: 9 members, factor 5)"
    )
    assert measured_by(keys, cells, widens=False).describe(0) == (
        "2 tensors have a spread that is no change (calibrated: 9 members, factor 5)"
    )
