"""Datasets: the buffers of a model's inputs or outputs."""

from __future__ import annotations

from dataclasses import dataclass, field

from pytest_npudump.emulator.acl._buffers import DataBuffer
from pytest_npudump.emulator.acl._calls import CODE, MDL, destroy, known
from pytest_npudump.emulator.acl._tensor_descs import TensorDesc
from pytest_npudump.emulator.machine import codes
from pytest_npudump.emulator.machine.codes import RefusedError
from pytest_npudump.emulator.process.state import process


@dataclass(slots=True)
class Dataset:
    """Handles of data buffers, and the shapes set for this execution.

    Attributes:
        buffers: handles of data buffers, in the model's order.
        descs: by index, the handle of the tensor description that tells the shape.
    """

    buffers: list[int] = field(default_factory=list)
    descs: dict[int, int] = field(default_factory=dict)


def _check(dataset: Dataset, index: int) -> None:
    if index >= len(dataset.buffers):
        raise RefusedError(codes.INVALID_PARAM, f"the dataset has no buffer {index}")


@MDL("kk", refused=lambda dataset, _: (dataset, CODE))
def add_dataset_buffer(dataset: int, buffer: int) -> int:
    """``(dataset, buffer) -> (dataset, ret)``."""
    known(DataBuffer, buffer)
    known(Dataset, dataset).buffers.append(buffer)
    return dataset


@MDL(Dataset, "k", refused=0)
def get_dataset_buffer(dataset: Dataset, index: int) -> int:
    """``(dataset, index) -> buffer``; 0 where there is none."""
    _check(dataset, index)
    return dataset.buffers[index]


@MDL("kkk", refused=lambda dataset, *_: (dataset, CODE))
def set_dataset_tensor_desc(dataset: int, desc: int, index: int) -> int:
    """``(dataset, tensor desc, index) -> (dataset, ret)``: the shape of a dynamic input."""
    found = known(Dataset, dataset)
    known(TensorDesc, desc)
    _check(found, index)
    found.descs[index] = desc
    return dataset


MDL.table(
    {
        "create_dataset": ((), 0, lambda: process().handles.add(Dataset())),
        "destroy_dataset": ("k", CODE, destroy(Dataset)),  # its buffers stay
        "get_dataset_num_buffers": (Dataset, 0, lambda dataset: len(dataset.buffers)),
        # that was set; 0 where none was
        "get_dataset_tensor_desc": ((Dataset, "k"), 0, lambda dataset, index: dataset.descs.get(index, 0)),
    }
)
