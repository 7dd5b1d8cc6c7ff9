"""What every scene's judge starts with: the records of the run, or the reason why there are none."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_npudump.errors import DumpError
from pytest_npudump.regression.diagnose import explain_empty

if TYPE_CHECKING:
    from pytest_npudump.dump.records import Dump
    from pytest_npudump.regression.attempt import Attempt
    from pytest_npudump.regression.case import Case
    from pytest_npudump.runtime.base import Activity


def read_run(case: Case, attempt: Attempt) -> Dump:
    """Read the dump of a run that has ended.

    Raises:
        DumpError: it holds nothing; the message has the likely cause.
    """
    activity = case.runtime.activity
    try:
        dump = attempt.read()
    except DumpError as error:
        raise DumpError(explain_empty(case.request, activity, attempt.dump_path, str(error))) from error
    if not dump.records and not dump.problems:
        raise DumpError(explain_empty(case.request, activity, attempt.dump_path, ""))
    return dump


def ran_under_dump(activity: Activity) -> bool:
    """Whether anything shows that a model ran while the dump was on, where a healthy run leaves no file."""
    here = activity.initialised and activity.executions and not activity.released
    return bool(here or activity.evidence.shown) and not activity.evidence.gaps


def not_dumped(activity: Activity) -> str:
    """Say what ran in the test without the dump; "" where nothing is known to have."""
    gaps = activity.evidence.gaps
    return f"not all that ran in the test was under the dump: {'; '.join(gaps)}" if gaps else ""


def why_unshown(case: Case, attempt: Attempt) -> str:
    """Say why :func:`ran_under_dump` does not hold for a run."""
    activity = case.runtime.activity
    if activity.evidence.gaps and (activity.executions or activity.evidence.shown):
        return not_dumped(activity)
    why = explain_empty(case.request, activity, attempt.dump_path, "")
    return f"nothing shows that a model ran under the dump: {why}"


def unreadable(dump: Dump) -> tuple[str, ...]:
    """Return the problems of a dump in words."""
    return tuple(f"unreadable file in the dump: {problem}" for problem in dump.problems)
