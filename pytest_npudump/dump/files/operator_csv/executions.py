"""Statistics CSV of single operators to their executions."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_npudump.dump.execution import named_execution
from pytest_npudump.dump.files.operator_csv.reader import read_operator_csv

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pytest_npudump.dump.execution import Execution
    from pytest_npudump.dump.files.format import Job
    from pytest_npudump.dump.parts import TensorPart
    from pytest_npudump.dump.places import DumpFile
    from pytest_npudump.errors import FormatError


def read_file(
    job: Job, _table: tuple[TensorPart, ...], **_: bool
) -> tuple[list[Execution], list[FormatError]]:
    """Return the execution that a file holds the statistics of."""
    return read_files([job.file])


def read_files(files: Sequence[DumpFile]) -> tuple[list[Execution], list[FormatError]]:
    """Return the executions that files hold the statistics of, and what is wrong with the others."""
    tensors, problems = read_operator_csv("", [str(file.path) for file in files])
    parts = tensors.parts()
    named = [(file, file.name, parts.get(at)) for at, file in enumerate(files)]
    found = [named_execution(file, name, tuple(held)) for file, name, held in named if name and held]
    return found, problems
