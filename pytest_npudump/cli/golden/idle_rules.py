"""Rules of the file of tolerances that are about no tensor of any test: of a layer that is gone, mostly."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from pytest_npudump.compare.tolerances.rules import load_tolerances
from pytest_npudump.compare.tolerances.tolerance import ANY, GOLDEN
from pytest_npudump.errors import GoldenError
from pytest_npudump.golden.store import read_golden
from pytest_npudump.language.excerpt import first_of
from pytest_npudump.language.translation import said

if TYPE_CHECKING:
    from pytest_npudump.cli.golden.owners import Stock
    from pytest_npudump.compare.tolerances.tolerance import Rule


@dataclass(frozen=True, slots=True)
class IdleRules:
    """What goldens say of the rules.

    Attributes:
        found: rules that match nothing in any golden, as a verdict quotes them.
        unjudged: why rules that match nothing may match all the same; "" where they do not.
    """

    found: tuple[str, ...] = ()
    unjudged: str = ""


def idle_rules(stock: Stock) -> IdleRules:
    """Hold the rules against all goldens that tests have.

    Rules about references are of layers that goldens need not have, and are left out.

    Raises:
        RequestError: the file of tolerances cannot be read, or holds a rule that is refused.
    """
    if stock.tolerances is None:
        return IdleRules()
    tolerances = load_tolerances(stock.tolerances, against=GOLDEN)
    rules, unread = tolerances.rules, list(stock.missing)
    for golden in stock.census.used:
        if not rules:
            break
        try:
            table = read_golden(golden.path).table
        except GoldenError as error:
            unread.append(str(error))
            continue
        idle = replace(tolerances, rules=tuple(map(_for_any_run, rules))).unmatched(table)
        rules = tuple(rule for rule in rules if _for_any_run(rule) in idle)
    if rules and unread:
        return IdleRules(
            unjudged=said(
                "{count} rules match no golden, and not all are there: {missing}",
                count=len(rules),
                missing=first_of(unread, 3),
            )
        )
    return IdleRules(tuple(f"{stock.tolerances}: {rule.describe()}" for rule in rules))


def _for_any_run(rule: Rule) -> Rule:
    """Return a rule for all operators and producers: a golden tells no types, and of one producer only."""
    return replace(rule, op_type=ANY, producer=())
