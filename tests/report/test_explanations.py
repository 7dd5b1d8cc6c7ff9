"""The line that says what an operator alone showed."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from typing import Any

import pytest

from pytest_npudump.compare.patterns.pattern_search import Pattern
from pytest_npudump.dump.records import TensorKey
from pytest_npudump.explain.operator_alone import Alone, JudgedOperator
from pytest_npudump.language.translation import carried, carrying, restored, speaking, spoken
from pytest_npudump.regression import result as status
from pytest_npudump.regression.result import Escalation, Finding, Result
from pytest_npudump.report.explanations import conviction, finding_lines, isolated_lines
from pytest_npudump.report.terminal import failure_summary


def one(alone: Alone, name: str = "conv", *, own: bool = False, **given: Any) -> JudgedOperator:
    return JudgedOperator(TensorKey(name, "output", 0), "Conv", "net.onnx", own, alone, **given)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"own": True}, "the kernel"),
        ({"own": True, "converted": True}, "the kernel or the conversion"),
        ({}, "the kernel, type, weights or attributes"),
    ],
)
def test_a_conviction_names_what_may_have_done_it(given: dict[str, bool], words: str) -> None:
    (line,) = isolated_lines([one(Alone("convicted", 1e-3, 4.8e-6), **given)], brief=True)
    assert line == (
        "recomputed: conv:output.0 differs from net.onnx on the same inputs (relative L2 error 0.001, limit "
        f"4.8e-06): {words} must be wrong"
    )


@pytest.mark.parametrize(
    ("given", "kind"),
    [
        ({"own": True}, "kernel error"),
        ({"own": True, "converted": True}, "kernel or conversion error"),
        ({"call": "aten.relu.default"}, "kernel error"),
        ({}, "operator error"),
    ],
)
def test_the_cause_is_the_first_convicted_operator(given: dict[str, Any], kind: str) -> None:
    passed, wrong = Alone("acquitted", 0.0, 1.0), Alone("convicted", 1e-3, 4.8e-6)
    found = [one(passed, "a"), one(wrong, "b", **given), *(one(wrong, name, **given) for name in "cde")]
    said = f"{kind} in b:output.0: relative L2 error 0.001, limit 4.8e-06"
    assert conviction(found[:2]) == said
    assert conviction(found) == f"{said}; and in c:output.0, d:output.0 and 1 more"
    assert conviction(found[:1]) == conviction([]) == ""


def test_an_acquittal_blames_the_inputs_only_by_a_reference() -> None:
    (by_reference,) = isolated_lines([one(Alone("acquitted", 2e-7, 4.8e-6))], brief=True)
    assert by_reference.endswith(
        " matches net.onnx on the same inputs (relative L2 error 2e-07); its inputs changed"
    )
    (by_own,) = isolated_lines([one(Alone("acquitted", 2e-7, 4.8e-6), own=True)], brief=True)
    assert "its type, weights, attributes or inputs changed" in by_own


def test_the_convicted_come_first_and_the_rest_is_counted() -> None:
    unknown = Alone("unknown", math.nan, math.nan, "Loop computes with graphs inside of it")
    found = [
        one(unknown, "a"),
        one(Alone("acquitted", 0.0, 1.0), "b"),
        one(Alone("convicted", why="NaN"), "c"),
    ]
    brief = isolated_lines(found, brief=True)
    assert [line.split()[1] for line in brief] == ["c:output.0"]
    assert isolated_lines([found[2]] * 4, brief=True)[1].endswith("(and 2 more)")
    (begins,) = isolated_lines([*found[:2], one(Alone("acquitted"), "d")], brief=True, begins={found[1].key})
    assert begins.split()[1] == "b:output.0"
    whole = isolated_lines(found, brief=False)
    assert [line.split()[1] for line in whole] == ["c:output.0", "b:output.0", "a:output.0"]
    assert whole[2] == "recomputed: a:output.0 is undecided: Loop computes with graphs inside of it"
    assert isolated_lines([], brief=True) == []


def test_upstream_the_convicted_are_named_and_all_others_counted() -> None:
    limit = "operators upstream match their recomputation (at most 32 per source are recomputed)"
    passed = Alone("acquitted", 0.0, 1.0)
    searched = [one(passed, "a"), *(one(passed, name, upstream=True) for name in "bcd")]
    assert isolated_lines(searched, brief=False)[1:] == [f"recomputed: 3 of 3 {limit}"]
    assert len(isolated_lines(searched, brief=True)) == 1
    unknown = one(Alone("unknown", why="Loop"), "u", upstream=True)
    assert isolated_lines([*searched, unknown], brief=False)[1:] == [f"recomputed: 3 of 4 {limit}"]
    found = [*searched, one(Alone("convicted", 1.0, 0.1), "e", upstream=True)]
    brief = isolated_lines(found, brief=True)
    assert [line.split()[1] for line in brief] == ["e:output.0"]
    assert len(isolated_lines(found, brief=False)) == 3


def test_what_is_kept_of_a_failure_is_spoken_as_the_terminal_speaks() -> None:
    passed, wrong = Alone("acquitted", 0.0, 1.0), Alone("convicted", 1e-3, 4.8e-6)
    isolated = [one(passed, "a"), *(one(wrong, name, own=True) for name in "bcdef"), one(passed, "g")]
    pattern = Pattern("factor", "channel 0 of 2", "times 2", 0.95)
    key = TensorKey("b", "output", 0)
    findings = tuple(
        Finding(key, reproduced=same, pattern=pattern, now=status.WITHIN) for same in (True, False)
    )
    escalation = Escalation(findings=findings, layers=("b",), isolated=tuple(isolated))
    result = Result(status.FAILED, None, problems=("it differs",), escalation=escalation)
    kept = failure_summary(replace(result, part="device 1"))
    assert kept["headline"] == "device 1: it differs"
    assert kept["why"][0] == "second run: NOT REPRODUCED in 1 of 2 tensors: 1 within tolerance of the golden"
    alone = kept["why"][1:5]
    assert all("must be wrong" in line for line in alone)
    assert alone[3].endswith(" (and 3 more)")
    assert kept["why"][5:] == [finding_lines(one, brief=True)[0] for one in findings]
    with carrying():
        kept["headline"] = conviction(isolated[:2])
    carrier = restored(json.loads(json.dumps(carried(kept))))
    with speaking("zh"):
        assert spoken(carrier["headline"]) == conviction(isolated[:2])
        spoken_lines = [spoken(line) for line in carrier["why"]]
        assert spoken_lines[1:5] == isolated_lines(isolated, brief=False, most=4)
        assert spoken_lines[5:] == [finding_lines(one, brief=True)[0] for one in findings]
    assert failure_summary(replace(result, escalation=None))["why"] == []
