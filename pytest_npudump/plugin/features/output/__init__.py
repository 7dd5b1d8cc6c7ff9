"""Output folder of a session, and summaries for the pages of the service that runs it.

Kept results, dumps and the page are written there by those whose they are; ``tree`` completes them with a
summary, ``session.json`` and CANN's log, and writes what GitHub, GitLab and others show.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pytest_npudump.language import ENGLISH
from pytest_npudump.language.translation import speaking
from pytest_npudump.plugin.features import OUTPUT_LIMIT
from pytest_npudump.plugin.paths import output_folder
from pytest_npudump.plugin.reporter import Reporter, reports_here

if TYPE_CHECKING:
    import pytest

    from pytest_npudump.settings import Settings


def feature(config: pytest.Config, settings: Settings) -> Output | None:
    """Return the writer, where this process runs tests and reports."""
    return Output(config, settings) if reports_here(config) and not config.option.collectonly else None


class Output:
    """Writes once the session has ended."""

    def __init__(self, config: pytest.Config, settings: Settings) -> None:
        self._folder = output_folder(config, settings)
        self._limit: int | None = OUTPUT_LIMIT.of(settings)
        self._annotations: list[str] = []

    def pytest_npudump_wanted(self) -> bool:
        """Ask for a look at the end of the session whatever ran."""
        return self._folder is not None

    def pytest_npudump_session_end(self, reporter: Reporter) -> None:
        """Write everything, in English."""
        from pytest_npudump.plugin.features.output import tree  # noqa: PLC0415 - where it is wanted
        from pytest_npudump.report.ci import error_commands  # noqa: PLC0415 - the same

        with speaking(ENGLISH):
            problems, root = reporter.problems(), reporter.config.rootpath
            tests = tree.judged_tests(reporter.tests.values(), root)
            if self._folder is not None and tests:
                for line in tree.complete(tests, reporter, self._folder, self._limit):
                    reporter.say(line)
            for line in tree.write_summaries(tests, problems, reporter, self._folder):
                reporter.say(line)
            if tree.on_github():  # whose runner reads these lines from the log
                self._annotations = [*error_commands(tests, problems)]

    def pytest_npudump_summary(self, terminalreporter: Any) -> None:
        """Print the lines that GitHub's runner reads from the log."""
        for line in self._annotations:
            terminalreporter.write_line(line)
