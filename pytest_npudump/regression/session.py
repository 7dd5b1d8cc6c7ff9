"""The main flow: a test runs under dump, its layers are compared with its golden, a failure is explained.

    marker -> request -> dump on -> test body -> dump off -> records -> compare with golden -> verdicts
        -> all good: done
        -> failing layers -> run again, tensors of just those -> reproduced? -> compare tensors -> report

The plugin calls :meth:`MarkedTest.start` before a test's fixtures are set up, :meth:`MarkedTest.finish` after
its body, and does both once more where :attr:`MarkedTest.wants_second_run` says so.
"""

from __future__ import annotations

import shutil
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from pytest_npudump.errors import ConfigError, NpudumpError
from pytest_npudump.ranks.agreement import NO_REPETITION, agree, stand_aside
from pytest_npudump.regression.attempt import Attempt
from pytest_npudump.regression.diagnose import full_words
from pytest_npudump.regression.judge import judge, probe
from pytest_npudump.regression.outcome import (
    DIED,
    PENDING,
    RECORDED,
    UNCHANGED,
    Escalation,
    Outcome,
)
from pytest_npudump.regression.scenes.exception.judge import examine
from pytest_npudump.regression.second_run import Plan, examine_second_run, plan_second_run

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pytest_npudump.compare.tolerances.tolerance import Tolerances
    from pytest_npudump.dump.records import Dump, TensorKey
    from pytest_npudump.golden.of_test import Goldens
    from pytest_npudump.ranks.exchange import Exchange
    from pytest_npudump.reference.reference import Reference
    from pytest_npudump.request import DumpRequest
    from pytest_npudump.runtime.base import Runtime
    from pytest_npudump.settings import Settings


@dataclass(frozen=True, slots=True)
class Judged:
    """What a first run came to, for a second one in another process.

    Attributes:
        outcome: what it showed.
        plan: what the second run is to dump.
        dump: what it left.
        accompanies: whether the second run takes place for the other ranks' sake.
        part: the rank or device of the dump that was judged.
    """

    outcome: Outcome
    plan: Plan
    dump: Dump | None
    accompanies: bool = False
    part: str = ""


@dataclass(slots=True)
class MarkedTest:
    """One test with the marker, through all of its runs.

    Attributes:
        nodeid: pytest's name of the test, as a user types it.
        request: what its markers ask for.
        settings: the options of the session.
        runtime: what runs its models.
        goldens: its golden files.
        tolerances: what its statistics may differ by.
        directory: where its dumps and reports go.
        progress: called with (files read, files in all) while a dump is read; None for nobody.
        reference: the ONNX model its layers are compared with; None without one.
        attempts: its runs so far.
        dump: what the first run left; None before, or where it cannot be read.
        outcome: what the first run showed; None before its body has ended well.
        escalation: what the second run found; None without one.
        exchange: what the ranks of a distributed run tell each other by; None for a process of its own.
        part: the rank or device of the dump that is judged, where all share one golden.
        isolated: whether each run has a process of its own.
        repeatable: whether this session lets the test run again.
        probing: whether this run takes place in other memory, for the recording of one that does not.
        unwritten: tensors of the dump that nothing writes, which a recording leaves out.
    """

    nodeid: str
    request: DumpRequest
    settings: Settings
    runtime: Runtime
    goldens: Goldens
    tolerances: Tolerances
    directory: Path
    progress: Callable[[int, int], None] | None = None
    reference: Reference | None = None
    attempts: list[Attempt] = field(default_factory=list)
    dump: Dump | None = None
    outcome: Outcome | None = None
    escalation: Escalation | None = None
    exchange: Exchange | None = None
    part: str = ""
    isolated: bool = False
    repeatable: bool = True
    probing: bool = False
    unwritten: tuple[TensorKey, ...] = ()
    _plan: Plan | None = None
    _accompanies: bool = False

    @property
    def attempt(self) -> Attempt:
        """The run under way, or the last one."""
        return self.attempts[-1]

    @property
    def wants_second_run(self) -> bool:
        """Whether the test has to run again, with tensors in its dump."""
        planned = self._plan is not None and self._plan.runs
        return planned and self.escalation is None and len(self.attempts) == 1

    @property
    def good(self) -> bool:
        """Whether the test may pass: what it was asked to compare or record is compared or recorded."""
        recorded = self.escalation is None or not self.escalation.problem
        return self.outcome is not None and self.outcome.good and recorded

    def prepare(self) -> None:
        """Make the folder for the test's dumps, private to the user.

        Raises:
            ConfigError: it cannot be made.
        """
        try:
            self.directory.mkdir(parents=True, mode=0o700, exist_ok=True)
        except OSError as error:
            raise ConfigError(
                f"{self.directory}: the folder for the test's dumps cannot be made: {error.strerror}; choose "
                f"another with --npudump-dump-dir"
            ) from error

    def start(self) -> None:
        """Switch the dump on for the next run: before the test's fixtures, so that models load under it.

        Raises:
            NpudumpError: the configuration is refused, or the runtime cannot dump.
        """
        self.prepare()
        number = 0 if self.probing else len(self.attempts) + 1
        directory = self.directory / f"run{number}"
        if self._plan is None or self._accompanies:
            attempt = Attempt(number, directory, self.request)
        else:
            attempt = Attempt(number, directory, self.request, "tensor", self._plan.raw_layers)
        self.attempts.append(attempt)
        if self.reference is not None:
            self.reference.start_run()
        attempt.start(self.runtime)

    def stop(self) -> None:
        """Switch the dump off; nothing happens where it is off."""
        self.runtime.stop()

    def finish(self) -> None:
        """Judge what the first run dumped, or examine what the second one did."""
        try:
            self.stop()
        except NpudumpError as error:
            if not self._explain_exception(str(error)):
                raise
            return
        if self.probing:
            self.outcome = probe(self)
        elif self._plan is None:
            self.outcome = judge(self)
            self._plan = self._agreed(self._first_plan())
            self.escalation = self._plan.skipped if self._plan else None
            if self.escalation is not None and self.outcome.status == PENDING:
                problem = f"nothing was recorded: {self.escalation.problem}"
                self.outcome = replace(self.outcome, problems=(problem,))
        elif not self._accompanies:
            self.escalation = examine_second_run(self, self._plan)

    def _first_plan(self) -> Plan | None:
        plan = plan_second_run(self)
        if plan is None or not plan.runs or len(self.attempts) == 1:
            return plan
        problem = "not run: the test had failed by itself before, and another plugin repeated it"
        return replace(plan, skipped=Escalation(problem=problem))

    def _explain_exception(self, error: str) -> bool:
        """Tell which operator failed where a failed device cannot even end the dump; False without one."""
        if self.request.scene != "exception":
            return False
        outcome = examine(self)
        if outcome.findings:
            self.outcome = replace(outcome, problems=(*outcome.problems, error))
        return bool(outcome.findings)

    def _agreed(self, plan: Plan | None) -> Plan | None:
        """Return the plan that all ranks can follow: a model whose ranks wait for each other runs on all."""
        if self.exchange is None:
            return plan
        if not self.repeatable:
            stand_aside(self.exchange, self.nodeid, NO_REPETITION)
        wanted = plan is not None and plan.runs
        again, problem = agree(self.exchange, self.nodeid, wants=wanted)
        if not again and wanted and plan is not None:
            return replace(plan, skipped=Escalation(problem=problem))
        self._accompanies = again and not wanted
        return Plan(()) if self._accompanies else plan

    def judged(self) -> Judged:
        """Return what the first run came to; only where :attr:`wants_second_run` says so."""
        assert self.outcome is not None  # noqa: S101 - the same
        assert self._plan is not None  # noqa: S101 - the same
        return Judged(self.outcome, self._plan, self.dump, self._accompanies, self.part)

    def adopt(self, judged: Judged) -> None:
        """Go on from a first run that took place in another process."""
        self.outcome, self.dump, self._plan = judged.outcome, judged.dump, judged.plan
        self.attempts, self.part = [Attempt(1, self.directory / "run1", self.request)], judged.part
        self._accompanies = judged.accompanies

    def die(self, why: str) -> None:
        """Record that the process of the run under way ended before the run did.

        Where its body had been judged by then, what that showed stands too.
        """
        if self._plan is not None and self.escalation is None:
            self.abandon_second_run(f"its process {why}")
            return
        self.attempts = self.attempts or [Attempt(1, self.directory / "run1", self.request)]
        words = f"the test's process {why}"
        if self.outcome is None:
            full = full_words(self.directory)
            problems = (f"{words}; nothing was compared", *filter(None, [full]))
            self.outcome = Outcome(DIED, None, problems=problems)
            return
        if self.outcome.status in {RECORDED, UNCHANGED}:
            words += "; what had been recorded is taken back"
        self.outcome = replace(self.outcome, status=DIED, problems=(words, *self.outcome.problems))

    def abandon_second_run(self, reason: str) -> None:
        """Record that the second run came to nothing, because its body failed or it never started."""
        if self.escalation is None and not self._accompanies:
            self.escalation = Escalation(problem=reason)

    @property
    def done(self) -> bool:
        """Whether nobody needs the dumps any more."""
        return self.good if self.outcome is not None else not self.runtime.activity.programs

    def clean_up(self) -> None:
        """Delete the dumps, unless the test failed or the user keeps all."""
        if self.done:
            self.delete_dumps()

    def delete_dumps(self) -> None:
        """Delete the dumps, unless the user keeps all."""
        if self.settings.keep_dumps != "all":
            shutil.rmtree(self.directory, ignore_errors=True)
