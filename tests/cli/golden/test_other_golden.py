"""Goldens that changed after the run: one outcome, and a sentence on the golden that it is about."""

from __future__ import annotations

import io
import re
from collections.abc import Callable
from typing import Any

import pytest

from pytest_npudump.notebook import read_results
from tests.cli.golden.conftest import Repository

Verb = Callable[..., Any]
BEFORE, AFTER, OTHER = ({"conv": one, "relu": 2.0, "fc": two} for one, two in ((1, 3), (1.5, 4), (9, 9)))
SENTENCE = "golden file of 1 test differs from that of the run (test_a.py::test_one)"
FAILURE = {"failure": {"headline": "kernel error in conv", "why": ["recomputed: conv"]}}


PASSED: dict[str, Any] = {"status": "passed", "outcome": "passed"}


@pytest.mark.parametrize(
    ("change", "run_was", "code", "outcome"),
    [
        ("accept", FAILURE, 0, "passed"),
        ("accept --layers conv", FAILURE, 1, "failed"),
        ("edit", FAILURE, 1, "failed"),
        ("edit", PASSED, 1, "failed"),
        ("remove", FAILURE, 2, "golden missing"),
        ("remove", PASSED, 2, "golden missing"),
        ("", FAILURE, 1, "failed"),
    ],
)
def test_the_page_and_check_have_one_outcome_and_name_its_golden(  # noqa: PLR0917 - a case has four facts
    repository: Repository, run: Verb, change: str, run_was: dict[str, Any], code: int, outcome: str
) -> None:
    repository.approve("test_one", AFTER if run_was is PASSED else BEFORE)
    repository.keep("test_one", AFTER, **run_was)
    if change == "edit":
        repository.approve("test_one", OTHER)
    elif change == "remove":
        repository.golden("test_one").unlink()
    elif change:
        assert run("golden", *change.split(), "--results", "kept").code == 0
    checked, reported = run("check", "kept"), run("report", "kept", "-o", "page")
    page = (repository.path / "page" / "index.html").read_text("utf-8")
    assert checked.code == code, checked.out
    assert {*re.findall(r'class="badge [\w-]+">([^<]+)<', page)} == {outcome}
    assert read_results("kept").tests == {"test_a.py::test_one": outcome}
    for text in (checked.out, reported.err, page):
        assert (SENTENCE in text) is bool(change)
    then = f"whose outcome was: {'passed' if run_was is PASSED else 'failed'}."
    assert (then in page) is bool(change)
    for text in (checked.out, page):
        assert ("kernel error in conv" in text) is not bool(change)
    assert "kernel error in conv" not in run("check", "kept", "--preset", "exact").out
    assert ('id="test-0-elements"' in page or "recomputed" in page.lower()) is not bool(change)


def test_why_in_a_review_is_about_the_layers_that_are_left(
    repository: Repository, golden_command: Verb, monkeypatch: pytest.MonkeyPatch
) -> None:
    repository.approve("test_one", BEFORE)
    repository.keep("test_one", AFTER, **FAILURE)
    monkeypatch.setattr("sys.stdin", io.StringIO("w\nl conv\n"))
    assert "kernel error in conv" in golden_command("review").out
    monkeypatch.setattr("sys.stdin", io.StringIO("w\nq\n"))
    shown = golden_command("review").out
    assert "kernel error in conv" not in shown
    assert "fc:output.0 avg 4, expected 3" in shown


FOUND: dict[str, Any] = {
    "headline": "kernel error: fc",
    "why": ["second run: reproduced", "recomputed: conv:output.0 matches", "recomputed: fc: kernel error"],
    "hand_over": "npudump repro dumps -o DIR",
}
SECOND, MATCH, ERROR = FOUND["why"]
PARTIAL: list[tuple[str, str, set[str]]] = [  # layer, line 1 of the run, and what stays
    ("conv", "kernel error: fc", {SECOND, ERROR, "kernel error: fc", FOUND["hand_over"]}),
    ("fc", "kernel error: fc", {SECOND, MATCH}),
    ("conv", "kernel error: conv", {SECOND, ERROR}),
    ("conv", "kernel error: net/conv", {SECOND, ERROR, "kernel error: net/conv", FOUND["hand_over"]}),
]


def test_what_the_run_found_of_the_layers_left_stays(
    repository: Repository, golden_command: Verb, run: Verb
) -> None:
    for layer, headline, kept in PARTIAL:
        repository.approve("test_one", BEFORE)
        repository.keep("test_one", AFTER, failure={**FOUND, "headline": headline})
        told = {*FOUND["why"], FOUND["hand_over"], headline}
        assert golden_command("accept", "--layers", layer).code == 0
        run("report", "kept", "-o", "page")
        page = (repository.path / "page" / "index.html").read_text("utf-8")
        assert {one for one in told if one in page} == kept
        checked = run("check", "kept").out
        assert {one for one in told if one in checked} == kept - {FOUND["hand_over"]}
        repository.approve("test_one", OTHER)  # what was found is about another golden
        assert not [one for one in told if one in run("check", "kept").out]
    repository.approve("test_one", BEFORE)
    repository.keep("test_one", AFTER, failure=FOUND)
    assert run("check", "kept").out.splitlines()[1] == "  npudump: kernel error: fc"
    other = run("check", "kept", "--preset", "exact").out  # the line may have tolerances of the run
    assert "npudump: kernel error" not in other
    assert "recomputed: fc: kernel error" in other


def test_diff_says_once_how_much_differs(repository: Repository, golden_command: Verb) -> None:
    repository.approve("test_one", BEFORE)
    repository.keep("test_one", AFTER, incomplete="it was killed")
    shown = golden_command("diff").out
    assert shown.count("mismatches: 2 of 3 tensors") == 1
    assert shown.count("it was killed") == 1
