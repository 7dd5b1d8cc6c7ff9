"""Chunks of 8-bit types: how often each pair of codes occurs tells every measure, exactly."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from pytest_npudump.compare.tensors.comparer import Comparer
from pytest_npudump.compare.tensors.float64 import Blocks
from pytest_npudump.compare.tensors.measures import ULP_TYPES
from pytest_npudump.compare.tensors.ulp import ordered
from pytest_npudump.dump.bytes.buffers import scratch_buffers
from pytest_npudump.dump.stats.kernels import add_histogram, count_codes

if TYPE_CHECKING:
    from pytest_npudump.compare.tensors.comparer import Common
    from pytest_npudump.compare.tensors.measures import Measures
    from pytest_npudump.dump.bytes.buffers import Buffers
    from pytest_npudump.dump.stats.totals import Totals

_CODES = 256
WORTH_PAIRS = 1 << 17
"""Elements from which on counting pairs is faster, as what is done once for a tensor takes a millisecond."""
_CODE = np.dtype(np.uint16)
_BLOCK = 1 << 16


class CodesComparer(Comparer):
    """Chunks of integers and floats of 8 bits, or of codes.

    Args:
        common: as for every comparer.
        tables: the values of the 256 codes of the golden and of the actual tensor.
        buffers: to work in.
    """

    def __init__(self, common: Common, tables: tuple[np.ndarray, np.ndarray], buffers: Buffers) -> None:
        super().__init__(common)
        self._tables, self._buffers = tables, buffers
        ulp = tables[0].dtype == tables[1].dtype and tables[0].dtype.name in ULP_TYPES
        self._blocks = Blocks(common, buffers, ulp=ulp)
        self._pairs: CodePairs | None = None

    def _add_different(self, golden: np.ndarray, actual: np.ndarray, offset: int) -> None:
        codes = golden.view(np.uint8), actual.view(np.uint8)
        if golden.size < WORTH_PAIRS:
            self._sides.golden.add(golden)
            self._sides.actual.add(actual)
            self._blocks.add(self._tables[0][codes[0]], self._tables[1][codes[1]], offset)
            return
        if self._pairs is None:
            self._pairs = CodePairs(*self._tables)
        joint = joint_codes(*codes, self._buffers)
        counts = np.zeros(_CODES * _CODES, np.int64)
        count_codes(joint, counts)
        self._pairs.counts += counts
        self._list_special(self._pairs, joint, counts, offset)
        self._list_worst(self._pairs, joint, counts, offset)

    def _list_special(self, pairs: CodePairs, joint: np.ndarray, counts: np.ndarray, offset: int) -> None:
        if self._worst.wants_special and counts[pairs.special_different].any():
            places = places_of(joint, pairs.special_different)[: self._worst.limit]
            found = joint[places]
            self._worst.take_special(places, pairs.golden[found], pairs.actual[found], offset)

    def _list_worst(self, pairs: CodePairs, joint: np.ndarray, counts: np.ndarray, offset: int) -> None:
        """Look for the places of the pairs that belong in the list, if the chunk has any."""
        far = np.flatnonzero(pairs.distance > self._worst.threshold)
        far = far[counts[far] > 0]
        if not far.size:
            return
        far = far[np.argsort(-pairs.distance[far], kind="stable")]
        enough = int(np.searchsorted(np.cumsum(counts[far]), self._worst.limit))
        least = pairs.distance[far[min(enough, far.size - 1)]]
        places = places_of(joint, far[pairs.distance[far] >= least])
        found = joint[places]
        kept = self._worst.candidates(pairs.distance[found])
        found = found[kept]
        self._worst.take(
            places[kept], pairs.distance[found], pairs.golden[found], pairs.actual[found], offset
        )

    def finish(self) -> tuple[Totals, Totals]:
        """As :meth:`Comparer.finish`."""
        golden, actual = super().finish()
        if self._pairs is not None:
            self._pairs.measure(self._measures, self._rtol, self._atol)
            by_code = self._pairs.counts.reshape(_CODES, _CODES)
            for totals, table, counts in zip(
                (golden, actual), self._tables, (by_code.sum(axis=1), by_code.sum(axis=0)), strict=True
            ):
                add_histogram(
                    totals, table.astype(np.float64), counts.tolist(), integer=table.dtype.kind in "biu"
                )
        return golden, actual


def joint_codes(golden: np.ndarray, actual: np.ndarray, buffers: Buffers) -> np.ndarray:
    """256 times the golden code plus the actual one, of uint8 of shape (n,)."""
    joint, low = (buffers.array(name, golden.size, _CODE) for name in ("joint", "low"))
    np.copyto(joint, golden)
    np.copyto(low, actual)
    np.left_shift(joint, 8, out=joint)
    np.bitwise_or(joint, low, out=joint)
    return joint


def places_of(joint: np.ndarray, wanted: np.ndarray) -> np.ndarray:
    """Where one of the codes ``wanted`` is."""
    chosen = np.zeros(_CODES * _CODES, np.bool_)
    chosen[wanted] = True
    found = []
    for start in range(0, joint.size, _BLOCK):
        part = joint[start : start + _BLOCK]
        indices = scratch_buffers().array("indices", part.size, np.dtype(np.intp))
        np.copyto(indices, part)
        flags = scratch_buffers().flags("zeros", part.size)
        found.append(np.flatnonzero(np.take(chosen, indices, out=flags, mode="clip")) + start)
    return np.concatenate(found)


class CodePairs:
    """Every pair of a golden and an actual code, and how often it occurred.

    Attributes:
        golden, actual: values of each pair, of shape (65536,), or of n**2 for n codes.
        distance: |actual - golden|, integers for integers; 0 where one is NaN or infinite.
        special_different: the pairs with NaN or infinities that are not equal.
        counts: how often each pair occurred.
    """

    def __init__(self, golden: np.ndarray, actual: np.ndarray) -> None:
        self.golden, self.actual = np.repeat(golden, actual.size), np.tile(actual, golden.size)
        self._wide = self.golden.astype(np.float64), self.actual.astype(np.float64)
        one, other = self._wide
        self._finite = np.isfinite(one) & np.isfinite(other)
        same = (np.isnan(one) & np.isnan(other)) | (one == other)
        self.special_different = np.flatnonzero(~self._finite & ~same)
        self.distance = np.where(self._finite, np.abs(other - one), 0.0)
        if golden.dtype.kind in "biu":
            self.distance = self.distance.astype(np.int64)
        self.counts = np.zeros(self.golden.size, np.int64)

    def measure(self, measures: Measures, rtol: float, atol: float) -> None:
        """Add all that has been counted."""
        found = np.flatnonzero(self.counts)
        self._add_special(measures, found[~self._finite[found]])
        found = found[self._finite[found]]
        if not found.size:
            return
        times, distance = self.counts[found], self.distance[found]
        one, other = (side[found] for side in self._wide)
        magnitude = np.abs(one)
        measures.magnitude = max(measures.magnitude, float(magnitude.max()))
        measures.max_abs = max(measures.max_abs, distance.max().item())
        measures.outside += int(times[~(distance <= atol + rtol * magnitude)].sum())
        if np.any((magnitude == 0) & (distance != 0)):
            measures.max_rel = math.inf
        known = magnitude != 0
        relative = distance[known] / magnitude[known]
        measures.relative_sum += float(relative @ times[known])
        measures.relative_count += int(times[known].sum())
        measures.max_rel = max(measures.max_rel, float(relative.max(initial=0.0)))
        measures.golden_squares.add(float((one * one) @ times))
        measures.actual_squares.add(float((other * other) @ times))
        measures.product.add(float((one * other) @ times))
        measures.difference_squares.add(float((other - one) ** 2 @ times))
        self._add_ulp(measures, found, times)

    def _add_special(self, measures: Measures, found: np.ndarray) -> None:
        times = self.counts[found]
        counts = []
        for side in self._wide:
            values = side[found]
            counts.append((int(times[np.isnan(values)].sum()), int(times[np.isinf(values)].sum())))
        differ = int(self.counts[self.special_different].sum())
        measures.take_special(counts[0], counts[1], int(times.sum()), differ)

    def _add_ulp(self, measures: Measures, found: np.ndarray, times: np.ndarray) -> None:
        if self.golden.dtype != self.actual.dtype or self.golden.dtype.name not in ULP_TYPES:
            return
        sides = [
            ordered(side[found], "ulp", scratch_buffers()).astype(np.int64)
            for side in (self.golden, self.actual)
        ]
        gap = np.abs(sides[1] - sides[0])
        measures.take_ulp(int(gap.max()), float(gap @ times), int(times.sum()))
