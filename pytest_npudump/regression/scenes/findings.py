"""Parts shared by scenes: the result of findings, findings of one operator, and its tensors."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from pytest_npudump.compare.tensors.picture import TensorDescription, describe_tensor
from pytest_npudump.dump.arrays.decode import load
from pytest_npudump.errors import DumpError
from pytest_npudump.regression.result import FAILED, PASSED, Result, SceneFinding

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from pathlib import Path

    from pytest_npudump.dump.files.container import ContainerTensor
    from pytest_npudump.dump.records import TensorKey, TensorRecord


@dataclass(frozen=True, slots=True)
class OperatorTensor:
    """An input or output of an operator.

    Attributes:
        io, slot: which one.
        description: its remarkable elements; None where it has no values.
        note: why there are none.
        path: the file it lies in.
    """

    io: str
    slot: int
    description: TensorDescription | None
    note: str
    path: Path

    def to_json(self) -> dict[str, Any]:
        """Return the tensor as plain JSON data."""
        tensor = self.description.to_json() if self.description else None
        return {"tensor": f"{self.io}.{self.slot}", **(tensor or {"note": self.note}), "file": str(self.path)}


def described(tensor: TensorRecord | ContainerTensor, slot: tuple[str, int], path: Path) -> OperatorTensor:
    """Describe a tensor; where it has no bytes, or these cannot be decoded, the note says why.

    Args:
        tensor: with its type, and its shape as on the device.
        slot: ``input`` or ``output``, and which one.
        path: the file that names it.
    """
    if tensor.payload is None:
        return OperatorTensor(*slot, None, tensor.note or "no data", path)
    try:
        values = load(tensor.payload, tensor.dtype, tensor.shape)
    except DumpError as error:
        return OperatorTensor(*slot, None, str(error), tensor.payload.path)
    return OperatorTensor(*slot, describe_tensor(values), "", tensor.payload.path)


def grouped(found: Iterable[Any], identity: Callable[[Any], object]) -> tuple[Any, ...]:
    """Return the first finding of each identity, with the number of executions of all that share it."""
    groups: dict[object, Any] = {}
    for one in found:
        same = identity(one)
        before = groups[same].executions if same in groups else 0
        groups[same] = replace(groups.get(same, one), executions=before + one.executions)
    return tuple(groups.values())


def place_of(key: TensorKey) -> str:
    """Return the fields that identify an execution, as ``name=value``; "" for none."""
    return str(key).rpartition(":")[0].partition("#")[2]


def result_of(
    findings: Sequence[SceneFinding],
    problems: Sequence[str] = (),
    notes: Sequence[str] = (),
    *,
    tensors: int,
    golden: Path | None = None,
) -> Result:
    """Return the result of a run: any finding fails it, and any problem."""
    word = FAILED if findings or problems else PASSED
    return Result(
        word,
        golden,
        problems=tuple(problems),
        notes=tuple(notes),
        tensors=tensors,
        findings=tuple(findings),
    )
