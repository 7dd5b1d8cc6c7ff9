from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from pytest_npudump.compare.stats.tables import compare_tables
from pytest_npudump.compare.stats.verdict import Reason, Verdict, explain_first, first_divergence, origin_of
from pytest_npudump.compare.tolerances.tolerance import Tolerances
from pytest_npudump.dump.records import Stats, TensorKey, TensorRecord
from pytest_npudump.dump.table import StatsTable

if TYPE_CHECKING:
    from collections.abc import Callable


def verdict(text: str, status: str = "fail") -> Any:
    return Verdict(TensorKey.parse(text), "", status)


@pytest.mark.each(
    ("golden", "actual", "difference"),
    [
        (1.0, 1.5, 0.5),
        (2**63, 2**63 + 1, 1),
        (1.0, math.nan, None),
        ("float16", "int8", None),
        (1, None, None),
    ],
)
def test_a_reason_tells_the_difference_of_finite_numbers(golden: Any, actual: Any, difference: Any) -> None:
    assert Reason("max", golden, actual, 0.0, "r").difference == difference


def test_a_reason_of_an_unknown_value_reads_so() -> None:
    assert str(Reason("avg", 1.5, None, None, "the rule")) == "avg: 1.5 -> unknown [the rule]"


def test_json_of_a_verdict_names_the_key_only_where_layer_io_and_slot_do_not() -> None:
    assert Verdict(TensorKey("a", "output", 0), "", "pass").to_json() == {
        "layer": "a",
        "op_type": None,
        "io": "output",
        "slot": 0,
        "status": "pass",
        "reasons": [],
    }
    qualified = Verdict(TensorKey("a b", "input", 1, turn=2), "Add", "missing").to_json()
    assert (qualified["key"], qualified["op_type"]) == ("a%20b#turn=2:input.1", "Add")


def test_json_of_a_comparison_is_strict_and_complete(ppocr_cls: Callable[[str], StatsTable]) -> None:
    comparison = compare_tables(ppocr_cls("golden"), ppocr_cls("nan"), Tolerances())
    data = json.loads(json.dumps(comparison.to_json(), allow_nan=False))
    assert data["first_divergence"] == {"layer": "net_Conv@21", "io": "output", "slot": 0}
    assert data["summary"]["expected"] == len(data["verdicts"]) == 551
    assert data["summary"]["failed"] == sum(v["status"] == "fail" for v in data["verdicts"])
    assert data["summary"]["passed"] == sum(v["status"] == "pass" for v in data["verdicts"])
    assert {v["op_type"] for v in data["verdicts"]} >= {"Conv", "BatchNormalization"}


def test_verdicts_come_in_execution_order_with_failures_in_place(
    ppocr_cls: Callable[[str], StatsTable],
) -> None:
    comparison = compare_tables(ppocr_cls("golden"), ppocr_cls("regressed"), Tolerances())
    verdicts = list(comparison.verdicts())
    assert tuple(str(v.key) for v in verdicts) == ppocr_cls("golden").keys
    assert tuple(v for v in verdicts if v.status != "pass") == comparison.failing


def test_nothing_failing_has_no_first_divergence() -> None:
    assert first_divergence([]) is None
    assert origin_of(None, []) == ""


def test_an_output_whose_inputs_agree_is_the_layers_own_doing() -> None:
    first = first_divergence([verdict("b:output.0"), verdict("c:input.0")])
    assert str(first.key) == "b:output.0"
    assert origin_of(first, ["b:input.0", "b:output.0"]) == "layer"


def test_the_inputs_of_another_execution_tell_nothing() -> None:
    first = verdict("b#turn=1:output.0")
    assert origin_of(first, ["b:input.0", "b#turn=1:output.0"]) == "unseen"
    assert origin_of(first, ["b#turn=1:input.0"]) == "layer"


def test_inputs_are_found_under_either_spelling() -> None:
    assert origin_of(verdict("a/b:output.0"), ["a_b:input.0"]) == "layer"


def test_an_input_that_differs_first_points_before_its_layer() -> None:
    first = first_divergence([verdict("b:input.0"), verdict("b:output.0")])
    assert str(first.key) == "b:input.0"
    assert origin_of(first, ["b:input.0"]) == "before"


def test_a_failing_input_listed_behind_its_layers_output_still_comes_first() -> None:
    first = first_divergence([verdict("b:output.0"), verdict("c:input.0"), verdict("b:input.1")])
    assert str(first.key) == "b:input.1"


def test_an_input_on_one_side_only_is_not_first_while_a_value_differs() -> None:
    failing = [verdict("a:input.0", "missing"), verdict("b:input.0", "extra"), verdict("b:output.0")]
    assert str(first_divergence(failing).key) == "b:output.0"
    assert str(first_divergence(failing[:2]).key) == "a:input.0"


def test_a_vanished_layer_goes_before_what_follows_from_it() -> None:
    first = first_divergence([verdict("a:output.0", "missing"), verdict("b:output.0")])
    assert first.status == "missing"
    assert origin_of(first, ["b:output.0"]) == "structure"


@pytest.mark.each(
    ("golden", "actual", "words"),
    [
        ([("a:output.0", 1)], [("a:output.0", 2)], "agree; its own inputs were not dumped"),
        (
            [("a:input.0", 0), ("a:output.0", 1)],
            [("a:input.0", 0), ("a:output.0", 2)],
            "statistics of its inputs agree",
        ),
        ([("a:input.0", 1)], [("a:input.0", 2)], "comes from before a, from a layer that was not dumped"),
        ([("a:output.0", 1), ("b:output.0", 1)], [("b:output.0", 1)], "only in the golden"),
        ([("b:output.0", 1)], [("a:output.0", 1), ("b:output.0", 1)], "only in the dump"),
        ([("b:output.0", 1)], [("b:output.0", 1)], ""),
    ],
)
def test_the_first_divergence_in_words(
    make_table: Callable[..., StatsTable], golden: Any, actual: Any, words: str
) -> None:
    tables = [
        make_table(
            *[(key, "float32", (1,), {"max": value, "min": value, "avg": value}) for key, value in side]
        )
        for side in (golden, actual)
    ]
    sentence = explain_first(compare_tables(*tables, Tolerances()))
    assert words in sentence
    assert bool(sentence) is bool(words)


def rows_of(side: Any) -> Any:
    return [(key, "float32", (1,), {"max": value, "min": value, "avg": value}) for key, value in side]


@pytest.mark.each(
    ("golden", "actual", "rest"),
    [
        (
            [("a:output.0", 1), ("b:output.0", 1), ("c:output.0", 1)],
            [("a:output.0", 1), ("b:output.0", 2), ("c:output.0", 2)],
            "all statistics compared before it agree; its own inputs were not dumped",
        ),
        (
            [("a:output.0", 1), ("b:output.0", 1), ("b:input.0", 1)],
            [("a:output.0", 1), ("b:output.0", 2)],
            "all statistics compared before it agree",
        ),
        (
            [("a:input.0", 1), ("a:output.0", 1), ("b:output.0", 1)],
            [("a:output.0", 1), ("b:output.0", 2)],
            "all statistics compared before it agree; its own inputs were not dumped",
        ),
    ],
)
def test_what_stands_before_the_first_divergence_is_said_to_agree(
    make_table: Callable[..., StatsTable], golden: Any, actual: Any, rest: str
) -> None:
    comparison = compare_tables(*(make_table(*rows_of(side)) for side in (golden, actual)), Tolerances())
    assert explain_first(comparison) == f"output 0 of b is the first mismatch; {rest}"


def test_of_one_layers_weights_without_inputs_all_before_is_said_to_agree(
    ppocr_cls: Callable[[str], StatsTable],
) -> None:
    tables = [outputs_only(ppocr_cls(name)) for name in ("golden", "regressed")]
    assert explain_first(compare_tables(*tables, Tolerances())) == (
        "output 0 of net_Conv@21 is the first mismatch; all statistics compared before it agree; "
        "its own inputs were not dumped"
    )


def outputs_only(table: StatsTable) -> Any:
    rows = [row for row, key in enumerate(table.keys) if ":output." in key]
    return StatsTable(
        **{
            name: tuple(getattr(table, name)[row] for row in rows)
            for name in ("keys", "op_types", "dtypes", "shapes", "counts")
        },
        values=table.values[rows],
        known=table.known[rows],
        digits=table.digits[rows],
        wide={},
    )


@pytest.mark.each("actual", [[("x:output.0", 2)], [("x:input.0", 2), ("x:output.0", 2)]])
def test_a_graphs_input_that_differs_is_what_the_test_fed_in(
    make_table: Callable[..., StatsTable], actual: Any
) -> None:
    golden = make_table(*rows_of([(key, 1) for key, _ in actual]))
    table = replace(make_table(*rows_of(actual)), op_types=("Data",) * len(actual))
    sentence = explain_first(compare_tables(golden, table, Tolerances()))
    assert sentence.endswith("it is an input of the graph, so what the test feeds in has changed")


@pytest.mark.each(
    ("counts", "told", "nothing"),
    [
        ((3, 3), (False, False), True),
        ((3, 0), (False, False), True),
        ((3, 3), (False, True), False),
        ((0,), (False,), False),
    ],
)
def test_nothing_is_judged_where_no_tensor_with_elements_has_a_statistic(
    counts: tuple[int, ...], told: tuple[bool, ...], *, nothing: bool
) -> None:
    records = [
        TensorRecord(
            TensorKey(f"l{number}", "output", 0),
            "",
            "float32",
            (count,),
            Path("x.csv"),
            stats=Stats(max=1.0, min=0.0, avg=0.5) if tells else None,
        )
        for number, (count, tells) in enumerate(zip(counts, told, strict=True))
    ]
    tables = [StatsTable.from_records(records) for _ in range(2)]
    assert compare_tables(*tables, Tolerances()).nothing_judged is nothing
