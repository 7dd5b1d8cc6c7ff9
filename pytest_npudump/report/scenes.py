"""What the scenes found, in words."""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple

from pytest_npudump.regression.scenes.exception.dump_paths import ANOTHER
from pytest_npudump.regression.scenes.exception.dumps import NORM, FailedOperator
from pytest_npudump.regression.scenes.overflow.findings import Overflow
from pytest_npudump.regression.scenes.watcher.judge import Trampling
from pytest_npudump.report.tensor_findings import tensor_words
from pytest_npudump.report.verdicts import number

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from pytest_npudump.regression.outcome import SceneFinding
    from pytest_npudump.regression.scenes.operator_tensors import OperatorTensor


def finding_sentence(finding: SceneFinding) -> str:
    """Return one finding as a sentence, the operator first."""
    return _WORDS[type(finding)].sentence(finding)


def finding_operator(finding: SceneFinding) -> str:
    """Return the operator that failed, overflowed or tramples; "" where it is not known."""
    return _WORDS[type(finding)].operator(finding)


def finding_details(finding: SceneFinding) -> list[str]:
    """Return what else is known of a finding, a line each."""
    return _WORDS[type(finding)].details(finding)


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
    record = f"record:     {finding.record} (task {finding.task}, stream {finding.stream})"
    return [*_tensor_lines(finding.tensors), record]


def _tensor_lines(tensors: Sequence[OperatorTensor]) -> list[str]:
    return [
        f"  {tensor.io}.{tensor.slot}: "
        + (tensor_words(tensor.description) if tensor.description else tensor.note or "no data")
        for tensor in tensors
    ]


def _failed(finding: FailedOperator) -> str:
    if finding.layer:
        operator = f"{finding.layer} ({finding.op_type})" if finding.op_type else finding.layer
    elif finding.kernel:
        operator = f"the kernel {finding.kernel}"
    else:
        operator = "an operator that its dump does not name"
    ids = (("device", finding.device), ("stream", finding.stream), ("task", finding.task))
    where = ", ".join(f"{name} {number}" for name, number in ids if number is not None)
    capture = f" in capture={finding.capture}" if finding.capture else ""
    more = f", {finding.executions} times" if finding.executions > 1 else ""
    return f"{operator} failed on the NPU{capture}" + (f" ({where})" if where else "") + more


def _failed_details(finding: FailedOperator) -> list[str]:
    lines = _tensor_lines(finding.tensors)
    if finding.message and finding.kind != NORM:
        lines.append(f"log:        {finding.message.splitlines()[0]}")
    if finding.outside:
        lines.append(
            f"outside:    the dump is not in the test's own directory, as {_sent_by(finding)}; it is "
            f"newer than the run, and may be another process's"
        )
    lines += [f"attached:   {path}" for path in finding.attached]
    return [*lines, f"dump:       {finding.dump} ({finding.kind})"]


def _sent_by(finding: FailedOperator) -> str:
    return f"{finding.outside} was on" if finding.outside == ANOTHER else f"{finding.outside} is set"


class _Words(NamedTuple):
    """What tells of the findings of one type: a sentence, the operator, and further lines."""

    sentence: Callable[[Any], str]
    operator: Callable[[Any], str]
    details: Callable[[Any], list[str]]


_WORDS: Mapping[type, _Words] = MappingProxyType(
    {
        Trampling: _Words(_trampling, lambda finding: finding.by, _trampling_details),
        Overflow: _Words(_overflow, lambda finding: finding.layer, _overflow_details),
        FailedOperator: _Words(_failed, lambda finding: finding.layer or finding.kernel, _failed_details),
    }
)
"""The words of each scene, by the type of what its judge finds."""
