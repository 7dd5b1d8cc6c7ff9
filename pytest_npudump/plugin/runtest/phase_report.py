"""What the report of a test's phase says besides pytest's own: what was compared, and that it was at all."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from pytest_npudump.plugin.marker.item import Identity
from pytest_npudump.plugin.marker.marks import is_marked
from pytest_npudump.plugin.runtest.item_state import (
    BAD,
    ENDED,
    PARTS,
    RESULT,
    TEST,
    only_setup,
    tell_item,
    will_run_again,
)
from pytest_npudump.regression.outcome import NOT_COMPARED

if TYPE_CHECKING:
    import pytest

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
        item.stash[BAD] = "npudump: the test passed without having been compared with its golden"
        report.longrepr = item.stash[BAD]


def _uncompared(item: pytest.Item) -> dict[str, str]:
    test = item.stash.get(TEST, None)
    told = {"status": NOT_COMPARED, "test": str(Identity.of(item))}
    return told | ({"runtime": test.case.runtime.name} if test is not None else {})
