"""Dump files without a suffix: the protobuf container of CANN's writers, and the TLV container.

Layout of a protobuf record: u64 little-endian length of the header, the header (``DumpData``), then the
raw bytes of every input, output, buffer and workspace, without padding. The header lists outputs before
inputs. Records may follow each other: CANN opens its files for appending.

The TLV container is that of Nano and thread-aicpu SoCs. All little-endian, nothing padded::

    u64 length of what follows up to the data, u32 magic 0x5A5A5A5A, u32 version,
    [u32 type 4, u32 length, inputs], [u32 type 5, u32 length, outputs], the inputs' bytes, the outputs' bytes

Inputs and outputs are ``u32 count``, then for each one a fixed prefix that ends in the length of the
nested TLVs behind it: 0 shape, 1 original shape (i64 each), 2 original name. dtypes are GE's.

CANN's two copies of the header's schema (``dump_data.proto`` of the device-side writer, ``dump_task.proto``
of adump) are wire compatible; ``_SCHEMA`` is their union, built at run time: generated modules are tied to
one range of protobuf versions, and would register the names in the default pool, where they would clash
with those of CANN's own Python tools. Enum fields are declared int32, which has the same wire form, so that
numbers newer than any table come through as they are.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.message import DecodeError, Message

from pytest_npudump.dump.columns import Execution, TensorPart, with_projections_of
from pytest_npudump.dump.dtypes import BY_GE, BY_NAME, BY_PROTO, format_name, sub_format
from pytest_npudump.dump.filebytes import RawFile, open_raw
from pytest_npudump.dump.files.formats import TLV_MAGIC, Job
from pytest_npudump.dump.names import alias, nameless
from pytest_npudump.dump.records import Payload, Stats
from pytest_npudump.dump.stats.tensor import Waiting, file_stats, with_stats
from pytest_npudump.errors import FormatError, joined

_WRITE_LIMIT = 1 << 32
_DIM_LIMIT = 1 << 63
_LENGTH = struct.Struct("<Q")
_HEADER_LIMIT = 2**31 - 1
_GENERAL_TENSOR = 1
_ALIGNMENT, _SCALAR_ROOM = 32, 512
"""Bytes that sizes on the device are multiples of, and the most that one element is given."""

_INPUTS, _OUTPUTS = 4, 5
_SHAPE, _ORIGINAL_SHAPE, _ORIGINAL_NAME = 0, 1, 2
_TLV_HEAD = struct.Struct("<Q4sI")
_TLV = struct.Struct("<II")
_COUNT = struct.Struct("<I")
_PREFIXES = {_INPUTS: struct.Struct("<iiiQQQI"), _OUTPUTS: struct.Struct("<iiiiiiQQQI")}
_AFTER_LENGTH = 8


@dataclass(slots=True)
class ContainerTensor:
    """One tensor, buffer or workspace of a container.

    Attributes:
        io: ``input``, ``output``, ``buffer`` or ``workspace``.
        slot: index among those of the same ``io``.
        dtype: name after :mod:`pytest_npudump.dump.dtypes`; ``proto:N`` or ``ge:N`` for a number of
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
        null: whether the header names a size and no address, where CANN keeps the size and writes no bytes.
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
    null: bool = False


@dataclass(slots=True)
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
        record, start = _head(file, offset)
        written = _written(file, record, start)
        for tensor, nbytes in zip(record.tensors, written, strict=True):
            _place(tensor, nbytes, start, file)
            start += nbytes
        yield record
        offset = start


def _written(file: RawFile, record: ContainerRecord, start: int) -> Sequence[int]:
    """Bytes in the file for each tensor of the record whose bytes begin at ``start``.

    The writer on the device writes no bytes for a null address yet keeps ``size``. adump's exception
    writer passes a length of 32 bits on: a tensor of 4 GiB or more is written modulo 2**32. Of these ways the
    one is taken behind which the file ends, else the first one behind which a record begins.
    """
    sizes = [tensor.size for tensor in record.tensors]
    ways = [sizes]
    if any(tensor.null for tensor in record.tensors):
        ways.append([0 if tensor.null else tensor.size for tensor in record.tensors])
    if max(sizes, default=0) >= _WRITE_LIMIT:
        ways.append([size % _WRITE_LIMIT for size in sizes])
    for way in ways:
        if start + sum(way) == file.size:
            return way
    for way in ways if record.kind == "protobuf" else ():
        try:
            _head(file, start + sum(way))
        except FormatError:
            continue
        return way
    end = start
    for tensor in record.tensors:
        if end + tensor.size > file.size:
            raise file.error(
                end,
                f"{tensor.io} {tensor.slot} needs {tensor.size} bytes, but the file has {file.size - end} "
                f"from there on ({file.size} in all): it is truncated or damaged, collect the dump again",
            )
        end += tensor.size
    raise file.error(
        end,
        f"{file.size - end} bytes behind the last tensor are not another record: "
        "the file is damaged, collect the dump again",
    )


def _place(tensor: ContainerTensor, written: int, start: int, file: RawFile) -> None:
    """Give a tensor its payload, or a note why it has none."""
    needed = data_bytes(tensor.dtype, tensor.shape)
    size, note = tensor.size, ""
    if written < size and tensor.null and not written:
        note = "no data: the tensor's address was null"
    elif written < size:
        note = f"no data: the exception writer cut {size} bytes to {written} (length modulo 2**32)"
    elif size == 0 and needed:
        note = f"no data: size is 0, the shape needs {needed} bytes"
    else:
        nbytes = size if needed is None else min(needed, size)
        tensor.payload = Payload(file.path, start, nbytes, data=file.held(start, nbytes))
        if needed is not None and needed > size:
            note = f"size is {size} bytes, the shape needs {needed}"
    if note:
        tensor.note = f"{tensor.note}; {note}" if tensor.note else note


def data_bytes(dtype: str, shape: tuple[int, ...] | None) -> int | None:
    """Return the bytes of ``shape`` elements of ``dtype``, packed; None where they are unknown."""
    found = BY_NAME.get(dtype)
    if found is None or shape is None or found.kind == "opaque":
        return None
    return (math.prod(shape) * found.bits + 7) // 8


def _checked_shape(dims: Iterable[int]) -> tuple[tuple[int, ...] | None, str]:
    """A header's dims as a shape, or None and why they cannot be one."""
    shape = tuple(dims)
    for dim in shape:
        if not 0 <= dim < _DIM_LIMIT:
            return None, f"the header's shape has the dimension {dim}"
    return shape, ""


def _head(file: RawFile, offset: int) -> tuple[ContainerRecord, int]:
    """Read the header of the record at ``offset``, and find its tensors' bytes.

    Raises:
        FormatError: there is no header, or it is damaged.
    """
    if offset == 0 and file.size >= _TLV_HEAD.size and file.read(8, 4, "the magic") == TLV_MAGIC:
        length, _, version = _TLV_HEAD.unpack(file.read(0, _TLV_HEAD.size, "the header"))
        if length < _AFTER_LENGTH:
            raise file.error(0, f"header length {length}, expected at least {_AFTER_LENGTH}")
        data = file.read(_TLV_HEAD.size, length - _AFTER_LENGTH, "the header")
        cursor = _Cursor(file, data, _TLV_HEAD.size)
        found: dict[int, tuple[ContainerTensor, ...]] = {}
        while not cursor.done:
            kind, nbytes = cursor.take(_TLV, "a TLV")
            if kind not in _PREFIXES or kind in found:
                raise cursor.error(
                    f"TLV type {kind}, expected {_INPUTS} (inputs) or {_OUTPUTS} (outputs), each once"
                )
            found[kind] = tuple(_tlv_tensors(cursor.part(nbytes, "a TLV's value"), kind))
        tensors = found.get(_INPUTS, ()) + found.get(_OUTPUTS, ())
        return ContainerRecord("", 0, str(version), "", "tlv", tensors), _TLV_HEAD.size + len(data)
    (length,) = _LENGTH.unpack(file.read(offset, _LENGTH.size, "the header's length"))
    if not 1 <= length <= _HEADER_LIMIT:
        raise file.error(
            offset, f"header length {length}, expected 1 to {_HEADER_LIMIT}: this is no dump file of CANN"
        )
    start = offset + _LENGTH.size
    data = file.read(start, length, "the header")
    try:
        header: Any = dump_data_class("bytes").FromString(data)
    except (DecodeError, RecursionError, SystemError) as error:  # the last is protobuf 3.20's for some damage
        raise file.error(start, f"the header is no DumpData message: {error}") from error
    del data
    tensors = _tensors(header)
    if not header.version and not (offset == 0 and tensors and not header.dump_time):
        raise file.error(start, "the header has no version: this is no dump file of CANN")
    name, time, version, message = header.op_name, header.dump_time, header.version, header.dfx_message
    del header  # the message may be long, and protobuf's copy of it goes only with all of the header
    record = ContainerRecord(_text(name), time, _text(version), _text(message), "protobuf", tensors, offset)
    return record, start + length


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
        is_argument = tensor.input_type == _GENERAL_TENSOR and not tensor.data_type
        is_last = header.op_name and is_argument and not tensor.HasField("shape")
        (last if is_last else found).append(_tensor("input", slot, tensor, addressed=addressed))
    found += [_tensor("output", slot, tensor, addressed=addressed) for slot, tensor in enumerate(outputs)]
    for io, regions in (("buffer", header.buffer), ("workspace", header.space)):
        for slot, region in enumerate(regions):
            found.append(ContainerTensor(io, slot, "undefined", "", None, None, region.size))
    return (*found, *last)


def _tensor(io: str, slot: int, tensor: Any, *, addressed: bool) -> ContainerTensor:
    has_original = tensor.HasField("original_shape")
    # adump's exception writer sets neither of the two, leaves null tensors out of the header, and writes no
    # shape for a scalar; a type it does write only where it knows the shape.
    by_adump = not addressed and not has_original
    number, layout, size = tensor.data_type, tensor.format, tensor.size
    shaped = tensor.HasField("shape") or (by_adump and number and _may_be_scalar(number, size))
    shape, note = _checked_shape(tensor.shape.dim) if shaped else (None, "")
    original, odd = _checked_shape(tensor.original_shape.dim) if has_original else (None, "")
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
        null=not by_adump and size > 0 and not tensor.address,
    )


def _may_be_scalar(number: int, size: int) -> bool:
    """Return whether ``size`` bytes can be one element, alignment included; of more the shape is lost."""
    found = BY_PROTO.get(number)
    exact = found is not None and size * 8 == found.bits
    return exact or (size <= _SCALAR_ROOM and size % _ALIGNMENT == 0)


def _text(raw: bytes) -> str:
    return raw.decode("utf-8", "surrogateescape")


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


def _tlv_tensors(cursor: _Cursor, kind: int) -> Iterator[ContainerTensor]:
    (count,) = cursor.take(_COUNT, "the number of tensors")
    for slot in range(count):
        dtype, packed, *_, address, _offset, size, nested_bytes = cursor.take(_PREFIXES[kind], "a tensor")
        part = cursor.part(nested_bytes, "a tensor's description")
        nested: dict[int, bytes] = {}
        while not part.done:
            tag, nbytes = part.take(_TLV, "a nested TLV")
            if tag in {_SHAPE, _ORIGINAL_SHAPE} and nbytes % 8:
                raise part.error(f"a shape of {nbytes} bytes, expected a multiple of 8")
            nested[tag] = part.take_bytes(nbytes, "a nested TLV's value")
        (shape, note), (original, odd) = (
            _checked_shape(dim for (dim,) in struct.iter_unpack("<q", nested[tag]))
            if tag in nested
            else (None, "")
            for tag in (_SHAPE, _ORIGINAL_SHAPE)
        )
        found = BY_GE.get(dtype)
        yield ContainerTensor(
            "input" if kind == _INPUTS else "output",
            slot,
            dtype=found.name if found else f"ge:{dtype}",
            format=format_name(packed),
            shape=shape,
            original_shape=original,
            size=size,
            sub_format=sub_format(packed),
            note=note or odd,
            original_name=_text(nested.get(_ORIGINAL_NAME, b"")),
            address=address,
            null=size > 0 and not address,
        )
    if not cursor.done:
        raise cursor.error(f"{len(cursor.data) - cursor.position} bytes behind the last of {count} tensors")


def read_file(
    job: Job,
    table: tuple[TensorPart, ...],
    *,
    stats: bool,
    acl: bool,
    projections: bool,
    waiting: Waiting | None = None,
) -> tuple[list[Execution], list[FormatError]]:
    """Return an execution for each record of a dump file, and problems of single tensors.

    One record is the rule, CANN appends others. ``table`` holds the rows of the statistics CSV beside it.
    They stand for what the producer computed, so they are kept where they have values; tensors that only
    one of the two has are kept as well.

    Raises:
        FormatError: the file is damaged.
    """
    with open_raw(job.file.path) as raw:
        together = None if table else waiting
        compute = partial(file_stats, acl=acl, projections=projections, file=raw, waiting=together)
        statistics = compute if stats else None
        return _executions(job, table, tuple(_records(raw)), statistics, projections=projections)


def _executions(
    job: Job,
    table: tuple[TensorPart, ...],
    records: Sequence[ContainerRecord],
    statistics: Callable[[TensorPart], Stats | None] | None,
    *,
    projections: bool,
) -> tuple[list[Execution], list[FormatError]]:
    file, name = job.file, job.file.name
    rows = {(row.io, row.slot): row for row in table}
    executions: list[Execution] = []
    problems: list[FormatError] = []
    for record in records:
        layer = record.op_name
        if not layer and name is not None:
            layer = name.op_name
        elif not layer:
            layer = alias(file.path) if file.path.name.isdecimal() else file.path.name
        if not layer:  # only a hash of it is known
            problems.append(nameless(file.path))
            continue
        parts = []
        for tensor in record.tensors:
            row = rows.get((tensor.io, tensor.slot))
            part = TensorPart(
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
                "" if row is None else row.digest,
            )
            told = row.stats if row is not None else None
            told = None if told is None or told.max is None else told
            if statistics is not None and (told is None or projections):
                part, failed = with_stats(part, file.path, statistics)
                problems += failed
            if row is not None and told is not None:
                note = joined("; ", filter(None, (part.note, row.note)))
                part = part._replace(stats=with_projections_of(told, part.stats), note=note)
            parts.append(part)
        if table:
            held = {(part.io, part.slot) for part in parts}
            parts += [row for row in table if (row.io, row.slot) not in held]
        time = record.dump_time
        if name is not None and (not time or (name.kind != "exception" and not record.offset)):
            time = name.time
        executions.append(
            Execution(
                file.place,
                file.path,
                "" if name is None else name.op_type,
                layer,
                bool(record.op_name),
                time,
                None if name is None else name.task,
                None if name is None else name.stream,
                tuple(parts),
                None if name is None else name.ffts,
            )
        )
        rows, table = {}, ()
    return executions, problems


PACKAGE = "toolkit.dumpdata"

_SCHEMA = {
    "Shape": "dim=1 *uint64",
    "OriginalOp": "name=1 string; output_index=2 uint32; data_type=3 int32; format=4 int32",
    "DimRange": "dim_start=1 uint64; dim_end=2 uint64",
    "OpOutput": (
        "data_type=1 int32; format=2 int32; shape=3 Shape; original_op=4 OriginalOp; data=5 bytes; "
        "size=6 uint64; original_shape=7 Shape; sub_format=8 int32; address=9 uint64; "
        "dim_range=10 *DimRange; offset=11 uint64; arg_index=12 uint32"
    ),
    "OpInput": (
        "data_type=1 int32; format=2 int32; shape=3 Shape; data=4 bytes; size=5 uint64; "
        "original_shape=6 Shape; sub_format=7 int32; address=8 uint64; offset=9 uint64; "
        "arg_index=10 uint32; input_type=11 uint32"
    ),
    "OpBuffer": "buffer_type=1 int32; data=2 bytes; size=3 uint64",
    "Workspace": "type=1 int32; data=2 bytes; size=3 uint64; arg_index=4 uint32",
    "OpAttr": "name=1 string; value=2 string",
    "DumpData": (
        "version=1 string; dump_time=2 uint64; output=3 *OpOutput; input=4 *OpInput; buffer=5 *OpBuffer; "
        "op_name=6 string; attr=7 *OpAttr; space=8 *Workspace; dfx_message=9 string"
    ),
}


@cache
def dump_data_class(text: str = "string") -> type[Message]:
    """The message class of ``DumpData``, with CANN's field names.

    Works with protobuf 3.20 and every later major version. Its descriptors live in a private pool.

    Args:
        text: type of each ``string``. protobuf refuses a whole header for one that is not UTF-8, which CANN
            writes where it cuts a long name by bytes. So readers take ``bytes``, and decode them themselves.
    """
    file = descriptor_pb2.FileDescriptorProto()
    file.name, file.package, file.syntax = "dump_data.proto", PACKAGE, "proto3"
    for name, fields in _SCHEMA.items():
        message = file.message_type.add()
        message.name = name
        for item in fields.split("; "):
            _add_field(message.field.add(), item, text)
    pool: Any = descriptor_pool.DescriptorPool()
    pool.AddSerializedFile(file.SerializeToString())
    descriptor = pool.FindMessageTypeByName(f"{PACKAGE}.DumpData")
    factory: Any = message_factory
    if hasattr(factory, "GetMessageClass"):
        found: type[Message] = factory.GetMessageClass(descriptor)
    else:
        found = factory.MessageFactory(pool).GetPrototype(descriptor)
    return found


def _add_field(field: descriptor_pb2.FieldDescriptorProto, item: str, text: str) -> None:
    """Fill ``field`` from ``name=number type``; ``*`` before the type stands for repeated."""
    assignment, kind = item.split(" ")
    name, number = assignment.split("=")
    field.name, field.number = name, int(number)
    repeated = kind.startswith("*")
    field.label = field.LABEL_REPEATED if repeated else field.LABEL_OPTIONAL
    kind = kind.lstrip("*")
    if kind in _SCHEMA:
        field.type = field.TYPE_MESSAGE
        field.type_name = f".{PACKAGE}.{kind}"
    else:
        scalar = text if kind == "string" else kind
        field.type = descriptor_pb2.FieldDescriptorProto.Type.Value(f"TYPE_{scalar.upper()}")
