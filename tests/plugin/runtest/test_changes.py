"""What a run says of values that changed and pass, and which bounds it goes by."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
import yaml

if TYPE_CHECKING:
    from conftest import Project

TINY = 1e-7
"""A change of a weight that stays within the tolerance of the layers behind it."""


def test_a_pass_with_changes_says_so_in_its_summary(project: Project) -> None:
    project.marked()
    project.record()
    project.model(change=TINY)
    result = project.run()
    result.assert_outcomes(passed=1)
    result.stdout.fnmatch_lines(["*of 5 tensors changed within tolerance, first block/conv.2:output.0*"])


def test_a_run_that_fails_on_change_passes_nothing_else_than_the_golden_s_digits(project: Project) -> None:
    project.marked()
    project.record()
    project.run("--npudump-fail-on=change").assert_outcomes(passed=1)
    project.model(change=TINY)
    result = project.run("--npudump-fail-on=change")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*tensors changed within tolerance*--npudump-fail-on=change*"])


def other_producer(project: Project, **facts: str) -> None:
    """Change what the golden says of its origin."""
    (path,) = project.path.glob("golden/**/*.yaml")
    text = path.read_text("utf-8")
    producer = yaml.safe_load(text)["producer"]
    line = next(line for line in text.splitlines() if line.startswith("producer:"))
    path.write_text(text.replace(line, f"producer: {json.dumps(producer | facts)}"), "utf-8")


@pytest.mark.parametrize(
    ("arguments", "bounds"),
    [
        ([], "bounds:     for other numerics: onnxruntime 0.1 -> *"),
        (
            ["--npudump-numerics=same"],
            "bounds:     for the same numerics, as the option*says (onnxruntime 0.1*",
        ),
        (["--npudump-numerics=hf32"], "bounds:     for HF32 numerics, as the option*"),
    ],
)
def test_a_failure_says_which_bounds_it_went_by_and_why(
    project: Project, arguments: list[str], bounds: str
) -> None:
    project.marked()
    project.record()
    other_producer(project, onnxruntime="0.1")
    project.model(change=0.5)
    result = project.run(*arguments)
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines([bounds])


def test_the_marker_fixes_the_bounds(project: Project) -> None:
    project.marked('numerics="hf32"')
    project.record()
    project.model(change=0.0005)
    project.run().assert_outcomes(passed=1)
    project.marked('numerics="same"')
    project.run().assert_outcomes(failed=1)


def test_a_change_before_the_failure_is_named_beside_it(project: Project) -> None:
    project.marked('tolerances=[{"layer": "block/conv.2", "rtol": 9, "atol": 9, "reason": "a trial"}]')
    project.record()
    project.model(change=0.01)
    result = project.run()
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(
        [
            "npudump: head/softmax (Softmax output.0) differs*",
            "first: *",
            "changed:    block/conv.2:output.0 is the first whose statistics are not the golden's digit *",
        ]
    )


def test_a_run_by_wider_bounds_says_so_though_it_passes(project: Project) -> None:
    project.marked()
    project.record()
    other_producer(project, onnxruntime="0.1")
    result = project.run()
    result.assert_outcomes(passed=1)
    result.stdout.fnmatch_lines(["npudump: 1 of 1 tests good*1 by the bounds for other numerics*"])
