"""NaN and infinities in two chunks of one type of 16 or 32 bits: counted, and taken out of both."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from pytest_npudump.compare.tensors.measures import Measures
    from pytest_npudump.compare.tensors.worst import Worst
    from pytest_npudump.dump.bytes.buffers import Buffers
    from pytest_npudump.dump.stats.kernels import Measured


class Side(NamedTuple):
    """A chunk, of shape (n,), and what was measured of it without the sums of what has NaN or infinities."""

    chunk: np.ndarray
    measured: Measured


def clear_special(
    golden: Side, actual: Side, results: tuple[Measures, Worst], buffers: Buffers, offset: int
) -> tuple[np.ndarray, np.ndarray, int]:
    """Both chunks with 0 where either is NaN or infinite, and how many pairs these are, at least one.

    They are counted, and given to the worst elements where they differ. Two equal zeros add nothing to any
    sum and are within every tolerance. What was measured of the chunks is used up.
    """
    measures, worst = results
    different = _one_sided(golden.measured, actual.measured, buffers)
    finite = _finite(golden.measured, actual.measured)
    special = np.equal(finite, 0, out=buffers.flags("special", finite.size))
    pairs = int(np.count_nonzero(special))
    if different is None:
        different = _keep_different(special, golden, actual, buffers)
    differ = int(np.count_nonzero(different))
    if differ and worst.wants_special:
        worst.add_special(np.flatnonzero(different), golden.chunk, actual.chunk, offset)
    counts = [(side.measured.nan, side.measured.special - side.measured.nan) for side in (golden, actual)]
    measures.take_special(counts[0], counts[1], pairs, differ)
    cleared = []
    for name, (chunk, measured) in (("golden", golden), ("actual", actual)):
        found = measured.values
        if measured.special < pairs:
            found = buffers.array(f"{name} codes", chunk.size, finite.dtype)
            found = np.bitwise_and(chunk.view(finite.dtype), finite, out=found).view(chunk.dtype)
        cleared.append(found)
    return cleared[0], cleared[1], pairs


def _one_sided(golden: Measured, actual: Measured, buffers: Buffers) -> np.ndarray | None:
    """Where one alone is NaN; None unless both have NaN and no infinities, so that no other pair differs."""
    if golden.finite is None or actual.finite is None:
        return None
    if golden.special > golden.nan or actual.special > actual.nan:
        return None
    found = buffers.flags("differ", golden.finite.size)
    np.not_equal(golden.finite, actual.finite, out=found)
    return found


def _finite(golden: Measured, actual: Measured) -> np.ndarray:
    """Integers of the elements' size that are -1 where both are finite and else 0."""
    found = actual.finite if golden.finite is None else golden.finite
    assert found is not None  # noqa: S101 - asked where one has such elements
    if golden.finite is not None and actual.finite is not None:
        np.bitwise_and(golden.finite, actual.finite, out=found)
    return found


def _keep_different(special: np.ndarray, golden: Side, actual: Side, buffers: Buffers) -> np.ndarray:
    """Leave those of the ``special`` pairs set that are not equal; return them."""
    codes = np.dtype(f"i{golden.chunk.itemsize}")
    sides = golden.chunk.view(codes), actual.chunk.view(codes)
    differ = np.not_equal(*sides, out=buffers.flags("differ", special.size))
    np.logical_and(special, differ, out=special)
    if not (golden.measured.nan and actual.measured.nan and np.logical_or.reduce(special)):
        return special
    infinity = int(np.array(np.inf).astype(golden.chunk.dtype).view(codes))
    magnitudes = buffers.array("magnitudes", special.size, codes)
    flags = differ, buffers.flags("nan", special.size)
    for side, nan in zip(sides, flags, strict=True):  # numpy's isnan converts each float16
        np.bitwise_and(side, np.iinfo(codes).max, out=magnitudes)
        np.greater(magnitudes, infinity, out=nan)
    np.greater(special, np.logical_and(*flags, out=differ), out=special)
    return special
