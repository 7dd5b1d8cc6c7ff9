"""Bounds that see nothing of a tensor, and tensors of which nothing is finite."""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pytest_npudump.compare.stats.tables import (
    BELOW_ATOL,
    BLIND,
    blind_keys,
    compare_tables,
    describe_blind,
    describe_not_finite,
)
from pytest_npudump.compare.tolerances.tolerance import Rule, Tolerances
from pytest_npudump.dump.records import TensorKey, TensorRecord
from pytest_npudump.dump.stats.tensor import tensor_stats
from pytest_npudump.dump.table import StatsTable
from pytest_npudump.record.noise import Calibrated
from tests.conftest import table_of

KEY = "conv:output.0"
BASE = {"max": 2.0, "min": -1.0, "avg": 0.5, "l2norm": 4.0}
ZEROS = dict.fromkeys(BASE, 0.0)
CASES = [
    ("float32", "0.3,0.3,0.3,0.3", BASE, True),
    ("float32", "0.3,0.3,0.3,-", BASE, False),  # the norm is judged by the preset
    ("float32", "0.2,0.1,0.06,0.2", BASE, True),  # zeros are off by 1, 0.5, 0.25 and 1 of the scales
    ("float32", "0.2,0.1,0.04,0.2", BASE, False),
    ("float32", "0.2,-,0.06,0.2", BASE | {"min": 0.0}, True),  # zeros have the same minimum
    ("float32", "0.3,0.3,0.3,0.3", ZEROS, False),  # there is nothing that could be lost
    ("float32", "inf,inf,inf,inf", BASE, False),  # a scale of 0 gives no bound
    ("int32", "0.3,0.3,0.3,0.3", BASE, True),
]


def tolerances(cell: str, *rules: Rule, widens: bool = True) -> Tolerances:
    measured = Calibrated.of((KEY,), (cell,), source="calibrated: 9 members, factor 5", widens=widens)
    return Tolerances("same", rules).with_measured(measured)


@pytest.mark.each(("dtype", "cell", "golden", "blind"), CASES)
def test_what_lets_zeros_pass_sees_nothing(
    dtype: str, cell: str, golden: dict[str, float], *, blind: bool
) -> None:
    table = table_of((KEY, dtype, (4,), golden))
    given = tolerances(cell)
    assert blind_keys(table, given) == [KEY] * blind
    zeros: Any = compare_tables(table, table_of((KEY, dtype, (4,), ZEROS)), given)
    assert zeros.ok is (blind or golden == ZEROS)
    assert [doubt.text for doubt in zeros.doubts] == [BLIND] * blind


def test_integers_that_did_not_repeat_are_doubted_though_nobody_calibrated() -> None:
    table = table_of((KEY, "float32", (4,), BASE))
    assert compare_tables(table, table, tolerances("0.3,0.3,0.3,0.3")).doubts == ()  # equal ones are not
    golden, actual = (table_of((KEY, "int64", (1,), dict.fromkeys(BASE, float(v)))) for v in (7, 21))
    found = compare_tables(golden, actual, tolerances("~4.3,4.3,4.3,4.3", widens=False))
    note = f"{BLIND}: 1 of 1 tensors (first: {KEY}); set a rule for these layers, or leave them out"
    assert (found.ok, found.notes) == (True, (note,))


SMALL = {"max": 2e-3, "min": -1e-3, "avg": 5e-4, "l2norm": 4e-3}


@pytest.mark.each(
    ("golden", "changed", "atol", "doubted"),
    [
        (SMALL, {"max": 1e-3}, 1e-2, True),
        (SMALL, {"avg": 0.0}, 1e-2, True),  # whatever differs
        (SMALL, {}, 1e-2, False),
        (SMALL, {"max": 1e-3}, 1.9e-3, False),
        (SMALL | {"min": -0.5}, {"max": 1e-3}, 1e-2, False),
        (ZEROS, {"max": 1e-3}, 1e-2, False),
        ({"avg": 0.5}, {"avg": 0.4}, 2.0, False),  # how large its elements are is not known
        (SMALL | {"max": np.inf}, {"avg": 0.0}, 1e-2, True),
    ],
)
def test_tensors_within_the_absolute_tolerance_of_0_that_differ_are_doubted(
    golden: dict[str, float], changed: dict[str, float], atol: float, *, doubted: bool
) -> None:
    sides = [table_of((KEY, "float32", (4,), values)) for values in (golden, golden | changed)]
    found = compare_tables(*sides, Tolerances("same", (Rule(0.0, atol, source="marker"),)))
    assert found.ok
    assert [one.text for one in found.doubts if one.text == BELOW_ATOL] == [BELOW_ATOL] * doubted


def test_a_rule_of_a_person_sees_also_of_projections_by_layer_and_by_operator() -> None:
    strict = Rule(1e-3, 0.0, layer="conv", statistic="max", source="marker")
    table = table_of((KEY, "float32", (4,), BASE))
    assert blind_keys(table, tolerances("0.3,0.3,0.3,0.3", strict)) == []
    assert blind_keys(table, Tolerances("same", (Rule(9.0, 0.0, source="marker"),))) == []
    projections = {"projections": np.ones((1, 8)), "projected": np.array([True])}
    table = replace(table, op_types=("Conv",), **projections)  # type: ignore[arg-type]
    wide = "0.3,0.3,0.3,0.3,9"
    assert blind_keys(table, tolerances(wide)) == [KEY]
    for whose in ({"layer": "conv"}, {"op_type": "Conv"}):
        strict = Rule(1e-3, 0.0, **whose, statistic="projections", source="marker")
        assert blind_keys(table, tolerances(wide, strict)) == []
    assert describe_blind(()) == ""
    assert describe_blind([KEY, "b:output.0"]).startswith(f"{BLIND} (tensors: 2, first: {KEY})")


NAN, INF = np.nan, np.inf
CONTENTS = {
    (NAN, NAN): True,
    (NAN, -INF): True,
    (INF, INF): True,
    (INF, -INF): True,
    (-INF, -INF): False,
    (NAN, 0.0): False,
    (INF, 1.0): False,
    (0.0, 0.0): False,
    (): False,
}
WORDS = "1 of 2 tensors contain only NaN or infinities (first: odd:output.0): check the model and its inputs"


def test_tensors_without_a_finite_value_are_named() -> None:
    for (values, named), acl in product(CONTENTS.items(), (False, True)):
        arrays = {"good": np.ones(3, np.float32), "odd": np.array(values, np.float32)}
        stats = ((name, array, tensor_stats(array, acl=acl)) for name, array in arrays.items())
        table = StatsTable.from_records(
            TensorRecord(TensorKey(name, "output", 0), "", "float32", array.shape, Path(), stats=told)
            for name, array, told in stats
        )
        assert describe_not_finite(table) == (WORDS if named else ""), values
