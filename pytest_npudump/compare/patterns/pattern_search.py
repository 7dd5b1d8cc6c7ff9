"""The one sentence about where and how two tensors differ.

What says most is tried first: one value, a sign, a factor, an offset, another tensor's values, values that
have moved, memory that nobody wrote, and last a mere place; each in the smallest place first. Nothing is
claimed that does not explain 90 % of the difference, of its failing elements as of its sum of squares, or
that is not so in 90 % of the elements it is about.

The survey and each verification pass over both tensors once, in chunks; there are :data:`_CHECKS`
verifications at most, each of a claim that already fits a sample of up to 65,536 failing elements.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import numpy as np

from pytest_npudump.compare.patterns.arithmetic import arithmetic
from pytest_npudump.compare.patterns.change import Anything, Change
from pytest_npudump.compare.patterns.evidence import Evidence, Tensors, survey
from pytest_npudump.compare.patterns.exchanged_lines import permuted_lines, shuffled
from pytest_npudump.compare.patterns.held_values import of_other, stuck, unwritten
from pytest_npudump.compare.patterns.likely_places import Place, places
from pytest_npudump.compare.patterns.moves import moves, recur
from pytest_npudump.compare.patterns.place_words import place_words
from pytest_npudump.compare.patterns.verification import explained, likely

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from numpy.typing import NDArray

    from pytest_npudump.compare.tensors.difference import TensorDifference

    Family = Callable[[Evidence, Place], Iterator[Change]]

LARGEST = 1 << 26
"""Elements of the largest tensor that is looked at: a pass over as many takes about a second."""

_CHECKS = 6
_EXACT = 2**53
_NOTHING: Mapping[str, Any] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class Pattern:
    """What explains a difference between two tensors.

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
        if self.share == 1:
            return f"{self.where}: {self.what} (explains all of the difference)"
        share = min(100 * self.share, 99.9)
        return f"{self.where}: {self.what} (explains {share:.3g} % of the difference)"

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
) -> Pattern | None:
    """Return what explains the difference of two arrays of one shape; None where nothing does.

    Not looked at are complex tensors, those of more than :data:`LARGEST` elements, and integers beyond 2**53.

    Args:
        golden: any numeric type, bool, or one of ml_dtypes.
        actual: the same.
        difference: of the two, with the tolerance that decides which elements fail.
        layout: CANN's name of the layout, which names the axes; "" where unknown.
        others: tensors that were at hand, by what they are to be called.
    """
    kinds = {golden.dtype.kind, actual.dtype.kind}
    if not 1 < golden.size <= LARGEST or "c" in kinds:
        return None
    if kinds & set("iu") and difference.magnitude + difference.max_abs > _EXACT:
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
    )
    with np.errstate(all="ignore"):
        evidence = survey(tensors)
        return _first(evidence, layout, others) if evidence.failing else None


def _first(evidence: Evidence, layout: str, others: Mapping[str, NDArray[Any]]) -> Pattern | None:
    proposed = (
        (place, change)
        for place, change in _proposed(evidence, layout, others)
        if likely(evidence, place, change)
    )
    for place, change in itertools.islice(proposed, _CHECKS):
        share = explained(evidence, place, change)
        if share:
            return Pattern(change.kind, place_words(place, layout), change.words, share)
    return None


def _proposed(
    evidence: Evidence, layout: str, others: Mapping[str, NDArray[Any]]
) -> Iterator[tuple[Place, Change]]:
    chosen = tuple(places(evidence))
    moving: tuple[Family, ...] = (lambda e, p: permuted_lines(e, p, layout), moves, shuffled)
    families: tuple[Family, ...] = (stuck, arithmetic, lambda e, p: of_other(e, p, others))
    for family in (*families, *(moving if recur(evidence) else ()), unwritten):
        for place in chosen:
            for change in family(evidence, place):
                yield place, change
    yield from ((place, Anything()) for place in chosen if not place.everywhere)
