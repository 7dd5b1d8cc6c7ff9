"""Numbers as one line of bars, eight heights between the smallest and the largest of them."""

from __future__ import annotations

import math
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

BLOCKS = "▁▂▃▄▅▆▇█"
DIGITS = "12345678"
"""For terminals whose encoding has no blocks."""

UNKNOWN, SPECIAL = ".", "!"
"""A run that does not tell the number, and one whose number is NaN or infinite."""


def sparkline(values: Sequence[float | int | None], bars: str = BLOCKS) -> str:
    """Return one character a number; numbers that are all alike are of the lowest height.

    Args:
        values: the numbers; None for one that is not known.
        bars: characters by height, the lowest first.
    """
    finite = [value for value in values if value is not None and math.isfinite(value)]
    low, high = min(finite, default=0), max(finite, default=0)
    return "".join([_bar(value, low, high, bars) for value in values])


def _bar(value: float | None, low: float, high: float, bars: str) -> str:
    if value is None:
        return UNKNOWN
    if not math.isfinite(value):
        return SPECIAL
    distance = high - low
    if math.isinf(distance):  # of two finite numbers it can be beyond the largest, and half of it is not
        value, low, distance = value / 2, low / 2, high / 2 - low / 2
    return bars[round((value - low) / distance * (len(bars) - 1))] if distance else bars[0]


def terminal_bars() -> str:
    """Return the blocks where standard output can show them, else digits."""
    encoding = getattr(sys.stdout, "encoding", None) or "ascii"
    try:
        BLOCKS.encode(encoding)
    except (UnicodeEncodeError, LookupError):
        return DIGITS
    return BLOCKS
