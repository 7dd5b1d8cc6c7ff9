"""Statistics CSV of one operator to its execution."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_npudump.dump.execution import named_execution
from pytest_npudump.dump.files.operator_csv.reader import read_operator_csv
from pytest_npudump.dump.parts import unique_parts

if TYPE_CHECKING:
    from pytest_npudump.dump.execution import Execution
    from pytest_npudump.dump.files.format import Job
    from pytest_npudump.dump.parts import TensorPart
    from pytest_npudump.errors import FormatError


def read_file(
    job: Job, _table: tuple[TensorPart, ...], **_: bool
) -> tuple[list[Execution], list[FormatError]]:
    """Return the execution that a file holds the statistics of.

    Raises:
        FormatError: the file is damaged, or has a tensor twice.
    """
    file = job.file
    parts = unique_parts(read_operator_csv(file.path), file.path)
    return ([] if file.name is None else [named_execution(file, file.name, parts)]), []
