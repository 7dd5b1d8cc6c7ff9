"""What the scenes found, in words."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_npudump.report.elements import tensor_words
from pytest_npudump.report.verdicts import number
from pytest_npudump.scenes.overflow import Overflow
from pytest_npudump.scenes.watcher import Trampling

if TYPE_CHECKING:
    from pytest_npudump.outcome import SceneFinding


def finding_sentence(finding: SceneFinding) -> str:
    """Return one finding as a sentence, the operator first."""
    if isinstance(finding, Trampling):
        return _trampling(finding)
    if isinstance(finding, Overflow):
        return _overflow(finding)
    raise TypeError(finding)


def finding_details(finding: SceneFinding) -> list[str]:
    """Return what else is known of a finding, a line each."""
    if isinstance(finding, Trampling):
        return _trampling_details(finding)
    if isinstance(finding, Overflow):
        return _overflow_details(finding)
    raise TypeError(finding)


def can_be_approved(finding: SceneFinding) -> bool:
    """Whether the golden can list the finding as known."""
    return isinstance(finding, Overflow) and bool(finding.layer)


def _trampling(finding: Trampling) -> str:
    change = finding.change
    output = f"{finding.node} (output.{finding.slot})" if finding.slot else finding.node
    place = f" in {finding.place}" if finding.place else ""
    first = "" if change.first is None else f", first at {list(change.first)}"
    return (
        f"{finding.by} tramples {output}{place}: {change.changed} of {change.count} elements changed{first}"
    )


def _trampling_details(finding: Trampling) -> list[str]:
    change = finding.change
    shape = "unknown shape" if finding.shape is None else str(list(finding.shape))
    tensor = " ".join(filter(None, (finding.dtype, shape, finding.format)))
    values = ""
    if change.before is not None:
        values = f", the first from {number(change.before)} to {number(change.after)}"
    return [
        f"output:     {finding.node} ({finding.op_type} output.{finding.slot}) {tensor}{values}",
        f"between:    {finding.since} and {finding.by}; an operator in between may have done it",
        f"snapshots:  {finding.before}",
        f"            {finding.after}",
    ]


def _overflow(finding: Overflow) -> str:
    operator = (
        f"{finding.layer} ({finding.op_type})" if finding.layer else "an operator whose dump is missing"
    )
    place = f" in {finding.place}" if finding.place else ""
    more = f", in {finding.executions} executions" if finding.executions > 1 else ""
    return f"{operator} overflowed{place}: {'; '.join(finding.kinds)}{more}"


def _overflow_details(finding: Overflow) -> list[str]:
    lines = []
    for tensor in finding.tensors:
        words = tensor.note or "no data"
        if tensor.description is not None:
            words = tensor_words(tensor.description)
        lines.append(f"  {tensor.io}.{tensor.slot}: {words}")
    lines.append(f"record:     {finding.record} (task {finding.task}, stream {finding.stream})")
    return lines
