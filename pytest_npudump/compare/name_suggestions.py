"""Suggestions of a golden's names for a run's layers, where neither side has the other's names.

Layers that only one side has are laid side by side in the order in which they ran: first those whose values
agree, also where one side has joined what are two or three layers of one type of the other; between these by
the types and shapes of their tensors. Joined layers are in the order in which they ran. What is found is
shown, with the number of pairs whose values agree as it is written; nothing is compared by it until a person
has put it into a file of names.
"""

from __future__ import annotations

import math
import re
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Sequence
from itertools import chain, combinations
from typing import Any, NamedTuple

import numpy as np

from pytest_npudump.compare.stats.alignment import ABSENT, longest_common
from pytest_npudump.dump.records import sanitise
from pytest_npudump.dump.table import EXTREMES, MEASURED, StatsTable, layer_of, shape_of, squeezed
from pytest_npudump.language.translation import gettext as _

Shapes = tuple[tuple[str, tuple[int, ...]], ...]
_Pair = tuple["_Layer", "_Layer"]

_PLUS = " + "
_CLOSE = 1e-2
_NUMBER = re.compile(r"\d+")
_NEAR = 6
"""How far apart the first and the last of layers may be that the other side has joined."""
_MOST = 1 << 22
"""Most pairs of layers whose values are looked at."""


class Suggestion(NamedTuple):
    """A line for a file of names.

    Attributes:
        run: name or pattern of layers of the run, or several with `` + `` between them.
        golden: the same of the golden.
        layers: how many it pairs.
        alike: of how many of these the statistics agree, too, within 1 % of their size.
    """

    run: str
    golden: str
    layers: int
    alike: int

    @property
    def confidence(self) -> str:
        """Evidence for it, in words."""
        words = _("values are close in {alike} of {layers}")
        if _PLUS in self.run + self.golden:
            words = _("statistics are close in {alike} of {layers}, order of parts unknown")
        return words.format(alike=self.alike, layers=self.layers)


class _Layer(NamedTuple):
    """A layer of one side, or several that the other side may have joined.

    Attributes:
        names: its own, or those of the parts.
        at: its place in the order of execution, or that of the last part.
        kind: its type.
        shapes: of its tensors, with the ends of their keys.
        values: a row a tensor; NaN where unknown.
    """

    names: tuple[str, ...]
    at: int
    kind: str
    shapes: Shapes
    values: Any


def suggested_names(golden: StatsTable, run: StatsTable) -> list[Suggestion]:
    """Return pairs of layers that each side calls otherwise, surest first; those of one pattern in one line.

    Args:
        golden: statistics of one side.
        run: of the other.
    """
    spelt = [{sanitise(layer_of(key)) for key in table.keys} for table in (golden, run)]
    ours, theirs = _layers(golden, spelt[1]), _layers(run, spelt[0])
    wanted = {one.shapes for one in ours}, {one.shapes for one in theirs}
    parts = [*_joined(ours, wanted[1])], [*_joined(theirs, wanted[0])]
    alike: list[_Pair] = []
    if len(ours) * len(theirs) <= _MOST:
        sides = (ours, theirs), (ours, parts[1]), (parts[0], theirs)
        alike = _longest(chain(*(_agreeing(one, other) for one, other in sides)))
    pairs: list[_Pair] = []
    taken: set[str] = set()

    def take(one: _Layer, other: _Layer) -> None:
        if taken.isdisjoint((*one.names, *other.names)):
            taken.update(one.names, other.names)
            pairs.append((one, other))

    for one, other in alike:
        take(one, other)
    anchors = len(pairs)
    # What has a shape that no layer of the other side has may be joined of several with its numbers.
    for side, whole in ((0, theirs), (1, ours)):
        waiting = {(one.shapes, _numbers(one)): one for one in whole if one.shapes not in wanted[side]}
        for joined in parts[side]:
            if (single := waiting.get((joined.shapes, _numbers(joined)))) is not None:
                take(*((joined, single) if side == 0 else (single, joined)))
    ends = [[one.at for one in side] for side in zip(*pairs[:anchors], strict=True)] or [[], []]
    between: defaultdict[int, tuple[list[_Layer], list[_Layer]]] = defaultdict(lambda: ([], []))
    for side, layers in enumerate((ours, theirs)):
        for one in layers:
            if taken.isdisjoint(one.names):
                between[bisect_left(ends[side], one.at)][side].append(one)
    for here, there in between.values():
        partners = longest_common([one.shapes for one in here], [one.shapes for one in there]) or ()
        pairs += [(here[at], there[to]) for at, to in enumerate(partners) if to != ABSENT]
    return sorted(_in_patterns(pairs), key=lambda one: -one.alike / one.layers)


def _in_patterns(pairs: Iterable[_Pair]) -> Iterator[Suggestion]:
    """Yield pairs of layers; those of one pattern together."""
    groups: defaultdict[tuple[str, str], list[tuple[tuple[str, str], bool]]] = defaultdict(list)
    for one, other in pairs:
        names = _PLUS.join(other.names), _PLUS.join(one.names)
        pattern = _NUMBER.sub("*", names[0]), _NUMBER.sub("*", names[1])
        group = pattern if len(_numbers(one) | _numbers(other)) == 1 else names
        groups[group].append((names, bool(_close(one.values, other.values[None])[0])))
    for group, held in groups.items():
        names = group if len(held) > 1 else held[0][0]
        yield Suggestion(*names, len(held), sum(alike for _, alike in held))


def _numbers(layer: _Layer) -> frozenset[tuple[str, ...]]:
    return frozenset(tuple(_NUMBER.findall(name)) for name in layer.names)


def _layers(table: StatsTable, others: Collection[str]) -> list[_Layer]:
    """Return the layers that the other side calls otherwise, in order."""
    rows: defaultdict[str, list[int]] = defaultdict(list)
    for row, key in enumerate(table.keys):
        rows[layer_of(key)].append(row)
    known = np.where(table.known[:, :MEASURED], table.values[:, :MEASURED], np.nan)
    return [
        _Layer(
            (layer,),
            at,
            table.op_types[held[0]].partition("[")[0],
            tuple(
                (table.keys[row].rpartition(":")[2], squeezed(shape_of(table.shapes[row]) or ()))
                for row in held
            ),
            known[held],
        )
        for at, (layer, held) in enumerate(rows.items())
        if sanitise(layer) not in others
    ]


def _joined(layers: Sequence[_Layer], wanted: Collection[Shapes]) -> Iterator[_Layer]:
    """Yield what two or three layers of one type near each other make, of these shapes; the nearest first."""
    for at, first in enumerate(layers):
        near = [one for one in layers[at + 1 : at + _NEAR] if one.kind == first.kind]
        some = chain(combinations(near, 1), combinations(near, 2))
        for others in sorted(some, key=lambda others: others[-1].at):
            parts = first, *others
            shapes = _side_by_side([one.shapes for one in parts])
            if shapes not in wanted:
                continue
            values = np.stack([one.values for one in parts])
            counts = [[math.prod(shape) for _, shape in one.shapes] for one in parts]
            most, least, mean, norm = values[..., 0], values[..., 1], values[..., 2], values[..., 3]
            whole = [
                most.max(0),
                least.min(0),
                np.average(mean, 0, np.maximum(counts, 1)),
                np.sqrt((norm**2).sum(0)),
            ]
            names = tuple(one.names[0] for one in parts)
            yield _Layer(names, parts[-1].at, first.kind, shapes, np.stack(whole, -1))


def _side_by_side(parts: Sequence[Shapes]) -> Shapes:
    """Return the shapes of tensors that are joined along their last axis; none where these do not fit."""
    found = []
    for tensors in zip(*parts, strict=False):
        ends, shapes = {end for end, _ in tensors}, [shape for _, shape in tensors]
        if len(ends) > 1 or not all(shapes) or len({shape[:-1] for shape in shapes}) > 1:
            return ()
        found.append((*ends, (*shapes[0][:-1], sum(shape[-1] for shape in shapes))))
    return tuple(found) if len({len(one) for one in parts}) == 1 else ()


def _agreeing(ours: Sequence[_Layer], theirs: Sequence[_Layer]) -> Iterator[_Pair]:
    """Yield the pairs of layers with the same shapes whose values agree."""
    alike: defaultdict[Shapes, list[_Layer]] = defaultdict(list)
    for other in theirs:
        alike[other.shapes].append(other)
    stacks = {shapes: np.stack([one.values for one in held]) for shapes, held in alike.items()}
    for one in ours:
        if one.shapes in stacks:
            agree = np.flatnonzero(_close(one.values, stacks[one.shapes]))
            yield from ((one, alike[one.shapes][at]) for at in agree)


def _close(one: Any, others: Any) -> Any:
    """Return which of others, (n, tensors, statistics), agree with the values of a layer."""
    told = ~np.isnan(one) & ~np.isnan(others)
    scale = np.nan_to_num(np.abs(one[:, :EXTREMES])).max(1, keepdims=True)
    with np.errstate(invalid="ignore"):
        near = np.abs(one - others) <= _CLOSE * (np.abs(others) + scale)
    return (near | (one == others) | ~told).all((1, 2)) & told.any(2).all(1)


def _longest(pairs: Iterable[_Pair]) -> list[_Pair]:
    """Return the most of these pairs that are in order on both sides."""
    ends, chains = list[int](), list[Any]()
    for one, other in sorted(pairs, key=lambda pair: (pair[0].at, -pair[1].at)):
        place = bisect_left(ends, other.at)
        ends[place : place + 1] = [other.at]
        chains[place : place + 1] = [((one, other), chains[place - 1] if place else None)]
    found, link = [], chains[-1] if chains else None
    while link is not None:
        found.append(link[0])
        link = link[1]
    return found[::-1]
