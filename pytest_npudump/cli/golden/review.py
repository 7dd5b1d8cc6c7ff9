"""``npudump golden review``: a decision about each waiting run, on a full screen or by lines of text."""

from __future__ import annotations

import importlib.util
import os
import sys
from typing import TYPE_CHECKING

from pytest_npudump.cli.common.output import emit, to_stderr
from pytest_npudump.cli.golden.accept import refuse_in_ci
from pytest_npudump.cli.golden.decisions import Decisions
from pytest_npudump.cli.golden.waiting_runs import read_waiting
from pytest_npudump.language.translation import gettext as _

if TYPE_CHECKING:
    import argparse


def run(arguments: argparse.Namespace) -> int:
    """Ask about each run; 1 where some wait still, 2 where one was refused."""
    refuse_in_ci(arguments)
    waiting = read_waiting(arguments)
    if not waiting.chosen:
        emit([_("no run waits for a decision")])
        return 0 if waiting.is_readable else 2
    decisions = Decisions(waiting, arguments.reason)
    if _takes_a_screen(lines=arguments.lines):
        from pytest_npudump.cli.golden.review_screen import review_on_screen  # noqa: PLC0415 - an extra

        review_on_screen(decisions)
    else:
        from pytest_npudump.cli.golden.review_lines import review_by_lines  # noqa: PLC0415 - one of the two

        review_by_lines(decisions)
    counts = decisions.counts
    told = _("{accepted} accepted, {rejected} rejected, {left} skipped").format(
        accepted=counts.accepted, rejected=counts.rejected, left=counts.left
    )
    emit([told + (_(", {refused} refused").format(refused=counts.refused) if counts.refused else "")])
    if counts.refused or not waiting.is_readable:
        return 2
    return 1 if counts.left else 0


def _takes_a_screen(*, lines: bool) -> bool:
    """Whether there is a terminal at both ends, and what draws on it; says how to get the latter."""
    ends = (sys.stdin, sys.stdout)
    if lines or not all(end is not None and end.isatty() for end in ends):
        return False
    if os.environ.get("TERM", "dumb") == "dumb":
        return False
    if importlib.util.find_spec("prompt_toolkit") is None:
        to_stderr(_("npudump: by lines; a full screen takes: pip install 'pytest-npudump[review]'"))
        return False
    return True
