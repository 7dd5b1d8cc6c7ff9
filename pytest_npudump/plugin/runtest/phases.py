"""What the report of a test's phase says besides pytest's own: what was compared, and that it was at all."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from pytest_npudump.errors import said
from pytest_npudump.plugin import _compat
from pytest_npudump.plugin.marker.identity import Identity
from pytest_npudump.plugin.marker.marks import is_marked
from pytest_npudump.plugin.runtest.conclusion import INTERRUPTIONS, conclude, first_line, how_it_stopped
from pytest_npudump.plugin.runtest.item_case import (
    BAD,
    ENDED,
    PARTS,
    RESULT,
    TEST,
    may_run_again,
    only_setup,
    tell_item,
    will_run_again,
)
from pytest_npudump.plugin.terminal.progress import announce_run
from pytest_npudump.regression.result import NOT_COMPARED
from pytest_npudump.runtime.programs import interruptible

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pytest_npudump.regression.session import CaseSession


_PACKAGE = Path(__file__).parents[2]


def complete_report(item: pytest.Item, call: pytest.CallInfo[None], report: pytest.TestReport) -> None:
    """Attach what was compared to a report, as plain data that reaches xdist's controller.

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
        _attach_result(item, report)
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


def forget_result(item: pytest.Item) -> None:
    """Forget what a test came to as its body is to run again: a report that holds it says so."""
    result = item.stash.setdefault(RESULT, {})
    if result:
        result.clear()
        result.update(_uncompared(item))


def _attach_result(item: pytest.Item, report: pytest.TestReport) -> None:
    result = item.stash.setdefault(RESULT, {})
    if not result:
        result.update(_uncompared(item))
    vars(report)["npudump"] = result
    if result["status"] == NOT_COMPARED and report.passed and not will_run_again(item):
        report.outcome = "failed"
        item.stash[BAD] = said("npudump: the test passed without having been compared with its golden")
        report.longrepr = item.stash[BAD]


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
        with interruptible():
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
    """Tear down what the test's first run kept for a second one; the report of what fails there."""
    call = pytest.CallInfo.from_call(lambda: _compat.leave_nodes(item, nextitem), "teardown")
    return [item.ihook.pytest_runtest_makereport(item=item, call=call)] if call.excinfo is not None else []


def _abandoned(first: Sequence[pytest.TestReport]) -> list[pytest.TestReport]:
    return [report for report in first if report.failed]


def so_far(
    item: pytest.Item,
    stop: BaseException,
    first: list[pytest.TestReport],
    second: list[pytest.TestReport],
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
                _measure_what_passes(item, reports[-1])
                called()
        following = item.parent if will_run_again(item) else nextitem
        if item.session.shouldfail or item.session.shouldstop:
            following = None
        # What a first run found is told, should a signal end the session before the second.
        with interruptible() if will_run_again(item) else nullcontext():
            reports.append(_compat.run_phase(item, "teardown", nextitem=following))
    finally:
        _compat.end_attempt(item)


def _measure_what_passes(item: pytest.Item, body: pytest.TestReport) -> None:
    """Let a test whose report another plugin fails run once: of what does not pass nothing is measured."""
    test = item.stash.get(TEST, None)
    if test is not None and test.measures and test.wants_second_run and body.failed:
        test.abandon_second_run(said("its body did not pass"))


def _failed_call(item: pytest.Item, test: CaseSession) -> pytest.TestReport:
    """Make the report of a body whose result is known only behind it: no further run got to one."""
    item.stash[ENDED] = True
    call = pytest.CallInfo.from_call(lambda: conclude(item, test), "call")
    report: pytest.TestReport = item.ihook.pytest_runtest_makereport(item=item, call=call)
    return report


def _why(report: pytest.TestReport) -> str:
    crash = getattr(report.longrepr, "reprcrash", None)
    return first_line(crash.message if crash else report.longreprtext) or report.outcome
