"""The operators under suspicion: what fails, by the golden and the reference, and what these read."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from itertools import islice
from typing import TYPE_CHECKING

from pytest_npudump.compare.patterns.pattern_search import SEARCHED
from pytest_npudump.dump.records import sanitise
from pytest_npudump.dump.table import StatsTable
from pytest_npudump.errors import NpudumpError
from pytest_npudump.explain.operator_alone import UPSTREAM, nearest_first
from pytest_npudump.graph.edges import SEVERAL, UNKNOWN
from pytest_npudump.graph.model_files import read_onnx
from pytest_npudump.regression.dataflow import edges_kept, edges_of_models

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from pytest_npudump.dump.records import Dump, TensorKey, TensorRecord
    from pytest_npudump.graph.edges import Edges
    from pytest_npudump.regression.case import Case
    from pytest_npudump.regression.result import Finding, Result


def suspects_of(outcome: Result) -> tuple[TensorKey, ...]:
    """Return the outputs to be judged by their inputs, in order of execution.

    They are each independent source and where its change begins; the first failure where no source is known.
    """
    found: list[TensorKey] = []
    for source in outcome.sources.independent if outcome.sources is not None else ():
        found += [source.key] if source.begins is None else [source.key, source.begins]
    outputs = [key for key in dict.fromkeys(found or failing_keys(outcome)) if key.io == "output"]
    return tuple(outputs if found else outputs[:1])


def known_keys(outcome: Result) -> tuple[str, ...]:
    """Return the texts of the keys that the golden and the reference know, with the raw names of layers."""
    found = (outcome.comparison, outcome.reference.comparison if outcome.reference is not None else None)
    return tuple(key for comparison in found if comparison is not None for key in comparison.golden.keys)


def failing_layers(outcome: Result) -> tuple[str, ...]:
    """Layers with values to look at: a missing one has none, a new one has nothing to be compared with.

    Each is there once, under its raw name where the golden or the reference knows that.
    """
    names: dict[str, str] = {}
    for key in failing_keys(outcome):
        plain = sanitise(key.layer)
        if names.get(plain, plain) == plain:
            names[plain] = key.layer
    return tuple(names.values())


def failing_keys(outcome: Result) -> tuple[TensorKey, ...]:
    """Return the tensors that differ from the golden or from the reference, in execution order."""
    golden = outcome.comparison
    found = outcome.reference.comparison if outcome.reference is not None else None
    here = [v.key for v in golden.failing if v.status == "fail"] if golden else []
    there = [v.key for v in found.failing if v.status == "fail"] if found else []
    if not here or not there:
        return (*here, *there)
    order = {str(key.sanitised): place for place, key in enumerate(_keys(outcome))}
    known = {str(key.sanitised) for key in here}
    both = [*here, *(key for key in there if str(key.sanitised) not in known)]
    return tuple(sorted(both, key=lambda key: order.get(str(key.sanitised), len(order))))


def _keys(outcome: Result) -> list[TensorKey]:
    assert outcome.comparison is not None  # noqa: S101 - the caller has failing tensors of it
    return [verdict.key for verdict in outcome.comparison.verdicts()]


def with_reference(
    case: Case, first: Result, findings: Sequence[Finding], records: Mapping[str, TensorRecord]
) -> tuple[tuple[Finding, ...], tuple[str, ...]]:
    """Add to the findings what the elements are off from the reference's.

    The reference runs again, on what the second run was fed, for just these layers.

    Args:
        case: the test.
        first: its first run.
        findings: one a failing tensor.
        records: the second run's tensors by sanitised key.

    Returns:
        The findings, and a note where the reference could not be computed.
    """
    result = first.reference
    if case.reference is None or result is None or result.comparison is None or not result.failing:
        return tuple(findings), ()
    failing = {str(verdict.key.sanitised) for verdict in result.comparison.failing}
    layers = {sanitise(verdict.key.layer) for verdict in result.comparison.failing}
    wanted = [record for record in records.values() if sanitise(record.key.layer) in layers]
    dumped = first.run.records
    case.reference.settle(case.goldens.facts(case.runtime.producer()))  # this may be another process
    try:
        compared = case.reference.compare(wanted, dumped=dumped, patterns=SEARCHED)
    except NpudumpError as error:
        return tuple(findings), (f"the second run was not compared with the reference: {error}",)
    found = {str(e.actual.key.sanitised): e for e in compared.expected}
    added = []
    for finding in findings:
        key = str(finding.key.sanitised)
        expected = found.get(key) if key in failing else None
        if expected is not None and expected.elements is not None:
            told = replace(finding, reference=expected.elements.difference)
            added.append(replace(told, reference_pattern=expected.pattern))
        else:
            added.append(replace(finding, reference=None))
    return tuple(added), compared.notes


def edges_of_device(case: Case, first: Result, dump: Dump) -> Edges:
    """Return which tensor feeds which in the first run, by what is at hand of what ran."""
    return edges_of_models(case, dump.root, _table(first, dump))[0]


def edges_of_run(case: Case, first: Result, dump: Dump) -> Edges:
    """Return which tensor feeds which in the first run, by its golden and its reference too."""
    edges = edges_of_device(case, first, dump)
    edges = edges.completed(edges_kept(first.run.golden, _table(first, dump)))
    if case.reference is not None:
        with suppress(NpudumpError):  # judging by it has told
            edges = edges.completed(read_onnx(case.reference.path))
    return edges


def _table(first: Result, dump: Dump) -> StatsTable:
    comparison = first.comparison
    return StatsTable.from_records(dump.records) if comparison is None else comparison.actual


def feeders_of(edges: Edges, dump: Dump, suspects: tuple[TensorKey, ...]) -> tuple[str, ...]:
    """Return the layers whose outputs are what the suspects read, as far as that is known, nearest first.

    Args:
        edges: of the first run.
        dump: that run's; what it has not dumped is left out.
        suspects: the outputs under suspicion.
    """
    dumped = {sanitise(record.key.layer): record.key.layer for record in dump.records}
    ports = (port for key in suspects for port in edges.feeds.get(sanitise(key.layer), ()))
    layers = (sanitise(port.layer) for port in ports if port not in (None, UNKNOWN, SEVERAL))
    return tuple(dict.fromkeys(dumped[layer] for layer in layers if layer in dumped))


def upstream_of(edges: Edges, dump: Dump, suspects: tuple[TensorKey, ...]) -> tuple[str, ...]:
    """Return the layers that the suspects depend on, nearest first: what feeds them, and a number beyond.

    Args:
        edges: of the first run.
        dump: that run's; what it has not dumped is looked through, and left out.
        suspects: the outputs under suspicion.
    """
    dumped = {sanitise(record.key.layer): record.key.layer for record in dump.records}
    starts = list(dict.fromkeys(sanitise(key.layer) for key in suspects))

    def feeding(layer: str) -> Sequence[str]:
        ports = edges.feeds.get(layer, ())
        return [sanitise(port.layer) for port in ports if port is not None and port.slot >= 0]

    direct = {layer for start in starts for layer in feeding(start)}.intersection(dumped) - {*starts}
    every = nearest_first("", lambda layer: feeding(layer) if layer else starts)
    found = (dumped[layer] for layer in every if layer in dumped and layer not in starts)
    return tuple(islice(found, len(direct) + UPSTREAM))


def needs_inputs(case: Case, edges: Edges, dump: Dump, suspects: tuple[TensorKey, ...]) -> bool:
    """Whether a suspect reads what no dumped output is known to be: it is dumped as an input, then.

    Args:
        case: the test.
        edges: of its first run.
        dump: that run's.
        suspects: the outputs under suspicion.
    """
    if (case.request.scene, case.request.dump_mode) != ("model", "output"):
        return False
    sizes = _output_sizes(dump)
    return any(size is None for key in suspects for size in _input_sizes(key.layer, edges, sizes))


def _output_sizes(dump: Dump) -> dict[tuple[str, int], int]:
    """Return the bytes of each output that was dumped, by its layer as file names spell it, and its slot."""
    return {
        (sanitise(record.key.layer), record.key.slot): record.size or 0
        for record in dump.records
        if record.key.io == "output"
    }


def _input_sizes(layer: str, edges: Edges, outputs: Mapping[tuple[str, int], int]) -> tuple[int | None, ...]:
    """Return the bytes of what a layer reads, constants left out; None where no dumped one is known."""
    ports = edges.feeds.get(sanitise(layer), (UNKNOWN,))
    return tuple(outputs.get((sanitise(port.layer), port.slot)) for port in ports if port is not None)


def sizes_of(dump: Dump) -> dict[str, int]:
    """Return the bytes that a dump has of each layer, as file names spell it."""
    sizes: dict[str, int] = {}
    for record in dump.records:
        layer = sanitise(record.key.layer)
        sizes[layer] = sizes.get(layer, 0) + (record.size or 0)
    return sizes


def largest_of(dump: Dump) -> int:
    """Return the bytes of the largest tensor of a dump, which stand for those of a tensor that it lacks."""
    return max((record.size or 0 for record in dump.records), default=0)


def sizes_with_inputs(edges: Edges, dump: Dump, wanted: Iterable[str]) -> dict[str, int]:
    """Return the bytes of layers by file names, what they read included, as far as the dump tells."""
    sizes, unknown, outputs = sizes_of(dump), largest_of(dump), _output_sizes(dump)
    for layer in wanted:
        read = (unknown if size is None else size for size in _input_sizes(layer, edges, outputs))
        sizes[sanitise(layer)] = sizes.get(sanitise(layer), unknown) + sum(read)
    return sizes
