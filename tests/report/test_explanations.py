"""The line that says what an operator alone showed."""

from __future__ import annotations

import json
from dataclasses import replace
from fnmatch import fnmatchcase
from typing import Any

import numpy as np
import pytest

from pytest_npudump.compare.patterns.pattern_search import Pattern
from pytest_npudump.compare.tensors.difference import compare_tensors
from pytest_npudump.dump.records import TensorKey
from pytest_npudump.explain.operator_alone import Alone, JudgedOperator
from pytest_npudump.language.translation import carried, carrying, restored, speaking, spoken
from pytest_npudump.regression import result as status
from pytest_npudump.regression.result import Escalation, Finding, Result
from pytest_npudump.report.explanations import conviction, finding_lines, isolated_lines
from pytest_npudump.report.terminal import failure_summary


def one(alone: Alone, name: str = "conv", *, own: bool = False, **given: Any) -> JudgedOperator:
    return JudgedOperator(TensorKey(name, "output", 0), "Conv", "net.onnx", own, alone, **given)


PASSED, WRONG = Alone("acquitted", 2e-7, 4.8e-6), Alone("convicted", 1e-3, 4.8e-6)
NEAR = Alone("convicted", 1e-5, 4.8e-6)
LOOP = Alone("unknown", why="Loop contains another graph")
WHICH = "whether an input was overwritten is known with acl_json="
OFF = "relative L2 error 0.001, limit 4.8e-06"


@pytest.mark.each(
    ("given", "kind", "words"),
    [
        ({"own": True, "inputs": "dumped"}, "kernel error", "on the same inputs ({off}): the kernel must be"),
        (
            {"own": True, "inputs": "upstream"},
            "kernel error or overwritten tensor",
            "on what feeds it ({off}): the kernel must be",
        ),
        (
            {"own": True, "inputs": "weights"},
            "kernel error or overwritten tensor",
            "on the same inputs ({off}): the kernel must be",
        ),
        (
            {"own": True, "converted": True, "inputs": "upstream"},
            "kernel or conversion error or overwritten tensor",
            "on what feeds it ({off}): the kernel or the conversion must be",
        ),
        (
            {"inputs": "dumped"},
            "operator error",
            "on the same inputs ({off}): the kernel, type, weights or attributes must be",
        ),
        (
            {"call": "aten.relu.default"},
            "kernel error",
            "on the same inputs ({off}): a kernel of this call must",
        ),
    ],
)
def test_a_conviction_names_all_that_may_have_done_it(given: dict[str, Any], kind: str, words: str) -> None:
    found = [one(PASSED, "a"), *(one(WRONG, name, **given) for name in "bcde")]
    said = f"b:output.0: {kind}, {OFF}"
    assert conviction(found[:2]) == said
    assert conviction(found) == f"{said}; also c:output.0, d:output.0 and 1 more"
    assert conviction(found[:1]) == conviction([]) == ""
    (line,) = isolated_lines(found[:2], brief=True)
    assert words.format(off=OFF) in line
    (told,) = isolated_lines(found[:2], brief=True, headed=True)
    assert told == line.replace(f" ({OFF})", "")
    assert line.startswith("recomputed: b:output.0 differs from ")
    fed = given.get("inputs") == "upstream"
    wrote = (
        f"or something wrote to its inputs, weights or output; {WHICH}"
        if fed
        else "or something wrote to its weights or output"
    )
    assert wrote in line
    assert [words.count(WHICH) for words in isolated_lines(found, brief=False, most=3)][:3] == [
        0,
        0,
        fed,
    ]


BY_INPUTS = (
    "; possible causes for a:output.0: inputs, type, weights, attributes, or another kernel in the recording"
)


@pytest.mark.each(
    ("isolated", "brief", "lines"),
    [
        ([], True, []),
        (
            [one(PASSED, "a")],
            True,
            ["a:output.0 matches net.onnx on the same inputs (relative L2 error 2e-07)" + BY_INPUTS],
        ),
        # convicted operators explain the others, which are not blamed, and come first
        ([one(LOOP, "u"), one(PASSED, "a"), one(WRONG, "c")], True, ["c:output.0 differs *"]),
        (
            [one(LOOP, "u"), one(PASSED, "a"), one(WRONG, "c")],
            False,
            [
                "c:output.0 differs *",
                "a:output.0 matches * 2e-07); the search ended",
                "u:output.0 is undecided: Loop contains *",
            ],
        ),
        ([one(WRONG, name) for name in "abcd"], True, ["a:*", "b:* (and 2 more)"]),
        ([one(NEAR, name, inputs="dumped") for name in "ab"], True, ["a:*: a fusion or * (and 1 more)"]),
        ([one(NEAR, "a"), one(WRONG, "b")], True, ["b:*", "a:*"]),
        (
            [one(LOOP, "u")],
            True,
            ["u:output.0 is undecided: Loop contains another graph; the search ended"],
        ),
        # those that match are in one line, upstream or not; what did not change is not said to have
        (
            [one(PASSED, name, upstream=name > "a") for name in "abc"],
            True,
            ["3 operators match net.onnx on the same inputs: a:output.0, b:output.0 and 1 more" + BY_INPUTS],
        ),
        (
            [one(PASSED, "b", upstream=True), one(LOOP, "u"), one(LOOP, "v", upstream=True)],
            False,
            ["u:* graph; the search ended", "b:output.0 matches net.onnx on the same inputs (* 2e-07)"],
        ),
        ([one(PASSED, "b", upstream=True), one(WRONG, "e", upstream=True)], True, ["e:output.0 differs *"]),
    ],
)
def test_operators_that_were_recomputed(
    isolated: list[JudgedOperator], lines: list[str], *, brief: bool
) -> None:
    searched = any(one.alone is LOOP for one in isolated)
    found = isolated_lines(isolated, brief=brief, ended="the search ended" if searched else "")
    assert len(found) == len(lines)
    for line, words in zip(found, lines, strict=True):
        assert fnmatchcase(line, f"recomputed: {words}"), line


def test_elements_within_a_wider_tolerance_than_what_fails_are_not_said_to_be_within_tolerance() -> None:
    golden = np.linspace(-1, 1, 64, dtype=np.float32)
    key, actual = TensorKey("conv", "output", 0), golden * np.float32(1.000004)
    for rtol, words in (
        (2e-5, "all 64 within rtol=2e-05 atol=0 of the golden tensor; "),
        (1e-7, "64 of 64 out of tolerance of the golden tensor; "),
    ):
        finding = Finding(
            key, reproduced=True, difference=compare_tensors(golden, actual, rtol=rtol, atol=0.0)
        )
        for brief in (True, False):
            line = finding_lines(finding, brief=brief)[0]
            assert words in line
            assert ("tolerance" in line) is ("all" not in words)


def test_a_pattern_of_a_convicted_operator_is_told_without_a_golden_tensor() -> None:
    pattern = Pattern("stuck", "the last 5 of 37 columns", "0, expected other values", 1.0)
    found = isolated_lines(
        [one(WRONG, inputs="dumped", pattern=pattern), one(WRONG, "b", inputs="dumped")], brief=True
    )
    said = "the last 5 of 37 columns: 0, expected other values (100 % of the difference)"
    assert found[2:] == [f"elements:   conv:output.0: {said}"]


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
    assert alone[3].endswith(" (and 1 more)")
    assert kept["why"][5:] == [finding_lines(one, brief=True)[0] for one in findings]
    with carrying():
        kept["headline"] = conviction(isolated[:2])
    carrier = restored(json.loads(json.dumps(carried(kept))))
    with speaking("zh"):
        assert spoken(carrier["headline"]) == conviction(isolated[:2])
        spoken_lines = [spoken(line) for line in carrier["why"]]
        assert spoken_lines[1:5] == isolated_lines(isolated, brief=True, most=4)
        assert spoken_lines[5:] == [finding_lines(one, brief=True)[0] for one in findings]
    assert failure_summary(replace(result, escalation=None))["why"] == []
