"""Dump files without a suffix: the protobuf container of CANN's writers, and the TLV container.

Layout of a protobuf record: u64 little-endian length of the header, the header (``DumpData``), then the
raw bytes of every input, output, buffer and workspace, without padding. The header lists outputs before
inputs. Records may follow each other: CANN opens its files for appending.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any

from google.protobuf.message import DecodeError

from pytest_npudump.dump.bytes.rawfile import RawFile, open_raw
from pytest_npudump.dump.files.container import tlv
from pytest_npudump.dump.files.container.container_tensors import (
    ContainerRecord,
    ContainerTensor,
    Placement,
    RecordHead,
    checked_shape,
    placements,
)
from pytest_npudump.dump.files.container.proto import lenient_dump_data_class
from pytest_npudump.dump.unguarded import replace
from pytest_npudump.dump.values import formats
from pytest_npudump.dump.values.dtypes import BY_PROTO
from pytest_npudump.errors import FormatError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

__all__ = ["ContainerRecord", "ContainerTensor", "read_container"]

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
    if offset == 0 and tlv.is_tlv(file):
        version, tensors, start = tlv.read_tlv(file)
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
        format=formats.format_name(layout),
        shape=shape,
        original_shape=original,
        size=size,
        sub_format=tensor.sub_format or formats.sub_format(layout),
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
