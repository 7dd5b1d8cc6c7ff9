"""Compact statistics of a golden for tensors by default: six digits, short projections.

All eight projections of a tensor share a power of two, the least beyond the greatest of them. The first four
are rounded to 2**-23 of it, the last four to 2**-11. In the text, of 26 characters, are seven numbers of 24
bits in base64, as RFC 4648 has it, the highest bits first: that power plus 2048, of whose number the two
leading characters are left out, as they are always ``A``, the first four in two's complement, and the others
as two pairs of 12 bits. What is not finite has the power 4095, and 0 for each.

What the rounding hides: the greatest projection is 1 to 3 times the l2norm, so that the first four are off by
at most 4e-7 of that norm, by a third of this in the root mean square, and the distance that they estimate by
35 % of itself rather than by 25 %. The others tell only what changes places, as all signs of the first four
agree in one pair of 16. Sums of integers are exact up to 2**23; beyond, less than half a step may be lost.
"""

from __future__ import annotations

import base64
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from pytest_npudump.dump.columns import FIELDS, TensorTable
from pytest_npudump.dump.stats.signs import PROJECTIONS

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Sequence

    from numpy.typing import NDArray

    from pytest_npudump.dump.records import TensorRecord

FINE = 4
"""Number of projections that are kept finely."""
TEXT = r"[A-Za-z0-9+/]{26}"
_BITS = np.array([23] * FINE + [11] * (PROJECTIONS - FINE))
_MOST = (1 << _BITS) - 1
_BIAS, _LEAST = 1 << 11, -1000
_NOT_FINITE = (1 << 12) - 1
_LEADING, _WORDS = "AA", 7


class CompactSums(tuple[float, ...]):
    """Projections of a tensor as a text gives them back."""

    __slots__ = ()


_DIGITS = 6
"""Significant digits that a device prints of statistics."""


def as_printed(records: Sequence[TensorRecord]) -> Sequence[TensorRecord]:
    """Return tensors with statistics in as many digits as a device prints, and with rounded projections."""
    if isinstance(records, TensorTable):
        columns = records.columns
        own = [digits == 0 for digits in columns.digits]
        stats = tuple(
            column
            if column is None or name not in _FLOATS
            else [_printed(value) if computed else value for value, computed in zip(column, own, strict=True)]
            for name, column in zip(FIELDS, columns.stats, strict=True)
        )
        digits = [told or _DIGITS for told in columns.digits]
        sums: dict[int, tuple[float, ...]] = dict(
            zip(columns.projections, _rounded(columns.projections.values()), strict=True)
        )
        return TensorTable(records.files, replace(columns, digits=digits, stats=stats, projections=sums))
    told = [one.stats for one in records]
    kept = iter(_rounded([one.projections for one in told if one is not None and one.projections]))
    printed = []
    for record, one in zip(records, told, strict=True):
        if one is None:
            printed.append(record)
            continue
        cells: dict[str, Any] = {"projections": next(kept) if one.projections else None}
        if one.digits is None:
            cells |= {name: _printed(getattr(one, name)) for name in _FLOATS} | {"digits": _DIGITS}
        printed.append(replace(record, stats=replace(one, **cells)))
    return tuple(printed)


_FLOATS = ("max", "min", "avg", "l2norm")


def _printed(value: float | None) -> float | None:
    return float(f"{value:.{_DIGITS}g}") if isinstance(value, float) else value


def _rounded(sums: Collection[Sequence[float]]) -> Iterator[CompactSums]:
    return map(CompactSums, sums_of(texts(np.array([*sums]))).tolist() if sums else ())


def _powers(sums: NDArray[np.float64]) -> NDArray[np.int32]:
    _, powers = np.frexp(np.abs(sums).max(axis=1, initial=0.0))
    told: NDArray[np.int32] = np.where((sums == 0).all(axis=1), _LEAST, np.maximum(powers, _LEAST))
    return told[:, np.newaxis]


def _finite(sums: NDArray[np.float64]) -> tuple[NDArray[np.bool_], NDArray[np.float64]]:
    finite: NDArray[np.bool_] = np.asarray(np.isfinite(sums).all(axis=1, keepdims=True))
    return finite, np.where(finite, sums, 0.0)


def steps(sums: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the steps that projections, (n, 8), are rounded to; 0 where one of a row is not finite."""
    finite, told = _finite(sums)
    return np.where(finite, np.ldexp(1.0, _powers(told) - _BITS), 0.0)


def doubts(sums: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the possible error of projections read from a text, (n, 8): half a step.

    A whole step just below the power, to which nothing is rounded up: a softmax of two sums to 0.9999999.
    """
    step = steps(sums)
    return np.where(np.abs(sums) >= _MOST * step, step, 0.5 * step)


def texts(sums: NDArray[np.float64]) -> list[str]:
    """The text of each row of projections, (n, 8)."""
    finite, told = _finite(sums)
    powers = _powers(told)
    whole = np.clip(np.rint(np.ldexp(told, _BITS - powers)), -_MOST, _MOST).astype(np.int64)
    pairs = (whole[:, FINE::2] << 12) | (whole[:, FINE + 1 :: 2] & 0xFFF)
    words = np.hstack([np.where(finite, powers + _BIAS, _NOT_FINITE), whole[:, :FINE], pairs])
    octets = words.astype(">i4").view(np.uint8).reshape(len(sums), _WORDS, 4)[:, :, 1:]
    text = base64.b64encode(octets.tobytes()).decode()
    width = 4 * _WORDS
    return [text[at + len(_LEADING) : at + width] for at in range(0, len(text), width)]


def sums_of(cells: Sequence[str]) -> NDArray[np.float64]:
    """The projections, (n, 8), of texts that match :data:`TEXT`."""
    octets = np.frombuffer(base64.b64decode("".join([_LEADING + cell for cell in cells])), np.uint8)
    words = np.zeros((len(cells), _WORDS, 4), np.uint8)
    words[:, :, :3] = octets.reshape(len(cells), _WORDS, 3)
    numbers = words.view(">i4")[:, :, 0] >> 8
    powers, pairs = numbers[:, :1] - _BIAS, numbers[:, 1 + FINE :]
    coarse = np.stack([pairs >> 12, ((pairs & 0xFFF) ^ 0x800) - 0x800], axis=2).reshape(
        -1, PROJECTIONS - FINE
    )
    whole = np.hstack([numbers[:, 1 : 1 + FINE], coarse]).astype(np.float64)
    return np.where(numbers[:, :1] == _NOT_FINITE, np.nan, np.ldexp(whole, powers - _BITS))
