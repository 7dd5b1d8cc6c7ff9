"""From a failing tensor back to where the change begins, among tensors that pass."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Sequence

SHARE = 1 / 3
"""Of an output's difference that an input must have to be followed. A healthy operator makes a relative
difference up to 2.2 times as large in 99 % of cases, and 4 times in 99.9 % (measured on seven models)."""


def walked_back(
    start: int,
    parents: Callable[[int], Sequence[int]],
    difference: Sequence[float],
    *,
    any_change: Callable[[int], bool],
    ends: Collection[int] = frozenset(),
) -> list[int]:
    """Return the tensors from ``start`` to where its difference comes from, the worst input each time.

    Args:
        start: the tensor that is begun with.
        parents: what feeds a tensor.
        difference: of each tensor, relative; 0 for none.
        any_change: whether an input of a tensor is followed if it has changed at all. That holds for one
            whose values are repeated bit for bit, and for one of integers: how much these differ says
            nothing of how much their inputs did.
        ends: tensors that nothing is looked for behind.
    """
    path, seen = [start], {start}
    while True:
        at = path[-1]
        worst = max(parents(at), key=lambda position: difference[position], default=at)
        if worst in seen or not difference[worst] > 0:
            return path
        enough = difference[worst] >= SHARE * difference[at] if math.isfinite(difference[at]) else False
        if not (enough or any_change(at) or math.isinf(difference[worst])):
            return path
        path.append(worst)
        if worst in ends:
            return path
        seen.add(worst)


def fed_first(wanted: Iterable[int], parents: Sequence[Sequence[int]]) -> list[int]:
    """Return what is wanted, and all that feeds it, each behind what feeds it but where that is a cycle."""
    found: dict[int, None] = {}
    seen: set[int] = set()
    for start in wanted:
        waiting = [start]
        while waiting:
            at = waiting[-1]
            fresh = [parent for parent in parents[at] if parent not in seen] if at not in seen else []
            seen.add(at)
            waiting += fresh
            if not fresh:
                found[waiting.pop()] = None
    return list(found)


def nearest(start: int, parents: Sequence[Sequence[int]], changed: Collection[int]) -> list[int]:
    """Return the nearest tensors upstream that changed, through any that did not.

    Statistics may stay as they were where elements change places, or where few digits are printed.
    """
    found: dict[int, None] = {}
    waiting, seen = [start], {start}
    while waiting:
        for parent in parents[waiting.pop()]:
            if parent in changed:
                found[parent] = None
            elif parent not in seen:
                seen.add(parent)
                waiting.append(parent)
    return list(found)
