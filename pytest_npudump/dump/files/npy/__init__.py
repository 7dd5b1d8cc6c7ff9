"""npy files, one for each tensor: by MindSpore, by TorchAir, and those converted from a dump file."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_npudump.dump.files.format import Format, Job

if TYPE_CHECKING:
    from pytest_npudump.dump.execution import Execution
    from pytest_npudump.dump.parts import TensorPart
    from pytest_npudump.errors import FormatError

_MISNAMED = (
    "it may hold a tensor, and its name does not tell which: expected a name of MindSpore or of "
    "TorchAir, or that of a dump file and .output.0.npy; rename it, or take it out of the dump"
)


def _read(
    job: Job, table: tuple[TensorPart, ...], *, stats: bool, acl: bool, projections: bool
) -> tuple[list[Execution], list[FormatError]]:
    from pytest_npudump.dump.files.npy.executions import npy_executions  # noqa: PLC0415 - numpy

    return npy_executions((job.file, *job.more), table, stats=stats, acl=acl, projections=projections)


FORMAT = Format("npy", named=lambda name: name.suffix == ".npy", read=_read, misnamed=(".npy", _MISNAMED))
