"""YAML that nobody writes on purpose: each file is read as it looks, or refused with its line."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from conftest import Project

SEXAGESIMAL = ":".join(["1"] * 3000)


def test_sexagesimals_in_a_golden_are_text_and_an_update_keeps_them(project: Project) -> None:
    project.marked()
    project.record()
    content = f"remark: {SEXAGESIMAL}\n{project.golden.read_text()}"
    project.golden.write_text(content)
    project.run().assert_outcomes(passed=1)
    project.model(change=0.01)
    project.run("--npudump-update-golden")
    assert SEXAGESIMAL in project.golden.read_text()
    project.run().assert_outcomes(passed=1)


def test_number_in_a_golden_that_is_too_long_fails_the_test_and_names_the_line(project: Project) -> None:
    project.marked()
    project.record()
    project.golden.write_text(f"remark: 0x{'f' * 5000}\n{project.golden.read_text()}")
    result = project.run()
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*test_small.yaml, line 1: a number of 5,002 characters*"])


def test_tolerance_that_is_no_number_ends_the_run_with_one_line(project: Project) -> None:
    project.marked()
    project.path.joinpath("t.yaml").write_text(f"rules:\n  - {{layer: a, rtol: {SEXAGESIMAL}, atol: 0}}\n")
    result = project.run("--npudump-tolerances=t.yaml")
    output = result.stdout.str() + result.stderr.str()
    assert result.ret == pytest.ExitCode.INTERRUPTED
    assert "t.yaml, rule 1: rtol is '1:1:1" in output
    assert "INTERNALERROR" not in output
    assert "Traceback" not in output
