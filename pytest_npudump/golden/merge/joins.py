"""Joining two changes of one base: of values, and of the order of names.

A value that one side has changed is that side's; what both have changed, and not to the same, is a conflict.
"""

from __future__ import annotations

from dataclasses import dataclass
from difflib import SequenceMatcher
from itertools import pairwise
from typing import TYPE_CHECKING, Generic, TypeVar

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

Value = TypeVar("Value")


@dataclass(frozen=True, slots=True)
class Conflict(Generic[Value]):
    """What both sides have, where neither is the base's.

    Attributes:
        ours: of the side that is merged into.
        theirs: of the other one.
    """

    ours: Value
    theirs: Value


def joined(base: Value, ours: Value, theirs: Value) -> Value | Conflict[Value]:
    """Return what becomes of one value; None may stand for its absence."""
    if ours in (base, theirs):
        return theirs
    return ours if theirs == base else Conflict(ours, theirs)


def joined_order(
    base: Sequence[str], ours: Sequence[str], theirs: Sequence[str]
) -> list[list[str] | Conflict[list[str]]]:
    """Return names in runs, whose order is known, and conflicts, where both sides put others at one place.

    No name stands twice in a sequence. Names that both sides have are in the result once, or once a side.
    """
    chunks = [joined(*chunk) for chunk in _chunks(base, ours, theirs)]
    placed = [name for chunk in chunks if isinstance(chunk, list) for name in chunk]
    placed += [
        name for chunk in chunks if isinstance(chunk, Conflict) for name in {*chunk.ours, *chunk.theirs}
    ]
    expected = {*ours, *theirs} - ({*base} - ({*ours} & {*theirs}))
    if len(placed) > len(set(placed)) or not expected <= {*placed}:
        return [Conflict([*ours], [*theirs])]  # a name that both have moved, each to another place
    return chunks


def _chunks(
    base: Sequence[str], ours: Sequence[str], theirs: Sequence[str]
) -> Iterator[tuple[list[str], list[str], list[str]]]:
    """Yield what lies between names that all three have in the same order, and these names."""
    in_ours, in_theirs = _matches(base, ours), _matches(base, theirs)
    common = [row for row in range(len(base)) if row in in_ours and row in in_theirs]
    ends = [(row, in_ours[row], in_theirs[row]) for row in common]
    for (b0, o0, t0), (b1, o1, t1) in pairwise([(-1, -1, -1), *ends, (len(base), len(ours), len(theirs))]):
        if b0 >= 0:
            yield [base[b0]], [ours[o0]], [theirs[t0]]
        yield [*base[b0 + 1 : b1]], [*ours[o0 + 1 : o1]], [*theirs[t0 + 1 : t1]]


def _matches(base: Sequence[str], side: Sequence[str]) -> dict[int, int]:
    """Return the positions in ``side`` of names of ``base``, of as many as keep their order."""
    blocks = SequenceMatcher(None, base, side, autojunk=False).get_matching_blocks()
    return {at + i: to + i for at, to, size in blocks for i in range(size)}
