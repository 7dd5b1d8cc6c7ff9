"""What projections cost beside the statistics: python tests/benchmarks/bench_projections.py.

Ratios of processor time of both together, in one pass over the same pieces, to the statistics alone;
medians of paired rounds. Types of 16 bits are converted once for both. Set OPENBLAS_NUM_THREADS=1.
"""

from __future__ import annotations

import sys
import time
from statistics import median
from typing import TYPE_CHECKING

import ml_dtypes
import numpy as np

from pytest_npudump.dump.bytes.chunks import chunks
from pytest_npudump.dump.stats.accumulators import array_accumulator
from pytest_npudump.dump.stats.float_elements import array_elements
from pytest_npudump.dump.stats.half import BFLOAT16, FLOAT16, Half
from pytest_npudump.dump.stats.projections import Projector
from pytest_npudump.dump.stats.tensor import tensor_stats
from pytest_npudump.dump.stats.totals import Totals

if TYPE_CHECKING:
    from collections.abc import Callable

_HALVES = {"float16": FLOAT16, "bfloat16": BFLOAT16}
_DTYPES = (np.float32, np.float16, ml_dtypes.bfloat16, np.int8, np.float64, ml_dtypes.float8_e4m3fn)
_SIZES = (1_000, 20_000, 300_000, 8_388_608)
_ROUNDS = 21
_ELEMENTS_A_ROUND = 1_000_000


def both(array: np.ndarray) -> None:
    """Statistics and projections of an array in C order, piece by piece."""
    projector = Projector(array_elements(array.dtype), array.size)
    running = array_accumulator(array.dtype)
    for piece in chunks(array):
        running.add(piece)
        projector.add(piece)
    running.totals().stats()
    projector.projections()


def both_of_halves(array: np.ndarray) -> None:
    """The same of finite elements of 16 bits: what the statistics convert is projected."""
    projector = Projector(array_elements(array.dtype), array.size)
    kernel = Half(Totals(), _HALVES[array.dtype.name])
    for piece in chunks(array):
        found = kernel.measure(piece)
        assert found is not None
        kernel.take(found)
        projector.add(piece, found.values)
    kernel.totals.stats()
    projector.projections()


def _cpu(function: Callable[[np.ndarray], object], array: np.ndarray) -> float:
    times = max(_ELEMENTS_A_ROUND // array.size, 1)
    start = time.process_time()
    for _ in range(times):
        function(array)
    return (time.process_time() - start) / times


def main() -> None:
    """Measure and print."""
    rng = np.random.default_rng(0)
    for dtype in map(np.dtype, _DTYPES):
        one_pass = both_of_halves if dtype.name in _HALVES else both
        words = []
        for size in _SIZES:
            array = (3 * rng.standard_normal(size, np.float32)).astype(dtype)
            rounds = [(_cpu(tensor_stats, array), _cpu(one_pass, array)) for _ in range(_ROUNDS)]
            alone = median(base for base, _ in rounds)
            ratio = median(with_both / base for base, with_both in rounds)
            words.append(f"{size} elements {1e6 * alone:.0f} us x {ratio:.2f}")
        sys.stdout.write(f"{dtype.name:14}{', '.join(words)}\n")


if __name__ == "__main__":
    main()
