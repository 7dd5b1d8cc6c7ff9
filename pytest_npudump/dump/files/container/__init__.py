"""Dump files: the protobuf container of CANN's writers, and the TLV container of some SoCs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_npudump.dump.files.format import Format, Job

if TYPE_CHECKING:
    from pytest_npudump.dump.execution import Execution
    from pytest_npudump.dump.parts import TensorPart
    from pytest_npudump.errors import FormatError

TLV_MAGIC = b"\x5a\x5a\x5a\x5a"
"""Bytes 8 to 11 of a TLV container."""

_PROTOBUF_START = b"\x0a\x03"


def _read(
    job: Job, table: tuple[TensorPart, ...], *, stats: bool, acl: bool, projections: bool
) -> tuple[list[Execution], list[FormatError]]:
    from pytest_npudump.dump.files.container.executions import container_executions  # noqa: PLC0415 - protobuf

    return container_executions(job.file, table, stats=stats, acl=acl, projections=projections)


FORMAT = Format(
    "container",
    named=lambda name: not name.suffix and name.kind != "opdebug",
    begins=lambda _path, start: start[8:] == TLV_MAGIC or start[8:10] == _PROTOBUF_START,
    read=_read,
)
