"""Which failing tensors are sources: all that feeds them passes, and what fails downstream follows."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from pytest_npudump.compare.stats.verdict import FAIL
from pytest_npudump.dump.values.dtypes import is_exact
from pytest_npudump.graph.differences import relative_differences, share_of_allowed
from pytest_npudump.graph.tensor_graph import TensorGraph
from pytest_npudump.graph.walk import fed_first, nearest, walked_back

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
        explains: how many failing tensors its change reaches through tensors that changed, itself included.
        begins: the passing tensor upstream where its change begins; None where that is itself.
        share: the largest difference of that by what it may differ by.
        behind: an earlier source whose change reaches this one through tensors that pass; None where there is
            none, so that the two have nothing to do with each other.
        known: whether all that feeds it is known; where it is not, it may have a cause that is not seen.
        cycle: whether it is fed by what it feeds, so that none of these is before the others.
        fed: whether any tensor that was compared feeds it.
    """

    key: TensorKey
    op_type: str
    explains: int
    begins: TensorKey | None = None
    share: float = 0.0
    behind: TensorKey | None = None
    known: bool = True
    cycle: bool = False
    fed: bool = False

    def to_json(self) -> dict[str, Any]:
        """Plain JSON data."""
        return {
            "key": str(self.key),
            "layer": self.key.layer,
            "op_type": self.op_type or None,
            "explains": self.explains,
            "begins": None if self.begins is None else str(self.begins),
            "share": None if self.begins is None else self.share,
            "behind": None if self.behind is None else str(self.behind),
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

    @property
    def independent(self) -> tuple[Source, ...]:
        """Those that no change of another one reaches."""
        return tuple(source for source in self.found if source.behind is None)

    def to_json(self) -> dict[str, Any]:
        """Plain JSON data."""
        return {
            "found": [source.to_json() for source in self.found],
            "failing": self.failing,
            "unplaced": [str(key) for key in self.unplaced],
            "told_by": self.told_by,
        }


def find_sources(
    comparison: Comparison, edges: Edges, tolerances: Tolerances, *, repeats: bool = False, walks: bool = True
) -> Sources | None:
    """Return the sources of a comparison's failures.

    Args:
        comparison: the tensors, and which fail.
        edges: what feeds which.
        tolerances: what they may differ by.
        repeats: whether a repetition of the golden's run gives the golden, bit for bit, but for tensors of
            which the comparison knows that they do not.
        walks: whether a change is followed among tensors that pass: not where all of them differ by rounding.

    Returns:
        None where nothing that both sides have fails, or nothing is known of what feeds any that does.
    """
    wrong = {verdict.key for verdict in comparison.failing if verdict.status == FAIL}
    graph = TensorGraph.of(comparison, edges) if wrong else None
    failing = [at for at, key in enumerate(graph.keys) if key in wrong] if graph is not None else []
    ends = frozenset(failing)
    if graph is None or not any(graph.parents[at] or graph.known[at] for at in failing):
        return None
    tolerances = tolerances.for_layers_of(comparison.golden.keys, comparison.actual.keys)
    differences = relative_differences(comparison)
    differences[list(comparison.within_noise)] = 0.0
    shares = differences.tolist()

    def any_change(position: int) -> bool:
        steady = repeats and position not in comparison.unsteady
        return steady or is_exact(comparison.golden.dtypes[int(comparison.alignment.golden[position])])

    def fed_by(position: int) -> Sequence[int]:
        return nearest(position, graph.parents, comparison.differing) if repeats else graph.parents[position]

    def back(position: int, parents: Callable[[int], Sequence[int]] = fed_by) -> list[int]:
        if not walks:
            return [position]
        return walked_back(position, parents, shares, any_change=any_change, ends=ends)

    origins = explained(failing, graph, lambda position: back(position, graph.parents.__getitem__))
    upstream = sources_upstream(origins.sources, graph, comparison.differing | set(failing))
    reached = numbers_of_bits([upstream[at] for at in failing], len(origins.sources))
    found = []
    for number, at in enumerate(origins.sources):
        begins = back(at)[-1]
        before = (upstream[at] | (upstream[begins] if begins < at else 0)) & ~(1 << number)
        begins = at if begins in ends else begins
        found.append(
            Source(
                key=graph.keys[at],
                op_type=graph.op_types[at],
                explains=reached[number],
                begins=None if begins == at else graph.keys[begins],
                share=0.0 if begins == at else share_of_allowed(comparison, begins, tolerances),
                behind=graph.keys[origins.sources[_lowest(before)]] if before else None,
                known=at not in origins.doubtful,
                cycle=at in origins.cycles,
                fed=bool(graph.parents[at]),
            )
        )
    unplaced = tuple(graph.keys[at] for at in origins.unplaced)
    return Sources(tuple(found), len(failing), unplaced, edges.told_by)


@dataclass(frozen=True, slots=True)
class Origins:
    """Failing tensors that no other explains, by position.

    Attributes:
        sources: in order of execution.
        doubtful: those of them of which it is not known what feeds them.
        cycles: those of them that are fed by what they feed.
        unplaced: failing tensors of which it is not known what feeds them, behind another one that fails.
    """

    sources: tuple[int, ...]
    doubtful: frozenset[int]
    cycles: frozenset[int]
    unplaced: tuple[int, ...]


def explained(failing: Sequence[int], graph: TensorGraph, back: Callable[[int], Sequence[int]]) -> Origins:
    """Find the failing tensors that do not follow from others.

    A tensor follows from failing ones that feed it, at once or through passing operators that only move
    values; or from a failing one that walking back leads to, through what passes.

    Args:
        failing: positions in order of execution.
        graph: what feeds which.
        back: the walk from a position.
    """
    wrong = frozenset(failing)
    effects: defaultdict[int, list[int]] = defaultdict(list)
    free = []
    for at in failing:
        causes = _failing_feeds(at, wrong, graph)
        causes = causes or set([position for position in back(at)[1:] if position in wrong][:1])
        for cause in causes:
            effects[cause].append(at)
        if not causes:
            free.append(at)
    unplaced = tuple(at for at in free if not graph.known[at] and at != failing[0])
    sources = [at for at in free if at not in unplaced]
    seen = _reached(free, effects)
    cycles = []
    for at in failing:
        if at not in seen:  # whatever explains it is explained by it
            cycles.append(at)
            seen |= _reached([at], effects)
    doubtful = frozenset(at for at in sources if not graph.known[at])
    return Origins(tuple(sorted(sources + cycles)), doubtful, frozenset(cycles), unplaced)


def _failing_feeds(at: int, wrong: Collection[int], graph: TensorGraph) -> set[int]:
    """Return the failing tensors that feed one, a passing operator that only moves values looked through."""
    found: set[int] = set()
    waiting, seen = [at], {at}
    while waiting:
        for parent in graph.parents[waiting.pop()]:
            if parent in wrong:
                found.add(parent)
            elif parent not in seen and (graph.moves_only(parent) or graph.keys[parent].io == "input"):
                seen.add(parent)
                waiting.append(parent)
    return found - {at}


def _reached(start: Iterable[int], effects: Mapping[int, Collection[int]]) -> frozenset[int]:
    seen = set(start)
    waiting = list(seen)
    while waiting:
        fresh = set(effects.get(waiting.pop(), ())) - seen
        seen |= fresh
        waiting += fresh
    return frozenset(seen)


def sources_upstream(sources: Sequence[int], graph: TensorGraph, changed: Collection[int]) -> list[int]:
    """Return for each tensor which sources it depends on through tensors that all changed, as bits.

    Args:
        sources: positions; bit k stands for the k-th, which itself has it.
        graph: what feeds which.
        changed: positions of what changed, failing or not.
    """
    found = [0] * len(graph.keys)
    for number, at in enumerate(sources):
        found[at] = 1 << number
    order = [at for at in fed_first(sorted(changed), graph.parents) if at in changed]
    moving = True
    while moving:  # twice, unless something feeds itself
        moving = False
        for at in order:
            before = found[at]
            for parent in graph.parents[at]:
                if parent in changed:
                    found[at] |= found[parent]
            moving |= found[at] != before
    return found


def numbers_of_bits(words: Iterable[int], width: int) -> list[int]:
    """Return for each of ``width`` bits in how many words it is set."""
    found = np.zeros(width, np.intp)
    for word in words:
        octets = np.frombuffer(word.to_bytes(-(-width // 8), "little"), np.uint8)
        found += np.unpackbits(octets, count=width, bitorder="little")
    return [int(number) for number in found]


def _lowest(bits: int) -> int:
    return (bits & -bits).bit_length() - 1
