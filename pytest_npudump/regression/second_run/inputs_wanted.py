"""What the operators under suspicion read: which dumped outputs that is, how large, and what is not known."""

from __future__ import annotations

from contextlib import suppress
from itertools import islice
from typing import TYPE_CHECKING

from pytest_npudump.dump.records import sanitise
from pytest_npudump.dump.table import StatsTable
from pytest_npudump.errors import NpudumpError
from pytest_npudump.graph.edges import SEVERAL, UNKNOWN
from pytest_npudump.graph.model_files import read_onnx
from pytest_npudump.reference.operator_alone import UPSTREAM, nearest_first
from pytest_npudump.regression.run.dataflow import edges_kept, edges_of_models

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from pytest_npudump.dump.records import Dump, TensorKey
    from pytest_npudump.graph.edges import Edges
    from pytest_npudump.regression.case import Case
    from pytest_npudump.regression.outcome import FirstRun


def edges_of_device(case: Case, first: FirstRun, dump: Dump) -> Edges:
    """Return which tensor feeds which in the first run, by what is at hand of what ran."""
    return edges_of_models(case, dump.root, _table(first, dump))[0]


def edges_of_run(case: Case, first: FirstRun, dump: Dump) -> Edges:
    """Return which tensor feeds which in the first run, by its golden and its reference too."""
    edges = edges_of_device(case, first, dump)
    edges = edges.completed(edges_kept(first.judged_with, _table(first, dump)))
    if case.reference is not None:
        with suppress(NpudumpError):  # judging by it has told
            edges = edges.completed(read_onnx(case.reference.path))
    return edges


def _table(first: FirstRun, dump: Dump) -> StatsTable:
    comparison = first.outcome.comparison
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
