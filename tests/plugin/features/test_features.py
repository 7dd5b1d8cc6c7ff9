"""Features come and go by one row: the rest of the plugin knows none of them."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from types import ModuleType
from typing import Any

import pytest

from pytest_npudump.plugin import features
from pytest_npudump.plugin.reporter import Reporter
from pytest_npudump.settings import Option
from tests.plugin.conftest import Project

MOTTO = Option("motto", default="", help="words for the end", metavar="TEXT", typed=True)


class Motto:
    def __init__(self) -> None:
        self._ended: list[str] = []

    def pytest_npudump_ended(self, item: pytest.Item, reports: Sequence[pytest.TestReport]) -> None:
        self._ended.append(f"{item.name} {[report.when for report in reports]}")

    def pytest_npudump_session_end(self, reporter: Reporter) -> None:
        reporter.say(f"{MOTTO.of(reporter.settings)} {self._ended}")


def test_a_feature_that_is_taken_out_leaves_no_option_and_a_test_runs_without_any(project: Project) -> None:
    project.marked()
    project.record()
    for name in [*features.FEATURES]:
        project.patch.delitem(features.FEATURES, name)
    result = project.run()
    result.assert_outcomes(passed=1)
    result.stdout.fnmatch_lines(["npudump: 1 of 1 tests passed; 5 of 5 tensors compared (emulator)"])
    project.refused("*unrecognized arguments: --npudump-expect=1", "--npudump-expect=1")


def test_a_feature_is_a_module_and_a_row(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    module: Any = ModuleType("motto")
    module.feature = lambda *_: Motto()
    monkeypatch.setitem(sys.modules, f"{features.__name__}.motto", module)
    row = features.Feature((MOTTO,), lambda _, settings: MOTTO.of(settings))
    monkeypatch.setitem(features.FEATURES, "motto", row)
    project.marked()
    project.record("--npudump-motto=once")
    found = project.run("--npudump-motto=again").stdout.str()
    assert """npudump: again ["test_small ['setup', 'call', 'teardown']"]""" in found
    assert "again" not in project.run().stdout.str()
