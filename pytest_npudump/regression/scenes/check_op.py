"""Operators against references of their own: no golden, and a dump for each check."""

from __future__ import annotations

import shutil
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from pytest_npudump.compare.ulps import OutputFault, is_float, output_fault, same_bits, ulps_allowed
from pytest_npudump.dump.arrays.decode import load
from pytest_npudump.dump.arrays.layouts import HOST_AXES, LayoutError, host_array, is_private
from pytest_npudump.dump.reader import read_dump
from pytest_npudump.errors import DumpError, EmptyDumpError, RequestError
from pytest_npudump.language.text import first_of, number_of
from pytest_npudump.regression import result as status
from pytest_npudump.regression.attempt import Attempt, GivenTensor, OperatorChecks, WrongOperator
from pytest_npudump.regression.result import Result
from pytest_npudump.runtime.base import OperatorCall, OperatorRuntime

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from pathlib import Path

    from numpy.typing import DTypeLike, NDArray

    Array = NDArray[Any]

    from pytest_npudump.dump.records import Payload, TensorRecord
    from pytest_npudump.regression.case import Case


@dataclass(frozen=True, slots=True)
class Question:
    """One check.

    Attributes:
        operator: CANN's type.
        inputs: as the test gives them.
        reference: called with copies of the inputs; returns one array or a sequence of them.
        call: runs the operator on copies of the inputs, and returns its outputs; None for ``acl.op``.
        attributes: of the operator, for ``acl.op``.
        ulps: how far outputs may be off; None for the default of their type.
        atol: an absolute difference that suffices.
        dtypes: of the outputs; None for those of the reference, floats in that of the first input of floats.
        widen: whether the reference gets floats in float64.
    """

    operator: str
    inputs: tuple[Array, ...]
    reference: Callable[..., Any]
    call: Callable[..., Any] | None = None
    attributes: Mapping[str, Any] = field(default_factory=dict)
    ulps: int | None = None
    atol: float = 0.0
    dtypes: Sequence[DTypeLike] | None = None
    widen: bool = True


def answer_of(question: Question) -> tuple[tuple[Array, np.dtype[Any]], ...]:
    """Ask the reference for values, in its own precision but integers and bools, and types of outputs.

    Raises:
        RequestError: it returns no arrays, or not as many as there are ``dtypes``, or values beyond them.
    """
    given = [
        array.astype(np.float64) if question.widen and is_float(array.dtype) else array.copy()
        for array in question.inputs
    ]
    with np.errstate(all="ignore"):
        found = arrays_of(question.reference(*given), "reference")
    if not found:
        raise RequestError(f"check_op({question.operator!r}): the reference gives no output")
    if question.dtypes is None:
        floats = [array.dtype for array in question.inputs if is_float(array.dtype)]
        dtypes = [floats[0] if floats and is_float(array.dtype) else array.dtype for array in found]
    else:
        dtypes = [np.dtype(dtype) for dtype in question.dtypes]
    if len(dtypes) != len(found):
        raise RequestError(
            f"check_op({question.operator!r}): dtypes names {number_of(len(dtypes), 'output')}, the "
            f"reference gives {len(found)}"
        )
    pairs = zip(found, dtypes, strict=True)
    return tuple(_expected(question.operator, array, dtype) for array, dtype in pairs)


def _expected(operator: str, array: Array, dtype: np.dtype[Any]) -> tuple[Array, np.dtype[Any]]:
    if is_float(dtype):
        return array, dtype
    with np.errstate(invalid="ignore"):
        plain = array.astype(dtype)
    if not np.array_equal(plain, array):
        raise RequestError(
            f"check_op({operator!r}): the reference gives {array.dtype} with values that {dtype} does not "
            f"hold; let it return {dtype}, or name another type in dtypes"
        )
    return plain, dtype


def arrays_of(found: Any, who: str) -> list[Array]:
    """Return a callable's result as arrays on the host: one array, tensor or number, or a sequence of them.

    Raises:
        RequestError: a part of it is nothing of the kind.
    """
    return [_array(one, who) for one in (found if isinstance(found, list | tuple) else [found])]


def _array(found: Any, who: str) -> Array:
    if hasattr(found, "detach"):  # a tensor of torch, which need not be imported to be known
        from pytest_npudump.runtime.modules.statistics import array_of  # noqa: PLC0415 - where there is one

        found = array_of(found.detach().cpu())
    array: Array = np.asarray(found.numpy() if hasattr(found, "numpy") else found)
    if array.dtype.kind not in "biuf" and not is_float(array.dtype):
        raise RequestError(
            f"check_op: the {who} gave {type(found).__name__} ({array.dtype}), expected arrays of floats, "
            f"integers or bools"
        )
    return array


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
    bounds = [ulps_allowed(dtype.name, question.ulps) for _, dtype in expected]
    with attempt.example(case.runtime, number) as directory:
        outputs = arrays_of(_run(case, question, expected), "operator")
    problem, index, fault = _judged(directory, question, outputs, expected, bounds)
    wrong = None
    if problem or fault is not None:
        found = None if index is None else outputs[index]
        wrong = WrongOperator(
            operator=question.operator,
            example=number,
            inputs=_given(question.inputs, found, fault),
            output=index,
            dtype="" if found is None else found.dtype.name,
            shape=None if found is None else found.shape,
            fault=fault,
            problem=problem,
            dump=directory,
        )
    dropped = attempt.checks.end(wrong)
    spare = directory if wrong is None else dropped
    if spare is not None and case.settings.keep_dumps != "all":
        shutil.rmtree(spare, ignore_errors=True)
    return wrong


def _run(case: Case, question: Question, expected: Sequence[tuple[Array, np.dtype[Any]]]) -> Any:
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
    outputs = tuple((dtype, values.shape) for values, dtype in expected)
    return runtime.run_operator(OperatorCall(question.operator, copies, outputs, question.attributes))


def _judged(
    directory: Path,
    question: Question,
    outputs: Sequence[Array],
    expected: Sequence[tuple[Array, np.dtype[Any]]],
    bounds: Sequence[int],
) -> tuple[str, int | None, OutputFault | None]:
    """Return the first thing that is wrong, with the outputs, with one's values, or with the dump.

    Returns:
        A problem in words, "" for none; of which output, None for another; and the fault of its values.
    """
    if len(outputs) != len(expected):
        return f"it gave {number_of(len(outputs), 'output')}, its reference {len(expected)}", None, None
    for index, (output, want, ulps) in enumerate(zip(outputs, expected, bounds, strict=True)):
        if problem := _of_another_kind(index, output, want):
            return problem, index, None
        if fault := output_fault(output, want[0], ulps=ulps, atol=question.atol):
            return "", index, fault
    return problem_of_dump(directory, question.operator, outputs), None, None


def _of_another_kind(index: int, output: Array, want: tuple[Array, np.dtype[Any]]) -> str:
    """Describe an output of unexpected shape or type; "" for any other."""
    values, dtype = want
    if output.shape != values.shape:
        shapes = f"{list(output.shape)}, and its reference gives {list(values.shape)}"
        return f"output {index} has the wrong shape: {shapes}"
    if output.dtype != dtype:
        return f"output {index} has the wrong type: {output.dtype}, expected {dtype} (dtypes says which)"
    return ""


def _given(
    inputs: Sequence[Array], output: Array | None, fault: OutputFault | None
) -> tuple[GivenTensor, ...]:
    """Return an operator's inputs, with the values that meet in the worst element of its output."""

    def there(array: Array) -> float | int | None:
        if fault is None or output is None or array.shape != output.shape:
            return None
        value = array[fault.index]
        return int(value) if array.dtype.kind in "biu" else float(value)

    return tuple(GivenTensor(array.dtype.name, array.shape, there(array)) for array in inputs)


_KERNEL = ">"
"""Between an API of aclnn and the kernel that it ran, in the name of a layer."""


def problem_of_dump(directory: Path, operator: str, outputs: Sequence[NDArray[Any]]) -> str:
    """Describe a fault of an example's dump; "" where it holds the operator and its outputs.

    Args:
        directory: of the example.
        operator: CANN's type of the operator, with or without ``aclnn``.
        outputs: what was returned, on the host.
    """
    try:
        dump = read_dump(directory, stats=False)
    except EmptyDumpError:
        return (
            "it was not dumped: the dump of this example is empty, so that nothing shows that it ran on the "
            "device; is it one that the runtime's dump sees, and did it run in this call?"
        )
    except DumpError as error:
        return f"its dump cannot be read: {error}"
    if dump.problems:
        return f"its dump cannot be read: {dump.problems[0]}"
    if not any(_is_called(record, operator) for record in dump.records):
        ran = dict.fromkeys(f"{record.op_type} ({record.key.layer})" for record in dump.records)
        return f"it was not dumped: the dump of this example holds {first_of([*ran], 5)}, and no {operator}"
    dumped = [record for record in dump.records if record.key.io == "output"]
    held = [f"{one.op_type} {one.dtype} {list(one.shape or ())}" for one in dumped]
    for index, output in enumerate(outputs):
        if not any(_holds(record, output) for record in dumped):
            return (
                f"output {index} is not what was dumped: {output.dtype} {list(output.shape)} was returned, "
                f"and the dump has {first_of(held, 5) if held else 'no output'}, none with these values; "
                f"return what the operator gave, only moved to the host"
            )
    return ""


def _is_called(record: TensorRecord, operator: str) -> bool:
    plain = operator.removeprefix("aclnn")
    names = {record.op_type, *record.key.layer.split(_KERNEL)}
    return not names.isdisjoint({plain, f"aclnn{plain}"})


def _holds(record: TensorRecord, output: NDArray[Any]) -> bool:
    """Return whether a dumped tensor is the output, bit for bit, in the host's layout if it has one."""
    if record.dtype != output.dtype.name:
        return False
    if record.payload is None or not output.size:
        return not output.size and record.shape == output.shape
    found = [*_on_host(record, record.payload)]
    if is_private(record) and not record.original_shape:  # such a dump has the padding, too
        cut = tuple(map(slice, output.shape))
        found = [values[cut] for values in found if values.ndim == output.ndim]
    return any(same_bits(values, output) for values in found)


def _on_host(record: TensorRecord, payload: Payload) -> Iterator[NDArray[Any]]:
    """Yield a tensor in each layout that the host may have it in: the dump does not say which."""
    try:
        values = load(payload, record.dtype, record.shape)
    except DumpError:
        return
    for layout in ("ND", *HOST_AXES) if is_private(record) else ("ND",):
        with suppress(LayoutError):
            yield host_array(values, record, layout)


_NONE = (
    "no operator was checked: npu_dump.check_op(...) was not called; scene='check_op' compares nothing else, "
    "model and op compare with a golden"
)


def judge(case: Case, attempt: Attempt) -> Result:
    """Fail a test whose body has ended well if a check of it was bad, or if there was none."""
    checks = attempt.checks
    found = examine(case, attempt)
    if not checks.begun:
        return Result(status.FAILED, None, problems=(_NONE,))
    unfinished = checks.begun - checks.ended
    if found.good and not unfinished:
        return found
    counts = ((checks.failures, "failed"), (unfinished, "could not be made"))
    said = " and ".join(f"{count} of {checks.begun} checks {what}" for count, what in counts if count)
    return Result(
        status.FAILED,
        None,
        problems=(f"{said}, and the test went on: leave the errors of npu_dump.check_op to pytest",),
        notes=found.notes,
        tensors=found.tensors,
        findings=found.findings,
    )


def examine(_case: Case, attempt: Attempt | None) -> Result:
    """Return the operator that was wrong last, which of hypothesis' examples is the smallest.

    Without one the status is ``passed``, which says nothing of whether any was checked.
    """
    checks = OperatorChecks() if attempt is None else attempt.checks
    if not checks.failures:
        return Result(status.PASSED, None, tensors=checks.ended)
    last = checks.wrong[-1]
    notes = [f"{checks.failures} of {checks.ended} checks failed; this is the last one"]
    if others := [one.dump.name for one in reversed(checks.wrong[:-1])]:
        notes.append(f"the dumps of failures before lie beside: {first_of(others, 3)}")
    return Result(status.FAILED, None, notes=tuple(notes), tensors=checks.ended, findings=(last,))
