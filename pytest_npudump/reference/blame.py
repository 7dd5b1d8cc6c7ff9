"""Is a difference from the reference the device's error, or its number format's?

Three things are compared: the device with the reference in float32, and the reference rounded to the device's
types after every operator, on the CPU, with the same. What a :class:`Rounding` explains is no difference, on
top of what two runs of the same numerics may differ by (as in PyTorch's ``multiplier * error + tolerance``).

A tensor that is farther off than :data:`USELESS` as a vector fails all the same. So does, where rounding
alone puts it as far off, one of which anything is farther off than :data:`FLAT`. At a cosine below 0.99 it
is not the reference's tensor, and to say so is not to say that the device computed wrongly.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

from pytest_npudump.compare.tensors.element_verdict import MAX_ABS, RELATIVE_L2, SPECIAL, with_failing
from pytest_npudump.dump.table import MEASURED, STATISTICS
from pytest_npudump.reference.rounding import FARTHEST

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pytest_npudump.compare.stats.verdict import Comparison, Reason, Verdict
    from pytest_npudump.compare.tolerances.tolerance import Tolerances
    from pytest_npudump.dump.records import TensorKey
    from pytest_npudump.reference.rounding import Rounding

USELESS = 0.14
"""Relative L2 distance at which the cosine is 0.99, the bound of msit and msprobe for a network."""

FLAT = 0.05
"""The other bound of msit and msprobe (preset ``om-net``), where rounding alone is beyond :data:`USELESS`."""

COUNTS = STATISTICS[MEASURED:]
"""Numbers of elements that are NaN, or infinite."""

DEVICE = "device"
DTYPE = "dtype"


@dataclass(frozen=True, slots=True)
class Blame:
    """Whose error a tensor's difference from the reference is.

    Attributes:
        key: which tensor.
        whose: :data:`DEVICE` or :data:`DTYPE`.
        statistic: what is farthest off.
        device: how far the device is off.
        rounding: how far rounding may have put it off, without any factor.
        relative: relative L2 distance of the rounded reference.
    """

    key: TensorKey
    whose: str
    statistic: str
    device: float
    rounding: float
    relative: float

    @property
    def ratio(self) -> float:
        """How many times as far off as rounding explains."""
        return self.device / self.rounding if self.rounding else math.inf

    def to_json(self) -> dict[str, Any]:
        """Return it as plain JSON data; an infinite ratio is null."""
        return {
            "key": str(self.key),
            "whose": self.whose,
            "statistic": self.statistic,
            "device": self.device,
            "rounding": self.rounding,
            "ratio": self.ratio if math.isfinite(self.ratio) else None,
            "rounding_relative_l2": self.relative,
        }


def by_rounding(
    comparison: Comparison, roundings: Mapping[TensorKey, Rounding], tolerances: Tolerances
) -> tuple[Comparison, tuple[Blame, ...]]:
    """Take from the verdicts what rounding explains, and say of the others whose error they are.

    Args:
        comparison: judged by bounds for the same numerics, and by rules.
        roundings: what rounding does to the counterparts of the tensors that fail.
        tolerances: those bounds and rules; what a rule decided stays.
    """
    tolerances = tolerances.for_layers_of(comparison.golden.keys, comparison.actual.keys)
    dtypes = dict(zip(comparison.golden.keys, comparison.golden.dtypes, strict=True))
    failing: list[Verdict] = []
    blames: list[Blame] = []
    for verdict in comparison.failing:
        rounding = roundings.get(verdict.key)
        if rounding is None or not verdict.reasons:
            failing.append(verdict)
            continue
        judged = [_judged(reason, rounding) for reason in verdict.reasons]
        rule = partial(_by_rule, verdict, dtypes.get(str(verdict.key), ""), tolerances)
        fixed = [rule(reason.statistic) for reason in verdict.reasons]
        reasons = [
            reason if by_rule else after
            for reason, by_rule, (after, _) in zip(verdict.reasons, fixed, judged, strict=True)
        ]
        kept = tuple(reason for reason in reasons if reason is not None)
        if kept:
            failing.append(replace(verdict, reasons=kept))
            if not any(fixed):
                whose = DTYPE if all(explained for _, explained in judged) else DEVICE
                blames.append(_blame(verdict.key, whose, kept, rounding))
    return with_failing(comparison, tuple(failing), len(failing) - len(comparison.failing)), tuple(blames)


def _by_rule(verdict: Verdict, dtype: str, tolerances: Tolerances, name: str) -> bool:
    """Whether a rule that somebody gave decides about a statistic, or the elements, and no preset."""
    statistic = "max" if name in (MAX_ABS, RELATIVE_L2) else name
    if statistic not in {"max", "min", "avg", "l2norm"}:
        return False
    decided = tolerances.decide(verdict.key.layer, dtype, statistic, op_type=verdict.op_type)
    return not decided.source.startswith("preset")


def _judged(reason: Reason, rounding: Rounding) -> tuple[Reason | None, bool]:
    """Return why a statistic still fails, None where it does not, and whether rounding explains it."""
    known, apart = rounding.of_statistic(reason.statistic), reason.difference
    if known is None or apart is None:
        return reason, _overflows(reason, rounding)
    error, scale = known
    floor, factor = reason.allowed or 0.0, rounding.factor(reason.statistic)
    allowed = floor + factor * error
    limit = _limit(reason.statistic, rounding)
    useless = max(limit * scale, floor) if math.isfinite(limit) else limit
    if abs(apart) <= min(allowed, useless):
        return None, True
    if abs(apart) > allowed:
        rule = f"{factor:g} x {error:.3g}, which rounding does on the CPU, beyond {reason.rule}"
        return replace(reason, allowed=allowed, rule=rule), False
    rule = f"rounding on the CPU does as much ({error:.3g}), and {100 * limit:.3g} % is the limit"
    return replace(reason, allowed=useless, rule=rule), True


def _overflows(reason: Reason, rounding: Rounding) -> bool:
    """Whether a reason is that there are NaN or infinities, and rounding makes about as many of them."""
    if reason.statistic in COUNTS:
        return abs(reason.difference or 0.0) <= FARTHEST * rounding.special
    return rounding.special > 0 and (
        reason.statistic == SPECIAL or rounding.of_statistic(reason.statistic) is not None
    )


def _limit(statistic: str, rounding: Rounding) -> float:
    """Return how far off its scale a statistic may be although rounding explains it.

    One element may be anything, as long as the tensor as a vector is the reference's.
    """
    if rounding.relative >= USELESS:
        return FLAT
    return USELESS if statistic in {"avg", "l2norm", RELATIVE_L2} else math.inf


def _blame(key: TensorKey, whose: str, reasons: tuple[Reason, ...], rounding: Rounding) -> Blame:
    """Describe a failing tensor by the statistic that is farthest from what rounding does."""
    measured = [
        (abs(reason.difference), known[0], reason.statistic)
        for reason in reasons
        if (known := rounding.of_statistic(reason.statistic)) is not None and reason.difference is not None
    ]
    if not measured:
        return Blame(key, whose, reasons[0].statistic, math.inf, 0.0, rounding.relative)
    apart, error, statistic = max(measured, key=lambda one: one[0] / one[1] if one[1] else math.inf)
    return Blame(key, whose, statistic, apart, error, rounding.relative)
