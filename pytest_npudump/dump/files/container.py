"""Dump files without a suffix: the protobuf container of CANN's writers, and the TLV container.

Layout of a protobuf record: u64 little-endian length of the header, the header (``DumpData``), then the
raw bytes of every input, output, buffer and workspace, without padding. The header lists outputs before
inputs. Records may follow each other: CANN opens its files for appending.
"""

from __future__ import annotations

import math
import struct
from dataclasses import dataclass
from functools import partial
from itertools import accumulate
from typing import TYPE_CHECKING, Any

from google.protobuf.message import DecodeError

from pytest_npudump.dump.bytes.rawfile import RawFile, open_raw
from pytest_npudump.dump.execution import Execution, TensorPart, with_projections_of
from pytest_npudump.dump.files.mapping import alias, nameless
from pytest_npudump.dump.files.part_stats import file_stats, with_stats
from pytest_npudump.dump.files.proto import lenient_dump_data_class
from pytest_npudump.dump.records import Payload
from pytest_npudump.dump.unguarded import replace
from pytest_npudump.dump.values.dtypes import BY_GE, BY_NAME, BY_PROTO, format_name, sub_format
from pytest_npudump.errors import FormatError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pytest_npudump.dump.files.formats import Job
    from pytest_npudump.dump.places import DumpFile

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


_TLV_MAGIC = 0x5A5A5A5A
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
    return bool(_HEAD.unpack(file.read(0, _HEAD.size, "the magic"))[1] == _TLV_MAGIC)


@dataclass(frozen=False, slots=True)
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
        found[kind] = tuple(_tlv_tensors(cursor.part(nbytes, "a TLV's value"), kind))
    return version, found.get(INPUTS, ()) + found.get(OUTPUTS, ()), _HEAD.size + len(data)


def _tlv_tensors(cursor: _Cursor, kind: int) -> Iterator[ContainerTensor]:
    (count,) = cursor.take(_COUNT, "the number of tensors")
    for slot in range(count):
        yield _tlv_tensor(cursor, kind, slot)
    if not cursor.done:
        raise cursor.error(f"{len(cursor.data) - cursor.position} bytes behind the last of {count} tensors")


def _tlv_tensor(cursor: _Cursor, kind: int, slot: int) -> ContainerTensor:
    prefix = cursor.take(_INPUT if kind == INPUTS else _OUTPUT, "a tensor")
    dtype, packed = prefix[:2]
    address, _offset, size, nested_bytes = prefix[-4:]
    nested = _nested(cursor.part(nested_bytes, "a tensor's description"))
    shape, note = _tlv_shape(nested, SHAPE)
    original, odd = _tlv_shape(nested, ORIGINAL_SHAPE)
    found = BY_GE.get(dtype)
    return ContainerTensor(
        "input" if kind == INPUTS else "output",
        slot,
        dtype=found.name if found else f"ge:{dtype}",
        format=format_name(packed),
        shape=shape,
        original_shape=original,
        size=size,
        sub_format=sub_format(packed),
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


def _tlv_shape(nested: dict[int, bytes], kind: int) -> tuple[tuple[int, ...] | None, str]:
    raw = nested.get(kind)
    if raw is None:
        return None, ""
    return checked_shape(struct.unpack(f"<{len(raw) // 8}q", raw))


_LENGTH = struct.Struct("<Q")
_HEADER_LIMIT = 2**31 - 1
_GENERAL_TENSOR = 1
_ALIGNMENT, _SCALAR_ROOM = 32, 512
"""Bytes that sizes on the device are multiples of, and the most that one element is given."""
_NO_VERSION = "the header has no version: this is no dump file of CANN"


def read_container(path: Path) -> tuple[ContainerRecord, ...]:
    """Read the records of a dump file; the tensors' bytes stay in the file.

    One record is the rule; a file that was written twice under one name holds several. Only what adump
    writes for an exception callback has neither version nor time (``dump_args_callback.cpp``).

    Raises:
        FormatError: the file is truncated, has bytes that belong to no record, or is no dump.
    """
    with open_raw(path) as file:
        return tuple(_records(file))


def _records(file: RawFile) -> Iterator[ContainerRecord]:
    offset = 0
    while offset < file.size or offset == 0:
        head = read_head(file, offset)
        way = _choose(file, head)
        yield head.placed(way, file.path)
        offset = way.end(head.start)


def read_head(file: RawFile, offset: int) -> RecordHead:
    """Read what the header of the record at ``offset`` says.

    Raises:
        FormatError: there is no header, or it is damaged.
    """
    if offset == 0 and is_tlv(file):
        version, tensors, start = read_tlv(file)
        return RecordHead(ContainerRecord("", 0, str(version), "", "tlv", tensors), start)
    header, start = _header(file, offset)
    tensors = _tensors(header)
    if not header.version and not (offset == 0 and tensors and not header.dump_time):
        raise file.error(offset + _LENGTH.size, _NO_VERSION)
    record = ContainerRecord(
        op_name=_text(header.op_name),
        dump_time=header.dump_time,
        version=_text(header.version),
        dfx_message="",
        kind="protobuf",
        tensors=tensors,
        offset=offset,
    )
    message = header.dfx_message
    del header  # the message may be long, and protobuf's copy of it goes only with all of the header
    return RecordHead(replace(record, dfx_message=_text(message)) if message else record, start)


def _choose(file: RawFile, head: RecordHead) -> Placement:
    """The placement behind which the file ends, else the first one behind which a record begins."""
    ways = placements(head.record.tensors)
    for way in ways:
        if way.end(head.start) == file.size:
            return way
    for way in ways if head.repeatable else ():
        if _begins_record(file, way.end(head.start)):
            return way
    raise misfit(file, head)


def _begins_record(file: RawFile, offset: int) -> bool:
    try:
        read_head(file, offset)
    except FormatError:
        return False
    return True


def misfit(file: RawFile, head: RecordHead) -> FormatError:
    """The error for a file that no placement of a record's tensors fits."""
    end = head.start
    for tensor in head.record.tensors:
        if end + tensor.size > file.size:
            return file.error(
                end,
                f"{tensor.io} {tensor.slot} needs {tensor.size} bytes, but the file has {file.size - end} "
                f"from there on ({file.size} in all): it is truncated or damaged, collect the dump again",
            )
        end += tensor.size
    return file.error(
        end,
        f"{file.size - end} bytes behind the last tensor are not another record: "
        "the file is damaged, collect the dump again",
    )


def _header(file: RawFile, offset: int) -> tuple[Any, int]:
    """The header of the record at ``offset``, and the offset of its payload."""
    (length,) = _LENGTH.unpack(file.read(offset, _LENGTH.size, "the header's length"))
    if not 1 <= length <= _HEADER_LIMIT:
        raise file.error(
            offset, f"header length {length}, expected 1 to {_HEADER_LIMIT}: this is no dump file of CANN"
        )
    start = offset + _LENGTH.size
    data = file.read(start, length, "the header")
    try:
        header: Any = lenient_dump_data_class().FromString(data)
    except (DecodeError, RecursionError, SystemError) as error:  # the last is protobuf 3.20's for some damage
        raise file.error(start, f"the header is no DumpData message: {error}") from error
    return header, start + length


def _tensors(header: Any) -> tuple[ContainerTensor, ...]:
    """The tensors in the order of their bytes.

    Source: ``DumpTask`` of the device's aicpu scheduler and ``DumpFile::Dump`` of adump, whose input
    buffers (kernel arguments) are inputs in the header but come last in the file. A dump that names no
    operator holds either only such buffers or none, and tensors that look like them (``dump_args.cpp``).
    """
    inputs, outputs = list(header.input), list(header.output)
    addressed = any(tensor.address for tensor in (*inputs, *outputs))
    found: list[ContainerTensor] = []
    last: list[ContainerTensor] = []
    for slot, tensor in enumerate(inputs):
        last_one = header.op_name and _is_argument_buffer(tensor)
        (last if last_one else found).append(_tensor("input", slot, tensor, addressed=addressed))
    found += [_tensor("output", slot, tensor, addressed=addressed) for slot, tensor in enumerate(outputs)]
    for io, regions in (("buffer", header.buffer), ("workspace", header.space)):
        for slot, region in enumerate(regions):
            found.append(ContainerTensor(io, slot, "undefined", "", None, None, region.size))
    return (*found, *last)


def _is_argument_buffer(tensor: Any) -> bool:
    return bool(
        tensor.input_type == _GENERAL_TENSOR and not tensor.data_type and not tensor.HasField("shape")
    )


def _tensor(io: str, slot: int, tensor: Any, *, addressed: bool) -> ContainerTensor:
    has_original = tensor.HasField("original_shape")
    # adump's exception writer sets neither of the two, leaves null tensors out of the header, and writes no
    # shape for a scalar; a type it does write only where it knows the shape.
    by_adump = not addressed and not has_original
    number, layout, size = tensor.data_type, tensor.format, tensor.size
    shaped = tensor.HasField("shape") or (by_adump and number and _may_be_scalar(number, size))
    shape, note = checked_shape(tensor.shape.dim) if shaped else (None, "")
    original, odd = checked_shape(tensor.original_shape.dim) if has_original else (None, "")
    found = BY_PROTO.get(number)
    fused = tensor.original_op if io == "output" and tensor.HasField("original_op") else None
    return ContainerTensor(
        io,
        slot,
        dtype=found.name if found else f"proto:{number}",
        format=format_name(layout),
        shape=shape,
        original_shape=original,
        size=size,
        sub_format=tensor.sub_format or sub_format(layout),
        note=note or odd,
        original_name="" if fused is None else _text(fused.name),
        original_index=0 if fused is None else fused.output_index,
        address=tensor.address,
        nullable=not by_adump,
    )


def _may_be_scalar(number: int, size: int) -> bool:
    """Whether ``size`` bytes are those of one element, alignment included; of more the shape is lost."""
    found = BY_PROTO.get(number)
    exact = found is not None and size * 8 == found.bits
    return exact or (size <= _SCALAR_ROOM and size % _ALIGNMENT == 0)


def _text(raw: bytes) -> str:
    return raw.decode("utf-8", "surrogateescape")


def read_file(
    job: Job, table: tuple[TensorPart, ...], *, stats: bool, acl: bool, projections: bool
) -> tuple[list[Execution], list[FormatError]]:
    """Return an execution for each record of a dump file, and problems of single tensors.

    One record is the rule, CANN appends others. ``table`` holds the rows of the statistics CSV beside it.
    They stand for what the producer computed, so they are kept where they have values; tensors that only
    one of the two has are kept as well.

    Raises:
        FormatError: the file is damaged.
    """
    file, statistics = job.file, partial(file_stats, acl=acl, projections=projections) if stats else None
    rows = {(row.io, row.slot): row for row in table}
    executions: list[Execution] = []
    problems: list[FormatError] = []
    for record in read_container(file.path):
        layer = _layer(file, record)
        if not layer:
            problems.append(nameless(file.path))
            continue
        parts = []
        for tensor in record.tensors:
            row = rows.get((tensor.io, tensor.slot))
            part = _part(tensor) if row is None else _part(tensor)._replace(digest=row.digest)
            told = row.stats if row is not None else None
            told = None if told is None or told.max is None else told
            if statistics is not None and (told is None or projections):
                part, failed = with_stats(part, file.path, statistics)
                problems += failed
            if row is not None and told is not None:
                note = "; ".join(filter(None, (part.note, row.note)))
                part = part._replace(stats=with_projections_of(told, part.stats), note=note)
            parts.append(part)
        if table:
            held = {(part.io, part.slot) for part in parts}
            parts += [row for row in table if (row.io, row.slot) not in held]
        executions.append(_execution(file, record, layer, tuple(parts)))
        rows, table = {}, ()
    return executions, problems


def _part(tensor: ContainerTensor) -> TensorPart:
    return TensorPart(
        tensor.io,
        tensor.slot,
        tensor.dtype,
        tensor.shape,
        tensor.format,
        tensor.size,
        None,
        tensor.note,
        tensor.payload,
        tensor.original_shape,
        tensor.sub_format,
    )


def _layer(file: DumpFile, record: ContainerRecord) -> str:
    """The operator's name; "" where only a hash of it is known."""
    if record.op_name:
        return record.op_name
    if file.name is not None:
        return file.name.op_name
    return alias(file.path) if file.path.name.isdecimal() else file.path.name


def _execution(
    file: DumpFile, record: ContainerRecord, layer: str, parts: tuple[TensorPart, ...]
) -> Execution:
    name = file.name
    if name is None:
        return Execution(
            file.place,
            file.path,
            "",
            layer,
            bool(record.op_name),
            record.dump_time,
            None,
            None,
            parts,
        )
    stamped = name.kind != "exception" and not record.offset
    return Execution(
        file.place,
        file.path,
        name.op_type,
        layer,
        bool(record.op_name),
        name.time if stamped or not record.dump_time else record.dump_time,
        name.task,
        name.stream,
        parts,
        name.ffts,
    )
