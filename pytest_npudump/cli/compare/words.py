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
from pytest_npudump.language.translation import gettext as _
from pytest_npudump.language.translation import mark
from pytest_npudump.report import verdicts
from pytest_npudump.report.verdicts import COLUMNS, excess, number, worst

if TYPE_CHECKING:
    from pytest_npudump.compare.stats.verdict import Reason, Verdict
    from pytest_npudump.compare.tensors.difference import TensorDifference
    from pytest_npudump.compare.tensors.tensor_pair import Elements

_STATISTIC, _GOLDEN = COLUMNS.index("statistic"), COLUMNS.index("golden")
_DISTANCES = {MAX_ABS: mark("elements: max abs"), RELATIVE_L2: mark("elements: relative_l2")}


def comparable(difference: TensorDifference) -> bool:
    """Whether any pair of elements has a distance: none has where each holds a NaN or an infinity."""
    return difference.special < difference.count


def cells(verdict: Verdict) -> tuple[str, ...]:
    """Return a failing verdict as cells of a table; a distance between elements has no golden value."""
    row = list(verdicts.row(verdict))
    reason = worst(verdict)
    if reason is not None and reason.statistic in _DISTANCES:
        row[_STATISTIC] = row[_STATISTIC].replace(reason.statistic, _(_DISTANCES[reason.statistic]), 1)
        row[_GOLDEN] = "-"
    return tuple(row)


def sentence(verdict: Verdict, found: Elements | None) -> str:
    """Return a failing verdict as a sentence; ``found`` is what its elements said, None if nothing."""
    reason = worst(verdict)
    words = "" if reason is None or found is None else _words(reason, found.difference)
    if words:
        return _("{place} differs: {words}{far}").format(place=verdicts.place(verdict), words=words, far="")
    told = verdicts.sentence(verdict)
    difference = found.difference if found is not None else None
    if difference is None or not difference.outside or not comparable(difference):
        return told
    return _("{told}; elements: max abs {max_abs}, {outside}").format(
        told=told, max_abs=number(difference.max_abs), outside=_outside(difference)
    )


def _words(reason: Reason, difference: TensorDifference | None) -> str:
    if reason.statistic == BYTES:
        return _("{differ} of {count} bytes").format(
            differ=str(reason.actual).removesuffix(" differ"),
            count=str(reason.golden).removesuffix(" equal"),
        )
    if difference is None:
        return ""
    if reason.statistic == SPECIAL:
        return _special(difference)
    if reason.statistic == ELEMENTS:
        return _("elements must be equal, {actual}").format(actual=reason.actual)
    return _distance(reason, difference) if reason.statistic in _DISTANCES else ""


def _distance(reason: Reason, difference: TensorDifference) -> str:
    if reason.statistic == MAX_ABS:
        return _("elements: max abs {actual}{far}, {outside}").format(
            actual=number(reason.actual), far=_times(reason), outside=_outside(difference)
        )
    length = _("the length of the difference by that of the golden")
    return _("elements: relative_l2, {length}, is {actual}{far}").format(
        length=length, actual=number(reason.actual), far=_times(reason)
    )


def _outside(difference: TensorDifference) -> str:
    return _("{outside} of {count} outside").format(outside=difference.outside, count=difference.count)


def _times(reason: Reason) -> str:
    times = excess(reason)
    return _(", {times:.3g} times the allowed difference").format(times=times) if math.isfinite(times) else ""


def _special(difference: TensorDifference) -> str:
    d = difference
    first = _("first at {index}").format(index=list(d.first_special_different or ()))
    golden, actual = specials(d.nan_golden, d.inf_golden), specials(d.nan_actual, d.inf_actual)
    if golden == "none":
        names = _(" and ").join(
            name for name, count in (("NaN", d.nan_actual), ("Inf", d.inf_actual)) if count
        )
        return _("{names} in {count} places where the golden has none, {first}").format(
            names=names, count=d.special_different, first=first
        )
    if actual == "none":
        return _("no NaN or Inf where the golden has {golden}, {first}").format(golden=golden, first=first)
    places = _("NaN or Inf differ in {count} places, {first}").format(count=d.special_different, first=first)
    return _("{places} (golden: {golden}; actual: {actual})").format(
        places=places, golden=golden, actual=actual
    )
