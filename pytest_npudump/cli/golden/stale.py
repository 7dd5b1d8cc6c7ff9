"""``npudump golden stale``: files of goldens that no test reads, and rules that match nothing in any test."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_npudump.cli.common.output import emit, write_json
from pytest_npudump.cli.golden.idle_rules import idle_rules
from pytest_npudump.cli.golden.owners import as_json, lines, take_stock
from pytest_npudump.language.translation import gettext as _
from pytest_npudump.language.translation import spoken

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
        emit(lines(found.stale, _("no test reads:")))
        emit(lines(found.unjudged, _("not judged, and not removed by prune:")))
        emit([_("rules that match no tensor of any test:")] if rules.found else [])
        emit(f"  {rule}" for rule in rules.found)
        emit([_("not judged: {unjudged}").format(unjudged=spoken(rules.unjudged))] if rules.unjudged else [])
        counts = _("{stale} stale, {unjudged} not judged").format(
            stale=len(found.stale), unjudged=len(found.unjudged)
        )
        counts += _("; {count} rules match nothing").format(count=len(rules.found)) if rules.found else ""
        emit([_("{count} goldens in use, {counts}").format(count=len(found.used), counts=counts)])
    return 1 if found.stale or rules.found else 0
