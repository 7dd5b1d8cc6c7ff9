"""Overflow dump (``dump_debug``): which operator overflowed first, and the record that says so.

The record has the old layout of 2,048 bytes, without a magic: three units at fixed places, of which the AI
Core's is filled. Only float16 is watched, as it is what overflows in practice: a result that is infinite
where no input was. Weights are taken to be finite. As on a device only the first overflow of an execution
is kept, with the inputs and outputs of its operator.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

import numpy as np

from pytest_npudump.dump.values.dtypes import BY_NAME
from pytest_npudump.emulator.dumps.header import Slot
from pytest_npudump.emulator.dumps.writer import TaskFile
from pytest_npudump.onnxmodels.tensor_types import Tensor

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pytest_npudump.emulator.dumps.plan import Task

_SIZE = 2048
_INFO = 256
_STATUS = 1024
_FLOAT_OVERFLOW = 0x20
_CONVERSION_OVERFLOW = 0x100
_PC_START = 0x1240_8000_0000
_ADDRESS = 0x1240_F000_0000


def first_overflow(tasks: Sequence[Task], tensors: Mapping[str, Tensor]) -> Task | None:
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


def record_file(task: Task, model_id: int, stream: int, own_task: int) -> TaskFile:
    """Return the file that tells of an overflow in ``task``; ``own_task`` is the id of the record's task."""
    status = _CONVERSION_OVERFLOW if task.op_type == "Cast" else _FLOAT_OVERFLOW
    data = bytearray(_SIZE)
    struct.pack_into("<6Q", data, _INFO, model_id, stream, task.task, 0, _PC_START, 0)
    struct.pack_into("<3Q", data, _STATUS, 0, 0, status)
    tensor = Tensor(BY_NAME["uint8"], (_SIZE,), np.frombuffer(bytes(data), np.uint8))
    return TaskFile("Opdebug", "Node_OpDebug", own_task, stream, (), (Slot(tensor, _ADDRESS),))
