"""A gate that fails for goldens without a test judges them by all tests, whatever of them ran."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from conftest import Project

TWO = "".join(f"\n@pytest.mark.npu_dump\ndef test_{name}(npu_dump):\n{{body}}" for name in ("one", "two"))


@pytest.fixture
def two(project: Project) -> Project:
    """A project with two tests and their goldens."""
    project.test_file(TWO.format(body=project.body))
    project.record()
    return project


def test_a_gate_passes_where_every_golden_has_a_test(two: Project) -> None:
    assert two.run("--npudump-fail-on=stale").ret == 0


@pytest.mark.parametrize("options", [["-k", "one"], ["test_small.py::test_one"]])
def test_a_narrow_run_makes_no_golden_stale(two: Project, options: list[str]) -> None:
    assert two.run("--npudump-fail-on=stale", *options).ret == 0


def test_a_golden_without_a_test_fails_the_session(two: Project) -> None:
    two.test_file(TWO.format(body=two.body).replace("test_two", "test_renamed"))
    result = two.run("--npudump-fail-on=stale", "-k", "one")
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    result.assert_outcomes(passed=1, deselected=1)
    result.stdout.fnmatch_lines(
        [
            "npudump: --npudump-fail-on=stale: goldens are stale:",
            "npudump:     *test_two.yaml: no test of test_small.py has this golden: test_small.py::test_two",
        ]
    )
    assert two.run("-k", "one").ret == 0


def test_a_project_that_cannot_be_collected_fails_the_session(two: Project) -> None:
    two.test_file("raise RuntimeError('broken')\n", "test_broken.py")
    result = two.run("--npudump-fail-on=stale", "test_small.py")
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    result.stdout.fnmatch_lines(["npudump: --npudump-fail-on=stale: whether goldens are stale is not known:"])


def test_the_folder_of_goldens_that_a_run_names_is_looked_at(two: Project) -> None:
    two.run("--npudump-update-golden", "--npudump-golden-dir=other")
    two.test_file(TWO.format(body=two.body).replace("test_two", "test_renamed"))
    result = two.run("--npudump-fail-on=stale", "--npudump-golden-dir=other", "-k", "one")
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    result.stdout.fnmatch_lines(["npudump: *other/test_small/test_two.yaml: no test of *"])


def test_a_configuration_may_ask_for_it(two: Project) -> None:
    ini = two.path / "tox.ini"
    ini.write_text(ini.read_text("utf-8") + "\nnpudump_fail_on = stale\n", "utf-8")
    assert two.run().ret == 0
    two.test_file(TWO.format(body=two.body).replace("test_two", "test_renamed"))
    result = two.run("-k", "one", "--npudump-isolation=process")
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    result.stdout.fnmatch_lines(["npudump: --npudump-fail-on=stale: goldens are stale:"])
