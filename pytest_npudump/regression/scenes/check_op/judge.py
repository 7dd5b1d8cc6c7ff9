"""A run of operator checks: each has to have been good, and there has to be one.

A check that fails raises in the test, and so does one that could not be made. A test that goes on behind it
fails all the same.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_npudump.language.excerpt import first_of
from pytest_npudump.regression import outcome as status
from pytest_npudump.regression.operator_checks import OperatorChecks
from pytest_npudump.regression.outcome import Outcome

if TYPE_CHECKING:
    from pytest_npudump.regression.attempt import Attempt
    from pytest_npudump.regression.case import Case

_NONE = (
    "no operator was checked: npu_dump.check_op(...) was not called; scene='check_op' compares nothing else, "
    "model and op compare with a golden"
)


def judge(case: Case, attempt: Attempt) -> Outcome:
    """Fail a test whose body has ended well if a check of it was bad, or if there was none."""
    checks = attempt.checks
    found = examine(case, attempt)
    if not checks.begun:
        return Outcome(status.FAILED, None, problems=(_NONE,))
    unfinished = checks.begun - checks.ended
    if found.good and not unfinished:
        return found
    counts = ((checks.failures, "failed"), (unfinished, "could not be made"))
    said = " and ".join(f"{count} of {checks.begun} checks {what}" for count, what in counts if count)
    return Outcome(
        status.FAILED,
        None,
        problems=(f"{said}, and the test went on: leave the errors of npu_dump.check_op to pytest",),
        notes=found.notes,
        tensors=found.tensors,
        findings=found.findings,
    )


def examine(case: Case, attempt: Attempt | None) -> Outcome:
    """Return the operator that was wrong last, which of hypothesis' examples is the smallest.

    Without one the status is ``passed``, which says nothing of whether any was checked.
    """
    del case
    checks = OperatorChecks() if attempt is None else attempt.checks
    if not checks.failures:
        return Outcome(status.PASSED, None, tensors=checks.ended)
    last = checks.wrong[-1]
    notes = [f"{checks.failures} of {checks.ended} checks failed; this is the last one"]
    if others := [one.dump.name for one in reversed(checks.wrong[:-1])]:
        notes.append(f"the dumps of failures before lie beside: {first_of(others, 3)}")
    return Outcome(status.FAILED, None, notes=tuple(notes), tensors=checks.ended, findings=(last,))
