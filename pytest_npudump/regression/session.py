"""The main flow of one marked test.

    start    the dump is switched on, before the test's fixtures: models load under it
    judge    behind the body: the dump is recorded, or compared with the golden -> the result
    plan     all good: done; else: which layers does a second run dump as tensors?
    start    the test runs again: under a dump of just those layers, or as it did, to be measured
    explain  did the failure reproduce, and where in the tensors is it? or: record the golden's tensors; where
             that is asked for, a third run looks farther upstream
    try      where a golden is recorded: are tensors small and fast enough to take the place of statistics?
    measure  then: how far do further runs differ from the first?
    settle   behind the teardown: what was recorded counts if all of the test passed, else it is discarded
    done     the dumps are deleted, unless somebody needs them

The plugin calls :meth:`CaseSession.start` before a test's fixtures are set up, :meth:`CaseSession.finish`
behind its body, and does both again as often as the session wants another run. Each step makes a new result
of the one before it.

A body that failed, a dump that cannot be ended and a process that died compare nothing. In the scenes of
failures what was found before still decides: of ``exception`` the operators that failed on the device, whose
dumps are there whatever became of the run, of ``check_op`` those that were wrong.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from pytest_npudump.compare.stats.tables import without_collection
from pytest_npudump.errors import DumpError, GoldenError, NpudumpError, said
from pytest_npudump.regression.attempt import Attempt
from pytest_npudump.regression.case import Case, delete_dumps, origin_of
from pytest_npudump.regression.dataflow import code_of_run
from pytest_npudump.regression.diagnose import full_words
from pytest_npudump.regression.first_run import Settled, judge, judge_settled
from pytest_npudump.regression.result import DIED, PENDING, Escalation, Result
from pytest_npudump.regression.run_plan import (
    Plan,
    agreed_plan,
    decided,
    fed,
    plan_third_run,
    seconds_of,
    vary,
    with_reason,
    with_tensors,
)
from pytest_npudump.regression.scenes import scene_module
from pytest_npudump.runtime.concurrency import OtherProcesses
from pytest_npudump.scene import SCENES

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pytest_npudump.golden.store import Recording
    from pytest_npudump.regression.calibration import Member


_BLANK = {"judged": None, "plan": None, "recording": None, "_members": (), "_settled": None, "_tensors": None}
"""State of a session before its first run, by name."""


class CaseSession:
    """A test with the marker, through all of its runs.

    Attributes:
        case: the test, with what its first run has settled.
        attempts: its runs so far; the last one may be under way.
        judged: what has come of it so far; None before its body has ended well.
        plan: what a second run is to dump; None where there is nothing to find out.
        recording: what was recorded and does not count yet; None without it.
    """

    def __init__(self, case: Case) -> None:
        self._case = self.case = case
        self._others = OtherProcesses()
        self._settled: Settled | None = None
        self._members: tuple[Member, ...] = ()
        self._tensors: bool | None = None
        self._started = self._seconds = 0.0
        self.attempts: tuple[Attempt, ...] = ()
        self.judged: Result | None = None
        self.plan: Plan | None = None
        self.recording: Recording | None = None

    @property
    def attempt(self) -> Attempt:
        """The run under way, or the last one."""
        return self.attempts[-1]

    @property
    def result(self) -> Result:
        """Result of the test, for the reports; only behind a judgement."""
        judged = self._judged
        explained = judged.escalation is not None and bool(judged.escalation.directory)
        origin = origin_of(self.case, with_digests=explained)
        return replace(judged, origin=origin, runs=tuple(attempt.directory for attempt in self.attempts))

    @property
    def _judged(self) -> Result:
        assert self.judged is not None  # noqa: S101 - the caller asks of what has been judged
        return self.judged

    @property
    def good(self) -> bool:
        """Return whether the test may pass; it may not before it has been judged."""
        return self.judged is not None and self.judged.good

    @property
    def repeated(self) -> bool:
        """Return whether the run under way, or the last one, is not the first."""
        return len(self.attempts) > 1

    @property
    def measures(self) -> bool:
        """Return whether further runs measure noise, rather than explain a failure."""
        return self.plan is not None and self.plan.measures > 0

    @property
    def wants_second_run(self) -> bool:
        """Return whether the test has to run again: with tensors in its dump, or to be measured once more."""
        further = self.plan.further if self.plan is not None else 0
        explained = self.judged is not None and self.judged.escalation is not None
        return not explained and 0 < len(self.attempts) <= further

    def handed_over(self) -> Mapping[str, Any]:
        """Return the state for another process, without the runs of this one."""
        return {name: getattr(self, name) for name in _BLANK}

    def resume(self, handed_over: Mapping[str, Any]) -> None:
        """Go on from what the runs of another process have come to."""
        self.__dict__.update({**_BLANK, **handed_over})
        self._settle(self._settled)
        self._take_over_runs()

    def _settle(self, settled: Settled | None) -> None:
        self._settled = settled
        self.case = self._case if settled is None else settled.applied(self._case)

    @property
    def _trying(self) -> bool:
        """Return whether the run to begin, or under way, decides whether tensors are recorded."""
        return self.plan is not None and self.plan.tries > 0 and self._tensors is None

    def _take_over_runs(self) -> None:
        """Count the runs of other processes."""
        third = self.plan is not None and self.plan.earlier is not None
        self.attempts = ()
        for _ in range(1 + len(self._members) + third):
            self._begin()

    def _begin(self) -> None:
        """Add a run: the first, or one that dumps what is planned."""
        directory, request = self.case.folder.run(len(self.attempts) + 1), self.case.request
        if self._trying:
            attempt = Attempt(directory, request, "tensor")
        elif self.plan is None or self.plan.accompanies or self.plan.measures:
            attempt = Attempt(directory, request)
        else:
            request = replace(request, dump_mode="all") if self.plan.inputs else request
            attempt = Attempt(directory, request, "tensor", self.plan.raw_layers)
        self.attempts = (*self.attempts, attempt)

    def start(self) -> None:
        """Switch the dump on for the next run: before the test's fixtures, so that models load under it.

        Raises:
            NpudumpError: the folder cannot be made, the configuration is refused, or the runtime cannot dump.
        """
        self.case.folder.make()
        if not self.wants_second_run:  # another plugin repeats a test that was recorded
            self.discard()
        self._begin()
        if self.case.reference is not None:
            self.case.reference.start_run()
        vary(self.case, len(self.attempts) - 1 if self.measures else 0)
        if hasattr(self.case.runtime, "keep_calls"):
            from pytest_npudump.regression.second_run import keep_suspected  # noqa: PLC0415 - not in a pass

            keep_suspected(self.case, self.judged, self.plan)
        self._started = seconds_of(self.case)
        self.attempt.start(self.case.runtime)
        self._others.watch(self.case.runtime.activity.evidence.others)

    def stop(self) -> None:
        """Switch the dump off; nothing happens where it is off.

        Raises:
            NpudumpError: the runtime cannot end it.
        """
        self._others.stop()
        for attempt in self.attempts[-1:]:
            attempt.end_captures(self.case.runtime)
        try:
            self.case.runtime.stop()
        finally:
            vary(self.case, None)

    def finish(self, *, repeatable: bool = True) -> None:
        """Judge the dump of the first run, or explain the failure by that of the second one.

        Args:
            repeatable: whether pytest's session lets the test run again.

        Raises:
            NpudumpError: the dump cannot be ended.
        """
        try:
            self.stop()
        except NpudumpError as error:
            found = self._examined()
            if found is None or not found.findings:
                raise
            self.judged = replace(found, problems=(*found.problems, str(error)))
            return
        if self.plan is None:
            with without_collection():
                self._judge(repeatable=repeatable)
        elif self._trying:
            self._try_tensors()
        elif self.plan.measures:
            self._measure(self.plan.measures)
        elif not self.plan.accompanies:
            self._explain(self.plan)

    def _take(self, result: Result) -> None:
        """Keep a result, and what it has recorded."""
        self.judged = result
        self.recording = result.recording if self.recording is None else self.recording

    def _judge(self, *, repeatable: bool) -> None:
        first, settled = judge_settled(self._case, self.attempt)
        self._settle(settled)
        first = first.with_run(fed=fed(self.case))
        plan = agreed_plan(self.case, first, repeated=self.repeated, repeatable=repeatable)
        skipped = plan.skipped if plan is not None else None
        if skipped is not None and first.run.to_measure:
            from pytest_npudump.regression.calibration import unmeasured  # noqa: PLC0415 - a run that is recorded

            first, plan, skipped = unmeasured(self.case, first, skipped.problem), None, None
        if skipped is not None and first.status == PENDING:
            first = replace(
                first, problems=(said("nothing was recorded: {problem}", problem=skipped.problem),)
            )
        if first.run.to_measure:
            first = with_reason(self.case, first)
        self.plan = plan
        self._take(replace(first, escalation=skipped, code=code_of_run(first)))
        self._seconds = seconds_of(self.case) - self._started

    def _try_tensors(self) -> None:
        """Have the run with tensors take the place of the first one, where that costs little."""
        first, case = self._judged, with_tensors(self.case)
        tried = judge(case, self.attempt).with_run(fed=fed(case))
        took = seconds_of(self.case) - self._started
        self._tensors, found = decided((self._seconds, took), first, tried)
        if not self._tensors and tried.run.to_measure and self.plan is not None and self.plan.tries == 1:
            self._tensors, self.plan = None, replace(self.plan, tries=2)  # something else may have taken it
            return
        if self._tensors and self._settled is not None:
            self._case = case
            self._settle(replace(self._settled, goldens=case.goldens))
        self._take(found)

    def _measure(self, runs: int) -> None:
        from pytest_npudump.regression.calibration import conclude, measure, unrecorded  # noqa: PLC0415 - the same

        first, number = self._judged, len(self._members) + 1
        try:
            member = measure(self.case, first, self.attempt, number)
        except (DumpError, GoldenError) as error:
            self.abandon_second_run(f"what run {number + 1} dumped cannot be measured: {error}")
            return
        if isinstance(member, str):
            problem = f"run {number + 1} has other tensors than the first: {member}"
            self._measured_no_further(unrecorded(first, problem))
            return
        self._members = (*self._members, member)
        if len(self._members) == runs:
            self._take(conclude(self.case, first, self._members))

    def _measured_no_further(self, result: Result) -> None:
        self.plan = None
        self._take(result)

    def _explain(self, plan: Plan) -> None:
        from pytest_npudump.regression.second_run import explain, record_both  # noqa: PLC0415 - not in a pass

        first = self._judged
        if first.status == PENDING:
            first, escalation = record_both(self.case, first, plan, self.attempt)
        else:
            escalation = explain(self.case, first, plan, self.attempt)
        if plan.earlier is not None:
            self.judged = first.explained(escalation)
            return
        third = plan_third_run(self.case, first, escalation)
        self._take(first if third is not None else first.explained(escalation))
        self.plan = third or plan

    def _examined(self) -> Result | None:
        """Return the operators that failed in the last run, of a scene that looks for these; else None."""
        if not SCENES[self.case.request.scene].of_failures:
            return None
        scene = scene_module(self.case.request.scene)
        found: Result = scene.examine(self.case, self.attempts[-1] if self.attempts else None)
        return found

    def judge_failed_body(self) -> bool:
        """Let the operators that failed on the device decide about a body that failed; False without any."""
        if (found := self._examined()) is not None and not found.good:
            self.judged = found
        return self.judged is not None and not self.good

    def die(self, run: int, why: str) -> None:
        """Record that the process of a run ended before the run did, beside the result of its body.

        Args:
            run: its number.
            why: how its process ended, behind "the test's process".
        """
        if run > 1 and (self.judged is None or self.judged.escalation is None):
            self._without_second_run(said("its process {why}", why=why))
            return
        self._take_over_runs()
        words, died = said("the test's process {why}", why=why), self.judged
        if died is None:
            problems = (
                said("{words}; nothing was compared", words=words),
                *filter(None, [full_words(self.case.directory)]),
            )
            died = Result(DIED, None, problems=problems)
        else:
            pending = died.status == PENDING
            if self.case.settings.approves and (died.good or pending):
                words += said("; nothing was recorded")
            died = replace(died, status=DIED, problems=(words, *(() if pending else died.problems)))
        if (found := self._examined()) is not None:
            died = replace(found, status=DIED, problems=died.problems + found.problems)
        self.judged = died

    def abandon_second_run(self, reason: str) -> None:
        """Record that the second run has no result, because its body failed or it never started."""
        if self.measures and self.judged is not None:
            from pytest_npudump.regression.calibration import unmeasured  # noqa: PLC0415 - the same

            self._measured_no_further(unmeasured(self.case, self.judged, reason))
        else:
            self._without_second_run(reason)

    def _without_second_run(self, reason: str) -> None:
        accompanies = self.plan is not None and self.plan.accompanies
        if self.judged is None or self.judged.escalation is not None or accompanies:
            return
        escalation = Escalation(problem=reason)
        if self.plan is not None and self.plan.earlier is not None:
            escalation = replace(self.plan.earlier, third=escalation)
        self.judged = self.judged.explained(escalation)

    def commit(self) -> None:
        """Commit the recording, as all of the test has passed.

        Raises:
            MisplacedTensorsError: it counts, and the tensors of the golden are not in their place.
            GoldenError: it cannot be put in the golden's place, which is as it was.
        """
        recording, self.recording = self.recording, None
        if recording is not None:
            recording.commit()

    def discard(self) -> None:
        """Discard the recording; the golden stays as it is."""
        recording, self.recording = self.recording, None
        if recording is not None:
            recording.discard()

    def withdraw(self, problem: str) -> None:
        """Record that nothing was recorded, as a part of the test did not pass."""
        if self.judged is not None:
            self.judged = replace(self.judged, status=PENDING, problems=(problem,))

    @property
    def done(self) -> bool:
        """Return whether nobody needs the dumps any more."""
        return self.good if self.judged is not None else not self.case.runtime.activity.programs

    def clean_up(self) -> None:
        """Delete the dumps, unless the test failed or the user keeps all."""
        if self.done:
            delete_dumps(self.case)
