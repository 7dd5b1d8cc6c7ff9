"""Totals of many small tensors of one size at once, a row each."""

from __future__ import annotations

import numpy as np

from pytest_npudump.dump.stats.sums import row_dots
from pytest_npudump.dump.stats.totals import ScaledSum, Totals


def row_totals(values: np.ndarray, *, whole: bool) -> list[Totals]:
    """What each row of float64 of shape (k, n), n > 0, adds up to, none of whose squares leaves the range.

    Args:
        values: the elements.
        whole: they are integers, and so are their extremes and sums.
    """
    count = values.shape[1]
    squares = row_dots(values, values)
    zeros = [count - found for found in row_counts(values != 0)]
    special = None
    if not np.isfinite(squares).all():
        finite = np.isfinite(values)
        special = (row_counts(np.isnan(values)), row_counts(values == -np.inf), row_counts(values == np.inf))
        extremes = (
            np.minimum.reduce(np.where(finite, values, np.inf), axis=1),
            np.maximum.reduce(np.where(finite, values, -np.inf), axis=1),
        )
        values = np.where(finite, values, 0.0)
        squares = row_dots(values, values)
    else:
        extremes = np.minimum.reduce(values, axis=1), np.maximum.reduce(values, axis=1)
    columns = (*extremes, np.add.reduce(values, axis=1))
    low, high, sums = (column.astype(np.int64).tolist() if whole else column.tolist() for column in columns)
    found = []
    for row, (least, most, total, square, zero) in enumerate(
        zip(low, high, sums, squares.tolist(), zeros, strict=True)
    ):
        magnitude = max(-least, most)
        if special is None or least <= most:
            totals = Totals(count, most, least, magnitude, ScaledSum(total), ScaledSum(square), zero=zero)
        else:
            totals = Totals(count)
        if special is not None:
            totals.add_special(*(side[row] for side in special))
        found.append(totals)
    return found


def row_counts(flags: np.ndarray) -> list[int]:
    """How many flags of each row of shape (k, n) are set."""
    rows, length = flags.shape
    total = int(np.count_nonzero(flags))
    if total in {0, flags.size}:
        return [length if total else 0] * rows
    found: list[int] = np.add.reduce(flags, axis=1, dtype=np.intp).tolist()
    return found
