"""The bytes of a dump file: header length, ``DumpData`` header, payload."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pytest_npudump.dump.files.proto import dump_data_class

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pytest_npudump.onnxmodels.tensors import Tensor

NO_OFFSET = 2**64 - 1
"""``offset`` of a tensor of a single operator."""


@dataclass(frozen=True, slots=True)
class Slot:
    """One tensor of a dump file, as the header describes it.

    Attributes:
        tensor: type, shape and bytes.
        address: address on the device; 0 leaves the field out, as for a tensor without memory.
        offset: the task's offset for it; 0 leaves the field out.
        format: CANN's number of the layout.
        original_shape: shape before layout conversion; the same shape where None.
    """

    tensor: Tensor
    address: int
    offset: int = 0
    format: int = 2
    original_shape: tuple[int, ...] | None = None


def encode_header(time: int, op_name: str, inputs: Sequence[Slot], outputs: Sequence[Slot]) -> bytes:
    """Serialize ``DumpData`` as the device's writer does: outputs before inputs, empty shapes present.

    ``time`` is in microseconds since the epoch; ``op_name`` is raw.
    """
    message: Any = dump_data_class()()
    message.version = "2.0"
    message.dump_time = time
    message.op_name = op_name
    for repeated, slots in ((message.output, outputs), (message.input, inputs)):
        for slot in slots:
            _fill(repeated.add(), slot)
    encoded: bytes = message.SerializeToString(deterministic=True)
    return encoded


def _fill(field: Any, slot: Slot) -> None:
    tensor = slot.tensor
    original = tensor.shape if slot.original_shape is None else slot.original_shape
    field.data_type = tensor.dtype.proto
    field.format = slot.format
    field.size = tensor.nbytes
    field.address = slot.address
    field.offset = slot.offset
    for shape, dims in ((field.shape, tensor.shape), (field.original_shape, original)):
        shape.SetInParent()
        shape.dim.extend(dims)


def prefix(header: bytes) -> bytes:
    """Return what precedes the payload: the header's length as u64 little-endian, and the header."""
    return struct.pack("<Q", len(header)) + header
