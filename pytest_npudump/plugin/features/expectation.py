"""``npudump_expect``: a session that compared fewer marked tests than it was to does not pass."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pytest_npudump.language.translation import gettext as _
from pytest_npudump.plugin.features import EXPECT
from pytest_npudump.results.expected_tests import missing_tests, read_expected

if TYPE_CHECKING:
    import pytest

    from pytest_npudump.plugin.reporter import Reporter
    from pytest_npudump.settings import Settings


class Expectation:
    """A number of tests that are to be compared, or their names.

    Raises:
        RequestError: what is expected cannot be read.
    """

    def __init__(self, config: pytest.Config, settings: Settings) -> None:
        self._expected = read_expected(EXPECT.of(settings), config.rootpath)
        self._lacking = False

    def pytest_npudump_wanted(self) -> bool:
        """Ask for a look at the end of the session whatever ran."""
        return True

    def pytest_npudump_check(self, reporter: Reporter) -> None:
        """Fail a session that lacks tests."""
        if not reporter.config.option.collectonly and self._gap(reporter):
            self._lacking = True
            reporter.fail(lambda: self._gap(reporter))

    def pytest_npudump_summary(self, reporter: Reporter, terminalreporter: Any) -> None:
        """Report missing tests."""
        if self._lacking:
            reporter.write(terminalreporter, f"npudump: {self._gap(reporter)}", red=True)

    def _gap(self, reporter: Reporter) -> str:
        results = [(test.nodeid, test.result) for test in reporter.tests.values()]
        missing = missing_tests(self._expected, results)
        return _("{missing}: the run does not pass").format(missing=missing) if missing else ""


feature = Expectation
