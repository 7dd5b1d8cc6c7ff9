"""A table made of rows of two others, which may lack columns that the other one has."""

from __future__ import annotations

from dataclasses import fields
from typing import TYPE_CHECKING, Any

import numpy as np

from pytest_npudump.dump.table import StatsTable

if TYPE_CHECKING:
    from collections.abc import Sequence


def rows_of(tables: tuple[StatsTable, StatsTable], rows: Sequence[tuple[int, int]]) -> StatsTable:
    """Return a table of rows of two others.

    Args:
        tables: the two.
        rows: each row as which of the tables it is of, and its number there.
    """
    columns: dict[str, Any] = {}
    for one in fields(StatsTable):
        both = [getattr(table, one.name) for table in tables]
        if one.name == "wide":
            columns[one.name] = {
                (at, column): both[which][row, column]
                for at, (which, row) in enumerate(rows)
                for column in range(tables[which].values.shape[1])
                if (row, column) in both[which]
            }
        elif isinstance(both[0], np.ndarray) or isinstance(both[1], np.ndarray):
            columns[one.name] = np.array([_cells(both, which, row) for which, row in rows])
        elif None in both:
            columns[one.name] = None
        elif any(both):  # an optional column is empty where a table has none
            columns[one.name] = tuple([both[which][row] if both[which] else "" for which, row in rows])
        else:
            columns[one.name] = ()
    return StatsTable(**columns)


def _cells(both: Sequence[Any], which: int, row: int) -> Any:
    """Return a row of an array that one of two tables may lack: then nothing is known of it."""
    if both[which] is not None:
        return both[which][row]
    other = both[1 - which]
    return np.full(other.shape[1:], np.nan if other.dtype.kind == "f" else 0, other.dtype)
