"""What the second run says of one tensor, in words."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_npudump.language.translation import gettext as _
from pytest_npudump.language.translation import mark, spoken
from pytest_npudump.report.verdicts import PROJECTIONS, number, numbers

if TYPE_CHECKING:
    from pytest_npudump.compare.tensors.describe import TensorDescription
    from pytest_npudump.compare.tensors.difference import TensorDifference
    from pytest_npudump.regression.outcome import Finding


def _disagreement(name: str, first: object, second: object) -> str:
    if name == PROJECTIONS and first == 0:  # what the second is, is how far off the elements are
        return _("{name} off by roughly {distance:.2g}").format(name=name, distance=second)
    first, second = numbers(first, second)
    return _("{name} {first} then {second}").format(name=name, first=first, second=second)


def finding_lines(finding: Finding, *, worst: int) -> list[str]:
    """Describe one tensor; ``worst`` is the number of worst elements to list."""
    key = finding.key
    lines = []
    if finding.differences:
        pairs = ", ".join(_disagreement(name, *pair) for name, pair in finding.differences.items())
        lines.append(_("  {key}: first and second run disagree: {pairs}").format(key=key, pairs=pairs))
    golden = (finding.difference, finding.pattern, mark("golden"))
    for difference, pattern, side in (
        golden,
        (finding.reference, finding.reference_pattern, mark("reference")),
    ):
        if difference is not None:
            lines += [f"  {key}: {line}" for line in _difference_lines(difference, worst, side)]
        if pattern is not None:
            lines.append(_("  {key}: pattern: {pattern}").format(key=key, pattern=spoken(str(pattern))))
    if finding.description is not None and finding.reference is None:
        lines.append(f"  {key}: {tensor_words(finding.description)}, {_(_NO_GOLDEN)}")
    if finding.note:
        lines.append(f"  {key}: {spoken(finding.note)}")
    return lines


def _difference_lines(difference: TensorDifference, worst: int, side: str) -> list[str]:
    d = difference
    measures = _("max abs {max_abs}, max rel {max_rel}, cosine {cosine}").format(
        max_abs=number(d.max_abs), max_rel=number(d.max_rel), cosine=number(d.cosine)
    )
    words = _(side)
    lines = [
        _("against the {side} tensor: {measures}, {share:.4g} % of {count} within tolerance").format(
            side=words, measures=measures, share=100 * d.within, count=d.count
        )
    ]
    if not d.special_equal:
        lines.append(_("NaN or Inf differ: {words}").format(words=d.special_text().replace("golden", words)))
    lines += [
        _("worst at {index}: {side} {golden}, actual {actual}").format(
            index=list(e.index), side=words, golden=golden, actual=actual
        )
        for e in d.worst[:worst]
        for golden, actual in (numbers(e.golden, e.actual),)
    ]
    return lines


_NO_GOLDEN = mark("no golden tensor to compare with (golden_tensors=)")


def tensor_words(tensor: TensorDescription) -> str:
    """Return where the remarkable elements of a tensor lie."""
    parts = [f"{tensor.dtype} {list(tensor.shape)}"]
    if tensor.max_at is not None and tensor.min_at is not None:
        parts.append(_("max {max} at {max_at}").format(max=number(tensor.max), max_at=list(tensor.max_at)))
        parts.append(_("min {min} at {min_at}").format(min=number(tensor.min), min_at=list(tensor.min_at)))
    if tensor.first_nan is not None:
        parts.append(
            _("{nan} NaN, first at {first_nan}").format(nan=tensor.nan, first_nan=list(tensor.first_nan))
        )
    if tensor.first_inf is not None:
        parts.append(
            _("{inf} Inf, first at {first_inf}").format(
                inf=tensor.pos_inf + tensor.neg_inf, first_inf=list(tensor.first_inf)
            )
        )
    return ", ".join(parts)
