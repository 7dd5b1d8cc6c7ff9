"""Dump of single operators (``dump_op_switch``)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from pytest_npudump.emulator.dumps.header import NO_OFFSET, Slot
from pytest_npudump.emulator.dumps.plan import task_of
from pytest_npudump.emulator.dumps.writer import TaskFile, write
from pytest_npudump.onnxmodels.graph import Operator

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pytest_npudump.emulator.dumps.dump_settings import DumpSettings
    from pytest_npudump.onnxmodels.tensor_types import Tensor

_ADDRESS = 0x1240_C000_0000
_ALIGNMENT = 512


@dataclass(frozen=True, slots=True)
class Call:
    """One execution of a single operator: its type, and the ids of its task, stream and device."""

    op_type: str
    task: int
    stream: int
    device: int


def record(
    settings: DumpSettings,
    call: Call,
    inputs: Sequence[Tensor],
    outputs: Sequence[Tensor],
    clock: Callable[[], int],
) -> None:
    """Write one execution's file.

    The operator is called like its type, as the operator models that CANN compiles are; executions differ
    by task id and time.
    """
    slots: dict[str, Slot] = {}
    address = _ADDRESS
    for io, side in (("input", inputs), ("output", outputs)):
        for index, tensor in enumerate(side):
            slots[f"{io}{index}"] = Slot(tensor, address if tensor.nbytes else 0, NO_OFFSET)
            address += -(-tensor.nbytes // _ALIGNMENT) * _ALIGNMENT
    names = [tuple(name for name in slots if name.startswith(io)) for io in ("input", "output")]
    kept = task_of(settings, (), Operator(call.op_type, call.op_type, names[0], names[1], call.task))
    file = TaskFile(
        call.op_type,
        call.op_type,
        call.task,
        call.stream,
        [slots[name] for name in kept.inputs],
        [slots[name] for name in kept.outputs],
        settings.statistics,
    )
    write(f"{settings.root}{call.device}/", file, clock())  # with the slash that CANN has
