"""What only a test's run can settle: which of its goldens applies, and whether that is compared or written.

An update of failing tests compares first, and records the same dump where that fails.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from pytest_npudump.errors import GoldenError
from pytest_npudump.golden.applicable import names_variants
from pytest_npudump.golden.replaceable import not_calibrated, not_recorded
from pytest_npudump.regression import outcome as status
from pytest_npudump.regression.first_run.judge import judge
from pytest_npudump.regression.outcome import FirstRun, Outcome
from pytest_npudump.settings.option_table import ALL, FAILED, NEW

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pytest_npudump.compare.tolerances.tolerance import Tolerances
    from pytest_npudump.golden.variants import Goldens
    from pytest_npudump.regression.attempt import Attempt
    from pytest_npudump.regression.case import Case


@dataclass(frozen=True, slots=True)
class Settled:
    """What has been settled behind the first run of a test.

    Attributes:
        goldens: its golden files, with the variant that applies.
        update_golden: "all" where the run is recorded, "" where it is compared.
        tolerances: with the rules for a run of this producer.
    """

    goldens: Goldens
    update_golden: str
    tolerances: Tolerances

    def applied(self, case: Case) -> Case:
        """Return the case with what was settled."""
        settings = case.settings._replace(update_golden=self.update_golden)
        return replace(case, goldens=self.goldens, settings=settings, tolerances=self.tolerances)


def judge_settled(case: Case, attempt: Attempt) -> tuple[FirstRun, Settled]:
    """Settle what a first run is judged by, and judge it.

    Args:
        case: the test.
        attempt: its run, which has ended.
    """
    mode, facts = case.settings.update_golden, case.goldens.facts(case.runtime.producer())
    case = replace(case, tolerances=case.tolerances.for_run(facts))
    if case.reference is not None:
        case.reference.settle(facts)
    try:
        case = replace(case, goldens=case.goldens.for_run(facts))
    except GoldenError as error:
        if mode != ALL or names_variants(case.goldens.common):
            return _error(case, str(error))
    if mode in {FAILED, NEW} and case.exchange is not None:
        return _refused(case, f"--npudump-update-golden={mode} is for one process, and this run has ranks")
    if mode == NEW:
        mode = "" if _has_golden(case) else ALL
    if problem := _unwritable(case, mode, facts):
        return _error(case, problem)
    if mode != FAILED:
        settled = Settled(case.goldens, mode, case.tolerances)
        return judge(settled.applied(case), attempt), settled
    return _judge_or_record(case, attempt, facts)


def _judge_or_record(case: Case, attempt: Attempt, facts: Mapping[str, str]) -> tuple[FirstRun, Settled]:
    compares = Settled(case.goldens, "", case.tolerances)
    compared = judge(compares.applied(case), attempt)
    if compared.outcome.status != status.FAILED:
        return compared, compares
    if problem := _unwritable(case, ALL, facts):
        notes = (*compared.outcome.notes, problem)
        return replace(compared, outcome=replace(compared.outcome, notes=notes)), compares
    settled = Settled(case.goldens, ALL, case.tolerances)
    first = judge(settled.applied(case), attempt)
    outcome = replace(first.outcome, notes=(_why(compared.outcome), *first.outcome.notes))
    return replace(first, outcome=outcome), settled


def _unwritable(case: Case, mode: str, facts: Mapping[str, str]) -> str:
    if mode == ALL:
        return case.goldens.unrecordable or not_recorded(case.goldens, facts)
    if case.settings.calibrate:
        return case.goldens.unrecordable or not_calibrated(case.goldens, facts)
    return ""


def _has_golden(case: Case) -> bool:
    try:
        return case.goldens.read_if_any() is not None
    except GoldenError:
        return True  # the comparison says what is wrong with it


def _why(outcome: Outcome) -> str:
    comparison = outcome.comparison
    if comparison is not None and comparison.first is not None:
        words = f"{len(comparison.failing)} of {comparison.expected} tensors, first {comparison.first.key}"
    else:
        words = next(iter(outcome.problems), "the reference or the scene")
    return f"the golden was written anew because the run differed from it: {words}"


def _refused(case: Case, problem: str) -> tuple[FirstRun, Settled]:
    return _error(case, f"{problem}: approve with --npudump-update-golden, some tests by their names")


def _error(case: Case, problem: str) -> tuple[FirstRun, Settled]:
    outcome = Outcome(status.ERROR, case.goldens.path, problems=(problem,))
    return FirstRun(outcome), Settled(case.goldens, "", case.tolerances)
