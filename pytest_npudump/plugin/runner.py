"""The main flow of one marked test: the plugin object that comes in with the first, and a test's runs.

A step that a feature may change is a hook of our own (:class:`pytest_npudump.plugin.features.HookPoints`).
"""

from __future__ import annotations

import re
from contextlib import nullcontext
from pathlib import Path
from traceback import clear_frames
from typing import TYPE_CHECKING

import pytest

from pytest_npudump.errors import NpudumpError, said
from pytest_npudump.language.text import inert
from pytest_npudump.language.translation import speaking, spoken
from pytest_npudump.plugin import _compat
from pytest_npudump.plugin.conclusion import (
    INTERRUPTIONS,
    body_failed,
    conclude,
    discarded_if_interrupted,
    failed_parts,
    finish,
    first_line,
    how_it_stopped,
    is_interruption,
    settle,
)
from pytest_npudump.plugin.item_case import (
    BAD,
    EARLIER_PARTS,
    ENDED,
    EXCHANGE,
    KEPT,
    OURS,
    PARTS,
    REPORTS,
    RESULT,
    TEST,
    SessionRuntime,
    case_of,
    devices_of,
    is_of_modules,
    may_run_again,
    only_setup,
    tell_item,
    watch_models,
    will_run_again,
)
from pytest_npudump.plugin.marker import Identity, request_of
from pytest_npudump.plugin.marks import is_marked
from pytest_npudump.plugin.paths import Paths, shared_goldens
from pytest_npudump.plugin.terminal import announce_run, fitted
from pytest_npudump.regression.result import NOT_COMPARED
from pytest_npudump.regression.session import CaseSession
from pytest_npudump.request import is_glob

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator, Sequence
    from contextlib import AbstractContextManager

    from pytest_npudump.plugin.fixture import NpuDump
    from pytest_npudump.runtime.base import Runtime
    from pytest_npudump.settings import Settings


class Runner:
    """Runs marked tests under dump, twice where the first run fails.

    Attributes:
        paths: where goldens and dumps of its tests lie.
        runtime: what runs their models.
        exchange: what the ranks of a distributed run tell each other by; None for a process of its own.
        ended_in: node id of the test in which the session was ended; "" where it was not.
    """

    def __init__(self, config: pytest.Config, settings: Settings) -> None:
        self._config = config
        self._settings = settings
        self._collected: list[pytest.Item] = []
        self.exchange = config.stash.get(EXCHANGE, None)
        self.paths = Paths(config, settings, self.exchange.rank if self.exchange else None)
        self.runtime = SessionRuntime(config, settings)
        self.ended_in = ""

    def fixture_for(self, item: pytest.Item) -> NpuDump:
        """Return the fixture ``npu_dump`` of ``item``."""
        from pytest_npudump.plugin.fixture import NpuDump  # noqa: PLC0415 - with the first test that runs

        return NpuDump(item.stash[TEST], item.path.parent, devices_of(item))

    @pytest.hookimpl(tryfirst=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        """Remember the tests that are going to be deselected: they have goldens too."""
        self._collected = list(filter(is_marked, items))

    def shared_goldens(self, items: list[pytest.Item]) -> Iterator[tuple[pytest.Item, str]]:
        """Yield each test whose golden file is another one's too, and what is wrong with that."""
        return shared_goldens([*filter(is_marked, self._collected), *items], self.paths)

    def pytest_report_collectionfinish(self, items: list[pytest.Item]) -> list[str]:
        """Report the runtime of the marked tests and why it was chosen, and long work ahead."""
        marked = [item for item in items if is_marked(item) and not is_of_modules(item)]
        if not marked:
            return []
        selects = self.runtime.name in {"mindspore", "emulator"}  # of MindSpore by expressions
        globs = 0 if selects else sum(any(map(is_glob, request_of(item).layers)) for item in marked)
        tests = said("{globs} of {count} marked tests", globs=globs, count=len(marked))
        slow = said(
            "npudump: layers named by glob in {tests}: CANN dumps all layers; full names dump fewer",
            tests=tests,
        )
        with speaking(self._settings.lang):
            lines = [*map(spoken, (self.runtime.announcement(), *([slow] if globs else [])))]
        reporter = self._config.pluginmanager.get_plugin("terminalreporter")
        return [one for line in lines for one in fitted(reporter, line)]

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item, nextitem: pytest.Item | None) -> bool | None:
        """Run a marked test, and run it again where its first run asks for a dump of tensors.

        The first of two runs is not logged, unless its setup or teardown fails: each test has one set
        of reports, those of the run that counts.
        """
        if not is_marked(item):
            return None
        item.ihook.pytest_runtest_logstart(nodeid=item.nodeid, location=item.location)
        item.stash[OURS] = True
        try:
            with discarded_if_interrupted(item):
                reports = item.ihook.pytest_npudump_run(runner=self, item=item, nextitem=nextitem)
            item.ihook.pytest_npudump_ended(runner=self, item=item, reports=reports)
            for report in reports:
                tell_item(item, report)  # those of a child process are its own
                item.ihook.pytest_runtest_logreport(report=report)
        except INTERRUPTIONS:
            self.ended_in = item.nodeid
            raise
        finally:
            if (test := item.stash.get(TEST, None)) is not None:
                if not test.case.isolated:  # else whoever is told of it cleans up
                    test.clean_up()
                vars(test).clear()  # frames of a failure, which plugins that repeat tests keep, have it
                del item.stash[TEST]
            item.ihook.pytest_npudump_left(item=item)
            item.stash[OURS] = False
        item.ihook.pytest_runtest_logfinish(nodeid=item.nodeid, location=item.location)
        return True

    @pytest.hookimpl(trylast=True)
    def pytest_npudump_run(self, item: pytest.Item, nextitem: pytest.Item | None) -> list[pytest.TestReport]:
        """Run the test in this process, and let what it has recorded count if all of it passed."""
        reports = run_here(item, nextitem)
        settle(item, item.stash.get(TEST, None), reports)
        return reports

    @pytest.hookimpl(trylast=True)
    def pytest_npudump_session(self, item: pytest.Item, runtime: Runtime, settings: Settings) -> CaseSession:
        """Return the record of a test that has not run yet, and runs in this process."""
        return CaseSession(case_of(item, runtime, settings, self.paths))

    def settings_for(self, item: pytest.Item) -> Settings:
        """Return the settings that a test runs under: those of the session, mostly."""
        own: Settings | None = item.ihook.pytest_npudump_settings(runner=self, item=item)
        return own or self._settings

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        """Skip marked tests where they need what is not there."""
        if why := self.runtime.why_skipped():
            for item in filter(is_marked, session.items):
                item.add_marker(pytest.mark.skip(reason=why))

    def pytest_runtest_setup(self, item: pytest.Item) -> None:
        """Switch the dump on, after skip marks have been heeded and before the first fixture."""
        if not is_marked(item):
            return
        if BAD in item.stash:
            raise pytest.fail.Exception(item.stash[BAD], pytrace=False)
        if result := item.stash.setdefault(RESULT, {}):  # a report that holds it says so
            result.clear()
            result.update(_uncompared(item))
        item.stash[KEPT] = None
        item.stash[EARLIER_PARTS] = item.stash.get(PARTS, []) if will_run_again(item) else []
        item.stash[ENDED], item.stash[PARTS], item.stash[REPORTS] = False, [], {}
        try:
            if TEST not in item.stash:
                runtime = self.runtime.loaded(devices_of(item)[0], modules=is_of_modules(item))
                item.stash[TEST] = item.ihook.pytest_npudump_session(
                    runner=self, item=item, runtime=runtime, settings=self.settings_for(item)
                )
            if not only_setup(item):
                item.stash[TEST].start()
        except NpudumpError as error:
            raise pytest.fail.Exception(
                inert(said("npudump: {error}", error=str(error))), pytrace=False
            ) from None

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_call(self, item: pytest.Item) -> Generator[None]:
        """Judge the dump once the body has ended, inside the phase whose report it decides.

        A body that failed by itself may pass where another plugin repeats it; a bad outcome stands.
        """
        if BAD in item.stash:
            raise pytest.fail.Exception(item.stash[BAD], pytrace=False)
        test = item.stash.get(TEST, None)
        if test is None:
            return (yield)
        try:
            try:
                watch_models(item, test)
                result = yield
            finally:
                item.stash[ENDED] = True
        except BaseException as error:
            if not is_interruption(item, error) and body_failed(item, test, error):
                return None
            raise
        if _compat.failed_outside_of_the_call(item):
            body_failed(item, test)
            return result
        if failed := failed_parts(item):
            body_failed(item, test, words=said("{failed} of its subtests did not pass", failed=failed))
            words = said(
                "npudump: subtests did not pass ({failed}): nothing was compared and nothing recorded",
                failed=failed,
            )
            raise pytest.fail.Exception(words, pytrace=False)
        finish(item, test)
        conclude(item, test)
        return result

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_teardown(self, item: pytest.Item) -> Generator[None, None, object]:
        """Switch the dump off where setup failed before the body; subtests may still come."""
        if TEST not in item.stash:
            return (yield)
        item.stash[TEST].stop()
        ended, item.stash[ENDED] = item.stash.get(ENDED, False), False
        try:
            return (yield)
        finally:
            item.stash[ENDED] = ended

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(
        self, item: pytest.Item, call: pytest.CallInfo[None]
    ) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        """Attach the comparison to the report; behind the teardown, complete the recording."""
        if call.excinfo is not None:
            # Leave of a verdict's traceback the last frame: pytest filters all by their paths, and shows
            # none.
            shown, last = getattr(call.excinfo.value, "pytrace", True), call.excinfo.traceback[-1:]
            if not shown and last and last[0].frame.code.raw.co_filename.startswith(str(_PACKAGE)):
                call.excinfo.traceback = last
                clear_frames(call.excinfo.tb)
        report = yield
        complete_report(item, call, report)
        if is_marked(item) and not item.stash.get(OURS, False):
            reports = item.stash.setdefault(REPORTS, {})
            reports[report.when] = report
            if report.when == "teardown":
                settle(item, item.stash.get(TEST, None), [*reports.values()])
                item.ihook.pytest_npudump_ended(runner=self, item=item, reports=[*reports.values()])
        return report

    def pytest_sessionfinish(self) -> None:
        """Give the device back."""
        self.runtime.close()


_PACKAGE = Path(__file__).parents[1]


def complete_report(item: pytest.Item, call: pytest.CallInfo[None], report: pytest.TestReport) -> None:
    """Attach the comparison to a report, as plain data that reaches xdist's controller.

    A marked test that passed without a comparison fails, and so does every later phase of a test that has
    come to a failure, whoever runs it.
    """
    _locate(item, call, report)
    tell_item(item, report)
    # Reports of subtests, which come while the body runs, are not the test's.
    if call.when == "call" and not item.stash.get(ENDED, True):
        item.stash.setdefault(PARTS, []).append(report)
    ended = item.stash.get(ENDED, False) or TEST not in item.stash
    if call.when == "call" and ended and is_marked(item) and not only_setup(item):
        result = item.stash.setdefault(RESULT, {})
        if not result:
            result.update(_uncompared(item))
        vars(report)["npudump"] = result
        if result["status"] == NOT_COMPARED and report.passed and not will_run_again(item):
            report.outcome = "failed"
            item.stash[BAD] = said("npudump: the test passed without having been compared with its golden")
            report.longrepr = item.stash[BAD]
    if call.when == "setup" and report.failed and is_marked(item) and not only_setup(item):
        vars(report)["npudump"] = _uncompared(item)
    expected = report.failed or hasattr(report, "wasxfail")
    if BAD in item.stash and call.when != "teardown" and not expected:
        report.outcome = "failed"
        report.longrepr = item.stash[BAD]


def _locate(item: pytest.Item, call: pytest.CallInfo[None], report: pytest.TestReport) -> None:
    """Let a verdict be at the test: an editor that looks for its place would open one of our modules."""
    error = call.excinfo.value if call.excinfo is not None else None
    crash, line = getattr(report.longrepr, "reprcrash", None), item.location[1]
    if crash is None or line is None or getattr(error, "pytrace", True):
        return
    if Path(crash.path).is_relative_to(_PACKAGE):
        crash.path, crash.lineno = str(item.path), line + 1
        # pytest's short summary shows the first line only, which a terminal broke where it is narrow.
        first = re.match(r".*(?:\n {12}.*)*", crash.message)
        crash.message = re.sub(r"\n {12}", " ", first[0]) + crash.message[len(first[0]) :] if first else ""


def _uncompared(item: pytest.Item) -> dict[str, str]:
    test = item.stash.get(TEST, None)
    told = {"status": NOT_COMPARED, "test": str(Identity.of(item))}
    return told | ({"runtime": test.case.runtime.name} if test is not None else {})


def run_here(item: pytest.Item, nextitem: pytest.Item | None) -> list[pytest.TestReport]:
    """Run a test in this process, a second time where its first run asks for it.

    Returns:
        The reports of the run that counts, behind those of the first run's phases that failed.
    """
    properties = tuple(item.user_properties)
    first: list[pytest.TestReport] = []
    second: list[pytest.TestReport] = []
    try:
        attempt(item, nextitem, properties, first)
        test = item.stash.get(TEST, None)
        if test is None or not test.wants_second_run or not may_run_again(item):
            return first
        if test.measures and _abandoned(first):
            test.abandon_second_run(said("its first run did not pass"))
            told = _failed_call(item, test)
            first = [told if report.when == "call" and report.passed else report for report in first]
            for report in first:
                report.user_properties[:] = item.user_properties
            return first + _left(item, nextitem)
        with _interruptible():
            announce_run(item, 2, first)
            attempt(item, nextitem, properties, second)
            while test.wants_second_run and may_run_again(item) and second[0].passed:
                announce_run(item, len(test.attempts) + 1, second)
                first = first if _abandoned(first) else second.copy()
                second.clear()
                attempt(item, nextitem, properties, second)
    except INTERRUPTIONS as stop:
        item.user_properties[:] = properties
        for report in so_far(item, stop, first, second):
            item.ihook.pytest_runtest_logreport(report=report)
        raise
    return _abandoned(first) + with_failed_setup(item, second)


def _left(item: pytest.Item, nextitem: pytest.Item | None) -> list[pytest.TestReport]:
    """Tear down fixtures kept for a second run; return reports of failures in it."""
    call = pytest.CallInfo.from_call(lambda: _compat.leave_nodes(item, nextitem), "teardown")
    return [item.ihook.pytest_runtest_makereport(item=item, call=call)] if call.excinfo is not None else []


def _abandoned(first: Sequence[pytest.TestReport]) -> list[pytest.TestReport]:
    return [report for report in first if report.failed]


def so_far(
    item: pytest.Item, stop: BaseException, first: list[pytest.TestReport], second: list[pytest.TestReport]
) -> list[pytest.TestReport]:
    """Return the reports of a test in which the session ends: a failure of the first run is among them."""
    if any(report.when == "call" for report in second):
        return _abandoned(first) + second
    test = item.stash.get(TEST, None)
    begun = test is not None and test.repeated
    if test is None or not (begun or will_run_again(item)):
        return first
    test.abandon_second_run(how_it_stopped(stop))
    return [] if test.good else [*_abandoned(first), _failed_call(item, test)]


def with_failed_setup(item: pytest.Item, second: list[pytest.TestReport]) -> list[pytest.TestReport]:
    """Put the first run's failure in place of the second run's setup, where that has failed."""
    if second[0].passed:
        return second
    item.stash[TEST].abandon_second_run(said("setup of the second run: {why}", why=_why(second[0])))
    return [_failed_call(item, item.stash[TEST]), second[-1]]


def attempt(
    item: pytest.Item,
    nextitem: pytest.Item | None,
    properties: Sequence[tuple[str, object]],
    reports: list[pytest.TestReport],
    called: Callable[[], None] = lambda: None,
) -> None:
    """Run the phases of a test once, adding their reports to ``reports`` one by one."""
    _compat.begin_attempt(item, properties)
    item.stash[RESULT] = {}
    item.stash[ENDED] = False
    try:
        reports.append(_compat.run_phase(item, "setup"))
        if reports[0].passed:
            if item.config.getoption("setupshow", default=False):
                _compat.show_setup(item)
            if not only_setup(item):
                reports.append(_compat.run_phase(item, "call"))
                test = item.stash.get(TEST, None)
                if test is not None and test.measures and test.wants_second_run and reports[-1].failed:
                    # Another plugin fails it: of what does not pass nothing is measured.
                    test.abandon_second_run(said("its body did not pass"))
                called()
        following = item.parent if will_run_again(item) else nextitem
        if item.session.shouldfail or item.session.shouldstop:
            following = None
        # What a first run found is told, should a signal end the session before the second.
        with _interruptible() if will_run_again(item) else nullcontext():
            reports.append(_compat.run_phase(item, "teardown", nextitem=following))
    finally:
        _compat.end_attempt(item)


def _interruptible() -> AbstractContextManager[None]:
    """Let a signal end the block as Ctrl-C does."""
    from pytest_npudump.runtime.programs import interruptible  # noqa: PLC0415 - of a second run

    return interruptible()


def _failed_call(item: pytest.Item, test: CaseSession) -> pytest.TestReport:
    """Make the report of a body whose result is known only behind it: no further run got to one."""
    item.stash[ENDED] = True
    call = pytest.CallInfo.from_call(lambda: conclude(item, test), "call")
    report: pytest.TestReport = item.ihook.pytest_runtest_makereport(item=item, call=call)
    return report


def _why(report: pytest.TestReport) -> str:
    crash = getattr(report.longrepr, "reprcrash", None)
    return first_line(crash.message if crash else report.longreprtext) or report.outcome
