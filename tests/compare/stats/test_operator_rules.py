"""Rules by the type of an operator, in every comparison of statistics: goldens know no types, runs do."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest

from pytest_npudump.compare.stats.allowances import allowances
from pytest_npudump.compare.stats.tables import compare_tables
from pytest_npudump.compare.tolerances.tolerance import Rule, Tolerances
from pytest_npudump.dump.records import Stats, TensorKey, TensorRecord
from pytest_npudump.dump.stats.projections import project
from pytest_npudump.dump.stats.tensor import tensor_stats
from pytest_npudump.dump.table import PROJECTIONS, StatsTable, layer_of
from pytest_npudump.graph.sources import share_of_allowed

if TYPE_CHECKING:
    from collections.abc import Callable

TYPES = {"a": "Conv2D", "b": "MatMulV2", "c": ""}


def table(make: Callable[[str], TensorRecord], *, typed: bool) -> StatsTable:
    records = [replace(make(layer), op_type=TYPES[layer] if typed else "") for layer in TYPES]
    return StatsTable.from_records(records)


def record(layer: str, dtype: str, stats: Stats, digest: str = "") -> TensorRecord:
    return TensorRecord(TensorKey(layer, "output", 0), "", dtype, (4,), Path("d"), stats=stats, digest=digest)


def floats(value: float, layer: str) -> TensorRecord:
    return record(layer, "float32", Stats(4, value, 0.0, value / 2, value, 0, 0, 0))


def integers(value: int, layer: str) -> TensorRecord:
    return record(layer, "int64", Stats(4, value, 0, value / 2, None, 0, 0, 0))


def hashed(value: int, layer: str) -> TensorRecord:
    stats = Stats(4, 1.0, 0.0, 0.5, None, 0, 0, 0)
    return record(layer, "float32", stats, f"md5:{value:032x}")


def projected(value: float, layer: str) -> TensorRecord:
    array = np.array([1, 2, 3, 4], np.float32)
    moved = np.array([1, 2, 3 + value, 4 - value], np.float32)
    stats = replace(tensor_stats(array), projections=project(moved))
    return record(layer, "float32", stats)


@pytest.mark.each(
    ("make", "before", "now"),
    [
        (floats, 1.0, 1.25),
        (integers, 100, 101),
        (integers, 2**60, 2**60 + 2),
        (hashed, 1, 2),
        (projected, 0.0, 0.25),
    ],
)
@pytest.mark.each("sides", ["golden", "dump"])
def test_a_rule_decides_for_the_operators_of_its_type_alone(
    make: Callable[..., TensorRecord], before: float, now: float, sides: str
) -> None:
    golden = table(lambda layer: make(before, layer), typed=sides == "dump")
    actual = table(lambda layer: make(now, layer), typed=True)
    dtype = "int64" if make is integers else "*"
    exact = Rule(0, 0, statistic="*") if make is hashed else None
    wide = Rule(0.5, 0.5, dtype=dtype, op_type="MatMul*")
    rules = (*([exact] if exact else []), wide)
    failing = [
        verdict.key.layer for verdict in compare_tables(golden, actual, Tolerances(rules=rules)).failing
    ]
    assert failing == ["a", "c"]
    tight = Rule(0, 0, dtype=dtype, op_type="Conv2D")
    rules = (Rule(0.5, 0.5, dtype=dtype), tight)
    failing = [
        verdict.key.layer for verdict in compare_tables(golden, actual, Tolerances(rules=rules)).failing
    ]
    assert failing == ["a"]


def test_where_a_dump_knows_no_type_the_other_side_s_counts() -> None:
    golden = table(lambda layer: floats(1.0, layer), typed=True)
    actual = table(lambda layer: floats(1.25, layer), typed=False)
    comparison = compare_tables(golden, actual, Tolerances(rules=(Rule(0.5, 0, op_type="Conv2D"),)))
    assert [verdict.key.layer for verdict in comparison.failing] == ["b", "c"]


def test_shares_and_allowances_go_by_the_same_rule() -> None:
    golden = table(lambda layer: floats(1.0, layer), typed=False)
    actual = table(lambda layer: floats(1.25, layer), typed=True)
    tolerances = Tolerances(rules=(Rule(0.25, 0, op_type="Conv2D"),))
    comparison = compare_tables(golden, actual, tolerances)
    assert share_of_allowed(comparison, 0, tolerances) == pytest.approx(1.0)
    assert share_of_allowed(comparison, 1, tolerances) > 1000
    found = {
        one.key: one.allowed
        for one in allowances(actual, tolerances, {*map(layer_of, actual.keys)})
        if one.statistic == "max"
    }
    assert found["a:output.0"] == 0.25 * 1.25
    assert found["b:output.0"] < 1e-4


def test_projections_are_allowed_what_the_rule_of_their_operator_says() -> None:
    actual = table(lambda layer: projected(0.25, layer), typed=True)
    tolerances = Tolerances(rules=(Rule(0.25, 0, op_type="Conv2D", statistic=PROJECTIONS),))
    rules = {
        one.key: one.rule.rtol
        for one in allowances(actual, tolerances, {*map(layer_of, actual.keys)})
        if one.statistic == PROJECTIONS
    }
    assert rules["a:output.0"] == 0.25
    assert rules["b:output.0"] == rules["c:output.0"] < 1e-4


@pytest.mark.each("op_type", ["Conv", "*ul*", "[A-M]*", "No"])
def test_a_real_model_fails_as_by_a_rule_for_each_layer_of_the_type(
    ppocr_cls: Callable[[str], StatsTable], op_type: str
) -> None:
    golden, actual = ppocr_cls("golden"), ppocr_cls("regressed")
    by_type = Rule(0.5, 0.5, op_type=op_type)
    layers = {
        layer_of(key): None
        for key, name in zip(actual.keys, actual.op_types, strict=True)
        if by_type.reaches("", name)
    }
    by_layer = tuple(Rule(0.5, 0.5, layer=layer) for layer in layers)
    untyped = replace(golden, op_types=("",) * len(golden))
    found = [
        compare_tables(untyped, actual, Tolerances(rules=rules)).failing for rules in ((by_type,), by_layer)
    ]
    assert [verdict.key for verdict in found[0]] == [verdict.key for verdict in found[1]]
    assert (op_type == "No") is not bool(layers)
