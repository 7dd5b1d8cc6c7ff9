"""Writes what one execution of a model leaves."""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from pytest_npudump.dump.records import sanitise
from pytest_npudump.emulator.dumps.header import Slot
from pytest_npudump.emulator.dumps.overflow import first_overflow, record_file
from pytest_npudump.emulator.dumps.plan import STREAM
from pytest_npudump.emulator.dumps.writer import TaskFile, write
from pytest_npudump.emulator.faults import trampled

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from pytest_npudump.emulator.dumps.plan import Plan, Task
    from pytest_npudump.onnxmodels.tensor_types import Tensor

_FEATURE_MAP = 0x1240_4000_0000
"""Address of the first tensor on the device."""
_ALIGNMENT = 512


Shape = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Execution:
    """What a dump does not show of one execution of a model.

    Attributes:
        directory: where its files are, or would be if any operator left one.
        place: which execution.
        silent: shapes of the outputs of the operators that left no file, as no tensor of theirs holds a
            byte, by raw name; of the inputs where only these are dumped.
        root: ``{dump_path}/{time}/`` of the configuration.
    """

    directory: str
    place: Place
    silent: Mapping[str, tuple[Shape, ...]]
    root: str

    def wanted(self) -> bool:
        """Whether the directory that all dumps of the configuration go to is still there."""
        return os.path.isdir(os.path.dirname(self.root.rstrip("/")))  # noqa: PTH112, PTH120 - as CANN has it


@dataclass(frozen=True, slots=True)
class Place:
    """Which execution: device id, model name, model id and ``data_index``."""

    device: int
    model: str
    model_id: int
    index: int


def record(
    plan: Plan,
    place: Place,
    tensors: Mapping[str, Tensor],
    previous: Mapping[str, Tensor],
    clock: Callable[[], int],
) -> Execution:
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
    addresses = _addresses(tensors)
    produced = {name: task.task for task in plan.tasks if not task.watches for name in task.outputs}

    def slots(task: Task, names: Iterable[str]) -> list[Slot]:
        return [
            Slot(
                _remembered(tensors[name], previous.get(name))
                if task.watches and produced[name] > task.task
                else trampled(tensors[name], task.tramplings),
                addresses[name],
            )
            for name in names
        ]

    tasks: Sequence[Task] = plan.tasks
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
    return Execution(directory, place, silent, settings.root)


def _remembered(tensor: Tensor, previous: Tensor | None) -> Tensor:
    """Return what the memory of ``tensor`` holds before it is written: the last execution's, or zeros."""
    if previous is not None and previous.shape == tensor.shape:
        return previous
    return replace(tensor, data=np.zeros_like(tensor.data))


def _addresses(tensors: Mapping[str, Tensor]) -> dict[str, int]:
    """Lay the tensors out one behind the other, as in a device's feature map; none without bytes."""
    addresses = {}
    address = _FEATURE_MAP
    for name, tensor in tensors.items():
        addresses[name] = address if tensor.nbytes else 0
        address += -(-tensor.nbytes // _ALIGNMENT) * _ALIGNMENT
    return addresses
