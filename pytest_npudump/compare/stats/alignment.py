"""Two sequences laid beside each other: which element of one is which of the other.

The method is E. W. Myers' "An O(ND) Difference Algorithm and Its Variations" (1986): exact, and quick where
little differs, however often elements repeat.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Sequence

LIMIT = 1000
"""Elements on one side only, in all, up to which sequences are aligned: 0.5 s and 8 MB at most."""

ALONE = -1


def longest_common(one: Sequence[Hashable], other: Sequence[Hashable]) -> list[int] | None:
    """Return for each element of ``one`` its partner in ``other``, -1 where it has none.

    Partners are equal, in order, and as many as there can be. None where more than :data:`LIMIT` elements
    would be without a partner.
    """
    shorter = min(len(one), len(other))
    head = 0
    while head < shorter and one[head] == other[head]:
        head += 1
    tail = 0
    while tail < shorter - head and one[-1 - tail] == other[-1 - tail]:
        tail += 1
    inner = _myers(one[head : len(one) - tail], other[head : len(other) - tail])
    if inner is None:
        return None
    middle = [ALONE if at == ALONE else at + head for at in inner]
    return [*range(head), *middle, *range(len(other) - tail, len(other))]


def _myers(one: Sequence[Hashable], other: Sequence[Hashable]) -> list[int] | None:
    trace: list[list[int]] = []
    reach = [0, 0, 0]  # how far into ``one`` diagonal k is followed, at index k + len(reach) // 2
    for edits in range(min(LIMIT, len(one) + len(other)) + 1):
        trace.append(reach)
        middle = edits + 1
        found = [0] * (2 * middle + 1)
        for k in range(-edits, edits + 1, 2):
            x = _step(reach, k, edits)
            while x < len(one) and x - k < len(other) and one[x] == other[x - k]:
                x += 1
            found[middle + k] = x
            if x >= len(one) and x - k >= len(other):
                return _walk_back(trace, len(one), len(other))
        reach = found
    return None


def _step(reach: Sequence[int], k: int, edits: int) -> int:
    """Return where diagonal ``k`` starts after one more edit: one element of either side passed over."""
    middle = len(reach) // 2
    if edits == 0:
        return 0
    if k == -edits or (k != edits and reach[middle + k - 1] < reach[middle + k + 1]):
        return reach[middle + k + 1]
    return reach[middle + k - 1] + 1


def _walk_back(trace: Sequence[Sequence[int]], x: int, y: int) -> list[int]:
    partners = [ALONE] * x
    for edits in range(len(trace) - 1, -1, -1):
        reach = trace[edits]
        k = x - y
        start = _step(reach, k, edits)
        while x > start:
            x, y = x - 1, y - 1
            partners[x] = y
        if edits == 0:
            break
        down = k == -edits or (k != edits and reach[len(reach) // 2 + k - 1] < reach[len(reach) // 2 + k + 1])
        x, y = (x, y - 1) if down else (x - 1, y)
    return partners


def inverse(partners: Sequence[int], length: int) -> list[int]:
    """Return the partners of the other sequence, which has ``length`` elements."""
    found = [ALONE] * length
    for here, there in enumerate(partners):
        if there != ALONE:
            found[there] = here
    return found


def gaps(partners: Sequence[int], length: int) -> list[tuple[range, range]]:
    """Return the runs without partners on either side, between two pairs or an end."""
    found = []
    here = there = 0
    for at, partner in [*enumerate(partners), (len(partners), length)]:
        if partner == ALONE:
            continue
        if at > here or partner > there:
            found.append((range(here, at), range(there, partner)))
        here, there = at + 1, partner + 1
    return found


def slide(
    elements: Sequence[Hashable], partners: list[int], run: range, agree: Callable[[int, int], bool]
) -> None:
    """Move a run of ``elements`` without partners to where most of its neighbours agree with theirs.

    Where equal elements lie beside each other, any of them may be the one that was lost; ``agree(here,
    there)`` tells which pairs look right. ``partners`` is changed in place.
    """
    best, shift = 0, 0
    for direction in (-1, 1):
        score = 0
        for steps, (old, new, there) in enumerate(_moves(elements, partners, run, direction), start=1):
            score += agree(new, there) - agree(old, there)
            if score > best:
                best, shift = score, direction * steps
    direction = 1 if shift > 0 else -1
    moves = _moves(elements, partners, run, direction)
    for old, new, there in [move for _, move in zip(range(abs(shift)), moves, strict=False)]:
        partners[old], partners[new] = ALONE, there


def _moves(
    elements: Sequence[Hashable], partners: Sequence[int], run: range, direction: int
) -> list[tuple[int, int, int]]:
    """Return what each further step of ``run`` changes: (loses its partner, gains it, that partner)."""
    moves = []
    last = ALONE
    old, new = (run.stop, run.start) if direction > 0 else (run.start - 1, run.stop - 1)
    while 0 <= old < len(elements) and partners[old] != ALONE and elements[old] == elements[new]:
        there = partners[old]
        if last not in (ALONE, there - direction):
            break
        moves.append((old, new, there))
        last = there
        old, new = old + direction, new + direction
    return moves
