"""Tests that pytest calls alike: a later pass of one takes nothing from the failure of another."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from pytest_npudump.cli import main

if TYPE_CHECKING:
    from collections.abc import Callable

    from conftest import Project

RUNS = """
@pytest.mark.npu_dump
def test_small(npu_dump):
    image = np.linspace(-1, 1, 64, dtype=np.float32).reshape(1, 1, 8, 8)
    with npu_dump.load_model("{model}.onnx") as model:
        model.run(image)
"""
FIRST_RUN = """
import os

def changed():
    try:
        os.mkdir("ran")
    except FileExistsError:
        return False
    return True

@pytest.mark.npu_dump
def test_small(npu_dump):
    image = np.linspace(-1, 1, 64, dtype=np.float32).reshape(1, 1, 8, 8)
    with npu_dump.load_model("changed.onnx" if changed() else "small.onnx") as model:
        model.run(image)
"""
NO_SECOND_RUN = "--npudump-escalate=off"


@pytest.fixture
def fails_first(project: Project) -> Project:
    """A test that has a golden, and differs from it the first time that it runs from here on."""
    model(project, "changed", change=0.01)
    model(project, "small")
    project.path.joinpath("ran").mkdir()
    project.test_file(FIRST_RUN)
    project.record()
    project.path.joinpath("ran").rmdir()
    return project


def model(project: Project, name: str, **changes: object) -> None:
    project.model(**changes)
    project.path.joinpath("small.onnx").rename(project.path / f"{name}.onnx")


def first_of_two_fails(project: Project, result: pytest.RunResult, checked: Callable[[], int]) -> None:
    """Hold all that a session leaves against what it was: one test failed, and another passed."""
    result.assert_outcomes(failed=1, passed=1)
    result.stdout.fnmatch_lines(
        ["npudump: 1 of 2 tests good, 10 of 10 tensors compared, 1 failed, first divergence block/conv.2:*"]
    )
    assert "1 of 2 tests good" in project.path.joinpath("s.md").read_text("utf-8").splitlines()[0]
    assert len([*project.path.joinpath("art").glob("session-1/tests/*/report.txt")]) == 1
    assert checked() == 1


OPTIONS = (
    NO_SECOND_RUN,
    "--npudump-results=kept",
    "--npudump-summary=s.md",
    "--npudump-artifacts=art",
)


def test_tests_outside_of_rootdir(project: Project) -> None:
    """pytest calls each of them ``::test_small``."""
    ci = project.path / "ci"
    ci.mkdir()
    ci.joinpath("pytest.ini").write_text("[pytest]\naddopts = --import-mode=importlib -p no:cacheprovider\n")
    files = []
    for name in "ab":
        project.path.joinpath("tests", name).mkdir(parents=True)
        files.append(f"tests/{name}/test_x.py")
        project.test_file(RUNS.format(model=f"../../{name}"), files[-1])
        model(project, name)
    result = project.run("-c", "ci/pytest.ini", *files, "--npudump-update-golden")
    result.stdout.fnmatch_lines(["npudump: 2 of 2 tests good, 2 recorded *"])
    assert len([*ci.joinpath("golden").rglob("*.yaml")]) == 2
    model(project, "a", change=0.01)
    options = [one.replace("=s.md", "=../s.md").replace("=art", "=../art") for one in OPTIONS]
    result = project.run("-c", "ci/pytest.ini", *files, *options)
    first_of_two_fails(project, result, lambda: main(["check", str(ci / "kept"), "--root", str(ci)]))
    for number, gaps in (2, 0), (3, 1):
        result = project.run("-c", "ci/pytest.ini", *files, NO_SECOND_RUN, f"--npudump-expect={number}")
        assert result.stdout.str().count(f"={number}: 2 marked tests were compared") == gaps


def test_tests_that_are_named_twice(fails_first: Project) -> None:
    files = ("--keep-duplicates", "test_small.py", "test_small.py")
    result = fails_first.run(*files, *OPTIONS)
    root = str(fails_first.path)
    first_of_two_fails(fails_first, result, lambda: main(["check", f"{root}/kept", "--root", root]))
    lines = fails_first.path.joinpath("kept/results.jsonl").read_text("utf-8").splitlines()
    assert [json.loads(line).get("outcome") for line in lines] == [None, "failed"]


def test_an_update_compares_what_is_named_twice_with_what_the_first_has_recorded(
    fails_first: Project,
) -> None:
    files = ("--keep-duplicates", "test_small.py", "test_small.py")
    result = fails_first.run(*files, "--npudump-update-golden", "--npudump-repeats=1", NO_SECOND_RUN)
    result.assert_outcomes(passed=1, failed=1)
    result.stdout.fnmatch_lines(["npudump: 1 of 2 tests good, *1 recorded, 1 failed, *"])


def test_repetitions_in_kept_results(fails_first: Project) -> None:
    result = fails_first.run("--count=2", *OPTIONS)
    root = str(fails_first.path)
    first_of_two_fails(fails_first, result, lambda: main(["check", f"{root}/kept", "--root", root]))


def test_workers_that_each_run_all_tests(fails_first: Project) -> None:
    each = ("--dist=each", "--tx=2*popen")
    result = fails_first.run(*each, *OPTIONS)
    root = str(fails_first.path)
    first_of_two_fails(fails_first, result, lambda: main(["check", f"{root}/kept", "--root", root]))
    result = fails_first.run(*each, "--npudump-update-golden")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["ERROR: npudump: --dist=each runs a test in every worker, *"])
