"""Maxima and minima that CANN's host-side statistics converter garbles, told from those it does not.

It prints them as floats for FLOAT, FLOAT16, BF16, HIFLOAT8, FLOAT8_E5M2 and FLOAT8_E4M3FN, in full for
INT64, and for every other type as the lower 32 bits, signed (``adx_dump_record.cpp``). With the default
choice of statistics its files look like the device's own, which are right, so that some garbled values
show only by being impossible.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from pytest_npudump.dump.records import Stats

_INTACT = frozenset(
    {"float32", "float16", "bfloat16", "hifloat8", "float8_e5m2", "float8_e4m3fn"}
    | {"int64", "int32", "int16", "int8"}
)
_NARROW_UNSIGNED = frozenset({"uint8", "uint16", "bool"})
_HOST_MARKS = ("Shape,Count", "l2norm", ",NA,", "UNKNOW", "DT_BF16", "DT_HIFLOAT", "DT_FLOAT8", "DT_INT4")
_ROUNDING = 1e-5

GARBLED = "max and min are unknown"
"""How the note begins on values that the host converter garbled."""


def doubtful(dtype: str) -> bool:
    """Whether the host converter may garble the extremes of a tensor of this type."""
    return dtype not in _INTACT


def written_by_host(text: str) -> bool:
    """Whether a statistics CSV has words or columns that only the host converter writes."""
    return any(mark in text for mark in _HOST_MARKS)


def repaired(stats: Stats, dtype: str, *, by_host: Callable[[], bool] = bool) -> tuple[Stats, str]:
    """Return ``stats`` with extremes restored or set to None where they cannot be true, and a note.

    ``by_host`` tells whether the host converter is known to have written the file.
    """
    extremes = [value for value in (stats.max, stats.min) if value is not None]
    if not extremes:
        return stats, ""
    negative = any(value < 0 for value in extremes)
    if dtype == "uint32":
        return _unsigned_32(stats) if negative else (stats, "")
    if dtype in _NARROW_UNSIGNED:
        suspect = negative
    else:
        suspect = by_host() or (negative and dtype == "uint64") or not _ordered(stats)
    if not suspect:
        return stats, ""
    return replace(stats, max=None, min=None), (
        f"{GARBLED}: CANN's host converter keeps only 32 bits of them for {dtype}"
    )


def _unsigned_32(stats: Stats) -> tuple[Stats, str]:
    """A value of 32 bits that was printed as signed is known modulo 2^32, which is exact."""
    high = int(stats.max) % 2**32 if stats.max is not None else None
    low = int(stats.min) % 2**32 if stats.min is not None else None
    return replace(stats, max=high, min=low), "max and min were printed as signed 32-bit numbers"


def _ordered(stats: Stats) -> bool:
    """Whether min <= avg <= max as far as these are known and no NaN, within the printed digits."""
    if stats.max is None or stats.min is None or stats.avg is None:
        return True
    slack = _ROUNDING * max(abs(stats.max), abs(stats.min))
    return not (stats.min > stats.max or stats.avg > stats.max + slack or stats.avg < stats.min - slack)
