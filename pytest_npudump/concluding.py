"""What a test's runs mean for its report: passed, failed with a text, or nothing yet."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from pytest_npudump import _compat
from pytest_npudump.errors import NpudumpError
from pytest_npudump.item_state import RESULT, will_run_again

if TYPE_CHECKING:
    from pytest_npudump.session import MarkedTest


def body_failed(item: pytest.Item, test: MarkedTest, words: str) -> None:
    """Say what the dump tells of a body that failed; in a second run, let the first one's failure stand.

    Raises:
        pytest.fail.Exception: the first run's failure.
    """
    try:
        test.stop()
    except NpudumpError as error:
        item.add_report_section("call", "npudump", f"the dump could not be ended: {error}")
    if test.outcome is None:
        item.add_report_section("call", "npudump", _after_failed_body(item, test))
        return
    _compat.forget_failure(item)
    test.abandon_second_run("; ".join([f"body of the second run: {words}", *_notes(test)]))
    conclude(item, test)


def _notes(test: MarkedTest) -> list[str]:
    """Return what is known of the run that may have made its body fail."""
    return test.runtime.activity.evidence.notes


def _after_failed_body(item: pytest.Item, test: MarkedTest) -> str:
    """Return what the dump says of a failed body: which operator failed, where the scene asks for it."""
    not_compared = "\n".join(["the test's body did not pass: its dump was not compared", *_notes(test)])
    if test.request.scene != "exception":
        return not_compared
    from pytest_npudump.scenes.exception import examine  # noqa: PLC0415 - after a run

    outcome = examine(test)
    if outcome.good:
        return "the test's body did not pass, and no exception dump was left"
    test.outcome = outcome
    return _recorded_failure(item, test)


def conclude(item: pytest.Item, test: MarkedTest) -> None:
    """Fail the test where its outcome is bad and no further run will say more.

    Raises:
        pytest.fail.Exception: with the text of the failure.
    """
    if will_run_again(item):
        return
    if not test.good:
        raise pytest.fail.Exception(_recorded_failure(item, test), pytrace=False) from None
    from pytest_npudump.report.result import result_json  # noqa: PLC0415 - after a run

    _keep_result(item, result_json(test, None))


def _recorded_failure(item: pytest.Item, test: MarkedTest) -> str:
    """Write the report files of a failing test, keep its result, and return its text."""
    from pytest_npudump.report.result import result_json, write_details  # noqa: PLC0415 - after a run
    from pytest_npudump.report.terminal import failure_text, short_lines  # noqa: PLC0415 - the same

    details = write_details(test)
    _keep_result(item, result_json(test, details))
    item.stash[RESULT]["short"] = short_lines(test)
    return failure_text(test, details, verbose=item.config.option.verbose > 0)


def _keep_result(item: pytest.Item, result: dict[str, Any]) -> None:
    from pytest_npudump.report.result import small  # noqa: PLC0415 - after a run

    item.user_properties.append(("npudump", json.dumps(small(result), separators=(",", ":"))))
    item.stash[RESULT] = result


def first_line(text: str) -> str:
    """Return the first line that is not empty; "" without one."""
    return next(iter(text.strip().splitlines()), "")
