"""The part of the plugin that prints: it runs where pytest reports, which under xdist is the controller."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest

from pytest_npudump.errors import NpudumpError
from pytest_npudump.plugin.marks import MARKERS

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from pytest_npudump.ranks.rank import Rank
    from pytest_npudump.settings import Settings


ITEM_OF_REPORT = "npudump_item"
"""Attribute of a report that tells its item from all others of the session: node ids are not unique."""
CHILD = "npudump-child"
"""Name of the plugin object of a process that runs one test for another session."""

REPORTER = "npudump-reporter"
"""Name of the plugin object that reports, in a process that does."""

_OURS = "npudump: "
"""Beginnings of failures that this plugin raises."""

_BUDGET = 80
"""Lines that failing marked tests may fill before each further one goes without its rows."""


class Reported(NamedTuple):
    """Marked test as its last report has it.

    Attributes:
        nodeid: pytest's name of it, which other tests may share.
        result: what it came to.
        failed: whether pytest counts it as failed.
        file, line: where it stands, relative to rootdir and from 0.
    """

    nodeid: str
    result: Mapping[str, Any]
    failed: bool
    file: str
    line: int


def reports_here(config: pytest.Config) -> bool:
    """Return whether this process reports: no worker of pytest-xdist, and no child of another session."""
    return not hasattr(config, "workerinput") and not config.pluginmanager.has_plugin(CHILD)


class Reporter:
    """Keeps failures within one budget of lines for the whole run, and prints the line at its end.

    Args:
        config: of the session.
        settings: the options.
        bring_in: brings in what the first result of a marked test needs.

    Attributes:
        config, settings: the same.
        session: which has ended, once it has.
        tests: the marked tests, by what tells each from all others.
        began: when the session did, in seconds of the clock that files' times are of.
        rank: of a distributed run; None for a process of its own.
    """

    session: pytest.Session
    rank: Rank | None = None

    def __init__(self, config: pytest.Config, settings: Settings, bring_in: Callable[[], None]) -> None:
        self.config = config
        self.settings = settings
        self.tests: dict[str, Reported] = {}
        self.began = time.time()
        self._bring_in = bring_in
        self._lines_left = _BUDGET if config.option.verbose <= 0 else None
        self._spoken: list[tuple[pytest.CollectReport | pytest.TestReport, list[str]]] = []
        self._refused = False
        self._problems: list[Callable[[], str]] = []
        self._lines: list[tuple[int, str]] = []
        self._crashed: list[str] = []
        self._marked_failed = False
        self._skipped = 0
        self._exited = False
        self._ended_in = ""
        self._printed = False

    @property
    def results(self) -> list[Mapping[str, Any]]:
        """Results of the marked tests."""
        return [test.result for test in self.tests.values()]

    @property
    def spent(self) -> bool:
        """Whether further failures are told without their rows."""
        return self._lines_left == 0

    @property
    def prefix(self) -> str:
        """Prefix of the names of a session's files, which keeps the ranks of a distributed run apart."""
        return f"rank{self.rank.number}-" if self.rank is not None else ""

    def say(self, line: str, place: int = 0) -> None:
        """Add a line above the session's line; those of a lower place come first."""
        self._lines.append((place, line))

    def fail(self, words: Callable[[], str], *but: int) -> None:
        """Fail a session that has ended well, or with one of the codes ``but``."""
        self._problems.append(words)
        if self.session.exitstatus in {pytest.ExitCode.OK, *but}:
            self.session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def problems(self) -> list[str]:
        """Return why the session does not pass, apart from its tests."""
        from pytest_npudump.language.text import first_of  # noqa: PLC0415 - for files

        found = [words() for words in self._problems]
        if self._crashed:
            found.append(f"a worker died in {first_of(self._crashed)}: nothing is known of that test")
        if self.session.exitstatus not in {pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED}:
            found.append(f"pytest ended with exit code {int(self.session.exitstatus)}")
        return found

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Keep the result of a marked test, and cut its failure once the budget is spent."""
        told = vars(report)
        result: Mapping[str, Any] | None = told.get("npudump")
        if result is None and report.outcome == "passed":
            return  # as nearly all of a session's are
        marked = any(name in report.keywords for name in MARKERS)
        self._marked_failed = self._marked_failed or (report.failed and marked)
        self._skipped += marked and report.skipped and result is None and not hasattr(report, "wasxfail")
        item: str = told.get(ITEM_OF_REPORT, report.nodeid)
        if report.failed and item in self.tests:
            self.tests[item] = self.tests[item]._replace(failed=True)
        if result is None or report.when == "setup" or "spoken" not in result:
            self._keep_plain(report)
        if result is None:
            phase: str = report.when
            self._crashed += [report.nodeid] if phase == "???" else []  # as xdist reports a dead worker
            return
        self._bring_in()
        file, line, _ = report.location
        # A plugin that repeats tests may log several of an item: the last one counts.
        self.tests[item] = Reported(report.nodeid, result, report.failed, file, line or 0)
        short = report.failed and "short" in result and self._shortened(report, result)
        if report.failed and (spoken := result.get("spoken")):
            behind = report.longreprtext.splitlines()[int(spoken["lines"]) :]
            self._spoken.append((report, [*spoken["short"]] if short else [*spoken["text"], *behind]))

    def pytest_keyboard_interrupt(self, excinfo: pytest.ExceptionInfo[BaseException]) -> None:
        """Note the marked test in which the session was ended, and whether by ``pytest.exit()``."""
        self._exited = isinstance(excinfo.value, pytest.exit.Exception)
        runner = self.config.pluginmanager.get_plugin("npudump-runner")
        if runner is not None and runner.ended_in not in {test.nodeid for test in self.tests.values()}:
            self._ended_in = runner.ended_in

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        """Keep a refused collection."""
        self._keep_plain(report)

    def _keep_plain(self, report: pytest.CollectReport | pytest.TestReport) -> None:
        """Keep a report of a failure that is ours and not spoken yet."""
        if report.failed:
            crash = getattr(report.longrepr, "reprcrash", None)
            text = str(report.longrepr if crash is None else crash.message).removeprefix("Failed: ")
            if text.startswith(_OURS):
                self._refused = True
                self._spoken.append((report, []))

    def _shortened(self, report: pytest.TestReport, result: Mapping[str, Any]) -> bool:
        """Cut a failure for which there is no room, and return whether it is one."""
        if self._lines_left is None:
            return False
        if (lines := len(report.longreprtext.splitlines())) <= self._lines_left:
            self._lines_left -= lines
            return False
        self._lines_left = 0
        report.longrepr = "\n".join(result["short"])
        return True

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Have features judge the session and write what it leaves."""
        self.session, hook = session, self.config.hook
        if self._exited and session.exitstatus == pytest.ExitCode.OK:
            if self._marked_failed:
                session.exitstatus = pytest.ExitCode.TESTS_FAILED
            elif self._ended_in:
                session.exitstatus = pytest.ExitCode.INTERRUPTED
        if not (self.tests or self._refused or self._ended_in or hook.pytest_npudump_wanted()):
            return
        from pytest_npudump.language.translation import speaking  # noqa: PLC0415 - only for marked tests
        from pytest_npudump.ranks.rank import current_rank  # noqa: PLC0415 - the same

        try:
            self.rank = current_rank()
        except NpudumpError:  # what the launcher's variables lack has ended the session already
            self.rank = None
        # Have the terminal show failures in its reader's language: all other readers have had theirs.
        if self._spoken:
            from pytest_npudump.plugin.terminal import cause_in_summary, speak  # noqa: PLC0415 - for failures

            terminal = self.config.pluginmanager.get_plugin("terminalreporter")
            for report, lines in self._spoken:
                speak(report, lines, terminal)
                cause_in_summary(report, terminal)
        with speaking(self.settings.lang):
            if self._ended_in:
                self._problems.append(self._ended)
            hook.pytest_npudump_check(reporter=self)
            if self.tests:
                from pytest_npudump.plugin.terminal import note_lines  # noqa: PLC0415 - only for marked tests

                for line in note_lines(self.results, verbose=self.config.option.verbose > 0):
                    self.say(line)
            hook.pytest_npudump_session_end(reporter=self)

    def _ended(self) -> str:
        """Report that the session was ended in a test, which was not compared."""
        from pytest_npudump.language.translation import gettext as _  # noqa: PLC0415 - seldom needed

        words = _("the session ended in {test}, which was not compared: the run does not pass")
        return words.format(test=self._ended_in)

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        """Print the session's line, behind notes on tests that passed."""
        self._printed = True
        hook = self.config.hook
        told = self.tests or self._lines or self._ended_in or self._skipped
        if not (told or hook.pytest_npudump_summary.get_hookimpls()):
            return
        from pytest_npudump.language.translation import ngettext, speaking, spoken  # noqa: PLC0415 - where there is something

        with speaking(self.settings.lang):
            for _, line in sorted(self._lines, key=lambda placed: placed[0]):
                self.write(terminalreporter, f"npudump: {spoken(line)}")
            if self.tests:
                from pytest_npudump.report.summary import PAGE, remarks, summary_line  # noqa: PLC0415 - the same

                for line in remarks(self.results):
                    self.write(terminalreporter, f"npudump: {line}")
                line = summary_line(self.results, approval=self.settings.approval_flag, page=PAGE)
                self.write(terminalreporter, line)
            elif self._skipped and not self._ended_in:
                words = ngettext(
                    "nothing compared: {count} marked test skipped",
                    "nothing compared: {count} marked tests skipped",
                    self._skipped,
                )
                self.write(terminalreporter, f"npudump: {words.format(count=self._skipped)}")
            if self._ended_in:
                self.write(terminalreporter, f"npudump: {self._ended()}", red=True)
            hook.pytest_npudump_summary(reporter=self, terminalreporter=terminalreporter)

    def write(self, terminalreporter: Any, line: str, **markup: bool) -> None:
        """Print a line, as wide as the terminal is."""
        from pytest_npudump.plugin.terminal import fitted  # noqa: PLC0415 - where there is something to say

        for one in fitted(terminalreporter, line):
            terminalreporter.write_line(one, **markup)

    def pytest_unconfigure(self) -> None:
        """Print the line behind a session whose exit code is none that pytest makes a summary for."""
        terminal = self.config.pluginmanager.get_plugin("terminalreporter")
        if not (self._printed or terminal is None or self.config.option.no_summary):
            self.pytest_terminal_summary(terminal)
