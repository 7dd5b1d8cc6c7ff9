"""Rules as people write them, for all runs or those of some producers."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from pytest_npudump.compare.tolerances.rules import (
    FACTS,
    chosen_preset,
    floats_among,
    load_tolerances,
    parse_fact,
    parse_producer,
    parse_rules,
    undecided,
)
from pytest_npudump.compare.tolerances.tolerance import Rule, Tolerances
from pytest_npudump.errors import RequestError


def parse(**item: Any) -> Any:
    return parse_rules([item], preset="default", source="marker")[0]


@pytest.mark.each(
    ("option", "of_file", "chosen"),
    [
        ("", "default", "default"),
        ("", "exact", "exact"),
        ("exact", "default", "exact"),
        ("exact", "change", "exact"),
        ("other", "default", "default"),
        ("other", "exact", "exact"),
    ],
)
def test_bounds_of_an_option_leave_the_preset_of_the_file(option: str, of_file: str, chosen: str) -> None:
    assert chosen_preset(option, of_file) == chosen


def test_a_rule_with_all_keys(tmp_path: Path) -> None:
    told = {"layer": "attn*", "dtype": "float16", "statistic": "avg", "rtol": 1e-2, "atol": 0}
    told["one_sided"] = "above"
    rule = parse(**told, reason=" softmax is noisy ")
    assert {name: getattr(rule, name) for name in told} == told
    assert (rule.reason, rule.source) == ("softmax is noisy", "marker")
    path = tmp_path / "rules.yaml"
    item = "{op_type: MatMul*, rtol: 0, atol: 0, producer: {cann: '9.1*', soc: Ascend910B*}}"
    path.write_text(f"rules: [{item}]\n", "utf-8")
    (rule,) = load_tolerances(path).rules
    assert (rule.op_type, rule.producer) == ("MatMul*", (("soc", "Ascend910B*"), ("cann", "9.1*")))
    words = "rtol=0 atol=0 op_type=MatMul* producer.soc=Ascend910B* producer.cann=9.1* (rules.yaml)"
    assert rule.describe() == words
    rule = given(cann="9.*", soc="Ascend910B*")
    assert rule.describe() == "rtol=1e-09 atol=0 producer.soc=Ascend910B* producer.cann=9.* (rules.yaml)"


@pytest.mark.each(
    "item",
    [
        {"layer": "zz*", "rtol": 1e-8, "atol": 0},
        {"rtol": 1e-8, "atol": 0, "dtype": "float16"},
        {"rtol": 1e-7, "atol": 0},
        {"rtol": 0, "atol": 0},
        {"rtol": 1e-3, "atol": 2.0**-20, "dtype": "*16"},
        {"rtol": 1e-8, "atol": 0, "statistic": "avg"},
    ],
)
def test_a_rule_for_all_types_that_tightens_needs_no_reason(item: Any) -> None:
    assert parse(**item).reason == ""


@pytest.mark.each("dtype", ["*", "*16", "float16"])
def test_whatever_is_allowed_on_top_of_exact_must_say_why(dtype: str) -> None:
    item = {"rtol": 1e-8, "atol": 0, "dtype": dtype}
    with pytest.raises(RequestError, match="allows more than the preset 'exact'"):
        parse_rules([item], preset="exact", source="marker")
    assert parse_rules([item | {"reason": "measured"}], preset="exact", source="marker")


@pytest.mark.each(
    "item",
    [
        {"rtol": 1e-2, "atol": 0},
        {"rtol": 1e-7, "atol": 0, "dtype": "float8_e8m0fnu"},
        {"rtol": 1e-7, "atol": 0, "dtype": "float8*"},
        {"rtol": 1.1e-7, "atol": 0},  # just above float64's
        {"rtol": 1e-3, "atol": 0},  # tighter than or as float16's, but ten times float32's
        {"rtol": 0, "atol": 1e-3, "dtype": "float16"},
        {"rtol": 0, "atol": 1, "dtype": "int8"},
        {"rtol": 0, "atol": 1, "statistic": "nan"},
        {"rtol": 0, "atol": 0, "one_sided": "above"},
        {"rtol": 1e-2, "atol": 0, "reason": "  "},
        {"rtol": 0.1, "atol": 0, "op_type": "MatMul", "producer": {"soc": "Ascend910B*"}},
    ],
)
def test_a_loosening_rule_must_say_why(item: Any) -> None:
    with pytest.raises(RequestError, match=r"marker, rule 1 allows more than the preset 'default'.*reason="):
        parse(**item)
    assert parse(**item | {"reason": "measured"}).reason == "measured"


@pytest.mark.each(
    ("item", "message"),
    [
        ({"rtol": 1e-3}, "atol is missing, expected both"),
        ({"atol": 1e-3}, "rtol is missing, expected both"),
        ({"rtol": -1, "atol": 0}, "rtol is -1, expected a finite number"),
        ({"rtol": float("nan"), "atol": 0}, "rtol is nan"),
        ({"rtol": float("inf"), "atol": 0}, "rtol is inf"),
        ({"rtol": True, "atol": 0}, "rtol is True"),
        ({"rtol": "much", "atol": 0}, "rtol is 'much'"),
        ({"rtol": None, "atol": 0}, "rtol is None"),
        ({"rtol": 10**400, "atol": 0}, "rtol is 1000"),
        ({"rtol": 10**5000, "atol": 0}, "rtol is an integer of thousands of digits"),
        ({"rtol": "1_000", "atol": 0}, "rtol is '1_000', expected a finite number"),
        ({"layers": "a"}, "unknown key 'layers', expected layer, dtype"),
        ({"statistic": "mean"}, "statistic is 'mean', expected one of"),
        ({"one_sided": True}, "one_sided is True, expected one of both, above, below"),
        ({"one_sided": 10**5000}, "one_sided is an integer of thousands of digits"),
        ({"layer": ""}, "layer is '', expected text"),
        ({"dtype": 5}, "dtype is 5, expected text"),
        ({"dtype": 10**5000}, "dtype is an integer of thousands of digits"),
        *(
            ({"op_type": value}, "op_type is .*, expected text")
            for value in ("", " ", None, 1, ["Conv"], True)
        ),
        ({"reason": None}, "reason is None, expected text"),
    ],
)
def test_a_rule_that_makes_no_sense_is_refused(item: Any, message: str) -> None:
    if not {"rtol", "atol"} & {*item}:
        item = {"rtol": 0, "atol": 0, **item}
    with pytest.raises(RequestError, match=f"marker, rule 1: {message}"):
        parse(**item)


def test_a_file_of_tolerances(tmp_path: Path) -> None:
    path = tmp_path / "tolerances.yaml"
    path.write_text(
        "preset: torch\nrules:\n  - {layer: 'attn*', rtol: 1e-2, atol: 0, reason: softmax}\n"
        "  - layer: conv1\n    rtol: 0\n    atol: 0\n"
    )
    tolerances = load_tolerances(path)
    assert tolerances.preset == "torch"
    assert [rule.layer for rule in tolerances.rules] == ["attn*", "conv1"]
    assert tolerances.rules[0].rtol == 0.01
    assert tolerances.rules[0].source == "tolerances.yaml"


@pytest.mark.each(
    ("text", "message"),
    [
        ("presets: torch\n", "unknown key 'presets', expected preset or rules"),
        ("preset: [torch]\n", "preset is .*expected a name"),
        ("preset: lax\n", "unknown tolerance preset 'lax'"),
        ("rules: {a: 1}\n", "rules must be a list"),
        ("rules: [1]\n", "rules must be a list"),
        ("rules: [{rtol: 1}]\n", "t.yaml, rule 1: atol is missing"),
        ("preset: exact\nrules: [{rtol: 1e-6, atol: 0}]\n", "allows more than the preset 'exact'"),
        ("rules: [{rtol: 0.5, atol: 0, against: reference}]\n", "allows more than the preset 'om-net'"),
        ("rules: &a []\npreset: *a\n", "t.yaml, line 1: anchors and aliases"),
        ("- 1\n", "line 1: expected a mapping"),
        ("rules:\n  - {rtol: 1:30, atol: 0}\n", "t.yaml, rule 1: rtol is '1:30', expected a finite number"),
        ("rules:\n  - {rtol: 1e999, atol: 0}\n", "t.yaml, line 2: '1e999' is beyond the range"),
        ("rules:\n  - {\n", "t.yaml, line 3: not YAML"),
        ("", "line 1: the file is empty"),
    ],
)
def test_a_file_that_makes_no_sense_is_refused(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "t.yaml"
    path.write_text(text)
    with pytest.raises(RequestError, match=message):
        load_tolerances(path)


def test_a_file_that_is_not_there_or_a_pipe_is_refused_and_not_waited_for(tmp_path: Path) -> None:
    with pytest.raises(RequestError, match=r"none\.yaml: the tolerance file cannot be read"):
        load_tolerances(tmp_path / "none.yaml")
    os.mkfifo(tmp_path / "rules.yaml")
    with pytest.raises(RequestError, match=r"rules\.yaml: the tolerance file cannot be read: .*not a reg"):
        load_tolerances(tmp_path / "rules.yaml")


RUN = {"runtime": "acl", "soc": "Ascend910B3", "cann": "9.1.0", "hf32": "off"}


def given(**producer: Any) -> Rule:
    item = {"rtol": 1e-9, "atol": 0, "producer": producer}
    return parse_rules([item], preset="default", source="rules.yaml")[0]


@pytest.mark.each(
    ("producer", "expected"),
    [
        ({"soc": "Ascend910B3"}, True),
        ({"soc": "Ascend910B*"}, True),
        ({"soc": "*"}, True),
        ({"soc": "Ascend910B*", "cann": "9.*", "hf32": "off"}, True),
        ({"soc": "Ascend910B*", "cann": "9.0*"}, False),
        ({"soc": "ascend910b3"}, False),
        ({"soc": "Ascend910B"}, False),
        ({"driver": "*"}, False),  # which this run does not tell
    ],
)
def test_a_rule_is_for_runs_that_tell_all_its_facts_and_match(producer: Any, *, expected: bool) -> None:
    rule = given(**producer)
    assert Tolerances(rules=(rule,)).for_run(RUN).rules == ((rule,) if expected else ())


def test_the_rule_before_decides_where_the_last_is_for_other_producers() -> None:
    rules = Rule(0.5, 0), Rule(0.25, 0, producer=(("soc", "Ascend310P*"),))
    tolerances = Tolerances(rules=rules)
    assert tolerances.for_run(RUN).decide("conv", "float32", "max") is rules[0]
    assert tolerances.for_run({"soc": "Ascend310P3"}).decide("conv", "float32", "max") is rules[1]
    plain = Tolerances(rules=rules[:1])
    assert plain.for_run(RUN) is plain


@pytest.mark.parametrize(
    ("producer", "message"),
    [
        ({"chip": "a"}, "no producer tells 'chip', expected one of runtime, soc, cann"),
        ({"Soc": "a"}, "no producer tells 'Soc'"),
        ({"scene": "model"}, "no producer tells 'scene'"),
        ({10**5000: "a"}, "no producer tells an integer of thousands of digits"),
        ({"cann": 9.1}, "cann of the producer is 9.1, expected text, in quotes"),
        ({"hf32": False}, "hf32 of the producer is False, expected text, in quotes"),
        ({"soc": ""}, "soc of the producer is ''"),
        ({"soc": ["a", "b"]}, "soc of the producer is"),
        ({}, "producer is {}, expected a mapping"),
        ("soc=Ascend910B3", "producer is 'soc=Ascend910B3', expected a mapping"),
        (None, "producer is None, expected a mapping"),
        ([("soc", "a")], "expected a mapping"),
    ],
)
def test_a_producer_that_makes_no_sense_is_refused(producer: Any, message: str) -> None:
    with pytest.raises(RequestError, match=r"rules\.yaml, rule 1: ") as raised:
        parse_producer(producer, "rules.yaml, rule 1")
    assert message in str(raised.value)


def test_a_rule_of_which_nothing_tells_whether_it_holds_is_named() -> None:
    rules = given(soc="Ascend910B*"), given(soc="Ascend910B*", cann="9.*"), given(soc="310*", cann="9.*")
    assert [*undecided(rules[:1], RUN)] == []
    assert [*undecided(rules, {})] == [
        (rules[0], ["soc"]),
        (rules[1], ["soc", "cann"]),
        (rules[2], ["soc", "cann"]),
    ]
    assert [*undecided(rules, {"soc": "Ascend910B3"})] == [(rules[1], ["cann"])]


@pytest.mark.each("text", ["soc", "soc=", "=a", "", "chip=a"])
def test_a_fact_of_the_command_line_has_a_name_and_a_value(text: str) -> None:
    with pytest.raises(RequestError, match="expected FACT=VALUE with one of runtime, soc"):
        parse_fact(text)
    assert parse_fact("vector=a=b") == ("vector", "a=b")


def test_what_producers_record_is_what_rules_may_ask_for() -> None:
    from pytest_npudump.golden.origin import processor
    from pytest_npudump.runtime.acl import _FACTS

    assert processor().keys() <= frozenset(FACTS)
    assert frozenset(_FACTS.values()) <= frozenset(FACTS)


def test_of_any_types_those_of_floats_are_taken() -> None:
    assert floats_among(["-", "float16", "int8", "complex64", "float16", "bool"]) == ("float16", "complex64")
