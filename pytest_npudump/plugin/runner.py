"""The plugin object that runs marked tests; registered with the first of them that is collected."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from pytest_npudump.errors import ConfigError, NpudumpError
from pytest_npudump.language.text import inert
from pytest_npudump.language.translation import speaking, spoken
from pytest_npudump.plugin import _compat
from pytest_npudump.plugin.device_turns import devices_of
from pytest_npudump.plugin.isolation.task import CHILD
from pytest_npudump.plugin.keeper import Keeper
from pytest_npudump.plugin.marker.item import Identity, request_of
from pytest_npudump.plugin.marker.marks import is_marked
from pytest_npudump.plugin.paths import Paths, shared_goldens
from pytest_npudump.plugin.repetitions import Repetitions
from pytest_npudump.plugin.runtest.conclusion import (
    INTERRUPTIONS,
    body_failed,
    conclude,
    discarded_if_interrupted,
    failed_parts,
    finish,
    is_interruption,
    settle,
)
from pytest_npudump.plugin.runtest.item_case import (
    BAD,
    EARLIER_PARTS,
    ENDED,
    KEPT,
    OURS,
    PARTS,
    REPORTS,
    RESULT,
    TEST,
    only_setup,
    tell_item,
    will_run_again,
)
from pytest_npudump.plugin.runtest.phases import complete_report, forget_result, run_here, run_in_child
from pytest_npudump.plugin.session_runtime import SessionRuntime
from pytest_npudump.ranks.agreement import stand_aside
from pytest_npudump.ranks.rank import current_rank
from pytest_npudump.request import is_glob

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator, Sequence

    from pytest_npudump.plugin.fixture import NpuDump
    from pytest_npudump.plugin.isolation.child import Child
    from pytest_npudump.ranks.exchange import Exchange
    from pytest_npudump.regression.session import CaseSession
    from pytest_npudump.settings import Settings


class Runner:
    """Runs marked tests under dump, twice where the first run fails.

    Attributes:
        paths: where goldens and dumps of its tests lie.
        exchange: what the ranks of a distributed run tell each other by; None for a process of its own.
        ended_in: node id of the test in which the session was ended; "" where it was not.
    """

    def __init__(self, config: pytest.Config, settings: Settings) -> None:
        self._config = config
        self._settings = settings
        self._child: Child | None = config.pluginmanager.get_plugin(CHILD)
        self.exchange = _join_ranks(self._child)
        if self.exchange is not None and settings.calibrate:
            raise pytest.UsageError(
                f"npudump: --npudump-calibrate measures a test in one process, and this one is "
                f"{self.exchange.rank}: calibrate with one rank, or give the layers a rule of their own"
            )
        self._runtime = SessionRuntime(settings)
        self._collected: list[pytest.Item] = []
        self.ended_in = ""
        self.paths = Paths(config, settings, self.exchange.rank if self.exchange else None)
        self._repetitions = Repetitions(self.paths.golden)
        number = self.exchange.rank.number if self.exchange else None
        self._keeper = Keeper(config, settings, self.paths, number) if self._child is None else None

    def fixture_for(self, item: pytest.Item) -> NpuDump:
        """Return what ``item`` gets as ``npu_dump``."""
        from pytest_npudump.plugin.fixture import NpuDump  # noqa: PLC0415 - with the first test that runs

        return NpuDump(item.stash[TEST], item.path.parent, devices_of(item, self._settings))

    @pytest.hookimpl(tryfirst=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        """Remember the tests that are going to be deselected: they have goldens too."""
        self._collected = list(filter(is_marked, items))

    def shared_goldens(self, items: list[pytest.Item]) -> Iterator[tuple[pytest.Item, str]]:
        """Yield each test whose golden file is another one's too, and what is wrong with that.

        Args:
            items: the marked tests of the session.
        """
        return shared_goldens([*filter(is_marked, self._collected), *items], self.paths)

    def pytest_report_collectionfinish(self, items: list[pytest.Item]) -> list[str]:
        """Say which runtime the marked tests use and why, and what will take longer than it seems."""
        marked = [item for item in items if is_marked(item)]
        if not marked:
            return []
        selects = self._settings.runtime == "mindspore"  # by expressions, where CANN takes names
        globs = 0 if selects else sum(any(map(is_glob, request_of(item).layers)) for item in marked)
        tests = f"{globs} of {len(marked)} marked tests"
        slow = f"npudump: layers named by glob in {tests}; CANN takes names: there all layers are dumped"
        with speaking(self._settings.lang):
            return [*map(spoken, (self._runtime.announcement(), *([slow] if globs else [])))]

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
                reports = self._reports(item, nextitem)
            self._keep(item, reports)
            self._repetitions.note(item, self._settings, reports)
            for report in reports:
                tell_item(item, report)  # those of a child process are its own
                item.ihook.pytest_runtest_logreport(report=report)
        except INTERRUPTIONS:
            self.ended_in = item.nodeid
            raise
        finally:
            test = item.stash.get(TEST, None)
            if test is not None:
                if self._child is None:
                    test.clean_up()
                del item.stash[TEST]
            if self.exchange is not None:
                stand_aside(self.exchange, str(Identity.of(item)))
            item.stash[OURS] = False
        item.ihook.pytest_runtest_logfinish(nodeid=item.nodeid, location=item.location)
        return True

    def _keep(self, item: pytest.Item, reports: Sequence[pytest.TestReport]) -> None:
        if self._keeper is not None and not only_setup(item):
            self._keeper.keep(item, reports)

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        """Remember how many tests a whole session has, and skip them where they need what is not there."""
        if why := self._runtime.why_skipped():
            for item in filter(is_marked, session.items):
                item.add_marker(pytest.mark.skip(reason=why))
        if self._keeper is not None:
            variant = self._settings.golden_variant
            self._keeper.tests = frozenset(
                self.paths.golden(item, variant) for item in session.items if is_marked(item)
            )

    def _reports(self, item: pytest.Item, nextitem: pytest.Item | None) -> list[pytest.TestReport]:
        """Run the test, and let what it has recorded count if all of it passed."""
        if self._child is not None:
            return run_in_child(item, self._child)
        if BAD not in item.stash and self._runtime.isolates(item):
            return self._reports_from_children(item, nextitem)
        reports = run_here(item, nextitem)
        settle(item, item.stash.get(TEST, None), reports)
        return reports

    def _reports_from_children(
        self, item: pytest.Item, nextitem: pytest.Item | None
    ) -> list[pytest.TestReport]:
        from pytest_npudump.plugin.runtest.isolated_runs import Isolated  # noqa: PLC0415 - with an isolated test
        from pytest_npudump.plugin.runtest.item_case import Context, session_in_parent  # noqa: PLC0415 - the same
        from pytest_npudump.runtime.remote import RemoteRuntime  # noqa: PLC0415 - the same

        item.stash[RESULT] = {}
        item.stash[ENDED] = True
        settings = self._repetitions.settings_for(item, self._settings)
        context = Context(settings, self.paths, self.exchange)
        runtime = RemoteRuntime(self._runtime.chosen().name)
        test = session_in_parent(item, runtime, context)

        stopping = item.session.shouldfail or item.session.shouldstop
        reports = Isolated(item, test, runtime).reports(None if stopping else nextitem)
        settle(item, test, reports)
        return reports

    def pytest_runtest_setup(self, item: pytest.Item) -> None:
        """Switch the dump on, after skip marks have been heeded and before the first fixture."""
        if not is_marked(item):
            return
        if BAD in item.stash:
            raise pytest.fail.Exception(item.stash[BAD], pytrace=False)
        forget_result(item)
        item.stash[KEPT] = None
        item.stash[EARLIER_PARTS] = item.stash.get(PARTS, []) if will_run_again(item) else []
        item.stash[ENDED], item.stash[PARTS], item.stash[REPORTS] = False, [], {}
        try:
            if TEST not in item.stash:
                item.stash[TEST] = self._session(item)
            if not only_setup(item):
                item.stash[TEST].start()
        except NpudumpError as error:
            raise pytest.fail.Exception(inert(f"npudump: {error}"), pytrace=False) from None

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
            body_failed(item, test, words=f"{failed} of its subtests did not pass")
            words = f"npudump: {failed} subtests did not pass: nothing was compared and nothing recorded"
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
        """Attach what was compared to the report; behind the teardown, let what was recorded count."""
        report = yield
        complete_report(item, call, report)
        if is_marked(item) and not item.stash.get(OURS, False):
            reports = item.stash.setdefault(REPORTS, {})
            reports[report.when] = report
            if report.when == "teardown":
                settle(item, item.stash.get(TEST, None), [*reports.values()])
                self._keep(item, [*reports.values()])
        return report

    def pytest_sessionfinish(self) -> None:
        """Give the device back, and the memory that dumps are in."""
        self._runtime.close()
        self.paths.close()

    def _session(self, item: pytest.Item) -> CaseSession:
        from pytest_npudump.plugin.runtest import item_case  # noqa: PLC0415 - with the first test that runs

        settings = self._repetitions.settings_for(item, self._settings)
        context = item_case.Context(settings, self.paths, self.exchange)
        runtime = self._runtime.loaded(devices_of(item, self._settings)[0])
        if self._child is not None:
            return item_case.session_in_child(item, runtime, context, self._child)
        return item_case.session_of(item, runtime, context)


def _join_ranks(child: Child | None) -> Exchange | None:
    """Let this process talk with the other ranks of a distributed run; None where it is no such run."""
    rank = current_rank()
    if rank is None:
        return None
    from pytest_npudump.ranks.exchange import Exchange  # noqa: PLC0415 - only in a distributed run

    try:
        return Exchange(rank, child.task.meeting_place if child is not None else None)
    except ConfigError as error:
        raise pytest.UsageError(inert(f"npudump: {error}")) from None
