"""What the elements of a tensor say, in words."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from pytest_npudump.compare.tensors.element_verdict import (
    BYTES,
    ELEMENTS,
    MAX_ABS,
    RELATIVE_L2,
    SPECIAL,
    specials,
)
from pytest_npudump.report import verdicts
from pytest_npudump.report.verdicts import COLUMNS, excess, number, worst

if TYPE_CHECKING:
    from pytest_npudump.compare.stats.verdict import Reason, Verdict
    from pytest_npudump.compare.tensors.difference import TensorDifference
    from pytest_npudump.compare.tensors.tensor_pair import Elements

_STATISTIC, _GOLDEN = COLUMNS.index("statistic"), COLUMNS.index("golden")
_DISTANCES = {MAX_ABS: "elements: max abs", RELATIVE_L2: "elements: relative_l2"}


def comparable(difference: TensorDifference) -> bool:
    """Whether any pair of elements has a distance: none has where each holds a NaN or an infinity."""
    return difference.special < difference.count


def cells(verdict: Verdict) -> tuple[str, ...]:
    """Return a failing verdict as cells of a table; a distance between elements has no golden value."""
    row = list(verdicts.row(verdict))
    reason = worst(verdict)
    if reason is not None and reason.statistic in _DISTANCES:
        row[_STATISTIC] = row[_STATISTIC].replace(reason.statistic, _DISTANCES[reason.statistic], 1)
        row[_GOLDEN] = "-"
    return tuple(row)


def sentence(verdict: Verdict, found: Elements | None) -> str:
    """Return a failing verdict as a sentence; ``found`` is what its elements said, None if nothing."""
    reason = worst(verdict)
    words = "" if reason is None or found is None else _words(reason, found.difference)
    told = verdicts.sentence(verdict)
    if words:
        return f"{told.partition(' differs: ')[0]} differs: {words}"
    difference = found.difference if found is not None else None
    if difference is None or not difference.outside or not comparable(difference):
        return told
    return f"{told}; elements: max abs {number(difference.max_abs)}, {_outside(difference)}"


def _words(reason: Reason, difference: TensorDifference | None) -> str:
    if reason.statistic == BYTES:
        return f"{reason.actual} of {str(reason.golden).removesuffix(' equal')} bytes".replace(" differ", "")
    if difference is None:
        return ""
    if reason.statistic == SPECIAL:
        return _special(difference)
    if reason.statistic == ELEMENTS:
        return f"elements must be equal, {reason.actual}"
    return _distance(reason, difference) if reason.statistic in _DISTANCES else ""


def _distance(reason: Reason, difference: TensorDifference) -> str:
    if reason.statistic == MAX_ABS:
        return f"elements: max abs {number(reason.actual)}{_times(reason)}, {_outside(difference)}"
    length = "the length of the difference by that of the golden"
    return f"elements: relative_l2, {length}, is {number(reason.actual)}{_times(reason)}"


def _outside(difference: TensorDifference) -> str:
    return f"{difference.outside} of {difference.count} outside"


def _times(reason: Reason) -> str:
    times = excess(reason)
    return f", {times:.3g} times the allowed difference" if math.isfinite(times) else ""


def _special(difference: TensorDifference) -> str:
    d = difference
    first = f"first at {list(d.first_special_different or ())}"
    golden, actual = specials(d.nan_golden, d.inf_golden), specials(d.nan_actual, d.inf_actual)
    if golden == "none":
        names = " and ".join(name for name, count in (("NaN", d.nan_actual), ("Inf", d.inf_actual)) if count)
        return f"{names} in {d.special_different} places where the golden has none, {first}"
    if actual == "none":
        return f"no NaN or Inf where the golden has {golden}, {first}"
    places = f"NaN or Inf differ in {d.special_different} places, {first}"
    return f"{places} (golden: {golden}; actual: {actual})"
