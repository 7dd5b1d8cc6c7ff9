"""Inputs and outputs of an operator that overflowed or failed, each described by itself."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pytest_npudump.compare.tensors.describe import TensorDescription, describe_tensor
from pytest_npudump.dump.arrays.decode import load
from pytest_npudump.errors import DumpError

if TYPE_CHECKING:
    from pathlib import Path

    from pytest_npudump.dump.records import Payload


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


def described(
    slot: tuple[str, int], payload: Payload, dtype: str, shape: tuple[int, ...] | None
) -> OperatorTensor:
    """Describe a tensor; where its bytes cannot be decoded the note says why.

    Args:
        slot: ``input`` or ``output``, and which one.
        payload: where its bytes lie.
        dtype: name after :mod:`pytest_npudump.dump.dtypes`.
        shape: as on the device; None where unknown.
    """
    try:
        values = load(payload, dtype, shape)
    except DumpError as error:
        return OperatorTensor(*slot, None, str(error), payload.path)
    return OperatorTensor(*slot, describe_tensor(values), "", payload.path)
