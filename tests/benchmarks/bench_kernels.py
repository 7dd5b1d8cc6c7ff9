"""How fast the kernels are, in ratios to numpy's own ``max`` measured in the same run.

Run by hand: ``OPENBLAS_NUM_THREADS=1 python tests/benchmarks/bench_kernels.py [MiB]``. Files lie in a
temporary directory and are read through the page cache.
"""

from __future__ import annotations

import resource
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

import ml_dtypes
import numpy as np

from pytest_npudump.compare.tensors import compare_tensors
from pytest_npudump.dump.stats import tensor_stats

if TYPE_CHECKING:
    from collections.abc import Callable

_MIB = 1 << 20
_TENSOR = 4 * _MIB
_REPEATS = 3
_WANTED = {"float32": 0.30, "float16": 0.06, "bfloat16": 0.09}


def _write(path: Path, dtype: np.dtype, nbytes: int) -> np.ndarray:
    rng = np.random.default_rng(0)
    with path.open("wb") as file:
        for _ in range(nbytes // _TENSOR):
            file.write(rng.standard_normal(_TENSOR // dtype.itemsize, np.float32).astype(dtype).tobytes())
    return np.memmap(path, np.uint8, "r").view(np.ndarray)


def _best(function: Callable[[], object], clock: Callable[[], float] = time.perf_counter) -> float:
    times = []
    for _ in range(_REPEATS):
        start = clock()
        function()
        times.append(clock() - start)
    return min(times)


def _print(line: str) -> None:
    sys.stdout.write(f"{line}\n")


def _stats(folder: Path, nbytes: int) -> None:
    for name in ("float32", "float16", "bfloat16"):
        dtype = np.dtype(getattr(ml_dtypes, name, None) or name)
        raw = _write(folder / name, dtype, nbytes)
        array = raw.view(dtype)
        base = _best(lambda raw=raw: np.max(raw.view(np.float32).view(np.int32)))
        one = _best(lambda array=array: tensor_stats(array))
        halves = np.array_split(array, 2)
        with ThreadPoolExecutor(2) as pool:
            two = _best(lambda halves=halves, pool=pool: list(pool.map(tensor_stats, halves)))
        _print(
            f"stats {name:9} {nbytes / one / 1e9:5.2f} GB/s, {base / one:.3f} of max "
            f"(at least {_WANTED[name]}), two threads {one / two:.2f} times"
        )


def _naive(golden: np.ndarray, actual: np.ndarray) -> None:
    """The measures as one would write them down, in float64."""
    g, a = golden.astype(np.float64), actual.astype(np.float64)
    distance = np.abs(a - g)
    _ = distance.max(), (distance / np.abs(g)).max(), (distance / np.abs(g)).mean()
    _ = g @ a / np.linalg.norm(g) / np.linalg.norm(a), np.linalg.norm(distance) / np.linalg.norm(g)
    _ = np.mean(distance <= 1e-4 + 1e-3 * np.abs(g)), np.argsort(distance)[-5:]


def _compare() -> None:
    rng = np.random.default_rng(0)
    for name in ("float16", "float32"):
        golden = rng.standard_normal(_TENSOR // np.dtype(name).itemsize).astype(name)
        actual = (golden * (1 + 1e-3 * rng.standard_normal(golden.size))).astype(name)
        ours = _best(
            lambda g=golden, a=actual: compare_tensors(g, a, rtol=1e-3, atol=1e-4), time.process_time
        )
        same = _best(lambda g=golden: compare_tensors(g, g.copy(), rtol=1e-3, atol=1e-4), time.process_time)
        naive = _best(lambda g=golden, a=actual: _naive(g, a), time.process_time)
        _print(
            f"compare {name} 200 x 4 MiB: {200 * ours:.2f} s CPU, {naive / ours:.1f} times less than naive; "
            f"equal tensors {200 * same:.2f} s"
        )


def main() -> None:
    """Measure and print."""
    nbytes = int(sys.argv[1] if len(sys.argv) > 1 else 400) * _MIB
    with tempfile.TemporaryDirectory() as folder:
        _stats(Path(folder), nbytes)
    _compare()
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    _print(f"peak memory, mapped pages included: {peak:.0f} MiB")


if __name__ == "__main__":
    main()
