"""The lines of several goldens in one layout, so that a tensor's can be compared between files.

A file's columns depend on what its tensors have; here each line has every column that any of the files needs.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from pytest_npudump.golden.content import rows

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from pytest_npudump.dump.table import StatsTable


def common_columns(tables: Collection[StatsTable]) -> tuple[str, ...]:
    """Return the columns that hold what any of the tables says."""
    used = {column for table in tables for column in rows.columns_for(table)}
    if len({rows.common_digits(table) for table in tables if len(table)}) > 1:
        used.add("digits")
    return next(layout for layout in sorted(rows.LAYOUTS, key=len) if used <= set(layout))


def by_name(block: str) -> dict[str, str]:
    """Return the lines of a block, each by what stands before its first space."""
    return {line.partition(" ")[0]: line for line in block.splitlines()}


def lines_by_key(table: StatsTable, columns: Sequence[str]) -> dict[str, str]:
    """Return each tensor's line by its key.

    Raises:
        RowError: a row cannot be written.
    """
    absent = ("",) * len(table) if "digest" in columns else ()
    noise = ("-",) * len(table) if "noise" in columns else ()
    full = replace(table, digests=table.digests or absent, noise=table.noise or noise)
    return dict(zip(table.keys, rows.render_rows(full, columns), strict=True))


def same_lines(one: StatsTable, other: StatsTable) -> bool:
    """Whether two tables would be the same lines of a file."""
    columns = rows.columns_for(one)
    if columns != rows.columns_for(other):
        return False
    return [*rows.render_rows(one, columns)] == [*rows.render_rows(other, columns)]
