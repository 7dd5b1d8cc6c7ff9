"""Datasets: the buffers of a model's inputs or outputs."""

from __future__ import annotations

from dataclasses import dataclass, field

from pytest_npudump.emulator.acl._buffers import DataBuffer
from pytest_npudump.emulator.acl._tensor_descs import TensorDesc
from pytest_npudump.emulator.machine import codes
from pytest_npudump.emulator.machine.parse_tuple import parse
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


def create_dataset(*_: object) -> int:
    """``() -> handle``."""
    return process().handles.add(Dataset())


def destroy_dataset(*args: object) -> int:
    """``(dataset) -> ret``; its buffers stay."""
    (handle,) = parse("acl.mdl.destroy_dataset", "k", args)
    found = process().handles.remove(handle, Dataset)
    return codes.INVALID_PARAM if found is None else codes.SUCCESS


def add_dataset_buffer(*args: object) -> tuple[int, int]:
    """``(dataset, buffer) -> (dataset, ret)``."""
    handle, buffer = parse("acl.mdl.add_dataset_buffer", "kk", args)
    dataset = process().handles.get(handle, Dataset)
    if dataset is None or process().handles.get(buffer, DataBuffer) is None:
        return handle, codes.INVALID_PARAM
    dataset.buffers.append(buffer)
    return handle, codes.SUCCESS


def get_dataset_num_buffers(*args: object) -> int:
    """``(dataset) -> buffers``."""
    (handle,) = parse("acl.mdl.get_dataset_num_buffers", "k", args)
    dataset = process().handles.get(handle, Dataset)
    return 0 if dataset is None else len(dataset.buffers)


def get_dataset_buffer(*args: object) -> int:
    """``(dataset, index) -> buffer``; 0 where there is none."""
    handle, index = parse("acl.mdl.get_dataset_buffer", "kk", args)
    dataset = process().handles.get(handle, Dataset)
    return 0 if dataset is None or index >= len(dataset.buffers) else dataset.buffers[index]


def set_dataset_tensor_desc(*args: object) -> tuple[int, int]:
    """``(dataset, tensor desc, index) -> (dataset, ret)``: the shape of a dynamic input."""
    handle, desc, index = parse("acl.mdl.set_dataset_tensor_desc", "kkk", args)
    dataset = process().handles.get(handle, Dataset)
    known = process().handles.get(desc, TensorDesc)
    if dataset is None or known is None or index >= len(dataset.buffers):
        return handle, codes.INVALID_PARAM
    dataset.descs[index] = desc
    return handle, codes.SUCCESS


def get_dataset_tensor_desc(*args: object) -> int:
    """``(dataset, index) -> tensor desc`` that was set; 0 where none was."""
    handle, index = parse("acl.mdl.get_dataset_tensor_desc", "kk", args)
    dataset = process().handles.get(handle, Dataset)
    return 0 if dataset is None else dataset.descs.get(index, 0)
