"""The plan of a second run that everybody can follow: the test's own, other plugins, and the other ranks."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from pytest_npudump.ranks.agreement import NO_REPETITION, agree, stand_aside
from pytest_npudump.regression.outcome import Escalation
from pytest_npudump.regression.second_run.run_plan import Plan, plan_second_run

if TYPE_CHECKING:
    from pytest_npudump.regression.case import Case
    from pytest_npudump.regression.outcome import FirstRun

_ONCE = "not run: pytest, or another plugin that runs the test, lets it run once only"
_REPEATED = "not run: the test had failed by itself before, and another plugin repeated it"


def agreed_plan(case: Case, first: FirstRun, *, repeated: bool, repeatable: bool) -> Plan | None:
    """Decide whether the test runs again, and with which layers; None where there is nothing to find out.

    A model whose ranks wait for each other runs on all of them or on none: a rank with nothing to find out
    accompanies the others.

    Args:
        case: the test.
        first: its run that has been judged.
        repeated: whether there was a run before that one.
        repeatable: whether pytest's session lets the test run again.
    """
    plan = plan_second_run(case, first)
    if plan is not None and plan.runs and repeated:
        plan = replace(plan, skipped=Escalation(problem=_REPEATED))
    if plan is not None and plan.runs and plan.measures and not repeatable:
        plan = replace(plan, skipped=Escalation(problem=_ONCE))
    exchange = case.exchange
    if exchange is None:
        return plan
    if not repeatable:
        stand_aside(exchange, case.nodeid, NO_REPETITION)
    wants = plan is not None and plan.runs
    again, problem = agree(exchange, case.nodeid, wants=wants)
    if plan is not None and wants and not again:
        return replace(plan, skipped=Escalation(problem=problem))
    return Plan((), accompanies=True) if again and not wants else plan
