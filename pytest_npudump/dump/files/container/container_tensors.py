"""What both containers have in common: tensors described in a header, and where their bytes lie."""

from __future__ import annotations

import math
from itertools import accumulate
from typing import TYPE_CHECKING

from pytest_npudump.dump.records import Payload
from pytest_npudump.dump.unguarded import replace
from pytest_npudump.dump.values.dtypes import BY_NAME

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from dataclasses import dataclass
    from pathlib import Path
else:
    from pytest_npudump.dump.unguarded import dataclass

_WRITE_LIMIT = 1 << 32
_DIM_LIMIT = 1 << 63


@dataclass(frozen=True, slots=True)
class ContainerTensor:
    """One tensor, buffer or workspace of a container.

    Attributes:
        io: ``input``, ``output``, ``buffer`` or ``workspace``.
        slot: index among those of the same ``io``.
        dtype: name after :mod:`pytest_npudump.dump.values.dtypes`; ``proto:N`` or ``ge:N`` for a number of
            the header's enumeration that no table has.
        format: layout name; ``format:N`` for an unknown number; "" for buffers and workspaces.
        sub_format: group count of FRACTAL_Z and the like; 0 where not set.
        shape: as on the device; None where the header has none or an impossible one.
        original_shape: shape before CANN's layout conversion; None where the header has none.
        size: bytes in the file, alignment included.
        payload: where the bytes lie; None where the file has none.
        note: why the payload is missing or odd; "" where it is neither.
        original_name: operator that an output belonged to before fusion; "" where not set.
        original_index: which of that operator's outputs it was; 0 where not set.
        address: device address; 0 where not set.
        nullable: whether this writer leaves out the bytes of a tensor without an address.
    """

    io: str
    slot: int
    dtype: str
    format: str
    shape: tuple[int, ...] | None
    original_shape: tuple[int, ...] | None
    size: int
    sub_format: int = 0
    payload: Payload | None = None
    note: str = ""
    original_name: str = ""
    original_index: int = 0
    address: int = 0
    nullable: bool = False

    @property
    def is_null(self) -> bool:
        """Whether the header names a size but no address: CANN keeps the size and writes no bytes."""
        return self.nullable and self.size > 0 and self.address == 0


@dataclass(frozen=True, slots=True)
class ContainerRecord:
    """One dumped execution of an operator.

    Attributes:
        op_name: raw, not sanitised; "" where the container does not tell (TLV, brief exception dumps).
        dump_time: microseconds since the epoch; 0 where the container does not tell.
        version: of the format, ``2.0`` in protobuf containers.
        dfx_message: log text of an exception dump.
        kind: ``protobuf`` or ``tlv``.
        tensors: in the order of their bytes: inputs, outputs, buffers, workspaces, argument buffers.
        offset: first byte of the record in its file.
    """

    op_name: str
    dump_time: int
    version: str
    dfx_message: str
    kind: str
    tensors: tuple[ContainerTensor, ...]
    offset: int = 0


@dataclass(frozen=True, slots=True)
class Placement:
    """One way to read the bytes behind a header.

    Attributes:
        written: bytes in the file for each tensor, in the order of the payload.
    """

    written: tuple[int, ...]

    def ends(self, start: int) -> tuple[int, ...]:
        """Offset behind each tensor, the first of which begins at ``start``."""
        return tuple(accumulate(self.written, initial=start))[1:]

    def end(self, start: int) -> int:
        """Offset behind the last tensor."""
        return start + sum(self.written)


@dataclass(frozen=True, slots=True)
class RecordHead:
    """What a record's header says, before it is known how its bytes are to be read.

    Attributes:
        record: the record; its tensors have no payloads.
        start: first byte behind the header.
    """

    record: ContainerRecord
    start: int

    @property
    def repeatable(self) -> bool:
        """Whether further records may follow."""
        return self.record.kind == "protobuf"

    def placed(self, way: Placement, path: Path) -> ContainerRecord:
        """The record with the payloads that its tensors have in the file ``path`` if it is read this way."""
        return replace(self.record, tensors=place(self.record.tensors, way, self.start, path))


def placements(tensors: Sequence[ContainerTensor]) -> list[Placement]:
    """Each way to read the payload, the plain one first.

    The writer on the device writes no bytes for a null address yet keeps ``size``. adump's exception
    writer passes a length of 32 bits on: a tensor of 4 GiB or more is written modulo 2**32.
    """
    sizes = tuple([t.size for t in tensors])
    ways = [Placement(sizes)]
    if any(t.is_null for t in tensors):
        ways.append(Placement(tuple(0 if t.is_null else t.size for t in tensors)))
    if max(sizes, default=0) >= _WRITE_LIMIT:
        ways.append(Placement(tuple(size % _WRITE_LIMIT for size in sizes)))
    return ways


def place(
    tensors: Iterable[ContainerTensor], way: Placement, start: int, path: Path
) -> tuple[ContainerTensor, ...]:
    """The tensors with their payloads, the first of which begins at ``start``."""
    placed = []
    for tensor, written in zip(tensors, way.written, strict=True):
        placed.append(_placed(tensor, written, start, path))
        start += written
    return tuple(placed)


def _placed(tensor: ContainerTensor, written: int, start: int, path: Path) -> ContainerTensor:
    if written < tensor.size:
        return replace(tensor, note=_missing(tensor, written))
    needed = data_bytes(tensor.dtype, tensor.shape)
    if tensor.size == 0 and needed:
        return replace(tensor, note=_join(tensor.note, f"no data: size is 0, the shape needs {needed} bytes"))
    note = tensor.note
    if needed is not None and needed > tensor.size:
        note = _join(note, f"size is {tensor.size} bytes, the shape needs {needed}")
    nbytes = tensor.size if needed is None else min(needed, tensor.size)
    return replace(tensor, payload=Payload(path, start, nbytes), note=note)


def _missing(tensor: ContainerTensor, written: int) -> str:
    if tensor.is_null and not written:
        return _join(tensor.note, "no data: the tensor's address was null")
    return _join(
        tensor.note,
        f"no data: the exception writer cut {tensor.size} bytes to {written} (length modulo 2**32)",
    )


def _join(*notes: str) -> str:
    return "; ".join(filter(None, notes))


def data_bytes(dtype: str, shape: tuple[int, ...] | None) -> int | None:
    """Bytes that ``shape`` elements of ``dtype`` take, packed; None where the type or shape does not tell."""
    found = BY_NAME.get(dtype)
    if found is None or shape is None or found.kind == "opaque":
        return None
    return (math.prod(shape) * found.bits + 7) // 8


def checked_shape(dims: Iterable[int]) -> tuple[tuple[int, ...] | None, str]:
    """A header's dims as a shape, or None and why they cannot be one."""
    shape = tuple(dims)
    for dim in shape:
        if not 0 <= dim < _DIM_LIMIT:
            return None, f"the header's shape has the dimension {dim}"
    return shape, ""
