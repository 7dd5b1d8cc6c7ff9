"""The line at the end of a session."""

from __future__ import annotations

from typing import Any

import pytest

from pytest_npudump.regression.result import not_dumped_inside
from pytest_npudump.report.summary import remarks, summary_line

GOOD = {"status": "passed", "runtime": "acl", "expected": 10, "compared": 10, "first": None}
BAD = {**GOOD, "status": "failed", "compared": 8, "first": "net/conv:output.0"}


@pytest.mark.each(
    ("results", "line"),
    [
        ([GOOD], "npudump: 1 of 1 tests passed; 10 of 10 tensors compared (acl)"),
        (
            [GOOD, BAD, BAD],
            "npudump: 1 of 3 tests passed, 2 failed; 26 of 30 tensors compared; first mismatch * (acl)",
        ),
        (
            [{"status": "recorded", "runtime": "emulator"}],
            "npudump: 1 of 1 tests passed, 1 recorded (emulator)",
        ),
        (
            [{"status": "unchanged", "runtime": "emulator"}],
            "npudump: 1 of 1 tests passed, 1 unchanged (emulator)",
        ),
        (
            [{"status": "golden missing", "runtime": "acl"}, {"status": "error", "runtime": "acl"}],
            "npudump: 0 of 2 tests passed, 1 golden missing, 1 failed (acl)",
        ),
        (
            [
                {**GOOD, "notes": [not_dumped_inside(count, count, kinds), "other"]}
                for count, kinds in ((344, "If"), (344, "If"), (2, "If, Loop"))  # twice of one model
            ],
            ("npudump: 3 of 3 tests passed; 30 of 30 tensors compared (acl)"),
        ),
        (
            [{"status": "not compared", "test": "t"}],
            "npudump: 0 of 1 tests passed, 1 not compared (nothing ran)",
        ),
        (
            [GOOD, {**GOOD, "runtime": "emulator"}],
            "npudump: 2 of 2 tests passed; 20 of 20 tensors * (acl/emulator)",
        ),
    ],
)
def test_line_says_what_was_compared_of_what_was_expected(results: list[dict[str, Any]], line: str) -> None:
    found = summary_line(results)
    head, _, tail = line.partition("*")
    assert found.startswith(head)
    assert found.endswith(tail)
    assert tail or found == line


@pytest.mark.each(
    ("more", "words"),
    [
        ({"unjudged": 3}, "3 tensors have no finite statistics: their values were not compared"),
        ({"unjudged": 1}, "1 tensor has no finite statistics: its values were not compared"),
        (
            {"changed": 2, "first_within": "a/b/c:x", "cut_names": {"a/b/c:x": "a/.../c:x"}},
            "2 of 20 tensors changed within tolerance, first a/.../c:x (t.py::t)",
        ),
        ({"wavering": 1}, "1 tensor differs as it did between the recorded runs"),
        ({"wavering": 2}, "2 tensors differ as they did between the recorded runs"),
        ({"calibrated": 1}, "1 tensor has a measured tolerance wider than the preset's"),
        (
            {"notes": [not_dumped_inside(344, "net", "If_0"), not_dumped_inside(2, "m", "a/Loop"), "other"]},
            "operators neither dumped nor compared: 346, inside If_0 (net), a/Loop (m)",
        ),
        ({"model": {"fed": 2}}, "1 test passed with changed inputs: t.py::t"),
        ({"bounds": "hf32"}, "1 test was compared with the preset hf32"),
    ],
)
def test_what_else_is_known_of_a_session_is_a_sentence_each(more: dict[str, Any], words: str) -> None:
    assert [*remarks([GOOD, {**GOOD, "test": "t.py::t", **more}])] == [words]
    assert [*remarks([GOOD, {**BAD, "model": {"fed": 1}}])] == []


def test_the_line_names_the_page_on_failure_only_and_a_run_that_approves_says_so() -> None:
    assert summary_line([GOOD], page="page.md").endswith(" (acl)")
    assert summary_line([GOOD, BAD], page="page.md").endswith(" (acl); see page.md")
    line = summary_line([{"status": "recorded", "runtime": "emulator"}], approval="--npudump-update-golden")
    told = "1 of 1 tests passed, 1 recorded (emulator); this run updates goldens (--npudump-update-golden)"
    assert line == f"npudump: {told}"
    assert summary_line([BAD], approval="--npudump-update-golden=calibrate").endswith(" (acl)")


def test_line_stays_one_for_any_number_of_tests_with_the_first_divergence_of_the_first() -> None:
    later = {**BAD, "first": "other:output.0"}
    assert summary_line([GOOD, BAD, later]).count("first mismatch net/conv:output.0") == 1
    line = summary_line([GOOD, BAD] * 5000)
    assert len(line.splitlines()) == 1
    assert len(line) < 200
    assert "5000 of 10000 tests passed" in line
