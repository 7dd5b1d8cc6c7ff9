"""The parent's side: start a child for each run of a test, read what it reported, and conclude the test."""

from __future__ import annotations

import os
import subprocess
import sys
import warnings
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import pytest

from pytest_npudump.errors import NpudumpError, said
from pytest_npudump.language.text import inert
from pytest_npudump.plugin import _compat
from pytest_npudump.plugin.conclusion import INTERRUPTIONS, conclude, how_it_stopped, settle
from pytest_npudump.plugin.features.isolation.server import ServerProcess
from pytest_npudump.plugin.features.isolation.task import GRACE, LINES, Task
from pytest_npudump.plugin.item_case import BAD, ENDED, KEPT, RESULT, case_of
from pytest_npudump.plugin.terminal import announce_run
from pytest_npudump.regression.case import delete_dumps
from pytest_npudump.regression.session import CaseSession
from pytest_npudump.runtime.acl import RemoteRuntime
from pytest_npudump.runtime.programs import how_it_ended, last_lines, run_in_group
from pytest_npudump.storage.atomic import load_bytes, messages

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from pytest_npudump.golden.store import Recording
    from pytest_npudump.plugin.runner import Runner
    from pytest_npudump.results.serialisation import Kept


_MAIN = "from pytest_npudump.plugin.features.isolation.server import run; run()"
_GOOD = (0, 1)
"""Exit codes of a pytest that ran what it was to run."""
_STREAMS = ("stdout", "stderr")


def run_isolated(
    runner: Runner, item: pytest.Item, nextitem: pytest.Item | None, timeout: float
) -> list[pytest.TestReport]:
    """Run a test in processes of its own, and let what it has recorded count if all of it passed."""
    item.stash[RESULT] = {}
    item.stash[ENDED] = True
    runtime = RemoteRuntime(runner.runtime.chosen.name)
    case = case_of(item, runtime, runner.settings_for(item), runner.paths)
    test = CaseSession(replace(case, isolated=True))
    stopping = item.session.shouldfail or item.session.shouldstop
    reports = Isolated(item, test, runtime, timeout).reports(None if stopping else nextitem)
    settle(item, test, reports)
    return reports


@dataclass(frozen=True, slots=True)
class Isolated:
    """One test whose runs take place in child processes.

    Attributes:
        item: the test.
        test: its record in this process.
        runtime: what stands for its children's runtime.
        timeout: seconds that one run may take, where the test does not say.
    """

    item: pytest.Item
    test: CaseSession
    runtime: RemoteRuntime
    timeout: float

    def reports(self, nextitem: pytest.Item | None) -> list[pytest.TestReport]:
        """Run the test, a second time where the first one asks for it, and return the reports that count."""
        try:
            self.test.case.folder.make()
        except NpudumpError as error:
            words = inert(said("npudump: {error}", error=str(error)))
            return [self._report("setup", lambda: pytest.fail(words, pytrace=False))]
        reports = self._runs()
        outer = self._report("teardown", lambda: _compat.leave_nodes(self.item, nextitem))
        return [*reports, outer] if outer.failed else reports

    def _runs(self) -> list[pytest.TestReport]:
        first = self._run(1)
        if not first.again or not first.complete:
            return self._ended(first)
        if first.death:
            self._adopt(first)
            self.test.abandon_second_run(said("not run: the first run's process {death}", death=first.death))
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
        """Report the findings of the first run, where the session ends in the second."""
        self._adopt(first)
        self.test.abandon_second_run(how_it_stopped(stop))
        failed = [] if self.test.good else [*abandoned, self._concluded(first)]
        for report in failed:
            self.item.ihook.pytest_runtest_logreport(report=report)

    def _run(self, number: int, before: ChildRun | None = None) -> ChildRun:
        if before is not None:
            announce_run(self.item, number, before.reports)
        run = run_child(self.item, self.test, number, self.timeout)
        self.runtime.facts = run.producer
        if self.item.config.getoption("capture") == "no":
            sys.stdout.write("".join(f"{text}\n" for _, text in run.output))
        return run

    def _adopt(self, first: ChildRun) -> None:
        self.test.resume(load_bytes(first.task.judged.read_bytes()))

    def _ended(self, run: ChildRun) -> list[pytest.TestReport]:
        if not run.complete:
            # Make the reports of a test whose process did not live to make them.
            if run.task.called.exists():
                self.test.resume(load_bytes(run.task.called.read_bytes()))
            self.test.die(run.task.run, run.death)
            report = self._concluded(run)
            _compat.expect_failure(self.item, report)
            return [report, self._report("teardown", lambda: None)]
        self.test.resume({"recording": run.recording})
        self.item.stash[KEPT] = run.kept
        if run.bad:
            self.item.stash[BAD] = run.bad
        if run.death:
            return [*run.reports[:-1], self._failed_end(run)]
        if run.done:
            delete_dumps(self.test.case)
        return list(run.reports)

    def _concluded(self, run: ChildRun) -> pytest.TestReport:
        report = self._report("call", lambda: conclude(self.item, self.test))
        report.sections += run.output
        vars(report)["npudump"] = self.item.stash[RESULT]
        return report

    def _failed_end(self, run: ChildRun) -> pytest.TestReport:
        words = inert(said("npudump: the test's process {death}", death=run.death))
        report = self._report("teardown", lambda: pytest.fail(words, pytrace=False))
        report.sections += run.output
        return report

    def _report(self, when: str, function: Callable[[], None]) -> pytest.TestReport:
        """Make a report that is not the child's, past the hook: plugins there count on phases run here."""
        call = pytest.CallInfo.from_call(function, when, reraise=INTERRUPTIONS)  # type: ignore[arg-type]
        return pytest.TestReport.from_item_and_call(self.item, call)


@dataclass(frozen=True, slots=True)
class ChildRun:
    """A child process that has ended.

    Attributes:
        task: what it was to do.
        reports: of the test, as the child made them.
        again: whether the run asks for a second one.
        done: whether nobody needs its dumps any more.
        bad: the failure that stands, whoever runs the test again; "" without one.
        recording: what the run has recorded, which counts once all of the test has passed; None for nothing.
        kept: what is kept of the test; None where nothing was judged.
        producer: what its runtime says of itself; empty where it never came to one.
        complete: whether the test had ended, and everything of it was reported, before the process did.
        death: how the process ended, where it did not end as it should; else "".
        output: as sections of a report; of one that died the last lines.
    """

    task: Task
    reports: tuple[pytest.TestReport, ...]
    again: bool
    done: bool
    bad: str
    recording: Recording | None
    kept: Kept | None
    producer: Mapping[str, str]
    complete: bool
    death: str
    output: tuple[tuple[str, str], ...]


def run_child(item: pytest.Item, test: CaseSession, run: int, timeout: float) -> ChildRun:
    """Run a test once in a new interpreter and its own process group, and wait for its end.

    Args:
        item: the test; its session's hooks get the child's warnings.
        test: its record: where its dumps go, and how long it may take.
        run: 1 for the run that is judged, 2 for the one that explains.
        timeout: seconds that it may take, where the test does not say.

    Raises:
        pytest.exit.Exception: the test has called ``pytest.exit()``.
    """
    timeout = test.case.request.timeout or timeout
    meeting_place = test.case.exchange.folder if test.case.exchange is not None else None
    task = Task.of(item, run, test.case.directory, meeting_place)
    good, end = _run(task, item.config, timeout)
    heard: dict[str, Any] = {}
    reports = []
    for kind, content in messages(task.mailbox):
        if kind == "report":
            reports.append(item.ihook.pytest_report_from_serializable(config=item.config, data=content))
        elif kind == "warning":
            # Have pytest record a warning of the child, under a category of the same name.
            (text, module, name), file, line, nodeid, location = content
            category: type[Warning] = type(name, (Warning,), {"__module__": module})
            item.config.hook.pytest_warning_recorded.call_historic(
                kwargs={
                    "warning_message": warnings.WarningMessage(category(text), category, file, line),
                    "when": "runtest",
                    "nodeid": nodeid,
                    "location": tuple(location) if location else None,
                }
            )
        else:
            heard[kind] = content
    ServerProcess.of(item.config).learn(heard.get("modules", ()))
    if "exit" in heard:
        for report in reports:
            item.ihook.pytest_runtest_logreport(report=report)
        raise pytest.exit.Exception(*heard["exit"])
    concluded = heard.get("concluded", {})
    complete = "end" in heard and bool(concluded) and bool(reports)
    death = "" if good and complete else _words(end, heard)
    output = _output(task, whole=not death)
    if not death:
        shown = next((report for report in reports if report.failed), reports[len(reports) // 2])
        shown.sections += output
    return ChildRun(
        task=task,
        reports=tuple(reports),
        again=concluded.get("again", False),
        done=concluded.get("done", False),
        bad=concluded.get("bad", ""),
        recording=concluded.get("recording"),
        kept=concluded.get("kept"),
        producer=heard.get("producer", {}),
        complete=complete,
        death=death,
        output=output,
    )


def _files(task: Task) -> tuple[Path, ...]:
    return tuple(task.directory / f"child{task.run}-{name}.txt" for name in _STREAMS)


def _run(task: Task, config: pytest.Config, timeout: float) -> tuple[bool, str]:
    """Run the child; return whether it ended as a pytest does that ran its tests, and how it ended."""
    stdout, stderr = _files(task)
    cwd, server = config.invocation_params.dir, ServerProcess.of(config)
    try:
        file = task.write()
        with stdout.open("wb") as out, stderr.open("wb") as err:
            if server.is_ready(cwd):
                code = server.run(file, cwd, timeout, (out, err))
            else:
                command = (sys.executable, "-c", _MAIN, str(file))
                code = run_in_group(command, cwd, dict(os.environ), timeout, (out, err), grace=GRACE)
    except subprocess.TimeoutExpired:
        return False, said("did not end within {timeout:g} seconds and was ended", timeout=timeout)
    except OSError as error:
        return False, f"cannot be started: {error}"
    return code in _GOOD, how_it_ended(code)


def _output(task: Task, *, whole: bool) -> tuple[tuple[str, str], ...]:
    """Return the output of the child, or the last of it, as sections of a report."""
    streams = zip(_STREAMS, _files(task), strict=True)
    texts = (
        (name, path.read_text("utf-8", "replace") if whole else "\n".join(last_lines(path, LINES)))
        for name, path in streams
    )
    return tuple((f"Captured {name} call", text) for name, text in texts if text)


def _words(end: str, heard: Mapping[str, Any]) -> str:
    """Describe how the process ended, and at which point."""
    if "collection failed" in heard:
        lines = [line for line in heard["collection failed"].splitlines() if line.strip()]
        return f"could not collect the test: {(lines or ['no reason given'])[-1]}"
    if heard.get("collected", (1, 0))[0] == 0:
        return (
            f"collected {heard['collected'][1]} tests of its file, and not this one: the ids of its "
            "parameters must be the same in every process"
        )
    if "unmarked" in heard:
        return (
            "found no marker npu_dump on the test: a child process collects its file alone, and "
            "a hook that marks tests must mark this one there too; decorate the test, or have "
            "the hook look at nothing but the test"
        )
    return end + _point(heard)


def _point(heard: Mapping[str, Any]) -> str:
    if "end" in heard and "concluded" in heard:
        return said(", after the test had ended")
    phase = heard.get("phase")
    return said(", during the test's {phase}", phase=phase) if phase else said(", before the test began")
