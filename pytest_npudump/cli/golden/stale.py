"""``npudump golden stale``: files of goldens that no test reads."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_npudump.cli.common.output import emit, write_json
from pytest_npudump.cli.golden.owners import as_json, lines, take_census

if TYPE_CHECKING:
    import argparse


def run(arguments: argparse.Namespace) -> int:
    """List them, and what cannot be judged; 1 where there are any."""
    found = take_census(arguments.variant)
    if arguments.json:
        data = {"stale": as_json(found.stale), "unjudged": as_json(found.unjudged), "used": len(found.used)}
        write_json(data, arguments.json)
    if arguments.json != "-":
        emit(lines(found.stale, "no test reads:"))
        emit(lines(found.unjudged, "not judged, and not removed by prune:"))
        counts = f"{len(found.stale)} stale, {len(found.unjudged)} not judged"
        emit([f"{len(found.used)} goldens in use, {counts}"])
    return 1 if found.stale else 0
