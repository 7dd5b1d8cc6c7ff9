"""``npudump golden list``: the goldens of the tests of a folder."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_npudump.cli.common.output import columns, emit, write_json
from pytest_npudump.cli.golden.owners import take_stock
from pytest_npudump.language.translation import gettext as _
from pytest_npudump.language.translation import mark
from pytest_npudump.report.verdicts import shown

if TYPE_CHECKING:
    import argparse


def run(arguments: argparse.Namespace) -> int:
    """List them; 0."""
    used = take_stock().census.used
    if arguments.json:
        write_json([{"path": str(one.path), "test": one.why} for one in used], arguments.json)
    if arguments.json != "-":
        rows = [(one.why, shown(one.path)) for one in used]
        emit(columns(rows, (mark("test"), mark("golden"))) if rows else [_("no test has a golden")])
    return 0
