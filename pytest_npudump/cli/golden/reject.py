"""``npudump golden reject``: waiting runs are taken off the list, and their goldens stay as they are."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_npudump.cli.common.output import emit
from pytest_npudump.cli.golden.waiting_runs import read_waiting
from pytest_npudump.language.translation import gettext as _
from pytest_npudump.results.acceptance import reject

if TYPE_CHECKING:
    import argparse


def run(arguments: argparse.Namespace) -> int:
    """Take them off; 2 where results cannot be read."""
    waiting = read_waiting(arguments)
    if not waiting.is_readable:
        return 2
    waiting.folder.update(map(reject, waiting.chosen))
    emit(_("rejected: {test}").format(test=one.entry.test) for one in waiting.chosen)
    emit([_("{count} rejected").format(count=len(waiting.chosen))])
    return 0
