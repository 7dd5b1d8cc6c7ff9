"""An operator that does not give what its reference does, in words."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_npudump.compare.ulps import INFINITY, NAN
from pytest_npudump.language.translation import gettext as _
from pytest_npudump.language.translation import spoken

if TYPE_CHECKING:
    from pytest_npudump.compare.ulps import OutputFault
    from pytest_npudump.regression.operator_checks import GivenTensor, WrongOperator


def wrong_text(wrong: WrongOperator) -> str:
    """Return all that is known of a check that failed, for the error that it raises."""
    return "\n".join([wrong_sentence(wrong), *wrong_details(wrong)])


def wrong_sentence(wrong: WrongOperator) -> str:
    """Return what is wrong as a sentence, the operator first."""
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
    units = (
        _("1 unit in the last place")
        if fault.ulps == 1
        else _("{ulps} units in the last place").format(ulps=fault.ulps)
    )
    return _("{expected}: {units}, and {allowed} allowed").format(
        expected=expected, units=units, allowed=fault.allowed
    )


def wrong_details(wrong: WrongOperator) -> list[str]:
    """Return what an operator was given, how much of its output is wrong, and where its dump lies."""
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
    """Return a number with as many digits as tell its neighbours of any type but float64 apart."""
    return f"{value:.9g}" if isinstance(value, float) else str(value)
