"""A third run, where it is asked for: upstream of operators that were acquitted, and for what had no room."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from pytest_npudump.dump.records import sanitise
from pytest_npudump.graph.edges import SEVERAL, UNKNOWN
from pytest_npudump.reference.operator_alone import ACQUITTED
from pytest_npudump.reference.operator_alone import UNKNOWN as NOT_JUDGED
from pytest_npudump.regression.outcome import ThirdRun
from pytest_npudump.regression.second_run.inputs_wanted import edges_of_run, feeders_of, largest_of, sizes_of
from pytest_npudump.regression.second_run.run_plan import plan_suspects

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pytest_npudump.dump.records import Dump, TensorKey
    from pytest_npudump.graph.edges import Edges
    from pytest_npudump.regression.case import Case
    from pytest_npudump.regression.outcome import Escalation, FirstRun
    from pytest_npudump.regression.second_run.run_plan import Plan

_TWICE = 2
"""Value of ``escalate`` that asks for it."""


def plan_third_run(case: Case, first: FirstRun, escalation: Escalation) -> Plan | None:
    """Decide whether the test runs a third time, and with which layers; None where nothing is left to see.

    Suspects are what feeds an operator that was acquitted, as the change came in with that, and those whose
    inputs had no room. Ranks, which would have to run again together, have no third run.

    Args:
        case: the test.
        first: its first run.
        escalation: what the second run has found.
    """
    dump = first.dump
    if case.settings.escalate < _TWICE or case.exchange is not None or dump is None or first.outcome.good:
        return None
    if escalation.problem or escalation.reproduced is False:
        return None
    edges = edges_of_run(case, first, dump)
    suspects = _fitting(tuple(dict.fromkeys(_suspects(edges, dump, escalation))), edges, dump, case)
    if not suspects and not escalation.omitted:
        return None
    plan = plan_suspects(case, first, dump, suspects, escalation.omitted, edges=edges)
    return replace(plan, earlier=escalation) if plan.runs else None


def _fitting(suspects: tuple[TensorKey, ...], edges: Edges, dump: Dump, case: Case) -> tuple[TensorKey, ...]:
    """Return the suspects that have room together with what feeds them: else they cannot be judged."""
    sizes, left, wanted = sizes_of(dump), case.settings.dump_limit, set[str]()
    unknown = largest_of(dump)
    found = []
    for key in suspects:
        layers = {sanitise(layer) for layer in (key.layer, *feeders_of(edges, dump, (key,)))} - wanted
        size = sum(sizes.get(layer, unknown) for layer in layers)
        if size <= left:
            left -= size
            wanted |= layers
            found.append(key)
    return tuple(found)


def _suspects(edges: Edges, dump: Dump, escalation: Escalation) -> Iterator[TensorKey]:
    judged = {str(one.key.sanitised) for one in escalation.isolated}
    dumped = {sanitise(layer) for layer in escalation.layers}
    for one in escalation.isolated:
        feeders = {sanitise(layer) for layer in feeders_of(edges, dump, (one.key,))}
        if one.alone.verdict == NOT_JUDGED and feeders - dumped:
            yield one.key
        if one.alone.verdict == ACQUITTED:
            fed = _fed_by(one.key, edges)
            yield from (key for key in fed if str(key.sanitised) not in judged)


def _fed_by(key: TensorKey, edges: Edges) -> Iterator[TensorKey]:
    """Yield the outputs that an operator reads, dumped so far or not, but inputs of the graph."""
    ports = (port for port in edges.feeds.get(sanitise(key.layer), ()) if port is not None)
    for port in ports:
        if port not in (UNKNOWN, SEVERAL) and edges.feeds.get(sanitise(port.layer)):
            yield replace(key, layer=port.layer, slot=port.slot)


def joined(second: Escalation, third: Escalation) -> Escalation:
    """Return what two runs have found together: of what both have looked at, the third one's word counts."""
    told = ThirdRun(third.layers, third.directory, third.problem)
    if third.problem:
        return replace(second, third=told)
    again = {str(finding.key.sanitised) for finding in third.findings}
    judged = {str(one.key.sanitised) for one in third.isolated}
    names = ", ".join(third.layers)
    return replace(
        second,
        findings=(*(f for f in second.findings if str(f.key.sanitised) not in again), *third.findings),
        isolated=(*(i for i in second.isolated if str(i.key.sanitised) not in judged), *third.isolated),
        omitted=third.omitted,
        alike={**second.alike, **third.alike},
        notes=(*second.notes, *third.notes, f"a third run (--npudump-escalate=twice) dumped {names}"),
        third=told,
    )
