"""Cells of statistics CSV files: columns under all their names, and values with every "no value" mark.

CANN's host-side statistics converter garbles some maxima and minima. It prints them as floats for FLOAT,
FLOAT16, BF16, HIFLOAT8, FLOAT8_E5M2 and FLOAT8_E4M3FN, in full for INT64, and for every other type as the
lower 32 bits, signed (``adx_dump_record.cpp``). With the default choice of statistics its files look like the
device's own, which are right, so that some garbled values show only by being impossible.
"""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache
from typing import TYPE_CHECKING

from pytest_npudump.dump.dtypes import ALL, dtype_name
from pytest_npudump.dump.records import Stats

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

DIGITS = 6
"""Significant decimal digits of a float in these files: C++ streams with their defaults."""

NO_VALUE = frozenset({"", "NA", "-", "UNKNOW", "null"})
"""Device-side writer, host converter, both (type, format, shape), host converter, MindSpore."""

IGNORED = "ignored"
"""Columns that are known and have no place in a record."""

_COLUMNS = {
    "input/output": "io",
    "io": "io",
    "index": "slot",
    "slot": "slot",
    "data size": "size",
    "data type": "dtype",
    "format": "format",
    "shape": "shape",
    "max value": "max",
    "min value": "min",
    "avg value": "avg",
    "count": "count",
    "nan count": "nan",
    "negative inf count": "neg_inf",
    "positive inf count": "pos_inf",
    "zero count": "zero",
    "l2norm": "l2norm",
    "l2norm value": "l2norm",
    "l2 value": "l2norm",
    "op type": "op_type",
    "op name": "op_name",
    "task id": "task",
    "stream id": "stream",
    "timestamp": "time",
    # MindSpore's names for the numbers of elements below and above zero: neither counts zeros.
    "negative zero count": IGNORED,
    "positive zero count": IGNORED,
    "md5": "md5",
    "md5 value": "md5",
    "sha1": "sha1",
}
STATISTICS = ("count", "max", "min", "avg", "l2norm", "nan", "neg_inf", "pos_inf", "zero")
"""Columns that hold a statistic, in the order of the fields of ``Stats``."""

DIGESTS = ("md5", "sha1")
"""Columns that hold a hash of the tensor's bytes, in the order in which a digest names them."""

NOT_READ = "were not read"
"""Part of a record's note about columns that have no place in it."""

VALUES = STATISTICS + DIGESTS
"""Columns that say something of a tensor's values."""


def column(title: str) -> str | None:
    """Return which column a header's ``title`` is: a field's name, ``ignored``, or None if unknown."""
    return _COLUMNS.get(title.strip().lower())


def unread(titles: Sequence[str]) -> str:
    """Say which of the columns with these ``titles`` are not read; "" if all are."""
    unknown = ", ".join(title for title in titles if column(title) is None)
    ignored = ", ".join(title for title in titles if column(title) == IGNORED)
    return "; ".join(
        f"{what} {NOT_READ}: {listed}"
        for what, listed in (("unknown columns", unknown), ("columns", ignored))
        if listed
    )


@lru_cache(maxsize=4096)
def parse_dtype(text: str) -> str:
    """Return this package's name of the type that a producer calls ``text``.

    Raises:
        ValueError: there is no name; producers write ``-`` or ``UNKNOW`` for a type they do not know.
    """
    name = dtype_name(text)
    if not name:
        raise ValueError(f"{text!r} is no data type")
    return name


def parse_shape(text: str) -> tuple[int, ...] | None:
    """Return the shape of ``3x4``, ``(3,4)``, ``()`` or ``-`` (a scalar); None for ``NA`` (over 25 dims).

    Raises:
        ValueError: ``text`` is none of these.
    """
    if text in {"-", ""}:
        return ()
    if text in NO_VALUE:
        return None
    if text.startswith("(") and text.endswith(")"):
        inner = text[1:-1].rstrip(",")
        return tuple(_dimension(part) for part in inner.split(",")) if inner.strip() else ()
    return tuple(_dimension(part) for part in text.split("x"))


def _dimension(text: str) -> int:
    stripped = text.strip()
    if not (stripped.isdigit() and stripped.isascii()):
        raise ValueError(f"{text!r} is no dimension of a shape")
    return int(stripped)


@lru_cache(maxsize=4096)
def parse_count(text: str) -> int | None:
    """Return a number of elements or bytes, or None where the cell has no value.

    Raises:
        ValueError: ``text`` is not a decimal number without a sign.
    """
    if text in NO_VALUE:
        return None
    if text.isdigit() and text.isascii():
        return int(text)
    raise ValueError(f"{text[:40]!r} is no count")


def parse_float(text: str) -> float | None:
    """Return a float (``nan``, ``-nan``, ``inf``, ``NaN`` ... included), or None where there is no value.

    Raises:
        ValueError: ``text`` is not a number.
    """
    try:
        found = float(text)
    except ValueError:
        if text in NO_VALUE:
            return None
        raise ValueError(f"{text[:40]!r} is no number") from None
    if "_" in text or not text.isascii():
        raise ValueError(f"{text[:40]!r} is no number")
    return found


def parse_integer(text: str) -> float | int | None:
    """Return an extreme of an integer tensor: an int where the text is one, else as :func:`parse_float`.

    Raises:
        ValueError: as :func:`parse_float`.
    """
    if text.removeprefix("-").isdigit() and text.isascii():
        return int(text)
    return parse_float(text)


_EXTREMES = {found.name: parse_float for found in ALL if not found.exact}


def extreme_parser(dtype: str) -> Callable[[str], float | int | None]:
    """Return what reads the extremes of tensors of a type: :func:`parse_float` or :func:`parse_integer`."""
    return _EXTREMES.get(dtype, parse_integer)


def parse_stats(cells: Sequence[str], dtype: str) -> Stats | None:
    """Return the statistics in ``cells``, one for each of ``STATISTICS``; None if no cell has a value.

    Raises:
        ValueError: a cell is neither a number nor a "no value" mark.
    """
    count, high, low, avg, l2norm, nan, neg_inf, pos_inf, zero = cells
    if high in NO_VALUE and NO_VALUE.issuperset(cells):
        return None
    extreme = _EXTREMES.get(dtype, parse_integer)
    # An empty cell, as of a column that the file has not, is told without a call.
    return Stats(
        parse_count(count) if count else None,
        extreme(high),
        extreme(low),
        parse_float(avg) if avg else None,
        parse_float(l2norm) if l2norm else None,
        parse_count(nan) if nan else None,
        parse_count(neg_inf) if neg_inf else None,
        parse_count(pos_inf) if pos_inf else None,
        parse_count(zero) if zero else None,
        DIGITS,
    )


def parse_digest(cells: Sequence[str]) -> str:
    """Return the hashes in ``cells``, one for each of ``DIGESTS``, as ``TensorRecord.digest`` has them.

    Raises:
        ValueError: a cell is no word of printable ASCII characters.
    """
    if NO_VALUE.issuperset(cells):
        return ""
    parts = []
    for name, cell in zip(DIGESTS, cells, strict=True):
        text = cell.strip()
        if text in NO_VALUE:
            continue
        if not (text.isascii() and text.isalnum()):
            raise ValueError(f"{text[:40]!r} is no {name} of a tensor, expected hexadecimal digits")
        parts.append(f"{name}:{text.lower()}")
    return " ".join(parts)


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
