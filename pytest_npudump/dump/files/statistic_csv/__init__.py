"""``statistic.csv`` of MindSpore and msprobe: the statistics of a step, to be merged with its tensors."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_npudump.dump.files.format import Format, Job

if TYPE_CHECKING:
    from pytest_npudump.dump.execution import Execution
    from pytest_npudump.dump.parts import TensorPart
    from pytest_npudump.errors import FormatError


def _read(job: Job, _table: tuple[TensorPart, ...], **_: bool) -> tuple[list[Execution], list[FormatError]]:
    from pytest_npudump.dump.files.statistic_csv.executions import statistic_executions  # noqa: PLC0415 - few need it

    return statistic_executions(job.file), []


FORMAT = Format("statistic_csv", file_name="statistic.csv", part="statistics", read=_read)
