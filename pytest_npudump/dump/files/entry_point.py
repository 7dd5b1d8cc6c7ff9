"""Tensors of a file of another package's format to executions."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from pytest_npudump.dump.columns import IO_ORDER, Execution, TensorPart
from pytest_npudump.dump.files.formats import Job, format_of, start_of
from pytest_npudump.dump.stats.tensor import file_stats, with_stats
from pytest_npudump.errors import FormatError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from pytest_npudump.dump.names import DumpFile
    from pytest_npudump.dump.records import TensorRecord


def read_file(
    job: Job, _table: tuple[TensorPart, ...], *, stats: bool, acl: bool, projections: bool
) -> tuple[list[Execution], list[FormatError]]:
    """Return the executions of a file of another package's format, and problems of single tensors.

    Raises:
        FormatError: the file is damaged.
    """
    file = job.file
    computed = partial(file_stats, acl=acl, projections=projections)
    problems: list[FormatError] = []
    executions: list[Execution] = []
    parts: dict[tuple[str, int], TensorPart] = {}
    before: TensorRecord | None = None
    for record in _records(file.path):
        slot = (record.key.io, record.key.slot)
        if record.key.io not in IO_ORDER:
            raise FormatError(file.path, f"{record.key}: expected one of {', '.join(IO_ORDER)}")
        if before is not None and (slot in parts or before.key.layer != record.key.layer):
            executions.append(_execution(file, before, parts))
            parts = {}
        told = {name: getattr(record, name) for name in TensorPart._fields if name not in {"io", "slot"}}
        before, part = record, TensorPart(*slot, **told)
        if stats and part.stats is None:
            part, failed = with_stats(part, file.path, computed)
            problems += failed
        parts[slot] = part
    if before is not None:
        executions.append(_execution(file, before, parts))
    return executions, problems


def _records(path: Path) -> Sequence[TensorRecord]:
    start = start_of(path)
    format_ = None if start is None else format_of(path, start)
    if format_ is None:
        raise FormatError(path, "no format of an installed package claims it any more")
    try:
        records = format_.read(path)
    except (FormatError, OSError):
        raise
    except Exception as error:
        raise FormatError(
            path,
            f"{type(format_).__name__}.read() of another package fails: {type(error).__name__}: {error}",
        ) from error
    if not records:
        raise FormatError(
            path, f"{type(format_).__name__} of another package claims it and finds no tensor in it"
        )
    return records


def _execution(file: DumpFile, record: TensorRecord, parts: dict[tuple[str, int], TensorPart]) -> Execution:
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
