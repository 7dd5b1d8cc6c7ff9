"""What one execution leaves: of a model, of a single operator (``dump_op_switch``), or of an overflow.

Overflow dump (``dump_debug``) keeps the operator that overflowed first, and a record that says so. The record
has the old layout of 2,048 bytes, without a magic: three units at fixed places, of which the AI Core's is
filled. Only float16 is watched, as it is what overflows in practice: a result that is infinite where no input
was. Weights are taken to be finite. As on a device only the first overflow of an execution is kept, with the
inputs and outputs of its operator.
"""

from __future__ import annotations

import os
import struct
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from pytest_npudump.dump.dtypes import BY_NAME
from pytest_npudump.dump.records import sanitise
from pytest_npudump.emulator.dumps.plan import STREAM, task_of
from pytest_npudump.emulator.dumps.writer import NO_OFFSET, Slot, TaskFile, write
from pytest_npudump.emulator.faults import trampled
from pytest_npudump.onnxmodels.graph import Operator
from pytest_npudump.onnxmodels.tensor_types import Tensor

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from pytest_npudump.emulator.dumps.plan import DumpPlan, DumpSettings, DumpTask


_SIZE = 2048
_INFO = 256
_STATUS = 1024
_FLOAT_OVERFLOW = 0x20
_CONVERSION_OVERFLOW = 0x100
_PC_START = 0x1240_8000_0000
_FEATURE_MAP, _OPERATOR_ADDRESS, _RECORD_ADDRESS = 0x1240_4000_0000, 0x1240_C000_0000, 0x1240_F000_0000
"""Addresses on the device: of a model's first tensor, of a single operator's, and of the record."""
_ALIGNMENT = 512

Shape = tuple[int, ...]


def first_overflow(tasks: Sequence[DumpTask], tensors: Mapping[str, Tensor]) -> DumpTask | None:
    """Return the first task with an infinite float16 output and finite inputs, or None."""
    for task in tasks:
        outputs = (tensors[name] for name in task.outputs)
        if any(tensor.dtype.name == "float16" and _infinite(tensor) for tensor in outputs) and not any(
            _infinite(tensors[name]) for name in task.inputs
        ):
            return task
    return None


def _infinite(tensor: Tensor) -> bool:
    if tensor.dtype.kind != "float":
        return False
    return bool(np.isinf(tensor.data).any())


def record_file(task: DumpTask, model_id: int, stream: int, own_task: int) -> TaskFile:
    """Return the file that tells of an overflow in ``task``; ``own_task`` is the id of the record's task."""
    status = _CONVERSION_OVERFLOW if task.op_type == "Cast" else _FLOAT_OVERFLOW
    data = bytearray(_SIZE)
    struct.pack_into("<6Q", data, _INFO, model_id, stream, task.task, 0, _PC_START, 0)
    struct.pack_into("<3Q", data, _STATUS, 0, 0, status)
    tensor = Tensor(BY_NAME["uint8"], (_SIZE,), np.frombuffer(bytes(data), np.uint8))
    return TaskFile("Opdebug", "Node_OpDebug", own_task, stream, (), (Slot(tensor, _RECORD_ADDRESS),))


@dataclass(frozen=True, slots=True)
class OperatorRun:
    """One execution of a single operator: its type, and the ids of its task, stream and device."""

    op_type: str
    task: int
    stream: int
    device: int


def record_operator(
    settings: DumpSettings,
    call: OperatorRun,
    inputs: Sequence[Tensor],
    outputs: Sequence[Tensor],
    clock: Callable[[], int],
) -> None:
    """Write one execution's file.

    The operator is called like its type, as the operator models that CANN compiles are; executions differ
    by task id and time.
    """
    sides = {"x": inputs, "y": outputs}
    tensors = {f"{side}{index}": t for side, io in sides.items() for index, t in enumerate(io)}
    slots = {n: Slot(tensors[n], at, NO_OFFSET) for n, at in _addresses(tensors, _OPERATOR_ADDRESS).items()}
    names = [tuple(name for name in slots if name[0] == side) for side in sides]
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


@dataclass(frozen=True, slots=True)
class DumpedExecution:
    """What a dump does not show of one execution of a model.

    Attributes:
        directory: where its files are, or would be if any operator left one.
        place: which execution.
        silent: shapes of the outputs of the operators that left no file, as no tensor of theirs holds a
            byte, by raw name; of the inputs where only these are dumped.
        root: ``{dump_path}/{time}/`` of the configuration.
    """

    directory: str
    place: DumpedRun
    silent: Mapping[str, tuple[Shape, ...]]
    root: str

    def wanted(self) -> bool:
        """Whether the directory that all dumps of the configuration go to is still there."""
        return os.path.isdir(os.path.dirname(self.root.rstrip("/")))  # noqa: PTH112, PTH120 - as CANN has it


@dataclass(frozen=True, slots=True)
class DumpedRun:
    """Which execution: device id, model name, model id and ``data_index``."""

    device: int
    model: str
    model_id: int
    index: int


def record(
    plan: DumpPlan,
    place: DumpedRun,
    tensors: Mapping[str, Tensor],
    previous: Mapping[str, Tensor],
    clock: Callable[[], int],
) -> DumpedExecution:
    """Write every file of ``plan``, or where overflows are dumped those of the first one.

    ``tensors`` are all tensors of this execution; ``previous`` those of the one before, which a watched
    node's memory still holds until the node itself has run.

    Returns:
        What was dumped of, and which operators left no file.
    """
    settings = plan.settings
    # The double slash is CANN's, and part of what is hashed.
    model = f"{sanitise(place.model)}/{place.model_id}"
    directory = f"{settings.root}{place.device}//{model}/{place.index}"
    addresses = _addresses(tensors, _FEATURE_MAP)
    produced = {name: task.task for task in plan.tasks if not task.watches for name in task.outputs}

    def slots(task: DumpTask, names: Iterable[str]) -> list[Slot]:
        return [
            Slot(
                _remembered(tensors[name], previous.get(name))
                if task.watches and produced[name] > task.task
                else trampled(tensors[name], task.tramplings),
                addresses[name],
            )
            for name in names
        ]

    tasks: Sequence[DumpTask] = plan.tasks
    if settings.overflow:
        found = first_overflow(plan.tasks, tensors)
        tasks = () if found is None else (found,)
    silent: dict[str, tuple[Shape, ...]] = {}
    for task in tasks:
        file = TaskFile(
            task.op_type,
            task.op_name,
            task.task,
            STREAM,
            slots(task, task.inputs),
            slots(task, task.outputs),
            settings.statistics,
        )
        if not write(directory, file, clock()) and not task.watches:
            silent[task.op_name] = tuple(slot.tensor.shape for slot in file.outputs or file.inputs)
    if settings.overflow and tasks:
        own_task = max(task.task for task in plan.tasks) + 1
        write(directory, record_file(tasks[0], place.model_id, STREAM, own_task), clock())
    return DumpedExecution(directory, place, silent, settings.root)


def _remembered(tensor: Tensor, previous: Tensor | None) -> Tensor:
    """Return what the memory of ``tensor`` holds before it is written: the last execution's, or zeros."""
    if previous is not None and previous.shape == tensor.shape:
        return previous
    return replace(tensor, data=np.zeros_like(tensor.data))


def _addresses(tensors: Mapping[str, Tensor], address: int) -> dict[str, int]:
    """Lay the tensors out one behind the other, as in a device's feature map; none without bytes."""
    addresses = {}
    for name, tensor in tensors.items():
        addresses[name] = address if tensor.nbytes else 0
        address += -(-tensor.nbytes // _ALIGNMENT) * _ALIGNMENT
    return addresses
