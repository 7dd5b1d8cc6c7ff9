"""Verdict of a tensor from its elements and its statistics.

A tensor passes only if both do, but for projections and lost hashes, which elements stand for. Of two
floating-point tensors two things are asked for, with the tolerance of the layer's extremes and their own
scale, the greatest finite magnitude of the golden tensor's elements:

* no element is farther off than its extremes may be: ``max_abs <= atol + rtol * scale``;
* the tensor as a vector is not farther off than each of its elements may be: ``relative_l2 <= rtol + atol *
  sqrt(count) / l2norm``. A permutation or a flipped sign of elements far below the scale shows here.

Of a scale that is a mask's, such as that of -1e9, the elements beside it are judged by the extreme beside it.

Asking that each element be within ``rtol`` of itself would fail on noise: the error of a sum is that of its
terms, however small the sum. The share that is so is a column of the report. NaN and infinities must be at
the same places. Types that are exact by the rules must be equal, as must bytes of types without values.
"""

from __future__ import annotations

import math
import sys
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from pytest_npudump.compare.stats.fingerprints import HASH_LOST
from pytest_npudump.compare.stats.numbers import masks
from pytest_npudump.compare.stats.tables import ATOL_ADVICE, BELOW_ATOL
from pytest_npudump.compare.stats.verdict import (
    CHECKSUM,
    FAIL,
    Comparison,
    Doubt,
    Reason,
    Verdict,
    first_divergence,
    origin_of,
)
from pytest_npudump.dump.table import EXTREMES, PROJECTIONS
from pytest_npudump.errors import said

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pytest_npudump.compare.tensors.difference import TensorDifference
    from pytest_npudump.compare.tensors.tensor_pair import PairElements
    from pytest_npudump.compare.tolerances.tolerance import Rule, Tolerances

    Array = np.ndarray[Any, np.dtype[Any]]


SPECIAL = said("NaN and Inf")
MAX_ABS = "max_abs"
RELATIVE_L2 = "relative_l2"
ELEMENTS = "elements"
BYTES = "bytes"
"""Findings of elements in :class:`Reason`."""

_EQUAL = said("exact match required")
_MOST = 0.5
_LOOSE = said(
    "most elements differ by more than rtol of their own value, and pass as a few large ones set the scale"
)


def with_elements(
    comparison: Comparison, elements: Mapping[int, PairElements], tolerances: Tolerances
) -> Comparison:
    """Return ``comparison`` with the findings of the elements.

    Args:
        comparison: the verdicts of the statistics.
        elements: findings by position in the comparison's alignment.
        tolerances: the rules that decide.
    """
    if not elements:
        return comparison
    tolerances = tolerances.for_layers_of(comparison.golden.keys, comparison.actual.keys)
    known = {verdict.key: verdict for verdict in comparison.failing}
    failing: list[Verdict] = []
    told: set[int] = set()
    small: dict[int, str] = {}
    loose: dict[int, str] = {}
    differing = set(comparison.differing)
    newly = 0
    before = comparison.golden
    lesser = np.abs(before.values[:, :EXTREMES]).min(axis=1).tolist()
    of_golden = comparison.alignment.golden.tolist()
    for position, (key, op_type) in enumerate(comparison.aligned_keys()):
        found, verdict = elements.get(position), known.get(key)
        reasons: tuple[Reason, ...] = ()
        if found is not None and (found.difference is not None or found.unequal_bytes is not None):
            row = of_golden[position]
            rule = tolerances.element_rule(key.layer, before.dtypes[row], before.keys[row], op_type)
            turned = tolerances.turned(rule, before.keys[row])
            reasons = element_reasons(found, rule, turned, lesser[row])
            told.add(position)
            rest = _without_estimates(verdict)
            if verdict is not None and rest is None:
                newly -= 1
                differing.discard(position)
            verdict = rest
            if reasons or (_differ(found) and position not in comparison.unsteady):
                differing.add(position)
            if not reasons and found.difference is not None:
                if found.difference.max_abs > 0 and 0 < found.difference.magnitude <= rule.atol:
                    small[position] = str(key)
                elif bool(found.difference.rtol or found.difference.atol) and found.difference.within < _MOST:
                    loose[position] = str(key)
        if reasons and verdict is None:
            newly += 1
            verdict = Verdict(key, op_type, FAIL)
        if verdict is not None:
            failing.append(replace(verdict, reasons=_in_order(verdict.reasons, reasons)))
    doubts = [one.without(told) for one in comparison.doubts]
    doubts += [Doubt(BELOW_ATOL, small, frozenset(), ATOL_ADVICE), Doubt(_LOOSE, loose, frozenset())]
    summed = with_failing(comparison, tuple(failing), newly)
    kept = tuple(doubt for doubt in doubts if doubt.keys)
    noise = comparison.within_noise - differing
    return replace(summed, doubts=kept, differing=frozenset(differing), within_noise=noise)


def _without_estimates(verdict: Verdict | None) -> Verdict | None:
    """Leave out projections, checksums, lost hashes: elements tell more; None where nothing else fails."""
    if verdict is None:
        return None
    estimates = {PROJECTIONS, CHECKSUM}
    reasons = tuple(
        one for one in verdict.reasons if one.statistic not in estimates and one.rule != HASH_LOST
    )
    if len(reasons) == len(verdict.reasons):
        return verdict
    return replace(verdict, reasons=reasons) if reasons else None


def _differ(found: PairElements) -> bool:
    """Return whether any element is not the golden's; a zero is one of either sign."""
    difference = found.difference
    return bool(found.unequal_bytes) or (difference is not None and difference.max_abs > 0)


def _in_order(statistics: tuple[Reason, ...], elements: tuple[Reason, ...]) -> tuple[Reason, ...]:
    """Put NaN before their effects on the statistics, so that reports show these first."""
    special = tuple(reason for reason in elements if reason.statistic == SPECIAL)
    return (*special, *statistics, *elements[len(special) :])


def with_failing(comparison: Comparison, failing: tuple[Verdict, ...], newly: int) -> Comparison:
    """Return a comparison with other failing verdicts, ``newly`` more of tensors that both sides have."""
    first = first_divergence(failing)
    shared = comparison.alignment.golden[comparison.alignment.both]
    keys = (comparison.golden.keys[row] for row in shared.tolist())
    return replace(
        comparison,
        failing=failing,
        passed=comparison.passed - newly,
        first=first,
        origin=origin_of(first, keys),
    )


def element_reasons(
    found: PairElements, rule: Rule, share: float = 1.0, beside: float = math.inf
) -> tuple[Reason, ...]:
    """Return the reasons for which the elements of a tensor fail; empty where they do not.

    Args:
        found: how far they are off.
        rule: that decides.
        share: of the elements that may be off by its ``atol``.
        beside: the lesser magnitude of the golden's extremes, beside a mask's.
    """
    if found.unequal_bytes:
        size = found.golden.payload.nbytes if found.golden and found.golden.payload else 0
        return (Reason(BYTES, f"{size} equal", f"{found.unequal_bytes} differ", None, _EQUAL),)
    difference = found.difference
    if difference is None:
        return ()
    reasons = []
    if not difference.special_equal:
        reasons.append(_special(difference))
    if not rule.rtol and not rule.atol:
        reasons += _unequal(difference, rule)
    else:
        reasons += _distant(difference, rule, share, beside)
    return tuple(reasons)


def _special(difference: TensorDifference) -> Reason:
    d = difference
    golden, actual = specials(d.nan_golden, d.inf_golden), specials(d.nan_actual, d.inf_actual)
    places = (
        said(", {count} places differ", count=d.special_different) if d.nan_golden or d.inf_golden else ""
    )
    found = said(
        "{values}{places}, first at {index}",
        values=actual,
        places=places,
        index=list(d.first_special_different or ()),
    )
    return Reason(SPECIAL, golden, found, None, said("must be at the same places"))


def specials(nan: int, infinite: int) -> str:
    """Numbers of NaN and infinities in words: ``12 NaN, 3 Inf``, ``3 Inf``, ``none``."""
    counts = ((nan, "NaN"), (infinite, "Inf"))
    return ", ".join(f"{number} {name}" for number, name in counts if number) or "none"


def _unequal(difference: TensorDifference, rule: Rule) -> list[Reason]:
    differ = difference.outside - difference.special_different
    if differ <= 0:
        return []
    at = said(
        "{differ} of {count} differ, by {max_abs:.6g} at most",
        differ=differ,
        count=difference.count,
        max_abs=difference.max_abs,
    )
    return [Reason(ELEMENTS, "equal", at, None, rule.describe())]


def _distant(difference: TensorDifference, rule: Rule, share: float, beside: float) -> list[Reason]:
    found: list[tuple[str, float, float]] = []
    if not difference.max_abs:
        return []
    scale, max_abs = min(difference.magnitude, sys.float_info.max), float(difference.max_abs)
    if max_abs <= rule.atol + rule.rtol * scale and masks(np.array(scale), beside):
        near = (one for one in difference.worst if math.isfinite(one.abs))
        rest = [one for one in near if masks(np.array(scale), abs(one.golden))]
        scale = max(1.0, beside, *(abs(one.golden) for one in rest))
        max_abs = max((float(one.abs) for one in rest), default=0.0)
    allowed = rule.atol + rule.rtol * scale
    if max_abs > allowed:
        found.append((MAX_ABS, max_abs, allowed))
    slack = rule.atol * math.sqrt(share * difference.count) / difference.norm if difference.norm else 0.0
    if math.isfinite(difference.relative_l2) and difference.relative_l2 > rule.rtol + slack:
        found.append((RELATIVE_L2, difference.relative_l2, rule.rtol + slack))
    words = rule.describe() if found else ""
    return [Reason(name, 0.0, value, most, words) for name, value, most in found]
