"""``npudump golden accept``: waiting runs become the goldens, by what was kept of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_npudump.cli.common.output import emit, to_stderr
from pytest_npudump.cli.golden.waiting_runs import read_waiting
from pytest_npudump.errors import NpudumpError, RequestError
from pytest_npudump.language.translation import gettext as _
from pytest_npudump.language.translation import spoken
from pytest_npudump.report.verdicts import shown
from pytest_npudump.results.acceptance import approve, refuse_idle
from pytest_npudump.settings import ci_variable

if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence

    from pytest_npudump.results.acceptance import Pending
    from pytest_npudump.results.folder import ResultsFolder


def run(arguments: argparse.Namespace) -> int:
    """Write the goldens; 2 where one was refused.

    Raises:
        ResultsError: a layer that is named differs in none of the runs: nothing is written.
    """
    refuse_in_ci(arguments)
    waiting = read_waiting(arguments)
    refuse_idle(waiting.chosen, arguments.layers)
    good = [accept(waiting.folder, one, arguments.layers, arguments.reason) for one in waiting.chosen]
    emit(
        [
            _("{accepted} of {count} accepted").format(accepted=sum(good), count=len(good))
            if good
            else _("no run waits for a decision")
        ]
    )
    return 0 if waiting.is_readable and all(good) else 2


def refuse_in_ci(arguments: argparse.Namespace) -> None:
    """Refuse to approve in a gate.

    Raises:
        RequestError: a variable says that this is CI, and nothing says that this is on purpose.
    """
    variable = "" if arguments.allow_in_ci else ci_variable()
    if variable:
        raise RequestError(
            _(
                "accept is refused because the variable {variable} is set: a gate must not approve what it "
                "checks; accept on a machine of your own, with --results, or on purpose with "
                "--allow-in-ci"
            ).format(variable=variable)
        )


def accept(folder: ResultsFolder, pending: Pending, layers: Sequence[str], reason: str) -> bool:
    """Accept one run, or some of its layers, and say so; False where it was refused."""
    try:
        approval = approve(pending, layers, reason)
    except NpudumpError as error:
        to_stderr(f"npudump: {spoken(str(error))}")
        return False
    emit([_("accepted: {test}: {path}").format(test=pending.entry.test, path=shown(pending.path))])
    emit("  " + _("note: {note}").format(note=spoken(note)) for note in approval.notes)
    try:
        folder.update([approval.entry])
    except (OSError, NpudumpError) as error:  # the golden is written; the list finds that out by itself
        problem = _("npudump: {path}: it cannot be noted there: {error}")
        to_stderr(problem.format(path=folder.path, error=error))
    return True
