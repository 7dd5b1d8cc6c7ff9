"""A golden of NaN is told to whoever records, reviews, accepts or looks at it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from conftest import Project

BODY = """
    with npu_dump.load_model("small.onnx") as model:
        model.run(np.full((1, 1, 8, 8), np.nan, dtype=np.float32))
"""
WORDS = (
    "5 of 5 tensors contain only NaN or infinities (first: image:output.0): check the model and its inputs"
)
KEPT = ("--results", "kept")


def test_a_golden_of_nan_is_told_at_each_decision(project: Project) -> None:
    project.marked(body=BODY)
    result = project.run("--npudump-results=kept")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines([f"note: {WORDS}"])
    run = project.pytester.run
    run("npudump", "golden", "diff", *KEPT).stdout.fnmatch_lines([f"  note: {WORDS}"])
    run("npudump", "golden", "accept", *KEPT).stdout.fnmatch_lines([f"  note: {WORDS}"])
    run("npudump", "golden", "show", project.golden).stdout.fnmatch_lines([f"note: {WORDS}"])
    result = project.run("--npudump-update-golden")
    result.assert_outcomes(passed=1)
    result.stdout.fnmatch_lines([f"npudump: *note: test_small.py::test_small: {WORDS}"])


@pytest.mark.e2e
def test_a_golden_of_numbers_has_no_such_note(project: Project) -> None:
    project.marked()
    result = project.run("--npudump-update-golden")
    result.stdout.no_fnmatch_line("*contain only NaN*")
    shown = project.pytester.run("npudump", "golden", "show", project.golden)
    shown.stdout.no_fnmatch_line("*contain only NaN*")
