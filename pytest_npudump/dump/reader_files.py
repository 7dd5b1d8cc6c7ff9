"""One file of a dump, or the two that belong together, to executions."""

from __future__ import annotations

from itertools import chain
from typing import TYPE_CHECKING

from pytest_npudump.dump.files import BY_NAME
from pytest_npudump.dump.files.format import Job
from pytest_npudump.dump.files.operator_csv.reader import read_operator_csv
from pytest_npudump.dump.tree.converted import by_record, source_of
from pytest_npudump.errors import FormatError
from pytest_npudump.language.shell import typed

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pytest_npudump.dump.execution import Execution
    from pytest_npudump.dump.parts import TensorPart
    from pytest_npudump.dump.places import DumpFile


def jobs_of(files: Sequence[DumpFile]) -> list[Job]:
    """Return what is to be read.

    A tensor file and a CSV that share name, ids and time are one job, and so are the tensors converted from
    one record of a dump file.
    """
    files, converted = by_record(files)
    tables = (
        {} if not converted else {source_of(file): file for file in files if file.format == "operator_csv"}
    )
    jobs = [Job(group[0], tables.pop(source_of(group[0]), None), tuple(group[1:])) for group in converted]
    taken = {job.csv for job in jobs}
    return [*_paired([file for file in files if file not in taken] if jobs else files), *jobs]


def _paired(files: Sequence[DumpFile]) -> list[Job]:
    listed = [file for file in files if file.format == "operator_csv"]
    if not listed or len(listed) == len(files):
        return [Job(file) for file in files]
    tables = {(file.path.parent, file.name._replace(suffix="")): file for file in listed if file.name}
    jobs = [
        Job(file, tables.pop((file.path.parent, file.name), None) if file.name else None)
        for file in files
        if file.format != "operator_csv"
    ]
    return jobs + [Job(file) for file in tables.values()]


def read_job(
    job: Job, *, stats: bool, acl: bool, projections: bool = False
) -> tuple[list[Execution], list[FormatError]]:
    """Read the file of a job; what cannot be read comes back as problems, and nothing is raised."""
    problems: list[FormatError] = []
    table: tuple[TensorPart, ...] = ()
    found: list[Execution] = []
    format_ = BY_NAME[job.file.format]
    if job.csv is not None:
        rows, problems = read_operator_csv("", [str(job.csv.path)])
        table = tuple(chain(*rows.parts().values()))
    try:
        if format_.instead:
            instead = format_.instead.format(path=typed(job.file.path))
            raise FormatError(job.file.path, f"it is {instead}")  # noqa: TRY301 - as readers raise
        found, damaged = format_.read(job, table, stats=stats, acl=acl, projections=projections)
        problems += damaged
    except FormatError as error:
        problems.append(error)
    except OSError as error:
        problems.append(FormatError(job.file.path, f"cannot be read: {error.strerror}"))
    return found, problems
