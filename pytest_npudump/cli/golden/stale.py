"""``npudump golden stale``: files of goldens that no test reads, and rules that match nothing in any test."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_npudump.cli.common.output import emit, write_json
from pytest_npudump.cli.golden.idle_rules import idle_rules
from pytest_npudump.cli.golden.owners import as_json, lines, take_stock

if TYPE_CHECKING:
    import argparse


def run(arguments: argparse.Namespace) -> int:
    """List them, and what cannot be judged; 1 where there are any."""
    stock = take_stock(arguments.variant)
    found, rules = stock.census, idle_rules(stock)
    if arguments.json:
        data = {"stale": as_json(found.stale), "unjudged": as_json(found.unjudged), "used": len(found.used)}
        write_json({**data, "rules": rules.found, "unjudged_rules": rules.unjudged or None}, arguments.json)
    if arguments.json != "-":
        emit(lines(found.stale, "no test reads:"))
        emit(lines(found.unjudged, "not judged, and not removed by prune:"))
        emit(["rules that match no tensor of any test:"] if rules.found else [])
        emit(f"  {rule}" for rule in rules.found)
        emit([f"not judged: {rules.unjudged}"] if rules.unjudged else [])
        counts = f"{len(found.stale)} stale, {len(found.unjudged)} not judged"
        counts += f"; {len(rules.found)} rules match nothing" if rules.found else ""
        emit([f"{len(found.used)} goldens in use, {counts}"])
    return 1 if found.stale or rules.found else 0
