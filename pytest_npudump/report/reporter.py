"""The part of the plugin that prints: it runs where pytest reports, which under xdist is the controller."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Mapping

BUDGET = 40
"""Lines that failing marked tests may fill before each further one is cut to two lines."""


class Reporter:
    """Keeps failures within one budget of lines for the whole run, and prints the line at its end."""

    def __init__(self, config: pytest.Config) -> None:
        self._lines_left = BUDGET if config.option.verbose <= 0 else None
        self._results: list[Mapping[str, Any]] = []

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Keep the result of a marked test, and cut its failure once the budget is spent."""
        result: Mapping[str, Any] | None = vars(report).get("npudump")
        if result is None:
            return
        self._results.append(result)
        if report.failed and "details" in result and self._lines_left is not None:
            self._shorten(report, result["details"])

    def _shorten(self, report: pytest.TestReport, details: str) -> None:
        lines = report.longreprtext.splitlines()
        assert self._lines_left is not None  # noqa: S101 - checked by the caller
        if len(lines) <= self._lines_left:
            self._lines_left -= len(lines)
            return
        self._lines_left = 0
        report.longrepr = f"{lines[0]}\ndetails:    {details}"

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        """Print the one line that says what was compared."""
        if self._results:
            from pytest_npudump.report.summary import summary_line  # noqa: PLC0415 - only for marked tests

            terminalreporter.write_line(summary_line(self._results))
