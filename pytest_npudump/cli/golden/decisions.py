"""What was decided about waiting runs so far; each decision is carried out as it is made."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from pytest_npudump.cli.golden.accept import Done, accepted
from pytest_npudump.language.translation import gettext as _
from pytest_npudump.language.translation import spoken
from pytest_npudump.results.acceptance import refuse_idle, reject
from pytest_npudump.results.entry import ResultsError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pytest_npudump.cli.golden.waiting_runs import WaitingRuns
    from pytest_npudump.results.acceptance import Pending

ACCEPTED = "accepted"
REJECTED = "rejected"
SKIPPED = "skipped"
REFUSED = "refused"
OPEN = ""


@dataclass(frozen=True, slots=True)
class Counts:
    """How many runs were decided how; ``left`` are those that wait still."""

    accepted: int
    rejected: int
    refused: int
    left: int


class Decisions:
    """The decisions of one review.

    Attributes:
        runs: what waits, the largest change first.
    """

    def __init__(self, waiting: WaitingRuns, reason: str) -> None:
        self.runs: tuple[Pending, ...] = waiting.chosen
        self._folder = waiting.folder
        self._reason = reason
        self._made = [OPEN] * len(self.runs)

    def made(self, number: int) -> str:
        """Return what was decided about a run; :data:`OPEN` where nothing was."""
        return self._made[number]

    @property
    def counts(self) -> Counts:
        """The decisions by kind."""
        found = {kind: self._made.count(kind) for kind in (ACCEPTED, REJECTED, REFUSED)}
        left = len(self.runs) - sum(found.values())
        return Counts(found[ACCEPTED], found[REJECTED], found[REFUSED], left)

    def next_open(self, number: int) -> int | None:
        """Return the first undecided run from ``number`` on, then from the beginning; None without one."""
        order = (*range(number, len(self.runs)), *range(number))
        return next((at for at in order if not self._made[at]), None)

    def accept(self, number: int, layers: Sequence[str] = ()) -> Done:
        """Make a run the golden, or only some layers of it; a run that is refused keeps its golden.

        One of which layers are refused is as open as before: their names may be misspelt.
        """
        try:
            refuse_idle([self.runs[number]], layers)
        except ResultsError as error:
            return Done(good=False, problem=f"npudump: {spoken(str(error))}")
        done = accepted(self._folder, self.runs[number], layers, self._reason)
        if done.good or not layers:
            self._made[number] = ACCEPTED if done.good else REFUSED
        return done

    def reject(self, number: int) -> Done:
        """Keep the golden, and take a run off the list."""
        pending = self.runs[number]
        self._folder.update([reject(pending)])
        self._made[number] = REJECTED
        return Done(good=True, lines=(_("rejected: {test}").format(test=pending.entry.test),))

    def skip(self, number: int) -> Done:
        """Leave a run for later."""
        self._made[number] = SKIPPED
        return Done(good=True)
