"""One file of a dump, or the two that belong together, to executions."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from pytest_npudump.dump.files.registry import format_of, offered
from pytest_npudump.dump.files.stats_csv import read_stats_csv
from pytest_npudump.dump.parts import unique_parts
from pytest_npudump.dump.tree.converted import KIND, by_record, source_of
from pytest_npudump.dump.tree.executions import Execution
from pytest_npudump.dump.tree.find import start_of
from pytest_npudump.dump.tree.unnamed import is_container
from pytest_npudump.errors import FormatError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from pytest_npudump.dump.files.registry import FileFormat
    from pytest_npudump.dump.names import DumpName
    from pytest_npudump.dump.parts import TensorPart
    from pytest_npudump.dump.tree.places import DumpFile


class Job(NamedTuple):
    """A dump file to read.

    Attributes:
        file: the file.
        csv: the statistics CSV of the same execution, where both exist.
        more: npy files with other tensors of the same execution.
    """

    file: DumpFile
    csv: DumpFile | None = None
    more: tuple[DumpFile, ...] = ()


def jobs_of(files: Sequence[DumpFile]) -> list[Job]:
    """Return what is to be read.

    A tensor file and a CSV that share name, ids and time are one job, and so are the tensors converted from
    one record of a dump file.
    """
    files, converted = by_record(files)
    tables = {} if not converted else {source_of(file): file for file in files if _is_table(file)}
    jobs = [Job(group[0], tables.pop(source_of(group[0]), None), tuple(group[1:])) for group in converted]
    taken = {job.csv for job in jobs}
    return [*_paired([file for file in files if file not in taken] if jobs else files), *jobs]


def _is_table(file: DumpFile) -> bool:
    return file.name is not None and file.name.suffix == ".csv"


def _paired(files: Sequence[DumpFile]) -> list[Job]:
    listed = [file for file in files if file.name is not None and file.name.suffix == ".csv"]
    if not listed or len(listed) == len(files):
        return [Job(file) for file in files]
    tables = {(file.path.parent, file.name._replace(suffix="")): file for file in listed if file.name}
    jobs = []
    for file in files:
        if file.name is None or file.name.suffix == "":
            table = tables.pop((file.path.parent, file.name), None) if file.name else None
            jobs.append(Job(file, table))
        elif file.name.suffix != ".csv":
            jobs.append(Job(file))
    return jobs + [Job(file) for file in tables.values()]


def read_job(job: Job, *, stats: bool, acl: bool) -> tuple[list[Execution], list[FormatError]]:
    """Read the file of a job; what cannot be read comes back as problems, and nothing is raised."""
    problems: list[FormatError] = []
    table: tuple[TensorPart, ...] = ()
    found: list[Execution] = []
    try:
        if job.csv is not None:
            table = unique_parts(read_stats_csv(job.csv.path), job.csv.path)
    except FormatError as error:
        problems.append(error)
    try:
        found, damaged = _read(job, table, stats=stats, acl=acl)
        problems += damaged
    except FormatError as error:
        problems.append(error)
    except OSError as error:
        problems.append(FormatError(job.file.path, f"cannot be read: {error.strerror}"))
    return found, problems


def _read(
    job: Job, table: tuple[TensorPart, ...], *, stats: bool, acl: bool
) -> tuple[list[Execution], list[FormatError]]:
    file, name = job.file, job.file.name
    if name is not None and name.suffix == ".csv":
        return [_execution(file, name, unique_parts(read_stats_csv(file.path), file.path))], []
    from pytest_npudump.dump import reader_tensors  # noqa: PLC0415 - numpy and protobuf only where tensors are

    if name is not None and name.suffix == ".npy":
        parts, problems = reader_tensors.npy_parts((file, *job.more), stats=stats, acl=acl)
        parts = _with_table(parts, table)
        return [_execution(file, name, parts)] if parts else [], problems
    if name is None and (format_ := _offered(file.path)) is not None:
        return reader_tensors.offered_executions(file, format_, stats=stats, acl=acl)
    return reader_tensors.container_executions(file, table, stats=stats, acl=acl)


def _offered(path: Path) -> FileFormat | None:
    """Return the format of another package that a file without a dump file's name is of; None for ours."""
    start = start_of(path) if offered() else None
    return None if start is None or is_container(start) else format_of(path, start)


def _with_table(parts: tuple[TensorPart, ...], table: tuple[TensorPart, ...]) -> tuple[TensorPart, ...]:
    """Add the statistics that the producer computed, and the tensors that only they tell of."""
    rows = {(row.io, row.slot): row for row in table}
    joined = []
    for part in parts:
        row = rows.pop((part.io, part.slot), None)
        joined.append(part if row is None or row.stats is None else part._replace(stats=row.stats))
    return (*joined, *rows.values())


def _execution(file: DumpFile, name: DumpName, parts: tuple[TensorPart, ...]) -> Execution:
    return Execution(
        file.place,
        file.path,
        name.op_type,
        name.op_name,
        False,  # noqa: FBT003 - positional for speed: one for each of 10,000 files
        name.time,
        name.task,
        name.stream,
        parts,
        name.ffts,
        bool(name.io) and name.kind != KIND,
    )
