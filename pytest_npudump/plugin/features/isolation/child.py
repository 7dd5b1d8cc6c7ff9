"""Child of an isolated test: plugin of a pytest that runs one test once and reports to its parent."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from pytest_npudump.plugin import _compat
from pytest_npudump.plugin.conclusion import INTERRUPTIONS
from pytest_npudump.plugin.features.isolation.task import Task, needed
from pytest_npudump.plugin.item_case import BAD, KEPT, TEST, case_of, may_run_again
from pytest_npudump.plugin.marker import Identity, indices_of
from pytest_npudump.plugin.marks import is_marked
from pytest_npudump.plugin.runner import Runner, attempt, so_far, with_failed_setup
from pytest_npudump.regression.session import CaseSession
from pytest_npudump.storage.atomic import dump_bytes, load_bytes, post

if TYPE_CHECKING:
    import warnings
    from collections.abc import Generator

    from pytest_npudump.runtime.base import Runtime
    from pytest_npudump.settings import Settings


class Child:
    """Chooses the one test, and passes on its reports and warnings.

    Attributes:
        task: what this process is for.
    """

    def __init__(self, task: Task) -> None:
        self.task = task

    def _post(self, kind: str, content: object) -> None:
        post(self.task.mailbox, kind, content)

    @pytest.hookimpl(trylast=True)
    def pytest_configure(self, config: pytest.Config) -> None:
        """Keep pytest's own record of failures as it is: the parent writes it."""
        _compat.forget_earlier_failures(config)

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> Generator[None]:
        """Choose the test, whatever other plugins make of a file that is collected alone."""
        task = self.task
        own = [item for item in items if str(Identity.of(item)) == task.identity]
        mine = [item for item in own if indices_of(item) == task.indices]
        self._post("collected", (len(mine), len(items)))
        result = yield
        items[:] = mine[:1]
        return result

    @pytest.hookimpl(trylast=True)
    def pytest_collection_finish(self, session: pytest.Session) -> None:
        """Run nothing where the test carries no marker here: its parent would take that for a crash."""
        if session.items and not is_marked(session.items[0]):
            self._post("unmarked", True)  # noqa: FBT003 - a message's content
            session.items.clear()

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        """Pass on why nothing can be collected."""
        if report.failed:
            self._post("collection failed", report.longreprtext)

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_setup(self) -> None:
        """Report the phase under way, should it be the last one heard."""
        self._post("phase", "setup")

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_call(self) -> None:
        """Report the phase under way."""
        self._post("phase", "body")

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_teardown(self) -> None:
        """Report the phase under way."""
        self._post("phase", "teardown")

    def pytest_npudump_session(
        self, runner: Runner, item: pytest.Item, runtime: Runtime, settings: Settings
    ) -> CaseSession:
        """Return the record of the test, with its earlier runs, in other processes.

        What is known of the runtime is handed over as soon as it is loaded, for a parent that may need it.
        """
        self._post("producer", dict(runtime.producer()))
        case = case_of(item, runtime, settings, runner.paths, self.task.directory)
        test = CaseSession(replace(case, isolated=True, progress=None))
        if self.task.run > 1:
            test.resume(load_bytes(self.task.judged.read_bytes()))
        return test

    def pytest_npudump_run(self, item: pytest.Item) -> list[pytest.TestReport]:
        """Make the run that this process is for, hand over what came of it, and return its reports."""
        reports: list[pytest.TestReport] = []
        try:
            attempt(item, None, tuple(item.user_properties), reports, lambda: self._called(item))
        except INTERRUPTIONS as stop:
            for report in so_far(item, stop, reports, []) if self.task.run == 1 else []:
                item.ihook.pytest_runtest_logreport(report=report)
            raise
        test = item.stash.get(TEST, None)
        again = test is not None and test.wants_second_run and may_run_again(item)
        if test is not None and self.task.run > 1:
            reports = with_failed_setup(item, reports)
        if test is not None and again:
            self.task.judged.write_bytes(dump_bytes(test.handed_over()))
        recording = test.recording if test is not None else None
        told = {"again": again, "done": test is None or test.done, "bad": item.stash.get(BAD, "")}
        self._post("concluded", told | {"kept": item.stash.get(KEPT, None), "recording": recording})
        return reports

    def _called(self, item: pytest.Item) -> None:
        """Hand over what the body came to, should the process not live to the end of the teardown."""
        if (test := item.stash.get(TEST, None)) is not None and test.judged is not None:
            self.task.called.write_bytes(dump_bytes(test.handed_over()))

    def pytest_keyboard_interrupt(self, excinfo: pytest.ExceptionInfo[BaseException]) -> None:
        """Pass on ``pytest.exit()``, which ends the whole session."""
        if isinstance(excinfo.value, pytest.exit.Exception):
            self._post("exit", (str(excinfo.value.msg), excinfo.value.returncode))

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Pass on a report, and what other plugins have attached to it."""
        data = self._config.hook.pytest_report_to_serializable(config=self._config, report=report)
        self._post("report", _plain(data))

    def pytest_warning_recorded(
        self, warning_message: warnings.WarningMessage, when: str, nodeid: str, location: Any
    ) -> None:
        """Pass on a warning of the run; those of the collection were the parent's too."""
        if when == "runtest":
            category = warning_message.category
            words = (str(warning_message.message), category.__module__, category.__qualname__)
            self._post("warning", (words, warning_message.filename, warning_message.lineno, nodeid, location))

    def pytest_sessionstart(self, session: pytest.Session) -> None:
        """Remember the configuration, whose hooks know how reports are passed on."""
        self._config = session.config

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, exitstatus: int) -> None:
        """Report the child's needs, and that nothing is missing."""
        self._post("modules", needed())
        self._post("end", int(exitstatus))


def _plain(value: object) -> Any:
    """Return ``value`` as builtin types; what is none, a property of some test's own type say, as text."""
    if isinstance(value, dict):
        return {str(name): _plain(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(map(_plain, value)) if type(value) in {list, tuple} else [*map(_plain, value)]
    kept = value is None or type(value) in {bool, int, float, str, bytes}
    return value if kept else str(value)
