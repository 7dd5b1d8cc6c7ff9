from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pytest_npudump.compare.stats.tables import compare_tables
from pytest_npudump.compare.stats.verdict import (
    Reason,
    Verdict,
    explain_first,
    first_divergence,
    inputs_match,
    origin_of,
)
from pytest_npudump.compare.tolerances.tolerance import Tolerances
from pytest_npudump.dump.records import Stats, TensorKey, TensorRecord
from pytest_npudump.dump.table import StatsTable
from tests.conftest import real_table, table_of


def verdict(text: str, status: str = "fail") -> Any:
    return Verdict(TensorKey.parse(text), "", status)


def test_a_reason_tells_the_difference_of_finite_numbers() -> None:
    for golden, actual, difference in (
        (1.0, 1.5, 0.5),
        (2**63, 2**63 + 1, 1),
        (1.0, math.nan, None),
        ("float16", "int8", None),
        (1, None, None),
    ):
        assert Reason("max", golden, actual, 0.0, "r").difference == difference
    assert str(Reason("avg", 1.5, None, None, "the rule")) == "avg: 1.5 -> unknown [the rule]"


def test_json_of_a_verdict_names_the_key_only_where_layer_io_and_slot_do_not() -> None:
    told = Verdict(TensorKey("a", "output", 0), "", "pass").to_json()
    place = {"layer": "a", "op_type": None, "io": "output", "slot": 0}
    assert told == place | {"status": "pass", "reasons": []}
    qualified = Verdict(TensorKey("a b", "input", 1, turn=2), "Add", "missing").to_json()
    assert (qualified["key"], qualified["op_type"]) == ("a%20b#turn=2:input.1", "Add")


def test_json_of_a_comparison_is_strict_and_complete() -> None:
    comparison = compare_tables(real_table("golden"), real_table("nan"), Tolerances())
    data = json.loads(json.dumps(comparison.to_json(), allow_nan=False))
    assert data["first_divergence"] == {"layer": "net_Conv@21", "io": "output", "slot": 0}
    assert data["summary"]["expected"] == len(data["verdicts"]) == 551
    assert data["summary"]["failed"] == sum(v["status"] == "fail" for v in data["verdicts"])
    assert data["summary"]["passed"] == sum(v["status"] == "pass" for v in data["verdicts"])
    assert {v["op_type"] for v in data["verdicts"]} >= {"Conv", "BatchNormalization"}


def test_verdicts_come_in_execution_order_with_failures_in_place() -> None:
    comparison = compare_tables(real_table("golden"), real_table("regressed"), Tolerances())
    verdicts = list(comparison.verdicts())
    assert tuple(str(v.key) for v in verdicts) == real_table("golden").keys
    assert tuple(v for v in verdicts if v.status != "pass") == comparison.failing


FIRSTS = [
    # what fails, in execution order, what both sides have, what comes first, and where it comes from
    ("", "", "None", ""),
    ("b:output.0 c:input.0", "b:input.0 b:output.0", "b:output.0", "layer"),
    ("b#turn=1:output.0", "b:input.0 b#turn=1:output.0", "b#turn=1:output.0", "unseen"),
    ("b#turn=1:output.0", "b#turn=1:input.0", "b#turn=1:output.0", "layer"),
    ("a/b:output.0", "a_b:input.0", "a/b:output.0", "layer"),
    ("b:input.0 b:output.0", "b:input.0", "b:input.0", "before"),
    ("b:output.0 c:input.0 b:input.1", "", "b:input.1", "before"),
    ("missing=a:input.0 extra=b:input.0 b:output.0", "", "b:output.0", "unseen"),
    ("missing=a:input.0 extra=b:input.0", "", "a:input.0", "structure"),
    ("missing=a:output.0 b:output.0", "b:output.0", "a:output.0", "structure"),
]


@pytest.mark.each(("failing", "compared", "first", "origin"), FIRSTS)
def test_what_comes_first_and_where_it_comes_from(
    failing: str, compared: str, first: str, origin: str
) -> None:
    sides = ("missing", "extra")
    found = first_divergence(
        [
            verdict(word.split("=", 1)[1], word.split("=", 1)[0]) if word.startswith(sides) else verdict(word)
            for word in failing.split()
        ]
    )
    assert str(found and found.key) == first
    assert origin_of(found, compared.split()) == origin


def rows_of(side: Any) -> Any:
    return [(key, "float32", (1,), {"max": value, "min": value, "avg": value}) for key, value in side]


A, B, C = "a:output.0", "b:output.0", "c:output.0"
IN_A = "a:input.0"
NOT_DUMPED = "not all of its inputs are known"
CHANGED = "the model, the operators that ran, or the dump changed there"
BEFORE = "all statistics before it match"


@pytest.mark.each(
    ("golden", "actual", "words"),
    [
        ([(A, 1)], [(A, 2)], "no tensor was compared before it; not all of its inputs are known"),
        ([(IN_A, 0), (A, 1)], [(IN_A, 0), (A, 2)], "the statistics of its inputs match"),
        (
            [(IN_A, 1)],
            [(IN_A, 2)],
            "caused by a layer that was not dumped or compared, by what is fed, or by an overwrite",
        ),
        ([("c:input.0", 1), (IN_A, 0), (A, 1)], [(IN_A, 0), (A, 2)], "the statistics of its inputs match"),
        ([(A, 1), (B, 1)], [(B, 1)], CHANGED),
        ([(B, 1)], [(A, 1), (B, 1)], CHANGED),
        ([(B, 1)], [(B, 1)], ""),
        ([(A, 1), (B, 1), (C, 1)], [(A, 1), (B, 2), (C, 2)], f"{BEFORE}; {NOT_DUMPED}"),
        ([(A, 1), (B, 1), ("b:input.0", 1)], [(A, 1), (B, 2)], BEFORE),
        (
            [(IN_A, 1), (A, 1), (B, 1)],
            [(A, 1), (B, 2)],
            f"all tensors compared before it are within tolerance; {NOT_DUMPED}",
        ),
        (
            [(IN_A, 1), ("a:input.1", math.nan), (A, 1)],
            [(IN_A, 1), ("a:input.1", math.nan), (A, 2)],
            "what was compared of its inputs is within tolerance",
        ),
    ],
)  # fmt: skip
def test_the_first_divergence_in_words(golden: Any, actual: Any, words: str) -> None:
    comparison = compare_tables(*(table_of(*rows_of(side)) for side in (golden, actual)), Tolerances())
    sentence = explain_first(comparison)
    assert sentence.endswith(words)
    assert bool(sentence) is bool(words)
    alike = words == "the statistics of its inputs match"
    assert inputs_match(comparison, feeds_seen=False) is alike
    if not words.startswith("no tensor"):
        assert inputs_match(comparison, feeds_seen=True) is (alike or words.startswith(BEFORE))


def test_new_inputs_stand_behind_all_other_mismatches() -> None:
    new = "c:input.0"
    golden, actual = [(IN_A, 1), (A, 1)], [(new, 1), (IN_A, 2), (B, 1), (A, 2)]
    found = compare_tables(*(table_of(*rows_of(side)) for side in (golden, actual)), Tolerances())
    assert [str(one.key) for one in found.failing] == [new, IN_A, B, A]
    assert [str(one.key) for one in found.mismatches] == [IN_A, B, A, new]


@pytest.mark.each("actual", [[("x:output.0", 2)], [("x:input.0", 2), ("x:output.0", 2)]])
def test_a_graphs_input_that_differs_is_what_the_test_fed_in(actual: Any) -> None:
    golden = table_of(*rows_of([(key, 1) for key, _ in actual]))
    table = replace(table_of(*rows_of(actual)), op_types=("Data",) * len(actual))
    sentence = explain_first(compare_tables(golden, table, Tolerances()))
    assert sentence.endswith("an input of the graph: other values are fed, or something wrote to them")


def test_nothing_is_judged_where_no_tensor_with_elements_has_a_statistic() -> None:
    stats = Stats(max=1.0, min=0.0, avg=0.5)
    for tensors, nothing in (
        (((3, None), (3, None)), True),  # how many elements each has, and its statistics
        (((3, None), (0, None)), True),
        (((3, None), (3, stats)), False),
        (((0, None),), False),
    ):
        keys = (TensorKey(f"l{number}", "output", 0) for number in range(len(tensors)))
        records = [
            TensorRecord(key, "", "float32", (count,), Path("x.csv"), stats=told)
            for key, (count, told) in zip(keys, tensors, strict=True)
        ]
        tables = [StatsTable.from_records(records) for _ in range(2)]
        assert compare_tables(*tables, Tolerances()).nothing_judged is nothing
