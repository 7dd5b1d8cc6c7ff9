"""Text of the scenes' findings."""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple

from pytest_npudump.compare.ulps import INFINITY, NAN, OutputFault
from pytest_npudump.language import mark
from pytest_npudump.language.translation import gettext as _, spoken
from pytest_npudump.regression.attempt import GivenTensor, WrongOperator
from pytest_npudump.regression.scenes.exception import ANOTHER, NORM, FailedOperator
from pytest_npudump.regression.scenes.overflow import Overflow
from pytest_npudump.regression.scenes.watcher import Trampling
from pytest_npudump.report.explanations import tensor_words
from pytest_npudump.report.verdicts import numbers

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from pytest_npudump.regression.result import SceneFinding
    from pytest_npudump.regression.scenes.findings import OperatorTensor


def finding_sentence(finding: SceneFinding) -> str:
    """Return one finding as a sentence, the operator first."""
    return _WORDS[type(finding)].sentence(finding)


def finding_operator(finding: SceneFinding) -> str:
    """Return the operator that failed, overflowed or tramples; "" where it is not known."""
    return _WORDS[type(finding)].operator(finding)


def finding_details(finding: SceneFinding) -> list[str]:
    """Return further facts of a finding, a line each."""
    return _WORDS[type(finding)].details(finding)


def can_be_approved(finding: SceneFinding) -> bool:
    """Return whether the golden can list the finding as known."""
    return isinstance(finding, Overflow) and bool(finding.layer)


def _trampling(finding: Trampling) -> str:
    change = finding.change
    slot = finding.after.key.slot
    output = f"{finding.node} (output.{slot})" if slot else finding.node
    place = _(" in {place}").format(place=finding.place) if finding.place else ""
    first = "" if change.first is None else _(", first at {first}").format(first=list(change.first))
    return _("{by} overwrites {output}{place}: {changed} of {count} elements changed{first}").format(
        by=finding.by, output=output, place=place, changed=change.changed, count=change.count, first=first
    )


def _trampling_details(finding: Trampling) -> list[str]:
    change, record = finding.change, finding.after
    shape = _("unknown shape") if record.shape is None else str(list(record.shape))
    tensor = " ".join(filter(None, (record.dtype, shape, record.format)))
    values = ""
    if change.before is not None:
        before, after = numbers(change.before, change.after)
        values = _(", the first from {before} to {after}").format(before=before, after=after)
    return [
        _("output:     {node} ({op_type} output.{slot}) {tensor}{values}").format(
            node=finding.node, op_type=record.op_type, slot=record.key.slot, tensor=tensor, values=values
        ),
        _("between:    {since} and {by}; an operator in between may have done it").format(
            since=finding.since, by=finding.by
        ),
        _("snapshots:  {before}").format(before=finding.before.path),
        f"            {record.path}",
    ]


def _overflow(finding: Overflow) -> str:
    operator = (
        f"{finding.layer} ({finding.op_type})" if finding.layer else _("an operator whose dump is missing")
    )
    place = _(" in {place}").format(place=finding.place) if finding.place else ""
    more = (
        _(", in {executions} executions").format(executions=finding.executions)
        if finding.executions > 1
        else ""
    )
    return _("{operator} overflowed{place}: {kinds}{more}").format(
        operator=operator, place=place, kinds="; ".join(map(spoken, finding.kinds)), more=more
    )


def _overflow_details(finding: Overflow) -> list[str]:
    record = _("record:     {record} (task {task}, stream {stream})").format(
        record=finding.record, task=finding.task, stream=finding.stream
    )
    return [*_tensor_lines(finding.tensors), record]


def _tensor_lines(tensors: Sequence[OperatorTensor]) -> list[str]:
    return [
        f"  {tensor.io}.{tensor.slot}: "
        + (tensor_words(tensor.description) if tensor.description else spoken(tensor.note) or _("no data"))
        for tensor in tensors
    ]


def _failed(finding: FailedOperator) -> str:
    if finding.layer:
        operator = f"{finding.layer} ({finding.op_type})" if finding.op_type else finding.layer
    elif finding.kernel:
        operator = _("the kernel {kernel}").format(kernel=finding.kernel)
    else:
        operator = _("an operator that its dump does not name")
    ids = ((mark("device"), finding.device), (mark("stream"), finding.stream), (mark("task"), finding.task))
    where = ", ".join(f"{_(name)} {number}" for name, number in ids if number is not None)
    capture = _(" in capture={capture}").format(capture=finding.capture) if finding.capture else ""
    more = _(", {executions} times").format(executions=finding.executions) if finding.executions > 1 else ""
    return (
        _("{operator} failed on the NPU{capture}").format(operator=operator, capture=capture)
        + (f" ({where})" if where else "")
        + more
    )


def _failed_details(finding: FailedOperator) -> list[str]:
    lines = _tensor_lines(finding.tensors)
    if finding.message and finding.kind != NORM:
        lines.append(_("log:        {line}").format(line=finding.message.splitlines()[0]))
    if finding.outside:
        words = _("{outside} was on") if finding.outside == ANOTHER else _("{outside} is set")
        sent_by = words.format(outside=finding.outside)
        lines.append(
            _(
                "outside:    the dump is not in the test's own directory, as {sent_by}; it may be "
                "another process's"
            ).format(sent_by=sent_by)
        )
    lines += [_("attached:   {path}").format(path=path) for path in finding.attached]
    return [*lines, _("dump:       {dump} ({kind})").format(dump=finding.dump, kind=finding.kind)]


def wrong_sentence(wrong: WrongOperator) -> str:
    """Describe a wrong output in a sentence, the operator first."""
    if wrong.fault is None:
        return f"{wrong.operator}: {spoken(wrong.problem)}"
    fault = wrong.fault
    where = f"{wrong.output}{list(fault.index)}" if fault.index else str(wrong.output)
    return _("{operator}: output {where} is {got}, expected {expectation}").format(
        operator=wrong.operator, where=where, got=_number(fault.got), expectation=_expectation(fault)
    )


def _expectation(fault: OutputFault) -> str:
    expected = _number(fault.expected)
    if fault.kind == NAN:
        side = _("the operator") if fault.got != fault.got else _("the reference")
        return _("{expected}: only {side} gives NaN").format(expected=expected, side=side)
    if fault.kind == INFINITY:
        return _("{expected}: infinite on one side, or of another sign").format(expected=expected)
    return _("{expected}: error {ulps} ULP, tolerance {allowed}").format(
        expected=expected, ulps=fault.ulps, allowed=fault.allowed
    )


def wrong_details(wrong: WrongOperator) -> list[str]:
    """Describe an operator's inputs, the wrong share of its output, and its dump."""
    lines = [
        _("input {index}:    {tensor}").format(index=index, tensor=_tensor(tensor))
        for index, tensor in enumerate(wrong.inputs)
    ]
    if wrong.fault is not None:
        count = _("{wrong} of {count} elements are wrong").format(
            wrong=wrong.fault.wrong, count=wrong.fault.count
        )
        lines.append(
            _("output {output}:   {dtype} {shape}, {count}").format(
                output=wrong.output, dtype=wrong.dtype, shape=list(wrong.shape or ()), count=count
            )
        )
    return [
        *lines,
        _("dump:       {dump} (example {example})").format(dump=wrong.dump, example=wrong.example),
    ]


def _tensor(tensor: GivenTensor) -> str:
    there = "" if tensor.there is None else _(", {there} there").format(there=_number(tensor.there))
    return f"{tensor.dtype} {list(tensor.shape)}{there}"


def _number(value: float) -> str:
    """Return a number with enough digits to separate neighbours of any type but float64."""
    return f"{value:.9g}" if isinstance(value, float) else str(value)


class _Words(NamedTuple):
    """Text of one type of findings: a sentence, the operator, and further lines."""

    sentence: Callable[[Any], str]
    operator: Callable[[Any], str]
    details: Callable[[Any], list[str]]


_WORDS: Mapping[type, _Words] = MappingProxyType(
    {
        Trampling: _Words(_trampling, lambda finding: finding.by, _trampling_details),
        Overflow: _Words(_overflow, lambda finding: finding.layer, _overflow_details),
        WrongOperator: _Words(wrong_sentence, lambda finding: finding.operator, wrong_details),
        FailedOperator: _Words(_failed, lambda finding: finding.layer or finding.kernel, _failed_details),
    }
)
"""The words of each scene, by the type of what its judge finds."""
