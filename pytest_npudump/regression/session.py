"""The main flow of one marked test.

    start    the dump is switched on, before the test's fixtures: models load under it
    judge    behind the body: the dump is recorded, or compared with the golden -> verdicts
    plan     all good: done; else: which layers does a second run dump as tensors?
    start    the test runs again, under a dump of just those layers
    explain  did the failure reproduce, and where in the tensors is it? or: record the golden's tensors
    settle   behind the teardown: what was recorded counts if all of the test passed, else it is discarded
    done     the dumps are deleted, unless somebody needs them

The plugin calls :meth:`CaseSession.start` before a test's fixtures are set up, :meth:`CaseSession.finish`
behind its body, and does both once more where :attr:`CaseSession.wants_second_run` says so. Each step takes
what the ones before it returned; only this module keeps it.
"""

from __future__ import annotations

import shutil
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from pytest_npudump.errors import ConfigError, NpudumpError
from pytest_npudump.ranks.agreement import NO_REPETITION, agree, stand_aside
from pytest_npudump.regression.attempt import Attempt
from pytest_npudump.regression.judge import judge, probe
from pytest_npudump.regression.outcome import PENDING, Escalation, FirstRun, Outcome, Result
from pytest_npudump.regression.scenes.exception.judge import examine
from pytest_npudump.regression.second_run import examine_second_run
from pytest_npudump.regression.second_run_plan import Plan, plan_second_run

if TYPE_CHECKING:
    from pytest_npudump.golden.pair import Recording
    from pytest_npudump.regression.case import Case


@dataclass(frozen=True, slots=True)
class Judged:
    """What a first run came to, for a second one in another process.

    Attributes:
        first: the run.
        plan: what the second run is to dump.
        accompanies: whether the second run takes place for the other ranks' sake.
    """

    first: FirstRun
    plan: Plan
    accompanies: bool = False


class CaseSession:
    """A test with the marker, through all of its runs.

    Attributes:
        case: the test.
        attempts: its runs so far.
        first: its first run; None before the body has ended well.
        escalation: what the second run found; None without one.
        repeatable: whether pytest's session lets the test run again.
        recording: what was recorded and does not count yet; None without it.
    """

    def __init__(self, case: Case) -> None:
        self.case = case
        self.attempts: list[Attempt] = []
        self.first: FirstRun | None = None
        self.escalation: Escalation | None = None
        self.repeatable = True
        self.recording: Recording | None = None
        self._plan: Plan | None = None
        self._accompanies = False

    @property
    def attempt(self) -> Attempt:
        """The run under way, or the last one."""
        return self.attempts[-1]

    @property
    def outcome(self) -> Outcome | None:
        """What the first run showed; None before its body has ended well."""
        return self.first.outcome if self.first is not None else None

    @property
    def wants_second_run(self) -> bool:
        """Whether the test has to run again, with tensors in its dump."""
        planned = self._plan is not None and self._plan.runs
        return planned and self.escalation is None and len(self.attempts) == 1

    @property
    def good(self) -> bool:
        """Whether the test may pass; it may not before it has been judged."""
        return self.first is not None and self.result.good

    @property
    def result(self) -> Result:
        """What became of the test, for the reports; only behind a judgement."""
        assert self.first is not None  # noqa: S101 - the caller asks for a result of what has been judged
        runs = tuple(attempt.directory for attempt in self.attempts)
        return Result(self.case, self.first.outcome, self.escalation, self.first.part, runs)

    def prepare(self) -> None:
        """Make the folder for the test's dumps, private to the user.

        Raises:
            ConfigError: it cannot be made.
        """
        directory = self.case.directory
        try:
            directory.mkdir(parents=True, mode=0o700, exist_ok=True)
        except OSError as error:
            raise ConfigError(
                f"{directory}: the folder for the test's dumps cannot be made: {error.strerror}; choose "
                f"another with --npudump-dump-dir"
            ) from error

    def start(self) -> None:
        """Switch the dump on for the next run: before the test's fixtures, so that models load under it.

        Raises:
            NpudumpError: the configuration is refused, or the runtime cannot dump.
        """
        self.prepare()
        if not self.wants_second_run:  # another plugin repeats a test that was recorded
            self.discard()
        number = 0 if self.case.probing else len(self.attempts) + 1
        self.attempts.append(self._attempt(number))
        if self.case.reference is not None:
            self.case.reference.start_run()
        self.attempt.start(self.case.runtime)

    def _attempt(self, number: int) -> Attempt:
        directory, request = self.case.directory / f"run{number}", self.case.request
        if self._plan is None or self._accompanies:
            return Attempt(number, directory, request)
        return Attempt(number, directory, request, "tensor", self._plan.raw_layers)

    def stop(self) -> None:
        """Switch the dump off; nothing happens where it is off."""
        self.case.runtime.stop()

    def finish(self) -> None:
        """Judge what the first run dumped, or examine what the second one did."""
        try:
            self.stop()
        except NpudumpError as error:
            if not self._explain_exception(str(error)):
                raise
            return
        if self.case.probing:
            self.first = FirstRun(probe(self.case, self.attempt))
        elif self._plan is None or self.first is None:
            self._judge()
        elif not self._accompanies:
            found = examine_second_run(self.case, self.first, self._plan, self.attempt)
            self.first, self.escalation = found
        if self.first is not None and self.recording is None:
            self.recording = self.first.outcome.recording

    def _judge(self) -> None:
        first = judge(self.case, self.attempt)
        self._plan = self._agreed(self._first_plan(first))
        self.escalation = self._plan.skipped if self._plan else None
        if self.escalation is not None and first.outcome.status == PENDING:
            problem = f"nothing was recorded: {self.escalation.problem}"
            first = replace(first, outcome=replace(first.outcome, problems=(problem,)))
        self.first = first

    def _first_plan(self, first: FirstRun) -> Plan | None:
        plan = plan_second_run(self.case, first)
        if plan is None or not plan.runs or len(self.attempts) == 1:
            return plan
        problem = "not run: the test had failed by itself before, and another plugin repeated it"
        return replace(plan, skipped=Escalation(problem=problem))

    def examine_exception(self) -> Outcome:
        """Look for operators that failed on the device in the last run, whatever became of its process."""
        return examine(self.case, self.attempts[-1] if self.attempts else None)

    def judge_failed_body(self) -> bool:
        """Let the operators that failed on the device decide about a body that failed; False without any."""
        outcome = self.examine_exception()
        if not outcome.good:
            self.first = FirstRun(outcome)
        return not outcome.good

    def _explain_exception(self, error: str) -> bool:
        """Tell which operator failed where a failed device cannot even end the dump; False without one."""
        if self.case.request.scene != "exception":
            return False
        outcome = self.examine_exception()
        if outcome.findings:
            self.first = FirstRun(replace(outcome, problems=(*outcome.problems, error)))
        return bool(outcome.findings)

    def commit(self) -> None:
        """Let what was recorded count, as all of the test has passed.

        Raises:
            GoldenError: it cannot be put in the golden's place, which is as it was.
        """
        if self.recording is not None:
            recording, self.recording = self.recording, None
            recording.commit()

    def discard(self) -> None:
        """Remove what was recorded; the golden stays as it is."""
        if self.recording is not None:
            self.recording.discard()
        self.recording = None

    def withdraw(self, problem: str) -> None:
        """Record that nothing was recorded, as a part of the test did not pass."""
        if self.first is not None:
            self.fail(PENDING, (problem,))

    def _agreed(self, plan: Plan | None) -> Plan | None:
        """Return the plan that all ranks can follow: a model whose ranks wait for each other runs on all."""
        exchange, nodeid = self.case.exchange, self.case.nodeid
        if exchange is None:
            return plan
        if not self.repeatable:
            stand_aside(exchange, nodeid, NO_REPETITION)
        wanted = plan is not None and plan.runs
        again, problem = agree(exchange, nodeid, wants=wanted)
        if not again and wanted and plan is not None:
            return replace(plan, skipped=Escalation(problem=problem))
        self._accompanies = again and not wanted
        return Plan(()) if self._accompanies else plan

    def judged(self) -> Judged:
        """Return what the first run came to; only where :attr:`wants_second_run` says so."""
        assert self.first is not None  # noqa: S101 - the same
        assert self._plan is not None  # noqa: S101 - the same
        return Judged(self.first, self._plan, self._accompanies)

    def adopt(self, judged: Judged) -> None:
        """Go on from a first run that took place in another process."""
        self.first, self._plan, self._accompanies = judged.first, judged.plan, judged.accompanies
        self.attempts = [Attempt(1, self.case.directory / "run1", self.case.request)]

    def fail(self, status: str, problems: tuple[str, ...]) -> None:
        """Make the first run's outcome one of ``status``, for these problems."""
        assert self.first is not None  # noqa: S101 - the caller has looked
        outcome = replace(self.first.outcome, status=status, problems=problems)
        self.first = replace(self.first, outcome=outcome)

    def abandon_second_run(self, reason: str) -> None:
        """Record that the second run came to nothing, because its body failed or it never started."""
        if self.escalation is None and not self._accompanies:
            self.escalation = Escalation(problem=reason)

    @property
    def done(self) -> bool:
        """Whether nobody needs the dumps any more."""
        return self.good if self.first is not None else not self.case.runtime.activity.programs

    def clean_up(self) -> None:
        """Delete the dumps, unless the test failed or the user keeps all."""
        if self.done:
            self.delete_dumps()

    def delete_dumps(self) -> None:
        """Delete the dumps, unless the user keeps all."""
        if self.case.settings.keep_dumps != "all":
            shutil.rmtree(self.case.directory, ignore_errors=True)
