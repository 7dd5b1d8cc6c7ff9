"""Records of a dump file to executions, with statistics computed where none are at hand."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from pytest_npudump.dump.execution import Execution
from pytest_npudump.dump.files.container.reader import ContainerRecord, ContainerTensor, read_container
from pytest_npudump.dump.files.mapping import alias, nameless
from pytest_npudump.dump.files.part_stats import file_stats, with_stats
from pytest_npudump.dump.parts import TensorPart, with_projections_of

if TYPE_CHECKING:
    from pytest_npudump.dump.files.format import Job
    from pytest_npudump.dump.places import DumpFile
    from pytest_npudump.errors import FormatError


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
