"""Edges between a test's tensors: written into its golden, and read where it fails.

Which layers keep tensors with a golden depends on it: those that the marker names, or (``auto``) those that
tell most, the outputs of the graph and the sources of past failures. Outputs are the layers that feed no
other one. Where it is not known what feeds each layer, that is the last one that ran. Sources are those that
the golden names already, those of a run that failed last, and those of the change that an update accepts.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from functools import cache, partial
from typing import TYPE_CHECKING

from pytest_npudump.compare.judge import judge
from pytest_npudump.compare.stats.verdict import FAIL, Comparison
from pytest_npudump.dump.records import Dump, TensorKey, sanitise
from pytest_npudump.dump.selection import layers_meant
from pytest_npudump.dump.table import StatsTable, layer_of, sanitised_key
from pytest_npudump.errors import NpudumpError
from pytest_npudump.golden.origin import changed_tensors
from pytest_npudump.golden.store import source_layers
from pytest_npudump.golden.stored_tensors import stored_tensors
from pytest_npudump.record.edges import UNKNOWN, Edges, edges_of_lines, layer_at, lines_of
from pytest_npudump.record.model_lines import FILE, PARAMETERS, ModelChange, is_typed, operators_in, parted
from pytest_npudump.record.record import EDGES, EMPTY, MODELS, Record
from pytest_npudump.regression.case import Case, digests_of_models, known_edges, terms_of
from pytest_npudump.regression.result import KeptLayers, Result
from pytest_npudump.request import AUTO_LAYERS, is_glob

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from pytest_npudump.graph.sources import Source, Sources


def edges_to_keep(
    case: Case, previous: Record | None, dump: Dump, table: StatsTable
) -> tuple[Mapping[str, str], tuple[str, ...]]:
    """Return the block of a golden that is recorded, none where nothing is known, and notes.

    Args:
        case: the test.
        previous: the golden that is replaced; what only that knows stays, if it has the same layers.
        dump: of the run.
        table: what is recorded of it.
    """
    edges, notes = known_edges(case, dump.root, table)
    if previous is not None and same_layers(previous.table, table):
        edges = edges.completed(edges_of(previous))
    text = lines_of(edges, dict.fromkeys(map(layer_of, table.keys)))
    return ({EDGES: text} if text else {}), notes


def models_to_keep(case: Case, golden: Record | None, dump: Dump) -> Mapping[str, str]:
    """Return the block with digests of models that ran and of what they were given; none where none is known.

    Ranks share a golden and have models of their own.

    Args:
        case: the test.
        golden: what is there; None without any.
        dump: of the run.
    """
    known = parted(golden.blocks.get(MODELS, ""))[0] if golden is not None else ""
    known = known if is_typed(known) or not case.settings.update_golden else ""  # of an earlier version
    if case.exchange is not None:
        return {}
    parameters = case.runtime.activity.evidence.parameters
    text = digests_of_models(case, known) or "".join(
        lines(key if len(parameters) > 1 else "") for key, lines in parameters.items()
    )
    return {MODELS: text + dump.fed} if text or dump.fed else {}


def sources_of(
    golden: Record,
    comparison: Comparison,
    at_hand: Callable[[StatsTable], tuple[Edges, tuple[str, ...]]] | None = None,
    models: ModelChange | None = None,
    empty: Mapping[str, list[str]] | None = None,
    *,
    saved: Mapping[str, bool | None] | None = None,
) -> tuple[Sources | None, tuple[str, ...]]:
    """Return the sources of a failure, and notes.

    Edges are the golden's. Those at hand count where it has none, or is of another graph: where the run has
    other layers or connections, some may be fed by others than they were. Other numerics differ anywhere,
    and no change tells anything.

    Args:
        golden: what the run was compared with.
        comparison: of both.
        at_hand: returns the edges of the run and notes; None where nothing does.
        models: how the run's differ from the golden's; None where that is not known.
        empty: shapes of the run's outputs without elements; None where they are unknown.
        saved: of a saved run, as :attr:`Record.fed`.
    """
    if not comparison.count(FAIL):
        return None, ()
    from pytest_npudump.graph.sources import changes_upstream, find_sources  # noqa: PLC0415 - where a test fails

    @cache
    def edges_of_run() -> tuple[Edges, tuple[str, ...]]:
        return at_hand(comparison.actual) if at_hand is not None else (Edges(), ())

    edges, notes = edges_of(golden), tuple[str, ...]()
    another = not edges.feeds or (models is not None and models.reconnected)
    if at_hand is not None and (another or not same_layers(golden.table, comparison.actual)):
        found, notes = edges_of_run()
        edges = found if found.feeds else edges
    same = comparison.numerics is not None and comparison.numerics.same
    repeats = same and bool(comparison.repeats)
    altered = models.altered if models is not None else {}
    sources = find_sources(comparison, edges, comparison.tolerances, repeats=repeats, altered=altered)
    if sources is None:
        return None, notes
    if models is not None and altered and not models.graph and _are_placed(models, golden):
        whole, first = edges_of_run()[0], comparison.first
        upstream = partial(changes_upstream, comparison, whole if whole.feeds else edges, altered)
        led = first is not None and first.status == FAIL and not models.fed and upstream([first]) == set()
        reaching = upstream(comparison.mismatches) or altered.keys()
        sources = replace(sources, unaltered=led, beside=frozenset(altered.keys() - reaching))
    listed = golden.extra.get(EMPTY) or {}
    empties = [f"{name}:output.0" for name, shapes in (empty or {}).items() if listed.get(name) == shapes]
    dumped = {name for key in (*golden.table.keys, *empties) for name in TensorKey.parse(key).operator_names}
    # Edges lead through operators that were not dumped: what is read may not be what was compared.
    unseen = not dumped.issuperset(operators := operators_in(golden.blocks.get(MODELS, "")))
    direct = edges_of_run()[0].feeds if unseen else {}
    feeds = edges.restricted(dumped).feeds if models is not None and not models.fed_alike else {}
    if unseen or feeds:  # nor was an input of the graph that only operators inside of another read
        spelt = {sanitise(name) for name in dumped}
        alike = models is not None and models.fed_alike
        given = {name for name, ports in direct.items() if alike and not ports} - set(
            map(sanitise, operators)
        )

        def is_fed(one: Source) -> bool | None:
            name = sanitise(one.key.layer)
            places = {port and sanitise(port.layer) for port in direct.get(name, (None,) if unseen else ())}
            seen: bool | None = places <= spelt
            if places and places <= given:  # inputs of the graph, of which a digest tells
                seen = None
            if saved is not None and unseen:
                seen = saved.get(str(one.key), False)
            if seen is None:
                return None if alike else False
            return one.fed and seen and None not in feeds.get(name, ())

        sources = replace(sources, found=tuple(replace(one, fed=is_fed(one)) for one in sources.found))
    return sources, notes


def _are_placed(models: ModelChange, golden: Record) -> bool:
    """Return whether edges show what changes reach: where operators were added, and what removed ones fed.

    Edges of modules do not show which code reads their parameters.
    """
    layers = {sanitise(layer_of(key)) for key in golden.table.keys}
    removed = {sanitise(name.partition(FILE)[0]) for name in models.removed}
    known = removed <= layers and bool(models.rewired or not models.operators)
    return known and models.read != PARAMETERS


def edges_kept(golden: Record | None, table: StatsTable) -> Edges:
    """Return the edges that a golden keeps, if they are those of a run: none where that has other layers."""
    return edges_of(golden) if golden is not None and same_layers(golden.table, table) else Edges()


def edges_of(golden: Record) -> Edges:
    """Return the edges that a golden keeps, of whatever layers."""
    text = golden.blocks.get(EDGES, "")
    return edges_of_lines(text, golden.path.name) if text else Edges()


def same_layers(one: StatsTable, other: StatsTable) -> bool:
    """Return whether two tables have the same layers, as file names spell them."""
    if one.keys == other.keys:
        return True
    here, there = ({sanitise(layer_of(key)) for key in table.keys} for table in (one, other))
    return here == there


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
    names = case.past_sources
    if golden is not None:
        run = replace(Record.of(table), producer=case.goldens.facts(case.runtime.producer()))
        change = judge(golden, run, terms_of(case))
        begun, _ = sources_of(golden, change, partial(known_edges, case, dump.root))
        names = (*source_names(change, begun), *names, *source_layers(golden))
    spelt = {sanitise(layer): layer for layer in ran}
    known = (spelt.get(sanitise(name)) for name in names)
    sources = tuple(dict.fromkeys(name for name in known if name is not None))[:_MOST_SOURCES]
    blocks, _ = edges_to_keep(case, golden, dump, table)
    edges = edges_of_lines(blocks.get(EDGES, ""), "the run")
    ports = [(name, port) for name, fed in edges.feeds.items() for port in fed if port is not None]
    feeding = {sanitise(port.layer) for name, port in ports if layer_at(name) != sanitise(port.layer)}
    whole = edges.feeds.keys() >= spelt.keys() and all(port != UNKNOWN for _, port in ports)
    wanted |= {*sources, *((one for one in ran if sanitise(one) not in feeding) if whole else [*ran][-1:])}
    return KeptLayers(tuple(layer for layer in ran if layer in wanted), sources)


def with_inherited(case: Case, golden: Record, kept: KeptLayers, now: StatsTable) -> KeptLayers:
    """Return the layers with what an acceptance of a run would take from its golden.

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


def source_names(comparison: Comparison, sources: Sources | None) -> tuple[str, ...]:
    """Return the layers in which a failure begins; where that is not known, the first one that fails."""
    if sources is not None and sources.independent:
        return tuple(dict.fromkeys(source.key.layer for source in sources.independent))
    return (comparison.first.key.layer,) if comparison.first is not None else ()


def edges_of_device(case: Case, first: Result) -> Edges:
    """Return the edges of the first run by the files of its models."""
    assert first.run.dump is not None  # noqa: S101 - the caller has looked
    return known_edges(case, first.run.dump.root, _table_of(first))[0]


def edges_of_run(case: Case, first: Result) -> Edges:
    """Return the edges of the first run, by its golden and its reference too."""
    edges = edges_of_device(case, first)
    edges = edges.completed(edges_kept(first.run.golden, _table_of(first)))
    if case.reference is not None:
        from pytest_npudump.graph.model_files import read_onnx  # noqa: PLC0415 - not in a pass

        with suppress(NpudumpError):  # judging by it has told
            edges = edges.completed(read_onnx(case.reference.path))
    return edges


def code_of_run(first: Result) -> Mapping[str, str]:
    """Return the lines of source of what fails in the first run, and of where that begins, by layer."""
    sources = first.sources.independent if first.sources is not None else ()
    layers = {source.begins.layer for source in sources if source.begins is not None}
    layers.update(key.layer for key in first.failing_keys)
    if first.run.dump is None or not layers:
        return {}
    from pytest_npudump.graph.model_files import code_of  # noqa: PLC0415 - where a test fails

    with suppress(NpudumpError):  # the reader of its edges has told
        return code_of(first.run.dump.root, layers)
    return {}


def _table_of(first: Result) -> StatsTable:
    comparison = first.comparison
    return StatsTable.from_records(first.run.records) if comparison is None else comparison.actual
