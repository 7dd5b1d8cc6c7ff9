"""The part of the plugin that prints: it runs where pytest reports, which under xdist is the controller."""

from __future__ import annotations

import time
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import pytest

from pytest_npudump.errors import NpudumpError
from pytest_npudump.plugin.marker.marks import MARKER
from pytest_npudump.plugin.reported import ITEM_OF_REPORT, Reported

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pytest_npudump.settings import Settings


UNKEPT = "npudump_results"
"""Attribute of a test's report that says why its result is not kept."""

_OURS = ("npudump: ", "npu_dump: ")
"""How a failure that this plugin raises begins."""

_BUDGET = 40
"""Lines that failing marked tests may fill before each further one is cut to two lines."""


def _expected(settings: Settings, config: pytest.Config) -> int | tuple[str, ...]:
    given = getattr(config.option, "npudump_expect", None)  # empty where a variable of a job is not set
    if not settings.expect and given is None:
        return 0
    from pytest_npudump.results.expected_tests import read_expected  # noqa: PLC0415 - only where asked for

    return read_expected(settings.expect, config.rootpath)


class Reporter:
    """Keeps failures within one budget of lines for the whole run, and prints the line at its end.

    Raises:
        RequestError: what the session is expected to compare cannot be read.
    """

    def __init__(self, config: pytest.Config, settings: Settings) -> None:
        self._config = config
        self._settings = settings
        self._lines_left = _BUDGET if config.option.verbose <= 0 else None
        self._tests: dict[str, Reported] = {}
        self._spoken: list[tuple[pytest.TestReport, Mapping[str, Any], bool]] = []
        self._plain: list[pytest.CollectReport | pytest.TestReport] = []
        self._expected = _expected(settings, config)
        self._lacking = ""
        self._annotations: list[str] = []
        self._began = time.time()
        self._notes: list[str] = []
        self._unkept: dict[str, str] = {}
        self._untidy = ""
        self._stale: list[str] = []
        self._idle = ""
        self._fails_for_rules = False
        self._crashed: list[str] = []
        self._marked_failed = False
        self._exited = False
        self._ended_in = ""
        self._ended = ""
        self._printed = False
        self._open = ""
        self._report = ""

    @property
    def _results(self) -> list[Mapping[str, Any]]:
        return [test.result for test in self._tests.values()]

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Keep the result of a marked test, and cut its failure once the budget is spent."""
        told = vars(report)
        result: Mapping[str, Any] | None = told.get("npudump")
        if result is None and report.outcome == "passed" and UNKEPT not in told:
            return  # as nearly all of a session's are
        self._marked_failed = self._marked_failed or (report.failed and MARKER in report.keywords)
        item: str = told.get(ITEM_OF_REPORT, report.nodeid)
        if UNKEPT in told:
            self._unkept[item] = told[UNKEPT]
        if report.failed and item in self._tests:
            self._tests[item] = self._tests[item]._replace(failed=True)
        if result is None or report.when == "setup":
            self._keep_plain(report)
        if result is None:
            phase: str = report.when
            self._crashed += [report.nodeid] if phase == "???" else []  # as xdist reports a dead worker
            return
        file, line, _ = report.location
        # A plugin that repeats tests may log several of an item: the last one counts.
        self._tests[item] = Reported(report.nodeid, result, report.failed, file, line or 0)
        short = report.failed and "short" in result and self._shortened(report, result)
        if report.failed and "spoken" in result:
            self._spoken.append((report, result["spoken"], short))

    def pytest_keyboard_interrupt(self, excinfo: pytest.ExceptionInfo[BaseException]) -> None:
        """Note in which marked test the session was ended, and whether that was ``pytest.exit()``."""
        self._exited = isinstance(excinfo.value, pytest.exit.Exception)
        runner = self._config.pluginmanager.get_plugin("npudump-runner")
        if runner is not None and runner.ended_in not in {test.nodeid for test in self._tests.values()}:
            self._ended_in = runner.ended_in

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        """Keep what was refused."""
        self._keep_plain(report)

    def _keep_plain(self, report: pytest.CollectReport | pytest.TestReport) -> None:
        """Keep a report of a failure that is ours and comes without a result."""
        if report.failed:
            crash = getattr(report.longrepr, "reprcrash", None)
            text = str(report.longrepr if crash is None else crash.message).removeprefix("Failed: ")
            if text.startswith(_OURS):
                self._plain.append(report)

    def _shortened(self, report: pytest.TestReport, result: Mapping[str, Any]) -> bool:
        """Cut a failure for which there is no room, and return whether it is one."""
        if self._lines_left is None:
            return False
        lines = len(report.longreprtext.splitlines())
        if lines <= self._lines_left:
            self._lines_left -= lines
            return False
        self._lines_left = 0
        report.longrepr = "\n".join(result["short"])
        return True

    def _speak(self) -> None:
        """Have the terminal show failures in its reader's language: all other readers have had theirs."""
        if self._spoken:
            from pytest_npudump.plugin.terminal.spoken_failure import speak  # noqa: PLC0415 - for failures

            for report, spoken, short in self._spoken:
                speak(report, spoken, short=short)
        if self._plain:
            from pytest_npudump.plugin.terminal.spoken_failure import speak_plainly  # noqa: PLC0415 - for failures

            for plain_report in self._plain:
                speak_plainly(plain_report)

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Write the notes of all tests beside their dumps, and remember them for the next session."""
        if self._settings.fail_on == "stale":
            self._fail_for_stale(session)
        if self._exited and session.exitstatus == pytest.ExitCode.OK:
            self._fail_for_exit(session)
        asked = self._settings.report or self._settings.summary
        if not (self._results or self._expected or asked or self._plain or self._ended_in):
            return
        from pytest_npudump.plugin.isolation.task import CHILD  # noqa: PLC0415 - only for marked tests

        if self._config.pluginmanager.has_plugin(CHILD):
            return
        from pytest_npudump.language.translation import speaking  # noqa: PLC0415 - only for marked tests

        self._speak()
        with speaking(self._settings.lang):
            self._expect(session)
            self._fail_for_idle_rules(session)
            if self._ended_in:
                from pytest_npudump.plugin.terminal.session_notes import ended_line  # noqa: PLC0415 - seldom needed

                self._ended = ended_line(self._ended_in)
        from pytest_npudump.plugin.paths import dumps_base  # noqa: PLC0415 - only for marked tests
        from pytest_npudump.plugin.terminal import session_notes  # noqa: PLC0415 - the same
        from pytest_npudump.ranks.rank import current_rank  # noqa: PLC0415 - the same

        rank = None
        with suppress(NpudumpError):  # what the launcher's variables lack has ended the session already
            rank = current_rank()
        if self._results:
            with speaking(self._settings.lang):
                self._tidy_results(rank.number if rank is not None else None)
            self._trim_cache()
        if self._settings.report:
            with speaking(self._settings.lang):
                self._write_report(session, rank.number if rank is not None else None)
        prefix = f"rank{rank.number}-" if rank is not None else ""
        if not self._results:
            self._summarize(session, prefix)
            return
        memory = session_notes.Memory(self._config, rank.variant if rank is not None else "")
        found = session_notes.collect_notes(self._results, memory.before)
        memory.keep(self._results)
        files = session_notes.write_notes(dumps_base(self._config, self._settings), prefix, found)
        with speaking(self._settings.lang):
            self._notes = session_notes.note_lines(found, files, verbose=self._config.option.verbose > 0)
        self._summarize(session, prefix)

    def _fail_for_exit(self, session: pytest.Session) -> None:
        """Fail a session that a test has ended with 0, where a marked test failed or was not judged."""
        if self._marked_failed:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED
        elif self._ended_in:
            session.exitstatus = pytest.ExitCode.INTERRUPTED

    def _expect(self, session: pytest.Session) -> None:
        """Fail a session that lacks tests which it was to compare."""
        if not self._expected or self._config.option.collectonly:
            return
        self._lacking = self._gap()
        if self._lacking and session.exitstatus == pytest.ExitCode.OK:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def _gap(self) -> str:
        """Return which tests were not compared that were to be; "" for none."""
        from pytest_npudump.plugin.terminal.session_notes import gap_line  # noqa: PLC0415 - only where asked for

        return gap_line(self._expected, [(test.nodeid, test.result) for test in self._tests.values()])

    def _problems(self, session: pytest.Session) -> list[str]:
        """Return why the session does not pass, whatever its tests say: in English, as files have it."""
        from pytest_npudump.plugin.terminal import session_notes  # noqa: PLC0415 - for files

        told = [session_notes.ended_line(self._ended_in), self._lacking and self._gap(), *self._stale]
        if self._fails_for_rules:
            told.append(session_notes.idle_line(session_notes.idle_rules(self._results), self._config)[0])
        return session_notes.session_problems(told, self._crashed, session)

    def _fail_for_idle_rules(self, session: pytest.Session) -> None:
        """Tell of rules that are about nothing, and fail a session of all tests that ended well with them."""
        if not any("idle_rules" in result for result in self._results):
            return
        from pytest_npudump.plugin.terminal import session_notes  # noqa: PLC0415 - only where there are any

        if rules := session_notes.idle_rules(self._results):
            self._idle, self._fails_for_rules = session_notes.idle_line(rules, self._config)
            if self._fails_for_rules and session.exitstatus == pytest.ExitCode.OK:
                session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def _summarize(self, session: pytest.Session, prefix: str) -> None:
        from pytest_npudump.plugin.ci import summaries  # noqa: PLC0415 - only for marked tests

        if (
            not (summaries.is_wanted(self._settings) or self._settings.artifacts)
            or self._config.option.collectonly
        ):
            return
        problems = self._problems(session)
        root = self._config.rootpath
        tests = summaries.judged_tests(self._tests.values(), root)
        folder = None
        if self._settings.artifacts and self._results:
            from pytest_npudump.plugin.ci.artifacts import gather  # noqa: PLC0415 - only where asked for

            told, folder = gather(tests, problems, self._config, self._settings, self._began)
            self._notes.append(told)
        self._notes += summaries.write_summaries(
            tests, problems, self._settings, root, prefix=prefix, artifacts=folder
        )
        self._annotations = [*summaries.annotation_lines(tests, problems)]

    def _fail_for_stale(self, session: pytest.Session) -> None:
        """Fail a session that ended well where goldens are stale."""
        from pytest_npudump.plugin.terminal import session_notes  # noqa: PLC0415 - only where asked for

        if not session_notes.is_asked(self._config, self._settings):
            return
        self._stale = session_notes.stale_lines(self._config, self._settings)
        if self._stale and session.exitstatus in {pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED}:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def _tidy_results(self, rank: int | None) -> None:
        """Remove what is kept of earlier runs of the tests that ran, and say what is to be decided about."""
        from pytest_npudump.plugin.paths import keeps_results, results_path  # noqa: PLC0415 - only for marked tests
        from pytest_npudump.results.folder import ResultsFolder  # noqa: PLC0415 - the same

        if not self._kept or not keeps_results(self._config, self._settings):
            return
        try:
            folder = results_path(self._config, self._settings)
            entries = ResultsFolder(folder).compact()
        except (OSError, NpudumpError) as error:
            self._untidy = f"results of earlier runs cannot be removed: {error}"
        else:
            from pytest_npudump.plugin.terminal.session_notes import open_runs_line  # noqa: PLC0415 - as above

            self._open = open_runs_line(
                entries, self._kept, rank, self._settings, folder=folder, config=self._config
            )

    @property
    def _kept(self) -> set[str]:
        """Names of the tests whose results are kept."""
        told = self._tests.items()
        return {str(test.result.get("test", test.nodeid)) for item, test in told if item not in self._unkept}

    def _unkept_line(self) -> str:
        """Say why not all results are kept; "" where they are."""
        if not self._unkept:
            return ""
        error, *_ = self._unkept.values()
        if not self._kept:
            return f"results are not kept: {error}"
        count, total = len(self._unkept), len({*self._tests, *self._unkept})
        return f"the results of {count} of {total} tests are not kept: {error}"

    def _trim_cache(self) -> None:
        """Keep the tensors that this machine has of a store within their limit."""
        if not self._settings.tensor_store:
            return
        from pytest_npudump.golden.objects.object_cache import trim  # noqa: PLC0415 - only with a store
        from pytest_npudump.golden.stored_tensors import store_of  # noqa: PLC0415 - the same

        trim(store_of(self._settings, self._config.rootpath).cache, self._settings.tensor_cache_limit)

    def _write_report(self, session: pytest.Session, rank: int | None) -> None:
        from pytest_npudump.plugin.terminal.session_notes import write_report  # noqa: PLC0415 - where asked for

        problems = self._problems(session)
        tests = {str(result["test"]) for result in self._results}
        unkept = "" if self._kept else self._unkept_line()
        self._report = write_report(
            self._config, self._settings, self._kept or tests, unkept, problems, rank=rank
        )

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        """Print the one line that says what was compared, behind what is to be known of tests that passed."""
        self._printed = True
        unkept = (self._unkept_line(), self._untidy)
        if lines := [
            *filter(None, (*self._notes, *unkept, *self._stale, self._idle, self._report, self._open))
        ]:
            from pytest_npudump.language.text import inert  # noqa: PLC0415 - where there are any
            from pytest_npudump.language.translation import speaking, spoken  # noqa: PLC0415 - the same

            with speaking(self._settings.lang):
                for line in lines:
                    terminalreporter.write_line(inert(f"npudump: {spoken(line)}"))
        if self._results:
            from pytest_npudump.language.text import inert  # noqa: PLC0415 - only for marked tests
            from pytest_npudump.language.translation import speaking  # noqa: PLC0415 - the same
            from pytest_npudump.report.summary import summary_line  # noqa: PLC0415 - the same

            with speaking(self._settings.lang):
                line = summary_line(self._results, approval=self._settings.approval_flag)
                terminalreporter.write_line(inert(line))
                self._compare_notes(terminalreporter)
        for line in filter(None, (self._ended, self._lacking)):
            from pytest_npudump.language.text import inert  # noqa: PLC0415 - only where one of them is said

            terminalreporter.write_line(inert(f"npudump: {line}"), red=True)
        for line in self._annotations:
            terminalreporter.write_line(line)

    def pytest_unconfigure(self) -> None:
        """Print the line behind a session whose exit code is none that pytest makes a summary for."""
        terminal = self._config.pluginmanager.get_plugin("terminalreporter")
        if not (self._printed or terminal is None or self._config.option.no_summary):
            self.pytest_terminal_summary(terminal)

    def _compare_notes(self, terminalreporter: Any) -> None:
        """Have rank 0 of a distributed run print which ranks differ."""
        runner = self._config.pluginmanager.get_plugin("npudump-runner")
        if runner is None or runner.exchange is None:
            return
        from pytest_npudump.language.text import inert  # noqa: PLC0415 - only in such a run
        from pytest_npudump.ranks.agreement import compare_notes, printed  # noqa: PLC0415 - only in such a run

        failures = dict.fromkeys((str(result["test"]) for result in self._results), "")
        for test in self._tests.values():
            if test.failed:
                words = test.result.get("first") or test.result.get("operator") or test.result["status"]
                failures[str(test.result["test"])] = str(words)
        for line in compare_notes(runner.exchange, failures):
            terminalreporter.write_line(inert(f"npudump: {line}"))
        terminalreporter.flush()
        printed(runner.exchange)
