"""Types of at most 8 bits: how often each pair of bytes occurs gives every measure, exactly.

A byte holds an element, or several of 1, 2 or 4 bits. Pairs of bytes are counted while chunks go by; at the
end each pair of elements is measured once, with the number of times it occurred.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from pytest_npudump.compare.tensors.kernel import is_finite, measure, widened
from pytest_npudump.dump.arrays.decode import decode
from pytest_npudump.dump.dtypes import BY_NAME
from pytest_npudump.dump.stats.kernels import add_histogram, count_codes
from pytest_npudump.dump.stats.sums import Totals

if TYPE_CHECKING:
    from pytest_npudump.compare.tensors.kernel import Measures, Worst


WORTH_COUNTING = 1 << 17
"""Elements from which on counting is faster than decoding."""

_OCTETS = 256
_PAIRS = _OCTETS * _OCTETS
_BLOCK = 1 << 19


class _Tables(NamedTuple):
    """What all pairs of two types have in common.

    Attributes:
        golden, actual: the n elements of each byte, of shape (256, n).
        reach: the largest distance of the elements of each pair of bytes, float64 of shape (65536,).
        special: the pairs with NaN or an infinity that are not equal.
    """

    golden: np.ndarray
    actual: np.ndarray
    reach: np.ndarray
    special: np.ndarray


@lru_cache(maxsize=8)
def _tables(golden: str, actual: str) -> _Tables:
    octets = np.arange(_OCTETS, dtype=np.uint8)
    sides = [
        (octets if name == "bool" else decode(octets, name, _OCTETS * 8 // BY_NAME[name].bits)).reshape(
            _OCTETS, -1
        )
        for name in (golden, actual)
    ]
    one, other = widened(sides[0], np.float64)[:, np.newaxis], widened(sides[1], np.float64)
    with np.errstate(all="ignore"):
        finite = np.isfinite(one) & np.isfinite(other)
        reach = np.where(finite, np.abs(other - one), 0.0).max(axis=2)
        same = (np.isnan(one) & np.isnan(other)) | (one == other)
    special = np.flatnonzero((~finite & ~same).any(axis=2))
    return _Tables(sides[0], sides[1], reach.reshape(-1), special)


class CodePairs:
    """Counts pairs of bytes, and lists the elements farthest apart.

    Args:
        names: types of the golden and of the actual tensor, as a dump calls them.
        results: what the pairs are added to.
    """

    def __init__(self, names: tuple[str, str], results: tuple[Measures, Worst]) -> None:
        self._names, (self._measures, self._worst) = names, results
        self._counts = np.zeros(_PAIRS, np.int64)

    def add(self, golden: np.ndarray, actual: np.ndarray, offset: int) -> None:
        """Add bytes, uint8 of shape (n,), the first of which holds element ``offset`` of the tensors."""
        for start in range(0, golden.size, _BLOCK):
            part = slice(start, start + _BLOCK)
            joint = golden[part].astype(np.uint16)
            joint <<= 8
            joint |= actual[part]
            counts = np.zeros(_PAIRS, np.int64)
            count_codes(joint, counts)
            self._counts += counts
            self._list(joint, counts, offset + start * 8 // BY_NAME[self._names[0]].bits)

    def _list(self, joint: np.ndarray, counts: np.ndarray, offset: int) -> None:
        """Give the elements to the lists that belong there, which most chunks do not have."""
        worst, (golden, actual, reach, special) = self._worst, _tables(*self._names)
        if worst.wants_special and counts[special].any():
            places = _places(joint, special)[: worst.limit]
            pairs = joint[places]
            worst.take_special(
                places + offset,
                *(widened(side, np.float64) for side in (golden[pairs >> 8, 0], actual[pairs & 255, 0])),
            )
        far = np.flatnonzero(reach > worst.threshold)
        far = far[counts[far] > 0]
        if not far.size:
            return
        far = far[np.argsort(-reach[far], kind="stable")]
        enough = int(np.searchsorted(np.cumsum(counts[far]), worst.limit))
        least = reach[far[min(enough, far.size - 1)]]
        farther, equal = far[reach[far] > least], far[reach[far] == least]
        places = np.concatenate([_places(joint, farther), _places(joint, equal)[: worst.limit]])
        pairs, count = joint[places], golden.shape[1]
        sides = golden[pairs >> 8].reshape(-1), actual[pairs & 255].reshape(-1)
        wide = [widened(side, np.float64) for side in sides]
        with np.errstate(invalid="ignore"):
            gap = np.abs(wide[1] - wide[0])
        if golden.dtype.kind in "iu":
            gap, *wide = (side.astype(np.int64) for side in (gap, *wide))
        indices = (places[:, np.newaxis] * count + np.arange(count)).reshape(-1) + offset
        found = np.isfinite(gap) & (gap > 0)
        worst.insert(zip(*(side[found].tolist() for side in (gap, indices, *wide)), strict=True))

    def finish(self, tolerance: tuple[float, float]) -> tuple[Totals, Totals]:
        """Add all that was counted to the measures; return the statistics of both sides."""
        if not self._counts.any():
            return Totals(), Totals()
        tables = _tables(*self._names)[:2]
        distinct = [
            np.unique(widened(side, np.float64), return_index=True, return_inverse=True) for side in tables
        ]
        sizes, shape = [values.size for values, *_ in distinct], tables[0].shape
        first, second = (inverse.reshape(shape) for *_, inverse in distinct)
        times = np.zeros(math.prod(sizes))
        for place in range(shape[1]):
            pairs = first[:, np.newaxis, place] * sizes[1] + second[np.newaxis, :, place]
            times += np.bincount(pairs.reshape(-1), self._counts, times.size)
        found = np.flatnonzero(times)
        sides = [table.reshape(-1)[indices] for table, (_, indices, _) in zip(tables, distinct, strict=True)]
        golden, actual = sides[0][found // sizes[1]], sides[1][found % sizes[1]]
        results, tolerances = [(self._measures, self._worst)], np.array([tolerance])
        measure(
            golden[np.newaxis],
            actual[np.newaxis],
            results,
            tolerances,
            finite=is_finite(golden) and is_finite(actual),
            times=times[found],
        )
        totals, counts = (Totals(), Totals()), times.reshape(sizes).astype(np.int64)
        for axis, (values, *_) in enumerate(distinct):
            occurred = counts.sum(axis=1 - axis).tolist()
            add_histogram(totals[axis], values, occurred, integer=sides[axis].dtype.kind in "iu")
        return totals


def _places(joint: np.ndarray, wanted: np.ndarray) -> np.ndarray:
    """Return where one of the pairs ``wanted`` is."""
    chosen = np.zeros(_PAIRS, np.bool_)
    chosen[wanted] = True
    return np.flatnonzero(chosen[joint])
