"""The projections of two tensors: eight sums each, whose differences tell how far apart the elements are.

The root mean square of the eight differences estimates the l2norm of the difference of the tensors, with a
standard deviation of a quarter. It may be ``atol * sqrt(count) + rtol * scale``, which a tensor keeps whose
elements are each off by ``atol + rtol`` of themselves; the scale is the golden's l2norm, or where NaN or
infinities leave none the root mean square of its own projections, which estimates that of all other elements.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from pytest_npudump.compare.stats.numbers import LARGEST, ROUNDING, half_unit
from pytest_npudump.compare.stats.verdict import Reason
from pytest_npudump.dump.dtypes import is_exact
from pytest_npudump.dump.stats.signs import DIGITS
from pytest_npudump.dump.table import MEASURED, PROJECTIONS, STATISTICS

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from numpy.typing import NDArray

    from pytest_npudump.compare.stats.pairs import Pairs
    from pytest_npudump.compare.tolerances.tolerance import Rule, Tolerances
    from pytest_npudump.dump.table import StatsTable

_L2NORM = STATISTICS.index("l2norm")
_NO_MARKS = (
    "not compared until the golden is updated, as one of an earlier version knows no places of NaN and "
    "infinities beside zeros"
)
_LOST = "the golden has projections, the dump has none"


@dataclass(frozen=True, slots=True)
class ProjectionFindings:
    """What the projections of m pairs say.

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


def compare_projections(pairs: Pairs, tolerances: Tolerances) -> ProjectionFindings:
    """Judge the projections of tensors of as many elements.

    What only the golden tells fails, unless no tensor of the dump has projections; what only the dump tells
    is noted. A rule that is one-sided says nothing of projections, which have no side: that is noted too.

    Args:
        pairs: the m tensors.
        tolerances: the rules.
    """
    here, there = told(pairs.golden)[pairs.here], told(pairs.actual)[pairs.there]
    if not here.any() and not there.any():
        return ProjectionFindings(here, here)
    judged = _judged(pairs)
    reasons: dict[int, Reason] = {}
    one_sided = np.zeros_like(judged)
    found = _differences(pairs, judged)
    for row in np.flatnonzero(found.changed).tolist():
        allowed, rule = _allowed(pairs, row, found, tolerances)
        if rule.one_sided != "both":
            one_sided[row] = True
        elif not found.distance[row] <= allowed:
            reasons[row] = Reason(PROJECTIONS, 0.0, float(found.distance[row]), allowed, rule.describe())
    computed = told(pairs.actual).any()
    lost = np.flatnonzero(here & ~there & computed).tolist()
    reasons |= {row: Reason(PROJECTIONS, "known", None, None, _LOST) for row in lost}
    remarks = _remarks(
        pairs,
        (
            f"not compared, as no tensor of this dump has it but the golden does: {PROJECTIONS}",
            here & ~computed,
        ),
        (f"not compared, as the golden does not have it: {PROJECTIONS}", there & ~here),
        (f"not compared, as a one-sided rule is about them: {PROJECTIONS}", one_sided),
        (f"{_NO_MARKS}: {PROJECTIONS}", _without_marks(pairs) & here & there),
    )
    return ProjectionFindings(judged & ~one_sided, found.changed, reasons, tuple(remarks))


@dataclass(frozen=True, slots=True)
class Strayed:
    """Of k tensors, (k,) each, whose projections are not the golden's: how far off, and what they may be.

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
    """Measure how far projections are from the golden's.

    Args:
        pairs: the m tensors.
        tolerances: what they may differ by.
    """
    found = _differences(pairs, _judged(pairs))
    rows = np.flatnonzero(found.changed)
    allowed = np.array([_allowed(pairs, row, found, tolerances)[0] for row in rows.tolist()])
    return Strayed(rows, found.distance[rows], allowed, found.scale[rows])


def _judged(pairs: Pairs) -> NDArray[np.bool_]:
    """Pairs, (m,), of as many elements whose projections both sides tell."""
    alike = np.array([before in (None, now) for before, now in _counts(pairs)], dtype=np.bool_)
    return told(pairs.golden)[pairs.here] & told(pairs.actual)[pairs.there] & alike & ~_without_marks(pairs)


def _without_marks(pairs: Pairs) -> NDArray[np.bool_]:
    """Pairs, (m,), of masks in a golden of a version that projected all of their elements as 0."""
    sums = pairs.golden.projections
    if sums is None:
        return np.zeros(len(pairs.here), dtype=np.bool_)
    counts, known = pairs.golden.values[pairs.here, MEASURED:], pairs.golden.known[pairs.here, MEASURED:]
    return np.asarray((sums[pairs.here] == 0).all(axis=1) & (known & (counts > 0)).any(axis=1))


def _allowed(pairs: Pairs, row: int, found: _Differences, tolerances: Tolerances) -> tuple[float, Rule]:
    rule = pairs.rule(row, PROJECTIONS, tolerances)
    allowed = rule.rtol * found.scale[row] + rule.atol * found.root[row] + found.slack[row]
    return float(min(allowed, LARGEST)), rule


def _remarks(pairs: Pairs, *found: tuple[str, NDArray[np.bool_]]) -> Iterator[str]:
    for text, rows in found:
        if rows.any():
            first = pairs.key(int(np.argmax(rows)))
            yield f"{text} ({int(rows.sum())} tensors, first: {first})"


def told(table: StatsTable) -> NDArray[np.bool_]:
    """Rows of a table, (n,), that have projections."""
    return table.tells(PROJECTIONS)


def _counts(pairs: Pairs) -> Iterator[tuple[int | None, int | None]]:
    golden, actual = pairs.golden.counts, pairs.actual.counts
    for here, there in zip(pairs.here.tolist(), pairs.there.tolist(), strict=True):
        yield golden[here], actual[there]


@dataclass(frozen=True, slots=True)
class _Differences:
    """Of m pairs, (m,) each: how far apart, in which scale, and how much of that is rounding of the sums."""

    distance: NDArray[np.float64]
    scale: NDArray[np.float64]
    root: NDArray[np.float64]
    slack: NDArray[np.float64]
    changed: NDArray[np.bool_]


def _differences(pairs: Pairs, judged: NDArray[np.bool_]) -> _Differences:
    sides = [_sums(pairs.golden, pairs.here), _sums(pairs.actual, pairs.there)]
    golden, actual = (np.where(judged[:, np.newaxis], side, 0.0) for side in sides)
    scale = norms(pairs.golden)[pairs.here]
    printed = _printed_half(golden, [pairs.dtype(row) for row in range(len(judged))])
    root = np.sqrt([float(pairs.golden.counts[row] or 0) for row in pairs.here.tolist()])
    with np.errstate(all="ignore"):
        rounding = ROUNDING * scale
        same = (golden == actual) | (np.isnan(golden) & np.isnan(actual))
        away = np.where(same, 0.0, np.abs(actual - golden))
        away[np.isnan(away)] = np.inf
        close = away <= printed + rounding[:, np.newaxis]
        slack = root_mean_square(printed) + rounding
        return _Differences(root_mean_square(away), scale, root, slack, judged & ~close.all(axis=1))


def _sums(table: StatsTable, rows: NDArray[np.intp]) -> NDArray[np.float64]:
    if table.projections is None:
        return np.zeros((len(rows), 1))
    return table.projections[rows]


def printed_distance(table: StatsTable) -> NDArray[np.float64]:
    """What the digits of a golden's projections may make of a distance, (n,)."""
    if table.projections is None:
        return np.zeros(len(table))
    sums = np.where(told(table)[:, np.newaxis], table.projections, 0.0)
    return root_mean_square(_printed_half(sums, list(table.dtypes)))


def _printed_half(sums: NDArray[np.float64], dtypes: list[str]) -> NDArray[np.float64]:
    """Half a unit of the last digit that a golden prints of projections, (m, 8); 0 for integers."""
    digits = np.array([0 if is_exact(dtype) else DIGITS for dtype in dtypes])[:, np.newaxis]
    return half_unit(sums, np.broadcast_to(digits, sums.shape))


def norms(table: StatsTable) -> NDArray[np.float64]:
    """The scale of projections, (n,): the l2norm, or what the projections say of it where there is none."""
    norm = table.values[:, _L2NORM]
    usable = table.known[:, _L2NORM] & np.isfinite(norm)
    if table.projections is None:
        return np.where(usable, np.abs(norm), 0.0)
    finite = np.where(np.isfinite(table.projections), table.projections, 0.0)
    return np.where(usable, np.abs(norm), root_mean_square(finite))


def root_mean_square(rows: NDArray[np.float64]) -> NDArray[np.float64]:
    """Of each row; no square leaves the range of float64."""
    largest = np.abs(rows).max(axis=1, initial=0.0)
    divisor = np.where((largest > 0) & np.isfinite(largest), largest, 1.0)
    found = divisor * np.sqrt(np.square(rows / divisor[:, np.newaxis]).mean(axis=1))
    return np.asarray(found)
