"""A review by lines of text, which work in any terminal, over any connection, and from a script."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_npudump.cli.common.output import emit, end_output, to_stderr
from pytest_npudump.cli.golden import diff
from pytest_npudump.cli.golden.decisions import OPEN
from pytest_npudump.language.translation import gettext as _
from pytest_npudump.language.translation import mark

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pytest_npudump.cli.golden.decisions import Decisions
    from pytest_npudump.results.acceptance import Pending

_LINES = 15
"""Lines of what differs in a run, before the rest is asked for."""
_QUESTION = mark("a accept, r reject, s skip, A/R/S all that follow, l PATTERN accept layers, d show all: ")
_FOR_ALL = ("A", "R", "S")


def review_by_lines(decisions: Decisions) -> None:
    """Ask about each run in turn; ``A``, ``R`` and ``S`` hold for all that follow."""
    standing = ""
    for number, pending in enumerate(decisions.runs):
        if not standing:
            emit(
                [
                    "",
                    _("{number} of {count}: ").format(number=number + 1, count=len(decisions.runs)),
                    *_shown(pending),
                ]
            )
        while decisions.made(number) == OPEN:  # until layers are named that there are
            word, layers = (standing, ()) if standing else _answer(pending)
            standing = word if word in _FOR_ALL else ""
            _decide(decisions, number, word, layers)


def _decide(decisions: Decisions, number: int, word: str, layers: Sequence[str]) -> None:
    if word in {"a", "A", "l"}:
        told = decisions.accept(number, layers)
    elif word in {"r", "R"}:
        told = decisions.reject(number)
    else:
        told = decisions.skip(number)
    emit(told.lines)
    if told.problem:
        to_stderr(told.problem)


def _answer(pending: Pending) -> tuple[str, tuple[str, ...]]:
    """Return the letter of a decision, and the layers it is about; the end of input skips the rest."""
    while True:
        words = _asked().split()
        if words == ["d"]:
            emit(diff.lines(pending))
        elif words[:1] == ["l"] and words[1:]:
            return "l", tuple(words[1:])
        elif len(words) == 1 and words[0] in {"a", "r", "s", *_FOR_ALL}:
            return words[0], ()
        else:
            emit([_("that is none of the answers")])


def _asked() -> str:
    end_output()
    try:
        return input(_(_QUESTION))
    except EOFError:
        return "S"


def _shown(pending: Pending) -> Iterator[str]:
    lines = list(diff.lines(pending))
    yield from lines[:_LINES]
    if len(lines) > _LINES:
        yield "  " + _("... and {left} more lines (d shows all)").format(left=len(lines) - _LINES)
