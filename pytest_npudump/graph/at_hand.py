"""The edges of a run from what is at hand: files of its models, what MindSpore left, dumped inputs."""

from __future__ import annotations

from collections import Counter, defaultdict
from itertools import chain
from typing import TYPE_CHECKING

from pytest_npudump.config.torchair import GRAPHS, OPTIMISED
from pytest_npudump.dump.records import TensorKey, sanitise
from pytest_npudump.dump.table import layer_of
from pytest_npudump.errors import NpudumpError
from pytest_npudump.graph.edges import Edges
from pytest_npudump.graph.ge_graph import read_atc_json, read_ge_text
from pytest_npudump.graph.mindspore_ir import read_mindspore
from pytest_npudump.graph.om_model import read_om
from pytest_npudump.graph.onnx_edges import read_onnx
from pytest_npudump.graph.same_values import same_values

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping
    from pathlib import Path

    from pytest_npudump.dump.table import StatsTable

_READERS: tuple[tuple[str, Callable[[Path], Edges]], ...] = (
    (".om", read_om),
    (".json", read_atc_json),
    (".txt", read_ge_text),
    (".pbtxt", read_ge_text),
    (".onnx", read_onnx),
)


def edges_at_hand(
    models: Iterable[Path], root: Path, table: StatsTable, named: Path | None = None
) -> tuple[Edges, tuple[str, ...]]:
    """Return what is known of which tensor of a run feeds which, and why files could not be read.

    Args:
        models: files of models that ran. Of each, the file with its name that knows most of the layers
            counts: the om itself, ATC's JSON of it (``.json``), GE's graph (``.txt``) or the ONNX model.
            What feeds a layer that more models have than such files know is unknown.
        root: the dump path, where MindSpore leaves its graphs, and beside which TorchAir does.
        table: the run's tensors.
        named: a file that a person says to be the graph of what ran, which goes before all others.
    """
    layers = {sanitise(layer_of(key)) for key in table.keys}
    edges, notes = _read(read_mindspore, root)
    told: Counter[str] = Counter(edges.feeds.keys())
    of_models = (_of_model(path, layers) for path in dict.fromkeys(models))
    of_torchair = (_read(read_ge_text, path) for path in _of_torchair(root))
    for found, failed in chain(of_models, of_torchair):
        edges = edges.joined(found)
        told.update(found.feeds.keys())
        notes += failed
    if named is not None:
        found, failed = _of_named(named, layers)
        edges = found.completed(edges)
        told |= Counter(found.feeds.keys())
        notes += failed
    edges = edges.unknown(
        {layer for layer, models in _models_by_layer(table).items() if len(models) > told[layer]}
    )
    return edges.completed(same_values(table)), tuple(notes)


def _of_torchair(root: Path) -> list[Path]:
    """Return the graphs that TorchAir has written beside a dump, or in the folder of several."""
    return [path for at in (root, root.parent) for path in sorted(at.glob(f"{GRAPHS}/{OPTIMISED}"))]


def _of_named(path: Path, layers: Collection[str]) -> tuple[Edges, list[str]]:
    """Return the edges of the one file, and why it tells none of any layer of the dump."""
    edges, failed = _read(dict(_READERS)[path.suffix], path)
    if failed or any(layer in edges.feeds for layer in layers):
        return edges, failed
    return Edges(), [f"{path.name}, named by graph=, holds no layer of this dump: which graph ran?"]


def _models_by_layer(table: StatsTable) -> Mapping[str, Collection[str]]:
    """Return the names of the models that have a layer, for each layer of a dump that tells them."""
    found: defaultdict[str, set[str]] = defaultdict(set)
    for text in table.keys:
        if "model=" in text:
            key = TensorKey.parse(text).sanitised
            found[key.layer].add(key.model)
    return found


def _of_model(path: Path, layers: Collection[str]) -> tuple[Edges, list[str]]:
    best, known, notes = Edges(), 0, []
    for suffix, read in _READERS:
        file = path.with_suffix(suffix)
        if not file.is_file():
            continue
        edges, failed = _read(read, file)
        notes += failed
        here = len(layers & edges.feeds.keys())
        if here > known:
            best, known = edges, here
    return best, [] if known else notes


def _read(read: Callable[[Path], Edges], path: Path) -> tuple[Edges, list[str]]:
    """Return the edges that a reader finds, or none and why."""
    try:
        return read(path), []
    except NpudumpError as error:
        return Edges(), [f"which tensor feeds which is not known from a file: {error}"]
