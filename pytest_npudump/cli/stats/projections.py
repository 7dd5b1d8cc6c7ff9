"""The projections of a dump's tensors, beside their statistics."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_npudump.cli.common.executors import run_tasks
from pytest_npudump.cli.common.progress import progress
from pytest_npudump.dump.arrays.decode import DecodeError
from pytest_npudump.dump.stats.payload_projections import payload_projections
from pytest_npudump.dump.stats.signs import PROJECTIONS
from pytest_npudump.errors import FormatError
from pytest_npudump.report.verdicts import number

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pytest_npudump.cli.common.executors import Workers
    from pytest_npudump.dump.records import TensorRecord
    from pytest_npudump.dump.stats.projections import Projections

COLUMNS = tuple(f"p{place}" for place in range(PROJECTIONS))


def projections_of(
    records: Sequence[TensorRecord], workers: Workers
) -> tuple[dict[str, Projections | None], list[FormatError]]:
    """Return each tensor's projections by its key, None for what holds no values, and what went wrong."""
    with progress("projecting tensors") as report:
        found = list(run_tasks(_projected, records, workers, weight=_weight, progress=report))
    sums = {
        str(record.key): None if isinstance(one, FormatError) else one
        for record, one in zip(records, found, strict=True)
    }
    return sums, [one for one in found if isinstance(one, FormatError)]


def cells(sums: Projections | None) -> tuple[str, ...]:
    """Return the projections as cells of :data:`COLUMNS`."""
    return tuple(map(number, sums.sums if sums is not None else (None,) * PROJECTIONS))


def _weight(record: TensorRecord) -> int:
    return record.payload.nbytes if record.payload is not None else 0


def _projected(record: TensorRecord) -> Projections | FormatError | None:
    if record.payload is None or record.stats is None or record.stats.count is None:
        return None
    try:
        return payload_projections(record.payload, record.dtype, record.stats.count)
    except FormatError as error:
        return error
    except DecodeError as error:
        return FormatError(record.path, str(error))
