"""What a run has come to that did not end well: its body failed, its dump cannot be ended, its process died.

Nothing is compared then. In the scenes of failures what was found before still decides: of ``exception`` the
operators that failed on the device, whose dumps are there whatever became of the run, of ``check_op`` those
that were wrong.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from pytest_npudump.regression.diagnose import full_words
from pytest_npudump.regression.outcome import DIED, PENDING, FirstRun, Outcome
from pytest_npudump.regression.scenes import EXAMINERS
from pytest_npudump.scene import SCENES

if TYPE_CHECKING:
    from pytest_npudump.regression.case import Case
    from pytest_npudump.regression.case_state import CaseState


def after_failed_body(case: Case, state: CaseState) -> CaseState:
    """Return the state behind a body that failed: judged where operators failed or were wrong."""
    outcome = EXAMINERS[case.request.scene](case, state.attempts[-1] if state.attempts else None)
    return state if outcome.good else replace(state, first=FirstRun(outcome))


def after_unended_dump(case: Case, state: CaseState, error: str) -> CaseState | None:
    """Return the state where the device is too far gone to end the dump; None where that is no answer.

    Args:
        case: the test.
        state: of a run whose body has ended.
        error: why the dump cannot be ended.
    """
    if not SCENES[case.request.scene].of_failures:
        return None
    outcome = EXAMINERS[case.request.scene](case, state.attempt)
    if not outcome.findings:
        return None
    return replace(state, first=FirstRun(replace(outcome, problems=(*outcome.problems, error))))


def after_death(case: Case, state: CaseState, run: int, why: str) -> CaseState:
    """Return the state where a process has died; what its body had come to by then stands too.

    Args:
        case: the test.
        state: what its processes have handed over.
        run: the number of the run that was under way.
        why: how its process ended, behind "the test's process".
    """
    if run > 1 and state.escalation is None:
        return state.without_second_run(f"its process {why}")
    state, words = state.taken_over(case), f"the test's process {why}"
    if state.first is None:
        problems = (f"{words}; nothing was compared", *filter(None, [full_words(case.directory)]))
        state = state.with_first(FirstRun(Outcome(DIED, None, problems=problems)))
    else:
        outcome = state.first.outcome
        pending = outcome.status == PENDING
        if case.settings.approves and (outcome.good or pending):
            words += "; nothing was recorded"
        state = state.with_status(DIED, (words, *(() if pending else outcome.problems)))
    judged = SCENES[case.request.scene].of_failures
    return _with_failed_operators(case, state) if judged else state


def _with_failed_operators(case: Case, state: CaseState) -> CaseState:
    left, died = EXAMINERS[case.request.scene](case, state.attempt), state.outcome
    assert died is not None  # noqa: S101 - a death is an outcome
    outcome = replace(left, status=died.status, problems=died.problems + left.problems)
    return replace(state, first=FirstRun(outcome))
