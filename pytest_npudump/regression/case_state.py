"""How far a test has come: a value that each step of the flow returns anew."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from pytest_npudump.regression.attempt import Attempt
from pytest_npudump.regression.case import origin_of
from pytest_npudump.regression.outcome import PENDING, Escalation, Result, ThirdRun

if TYPE_CHECKING:
    from pytest_npudump.golden.store import Recording
    from pytest_npudump.regression.calibration import Member
    from pytest_npudump.regression.case import Case
    from pytest_npudump.regression.first_run import Settled
    from pytest_npudump.regression.outcome import FirstRun, Outcome
    from pytest_npudump.regression.second_run.run_plan import Plan


@dataclass(frozen=True, slots=True)
class CaseState:
    """What has become of a test so far.

    Attributes:
        attempts: its runs so far; the last one may be under way.
        first: its first run; None before the body has ended well.
        plan: what a second run is to dump; None where there is nothing to find out.
        escalation: what the second run found; None without one.
        recording: what was recorded and does not count yet; None without it.
        members: what runs behind the first have measured, where they are to measure.
        settled: what the first run is judged by; None before it has been.
    """

    attempts: tuple[Attempt, ...] = ()
    first: FirstRun | None = None
    plan: Plan | None = None
    escalation: Escalation | None = None
    recording: Recording | None = None
    members: tuple[Member, ...] = ()
    settled: Settled | None = None

    @property
    def attempt(self) -> Attempt:
        """The run under way, or the last one."""
        return self.attempts[-1]

    @property
    def outcome(self) -> Outcome | None:
        """What the first run showed; None before its body has ended well."""
        return self.first.outcome if self.first is not None else None

    @property
    def repeated(self) -> bool:
        """Whether the run under way, or the last one, is not the first."""
        return len(self.attempts) > 1

    @property
    def measures(self) -> bool:
        """Whether further runs measure how far the test strays, rather than explain a failure."""
        return self.plan is not None and self.plan.measures > 0

    @property
    def wants_second_run(self) -> bool:
        """Whether the test has to run again: with tensors in its dump, or to be measured once more."""
        further = self.plan.further if self.plan is not None else 0
        return self.escalation is None and 0 < len(self.attempts) <= further

    @property
    def good(self) -> bool:
        """Whether the test may pass: what it was asked to compare or record is compared or recorded."""
        explained = self.escalation is None or not self.escalation.problem
        return self.first is not None and self.first.outcome.good and explained

    def result(self, case: Case) -> Result:
        """Return what became of the test, for the reports; only behind a judgement."""
        assert self.first is not None  # noqa: S101 - the caller asks for a result of what has been judged
        runs = tuple(attempt.directory for attempt in self.attempts)
        explained = self.escalation is not None and bool(self.escalation.directory)
        origin = origin_of(case, with_digests=explained)
        return Result(origin, self.first.outcome, self.escalation, self.first.part, runs)

    def begin(self, case: Case) -> CaseState:
        """Return the state with one more run: the first, or one that dumps what is planned."""
        number = 0 if case.probing else len(self.attempts) + 1
        directory, request = case.directory / f"run{number}", case.request
        if self.plan is None or self.plan.accompanies or self.plan.measures:
            attempt = Attempt(number, directory, request)
        else:
            request = replace(request, dump_mode="all") if self.plan.inputs else request
            attempt = Attempt(number, directory, request, "tensor", self.plan.raw_layers)
        return replace(self, attempts=(*self.attempts, attempt))

    def with_first(self, first: FirstRun) -> CaseState:
        """Return the state with a first run, and with what that has recorded."""
        recording = first.outcome.recording if self.recording is None else self.recording
        return replace(self, first=first, recording=recording)

    def with_judgement(self, first: FirstRun, plan: Plan | None) -> CaseState:
        """Return the state behind the first run: a plan that is skipped says why at once."""
        skipped = plan.skipped if plan is not None else None
        if skipped is not None and first.outcome.status == PENDING:
            problem = f"nothing was recorded: {skipped.problem}"
            first = replace(first, outcome=replace(first.outcome, problems=(problem,)))
        return replace(self.with_first(first), plan=plan, escalation=skipped)

    def with_status(self, status: str, problems: tuple[str, ...]) -> CaseState:
        """Return the state with another status of the first run, for these problems; only behind one."""
        assert self.first is not None  # noqa: S101 - the caller has looked
        outcome = replace(self.first.outcome, status=status, problems=problems)
        return replace(self, first=replace(self.first, outcome=outcome))

    def without_second_run(self, reason: str) -> CaseState:
        """Return the state where the second run came to nothing: its body failed, or it never started."""
        accompanies = self.plan is not None and self.plan.accompanies
        if self.escalation is not None or accompanies:
            return self
        if self.plan is not None and self.plan.earlier is not None:
            return replace(self, escalation=replace(self.plan.earlier, third=ThirdRun(problem=reason)))
        return replace(self, escalation=Escalation(problem=reason))

    def measured_no_further(self, first: FirstRun) -> CaseState:
        """Return the state where no further run is measured, with what the first run comes to then."""
        return replace(self.with_first(first), plan=None)

    def handed_over(self) -> CaseState:
        """Return the state for another process, which has no part in the runs of this one."""
        return replace(self, attempts=())

    def taken_over(self, case: Case) -> CaseState:
        """Return the state that another process has handed over, behind the runs of ``case`` so far."""
        begun = CaseState()
        third = self.plan is not None and self.plan.earlier is not None
        for _ in range(1 + len(self.members) + third):
            begun = begun.begin(case)
        return replace(self, attempts=begun.attempts)
