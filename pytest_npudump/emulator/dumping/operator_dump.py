"""Dump of single operators (``dump_op_switch``)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_npudump.emulator.dumping.callback import destination
from pytest_npudump.emulator.dumping.header import NO_OFFSET, Slot
from pytest_npudump.emulator.dumping.plan import task_of
from pytest_npudump.emulator.dumping.writer import TaskFile, operator_directory, write
from pytest_npudump.onnxmodels.graph import Operator

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pytest_npudump.emulator.machine.state import Process
    from pytest_npudump.onnxmodels.tensors import Tensor

_ADDRESS = 0x1240_C000_0000
_ALIGNMENT = 512


def record(
    process: Process,
    op_type: str,
    place: tuple[int, int],
    inputs: Sequence[Tensor],
    outputs: Sequence[Tensor],
) -> None:
    """Write one execution's file, if single operators are dumped; ``place`` is a device and a stream's id.

    The operator is called like its type, as the operator models that CANN compiles are; executions differ
    by task id and time.
    """
    device, stream = place
    task = next(process.operator_tasks)
    settings = process.dumping.settings
    if settings is None or not settings.operators:
        return
    slots: dict[str, Slot] = {}
    address = _ADDRESS
    for io, side in (("input", inputs), ("output", outputs)):
        for index, tensor in enumerate(side):
            slots[f"{io}{index}"] = Slot(tensor, address if tensor.nbytes else 0, NO_OFFSET)
            address += -(-tensor.nbytes // _ALIGNMENT) * _ALIGNMENT
    names = [tuple(name for name in slots if name.startswith(io)) for io in ("input", "output")]
    kept = task_of(settings, (), Operator(op_type, op_type, names[0], names[1], task))
    file = TaskFile(
        op_type,
        op_type,
        task,
        stream,
        [slots[name] for name in kept.inputs],
        [slots[name] for name in kept.outputs],
        settings.statistics,
    )
    write(operator_directory(settings.root, device), file, process.clock(), destination(process))
