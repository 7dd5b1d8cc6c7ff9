"""What a run left, without its files: what its golden is compared with, and what could take its place.

A judgement of it needs no device and no dump, so that it can be made again.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from pytest_npudump.compare.tolerances.rules import MARKER_RULES
from pytest_npudump.dump.records import TensorKey, sanitise
from pytest_npudump.dump.selection import absent_layers, layers_meant, suggest
from pytest_npudump.dump.table import layer_of
from pytest_npudump.golden.content.unwritten_entries import left_out_of
from pytest_npudump.record.record import EDGES, EMPTY, UNWRITTEN, Record
from pytest_npudump.regression.run.dataflow import edges_of
from pytest_npudump.regression.run.empty_operators import empty_operators
from pytest_npudump.regression.run.run_dump import raw_names, unreadable
from pytest_npudump.regression.run.unwritten import by_layer, new_entries
from pytest_npudump.request import AUTO_LAYERS
from pytest_npudump.runtime.thread_order import loads_without_order, runs_without_order

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pytest_npudump.compare.judge import Terms
    from pytest_npudump.dump.records import Dump
    from pytest_npudump.dump.table import StatsTable
    from pytest_npudump.golden.content.text import Golden
    from pytest_npudump.regression.case import Case


def as_golden(case: Case, run: Record, previous: Golden | None) -> Golden:
    """Return the golden that a run would be, with what the earlier one holds besides statistics."""
    known = {EMPTY: run.extra[EMPTY]} if EMPTY in run.extra else {}
    if previous is not None and UNWRITTEN in previous.extra:
        judged = by_layer(new_entries(previous, ()))
        entries = previous.extra[UNWRITTEN] if left_out_of(previous, run.facts) else judged
        known |= {UNWRITTEN: entries} if entries else {}
    return case.goldens.successor(previous, run.table, run.facts, known, run.blocks)


def take_snapshot(case: Case, golden: Golden | None, dump: Dump, table: StatsTable) -> Record:
    """Return what a run left.

    Args:
        case: the test.
        golden: its golden, which knows raw names; None where there is none.
        dump: what the run dumped, as far as the test asks for it.
        table: the statistics of that.
    """
    evidence = case.runtime.activity.evidence
    threads = (
        *loads_without_order(dump.records, evidence.loaders),
        *runs_without_order(dump.records, evidence.runners),
    )
    elements = bool(case.request.golden_tensors)
    named = _named(table, raw_names(case, golden, dump))
    empty, edges = empty_operators(case, dump), edges_of(case, golden, dump, named)
    return Record(
        case.goldens.test,
        case.goldens.facts(case.runtime.producer()),
        named,
        case.goldens.path,
        {} if empty is None else {EMPTY: empty},
        {EDGES: edges} if edges else {},
        tensors=dump.records if elements and any(one.payload is not None for one in dump.records) else (),
        file_names=not dump.raw_names,
        problems=unreadable(dump) + threads,
        notes=dump.notes,
    )


def _named(table: StatsTable, raw: Mapping[str, tuple[str, ...]]) -> StatsTable:
    """Return the table under raw names, where a layer has exactly one that is not its own."""
    single = {name: names[0] for name, names in raw.items() if len(names) == 1 and names[0] != name}
    if not single:
        return table
    return replace(table, keys=tuple([_renamed(key, single) for key in table.keys]))


def _renamed(text: str, names: Mapping[str, str]) -> str:
    name = names.get(layer_of(text))
    return text if name is None else str(replace(TensorKey.parse(text), layer=name))


def problems_of(
    terms: Terms, snapshot: Record, known: set[str] | frozenset[str] = frozenset()
) -> tuple[str, ...]:
    """Return what keeps a run from being a golden, or from passing by one, besides its values; in words.

    Args:
        terms: what it is judged by.
        snapshot: what the run left.
        known: layers, as file names spell them, that are told to be missing elsewhere.
    """
    table = snapshot.table
    layers = [layer_of(key) for key in table.keys]
    absent = tuple(
        f"layer {name!r}, named in the marker, is not in the dump; {suggest(name, layers)}"
        for name in absent_layers(layers, terms.layers)
        if sanitise(name) not in known
    )
    unmatched = tuple(
        f"tolerance rule {rule.describe()} of the marker matches nothing this test dumped; "
        f"correct its layer, op_type, dtype or statistic, or remove it"
        for rule in terms.tolerances.having(lambda rule: rule.source == MARKER_RULES).unmatched(table)
    )
    kept = tuple(
        f"golden_tensors {pattern!r} of the marker names no layer of the dump; {suggest(pattern, layers)}"
        for pattern in terms.kept
        if pattern != AUTO_LAYERS and not layers_meant([pattern], layers)
    )
    return snapshot.problems + absent + unmatched + kept + _nothing_told(table)


def _nothing_told(table: StatsTable) -> tuple[str, ...]:
    """Refuse a dump that tells no value of any tensor, which a test would pass whatever these are."""
    if not len(table):
        return ("no tensor was compared: the run has none, or the golden leaves all of them out",)
    holding = [count for count in table.counts if count != 0]
    if not holding or table.known.any() or table.digests:
        return ()
    problem = (
        f"the dump tells neither statistics nor hashes of any of its {len(holding)} tensors (ACL "
        f'computes none of bfloat16, say): there is nothing to judge, use dump_data="tensor"'
    )
    return (problem,)
