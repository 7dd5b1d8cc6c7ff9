"""``npudump golden prune``: what ``npudump golden stale`` lists is removed, and nothing else."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_npudump.cli.common.output import emit, to_stderr
from pytest_npudump.cli.golden.owners import lines, take_stock
from pytest_npudump.errors import GoldenError
from pytest_npudump.language.translation import gettext as _
from pytest_npudump.report.verdicts import shown

if TYPE_CHECKING:
    import argparse

    from pytest_npudump.golden.census import Finding


def run(arguments: argparse.Namespace) -> int:
    """Remove them, or say what would be; 1 where something is left for ``--yes``, 2 where a file stays."""
    stale = take_stock(arguments.variant).census.stale
    if not arguments.yes:
        emit(lines(stale, _("would be removed with --yes:")))
        emit([] if stale else [_("nothing is stale")])
        return 1 if stale else 0
    removed = [*map(_removed, stale)]
    emit([_("{removed} of {count} files removed").format(removed=sum(removed), count=len(stale))])
    return 0 if all(removed) else 2


def _removed(finding: Finding) -> bool:
    try:
        finding.remove()
    except GoldenError as error:
        to_stderr(f"npudump: {error}")
        return False
    emit([_("removed: {path}").format(path=shown(finding.path))])
    return True
