"""The bytes of a dump file: header length, ``DumpData`` header, payload."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from pytest_npudump.dump.files.proto import dump_data_class

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pytest_npudump.onnxmodels.tensor_types import Tensor

    _Described = tuple[tuple[int, int, int, int, int], tuple[int, ...], tuple[int, ...]]

_KEPT = 4096
"""How many headers are kept, but for the time in them."""
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

    def described(self) -> _Described:
        """Return what the header says of it: type, layout, size, address and offset; both shapes."""
        tensor = self.tensor
        numbers = tensor.dtype.proto, self.format, tensor.nbytes, self.address, self.offset
        return numbers, tensor.shape, tensor.shape if self.original_shape is None else self.original_shape


def encode_header(time: int, op_name: str, inputs: Sequence[Slot], outputs: Sequence[Slot]) -> bytes:
    """Serialize ``DumpData`` as the device's writer does: outputs before inputs, empty shapes present.

    ``time`` is in microseconds since the epoch; ``op_name`` is raw.
    """
    kinds = ([slot.described() for slot in side] for side in (inputs, outputs))
    # The fields that come first: the version and the time, which differs from file to file.
    beginning: bytes = dump_data_class()(version="2.0", dump_time=time).SerializeToString()
    return beginning + _rest(op_name, *map(tuple, kinds))


@lru_cache(_KEPT)
def _rest(op_name: str, inputs: tuple[_Described, ...], outputs: tuple[_Described, ...]) -> bytes:
    """Serialize the fields behind the time, which are the same in every run of a model."""
    message: Any = dump_data_class()(op_name=op_name)
    for repeated, side in ((message.output, outputs), (message.input, inputs)):
        for numbers, *shapes in side:
            field = repeated.add()
            field.data_type, field.format, field.size, field.address, field.offset = numbers
            for written, dims in zip((field.shape, field.original_shape), shapes, strict=True):
                written.SetInParent()
                written.dim.extend(dims)
    encoded: bytes = message.SerializeToString(deterministic=True)
    return encoded


def prefix(header: bytes) -> bytes:
    """Return what precedes the payload: the header's length as u64 little-endian, and the header."""
    return struct.pack("<Q", len(header)) + header
