"""Statistics CSV of one operator: ``reader`` has one file, ``stats_columns`` many at once."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_npudump.dump.files.format import Format, Job

if TYPE_CHECKING:
    from pytest_npudump.dump.execution import Execution
    from pytest_npudump.dump.parts import TensorPart
    from pytest_npudump.errors import FormatError

_START = b"Input/Output"
_MISNAMED = (
    "it may hold statistics, and its name does not tell of what: expected "
    "{type}.{name}.{task}.{stream}.{time}.csv or statistic.csv; rename it, or take it out of the dump"
)


def _read(job: Job, _table: tuple[TensorPart, ...], **_: bool) -> tuple[list[Execution], list[FormatError]]:
    from pytest_npudump.dump.files.stats_csv.executions import stats_csv_executions  # noqa: PLC0415 - few need it

    return stats_csv_executions(job.file), []


FORMAT = Format(
    "stats_csv",
    named=lambda name: name.suffix == ".csv" and name.kind != "opdebug",
    begins=lambda _path, start: start.startswith(_START),
    needs_name=True,
    read=_read,
    misnamed=(".csv", _MISNAMED),
)
