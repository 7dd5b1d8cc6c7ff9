"""The block of a golden file's projections: a line for each tensor that has them, ``key p0 p1 ... p7``.

A projection of floats has nine significant digits. What repeats prints the same ones then: the eight sums of
float32 are given, addition by addition, and only their last additions, in float64, are left to the processor;
these differ by some 1e-15. Nine digits are as many as tell two float32 apart. One of integers and bools has
all of its digits, since integers must be equal.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from pytest_npudump.dump.stats.signs import DIGITS, PROJECTIONS
from pytest_npudump.dump.values.dtypes import is_exact
from pytest_npudump.golden.content.rows import RowError

if TYPE_CHECKING:
    from pytest_npudump.dump.table import StatsTable


def render_projections(table: StatsTable) -> str:
    """The block's lines, each ending in a newline; "" where no tensor has projections."""
    if table.projections is None or table.projected is None:
        return ""
    rows = zip(table.keys, table.dtypes, table.projected.tolist(), table.projections.tolist(), strict=True)
    return "".join(
        f"{key} {' '.join([_text(value, exact=is_exact(dtype)) for value in sums])}\n"
        for key, dtype, projected, sums in rows
        if projected
    )


def _text(value: float, *, exact: bool) -> str:
    value += 0.0  # no -0
    if exact and math.isfinite(value) and value.is_integer():
        return str(int(value))
    return repr(value).removesuffix(".0") if exact else f"{value:.{DIGITS}g}"


def with_projections(table: StatsTable, block: str) -> StatsTable:
    """A table without projections, with those of a block's lines; an empty block leaves it as it is.

    Raises:
        RowError: a line is malformed, or of a tensor that the table lacks or that stands there twice.
    """
    if not block:
        return table
    rows = {key: row for row, key in enumerate(table.keys)}
    found: dict[int, list[float]] = {}
    for number, line in enumerate(block.splitlines()):
        key, *cells = line.split()
        if len(cells) != PROJECTIONS:
            raise RowError(number, f"{len(cells)} projections, expected {PROJECTIONS}: {line[:120]!r}")
        row = rows.get(key)
        if row is None or row in found:
            why = "a second time" if row is not None else "here, and no line among the tensors"
            raise RowError(number, f"the tensor {key} has projections {why}, remove this line")
        found[row] = [_number(cell, number) for cell in cells]
    return table.with_projections(found)


def _number(cell: str, line: int) -> float:
    try:
        value = float("" if "_" in cell or not cell.isascii() else cell)
    except ValueError:
        raise RowError(line, f"{cell[:120]!r} among the projections is not a number") from None
    if math.isinf(value) and not cell.endswith("inf"):
        raise RowError(line, f"{cell[:120]!r} among the projections is beyond the range of float64")
    return value
