"""From operators that are acquitted upstream, one after the other, to the one that did it."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, TypeVar

from pytest_npudump.reference.operator_alone import CONVICTED

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterator, Sequence

UPSTREAM = 32
"""Operators that are looked at upstream of a failure, at most."""

Place = TypeVar("Place", bound="Hashable")


def judged_upstream(
    suspects: Sequence[Place],
    fed_by: Callable[[Place], Sequence[Place]],
    verdict: Callable[[Place], str],
    most: int,
) -> tuple[Place, ...]:
    """Judge suspects and, from each that no convicted one feeds, what lies upstream, nearest first.

    A change that an operator passes on came in with what it read, so that one of those upstream made it.

    Args:
        suspects: operators, all of which are judged.
        fed_by: what feeds an operator and can be judged.
        verdict: the judge; asked once for each operator.
        most: how many are judged upstream of one suspect, at most.

    Returns:
        Those that were judged, in that order.
    """
    found = {place: verdict(place) for place in dict.fromkeys(suspects)}
    for suspect in tuple(found):
        if found[suspect] == CONVICTED or any(
            found.get(place) == CONVICTED for place in nearest_first(suspect, fed_by)
        ):
            continue
        left = most
        for place in nearest_first(suspect, fed_by):
            if not left:
                break
            if place not in found:
                found[place] = verdict(place)
                left -= 1
            if found[place] == CONVICTED:
                break
    return tuple(found)


def nearest_first(start: Place, fed_by: Callable[[Place], Sequence[Place]]) -> Iterator[Place]:
    """Yield all that is upstream of a place, by how many operators lie between."""
    waiting, seen = deque([start]), {start}
    while waiting:
        for place in fed_by(waiting.popleft()):
            if place not in seen:
                seen.add(place)
                waiting.append(place)
                yield place
