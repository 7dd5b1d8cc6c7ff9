"""Possible changes of the elements of a place, and which of them a sample of the failing ones suggests.

A family yields changes: one value, one operation on the golden's values (a sign, a factor, an offset),
another tensor's values, values of other places (shifted, axes or lines in another order, in disorder), memory
that nobody wrote. Each takes a few passes over the tensors at most, in chunks; none sorts more than the
sample, or one number for each of the lines that differ, where these have the golden's sum of squares.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from pytest_npudump.compare.patterns.likely_places import CHUNK, noun, same, wide
from pytest_npudump.errors import said

if TYPE_CHECKING:
    from collections import Counter
    from collections.abc import Callable, Iterator, Mapping

    from numpy.typing import NDArray

    from pytest_npudump.compare.patterns.likely_places import LikelyPlace, PlaceEvidence, Tensors, Wide

    Flat = NDArray[np.intp]
    Flags = NDArray[np.bool_]

LEAST = 0.9
"""Share of a difference that a claim has to explain, in elements and in the sum of squares."""
LARGEST_MOVED = 1 << 22
"""Elements of the largest tensor in which moved values are looked for."""

_LEFT = math.sqrt(1 - LEAST)
_GLANCE = 1024
"""Elements that are enough to see that a change explains too few; of so many, evenly spread."""
_AT_A_GLANCE = 0.65
"""Share of the larger elements of a glance; what explains :data:`LEAST` of all explains 0.8 of them."""
_FEW = 8
"""Fewer elements, or different values, than this may fit a change by accident."""
_NEAR = 0.3
_HUGE, _TINY = 2.0**4, 2.0**-12
"""By the golden's magnitude: random bits of float32 are between the two in one case of 16."""
_MASKS, _BESIDE = 1e3, 0.1
"""How much larger a mask is than the elements beside it, and the share of these, at least."""
_LOOKED_UP = 64
_MOST_AXES = 5
_CLOSE, _ALIKE = 1e-9, 1e-13
_MOST_LINES = 1 << 18
_MIX = np.uint64(0x9E3779B97F4A7C15)
_HALF = np.uint64(32)


class Explained(NamedTuple):
    """Elements of a place that a change explains.

    Attributes:
        left: what it leaves of the difference of each; empty where that is nothing.
        hit: which of them it explains.
        claimed: which of them it says have changed; None for just those that fail.
    """

    left: Wide
    hit: Flags
    claimed: Flags | None


@dataclass(frozen=True, slots=True, eq=False)
class PossibleChange:
    """Possible change of a place's elements.

    Attributes:
        kind, words: as ``kind`` and ``what`` of a pattern.
        explain: tensors, flat indices and the values of both sides there to what the change explains of them.
        whole: it is known to explain all, of a place that is the whole tensor.
    """

    kind: str
    words: str
    explain: Callable[[Tensors, Flat, Wide, Wide], Explained]
    whole: bool = False


def _predicted(
    kind: str, words: str, predict: Callable[[Flat, Wide], Wide], *, near: bool = False
) -> PossibleChange:
    """Return a change that gives each element its value; NaN where it cannot.

    Values are to be ``near`` by their own size where the golden's may be a mask, by which all are alike.
    """

    def explain(tensors: Tensors, flat: Flat, golden: Wide, actual: Wide) -> Explained:
        predicted = predict(flat, golden)
        hit = same(actual, predicted)
        if hit.all():
            return Explained(np.empty(0), hit, None)
        left = actual - predicted
        size = np.minimum(np.abs(actual - golden), np.abs(predicted - golden))
        size = np.minimum(size, np.abs(predicted)) if near else size
        hit |= np.abs(left) <= _LEFT * size
        left = np.where(np.isfinite(left), left, actual - golden)
        return Explained(left, hit, tensors.fails(golden, predicted))

    return PossibleChange(kind, words, explain)


def _any_value(tensors: Tensors, _flat: Flat, golden: Wide, actual: Wide) -> Explained:
    """Explain any difference; an element that is 0 on both sides counts for nothing."""
    apart = tensors.apart(golden, actual)
    return Explained(np.where(apart, 0.0, actual - golden), apart, (golden != 0) | (actual != 0))


PLACE = "place"
ANYTHING = PossibleChange(PLACE, said("other values"), _any_value)
"""Elements that differ, whatever they are."""


def stuck(evidence: PlaceEvidence, place: LikelyPlace) -> Iterator[PossibleChange]:
    """One value in all elements."""
    inside = evidence.inside(place)
    values = evidence.actual[inside]
    if not values.size:
        return
    for part, least in ((_glance(values), 0.5), (values, LEAST)):
        value = float(np.partition(part, part.size // 2)[part.size // 2])  # what most of them are
        if np.count_nonzero(same(part, np.float64(value))) < least * part.size:
            return
    words = said("{value}, expected other values", value=named(value))
    if place.count == 1:
        words = said(
            "{value}, expected {golden}",
            value=named(value),
            golden=named(float(evidence.golden[inside][0])),
        )
    yield _predicted("stuck", words, lambda flat, _: np.full(flat.shape, value))


def named(value: float) -> str:
    """Return a value of a sentence: six digits, NaN or Inf."""
    text = f"{value:.6g}"
    return text if math.isfinite(value) else text.replace("nan", "NaN").replace("inf", "Inf")


def arithmetic(evidence: PlaceEvidence, place: LikelyPlace) -> Iterator[PossibleChange]:
    """The sign, then a factor, then an offset."""
    inside = evidence.inside(place)
    golden, actual = evidence.golden[inside], evidence.actual[inside]
    usable = np.isfinite(golden) & np.isfinite(actual)
    golden, actual = golden[usable], actual[usable]
    if evidence.tensors.golden.dtype.kind == "b":
        if golden.size >= _FEW and _distinct(golden, 2):
            yield _predicted("sign", said("is inverted"), lambda _, values: 1 - values)
        return
    if not _distinct(golden, _FEW):
        return
    yield _predicted("sign", said("the sign is flipped"), lambda _, values: -values)
    if (factor := _middle(_ratios, golden, actual, 1.0)) not in (0.0, 1.0):
        words, near = said("multiplied by {factor:.6g}", factor=factor), abs(factor) < 1 / _MASKS
        yield _predicted("factor", words, lambda _, values: factor * values, near=near)
    if offset := _middle(np.subtract, actual, golden, 0.0):
        yield _predicted(
            "offset", said("{offset:+.6g} was added", offset=offset), lambda _, values: values + offset
        )


def _distinct(values: Wide, least: int) -> bool:
    """Return whether there are so many different values; most often a part of them is enough."""
    return any(np.unique(part).size >= least for part in (values[:_GLANCE], values))


def _glance(values: Wide) -> Wide:
    return values[:: max(values.size // _GLANCE, 1)]


def _ratios(golden: Wide, actual: Wide) -> Wide:
    large = np.abs(golden) >= np.median(np.abs(golden))
    found = actual[large] / golden[large]
    return found if (golden[large] != 0).all() else np.ones_like(found)


def _middle(operation: Callable[[Wide, Wide], Wide], one: Wide, other: Wide, nothing: float) -> float:
    """Return the mean of what is near the median: rounding to few bits makes steps of the values.

    It is ``nothing`` where a glance shows too few that may be what one change makes of them: what is
    explained is off by :data:`_LEFT` of its change at most, and so is the median.
    """
    seen = operation(_glance(one), _glance(other))
    median = float(np.median(seen))
    reach = _LEFT * 1.05 * (np.abs(seen - nothing) + abs(median - nothing))
    if np.count_nonzero(np.abs(seen - median) <= reach) < _AT_A_GLANCE * seen.size:
        return nothing
    values = operation(one, other)
    median = float(np.median(values))
    near = values[np.abs(values - median) <= _NEAR * abs(median)]
    return float(near.mean()) if near.size else median


def of_other(
    evidence: PlaceEvidence, place: LikelyPlace, others: Mapping[str, NDArray[Any]]
) -> Iterator[PossibleChange]:
    """The values that another tensor of the type and size has at the same place in memory."""
    if not others or not _distinct(evidence.actual[evidence.inside(place)], _FEW):
        return
    tensors = evidence.tensors
    for name, other in others.items():
        if other.dtype == tensors.actual.dtype and other.size == tensors.actual.size:
            words, held = said("the values of {name}", name=name), partial(_held, other.reshape(-1))
            yield _predicted("other tensor", words, held, near=True)


def _held(values: NDArray[Any], flat: Flat, _: Wide) -> Wide:
    return wide(values[flat])


def unwritten(evidence: PlaceEvidence, place: LikelyPlace) -> Iterator[PossibleChange]:
    """Yield values that are none of this tensor: NaN, infinities, and magnitudes far from all of its own."""
    magnitude = float(np.abs(evidence.golden[np.isfinite(evidence.golden)]).max(initial=0.0))
    golden = evidence.tensors.golden  # in odd steps, which no axis of an even length is in step with
    own = np.abs(wide(golden[:: max(golden.size // _GLANCE, 1) | 1]))
    beside = own[(own > 0) & (own < magnitude / _MASKS)]
    least = float(beside.max()) if beside.size > _BESIDE * own.size else magnitude
    words = said(
        "values that look like memory nobody wrote (NaN, Inf, or magnitudes far from any of its own)"
    )

    def odd(values: Wide) -> Flags:
        size = np.abs(values)
        small = (size > 0) & (size < _TINY * least)
        return np.asarray(~np.isfinite(values) | small | (size > _HUGE * magnitude))

    def explain(tensors: Tensors, _flat: Flat, golden: Wide, actual: Wide) -> Explained:
        found = odd(actual) & ~odd(golden) & tensors.apart(golden, actual)
        return Explained(np.where(found, 0.0, actual - golden), found, np.ones(found.shape, bool))

    if evidence.inside(place).size >= _FEW and magnitude:
        yield PossibleChange("unwritten", words, explain)


def recur(evidence: PlaceEvidence) -> bool:
    """Return whether failing elements have the golden's values, to the bit, so that they may have moved."""
    if not _distinct(evidence.actual, _FEW):
        return False
    some = evidence.actual[:: max(evidence.actual.size // _LOOKED_UP, 1)]
    values, times = np.unique(some[~np.isnan(some)], return_counts=True)
    wanted = LEAST * some.size - np.isnan(some).sum()
    return any(times[counts > 0].sum() >= wanted for counts, _ in _occurrences(evidence.tensors, values))


def _occurrences(tensors: Tensors, values: Wide) -> Iterator[tuple[NDArray[np.int64], Flat]]:
    """Yield the counts of sorted values in more and more of the golden, and their first places.

    What was found more than once is looked for no longer.
    """
    counts, first = np.zeros(values.size, np.int64), np.full(values.size, -1)
    yield counts, first
    golden, left = tensors.golden, np.arange(values.size)
    find = _finder(values, golden.dtype)
    stop, size = 0, _GLANCE
    while stop < golden.size:
        start, stop = stop, stop + size
        size = min(2 * size, CHUNK)
        slots, at = find(golden[start:stop])
        slots = left[slots]
        counts += np.bincount(slots, minlength=values.size)
        here = np.full(values.size, -1)
        here[slots[::-1]] = at[::-1] + start
        first = np.where(first < 0, here, first)
        yield counts, first
        if (counts[left] > 1).any():
            left = np.flatnonzero(counts <= 1)
            find = _finder(values[left], golden.dtype)


def _finder(values: Wide, dtype: np.dtype[Any]) -> Callable[[NDArray[Any]], tuple[Flat, Flat]]:
    """Return a finder of sorted values in a piece of a tensor: their numbers and places.

    A table of codes, or of hashes of wider ones, rules out nearly all elements.
    """
    wanted = np.zeros(1 << 8 * min(dtype.itemsize, 2), np.bool_)
    wanted[_slots(np.concatenate([values, -values]).astype(dtype))] = True

    def find(piece: NDArray[Any]) -> tuple[Flat, Flat]:
        at = np.flatnonzero(wanted.take(_slots(piece)))  # in half the time of an index
        found = wide(piece[at])
        slots = np.searchsorted(values, found)
        hit = values.take(slots, mode="clip") == found
        return slots[hit], at[hit]

    return find


def _slots(values: NDArray[Any]) -> NDArray[Any]:
    """Return a number of 16 bits at most for each value: its code, or of a wider type a hash of it."""
    codes = values.view(f"u{values.itemsize}")
    if codes.itemsize <= 2:  # noqa: PLR2004 - bytes
        return codes
    bits = 8 * codes.itemsize
    hashes: NDArray[Any] = codes * codes.dtype.type(int(_MIX) % (1 << bits))
    hashes >>= codes.dtype.type(bits - 16)
    return hashes


def moves(evidence: PlaceEvidence, place: LikelyPlace, *, limits: Counter[str]) -> Iterator[PossibleChange]:
    """A shift in memory, then other orders of :data:`_MOST_AXES` axes at most; more are in ``limits``."""
    if distance := _common_distance(evidence, evidence.inside(place)):
        start, stop = place.run or (0, evidence.tensors.golden.size)
        number, size = abs(distance), stop - start
        shifted = (
            said("shifted by {number} elements in memory", number=number)
            if number > 1
            else said("shifted by 1 element in memory")
        )
        words = said(
            "{shifted}, {direction}",
            shifted=shifted,
            direction=said("towards the end") if distance > 0 else said("towards the beginning"),
        )
        yield _moved(evidence, words, lambda flat: (flat - start - distance) % size + start)
    shape = evidence.tensors.shape
    axes = [axis for axis, length in enumerate(shape) if length > 1]
    if not place.everywhere:
        return
    if len(axes) > _MOST_AXES:
        limits[said("with more than {number} axes (their order)", number=_MOST_AXES)] += 1
        return
    lengths = tuple(shape[axis] for axis in axes)
    for order in itertools.permutations(range(len(axes))):
        if list(order) != sorted(order):
            words = said("the values with axes in the order {order}", order=[axes[axis] for axis in order])
            turned = evidence.tensors.golden.reshape(lengths).transpose(order)
            yield _predicted("moved", words, partial(_at, turned))


def _moved(evidence: PlaceEvidence, words: str, source: Callable[[Flat], Flat]) -> PossibleChange:
    """Return the change that elements hold the golden's at ``source``."""
    golden = evidence.tensors.golden
    return _predicted("moved", words, lambda flat, _: wide(golden[source(flat)]))


def _common_distance(evidence: PlaceEvidence, inside: Flat) -> int:
    """Return the common distance of values from their places in the golden; 0 without one.

    The rarest values are looked for, and those count that the golden has once.
    """
    values, at = evidence.actual[inside], evidence.at[inside]
    usable = values[np.isfinite(values) & (values != 0)]
    dtype = evidence.tensors.actual.dtype
    if dtype.itemsize <= 4 and dtype.kind not in "iu":  # noqa: PLR2004 - bytes of a float, sorted in half the time
        usable = usable.astype(np.float32)
    rare = usable[:0]
    if usable.size > _GLANCE:  # the smallest that are there once are most often among the smallest
        unique, counts = np.unique(np.partition(usable, _GLANCE // 4)[: _GLANCE // 4], return_counts=True)
        rare = unique[:-1][counts[:-1] == 1][:_LOOKED_UP].astype(np.float64)
    if rare.size < _LOOKED_UP:
        unique, counts = np.unique(usable, return_counts=True)
        rare = np.sort(unique[np.argsort(counts, kind="stable")][:_LOOKED_UP]).astype(np.float64)
    for times, origin in _occurrences(evidence.tensors, rare):  # noqa: B007 - the last ones count
        if (times > 1).all():
            break
    slots, places = _finder(rare, values.dtype)(values)
    index = np.zeros(rare.size, np.intp)
    index[slots[::-1]] = places[::-1]  # the first of each is put in last
    found = (at[index] - origin)[times == 1]
    distances, counts = np.unique(found, return_counts=True)
    if not found.size or counts.max() * 2 <= found.size:
        return 0
    return int(distances[counts.argmax()])


def _at(values: NDArray[Any], flat: Flat, _: Wide) -> Wide:
    """Return elements by ascending indices in C order; of a range of them in a third of the time."""
    inner = values[0].size
    if flat.size and flat[-1] - flat[0] == flat.size - 1 and inner <= CHUNK:
        first = int(flat[0]) // inner
        lines = values[first : int(flat[-1]) // inner + 1].reshape(-1)
        return wide(lines[flat[0] - first * inner :][: flat.size])
    return wide(values[np.unravel_index(flat, values.shape)])


def permuted_lines(
    evidence: PlaceEvidence,
    place: LikelyPlace,
    *,
    layout: str,
    origins: dict[int, Flat | None],
    limits: Counter[str],
    close: float = _CLOSE,
) -> Iterator[PossibleChange]:
    """Lines along an axis that are the golden's lines of other indices, each once; ``origins`` are kept.

    They may be off by ``close``, beside the largest. Of more than :data:`_MOST_LINES` that differ the order
    is not looked for, which ``limits`` counts.
    """
    shape, size = evidence.tensors.shape, evidence.tensors.golden.size
    named = [axis for axis, _ in place.lines]
    for axis, length in enumerate(shape if place.run is None else ()):
        if length < 2 or length == size or (named and named != [axis]):  # noqa: PLR2004 - two lines
            continue
        if axis not in origins:
            # To pick lines out of very many takes as long as to look at them all.
            likely = length > CHUNK or _line_recurs(evidence, axis, close)
            origins[axis] = _origins(evidence.tensors, axis, limits, close) if likely else None
        if (origin := origins[axis]) is not None:
            words = _order_words(origin, noun(layout, shape, axis).several_lines)
            inner = math.prod(shape[axis + 1 :])
            yield _moved(evidence, words, partial(_line_source, origin=origin, inner=inner))


def _line_source(flat: Flat, origin: Flat, inner: int) -> Flat:
    along = flat // inner % origin.size
    return np.asarray(flat + (origin[along] - along) * inner)


def _order_words(origin: Flat, several_lines: str) -> str:
    changed = np.flatnonzero(origin != np.arange(origin.size))
    if changed.size == 2:  # noqa: PLR2004 - a pair
        return said(
            "{lines} {one} and {other} have changed places",
            lines=several_lines,
            one=changed[0],
            other=changed[1],
        )
    distances = (np.arange(origin.size) - origin) % origin.size
    if (distances == distances[0]).all():
        by = int(distances[0])
        return said(
            "{lines} shifted by {by} (or by {other}), round the end",
            lines=several_lines,
            by=by,
            other=by - origin.size,
        )
    return said(
        "{lines} in another order: {count} are at the place of another",
        lines=several_lines,
        count=changed.size,
    )


def _line_recurs(evidence: PlaceEvidence, axis: int, close: float) -> bool:
    """Return whether some lines that fail may be lines of the golden, by a few of the elements of each.

    As :func:`_origins` does, it lets pass what is off by next to nothing beside a whole line.
    """
    tensors, shape = evidence.tensors, evidence.tensors.shape
    outer, inner = math.prod(shape[:axis]), math.prod(shape[axis + 1 :])
    failing = np.unique(evidence.at[:: max(evidence.at.size // _GLANCE, 1)] // inner % shape[axis])
    failing = failing[:: max(failing.size // _FEW, 1)]
    rng = np.random.default_rng(axis)
    number = min(outer * inner, _LOOKED_UP, max(2 * CHUNK // shape[axis], 2))
    picked = rng.choice(outer * inner, number, replace=False, shuffle=False)
    ours, theirs = (side.reshape(outer, -1, inner) for side in (tensors.golden, tensors.actual))
    ours = _finite(ours[picked // inner, :, picked % inner])
    theirs = _finite(theirs[(picked // inner)[:, np.newaxis], failing, (picked % inner)[:, np.newaxis]])
    weights = rng.normal(size=number)
    marks, lines = weights @ ours, weights @ theirs
    close *= _LOOKED_UP * outer * inner * max(ours.max(), -ours.min())
    return all((np.abs(marks - line) <= close).any() for line in lines)


def _origins(tensors: Tensors, axis: int, limits: Counter[str], close: float) -> Flat | None:
    """Return the golden's line of each line along ``axis``; None where that is no other order.

    Sums of squares of marks rule out nearly all others before the lines that differ are sorted.
    """
    ours, theirs = (_marks(side, tensors.shape, axis) for side in (tensors.golden, tensors.actual))
    scale = max(float(ours.max()), -float(ours.min()))
    close *= scale
    energy = np.dot(ours, ours)
    most = 3 * close * (np.sqrt(energy * ours.size) + close * ours.size)
    if not np.abs(np.dot(theirs, theirs) - energy) <= most + _CLOSE * energy:
        return None
    found: list[Flat] = []
    for start in range(0, ours.size, CHUNK):
        part = slice(start, start + CHUNK)
        found.append(np.flatnonzero(np.abs(ours[part] - theirs[part]) > close) + start)
        if sum(one.size for one in found) > _MOST_LINES:
            limits[said("with more than {number} changed lines (their order)", number=_MOST_LINES)] += 1
            return None
    changed = np.concatenate(found)
    ours, theirs, origin = ours[changed], theirs[changed], np.arange(ours.size)
    one, other = np.argsort(ours), np.argsort(theirs)
    ours, theirs, origin[changed[other]] = ours[one], theirs[other], changed[one]
    known = (np.abs(ours - theirs) <= close).all() and (np.diff(ours) > _ALIKE * scale).all()
    return origin if changed.size and known else None


def _marks(values: NDArray[Any], shape: tuple[int, ...], axis: int) -> Wide:
    """Return one number for each line: its finite elements under weights that are alike for all lines."""
    outer, inner = math.prod(shape[:axis]), math.prod(shape[axis + 1 :])
    rng = np.random.default_rng(axis)
    across, along = rng.normal(size=outer), rng.normal(size=inner)
    if inner >= outer:
        rows = values.reshape(-1, inner)
        step, sums = max(CHUNK // inner, 1), np.empty(len(rows))
        for at in range(0, len(rows), step):
            sums[at : at + step] = _finite(rows[at : at + step]) @ along
        return np.asarray(across @ sums.reshape(outer, -1)) if outer > 1 else sums
    rows, totals = values.reshape(outer, -1), np.zeros(shape[axis] * inner)
    width = min(totals.size, CHUNK)
    step = CHUNK // width
    for top, left in itertools.product(range(0, outer, step), range(0, totals.size, width)):
        part = slice(top, top + step), slice(left, left + width)
        totals[part[1]] += across[part[0]] @ _finite(rows[part])
    return np.asarray(totals.reshape(-1, inner) @ along) if inner > 1 else totals


def _finite(values: NDArray[Any]) -> Wide:
    found = wide(values)
    finite = np.isfinite(found)
    return found if finite.all() else np.where(finite, found, 0.0)


def shuffled(evidence: PlaceEvidence, place: LikelyPlace) -> Iterator[PossibleChange]:
    """Yield the golden's values of a place in another order, found by sums of their hashes.

    That sums of their codes differ, but for signs of zeros, rules out nearly all others.
    """
    golden, actual = evidence.tensors.golden, evidence.tensors.actual
    ways = [(_code_sum, 8 * golden.itemsize - 1)] if golden.dtype == actual.dtype else []
    for add, bits in (*ways, (_hash_sum, 64)):
        apart = 0
        for piece in evidence.tensors.pieces():
            inside = slice(None) if place.everywhere else place.holds_piece(piece.start, piece.stop)
            one, other = (add(side[piece][inside]) for side in (golden, actual))
            if one is None or other is None:
                return
            apart += one - other
        if apart % (1 << bits):
            return
    yield PossibleChange("moved", said("the same values in another order"), _all_of_it, place.everywhere)


def _code_sum(values: NDArray[Any]) -> int:
    codes = values.view(f"u{values.itemsize}")
    return int(np.add.reduce(codes, dtype=codes.dtype))


def _hash_sum(values: NDArray[Any]) -> int | None:
    """Return the sum of hashes of values, modulo two to the power of 64; None if there is a NaN."""
    chosen = wide(values)
    if np.isnan(chosen.max(initial=-math.inf)):
        return None
    codes = (chosen + 0.0).view(np.uint64)
    codes *= _MIX
    codes ^= codes >> _HALF
    codes *= codes
    return int(np.add.reduce(codes))


def _all_of_it(_tensors: Tensors, _flat: Flat, golden: Wide, actual: Wide) -> Explained:
    """Explain all: no value is new, and what is in question is only whether they make up the difference."""
    return Explained(np.zeros(golden.shape), np.ones(golden.shape, bool), golden != actual)
