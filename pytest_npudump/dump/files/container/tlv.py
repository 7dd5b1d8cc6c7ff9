"""The TLV container of Nano and thread-aicpu SoCs.

All little-endian, nothing padded::

    u64 length of what follows up to the data, u32 magic 0x5A5A5A5A, u32 version,
    [u32 type 4, u32 length, inputs], [u32 type 5, u32 length, outputs], the inputs' bytes, the outputs' bytes

Inputs and outputs are ``u32 count``, then for each one a fixed prefix that ends in the length of the
nested TLVs behind it: 0 shape, 1 original shape (i64 each), 2 original name. dtypes are GE's.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pytest_npudump.dump.files.container.container_tensors import ContainerTensor, checked_shape
from pytest_npudump.dump.values import formats
from pytest_npudump.dump.values.dtypes import BY_GE

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pytest_npudump.dump.bytes.rawfile import RawFile
    from pytest_npudump.errors import FormatError

MAGIC = 0x5A5A5A5A
INPUTS, OUTPUTS = 4, 5
SHAPE, ORIGINAL_SHAPE, ORIGINAL_NAME = 0, 1, 2

_HEAD = struct.Struct("<QII")
_TLV = struct.Struct("<II")
_COUNT = struct.Struct("<I")
_INPUT = struct.Struct("<iiiQQQI")
_OUTPUT = struct.Struct("<iiiiiiQQQI")
_AFTER_LENGTH = 8


def is_tlv(file: RawFile) -> bool:
    """Whether ``file`` is a TLV container: bytes 8 to 11 are the magic."""
    if file.size < _HEAD.size:
        return False
    return bool(_HEAD.unpack(file.read(0, _HEAD.size, "the magic"))[1] == MAGIC)


@dataclass(slots=True)
class _Cursor:
    """A place in the bytes of a header that begins at ``base`` in the file."""

    file: RawFile
    data: bytes
    base: int
    position: int = 0

    def take(self, form: struct.Struct, what: str) -> tuple[int, ...]:
        return form.unpack(self.take_bytes(form.size, what))

    def take_bytes(self, nbytes: int, what: str) -> bytes:
        end = self.position + nbytes
        if end > len(self.data):
            raise self.error(f"{what} needs {nbytes} bytes, its header has {len(self.data) - self.position}")
        taken = self.data[self.position : end]
        self.position = end
        return taken

    def part(self, nbytes: int, what: str) -> _Cursor:
        """A cursor over the next ``nbytes`` alone."""
        start = self.base + self.position
        return _Cursor(self.file, self.take_bytes(nbytes, what), start)

    def error(self, reason: str) -> FormatError:
        return self.file.error(self.base + self.position, reason)

    @property
    def done(self) -> bool:
        return self.position == len(self.data)


def read_tlv(file: RawFile) -> tuple[int, tuple[ContainerTensor, ...], int]:
    """The version, the tensors (inputs, then outputs) without payloads, and the offset of the payload.

    Raises:
        FormatError: a length leaves the part it belongs to, or a TLV has an unknown type.
    """
    length, _, version = _HEAD.unpack(file.read(0, _HEAD.size, "the header"))
    if length < _AFTER_LENGTH:
        raise file.error(0, f"header length {length}, expected at least {_AFTER_LENGTH}")
    data = file.read(_HEAD.size, length - _AFTER_LENGTH, "the header")
    cursor = _Cursor(file, data, _HEAD.size)
    found: dict[int, tuple[ContainerTensor, ...]] = {}
    while not cursor.done:
        kind, nbytes = cursor.take(_TLV, "a TLV")
        if kind not in {INPUTS, OUTPUTS} or kind in found:
            raise cursor.error(
                f"TLV type {kind}, expected {INPUTS} (inputs) or {OUTPUTS} (outputs), each once"
            )
        found[kind] = tuple(_tensors(cursor.part(nbytes, "a TLV's value"), kind))
    return version, found.get(INPUTS, ()) + found.get(OUTPUTS, ()), _HEAD.size + len(data)


def _tensors(cursor: _Cursor, kind: int) -> Iterator[ContainerTensor]:
    (count,) = cursor.take(_COUNT, "the number of tensors")
    for slot in range(count):
        yield _tensor(cursor, kind, slot)
    if not cursor.done:
        raise cursor.error(f"{len(cursor.data) - cursor.position} bytes behind the last of {count} tensors")


def _tensor(cursor: _Cursor, kind: int, slot: int) -> ContainerTensor:
    prefix = cursor.take(_INPUT if kind == INPUTS else _OUTPUT, "a tensor")
    dtype, packed = prefix[:2]
    address, _offset, size, nested_bytes = prefix[-4:]
    nested = _nested(cursor.part(nested_bytes, "a tensor's description"))
    shape, note = _shape(nested, SHAPE)
    original, odd = _shape(nested, ORIGINAL_SHAPE)
    found = BY_GE.get(dtype)
    return ContainerTensor(
        "input" if kind == INPUTS else "output",
        slot,
        dtype=found.name if found else f"ge:{dtype}",
        format=formats.format_name(packed),
        shape=shape,
        original_shape=original,
        size=size,
        sub_format=formats.sub_format(packed),
        note=note or odd,
        original_name=nested.get(ORIGINAL_NAME, b"").decode("utf-8", "surrogateescape"),
        address=address,
        nullable=True,
    )


def _nested(cursor: _Cursor) -> dict[int, bytes]:
    found: dict[int, bytes] = {}
    while not cursor.done:
        kind, nbytes = cursor.take(_TLV, "a nested TLV")
        if kind in {SHAPE, ORIGINAL_SHAPE} and nbytes % 8:
            raise cursor.error(f"a shape of {nbytes} bytes, expected a multiple of 8")
        found[kind] = cursor.take_bytes(nbytes, "a nested TLV's value")
    return found


def _shape(nested: dict[int, bytes], kind: int) -> tuple[tuple[int, ...] | None, str]:
    raw = nested.get(kind)
    if raw is None:
        return None, ""
    return checked_shape(struct.unpack(f"<{len(raw) // 8}q", raw))
