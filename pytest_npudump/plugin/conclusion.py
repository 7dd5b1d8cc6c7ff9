"""An update accepts a test only where all of it passed: else what was recorded never counts."""

from __future__ import annotations

import json
import traceback
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from pytest_npudump.errors import (
    GoldenError,
    MisplacedTensorsError,
    NpudumpError,
    OperatorMismatchError,
    joined,
    said,
)
from pytest_npudump.language.text import inert
from pytest_npudump.plugin import _compat
from pytest_npudump.plugin.item_case import (
    BAD,
    EARLIER_PARTS,
    OURS,
    PARTS,
    RESULT,
    TEST,
    may_run_again,
    will_run_again,
)
from pytest_npudump.plugin.reporter import REPORTER
from pytest_npudump.plugin.terminal import attach_spoken, spoken_failure
from pytest_npudump.regression import result as status
from pytest_npudump.report.ci import WHOLE, is_ours, junit_properties
from pytest_npudump.report.result_json import result_json, write_details
from pytest_npudump.scene import SCENES

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pytest_npudump.regression.result import Result
    from pytest_npudump.regression.session import CaseSession


def settle(item: pytest.Item, test: CaseSession | None, reports: Sequence[pytest.TestReport]) -> None:
    """Keep a recording if all of the test passed; else discard it and note so in the test's reports.

    Args:
        item: the test, behind its teardown.
        test: its record; None where it never began.
        reports: of its phases, not logged yet.
    """
    if test is None:
        return
    failed = next(filter(_did_not_pass, reports), None)
    expected = next((report for report in reports if hasattr(report, "wasxfail")), None)
    if failed is None and test.recording is not None:
        failed = expected
    good = any(vars(report).get("npudump", {}).get("status") in status.GOOD for report in reports)
    if failed is None and not failed_parts(item) and not failed_parts(item, EARLIER_PARTS):
        try:
            test.commit()
        except MisplacedTensorsError as error:
            _amend(item, reports, status.ERROR)
            _fail_last(test, reports, str(error))
        except GoldenError as error:
            problem = said("nothing was recorded: {why}", why=str(error))
            _not_recorded(item, test, reports, problem)
            _fail_last(test, reports, problem)
    elif test.case.settings.approves or test.recording is not None:
        test.discard()
        if good:
            part = failed.when if failed else "subtest"
            why = said("the test's {part} did not pass", part=part)
            if failed is expected and failed:
                why = said("the test is marked xfail")
            problem = said("nothing was recorded: {why}", why=why)
            _not_recorded(item, test, reports, problem)
            (failed or reports[-1]).sections.append(("npudump", problem))
    elif good and any(report.when == "call" and _did_not_pass(report) for report in reports):
        _amend(item, reports, status.ERROR)


def _fail_last(test: CaseSession, reports: Sequence[pytest.TestReport], problem: str) -> None:
    text = said("npudump: {problem}", problem=problem)
    reports[-1].outcome = "failed"
    reports[-1].longrepr = str.__str__(text)
    attach_spoken(reports[-1], text, test.case.settings.lang)


def _did_not_pass(report: pytest.TestReport) -> bool:
    # Those of a process of its own have the reports of subtests, which have a context, among them. A phase
    # that a plugin has repeated has an outcome of that plugin's own, and another report.
    return _part_failed(report) if hasattr(report, "context") else report.failed or report.skipped


def why_incomplete(item: pytest.Item, reports: Sequence[pytest.TestReport], *, judged: bool) -> str | None:
    """Return why a part of a test did not pass, its verdict aside; None where all did.

    Args:
        item: the test, behind its teardown.
        reports: of its phases.
        judged: whether its body ended well, and what it dumped was compared.
    """
    if failed_parts(item) or failed_parts(item, EARLIER_PARTS):
        return said("a subtest did not pass")
    bad = next((report for report in reports if _did_not_pass(report) and report.when != "call"), None)
    if bad is not None:
        return said("its {when} did not pass", when=bad.when)
    failed = any(report.when == "call" and _did_not_pass(report) for report in reports)
    if failed and not (judged and BAD in item.stash):
        return said("its body did not pass")
    return None if judged else said("it was not compared")


def failed_parts(item: pytest.Item, key: pytest.StashKey[list[pytest.TestReport]] = PARTS) -> int:
    """Count the subtests of a run that did not pass; skipped ones do not count."""
    return sum(_part_failed(part) for part in item.stash.get(key, []))


def _part_failed(part: pytest.TestReport) -> bool:
    return part.failed or (part.skipped and hasattr(part, "wasxfail"))


@contextmanager
def discarded_if_interrupted(item: pytest.Item) -> Iterator[None]:
    """Discard a recording if the session ends in the block, before all of the test has passed."""
    try:
        yield
    except BaseException:
        if (test := item.stash.get(TEST, None)) is not None:
            test.discard()
        raise


def _not_recorded(
    item: pytest.Item, test: CaseSession, reports: Sequence[pytest.TestReport], problem: str
) -> None:
    test.withdraw(problem)
    _amend(item, reports, status.PENDING)


def _amend(item: pytest.Item, reports: Sequence[pytest.TestReport], word: str) -> None:
    """Correct the status in the result that reports carry, for the terminal and for JUnit."""
    item.stash.get(RESULT, {}).update(status=word)
    for report in reports:
        if "npudump" in vars(report):
            vars(report)["npudump"]["status"] = word
        known = [json.loads(str(value)) for name, value in report.user_properties if name == WHOLE]
        others = [(name, value) for name, value in report.user_properties if not is_ours(name)]
        ours = [pair for result in known for pair in junit_properties({**result, "status": word})]
        report.user_properties[:] = [*others, *ours]


_NOTE_LINES = 20
"""Lines of what others add to an error that are shown below what it says."""

INTERRUPTIONS = (KeyboardInterrupt, pytest.exit.Exception)
"""Exceptions that end a session: Ctrl-C, a signal where it is taken for that, and ``pytest.exit()``."""


def how_it_stopped(stop: BaseException) -> str:
    """Return why a second run has no result: the session ended in it."""
    if isinstance(stop, pytest.exit.Exception):
        return said("ended by pytest.exit: {reason}", reason=first_line(str(stop.msg)))
    return said("ended by {stop}", stop=str(stop) or "Ctrl-C")


def is_interruption(item: pytest.Item, error: BaseException) -> bool:
    """Return whether an exception ends the session, and is not a failure of the test to pytest."""
    if isinstance(error, KeyboardInterrupt):
        return not item.config.getoption("usepdb", default=False)
    return isinstance(error, pytest.exit.Exception)


def finish(item: pytest.Item, test: CaseSession) -> None:
    """Judge the run that has ended; whatever becomes of a second run, the first one's failure stands.

    Raises:
        pytest.fail.Exception: the dump of the first run could not be ended.
        BaseException: what a time limit or pytest itself raises in the first run, or to end the session.
    """
    try:
        test.finish(repeatable=item.stash.get(OURS, False) and may_run_again(item))
    except BaseException as error:
        if is_interruption(item, error):
            raise
        if test.judged is not None and test.repeated:
            test.abandon_second_run(said("it could not be examined: {words}", words=_words(error)))
            return
        # What ran may have differed: a repetition that is compared does not make up for it.
        known = isinstance(error, NpudumpError)
        words = said(
            "npudump: {error}",
            error=error if known else said("the run could not be compared: {words}", words=_words(error)),
        )
        item.stash[BAD] = inert(words)
        if known:
            raise pytest.fail.Exception(item.stash[BAD], pytrace=False) from None
        raise


def _words(error: BaseException) -> str:
    return f"{type(error).__name__}: {first_line(str(error))}"


def body_failed(
    item: pytest.Item, test: CaseSession, error: BaseException | None = None, words: str = said("it failed")
) -> bool:
    """Report the dump of a failed body; a second run keeps the first one's findings.

    Args:
        item: the test.
        test: its record.
        error: what the body raised; None where it failed in another way.
        words: how it failed, where it raised nothing.

    Returns:
        Whether the first run stands, and is good: a test that is recorded and cannot run again.

    Raises:
        pytest.fail.Exception: the first run's failure, or what a check of an operator has found.
    """
    try:
        test.stop()
    except NpudumpError as unended:
        item.add_report_section(
            "call", "npudump", inert(said("the dump could not be ended: {error}", error=str(unended)))
        )
    if test.judged is None:
        text = inert(_after_failed_body(item, test))
        if isinstance(error, OperatorMismatchError) and test.judged is not None:
            frames = traceback.extract_tb(error.__traceback__)
            numbers = [frame.lineno for frame in frames if frame.filename == str(item.path)]
            at = [f"checked at: {item.path.name}:{numbers[-1]}"] if numbers else []
            # What hypothesis has added: the example that it shrank to.
            heard = [line for note in getattr(error, "__notes__", ()) for line in str(note).splitlines()]
            heard = heard if len(heard) <= _NOTE_LINES else [*heard[:_NOTE_LINES], "..."]
            raise pytest.fail.Exception(inert("\n".join([text, *at, *heard])), pytrace=False) from None
        if test.case.request.scene == "check_op":
            # What the body raised says more than the last wrong operator.
            for name in ("short", "spoken"):
                item.stash[RESULT].pop(name, None)
        item.add_report_section("call", "npudump", text)
        return False
    _compat.forget_failure(item)
    words = _words(error) if error is not None else words
    test.abandon_second_run(
        joined(
            "; ",
            [
                said("body of the second run: {words}", words=words),
                *test.case.runtime.activity.evidence.notes,
            ],
        )
    )
    conclude(item, test)
    return test.good


def _after_failed_body(item: pytest.Item, test: CaseSession) -> str:
    """Describe a failed body by its dump: the operator that failed, where the scene asks for it."""
    case, not_found = test.case, SCENES[test.case.request.scene].of_failures
    if not not_found:
        from pytest_npudump.regression.diagnose import full_words, what_ran  # noqa: PLC0415 - after a run

        activity = case.runtime.activity
        known = filter(None, (what_ran(activity), *activity.evidence.notes, full_words(case.directory)))
        return joined("\n", (said("the test's body did not pass: its dump was not compared"), *known))
    if not test.judge_failed_body():
        return said("the test's body did not pass, and {problem}", problem=not_found)
    return _recorded_failure(item, test)


def conclude(item: pytest.Item, test: CaseSession) -> None:
    """Fail the test where its outcome is bad and no further run follows.

    Raises:
        pytest.fail.Exception: with the text of the failure.
    """
    if will_run_again(item):
        if not test.good:  # the process may be ended in the second run
            unknown = status.Escalation(problem=said("it has not ended yet"))
            write_details(replace(test.result, escalation=unknown), ended=False)
        return
    if not test.good:
        raise pytest.fail.Exception(_recorded_failure(item, test), pytrace=False) from None
    result = test.result
    _keep_result(item, test, result, result_json(result, None))


def _recorded_failure(item: pytest.Item, test: CaseSession) -> str:
    """Write the report files of a failing test, keep its result, and return its text."""
    from pytest_npudump.report.terminal import failure_lines  # noqa: PLC0415 - for failures

    result, verbose = test.result, item.config.option.verbose > 0
    details = write_details(result)
    _keep_result(item, test, result, result_json(result, details))
    reporter = item.config.pluginmanager.get_plugin(REPORTER)
    asked = {"verbose": verbose, "spent": reporter is not None and reporter.spent}
    lines, item.stash[RESULT]["short"] = failure_lines(result, details, **asked)
    text = "\n".join(lines)
    item.stash[RESULT].update(spoken_failure(result, details, text, test.case.settings.lang, **asked))
    item.stash[BAD] = text
    return text


def _keep_result(item: pytest.Item, test: CaseSession, result: Result, told: dict[str, Any]) -> None:
    others = [(name, value) for name, value in item.user_properties if not is_ours(name)]
    item.user_properties[:] = [*others, *junit_properties(told)]
    # In place: a plugin that repeats a failed body may go on using the report of the first time.
    kept = item.stash.setdefault(RESULT, {})
    kept.clear()
    kept.update(told)
    item.ihook.pytest_npudump_judged(item=item, test=test, result=result)


def first_line(text: str) -> str:
    """Return the first line that is not empty; "" without one."""
    return next(iter(text.strip().splitlines()), "")
