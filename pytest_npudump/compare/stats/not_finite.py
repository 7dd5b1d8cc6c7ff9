"""Tensors without a finite value, which any later run with the same NaN and infinities equals."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from pytest_npudump.dump.table import STATISTICS

if TYPE_CHECKING:
    from pytest_npudump.dump.table import StatsTable

_NAN, _POSITIVE = STATISTICS.index("nan"), STATISTICS.index("pos_inf")
_COUNTS = slice(_NAN, len(STATISTICS))


def describe_not_finite(table: StatsTable) -> str:
    """Name tensors that hold nothing but NaN and infinities in one line; "" where there are none.

    Those that hold nothing but -Inf are none of them: masks are filled with it.
    """
    special = np.nansum(table.values[:, _COUNTS], axis=1).tolist()
    rows = np.flatnonzero((table.values[:, [_NAN, _POSITIVE]] > 0).any(axis=1)).tolist()
    found = [table.keys[row] for row in rows if special[row] == table.counts[row]]
    if not found:
        return ""
    return (
        f"{len(found)} of {len(table)} tensors contain only NaN or infinities (first: {found[0]}): check the "
        f"model and its inputs"
    )
