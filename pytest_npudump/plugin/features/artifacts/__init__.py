"""What a session leaves for the service that runs it: summaries for its pages, and a tree of artifacts.

``tree`` writes what GitHub, GitLab and others show, and gathers what failing tests have left.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pytest_npudump.language import ENGLISH
from pytest_npudump.plugin.features import ARTIFACTS, ARTIFACTS_LIMIT, SUMMARY
from pytest_npudump.plugin.reporter import reports_here

if TYPE_CHECKING:
    import pytest

    from pytest_npudump.plugin.reporter import Reporter
    from pytest_npudump.settings import Settings


def feature(config: pytest.Config, settings: Settings) -> Artifacts | None:
    """Return what writes, where this process runs tests and reports."""
    return Artifacts(settings) if reports_here(config) and not config.option.collectonly else None


class Artifacts:
    """Writes once the session has ended."""

    def __init__(self, settings: Settings) -> None:
        self._summary = SUMMARY.of(settings)
        self._folder = ARTIFACTS.of(settings)
        self._limit = ARTIFACTS_LIMIT.of(settings)
        self._annotations: list[str] = []

    def pytest_npudump_wanted(self) -> bool:
        """Say that the end of the session is looked at whatever ran."""
        return bool(self._summary)

    def pytest_npudump_session_end(self, reporter: Reporter) -> None:
        """Write everything, in English."""
        from pytest_npudump.language.translation import speaking  # noqa: PLC0415 - where it is wanted
        from pytest_npudump.plugin.features.artifacts import tree  # noqa: PLC0415 - the same

        with speaking(ENGLISH):
            problems, root = reporter.problems(), reporter.config.rootpath
            tests = tree.judged_tests(reporter.tests.values(), root)
            folder = None
            if self._folder and tests:
                told, folder = tree.gather(tests, problems, reporter, root / self._folder, self._limit)
                reporter.say(told)
            summary = root / self._summary if self._summary else None
            for line in tree.write_summaries(tests, problems, reporter, summary, folder):
                reporter.say(line)
            self._annotations = [*tree.annotation_lines(tests, problems)]

    def pytest_npudump_summary(self, terminalreporter: Any) -> None:
        """Print the lines that GitHub's runner reads from the log."""
        for line in self._annotations:
            terminalreporter.write_line(line)
