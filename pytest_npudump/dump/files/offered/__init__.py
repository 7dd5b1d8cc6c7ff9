"""Files that no format of ours fits and one of another package does."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_npudump.dump.files.format import Format, Job
from pytest_npudump.dump.files.mapping import is_short_name
from pytest_npudump.dump.files.registry import format_of

if TYPE_CHECKING:
    from pathlib import Path

    from pytest_npudump.dump.execution import Execution
    from pytest_npudump.dump.parts import TensorPart
    from pytest_npudump.errors import FormatError


def _begins(path: Path, start: bytes) -> bool:
    return not is_short_name(path) and format_of(path, start) is not None


def _read(
    job: Job, _table: tuple[TensorPart, ...], *, stats: bool, acl: bool, projections: bool
) -> tuple[list[Execution], list[FormatError]]:
    from pytest_npudump.dump.files.offered.executions import offered_executions  # noqa: PLC0415 - numpy

    return offered_executions(job.file, stats=stats, acl=acl, projections=projections)


FORMAT = Format("offered", begins=_begins, read=_read)
