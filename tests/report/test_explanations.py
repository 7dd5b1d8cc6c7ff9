"""The line that says what an operator alone showed."""

from __future__ import annotations

import math
from typing import Any

import pytest

from pytest_npudump.dump.records import TensorKey
from pytest_npudump.explain.operator_alone import Alone, JudgedOperator
from pytest_npudump.report.explanations import isolated_lines


def one(alone: Alone, name: str = "conv", *, own: bool = False, **given: Any) -> JudgedOperator:
    return JudgedOperator(TensorKey(name, "output", 0), "Conv", "net.onnx", own, alone, **given)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"own": True}, "its kernel did it"),
        ({"own": True, "converted": True}, "its kernel or its conversion did it"),
        ({}, "its kernel, type, weights or attributes did it"),
    ],
)
def test_a_conviction_names_what_may_have_done_it(given: dict[str, bool], words: str) -> None:
    (line,) = isolated_lines([one(Alone("convicted", 1e-3, 4.8e-6), **given)], brief=True)
    assert line == (
        "alone:      conv:output.0 is CONVICTED: not what its inputs give by net.onnx: 0.001 off (relative "
        f"L2), and a healthy operator no more than 4.8e-06; {words}"
    )


def test_an_acquittal_blames_the_inputs_only_by_a_reference() -> None:
    (by_reference,) = isolated_lines([one(Alone("acquitted", 2e-7, 4.8e-6))], brief=True)
    assert by_reference.endswith("give by net.onnx (2e-07 off): the change came in with them")
    (by_own,) = isolated_lines([one(Alone("acquitted", 2e-7, 4.8e-6), own=True)], brief=True)
    assert "its weights, its attributes or what came in have changed" in by_own


def test_the_convicted_come_first_and_the_rest_is_counted() -> None:
    unknown = Alone("unknown", math.nan, math.nan, "Loop computes with graphs inside of it")
    found = [
        one(unknown, "a"),
        one(Alone("acquitted", 0.0, 1.0), "b"),
        one(Alone("convicted", why="NaN"), "c"),
    ]
    brief = isolated_lines(found, brief=True)
    assert [line.split()[1] for line in brief] == ["c:output.0", "b:output.0"]
    assert brief[1].endswith("(and 1 more)")
    whole = isolated_lines(found, brief=False)
    assert whole[2] == "alone:      a:output.0 is not judged alone: Loop computes with graphs inside of it"
    assert isolated_lines([], brief=True) == []


def test_upstream_the_convicted_are_named_and_all_others_counted() -> None:
    limit = "operators looked at upstream are what their inputs give; at most 32 per source are looked at"
    passed = Alone("acquitted", 0.0, 1.0)
    searched = [one(passed, "a"), *(one(passed, name, upstream=True) for name in "bcd")]
    assert isolated_lines(searched, brief=True)[1:] == [f"alone:      3 of 3 {limit}"]
    unknown = one(Alone("unknown", why="Loop"), "u", upstream=True)
    assert isolated_lines([*searched, unknown], brief=True)[1:] == [f"alone:      3 of 4 {limit}"]
    found = [*searched, one(Alone("convicted", 1.0, 0.1), "e", upstream=True)]
    brief = isolated_lines(found, brief=True)
    assert [line.split()[1] for line in brief] == ["e:output.0", "a:output.0"]
    assert len(isolated_lines(found, brief=False)) == 3
