"""Fingerprints of all elements of a tensor: projections, and hashes where the producer computed them.

Projections are eight sums, whose differences tell how far apart the elements are. The root mean square of the
eight differences estimates the l2norm of the difference of the tensors, with a standard deviation of a
quarter. It may be ``atol * sqrt(count) + rtol * scale``, which a tensor keeps whose elements are each off by
``atol + rtol`` of themselves; the scale is the golden's l2norm, or where NaN or infinities leave none the
root mean square of its own projections, which estimates that of all other elements. Hashes tell whether all
bits are equal.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from pytest_npudump.compare.stats.numbers import LARGEST, ROUNDING, Pairs, half_unit
from pytest_npudump.compare.stats.verdict import CHECKSUM, Reason
from pytest_npudump.dump import records
from pytest_npudump.dump.dtypes import is_exact
from pytest_npudump.dump.records import ARGMAX, BESIDE_MASK, CHECKSUM_LENGTH, WEIGHED
from pytest_npudump.dump.stats.compact_projections import FINE, doubts, steps, sums_of
from pytest_npudump.dump.stats.signs import DIGITS
from pytest_npudump.dump.table import EXTREMES, MEASURED, PROJECTIONS, STATISTICS, StatsTable
from pytest_npudump.errors import said

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from numpy.typing import NDArray

    from pytest_npudump.compare.tolerances.tolerance import Rule, Tolerances


_L2NORM = STATISTICS.index("l2norm")
_NO_MARKS = (
    "not compared until the golden is updated, as one of an earlier version knows no places of NaN and "
    "infinities beside zeros"
)
_NONE = "not compared, as no tensor of this dump has it but the golden does"
_UNTOLD = "not compared, as the golden has it and the device computes none"


@dataclass(frozen=True, slots=True)
class ProjectionFindings:
    """Findings on the projections of m pairs.

    Attributes:
        judged: (m,), those whose projections both sides tell, and a rule judges.
        changed: (m,), those of them whose projections are not the golden's, to the digits of a golden.
        reasons: why some fail, by position.
        remarks: what was not compared.
    """

    judged: NDArray[np.bool_]
    changed: NDArray[np.bool_]
    reasons: Mapping[int, Reason] = field(default_factory=dict)
    remarks: tuple[str, ...] = ()


def compare_projections(pairs: Pairs, tolerances: Tolerances, found: Distances) -> ProjectionFindings:
    """Judge the projections of tensors of as many elements.

    What only the golden tells fails where the run's statistics were computed from elements, as of some of its
    tensors projections were; what a device printed is noted, as is what only the dump tells. A rule that is
    one-sided says nothing of projections, which have no side: that is noted too.

    Args:
        pairs: the m tensors.
        tolerances: the rules.
        found: how far they are apart.
    """
    here, there = pairs.projected()
    if not here.any() and not there.any():
        return ProjectionFindings(here, here)
    reasons: dict[int, Reason] = {}
    one_sided = np.zeros_like(found.judged)
    for row in np.flatnonzero(found.changed).tolist():
        allowed, rule = _allowed(pairs, row, found, tolerances)
        if rule.one_sided != "both":
            one_sided[row] = True
        elif not found.distance[row] <= allowed:
            reasons[row] = Reason(PROJECTIONS, 0.0, float(found.distance[row]), allowed, rule.describe())
    some, lost = bool(pairs.actual.tells(PROJECTIONS).any()), here & ~there
    computed = some & ((pairs.actual.digits[pairs.there] == 0) | pairs.actual.summed)
    reasons |= {
        row: Reason(PROJECTIONS, "known", None, None, "the golden has projections, the dump has none")
        for row in np.flatnonzero(lost & computed).tolist()
    }
    remarks = _remarks(
        pairs,
        (
            f"{_UNTOLD if some else _NONE}: {PROJECTIONS}",
            lost & ~computed,
        ),
        (f"not compared, as the golden does not have it: {PROJECTIONS}", there & ~here),
        (f"not compared, as a one-sided rule is about them: {PROJECTIONS}", one_sided),
        (f"{_NO_MARKS}: {PROJECTIONS}", _without_marks(pairs) & here & there),
    )
    return ProjectionFindings(found.judged & ~one_sided, found.changed, reasons, tuple(remarks))


@dataclass(frozen=True, slots=True)
class Strayed:
    """Distances of k tensors, (k,) each, whose projections are not the golden's, with their tolerances.

    Attributes:
        rows: positions among the pairs.
        distance: estimate of the l2norm of the difference.
        allowed: the most that passes.
        scale: the golden's l2norm; 0 for none.
    """

    rows: NDArray[np.intp]
    distance: NDArray[np.float64]
    allowed: NDArray[np.float64]
    scale: NDArray[np.float64]


def strayed_projections(pairs: Pairs, tolerances: Tolerances) -> Strayed:
    """Measure the distance of projections from the golden's.

    Args:
        pairs: the m tensors.
        tolerances: what they may differ by.
    """
    found = Distances.of(pairs)
    rows = np.flatnonzero(found.changed)
    allowed = np.array([_allowed(pairs, row, found, tolerances)[0] for row in rows.tolist()])
    return Strayed(rows, found.distance[rows], allowed, found.scale[rows])


def distances(pairs: Pairs) -> NDArray[np.float64]:
    """Return the largest l2norm of the difference that projections allow for, (m,); NaN without these."""
    found = Distances.of(pairs)
    return np.where(found.judged, np.where(found.changed, found.distance + found.slack, 0.0), np.nan)


def _judged(pairs: Pairs) -> NDArray[np.bool_]:
    """Return a mask of pairs, (m,), of as many elements with projections on both sides."""
    golden, actual = pairs.golden.counts, pairs.actual.counts
    rows = zip(pairs.here.tolist(), pairs.there.tolist(), strict=True)
    alike = np.array([golden[here] in (None, actual[there]) for here, there in rows], dtype=np.bool_)
    return np.logical_and(*pairs.projected()) & alike & ~_without_marks(pairs)


def _without_marks(pairs: Pairs) -> NDArray[np.bool_]:
    """Pairs, (m,), of masks in a golden of a version that projected all of their elements as 0."""
    sums = sums_at(pairs.golden, pairs.here)
    counts, known = pairs.golden.values[pairs.here, MEASURED:], pairs.golden.known[pairs.here, MEASURED:]
    return np.asarray((sums == 0).all(axis=1) & (known & (counts > 0)).any(axis=1))


def _allowed(pairs: Pairs, row: int, found: Distances, tolerances: Tolerances) -> tuple[float, Rule]:
    rule = pairs.rule(row, PROJECTIONS, tolerances)
    allowed = rule.rtol * found.scale[row] + rule.atol * found.root[row]
    # Only what the digits tell apart is compared: without a tolerance all of that fails.
    return float(min(allowed + found.slack[row] if allowed else 0.0, LARGEST)), rule


def _remarks(pairs: Pairs, *found: tuple[str, NDArray[np.bool_]]) -> Iterator[str]:
    for text, rows in found:
        if rows.any():
            first = pairs.key(int(np.argmax(rows)))
            yield said(
                "{text} (tensors: {count}, first: {first})", text=text, count=int(rows.sum()), first=first
            )


@dataclass(frozen=True, slots=True)
class Distances:
    """Distances of m pairs by their projections, whatever they may be, (m,) each.

    Attributes:
        judged: pairs of as many elements with projections on both sides; of others nothing else counts.
        distance: estimate of the l2norm of the difference.
        scale: the golden's l2norm; 0 for none.
        root: square root of the number of elements.
        slack: the part that is rounding of the sums.
        changed: pairs whose projections are not the golden's, to the digits of a golden.
    """

    judged: NDArray[np.bool_]
    distance: NDArray[np.float64]
    scale: NDArray[np.float64]
    root: NDArray[np.float64]
    slack: NDArray[np.float64]
    changed: NDArray[np.bool_]

    @classmethod
    def of(cls, pairs: Pairs) -> Distances:
        """Measure the distances of pairs."""
        judged, sides = _judged(pairs), ((pairs.golden, pairs.here), (pairs.actual, pairs.there))
        golden, actual = (np.where(judged[:, np.newaxis], sums_at(*side), 0.0) for side in sides)
        scale = norms(pairs.golden)[pairs.here]
        dtypes = [pairs.dtype(row) for row in range(len(judged))]
        printed = _printed_half(golden, dtypes, summed=pairs.golden.summed)
        alike = pairs.golden.summed and pairs.actual.summed
        if pairs.actual.summed:
            printed = printed + _printed_half(actual, dtypes, summed=True)
        root = np.sqrt([float(pairs.golden.counts[row] or 0) for row in pairs.here.tolist()])
        with np.errstate(all="ignore"):
            rounding = ROUNDING * scale
            same = (golden == actual) | (np.isnan(golden) & np.isnan(actual))
            away = np.where(same, 0.0, np.abs(actual - golden))
            away[np.isnan(away)] = np.inf
            close = away <= (0.0 if alike else printed) + rounding[:, np.newaxis]
            summed = pairs.golden.summed or pairs.actual.summed
            fine = slice(FINE if summed else None)
            slack = root_mean_square(printed[:, fine]) + rounding
            distance = apart(away, printed, summed=summed)
            return cls(judged, distance, scale, root, slack, judged & ~close.all(axis=1))


def apart(
    away: NDArray[np.float64], printed: NDArray[np.float64] | float, *, summed: bool
) -> NDArray[np.float64]:
    """The distances, (m,), that differences of projections, (m, 8), estimate.

    Args:
        away: the differences, not negative.
        printed: what they are rounded to.
        summed: whether some of them are rounded so much that they only tell that places were changed.
    """
    if not summed:
        return root_mean_square(away)
    coarse = np.maximum(away - printed, 0.0)[:, FINE:]
    every = np.hstack([away[:, :FINE], np.where(np.isnan(coarse), np.inf, coarse)])
    return np.maximum(root_mean_square(away[:, :FINE]), root_mean_square(every))


def sums_at(table: StatsTable, rows: NDArray[np.intp]) -> NDArray[np.float64]:
    """Return the projections of rows, a row of zeros for each where a table has none."""
    return np.zeros((len(rows), 1)) if table.projections is None else table.projections[rows]


def printed_distance(table: StatsTable) -> NDArray[np.float64]:
    """Return the distance that the digits of a golden's projections may make, (n,)."""
    if table.projections is None:
        return np.zeros(len(table))
    sums = np.where(table.tells(PROJECTIONS)[:, np.newaxis], table.projections, 0.0)
    half = _printed_half(sums, list(table.dtypes), summed=table.summed)
    return root_mean_square(half[:, :FINE] if table.summed else half)


def _printed_half(sums: NDArray[np.float64], dtypes: list[str], *, summed: bool) -> NDArray[np.float64]:
    """Half a unit of the last digit that a table prints of projections, (m, 8); 0 for integers."""
    if summed:
        whole = np.array([is_exact(dtype) for dtype in dtypes], np.bool_)[:, np.newaxis] & (steps(sums) <= 1)
        return np.where(whole, 0.0, doubts(sums))
    digits = np.array([0 if is_exact(dtype) else DIGITS for dtype in dtypes])[:, np.newaxis]
    return half_unit(sums, np.broadcast_to(digits, sums.shape))


def norms(table: StatsTable) -> NDArray[np.float64]:
    """Return the scale of projections, (n,): the l2norm, or their own estimate where there is none."""
    norm = table.values[:, _L2NORM]
    usable = table.known[:, _L2NORM] & np.isfinite(norm)
    if table.projections is None:
        return np.where(usable, np.abs(norm), 0.0)
    finite = np.where(np.isfinite(table.projections), table.projections, 0.0)
    return np.where(usable, np.abs(norm), root_mean_square(finite))


def root_mean_square(rows: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the root mean square of each row; no square leaves the range of float64."""
    largest = np.abs(rows).max(axis=1, initial=0.0)
    divisor = np.where((largest > 0) & np.isfinite(largest), largest, 1.0)
    found = divisor * np.sqrt(np.square(rows / divisor[:, np.newaxis]).mean(axis=1))
    return np.asarray(found)


_ALONE = said("exact match required, as no finite max, min, avg or l2norm is on both sides")
HASH_LOST = said("the golden has a hash, the dump has none")
_FAR = said("exact match required, as the elements there are by far the largest of their rows")
_UNLIKE = 8.0
"""How much farther apart projections by factors are than plain ones where these do not see a change."""
_LOOSE = 0.25
"""The share of a tensor's magnitude beyond which a rule lets its largest element be anywhere."""


@dataclass(frozen=True, slots=True)
class Digests:
    """Findings on the hashes of n pairs.

    Attributes:
        equal: (n,), those with a hash on both sides of which none differs: all bits are equal.
        differ: (n,), those with a hash that differs.
        changed: (n,), those, and those with a checksum that differs.
        reasons: why some of these fail, by position.
        remarks: which hashes were not compared.
    """

    equal: NDArray[np.bool_]
    differ: NDArray[np.bool_]
    changed: NDArray[np.bool_]
    reasons: Mapping[int, Reason]
    remarks: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Hashes:
    """Hashes of pairs, whatever differences may be allowed.

    Attributes:
        rows: pairs that have any, on either side.
        golden, actual: theirs, by kind.
        largest: of pairs whose elements that are by far the largest are elsewhere: the places on both sides.
        beside: of pairs with other projections beside a mask or by factors: their distance, the golden's
            scale, what of the distance may be rounding, and whether they are beside a mask.
        unequal: of pairs of one type whose checksums differ: these.
    """

    rows: Sequence[int]
    golden: Sequence[Mapping[str, str]]
    actual: Sequence[Mapping[str, str]]
    largest: Mapping[int, tuple[str, str]]
    beside: Mapping[int, tuple[float, float, float, bool]]
    unequal: Mapping[int, tuple[str, str]]

    @classmethod
    def of(cls, pairs: Pairs) -> Hashes:
        """Read the hashes of pairs."""
        held = _held(pairs.golden)[pairs.here] | _held(pairs.actual)[pairs.there]
        rows = np.flatnonzero(held).tolist()
        sides = [_parts(pairs.golden, pairs.here[held]), _parts(pairs.actual, pairs.there[held])]
        largest, beside, unequal = (dict[int, tuple[str, str]]() for _ in range(3))
        for row, *parts in zip(rows, *sides, strict=True):
            texts = [part.pop(ARGMAX, "") for part in parts]
            if texts[0] == texts[1] or "" in texts:
                continue
            (summed, golden, after), (other, actual, there) = map(_split, texts)
            alike = pairs.golden.dtypes[pairs.here[row]] == pairs.actual.dtypes[pairs.there[row]]
            if summed != other and summed and other and alike:
                unequal[row] = summed, other
            if golden != actual and golden and actual:
                largest[row] = golden, actual
            if after != there and after[:1] == there[:1]:
                beside[row] = after, there
        return cls(
            rows,
            sides[0],
            sides[1],
            largest,
            dict(zip(beside, _beside([*beside.values()]), strict=True)),
            unequal,
        )


def _beside(texts: Sequence[tuple[str, str]]) -> Iterator[tuple[float, float, float, bool]]:
    if not texts:
        return
    golden, actual = (sums_of([one[1:] for one in side]) for side in zip(*texts, strict=True))
    printed = doubts(golden) + doubts(actual)
    distance = apart(np.abs(actual - golden), printed, summed=True).tolist()
    scale, slack = (root_mean_square(one).tolist() for one in (golden, printed[:, :FINE]))
    yield from zip(distance, scale, slack, (one.startswith(BESIDE_MASK) for one, _ in texts), strict=True)


def compare_digests(
    pairs: Pairs, judged: NDArray[np.bool_], tolerances: Tolerances, found: Distances, hashes: Hashes
) -> Digests:
    """Compare hashes of one kind.

    A hash that differs fails a tensor that has to be equal by its rule, and one that nothing else is known
    of. Elsewhere bits may differ as long as the statistics agree within tolerance. A hash that only the
    golden has fails its tensor, unless no tensor of the dump has one of that kind and other values decide.
    Elements that are by far the largest of their rows have to be at the same places where both sides have
    such. Projections by factors fail a tensor whose plain ones tell nothing of as much: noise is in both.
    Checksums fail integers and bools whose projections no rule allows to differ, and none did when recorded.

    Args:
        pairs: the n tensors.
        judged: (n, 7), which statistics are compared.
        tolerances: the rules.
        found: how far plain projections are apart.
        hashes: of the tensors.
    """
    equal, differ = np.zeros((2, len(pairs.here)), dtype=np.bool_)
    reasons: dict[int, Reason] = {}
    changed = np.zeros_like(differ)
    changed[[*hashes.unequal]] = True
    rows, sides = hashes.rows, (hashes.golden, hashes.actual)
    if not rows:
        return Digests(equal, differ, changed, reasons)
    for row in sorted({*hashes.largest, *hashes.beside}):
        rule = pairs.rule(row, PROJECTIONS, tolerances)
        scale = np.abs(pairs.golden.values[pairs.here[row], :EXTREMES]).max()
        loose = rule.rtol * scale + rule.atol > _LOOSE * scale
        if row in hashes.largest and not loose:
            one, other = (int(told) if told.isdecimal() else told for told in hashes.largest[row])
            reasons[row] = Reason(ARGMAX, one, other, None, _FAR)
        elif row in hashes.beside:
            reason = _off_beside(pairs, row, hashes.beside[row], rule, found)
            if reason is not None:
                reasons[row] = reason
    for row, told in hashes.unequal.items():
        rule = pairs.rule(row, PROJECTIONS, tolerances)
        strict = not (rule.rtol or rule.atol) and rule.one_sided == "both"
        if strict and not (tolerances.measured and tolerances.measured.varies(pairs.key(row))):
            reasons.setdefault(row, Reason(CHECKSUM, *told, None, rule.describe()))
    approved, computed = (frozenset[str]().union(*side) for side in sides)
    finite = np.isfinite(pairs.golden.values[pairs.here])
    measured: NDArray[np.bool_] = np.asarray((judged & finite)[:, :MEASURED].any(axis=1))
    for row, golden, actual in zip(rows, *sides, strict=True):
        shared = golden.keys() & actual.keys()
        different = sorted(name for name in shared if golden[name] != actual[name])
        equal[row], differ[row] = bool(shared) and not different, bool(different)
        rule = pairs.rule(row, "max", tolerances)
        decides = not measured[row] or not (rule.rtol or rule.atol)
        unmet = decides and not shared and not found.judged[row]
        if different:
            name = different[0]
            if decides:
                words = rule.describe() if measured[row] else _ALONE
                reasons.setdefault(row, Reason(name, golden[name], actual[name], None, words))
        elif lost := sorted(golden.keys() - shared if unmet else (golden.keys() & computed) - shared):
            reasons[row] = Reason(lost[0], golden[lost[0]], None, None, HASH_LOST)
    blind = [row for row in np.flatnonzero(equal | differ).tolist() if not measured[row]]
    bare = [
        row
        for row, golden, actual in zip(rows, *sides, strict=True)
        if actual.keys() & approved - golden.keys()
    ]
    lost_kinds, new_kinds = (", ".join(sorted(one)) for one in (approved - computed, computed - approved))
    remarks = (
        said("not compared, as no tensor of this dump has it but the golden does: {names}", names=lost_kinds)
        if lost_kinds
        else "",
        f"not compared, as no tensor of the golden has it: {new_kinds}" if new_kinds else "",
        said(
            "compared by hash alone: equal or not, not how close (tensors: {count}, first: {first})",
            count=len(blind),
            first=pairs.key(blind[0]),
        )
        if blind
        else "",
        said(
            "hash not compared, as the golden does not have it (tensors: {count}, first: {first})",
            count=len(bare),
            first=pairs.key(bare[0]),
        )
        if bare
        else "",
    )
    return Digests(equal, differ, changed | differ, reasons, tuple(filter(None, remarks)))


def _held(table: StatsTable) -> NDArray[np.bool_]:
    """Return which rows, (n,), have a hash."""
    known, count = table.digests, len(table)
    return np.fromiter(map(bool, known), np.bool_, count) if known else np.zeros(count, np.bool_)


def _split(text: str) -> tuple[str, str, str]:
    """Split a text of :data:`ARGMAX` into checksum, places and, with what they begin with, projections."""
    checksum = text[:CHECKSUM_LENGTH] if text.startswith(records.CHECKSUM) else ""
    text = text.removeprefix(checksum)
    at = min((at for at, one in enumerate(text) if one in {BESIDE_MASK, WEIGHED}), default=len(text))
    return checksum, text[:at], text[at:]


def _off_beside(
    pairs: Pairs, row: int, told: tuple[float, float, float, bool], rule: Rule, found: Distances
) -> Reason | None:
    """Judge projections of what is beside a mask or by factors, as plain ones; None where they pass."""
    distance, scale, slack, beside_mask = told
    plain = found.distance[row] if found.judged[row] else math.inf
    least = 0.0 if beside_mask else _UNLIKE * plain
    root = math.sqrt(pairs.golden.counts[pairs.here[row]] or 0)
    allowed = rule.rtol * scale + rule.atol * root + slack
    within = distance <= max(allowed, least) or rule.one_sided != "both"
    return None if within else Reason(PROJECTIONS, 0.0, distance, allowed, rule.describe())


def _parts(table: StatsTable, rows: NDArray[np.intp]) -> list[dict[str, str]]:
    """Hashes by their kind, of each of the ``rows``."""
    if not table.digests:
        return [{} for _ in rows]
    return [dict(part.split(":", 1) for part in table.digests[row].split()) for row in rows.tolist()]
