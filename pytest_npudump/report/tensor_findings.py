"""What the second run says of one tensor, in words."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_npudump.report.verdicts import number

if TYPE_CHECKING:
    from pytest_npudump.compare.tensors.describe import TensorDescription
    from pytest_npudump.compare.tensors.difference import TensorDifference
    from pytest_npudump.regression.outcome import Finding


def finding_lines(finding: Finding, *, worst: int) -> list[str]:
    """Describe one tensor; ``worst`` is the number of worst elements to list."""
    key = finding.key
    lines = []
    if finding.reproduced is False:
        pairs = ", ".join(
            f"{name} {number(first)} then {number(second)}"
            for name, (first, second) in finding.differences.items()
        )
        lines.append(f"  {key}: first and second run disagree: {pairs}")
    golden = (finding.difference, finding.pattern, "golden")
    for difference, pattern, side in (golden, (finding.reference, finding.reference_pattern, "reference")):
        if difference is not None:
            lines += [f"  {key}: {line}" for line in _difference_lines(difference, worst, side)]
        if pattern is not None:
            lines.append(f"  {key}: pattern: {pattern}")
    if finding.description is not None and finding.reference is None:
        lines.append(f"  {key}: {tensor_words(finding.description)}, {_NO_GOLDEN}")
    if finding.note:
        lines.append(f"  {key}: {finding.note}")
    return lines


def _difference_lines(difference: TensorDifference, worst: int, side: str) -> list[str]:
    d = difference
    measures = f"max abs {number(d.max_abs)}, max rel {number(d.max_rel)}, cosine {number(d.cosine)}"
    lines = [f"against the {side} tensor: {measures}, {100 * d.within:.4g} % of {d.count} within tolerance"]
    if not d.special_equal:
        lines.append(f"NaN or Inf differ: {d.special_text().replace('golden', side)}")
    lines += [
        f"worst at {list(e.index)}: {side} {number(e.golden)}, actual {number(e.actual)}"
        for e in d.worst[:worst]
    ]
    return lines


_NO_GOLDEN = "no golden tensor to compare with (golden_tensors=)"


def tensor_words(tensor: TensorDescription) -> str:
    """Return where the remarkable elements of a tensor lie."""
    parts = [f"{tensor.dtype} {list(tensor.shape)}"]
    if tensor.max_at is not None and tensor.min_at is not None:
        parts.append(f"max {number(tensor.max)} at {list(tensor.max_at)}")
        parts.append(f"min {number(tensor.min)} at {list(tensor.min_at)}")
    if tensor.first_nan is not None:
        parts.append(f"{tensor.nan} NaN, first at {list(tensor.first_nan)}")
    if tensor.first_inf is not None:
        parts.append(f"{tensor.pos_inf + tensor.neg_inf} Inf, first at {list(tensor.first_inf)}")
    return ", ".join(parts)
