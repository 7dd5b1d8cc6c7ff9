"""Which failing tensors are sources: all that feeds them passes, and what fails downstream follows."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pytest_npudump.compare.stats.verdict import FAIL
from pytest_npudump.dump.values.dtypes import is_exact
from pytest_npudump.graph.differences import relative_differences, share_of_allowed
from pytest_npudump.graph.tensor_graph import TensorGraph
from pytest_npudump.graph.walk import walked_back

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

    from pytest_npudump.compare.stats.verdict import Comparison
    from pytest_npudump.compare.tolerances.tolerance import Tolerances
    from pytest_npudump.dump.records import TensorKey
    from pytest_npudump.graph.edges import Edges


@dataclass(frozen=True, slots=True)
class Source:
    """A failing tensor that no other failing one explains.

    Attributes:
        key: which tensor.
        op_type: type of its operator; "" where unknown.
        explains: how many failing tensors depend on it, itself included.
        begins: the passing tensor upstream where its change begins; None where that is itself.
        share: the largest difference of that in what it may differ by.
        known: whether all that feeds it is known; where it is not, it may have a cause that is not seen.
        cycle: whether it is fed by what it feeds, so that none of these is before the others.
    """

    key: TensorKey
    op_type: str
    explains: int
    begins: TensorKey | None = None
    share: float = 0.0
    known: bool = True
    cycle: bool = False

    def to_json(self) -> dict[str, Any]:
        """Plain JSON data."""
        return {
            "key": str(self.key),
            "layer": self.key.layer,
            "op_type": self.op_type or None,
            "explains": self.explains,
            "begins": None if self.begins is None else str(self.begins),
            "share": None if self.begins is None else self.share,
            "known": self.known,
            "cycle": self.cycle,
        }


@dataclass(frozen=True, slots=True)
class Sources:
    """The sources of a failure.

    Attributes:
        found: in order of execution.
        failing: number of tensors that fail, those that only one side has left out.
        unplaced: failing tensors of which it is not known what feeds them, and that may follow from an
            earlier one; in order of execution.
        told_by: what the edges were read from.
    """

    found: tuple[Source, ...]
    failing: int
    unplaced: tuple[TensorKey, ...]
    told_by: str

    def to_json(self) -> dict[str, Any]:
        """Plain JSON data."""
        return {
            "found": [source.to_json() for source in self.found],
            "failing": self.failing,
            "unplaced": [str(key) for key in self.unplaced],
            "told_by": self.told_by,
        }


def find_sources(
    comparison: Comparison, edges: Edges, tolerances: Tolerances, *, repeats: bool = False
) -> Sources | None:
    """Return the sources of a comparison's failures.

    Args:
        comparison: the tensors, and which fail.
        edges: what feeds which.
        tolerances: what they may differ by.
        repeats: whether a repetition of the golden's run gives the golden, bit for bit.

    Returns:
        None where nothing that both sides have fails, or nothing is known of what feeds any that does.
    """
    wrong = {verdict.key for verdict in comparison.failing if verdict.status == FAIL}
    graph = TensorGraph.of(comparison, edges) if wrong else None
    failing = [at for at, key in enumerate(graph.keys) if key in wrong] if graph is not None else []
    if graph is None or not any(graph.parents[at] or graph.known[at] for at in failing):
        return None
    differences = relative_differences(comparison).tolist()

    def any_change(position: int) -> bool:
        return repeats or is_exact(_dtype(comparison, position))

    def back(position: int) -> list[int]:
        return walked_back(position, graph.parents.__getitem__, differences, any_change=any_change)

    origins = explained(failing, graph, back)
    found = []
    for at in origins.sources:
        path = back(at)
        begins = path[-1] if path[-1] != at else None
        share = share_of_allowed(comparison, path[-1], tolerances)
        found.append(
            Source(
                key=graph.keys[at],
                op_type=graph.op_types[at],
                explains=len(origins.reached[at]),
                begins=None if begins is None else graph.keys[begins],
                share=share if begins is not None else 0.0,
                known=origins.known[at],
                cycle=at in origins.cycles,
            )
        )
    unplaced = tuple(graph.keys[at] for at in origins.unplaced)
    return Sources(tuple(found), len(failing), unplaced, edges.told_by)


def _dtype(comparison: Comparison, position: int) -> str:
    row = int(comparison.alignment.golden[position])
    return comparison.golden.dtypes[row] if row >= 0 else ""


@dataclass(frozen=True, slots=True)
class Origins:
    """Failing tensors by what explains them, by position.

    Attributes:
        sources: those that nothing does, in order of execution.
        reached: by source, the failing tensors that depend on it, with itself.
        known: by source, whether all that feeds it is known.
        cycles: sources that are fed by what they feed.
        unplaced: of which it is not known what feeds them, behind another one that fails.
    """

    sources: tuple[int, ...]
    reached: Mapping[int, frozenset[int]]
    known: Mapping[int, bool]
    cycles: frozenset[int]
    unplaced: tuple[int, ...]


def explained(failing: Sequence[int], graph: TensorGraph, back: Callable[[int], Sequence[int]]) -> Origins:
    """Part failing tensors into sources and what follows from them.

    A tensor follows from failing ones that feed it, at once or through passing operators that only move
    values; or from a failing one that walking back leads to, through what passes.

    Args:
        failing: positions in order of execution.
        graph: what feeds which.
        back: the walk from a position.
    """
    wrong = frozenset(failing)
    causes: dict[int, set[int]] = {}
    known: dict[int, bool] = {}
    for at in failing:
        causes[at], known[at] = _failing_feeds(at, wrong, graph)
        if not causes[at]:
            causes[at] = set([position for position in back(at)[1:] if position in wrong][:1])
    effects: defaultdict[int, set[int]] = defaultdict(set)
    for at, before in causes.items():
        for position in before:
            effects[position].add(at)
    free = [at for at in failing if not causes[at]]
    sources = [at for at in free if known[at] or at == failing[0]]
    unplaced = tuple(at for at in free if at not in set(sources))
    reached = {at: _reached([at], effects) for at in sources}
    seen = _reached(unplaced, effects).union(*reached.values())
    cycles = []
    for at in failing:
        if at not in seen:  # whatever explains it is explained by it
            cycles.append(at)
            reached[at] = _reached([at], effects)
            seen |= reached[at]
    return Origins(tuple(sorted(reached)), reached, known, frozenset(cycles), unplaced)


def _failing_feeds(at: int, wrong: Collection[int], graph: TensorGraph) -> tuple[set[int], bool]:
    """Return the failing tensors that feed one, and whether all that feeds it is known."""
    found: set[int] = set()
    waiting, seen = [at], {at}
    while waiting:
        for parent in graph.parents[waiting.pop()]:
            if parent in wrong:
                found.add(parent)
            elif parent not in seen and (graph.moves_only(parent) or graph.keys[parent].io == "input"):
                seen.add(parent)
                waiting.append(parent)
    return found - {at}, graph.known[at]


def _reached(start: Iterable[int], effects: Mapping[int, Collection[int]]) -> frozenset[int]:
    seen = set(start)
    waiting = list(seen)
    while waiting:
        fresh = set(effects.get(waiting.pop(), ())) - seen
        seen |= fresh
        waiting += fresh
    return frozenset(seen)
