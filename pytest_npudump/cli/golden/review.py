"""``npudump golden review``: waiting runs one by one, and a decision about each, by a line of text.

Lines work in any terminal, over any connection, and from a script.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_npudump.cli.common.output import emit, end_output
from pytest_npudump.cli.golden import diff
from pytest_npudump.cli.golden.accept import accept, refuse_in_ci
from pytest_npudump.cli.golden.waiting_runs import read_waiting
from pytest_npudump.results.acceptance import reject

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator, Sequence

    from pytest_npudump.cli.golden.waiting_runs import WaitingRuns
    from pytest_npudump.results.pending_run import Pending

_LINES = 15
"""Lines of what differs in a run, before the rest is asked for."""
_QUESTION = "a accept, r reject, s skip, A/R/S all that follow, l PATTERN accept layers, d show all: "
_FOR_ALL = ("A", "R", "S")


def run(arguments: argparse.Namespace) -> int:
    """Ask about each run; 1 where some wait still, 2 where one was refused."""
    refuse_in_ci(arguments)
    waiting = read_waiting(arguments)
    if not waiting.chosen:
        emit(["no run waits for a decision"])
        return 0 if waiting.is_readable else 2
    review = _Review(waiting, arguments.reason)
    for number, pending in enumerate(waiting.chosen, 1):
        review.decide(pending, f"{number} of {len(waiting.chosen)}")
    emit([f"{review.accepted} accepted, {review.rejected} rejected, {review.skipped} skipped"])
    if review.refused or not waiting.is_readable:
        return 2
    return 1 if review.skipped else 0


class _Review:
    """The decisions of one review; ``A``, ``R`` and ``S`` hold for all runs that follow."""

    def __init__(self, waiting: WaitingRuns, reason: str) -> None:
        self._waiting = waiting
        self._reason = reason
        self._standing = ""
        self.accepted = self.rejected = self.skipped = self.refused = 0

    def decide(self, pending: Pending, place: str) -> None:
        """Ask about a run, unless an earlier answer holds for it, and do as is said."""
        if not self._standing:
            emit(["", f"{place}: ", *_shown(pending)])
        word, layers = self._answer(pending)
        if word in _FOR_ALL:
            self._standing = word
        if word in {"a", "A", "l"}:
            good = accept(self._waiting.folder, pending, layers, self._reason)
            self.accepted += good
            self.refused += not good
        elif word in {"r", "R"}:
            self._waiting.folder.update([reject(pending)])
            emit([f"rejected: {pending.entry.test}"])
            self.rejected += 1
        else:
            self.skipped += 1

    def _answer(self, pending: Pending) -> tuple[str, Sequence[str]]:
        """Return the letter of a decision, and the layers it is about; the end of input skips the rest."""
        if self._standing:
            return self._standing, ()
        while True:
            words = _asked().split()
            if words == ["d"]:
                emit(diff.lines(pending))
            elif words[:1] == ["l"] and words[1:]:
                return "l", words[1:]
            elif len(words) == 1 and words[0] in {"a", "r", "s", *_FOR_ALL}:
                return words[0], ()
            else:
                emit(["that is none of the answers"])


def _asked() -> str:
    end_output()
    try:
        return input(_QUESTION)
    except EOFError:
        return "S"


def _shown(pending: Pending) -> Iterator[str]:
    lines = list(diff.lines(pending))
    yield from lines[:_LINES]
    if len(lines) > _LINES:
        yield f"  ... and {len(lines) - _LINES} more lines (d shows all)"
