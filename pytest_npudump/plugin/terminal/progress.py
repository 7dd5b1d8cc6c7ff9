"""Long work of the plugin shows itself on pytest's terminal: a line that changes, in a log one a minute."""

from __future__ import annotations

from time import monotonic
from typing import TYPE_CHECKING, Any

from pytest_npudump.errors import said

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pytest

PATIENCE = 2.0
"""Seconds that work may take before the line appears."""
SILENCE = 60.0
"""Seconds between two lines where there is no terminal, and before the first."""


def progress_of(config: pytest.Config) -> Progress | None:
    """Return what shows progress where pytest prints; None in a process that prints nothing."""
    reporter: Any = config.pluginmanager.get_plugin("terminalreporter")
    if reporter is None or reporter.verbosity < -1 or hasattr(config, "workerinput"):
        return None
    return Progress(reporter)


def announce_run(item: pytest.Item, number: int, before: Sequence[pytest.TestReport]) -> None:
    """Say that a test runs again, where it is likely to take long.

    Args:
        item: the test.
        number: of the run that begins, the first being 1.
        before: the reports of the run before, which took as long as this one will.
    """
    if (shown := progress_of(item.config)) is not None:
        shown.announce(f"run {number} of {item.nodeid}", sum(report.duration for report in before))


class Progress:
    """Shows what is being done for one test, once it has taken long.

    Args:
        reporter: pytest's own, which prints.
    """

    def __init__(self, reporter: Any) -> None:
        self._reporter = reporter
        self._what = ""
        self._next = 0.0
        self._shown = False

    def __call__(self, what: str, done: int, total: int) -> None:
        """Take note that ``done`` of ``total`` steps of ``what`` are done; 0 of them: it begins."""
        now = monotonic()
        if what != self._what:
            self._what = what
            self._next = now + (PATIENCE if self._reporter.isatty else SILENCE)
        if now >= self._next:
            self._show(f"npudump: {what}, {done} of {total}")
            self._next = now if self._reporter.isatty else now + SILENCE
        if done == total:
            self.end()

    def announce(self, what: str, seconds: float) -> None:
        """Say what begins, where it is likely to take as long as what took ``seconds`` and shows no steps."""
        if seconds >= (PATIENCE if self._reporter.isatty else SILENCE):
            self._show(said("npudump: {what}", what=what))

    def end(self) -> None:
        """Leave the line to what pytest prints next."""
        if self._shown:
            self._reporter.ensure_newline()
        self._what, self._shown = "", False

    def _show(self, text: str) -> None:
        if not self._reporter.isatty:
            self._reporter.ensure_newline()
            self._reporter.write_line(text)
            return
        if not self._shown:
            self._reporter.ensure_newline()
            self._shown = True
        self._reporter.rewrite(text, erase=True)
