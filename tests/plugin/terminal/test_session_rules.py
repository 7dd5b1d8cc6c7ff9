"""Rules of a file of tolerances that match nothing: a misspelt one must not let a change pass in silence."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from conftest import Project

TWO = "".join(f"\n@pytest.mark.npu_dump\ndef test_{name}(npu_dump):\n{{body}}" for name in ("one", "two"))
GOOD = "- {layer: 'block/conv.2', rtol: 0, atol: 0}\n"
MISSPELT = "- {layer: block/conv_3, rtol: 0, atol: 0}\n"
WORDS = "npudump: 1 tolerance rule matches no tensor of these tests: rtol=0 atol=0 layer=block/conv_3 *"


@pytest.fixture
def two(project: Project) -> Project:
    """A project with two tests and their goldens."""
    project.test_file(TWO.format(body=project.body))
    project.record()
    return project


def write(project: Project, rules: str) -> None:
    (project.pytester.path / "tolerances.yaml").write_text(f"rules:\n{rules}", "utf-8")


def run(project: Project, *options: str) -> pytest.RunResult:
    return project.run("--npudump-tolerances=tolerances.yaml", *options)


def test_a_misspelt_rule_fails_a_session_of_all_tests(two: Project) -> None:
    write(two, GOOD + MISSPELT)
    result = run(two)
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    result.assert_outcomes(passed=2)
    result.stdout.fnmatch_lines([f"{WORDS}; *the run does not pass"])


@pytest.mark.parametrize("options", [["-k", "one"], ["test_small.py"]])
def test_a_narrow_session_tells_it_and_passes(two: Project, options: list[str]) -> None:
    write(two, MISSPELT)
    result = run(two, *options)
    assert result.ret == pytest.ExitCode.OK
    result.stdout.fnmatch_lines([WORDS])


def test_rules_that_match_are_not_told(two: Project) -> None:
    write(two, GOOD)
    result = run(two)
    assert result.ret == pytest.ExitCode.OK
    result.stdout.no_fnmatch_line("*matches no tensor*")


def test_workers_are_asked_together(two: Project) -> None:
    write(two, GOOD + MISSPELT)
    result = run(two, "-p", "xdist", "-n", "2")
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    result.stdout.fnmatch_lines([f"{WORDS}; *the run does not pass"])


PROJECTIONS = "- {statistic: projections, rtol: 0, atol: 0}\n"
IDLE = "npudump: 1 tolerance rule matches no tensor of these tests: *statistic=projections*"


def test_a_rule_for_a_statistic_that_no_test_has_fails_a_session_of_all_tests(two: Project) -> None:
    write(two, GOOD + PROJECTIONS)
    result = run(two)
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    result.stdout.fnmatch_lines([f"{IDLE}; *the run does not pass"])


def test_a_rule_for_a_statistic_of_one_golden_serves_all(project: Project) -> None:
    source = TWO.format(body=project.body)
    project.test_file(source.replace("npu_dump\n", 'npu_dump(dump_data="tensor")\n', 1))
    project.record()
    write(project, GOOD + PROJECTIONS)
    result = run(project)
    assert result.ret == pytest.ExitCode.OK
    result.stdout.no_fnmatch_line("*matches no tensor*")
