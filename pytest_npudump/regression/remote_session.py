"""A test whose runs take place in other processes, as their parent knows it."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from pytest_npudump.regression.attempt import Attempt
from pytest_npudump.regression.diagnose import full_words
from pytest_npudump.regression.outcome import DIED, Escalation, FirstRun, Outcome
from pytest_npudump.regression.session import CaseSession

if TYPE_CHECKING:
    from pytest_npudump.golden.pair import Recording
    from pytest_npudump.runtime.base import Runtime


class RemoteSession(CaseSession):
    """A test with the marker, through runs that other processes make and judge."""

    def resume(self, first: FirstRun, escalation: Escalation | None) -> None:
        """Take over what a run in another process had come to before that ended."""
        self.first, self.escalation = first, escalation
        self.recording = first.outcome.recording

    def adopt_recording(self, recording: Recording | None) -> None:
        """Take over what a run in another process has recorded."""
        self.recording = recording

    def run_in(self, runtime: Runtime) -> None:
        """Say what the run that has ended in another process ran on."""
        self.case = replace(self.case, runtime=runtime)

    def die(self, why: str) -> None:
        """Record that the process of the run under way ended before the run did.

        Where its body had been judged by then, what that showed stands too.
        """
        if self._plan is not None and self.escalation is None:
            self.abandon_second_run(f"its process {why}")
            return
        directory = self.case.directory
        self.attempts = self.attempts or [Attempt(1, directory / "run1", self.case.request)]
        words = f"the test's process {why}"
        if self.first is None:
            problems = (f"{words}; nothing was compared", *filter(None, [full_words(directory)]))
            self.first = FirstRun(Outcome(DIED, None, problems=problems))
        else:
            if self.case.settings.update_golden and self.first.outcome.good:
                words += "; nothing was recorded"
            self.fail(DIED, (words, *self.first.outcome.problems))
        if self.case.request.scene == "exception":
            left, died = self.examine_exception(), self.first.outcome
            outcome = replace(left, status=died.status, problems=died.problems + left.problems)
            self.first = FirstRun(outcome)
