"""Tensor files (containers and npy) to executions, with statistics computed where none are at hand."""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING

from pytest_npudump.dump.container import ContainerRecord, ContainerTensor, read_container
from pytest_npudump.dump.executions import Execution
from pytest_npudump.dump.npy import load_npy, read_npy_header
from pytest_npudump.dump.parts import TensorPart, dtype_name
from pytest_npudump.dump.records import Payload, Stats
from pytest_npudump.dump.stats import payload_stats, tensor_stats

if TYPE_CHECKING:
    from pathlib import Path

    from pytest_npudump.dump.names import DumpName
    from pytest_npudump.dump.tree import DumpFile


def npy_part(path: Path, name: DumpName, *, stats: bool, acl: bool) -> TensorPart:
    """Return the tensor of an npy file; its type is the header's, which is what the bytes are.

    Raises:
        FormatError: the file is no npy file of plain numbers, or is truncated.
    """
    header = read_npy_header(path)
    dtype = dtype_name(header.dtype.name)
    said = dtype_name(name.dtype) if name.dtype else dtype
    return TensorPart(
        name.io,
        name.slot,
        dtype,
        header.shape,
        format=name.format,
        size=header.nbytes,
        stats=tensor_stats(load_npy(path), acl=acl) if stats else None,
        note="" if said == dtype else f"stored as {dtype}, called {said} in the file's name",
        payload=Payload(path, header.offset, header.nbytes, "npy"),
    )


def container_executions(
    file: DumpFile, table: tuple[TensorPart, ...], *, stats: bool, acl: bool
) -> list[Execution]:
    """Return an execution for each record of a dump file: one is the rule, CANN appends others.

    ``table`` holds the rows of the statistics CSV beside it. They stand for what the producer computed,
    so they are kept where they have values; tensors that only one of the two has are kept as well.

    Raises:
        FormatError: the file is damaged.
    """
    records = read_container(file.path)
    known = {(row.io, row.slot): row for row in table if row.stats is not None and row.stats.max is not None}
    found = []
    for record in records:
        parts = [
            _part(tensor, known.get((tensor.io, tensor.slot)), stats=stats, acl=acl)
            for tensor in record.tensors
        ]
        held = {(part.io, part.slot) for part in parts}
        parts += [row for row in table if (row.io, row.slot) not in held]
        found.append(_execution(file, record, tuple(parts)))
        known, table = {}, ()
    return found


def _part(tensor: ContainerTensor, row: TensorPart | None, *, stats: bool, acl: bool) -> TensorPart:
    return TensorPart(
        tensor.io,
        tensor.slot,
        tensor.dtype,
        tensor.shape,
        format=tensor.format,
        size=tensor.size,
        stats=_stats(tensor, acl=acl) if row is None and stats else None if row is None else row.stats,
        note=tensor.note,
        payload=tensor.payload,
        original_shape=tensor.original_shape,
        sub_format=tensor.sub_format,
    )


def _stats(tensor: ContainerTensor, *, acl: bool) -> Stats | None:
    if tensor.payload is None or tensor.shape is None:
        return None
    return payload_stats(tensor.payload, tensor.dtype, prod(tensor.shape), acl=acl)


def _execution(file: DumpFile, record: ContainerRecord, parts: tuple[TensorPart, ...]) -> Execution:
    name = file.name
    if name is None:
        return Execution(
            file.place,
            file.path,
            "",
            record.op_name or file.path.name,
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
        record.op_name or name.op_name,
        bool(record.op_name),
        name.time if stamped or not record.dump_time else record.dump_time,
        name.task,
        name.stream,
        parts,
        name.ffts,
    )
