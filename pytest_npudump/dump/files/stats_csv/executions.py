"""Statistics CSV of one operator to its execution."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_npudump.dump.execution import named_execution
from pytest_npudump.dump.files.stats_csv.reader import read_stats_csv
from pytest_npudump.dump.parts import unique_parts

if TYPE_CHECKING:
    from pytest_npudump.dump.execution import Execution
    from pytest_npudump.dump.places import DumpFile


def stats_csv_executions(file: DumpFile) -> list[Execution]:
    """Return the execution that a file holds the statistics of.

    Raises:
        FormatError: the file is damaged, or has a tensor twice.
    """
    parts = unique_parts(read_stats_csv(file.path), file.path)
    return [] if file.name is None else [named_execution(file, file.name, parts)]
