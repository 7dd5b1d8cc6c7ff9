"""``npudump golden review``: a decision about each waiting run: a key on a terminal, a line elsewhere."""

from __future__ import annotations

import os
import sys
import termios
import tty
from collections import Counter
from typing import TYPE_CHECKING

from pytest_npudump.cli.common.output import emit, end_output, to_stderr
from pytest_npudump.cli.golden import diff
from pytest_npudump.cli.golden.accept import accept, refuse_in_ci
from pytest_npudump.cli.golden.waiting_runs import read_waiting
from pytest_npudump.language.translation import gettext as _
from pytest_npudump.language.translation import mark, spoken
from pytest_npudump.results.acceptance import refuse_idle, reject
from pytest_npudump.results.entry import ResultsError

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator, Sequence

    from pytest_npudump.cli.golden.waiting_runs import WaitingRuns
    from pytest_npudump.results.acceptance import Pending

_LINES = 15
"""Lines of what differs in a run, before the rest is asked for."""
_QUESTION = mark("a accept, r reject, s skip, l some layers, d details, q quit, A/R/S all left: ")
_DECISIONS = ("a", "r", "s", "A", "R", "S", "q")
_FOR_ALL = ("A", "R", "S", "q")
"""Those that hold for all that follow: to quit is to skip these."""


def run(arguments: argparse.Namespace) -> int:
    """Ask about each run; 1 where some wait still, 2 where one was refused."""
    refuse_in_ci(arguments)
    waiting = read_waiting(arguments)
    if not waiting.chosen:
        emit([_("no run waits for a decision")])
        return 0 if waiting.is_readable else 2
    counts = _review(waiting, arguments.reason)
    told = _("{accepted} accepted, {rejected} rejected, {left} skipped").format(
        accepted=counts["accepted"], rejected=counts["rejected"], left=counts["skipped"]
    )
    refused = counts["refused"]
    emit([told + (_(", {refused} refused").format(refused=refused) if refused else "")])
    if refused or not waiting.is_readable:
        return 2
    return 1 if counts["skipped"] else 0


def _review(waiting: WaitingRuns, reason: str) -> Counter[str]:
    """Ask about each run in turn and do what is answered, at once; return how many were decided how."""
    counts: Counter[str] = Counter()
    standing = ""
    for number, pending in enumerate(waiting.chosen, 1):
        if not standing:
            emit(["", _("{number} of {count}: ").format(number=number, count=len(waiting.chosen))])
            emit(_shown(pending))
        decision = ""
        while not decision:  # until layers are named that there are
            word, layers = (standing, ()) if standing else _answer(pending, len(waiting.chosen) - number + 1)
            standing = word if word in _FOR_ALL else ""
            decision = _carry_out(word, waiting, pending, layers, reason)
        counts[decision] += 1
    return counts


def _carry_out(word: str, waiting: WaitingRuns, pending: Pending, layers: Sequence[str], reason: str) -> str:
    """Return what became of a run; "" where it is as open as before, as layers of it were refused."""
    if word in {"r", "R"}:
        waiting.folder.update([reject(pending)])
        emit([_("rejected: {test}").format(test=pending.entry.test)])
        return "rejected"
    if word not in {"a", "A", "l"}:
        return "skipped"
    try:
        refuse_idle([pending], layers)
    except ResultsError as error:
        to_stderr(f"npudump: {spoken(str(error))}")
        return ""
    if accept(waiting.folder, pending, layers, reason):
        return "accepted"
    return "" if layers else "refused"


def _answer(pending: Pending, left: int) -> tuple[str, tuple[str, ...]]:
    """Return the letter of a decision, and the layers it is about; the end of input skips the rest.

    Args:
        pending: the run that is asked about.
        left: how many runs wait, this one included.
    """
    keys = sys.stdin.isatty() and sys.stdout.isatty()
    while True:
        words = (_key(_(_QUESTION)) if keys else _line(_(_QUESTION))).split()
        if words == ["d"]:
            emit(diff.lines(pending))
        elif words[:1] == ["l"]:
            layers = words[1:] or _line(_("layers to accept (names or globs): ")).split()
            if layers:
                return "l", tuple(layers)
        elif len(words) != 1 or words[0] not in _DECISIONS:
            emit([_("unknown answer; enter a, r, s, l, d, q, A, R or S")])
        elif not (keys and words[0] in "ARS") or _line(_("all {left}? y: ").format(left=left)) == "y":
            return words[0], ()


def _line(question: str) -> str:
    end_output()
    try:
        return input(question)
    except EOFError:
        return "q"


def _key(question: str) -> str:
    """Return the key that answers; what was typed before the question was there answers nothing.

    Keys that send several octets, as arrows do with an ``A`` among them, are no answer.
    """
    end_output()
    sys.stdout.write(question)
    sys.stdout.flush()
    terminal = sys.stdin.fileno()
    before = termios.tcgetattr(terminal)
    try:
        tty.setcbreak(terminal)
        typed = os.read(terminal, 64)
    finally:
        termios.tcsetattr(terminal, termios.TCSAFLUSH, before)
    key = "q" if typed in {b"", b"\x04"} else typed.decode(errors="replace")
    emit([key if key.isprintable() else ""])
    return key if len(key) == 1 else "?"


def _shown(pending: Pending) -> Iterator[str]:
    lines = list(diff.lines(pending))
    yield from lines[:_LINES]
    if len(lines) > _LINES:
        yield "  " + _("... and {left} more lines (d shows all)").format(left=len(lines) - _LINES)
