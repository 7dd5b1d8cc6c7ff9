"""The one sentence about where and how two tensors differ.

What says most is tried first: one value, a sign, a factor, an offset, another tensor's values, values that
have moved, memory that nobody wrote, and last a mere place; each in the smallest place first. Nothing is
claimed that does not explain 90 % of the difference, of its failing elements as of its sum of squares, or
that is not so in 90 % of the elements it is about.

The survey and each verification pass over both tensors once, in chunks; there are :data:`_CHECKS`
verifications at most, each of a claim that already fits a sample of up to 65,536 failing elements.
"""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass
from functools import partial
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import numpy as np

from pytest_npudump.compare.patterns.likely_places import (
    LikelyPlace,
    PlaceEvidence,
    Tensors,
    place_words,
    places,
    squares,
    survey,
    wide,
)
from pytest_npudump.compare.patterns.possible_changes import (
    ANYTHING,
    LARGEST_MOVED,
    LEAST,
    PossibleChange,
    arithmetic,
    moves,
    of_other,
    permuted_lines,
    recur,
    shuffled,
    stuck,
    unwritten,
)
from pytest_npudump.compare.tensors.difference import value_chunks
from pytest_npudump.compare.tensors.tensor_pair import Pair, PairElements, pair_values
from pytest_npudump.errors import joined, said

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from numpy.typing import NDArray

    from pytest_npudump.compare.tensors.difference import TensorDifference, Values

    Family = Callable[[PlaceEvidence, LikelyPlace], Iterator[PossibleChange]]

LARGEST = 1 << 26
"""Elements of the largest tensor that is looked at: a pass over as many takes about a second."""

SEARCHED = 20
"""Tensors of one report that are searched: as many as it shows."""

_CHECKS = 6
_GLANCE, _LOOK = 64, 1024
"""Elements of the sample that are enough to see that a change explains too few, at once and at most."""
_DECODED = 1 << 22
"""Elements of the largest tensor in a file that is decoded, or put together from blocks, for it."""
_EXACT = 2**53
_NOTHING: Mapping[str, Any] = MappingProxyType({})

Limits = Counter[str]
"""What was left out of searches, in words, and of how many tensors."""


@dataclass(frozen=True, slots=True)
class Pattern:
    """Pattern that explains a difference between two tensors.

    Attributes:
        kind: ``stuck``, ``sign``, ``factor``, ``offset``, ``other tensor``, ``moved``, ``unwritten`` or
            ``place``, where only the place is known.
        where: the elements that differ, in words.
        what: what became of them, in words.
        share: of the difference that it explains, 0.9 to 1: the smaller one of the share of failing elements
            and the share of the sum of squared differences.
    """

    kind: str
    where: str
    what: str
    share: float

    def __str__(self) -> str:
        share = 100 if self.share == 1 else min(100 * self.share, 99.9)
        return said(
            "{where}: {what} ({share:.3g} % of the difference)", where=self.where, what=self.what, share=share
        )

    def to_json(self) -> dict[str, Any]:
        """Return the pattern as plain JSON data."""
        return {"kind": self.kind, "where": self.where, "what": self.what, "share": self.share}


def find_pattern(
    golden: NDArray[Any],
    actual: NDArray[Any],
    difference: TensorDifference,
    *,
    layout: str = "",
    others: Mapping[str, NDArray[Any]] = _NOTHING,
    limits: Limits | None = None,
    noise: float = 0.0,
) -> Pattern | None:
    """Return the pattern of the difference of two arrays of one shape; None for none.

    Not looked at are complex tensors, those of more than :data:`LARGEST` elements, and integers from 2**53.

    Args:
        golden: any numeric type, bool, or one of ml_dtypes.
        actual: the same.
        difference: of the two, with the tolerance that decides which elements fail.
        layout: CANN's name of the layout, which names the axes; "" where unknown.
        others: tensors that were at hand, by what they are to be called.
        limits: counts what was left out of the search, where it found no change.
        noise: relative error of elements that only changed places; 0 where they keep each bit.
    """
    limits = Counter() if limits is None else limits
    kinds = {golden.dtype.kind, actual.dtype.kind}
    if golden.size <= 1:
        return None
    if golden.size > LARGEST:
        limits[said("above {number} Mi elements", number=LARGEST >> 20)] += 1
        return None
    # Both are rounded where they are larger, and so may be their sum.
    if "c" in kinds or (kinds & set("iu") and difference.magnitude + difference.max_abs >= _EXACT):
        limits[said("complex or with integers from 2^53")] += 1
        return None
    threshold = difference.atol + difference.rtol * difference.magnitude
    alone = difference.max_abs <= threshold and difference.special_equal
    tensors = Tensors(
        golden.reshape(-1),
        actual.reshape(-1),
        golden.shape,
        difference.rtol,
        difference.atol,
        None if alone or not math.isfinite(threshold) else threshold,
        noise,
    )
    with np.errstate(all="ignore"):
        evidence = survey(tensors)
        return _first(evidence, layout, others, limits) if evidence.failing else None


def _first(
    evidence: PlaceEvidence, layout: str, others: Mapping[str, NDArray[Any]], limits: Limits
) -> Pattern | None:
    proposed = (
        (place, change)
        for place, change in _proposed(evidence, layout, others, limits)
        if _likely(evidence, place, change)
    )
    for number, (place, change) in enumerate(proposed):
        if number == _CHECKS:
            limits[said("with more than {number} candidates", number=_CHECKS)] += 1
            break
        if share := _explained(evidence, place, change):
            return Pattern(change.kind, place_words(place, layout), change.words, share)
    return None


def _proposed(
    evidence: PlaceEvidence, layout: str, others: Mapping[str, NDArray[Any]], limits: Limits
) -> Iterator[tuple[LikelyPlace, PossibleChange]]:
    # An even sample of all elements may lie in every so many lines, which hold too few.
    chosen = tuple(place for place in places(evidence) if place.count >= LEAST * evidence.failing)
    for family in _families(evidence, layout, others, limits):
        for place in chosen:
            yield from ((place, change) for change in family(evidence, place))
    yield from ((place, ANYTHING) for place in chosen if not place.everywhere)


def _families(
    evidence: PlaceEvidence, layout: str, others: Mapping[str, NDArray[Any]], limits: Limits
) -> Iterator[Family]:
    yield from (stuck, arithmetic, partial(of_other, others=others))
    if evidence.tensors.golden.size > LARGEST_MOVED:
        limits[said("above {number} Mi elements (moved values)", number=LARGEST_MOVED >> 20)] += 1
    else:
        if exact := recur(evidence):
            yield partial(permuted_lines, layout=layout, origins={}, limits=limits)
        if close := evidence.tensors.noise:
            yield partial(permuted_lines, layout=layout, origins={}, limits=limits, close=close)
        if exact:
            yield from (partial(moves, limits=limits), shuffled)
    yield unwritten


def _likely(evidence: PlaceEvidence, place: LikelyPlace, change: PossibleChange) -> bool:
    """Return whether a change explains enough of the sample of failing elements to be tried on all."""
    inside = evidence.inside(place)
    if inside.size < LEAST * evidence.at.size:
        return False
    for step in (max(inside.size // _GLANCE, 1), max(inside.size // _LOOK, 1), 1):
        chosen = inside[::step]
        sides = evidence.golden[chosen], evidence.actual[chosen]
        hits = np.count_nonzero(change.explain(evidence.tensors, evidence.at[chosen], *sides).hit)
        if hits < (LEAST * evidence.at.size if step == 1 else chosen.size / 2):
            return False
    return True


def _explained(evidence: PlaceEvidence, place: LikelyPlace, change: PossibleChange) -> float:
    """Return the share of the difference that a change of a place explains; 0 where the claim is refused.

    It is refused unless it explains :data:`LEAST` of the failing elements and of the sum of squares, and
    unless as large a share of the elements that it says have changed have done so, in the way it says: as
    soon as too many are seen that speak against it.
    """
    if change.whole:
        return 1.0
    hits = claimed = wrong = failed = 0
    left, squared, tensors = 0.0, 0.0, evidence.tensors
    for piece in tensors.pieces():
        golden, actual = wide(tensors.golden[piece]), wide(tensors.actual[piece])
        difference = actual - golden
        squared += squares(difference)
        failing = tensors.fails(golden, actual)
        failed += int(np.count_nonzero(failing))
        flat = np.arange(piece.start, piece.stop)
        if not place.everywhere:
            inside = np.flatnonzero(place.holds_piece(piece.start, piece.stop))
            difference[inside] = 0
            left += squares(difference)
            flat, golden, actual = flat.take(inside), golden.take(inside), actual.take(inside)
            failing = failing.take(inside)
        if flat.size:
            found = change.explain(tensors, flat, golden, actual)
            left += squares(found.left)
            hits += int(np.count_nonzero(found.hit & failing))
            changed = failing if found.claimed is None else found.claimed
            claimed += int(np.count_nonzero(changed))
            wrong += int(np.count_nonzero(changed & ~found.hit))
        possible = (evidence.failing - failed + hits) / evidence.failing
        if possible < LEAST or wrong > (1 - LEAST) * place.count:
            return 0.0
    if wrong > (1 - LEAST) * claimed:
        return 0.0
    share = hits / evidence.failing
    if squared:
        share = min(share, 1 - left / squared)
    return share if share >= LEAST else 0.0


def find_patterns(
    pairs: Iterable[tuple[int, Pair, PairElements]],
) -> tuple[Mapping[int, Pattern], tuple[str, ...]]:
    """Return the patterns of the first :data:`SEARCHED` pairs that differ in their elements, by position.

    With them comes a note on what was left out, or none.
    """
    found: dict[int, Pattern] = {}
    limits: Limits = Counter()
    searched = 0
    for position, pair, elements in pairs:
        if elements.difference is None or not elements.difference.outside:
            continue
        searched += 1
        if searched > SEARCHED:
            continue
        if (pattern := _pattern_in_files(pair, elements.difference, limits)) is not None:
            found[position] = pattern
    leave_out(limits, searched - SEARCHED)
    return found, note_on_limits(limits)


def leave_out(limits: Limits, number: int) -> None:
    """Count the tensors that are left out behind the first :data:`SEARCHED`, if there are any."""
    if number > 0:
        limits[said("after the first {number}", number=SEARCHED)] += number


def note_on_limits(limits: Limits) -> tuple[str, ...]:
    """Return a note on what was left out of the search, and of how many tensors; none for nothing."""
    parts = [said("{number} {limit}", number=number, limit=limit) for limit, number in limits.items()]
    words = said("tensors searched for patterns in part or not at all: {parts}", parts=joined("; ", parts))
    return (words,) if parts else ()


def _pattern_in_files(pair: Pair, difference: TensorDifference, limits: Limits) -> Pattern | None:
    values = pair_values(pair)
    if values is None:
        return None
    golden, actual = map(_whole, values[:2])
    if golden is None or actual is None:
        if values[0].size > _DECODED:
            limits[said("above {number} Mi elements, packed or in blocks", number=_DECODED >> 20)] += 1
        return None
    if golden.shape != actual.shape:
        return None
    return find_pattern(golden, actual, difference, layout=values[2], limits=limits)


def _whole(values: Values) -> NDArray[Any] | None:
    if isinstance(values, np.ndarray) and (values.flags.c_contiguous or values.size <= _DECODED):
        return values
    if values.size > _DECODED:
        return None
    pieces = [piece.copy() for piece in value_chunks(values)]
    return np.concatenate(pieces).reshape(values.shape) if pieces else None
