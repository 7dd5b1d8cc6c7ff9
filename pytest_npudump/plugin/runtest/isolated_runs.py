"""The runs of one isolated test, in the order in which a test in this process would have them."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest

from pytest_npudump.errors import NpudumpError
from pytest_npudump.language.text import inert
from pytest_npudump.plugin import _compat
from pytest_npudump.plugin.isolation.parent import ChildRun, run_child
from pytest_npudump.plugin.runtest.conclusion import INTERRUPTIONS, conclude, how_it_stopped
from pytest_npudump.plugin.runtest.item_case import BAD, KEPT, RESULT
from pytest_npudump.plugin.terminal.progress import announce_run
from pytest_npudump.regression.case import delete_dumps
from pytest_npudump.regression.unwritten import looks_for_unwritten
from pytest_npudump.storage.mailbox import load_bytes

if TYPE_CHECKING:
    from collections.abc import Callable

    from pytest_npudump.regression.session import CaseSession
    from pytest_npudump.runtime.remote import RemoteRuntime


@dataclass(frozen=True, slots=True)
class Isolated:
    """One test whose runs take place in child processes.

    Attributes:
        item: the test.
        test: its record in this process.
        runtime: what stands for its children's runtime.
    """

    item: pytest.Item
    test: CaseSession
    runtime: RemoteRuntime

    def reports(self, nextitem: pytest.Item | None) -> list[pytest.TestReport]:
        """Run the test, a second time where the first one asks for it, and return the reports that count."""
        try:
            self.test.case.folder.make()
        except NpudumpError as error:
            words = inert(f"npudump: {error}")
            return [self._report("setup", lambda: pytest.fail(words, pytrace=False))]
        reports = self._runs()
        outer = self._report("teardown", lambda: _compat.leave_nodes(self.item, nextitem))
        return [*reports, outer] if outer.failed else reports

    def _runs(self) -> list[pytest.TestReport]:
        if looks_for_unwritten(self.test.case):
            self._run(0)
        first = self._run(1)
        if not first.again or not first.complete:
            return self._ended(first)
        if first.death:
            self._adopt(first)
            self.test.abandon_second_run(f"not run: the first run's process {first.death}")
            return [*first.reports[:-2], self._concluded(first), self._failed_end(first)]
        abandoned = [report for report in first.reports if report.failed]
        try:
            second = self._run(2, first)
            while second.again and second.complete and not second.death:
                abandoned = abandoned or [report for report in second.reports if report.failed]
                first, second = second, self._run(second.task.run + 1, second)
        except INTERRUPTIONS as stop:
            self._log_first(first, abandoned, stop)
            raise
        if not second.complete:
            self._adopt(first)
        return [*abandoned, *self._ended(second)]

    def _log_first(self, first: ChildRun, abandoned: list[pytest.TestReport], stop: BaseException) -> None:
        """Report what the first run found, where the session ends in the second."""
        self._adopt(first)
        self.test.abandon_second_run(how_it_stopped(stop))
        failed = [] if self.test.good else [*abandoned, self._concluded(first)]
        for report in failed:
            self.item.ihook.pytest_runtest_logreport(report=report)

    def _run(self, number: int, before: ChildRun | None = None) -> ChildRun:
        if before is not None:
            announce_run(self.item, number, before.reports)
        run = run_child(self.item, self.test, number)
        self.runtime.learn(run.producer)
        if self.item.config.getoption("capture") == "no":
            sys.stdout.write("".join(f"{text}\n" for _, text in run.output))
        return run

    def _adopt(self, first: ChildRun) -> None:
        self.test.resume(load_bytes(first.task.judged.read_bytes()))

    def _ended(self, run: ChildRun) -> list[pytest.TestReport]:
        if not run.complete:
            return self._died(run)
        self.test.resume({"recording": run.recording})
        self.item.stash[KEPT] = run.kept
        if run.bad:
            self.item.stash[BAD] = run.bad
        if run.death:
            return [*run.reports[:-1], self._failed_end(run)]
        if run.done:
            delete_dumps(self.test.case)
        return list(run.reports)

    def _died(self, run: ChildRun) -> list[pytest.TestReport]:
        """Make the reports of a test whose process did not live to make them."""
        if run.task.called.exists():
            self.test.resume(load_bytes(run.task.called.read_bytes()))
        self.test.die(run.task.run, run.death)
        report = self._concluded(run)
        _compat.expect_failure(self.item, report)
        return [report, self._report("teardown", lambda: None)]

    def _concluded(self, run: ChildRun) -> pytest.TestReport:
        report = self._report("call", lambda: conclude(self.item, self.test))
        report.sections += run.output
        vars(report)["npudump"] = self.item.stash[RESULT]
        return report

    def _failed_end(self, run: ChildRun) -> pytest.TestReport:
        words = inert(f"npudump: the test's process {run.death}")
        report = self._report("teardown", lambda: pytest.fail(words, pytrace=False))
        report.sections += run.output
        return report

    def _report(self, when: str, function: Callable[[], None]) -> pytest.TestReport:
        """Make a report that is not the child's, past the hook: plugins there count on phases run here."""
        call = pytest.CallInfo.from_call(function, when, reraise=INTERRUPTIONS)  # type: ignore[arg-type]
        return pytest.TestReport.from_item_and_call(self.item, call)
