"""What records tell of their tensors, in columns, whichever way the records are kept."""

from __future__ import annotations

from dataclasses import dataclass
from operator import attrgetter
from typing import TYPE_CHECKING

import numpy as np

from pytest_npudump.dump.columns import ColumnRecords
from pytest_npudump.dump.values.dtypes import UNKNOWN
from pytest_npudump.errors import DumpError

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from numpy.typing import NDArray

    from pytest_npudump.dump.columns import Column
    from pytest_npudump.dump.records import TensorRecord


@dataclass(frozen=True, slots=True)
class RecordColumns:
    """Records in columns of n values each.

    Attributes:
        records: themselves.
        keys: texts of their keys.
        op_types: "" where unknown.
        dtypes: ``-`` where unknown.
        shapes: None where unknown.
        counts: numbers of elements, None where the producer told none.
        stats: a column, or None for no value at all, for each statistic.
        digits: int8 (n,), significant decimal digits; 0 for full precision.
        digests: "" where there is none.
    """

    records: Sequence[TensorRecord]
    keys: tuple[str, ...]
    op_types: tuple[str, ...]
    dtypes: tuple[str, ...]
    shapes: Sequence[tuple[int, ...] | None]
    counts: Sequence[int | None]
    stats: Sequence[Column | None]
    digits: NDArray[np.int8]
    digests: tuple[str, ...]

    @classmethod
    def of(cls, records: Iterable[TensorRecord], statistics: Sequence[str]) -> RecordColumns:
        """Put records into columns; their order is kept.

        Args:
            records: of a dump.
            statistics: names of the fields of ``Stats`` to take.
        """
        if isinstance(records, ColumnRecords):
            return cls._of_columns(records, statistics)
        rows = tuple(records)
        stats = [record.stats for record in rows]
        cells_of = attrgetter("count", *statistics)
        untold = (None,) * (1 + len(statistics))
        cells = [untold if found is None else cells_of(found) for found in stats]
        columns = list(zip(*cells, strict=True)) or [()] * len(untold)
        return cls(
            rows,
            tuple([str(record.key) for record in rows]),
            tuple([record.op_type for record in rows]),
            tuple([record.dtype or UNKNOWN for record in rows]),
            [record.shape for record in rows],
            columns[0],
            columns[1:],
            np.array([(s.digits or 0) if s else 0 for s in stats], dtype=np.int8),
            tuple([record.digest for record in rows]),
        )

    @classmethod
    def _of_columns(cls, records: ColumnRecords, statistics: Sequence[str]) -> RecordColumns:
        return cls(
            records,
            records.texts,
            tuple(records.op_types),
            tuple(records.column("dtype")),
            records.column("shape"),
            records.statistic("count") or [None] * len(records),
            [records.statistic(name) for name in statistics],
            np.where(records.column("told"), records.digits, 0).astype(np.int8),
            tuple(records.column("digest")),
        )

    def projections(self) -> dict[int, tuple[float, ...]]:
        """Return the projections of the tensors that have any, by row; files of statistics have none."""
        if isinstance(self.records, ColumnRecords):
            return {}
        return {
            row: record.stats.projections
            for row, record in enumerate(self.records)
            if record.stats is not None and record.stats.projections is not None
        }

    def refuse_duplicates(self) -> None:
        """Refuse records of which two have one key.

        Raises:
            DumpError: names the files of the first such two.
        """
        if len(frozenset(self.keys)) == len(self.keys):
            return
        seen: dict[str, int] = {}
        for row, key in enumerate(self.keys):
            if key in seen:
                one, other = self.records[row], self.records[seen[key]]
                raise DumpError(
                    f"{one.path} and {other.path} both claim the tensor {key}: two runs may have dumped "
                    f"into one directory; give each run an empty one"
                )
            seen[key] = row
