"""The graph around a source: what feeds it, and what it spreads to, a few operators each way."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pytest_npudump.graph.tensor_graph import TensorGraph
from pytest_npudump.report.view.tensor_views import STATES

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pytest_npudump.compare.stats.verdict import Comparison
    from pytest_npudump.dump.records import TensorKey
    from pytest_npudump.graph.edges import Edges
    from pytest_npudump.report.view.tensor_views import TensorView

BEFORE, BEHIND = 2, 3
"""Operators shown before a source and behind it, in a line."""
ABREAST = 4
"""Most operators side by side; what is worse comes first."""


@dataclass(frozen=True, slots=True)
class Operator:
    """One operator of the picture.

    Attributes:
        name: the layer.
        op_type: "" where unknown.
        state: of the worst of its tensors.
        at: position of that tensor in the run.
        column: 0 for the source, below 0 before it.
        row: place in the column, from 0.
    """

    name: str
    op_type: str
    state: str
    at: int
    column: int
    row: int


@dataclass(frozen=True, slots=True)
class Neighbourhood:
    """The operators around a source.

    Attributes:
        source: its layer.
        operators: in columns.
        arrows: pairs of positions in ``operators``, from what feeds to what is fed.
        left_out: operators as near that are not shown.
    """

    source: str
    operators: tuple[Operator, ...]
    arrows: tuple[tuple[int, int], ...]
    left_out: int


def neighbourhoods(
    comparison: Comparison, edges: Edges, tensors: Sequence[TensorView], sources: Sequence[TensorKey]
) -> tuple[Neighbourhood, ...]:
    """Return the pictures of sources; none where nothing is known of what feeds what.

    Args:
        comparison: the tensors.
        edges: what feeds which.
        tensors: of the comparison, in its order.
        sources: failing tensors that no other explains.
    """
    if not edges.feeds or not sources:
        return ()
    graph = TensorGraph.of(comparison, edges)
    names = [key.layer for key in graph.keys]
    fed: defaultdict[str, dict[str, None]] = defaultdict(dict)
    feeds: defaultdict[str, dict[str, None]] = defaultdict(dict)
    for name, parents in zip(names, graph.parents, strict=True):
        for parent in parents:
            if names[parent] != name:
                feeds[name][names[parent]] = None
                fed[names[parent]][name] = None
    worst: dict[str, int] = {}
    for at, name in enumerate(names):
        if name not in worst or _rank(tensors[at]) < _rank(tensors[worst[name]]):
            worst[name] = at
    layers = dict.fromkeys(key.layer for key in sources)
    return tuple(_around(layer, feeds, fed, worst, tensors) for layer in layers if layer in worst)


def _rank(tensor: TensorView) -> int:
    return STATES.index(tensor.state)


def _around(
    source: str,
    feeds: Mapping[str, Mapping[str, None]],
    fed: Mapping[str, Mapping[str, None]],
    worst: Mapping[str, int],
    tensors: Sequence[TensorView],
) -> Neighbourhood:
    columns: dict[str, int] = {source: 0}
    left_out = 0
    for step, reach, links in ((-1, BEFORE, feeds), (1, BEHIND, fed)):
        front = [source]
        for distance in range(1, reach + 1):
            near = dict.fromkeys(n for name in front for n in links.get(name, ()) if n not in columns)
            ordered = sorted(near, key=lambda name: (_rank(tensors[worst[name]]), worst[name]))
            front = ordered[:ABREAST]
            left_out += len(ordered) - len(front)
            columns |= dict.fromkeys(front, step * distance)
    rows: defaultdict[int, int] = defaultdict(int)
    operators = []
    for name, column in columns.items():
        view = tensors[worst[name]]
        operators.append(Operator(name, view.op_type, view.state, worst[name], column, rows[column]))
        rows[column] += 1
    places = {name: at for at, name in enumerate(columns)}
    arrows = tuple(
        (places[one], at) for name, at in places.items() for one in feeds.get(name, ()) if one in places
    )
    return Neighbourhood(source, tuple(operators), arrows, left_out)
