"""The line at the end of a session."""

from __future__ import annotations

from typing import Any

import pytest

from pytest_npudump.report.summary import summary_line

GOOD = {"status": "passed", "runtime": "acl", "expected": 10, "compared": 10, "first": None}
BAD = {**GOOD, "status": "failed", "compared": 8, "first": "net/conv:output.0"}


@pytest.mark.parametrize(
    ("results", "line"),
    [
        ([GOOD], "npudump: 1 of 1 tests good, 10 of 10 tensors compared (acl)"),
        (
            [GOOD, BAD, BAD],
            "npudump: 1 of 3 tests good, 26 of 30 tensors compared, 2 failed, first divergence * (acl)",
        ),
        (
            [{"status": "recorded", "runtime": "emulator"}],
            "npudump: 1 of 1 tests good, 1 recorded (emulator)",
        ),
        (
            [{"status": "unchanged", "runtime": "emulator"}],
            "npudump: 1 of 1 tests good, 1 unchanged (emulator)",
        ),
        (
            [{"status": "golden missing", "runtime": "acl"}, {"status": "error", "runtime": "acl"}],
            "npudump: 0 of 2 tests good, 1 golden missing, 1 error (acl)",
        ),
        (
            [{"status": "not compared", "test": "t"}],
            "npudump: 0 of 1 tests good, 1 not compared (nothing ran)",
        ),
        (
            [{**GOOD, "unjudged": 3}],
            "npudump: *, 3 tensors without finite statistics (values not judged) (acl)",
        ),
        (
            [{**GOOD, "unjudged": 1}],
            "npudump: *, 1 tensor without finite statistics (values not judged) (acl)",
        ),
        (
            [GOOD, {**GOOD, "runtime": "emulator"}],
            "npudump: 2 of 2 tests good, 20 of 20 tensors * (acl/emulator)",
        ),
    ],
)
def test_line_says_what_was_compared_of_what_was_expected(results: list[dict[str, Any]], line: str) -> None:
    found = summary_line(results)
    head, _, tail = line.partition("*")
    assert found.startswith(head)
    assert found.endswith(tail)
    assert tail or found == line


def test_line_of_a_run_that_approves_says_so() -> None:
    line = summary_line([{"status": "recorded", "runtime": "emulator"}], approval="--npudump-update-golden")
    assert line == (
        "npudump: 1 of 1 tests good, 1 recorded (emulator); this run approves (--npudump-update-golden)"
    )


def test_first_divergence_is_that_of_the_first_failing_test() -> None:
    later = {**BAD, "first": "other:output.0"}
    assert summary_line([GOOD, BAD, later]).count("first divergence net/conv:output.0") == 1


def test_line_stays_one_for_any_number_of_tests() -> None:
    line = summary_line([GOOD, BAD] * 5000)
    assert len(line.splitlines()) == 1
    assert len(line) < 200
    assert "5000 of 10000 tests good" in line
