"""npy files to executions, with statistics computed where there are none."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_npudump.dump.arrays.decode import read_npy_header
from pytest_npudump.dump.columns import (
    COMPUTED_IN_FLOAT32,
    Execution,
    TensorPart,
    named_execution,
    with_projections_of,
)
from pytest_npudump.dump.dtypes import dtype_name
from pytest_npudump.dump.records import Payload
from pytest_npudump.dump.stats.tensor import npy_stats
from pytest_npudump.errors import FormatError

if TYPE_CHECKING:
    from pytest_npudump.dump.files.formats import Job


def read_file(
    job: Job, table: tuple[TensorPart, ...], *, stats: bool, acl: bool, projections: bool
) -> tuple[list[Execution], list[FormatError]]:
    """Return the execution that npy files hold the tensors of, and the problems of those that are damaged.

    The parameters are those of ``Reader``; each file has one tensor. What the producer computed stands, and
    tensors that only it tells of are added.
    """
    parts: dict[tuple[str, int], TensorPart] = {}
    problems: list[FormatError] = []
    for file in (job.file, *job.more):
        if file.name is None:
            continue
        try:
            path = file.path
            header = read_npy_header(path, may_be_float32=file.place.mindspore)
            dtype, said = dtype_name(header.dtype.name), dtype_name(header.said.name)
            called = dtype_name(file.name.dtype) if file.name.dtype else said
            note = "" if called == dtype else f"stored as {dtype}, called {called} in the file's name"
            if said != dtype:
                note = f"{COMPUTED_IN_FLOAT32}, called {said} in the file's header"
            part = TensorPart(
                file.name.io,
                file.name.slot,
                dtype,
                header.shape,
                format=file.name.format,
                size=header.nbytes,
                stats=npy_stats(path, header, acl=acl, projections=projections) if stats else None,
                note=note,
                payload=Payload(path, header.offset, header.nbytes, "npy"),
            )
        except FormatError as error:
            problems.append(error)
            continue
        if parts.setdefault((part.io, part.slot), part) is not part:
            problems.append(FormatError(file.path, f"{part.io} {part.slot} is in another file too: keep one"))
    for row in table:
        held = parts.setdefault((row.io, row.slot), row)
        if held is not row and row.stats is not None:
            parts[row.io, row.slot] = held._replace(stats=with_projections_of(row.stats, held.stats))
    name = job.file.name
    found = [named_execution(job.file, name, tuple(parts.values()))] if parts and name is not None else []
    return found, problems
