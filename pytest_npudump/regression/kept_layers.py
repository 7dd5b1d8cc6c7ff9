"""Which layers keep tensors with a golden: those that the marker names, or (``auto``) those that tell most.

``auto`` keeps the outputs of the graph, and the sources of past failures. Outputs are the layers that feed no
other one. Where it is not known what feeds each layer, that is the last one that ran. Sources are those that
the golden names already, those of a run that failed last, and those of the change that an update approves.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from pytest_npudump.compare.judge import judge
from pytest_npudump.dump.records import sanitise
from pytest_npudump.dump.selection import layers_meant
from pytest_npudump.dump.table import StatsTable, sanitised_key
from pytest_npudump.golden.origin import changed_tensors
from pytest_npudump.golden.store import source_layers
from pytest_npudump.golden.stored_tensors import stored_tensors
from pytest_npudump.graph.edges import SEVERAL, UNKNOWN, edges_of_lines
from pytest_npudump.record.record import EDGES, Record
from pytest_npudump.regression.case import terms_of
from pytest_npudump.regression.dataflow import at_hand_of, edges_to_keep, sources_of
from pytest_npudump.regression.result import KeptLayers
from pytest_npudump.request import AUTO_LAYERS, is_glob

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from pytest_npudump.compare.stats.verdict import Comparison
    from pytest_npudump.dump.records import Dump
    from pytest_npudump.graph.sources import Sources
    from pytest_npudump.regression.case import Case

_MOST_SOURCES = 16


def layers_to_keep(case: Case, golden: Record | None, dump: Dump) -> KeptLayers:
    """Return the layers whose tensors a recording keeps.

    Args:
        case: the test.
        golden: what the recording is to replace; None where there is none that can be read.
        dump: of the run that is recorded.
    """
    ran = dict.fromkeys(record.key.layer for record in dump.records)
    wanted = layers_meant((name for name in case.request.golden_tensors if name != AUTO_LAYERS), ran)
    if AUTO_LAYERS not in case.request.golden_tensors:
        return KeptLayers(tuple(layer for layer in ran if layer in wanted))
    table = StatsTable.from_records(dump.records)
    told = golden_sources(golden)
    names = (*_sources_of_change(case, golden, dump, table), *case.past_sources, *told)
    sources = _known(names, ran)[:_MOST_SOURCES]
    wanted |= {*sources, *_outputs(case, golden, dump, table, tuple(ran))}
    return KeptLayers(tuple(layer for layer in ran if layer in wanted), sources)


def with_inherited(case: Case, golden: Record, kept: KeptLayers, now: StatsTable) -> KeptLayers:
    """Return the layers with what an approval of a run would take from its golden.

    Args:
        case: the test.
        golden: what the run was compared with.
        kept: the layers.
        now: the run's statistics.

    Raises:
        GoldenError: the golden's tensors cannot be read.
    """
    changed = set(changed_tensors(now, golden.table))
    same = {sanitised_key(key) for key in now.keys if key not in changed}
    return replace(kept, inherited=frozenset(same & stored_tensors(golden, store=case.goldens.store).keys()))


def named_layers(case: Case) -> frozenset[str]:
    """Return the layers, as file names spell them, that the marker wants the tensors of by their names."""
    patterns = case.request.golden_tensors
    return frozenset(sanitise(pattern) for pattern in patterns if not is_glob(pattern))


def golden_sources(golden: Record | None) -> tuple[str, ...]:
    """Return the layers that a golden names as sources of past failures."""
    return () if golden is None else source_layers(golden)


def source_names(comparison: Comparison, sources: Sources | None) -> tuple[str, ...]:
    """Return the layers in which a failure begins; where that is not known, the first one that fails."""
    if sources is not None and sources.independent:
        return tuple(dict.fromkeys(source.key.layer for source in sources.independent))
    return (comparison.first.key.layer,) if comparison.first is not None else ()


def _known(names: Iterable[str], ran: Iterable[str]) -> tuple[str, ...]:
    """Return the layers that ran of these names, as the run spells them."""
    spelt = {sanitise(layer): layer for layer in ran}
    found = (spelt.get(sanitise(name)) for name in names)
    return tuple(dict.fromkeys(name for name in found if name is not None))


def _sources_of_change(case: Case, golden: Record | None, dump: Dump, table: StatsTable) -> tuple[str, ...]:
    if golden is None:
        return ()
    run = replace(Record.of(table), producer=case.goldens.facts(case.runtime.producer()))
    comparison = judge(golden, run, terms_of(case))
    return source_names(comparison, sources_of(golden, comparison, at_hand_of(case, dump))[0])


def _outputs(
    case: Case, golden: Record | None, dump: Dump, table: StatsTable, ran: Sequence[str]
) -> tuple[str, ...]:
    blocks, _ = edges_to_keep(case, golden, dump, table)
    edges = edges_of_lines(blocks.get(EDGES, ""), "the run")
    ports = [port for fed in edges.feeds.values() for port in fed if port is not None and port != SEVERAL]
    feeding = {sanitise(port.layer) for port in ports}
    whole = edges.feeds.keys() >= {sanitise(layer) for layer in ran} and UNKNOWN not in ports
    if not whole:
        return tuple(ran[-1:])
    return tuple(layer for layer in ran if sanitise(layer) not in feeding)
