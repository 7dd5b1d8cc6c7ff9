"""Rules for the runs of some producers only."""

from __future__ import annotations

from typing import Any

import pytest

from pytest_npudump.compare.tolerances.rules import FACTS, parse_fact, parse_producer, parse_rules, undecided
from pytest_npudump.compare.tolerances.tolerance import Rule, Tolerances
from pytest_npudump.errors import RequestError

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


@pytest.mark.each(
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


def test_a_rule_says_for_whom_it_is_in_one_order() -> None:
    rule = given(cann="9.*", soc="Ascend910B*")
    assert rule.describe() == "rtol=1e-09 atol=0 producer.soc=Ascend910B* producer.cann=9.* (rules.yaml)"


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
