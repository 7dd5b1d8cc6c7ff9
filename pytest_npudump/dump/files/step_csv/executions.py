"""Rows of a ``statistic.csv`` to executions: one of a tensor each."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_npudump.dump.execution import Execution
from pytest_npudump.dump.files.step_csv.reader import read_step_csv

if TYPE_CHECKING:
    from pytest_npudump.dump.files.format import Job
    from pytest_npudump.dump.parts import TensorPart
    from pytest_npudump.errors import FormatError


def read_file(
    job: Job, _table: tuple[TensorPart, ...], **_: bool
) -> tuple[list[Execution], list[FormatError]]:
    """Return an execution for each row of a ``statistic.csv``.

    Raises:
        FormatError: the file is damaged.
    """
    file = job.file
    executions = [
        Execution(
            file.place,
            file.path,
            row.op_type,
            row.op_name,
            False,  # noqa: FBT003 - positional for speed: one for each of 20,000 rows
            row.time,
            row.task,
            row.stream,
            (row.part,),
            None,
            True,  # noqa: FBT003 - the same
        )
        for row in read_step_csv(file.path)
    ]
    return executions, []
