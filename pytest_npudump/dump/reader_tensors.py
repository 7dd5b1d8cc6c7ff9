"""Tensor files (containers and npy) to executions, with statistics computed where none are at hand."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from math import prod
from typing import TYPE_CHECKING

from pytest_npudump.dump.arrays.decode import DecodeError, why_opaque
from pytest_npudump.dump.files.container import ContainerRecord, ContainerTensor, read_container
from pytest_npudump.dump.files.mapping import alias, nameless
from pytest_npudump.dump.files.npy import read_npy_header
from pytest_npudump.dump.parts import COMPUTED_IN_FLOAT32, TensorPart, dtype_name
from pytest_npudump.dump.records import Payload
from pytest_npudump.dump.stats.file_tensors import npy_stats, payload_stats
from pytest_npudump.dump.tree.executions import IO_ORDER, Execution
from pytest_npudump.dump.values.dtypes import BY_NAME
from pytest_npudump.errors import FormatError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from pathlib import Path

    from pytest_npudump.dump.files.registry import FileFormat
    from pytest_npudump.dump.names import DumpName
    from pytest_npudump.dump.records import Stats, TensorRecord
    from pytest_npudump.dump.tree.places import DumpFile


def npy_parts(
    files: Iterable[DumpFile], *, stats: bool, acl: bool
) -> tuple[tuple[TensorPart, ...], list[FormatError]]:
    """Return the tensors of npy files of one execution, and the problems of those that cannot be read.

    The type of a tensor is that of its header, which is what the bytes are.
    """
    parts: dict[tuple[str, int], TensorPart] = {}
    problems: list[FormatError] = []
    for file in files:
        if file.name is None:
            continue
        try:
            part = _npy_part(file, file.name, stats=stats, acl=acl)
        except FormatError as error:
            problems.append(error)
            continue
        if parts.setdefault((part.io, part.slot), part) is not part:
            problems.append(FormatError(file.path, f"{part.io} {part.slot} is in another file too: keep one"))
    return tuple(parts.values()), problems


def _npy_part(file: DumpFile, name: DumpName, *, stats: bool, acl: bool) -> TensorPart:
    path = file.path
    header = read_npy_header(path, may_be_float32=file.place.mindspore)
    dtype, said = dtype_name(header.dtype.name), dtype_name(header.said.name)
    called = dtype_name(name.dtype) if name.dtype else said
    note = "" if called == dtype else f"stored as {dtype}, called {called} in the file's name"
    if said != dtype:
        note = f"{COMPUTED_IN_FLOAT32}, called {said} in the file's header"
    return TensorPart(
        name.io,
        name.slot,
        dtype,
        header.shape,
        format=name.format,
        size=header.nbytes,
        stats=npy_stats(path, header, acl=acl) if stats else None,
        note=note,
        payload=Payload(path, header.offset, header.nbytes, "npy"),
    )


def container_executions(
    file: DumpFile, table: tuple[TensorPart, ...], *, stats: bool, acl: bool
) -> tuple[list[Execution], list[FormatError]]:
    """Return an execution for each record of a dump file, and problems of single tensors.

    One record is the rule, CANN appends others. ``table`` holds the rows of the statistics CSV beside it.
    They stand for what the producer computed, so they are kept where they have values; tensors that only
    one of the two has are kept as well.

    Raises:
        FormatError: the file is damaged.
    """
    computed = partial(_file_stats, acl=acl) if stats else None
    return executions_of(file, read_container(file.path), table, computed)


def executions_of(
    file: DumpFile,
    records: Iterable[ContainerRecord],
    table: tuple[TensorPart, ...],
    statistics: Callable[[TensorPart], Stats | None] | None,
) -> tuple[list[Execution], list[FormatError]]:
    """Return an execution for each of the records of a dump file, as :func:`container_executions` does.

    Args:
        file: where the records come from.
        records: in the order of the file.
        table: rows of the statistics CSV beside it.
        statistics: gives those of a tensor that has bytes, or None for types without; it raises DecodeError
            where the bytes are too few. None to leave them out.
    """
    rows = {(row.io, row.slot): row for row in table}
    executions: list[Execution] = []
    problems: list[FormatError] = []
    for record in records:
        layer = _layer(file, record)
        if not layer:
            problems.append(nameless(file.path))
            continue
        parts = []
        for tensor in record.tensors:
            row = rows.get((tensor.io, tensor.slot))
            part = _part(tensor) if row is None else _part(tensor)._replace(digest=row.digest)
            if row is not None and row.stats is not None and row.stats.max is not None:
                note = "; ".join(filter(None, (part.note, row.note)))
                part = part._replace(stats=row.stats, note=note)
            elif statistics is not None:
                part, failed = _with_stats(part, file.path, statistics)
                problems += failed
            parts.append(part)
        held = {(part.io, part.slot) for part in parts}
        parts += [row for row in table if (row.io, row.slot) not in held]
        executions.append(_execution(file, record, layer, tuple(parts)))
        rows, table = {}, ()
    return executions, problems


def offered_executions(
    file: DumpFile, format_: FileFormat, *, stats: bool, acl: bool
) -> tuple[list[Execution], list[FormatError]]:
    """Return the executions of a file of another package's format, and problems of single tensors.

    Raises:
        FormatError: the file is damaged.
    """
    computed = partial(_file_stats, acl=acl)
    problems: list[FormatError] = []
    executions: list[Execution] = []
    parts: dict[tuple[str, int], TensorPart] = {}
    before: TensorRecord | None = None
    for record in _offered_records(file.path, format_):
        slot = (record.key.io, record.key.slot)
        if record.key.io not in IO_ORDER:
            raise FormatError(file.path, f"{record.key}: expected one of {', '.join(IO_ORDER)}")
        if before is not None and (slot in parts or before.key.layer != record.key.layer):
            executions.append(_offered_execution(file, before, parts))
            parts = {}
        before, part = record, _offered_part(record)
        if stats and part.stats is None:
            part, failed = _with_stats(part, file.path, computed)
            problems += failed
        parts[slot] = part
    if before is not None:
        executions.append(_offered_execution(file, before, parts))
    return executions, problems


def _offered_records(path: Path, format_: FileFormat) -> Sequence[TensorRecord]:
    try:
        records = format_.read(path)
    except (FormatError, OSError):
        raise
    except Exception as error:
        words = f"{type(error).__name__}: {error}"
        raise FormatError(
            path, f"{type(format_).__name__}.read() of another package fails: {words}"
        ) from error
    if not records:
        raise FormatError(
            path, f"{type(format_).__name__} of another package claims it and finds no tensor in it"
        )
    return records


def _offered_part(record: TensorRecord) -> TensorPart:
    fields = {name: getattr(record, name) for name in TensorPart._fields if name not in {"io", "slot"}}
    return TensorPart(record.key.io, record.key.slot, **fields)


def _offered_execution(
    file: DumpFile, record: TensorRecord, parts: dict[tuple[str, int], TensorPart]
) -> Execution:
    return Execution(
        file.place,
        file.path,
        record.op_type,
        record.key.layer,
        True,  # noqa: FBT003 - as every execution is made
        record.time,
        record.task,
        record.stream,
        tuple(parts.values()),
    )


def _part(tensor: ContainerTensor) -> TensorPart:
    return TensorPart(
        tensor.io,
        tensor.slot,
        tensor.dtype,
        tensor.shape,
        format=tensor.format,
        size=tensor.size,
        note=tensor.note,
        payload=tensor.payload,
        original_shape=tensor.original_shape,
        sub_format=tensor.sub_format,
    )


def _with_stats(
    part: TensorPart, path: Path, statistics: Callable[[TensorPart], Stats | None]
) -> tuple[TensorPart, list[FormatError]]:
    """Compute the statistics of one tensor; a note says why there are none, a problem what is damaged."""
    if part.payload is None or part.shape is None:
        return part, []
    try:
        found = statistics(part)
    except DecodeError as error:
        problem = FormatError(path, f"{part.io} {part.slot}: {error}", offset=part.payload.offset)
        return part._replace(note=str(error)), [problem]
    if found is None:
        why = why_opaque(part.dtype) or f"CANN computes no statistics for {part.dtype}"
        return part._replace(note=part.note or why), []
    return part._replace(stats=found), []


def _file_stats(part: TensorPart, *, acl: bool) -> Stats | None:
    assert part.payload is not None  # noqa: S101 - asked only for tensors with bytes
    payload, count = _extent(part.payload, part) if acl else (part.payload, prod(part.shape or ()))
    return payload_stats(payload, part.dtype, count, acl=acl)


def _extent(payload: Payload, part: TensorPart) -> tuple[Payload, int]:
    """Return the bytes that CANN's device code takes for the tensor: all of ``size``, alignment included."""
    bits = BY_NAME[part.dtype].bits if part.dtype in BY_NAME else 0
    if payload.kind != "raw" or not part.size or bits < 8 or part.size <= payload.nbytes:  # noqa: PLR2004 - a byte
        return payload, prod(part.shape or ())
    return replace(payload, nbytes=part.size), part.size * 8 // bits


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
