"""One check of an operator: run it under a dump of its own, and hold it against its reference."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pytest_npudump.compare.ulps import output_fault, ulps_allowed
from pytest_npudump.errors import RequestError
from pytest_npudump.regression.operator_checks import GivenTensor, WrongOperator
from pytest_npudump.regression.scenes.check_op.example_dump import problem_of_dump
from pytest_npudump.regression.scenes.check_op.operator_question import answer_of, arrays_of
from pytest_npudump.runtime.operator_call import OperatorCall, OperatorRuntime

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from numpy.typing import NDArray

    from pytest_npudump.compare.ulps import OutputFault
    from pytest_npudump.regression.attempt import Attempt
    from pytest_npudump.regression.case import Case
    from pytest_npudump.regression.scenes.check_op.operator_question import Expected, Question

    Array = NDArray[Any]


def check_operator(case: Case, attempt: Attempt, question: Question) -> WrongOperator | None:
    """Run an operator, and return what is wrong with it; None where nothing is.

    The dump of an example that is good is deleted, unless all are kept.

    Raises:
        RequestError: what is asked cannot be.
        RuntimeUnavailableError: the device refuses the operator, or that fails there.
    """
    __tracebackhide__ = True
    number = attempt.checks.begin()
    expected = answer_of(question)
    bounds = [ulps_allowed(one.dtype.name, question.ulps) for one in expected]
    with attempt.example(case.runtime, number) as directory:
        outputs = arrays_of(_run(case, question, expected), "operator")
    wrong = _Example(number, directory, question, outputs).judged(expected, bounds)
    dropped = attempt.checks.end(wrong)
    spare = directory if wrong is None else dropped
    if spare is not None and case.settings.keep_dumps != "all":
        shutil.rmtree(spare, ignore_errors=True)
    return wrong


def _run(case: Case, question: Question, expected: Sequence[Expected]) -> Any:
    __tracebackhide__ = True
    copies = tuple(array.copy() for array in question.inputs)
    if question.call is not None:
        return question.call(*copies)
    runtime = case.runtime
    if not isinstance(runtime, OperatorRuntime):
        raise RequestError(
            f"check_op({question.operator!r}): the runtime {runtime.name} runs no operator by its type: give "
            f"what runs it, as call=lambda x: torch_npu.npu_...(torch.from_numpy(x).npu())"
        )
    outputs = tuple((one.dtype, one.values.shape) for one in expected)
    return runtime.run_operator(OperatorCall(question.operator, copies, outputs, question.attributes))


@dataclass(frozen=True, slots=True)
class _Example:
    """An operator that has run: what was asked, what it gave, and where its dump is."""

    number: int
    directory: Path
    question: Question
    outputs: Sequence[Array]

    def judged(self, expected: Sequence[Expected], bounds: Sequence[int]) -> WrongOperator | None:
        """Return the first thing that is wrong: with the outputs, with one's values, or with the dump."""
        if len(self.outputs) != len(expected):
            return self._wrong(f"it gave {len(self.outputs)} outputs, and its reference {len(expected)}")
        for index, (want, ulps) in enumerate(zip(expected, bounds, strict=True)):
            output = self.outputs[index]
            if problem := _of_another_kind(index, output, want):
                return self._wrong(problem, index)
            fault = output_fault(output, want.values, ulps=ulps, atol=self.question.atol)
            if fault is not None:
                return self._wrong("", index, fault)
        problem = problem_of_dump(self.directory, self.question.operator, self.outputs)
        return self._wrong(problem) if problem else None

    def _wrong(
        self, problem: str, output: int | None = None, fault: OutputFault | None = None
    ) -> WrongOperator:
        found = None if output is None else self.outputs[output]
        return WrongOperator(
            operator=self.question.operator,
            example=self.number,
            inputs=_given(self.question.inputs, found, fault),
            output=output,
            dtype="" if found is None else found.dtype.name,
            shape=None if found is None else found.shape,
            fault=fault,
            problem=problem,
            dump=self.directory,
        )


def _of_another_kind(index: int, output: Array, want: Expected) -> str:
    """Say that an output has another shape or type than it is to have; "" where it has not."""
    if output.shape != want.values.shape:
        shapes = f"{list(output.shape)}, and its reference gives {list(want.values.shape)}"
        return f"output {index} has the wrong shape: {shapes}"
    if output.dtype != want.dtype:
        return f"output {index} has the wrong type: {output.dtype}, expected {want.dtype} (dtypes says which)"
    return ""


def _given(
    inputs: Sequence[Array], output: Array | None, fault: OutputFault | None
) -> tuple[GivenTensor, ...]:
    """Return what an operator was given, with the values that meet in the worst element of its output."""

    def there(array: Array) -> float | int | None:
        if fault is None or output is None or array.shape != output.shape:
            return None
        value = array[fault.index]
        return int(value) if array.dtype.kind in "biu" else float(value)

    return tuple(GivenTensor(array.dtype.name, array.shape, there(array)) for array in inputs)
