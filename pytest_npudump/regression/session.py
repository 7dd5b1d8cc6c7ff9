"""The main flow of one marked test.

    start    the dump is switched on, before the test's fixtures: models load under it
    judge    behind the body: the dump is recorded, or compared with the golden -> verdicts
    plan     all good: done; else: which layers does a second run dump as tensors?
    start    the test runs again: under a dump of just those layers, or as it did, to be measured
    explain  did the failure reproduce, and where in the tensors is it? or: record the golden's tensors; where
             that is asked for, a third run looks farther upstream
    measure  where a golden is recorded: how far do further runs differ from the first?
    settle   behind the teardown: what was recorded counts if all of the test passed, else it is discarded
    done     the dumps are deleted, unless somebody needs them

The plugin calls :meth:`CaseSession.start` before a test's fixtures are set up, :meth:`CaseSession.finish`
behind its body, and does both again as often as the state wants another run. Each step takes what the ones
before it returned; only :attr:`CaseSession.state` keeps it.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from pytest_npudump.errors import DumpError, GoldenError, NpudumpError
from pytest_npudump.regression.abnormal_end import after_death, after_failed_body, after_unended_dump
from pytest_npudump.regression.calibration import conclude, fed, measure, unmeasured, unrecorded, vary
from pytest_npudump.regression.case import delete_dumps, make_folder
from pytest_npudump.regression.case_state import CaseState
from pytest_npudump.regression.first_run import judge_settled, probe
from pytest_npudump.regression.outcome import PENDING, FirstRun, Result
from pytest_npudump.regression.second_run.alone import keep_suspected
from pytest_npudump.regression.second_run.examine import examine_second_run
from pytest_npudump.regression.second_run.run_plan import agreed_plan, joined, plan_third_run
from pytest_npudump.runtime.concurrency import OtherProcesses

if TYPE_CHECKING:
    from pytest_npudump.regression.case import Case


class CaseSession:
    """A test with the marker, through all of its runs.

    Attributes:
        state: what has become of it so far.
    """

    def __init__(self, case: Case) -> None:
        self._case = case
        self._others = OtherProcesses()
        self.state = CaseState()

    @property
    def case(self) -> Case:
        """The test, with what its first run has settled."""
        settled = self.state.settled
        return self._case if settled is None else settled.applied(self._case)

    @property
    def result(self) -> Result:
        """What became of the test, for the reports; only behind a judgement."""
        return self.state.result(self.case)

    @property
    def good(self) -> bool:
        """Whether the test may pass; it may not before it has been judged."""
        return self.state.good

    def resume(self, state: CaseState) -> None:
        """Go on from what a first run has come to in another process."""
        self.state = state.taken_over(self.case)

    def start(self) -> None:
        """Switch the dump on for the next run: before the test's fixtures, so that models load under it.

        Raises:
            NpudumpError: the folder cannot be made, the configuration is refused, or the runtime cannot dump.
        """
        make_folder(self.case)
        if not self.state.wants_second_run:  # another plugin repeats a test that was recorded
            self.discard()
        self.state = self.state.begin(self.case)
        if self.case.reference is not None:
            self.case.reference.start_run()
        plan = self.state.plan
        vary(self.case, len(self.state.attempts) - 1 if plan is not None and plan.measures else 0)
        keep_suspected(self.case, self.state.first, plan)
        self.state.attempt.start(self.case.runtime)
        self._others.watch(self.case.runtime.activity.evidence.others)

    def stop(self) -> None:
        """Switch the dump off; nothing happens where it is off.

        Raises:
            NpudumpError: the runtime cannot end it.
        """
        self._others.stop()
        try:
            self.case.runtime.stop()
        finally:
            vary(self.case, None)

    def finish(self, *, repeatable: bool = True) -> None:
        """Judge what the first run dumped, or explain the failure by what the second one did.

        Args:
            repeatable: whether pytest's session lets the test run again.

        Raises:
            NpudumpError: the dump cannot be ended.
        """
        try:
            self.stop()
        except NpudumpError as error:
            known = after_unended_dump(self.case, self.state, str(error))
            if known is None:
                raise
            self.state = known
            return
        if self.case.probing:
            self.state = self.state.with_first(FirstRun(probe(self.case, self.state.attempt)))
        elif self.state.plan is None:
            self._judge(repeatable=repeatable)
        elif self.state.plan.measures:
            self._measure()
        elif not self.state.plan.accompanies:
            self._explain()

    def _judge(self, *, repeatable: bool) -> None:
        first, settled = judge_settled(self._case, self.state.attempt)
        first = replace(first, fed=fed(self.case))
        self.state = replace(self.state, settled=settled)
        plan = agreed_plan(self.case, first, repeated=self.state.repeated, repeatable=repeatable)
        if first.to_measure and plan is not None and plan.skipped is not None:
            first, plan = unmeasured(self.case, first, plan.skipped.problem), None
        self.state = self.state.with_judgement(first, plan)

    def _measure(self) -> None:
        first, plan, number = self.state.first, self.state.plan, len(self.state.members) + 1
        assert first is not None  # noqa: S101 - a plan is made of a first run
        assert plan is not None  # noqa: S101 - the caller has looked
        try:
            member = measure(self.case, first, self.state.attempt, number)
        except (DumpError, GoldenError) as error:
            self.abandon_second_run(f"what run {number + 1} dumped cannot be measured: {error}")
            return
        if isinstance(member, str):
            problem = f"run {number + 1} has other tensors than the first: {member}"
            self.state = self.state.measured_no_further(unrecorded(first, problem))
            return
        members = (*self.state.members, member)
        self.state = replace(self.state, members=members)
        if len(members) == plan.measures:
            self.state = self.state.with_first(conclude(self.case, first, members))

    def _explain(self) -> None:
        first, plan = self.state.first, self.state.plan
        assert first is not None  # noqa: S101 - a plan is made of a first run
        assert plan is not None  # noqa: S101 - the caller has looked
        first, escalation = examine_second_run(self.case, first, plan, self.state.attempt)
        if plan.earlier is not None:
            self.state = replace(self.state, escalation=joined(plan.earlier, escalation))
            return
        third = plan_third_run(self.case, first, escalation)
        self.state = replace(
            self.state.with_first(first), plan=third or plan, escalation=None if third else escalation
        )

    def judge_failed_body(self) -> bool:
        """Let the operators that failed on the device decide about a body that failed; False without any."""
        self.state = after_failed_body(self.case, self.state)
        return self.state.first is not None and not self.good

    def die(self, run: int, why: str) -> None:
        """Record that the process of a run ended before the run did."""
        self.state = after_death(self.case, self.state, run, why)

    def abandon_second_run(self, reason: str) -> None:
        """Record that the second run came to nothing, because its body failed or it never started."""
        first, plan = self.state.first, self.state.plan
        if plan is not None and plan.measures and first is not None:
            self.state = self.state.measured_no_further(unmeasured(self.case, first, reason))
        else:
            self.state = self.state.without_second_run(reason)

    def commit(self) -> None:
        """Let what was recorded count, as all of the test has passed.

        Raises:
            MisplacedTensorsError: it counts, and the tensors of the golden are not in their place.
            GoldenError: it cannot be put in the golden's place, which is as it was.
        """
        recording, self.state = self.state.recording, replace(self.state, recording=None)
        if recording is not None:
            recording.commit()

    def discard(self) -> None:
        """Remove what was recorded; the golden stays as it is."""
        recording, self.state = self.state.recording, replace(self.state, recording=None)
        if recording is not None:
            recording.discard()

    def withdraw(self, problem: str) -> None:
        """Record that nothing was recorded, as a part of the test did not pass."""
        if self.state.first is not None:
            self.state = self.state.with_status(PENDING, (problem,))

    @property
    def done(self) -> bool:
        """Whether nobody needs the dumps any more."""
        judged = self.state.first is not None
        return self.good if judged else not self.case.runtime.activity.programs

    def clean_up(self) -> None:
        """Delete the dumps, unless the test failed or the user keeps all."""
        if self.done:
            delete_dumps(self.case)
