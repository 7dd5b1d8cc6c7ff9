"""Whose definitions the statistics of a run by callback follow: this package's, or those of CANN's writers.

CANN's print of a tensor may differ from what its elements say. The device's writer takes alignment behind
the shape for elements, and leaves out types that the host's writer has. A golden does not tell which of the
two made it: each of its rows does.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from pytest_npudump.dump.table import sanitised_key

if TYPE_CHECKING:
    from pytest_npudump.dump.records import Dump, Stats
    from pytest_npudump.dump.table import StatsTable
    from pytest_npudump.request import DumpRequest

_NEEDED = 3
"""Columns (max, min, avg) that a row has where CANN computed statistics."""


def is_printed(request: DumpRequest, golden: StatsTable | None) -> bool:
    """Whether statistics that come by callback meet a golden with CANN's own, printed with few digits."""
    return request.transport == "callback" and golden is not None and bool(golden.digits.any())


def as_recorded(own: Dump, device: Dump, golden: StatsTable) -> Dump:
    """Choose for each tensor the statistics that are defined as those of its row in the golden.

    Args:
        own: a dump whose statistics are of the elements of each shape.
        device: the same dump, with the statistics of CANN's device-side writer.
        golden: what they are to be compared with.
    """
    rows = {sanitised_key(key): row for row, key in enumerate(golden.keys)}
    records = []
    for record, other in zip(own.records, device.records, strict=True):
        row = rows.get(str(record.key.sanitised))
        stats = record.stats if row is None else _chosen(record.stats, other.stats, golden, row)
        records.append(record if stats is record.stats else replace(record, stats=stats, note=other.note))
    return replace(own, records=tuple(records))


def _chosen(own: Stats | None, device: Stats | None, golden: StatsTable, row: int) -> Stats | None:
    if not golden.known[row, :_NEEDED].any():
        return device
    if not golden.digits[row] or own is None:
        return own
    untold = device is None or device.max is None
    of_shape = device is not None and golden.counts[row] == own.count != device.count
    return own if untold or of_shape else device
