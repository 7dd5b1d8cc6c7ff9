"""An update approves a test only where all of it passed: else what was recorded never counts."""

from __future__ import annotations

import json
from contextlib import contextmanager
from typing import TYPE_CHECKING

from pytest_npudump.errors import GoldenError, MisplacedTensorsError
from pytest_npudump.plugin.runtest.item_state import BAD, EARLIER_PARTS, PARTS, RESULT, TEST
from pytest_npudump.regression import outcome as status

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import pytest

    from pytest_npudump.regression.session import CaseSession


def settle(item: pytest.Item, test: CaseSession | None, reports: Sequence[pytest.TestReport]) -> None:
    """Let what was recorded count where all of the test passed, else discard it and say so in its reports.

    Args:
        item: the test, behind its teardown.
        test: its record; None where it never began.
        reports: of its phases, not logged yet.
    """
    if test is None:
        return
    failed = next(filter(_did_not_pass, reports), None)
    expected = next((report for report in reports if hasattr(report, "wasxfail")), None)
    if failed is None and test.state.recording is not None:
        failed = expected
    good = any(vars(report).get("npudump", {}).get("status") in status.GOOD for report in reports)
    if failed is None and not failed_parts(item) and not failed_parts(item, EARLIER_PARTS):
        _commit(item, test, reports)
    elif test.case.settings.approves or test.state.recording is not None:
        test.discard()
        if good:
            part = failed.when if failed else "subtest"
            why = (
                "the test is marked xfail"
                if failed is expected and failed
                else f"the test's {part} did not pass"
            )
            problem = f"nothing was recorded: {why}"
            _not_recorded(item, test, reports, problem)
            (failed or reports[-1]).sections.append(("npudump", problem))
    elif good and any(report.when == "call" and _did_not_pass(report) for report in reports):
        _amend(item, reports, status.ERROR)


def _commit(item: pytest.Item, test: CaseSession, reports: Sequence[pytest.TestReport]) -> None:
    try:
        test.commit()
    except GoldenError as error:
        if isinstance(error, MisplacedTensorsError):
            problem = str(error)
            _amend(item, reports, status.ERROR)
        else:
            problem = f"nothing was recorded: {error}"
            _not_recorded(item, test, reports, problem)
        reports[-1].outcome = "failed"
        reports[-1].longrepr = f"npudump: {problem}"


def _did_not_pass(report: pytest.TestReport) -> bool:
    # Those of a process of its own have the reports of subtests, which have a context, among them. A phase
    # that a plugin has repeated has an outcome of that plugin's own, and another report.
    return _part_failed(report) if hasattr(report, "context") else report.failed or report.skipped


def why_incomplete(item: pytest.Item, reports: Sequence[pytest.TestReport], *, judged: bool) -> str | None:
    """Return why not all of a test passed but for its verdict; None where it did.

    Args:
        item: the test, behind its teardown.
        reports: of its phases.
        judged: whether its body ended well, and what it dumped was compared.
    """
    if failed_parts(item) or failed_parts(item, EARLIER_PARTS):
        return "a subtest did not pass"
    bad = next((report for report in reports if _did_not_pass(report) and report.when != "call"), None)
    if bad is not None:
        return f"its {bad.when} did not pass"
    failed = any(report.when == "call" and _did_not_pass(report) for report in reports)
    if failed and not (judged and BAD in item.stash):
        return "its body did not pass"
    return None if judged else "it was not compared"


def failed_parts(item: pytest.Item, key: pytest.StashKey[list[pytest.TestReport]] = PARTS) -> int:
    """Return how many subtests of a run did not pass; those that were skipped are not counted."""
    parts = item.stash.get(key, [])
    return sum(map(_part_failed, parts))


def _part_failed(part: pytest.TestReport) -> bool:
    return part.failed or (part.skipped and hasattr(part, "wasxfail"))


@contextmanager
def discarded_if_interrupted(item: pytest.Item) -> Iterator[None]:
    """Discard what was recorded where the session ends in the block, before all of the test has passed."""
    try:
        yield
    except BaseException:
        test = item.stash.get(TEST, None)
        if test is not None:
            test.discard()
        raise


def _not_recorded(
    item: pytest.Item, test: CaseSession, reports: Sequence[pytest.TestReport], problem: str
) -> None:
    test.withdraw(problem)
    _amend(item, reports, status.PENDING)


def _amend(item: pytest.Item, reports: Sequence[pytest.TestReport], word: str) -> None:
    """Correct the status in the result that reports carry, for the terminal and for JUnit."""
    from pytest_npudump.report.ci import WHOLE, is_ours, junit_properties  # noqa: PLC0415 - seldom needed

    item.stash.get(RESULT, {}).update(status=word)
    for report in reports:
        if "npudump" in vars(report):
            vars(report)["npudump"]["status"] = word
        known = [json.loads(str(value)) for name, value in report.user_properties if name == WHOLE]
        others = [(name, value) for name, value in report.user_properties if not is_ours(name)]
        ours = [pair for result in known for pair in junit_properties({**result, "status": word})]
        report.user_properties[:] = [*others, *ours]
