"""Rows of a ``statistic.csv`` to executions: one of a tensor each."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_npudump.dump.files.step_csv.reader import read_step_csv

if TYPE_CHECKING:
    from pytest_npudump.dump.execution import Execution
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
    return read_step_csv(job.file.path, job.file.place), []
