"""A golden's table, read some lines at a time: all of its cells at once take six times its size in memory."""

from __future__ import annotations

from itertools import accumulate, chain
from typing import TYPE_CHECKING, Any

import numpy as np

from pytest_npudump.dump.table import StatsTable
from pytest_npudump.golden.content.rows import RowError, parse_rows, refuse_duplicates

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

_BATCH = 1 << 21
"""Characters that are read at once, some 15,000 lines."""


def parse_table(block: str, columns: Sequence[str], digits: int) -> StatsTable:
    """Read a table of any size, as :func:`~pytest_npudump.golden.content.rows.parse_rows` reads a small one.

    Raises:
        RowError: as there.
    """
    parts: list[StatsTable] = []
    first = 0
    for lines in _batches(block):
        try:
            parts.append(parse_rows(lines, columns, digits))
        except RowError as error:
            raise RowError(first + error.row, error.reason) from None
        first += len(parts[-1])
    return parts[0] if len(parts) == 1 else _joined(parts)


def _batches(block: str) -> Iterator[str]:
    end = -1
    while end < len(block):
        start = max(end, 0)
        end = block.find("\n", start + _BATCH) + 1 or len(block)
        yield block[start:end]


def _joined(parts: Sequence[StatsTable]) -> StatsTable:
    def column(name: str) -> Any:
        return chain.from_iterable(getattr(part, name) for part in parts)

    keys = tuple(column("keys"))
    refuse_duplicates(keys)
    firsts = accumulate(map(len, parts), initial=0)
    return StatsTable(
        keys=keys,
        op_types=tuple(column("op_types")),
        dtypes=tuple(column("dtypes")),
        shapes=tuple(column("shapes")),
        counts=tuple(column("counts")),
        values=np.concatenate([part.values for part in parts]),
        known=np.concatenate([part.known for part in parts]),
        digits=np.concatenate([part.digits for part in parts]),
        wide={
            (first + row, at): exact
            for first, part in zip(firsts, parts, strict=False)
            for (row, at), exact in part.wide.items()
        },
        digests=tuple(column("digests")),
        noise=tuple(column("noise")),
    )
