"""A marked test whose setup fails is one of those that the last line counts."""

from __future__ import annotations

from typing import TYPE_CHECKING
from xml.etree import ElementTree as ET

import pytest

if TYPE_CHECKING:
    from conftest import Project

BROKEN = """
@pytest.fixture
def broken():
    raise RuntimeError("no device")

@pytest.mark.npu_dump
def test_broken(broken, npu_dump):
    pass
"""


@pytest.mark.parametrize("options", [[], ["-n1"]])
def test_it_is_counted(project: Project, options: list[str]) -> None:
    project.marked()
    project.record()
    project.test_file(BROKEN, "test_broken.py")
    result = project.run(*options)
    result.assert_outcomes(passed=1, errors=1)
    result.stdout.fnmatch_lines(["npudump: 1 of 2 tests good, *, 1 not compared (emulator)"])
    result.stdout.fnmatch_lines(["*RuntimeError: no device"])


def test_it_is_counted_alone_and_told_once_elsewhere(project: Project) -> None:
    project.test_file(BROKEN, "test_broken.py")
    result = project.run("--junitxml=junit.xml", "--npudump-summary=summary.md", "--npudump-results=kept")
    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines(["npudump: 0 of 1 tests good, 1 not compared (emulator)"])
    result.stdout.no_fnmatch_line("*for a decision*")
    assert len(ET.parse(project.path / "junit.xml").findall(".//testcase")) == 1  # noqa: S314 - pytest's own
    assert "test_broken" in (project.path / "summary.md").read_text("utf-8")


def test_a_failed_setup_is_no_comparison_that_was_expected(project: Project) -> None:
    project.test_file(BROKEN, "test_broken.py")
    project.run("--npudump-expect=1").stdout.fnmatch_lines(["*0 marked tests were compared*"])


def test_what_skips_in_its_setup_is_left_out(project: Project) -> None:
    project.test_file(BROKEN.replace("raise RuntimeError", "pytest.skip"), "test_broken.py")
    result = project.run()
    result.assert_outcomes(skipped=1)
    result.stdout.no_fnmatch_line("npudump: * tests good*")
