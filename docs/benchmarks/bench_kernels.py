"""How fast the kernels are, in ratios to numpy's own ``max`` measured in the same rounds.

Run by hand: ``OPENBLAS_NUM_THREADS=1 python docs/benchmarks/bench_kernels.py [MiB] [rounds]``. Files lie
in a temporary directory and are read through the page cache, eight for a type; ``max`` maps them. Rates
and ratios are medians, of processor time. Memory is the process's own (anonymous pages), not of mapped files.
"""

from __future__ import annotations

import hashlib
import os
import sys
import tempfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, NamedTuple

import ml_dtypes
import numpy as np

from pytest_npudump.compare.tensors.difference import compare_tensors
from pytest_npudump.dump.filebytes import CHUNK_BYTES, file_pieces
from pytest_npudump.dump.records import Payload
from pytest_npudump.dump.stats.tensor import payload_stats, tensor_stats

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

_MIB = 1 << 20
_TENSOR = 4 * _MIB
_WANTED = {"float32": 0.30, "float16": 0.06, "bfloat16": 0.09}
_PARTS = 8
_STATUS = Path("/proc/self/status")


class Part(NamedTuple):
    """A file of numbers."""

    path: Path
    dtype: np.dtype
    nbytes: int


def _dtype(name: str) -> np.dtype:
    return np.dtype(getattr(ml_dtypes, name, None) or name)


def _write(path: Path, dtype: np.dtype, nbytes: int) -> None:
    rng = np.random.default_rng(0)
    piece = min(_TENSOR, nbytes)
    with path.open("wb") as file:
        for _ in range(nbytes // piece):
            file.write(rng.standard_normal(piece // dtype.itemsize, np.float32).astype(dtype).tobytes())


def _map(path: Path, dtype: np.dtype) -> np.ndarray:
    return np.memmap(path, np.uint8, "r").view(np.ndarray).view(dtype)


def _wall(function: Callable[..., object], *arguments: object) -> float:
    start = time.perf_counter()
    function(*arguments)
    return time.perf_counter() - start


def _cpu(function: Callable[..., object], *arguments: object) -> float:
    start = time.process_time()
    function(*arguments)
    return time.process_time() - start


def _print(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def _max(part: Part) -> None:
    np.max(_map(part.path, np.dtype(np.int32)))


def _stats_of(part: Part) -> None:
    payload_stats(Payload(part.path, 0, part.nbytes), part.dtype.name, part.nbytes // part.dtype.itemsize)


def _check_stats(part: Part) -> None:
    """Assert the statistics that are timed against numpy in float64."""
    wide = _map(part.path, part.dtype).astype(np.float64)
    found = payload_stats(Payload(part.path, 0, part.nbytes), part.dtype.name, wide.size)
    assert found is not None
    assert (found.max, found.min, found.zero) == (wide.max(), wide.min(), np.count_nonzero(wide == 0))
    np.testing.assert_allclose(found.l2norm, np.linalg.norm(wide), rtol=2e-6)


def _check_compare(golden: np.ndarray, actual: np.ndarray, rtol: float, atol: float) -> None:
    """Assert the verdict that is timed against numpy in float64."""
    g, a = golden.astype(np.float64), actual.astype(np.float64)
    distance, found = np.abs(a - g), compare_tensors(golden, actual, rtol=rtol, atol=atol)
    assert found.outside == np.count_nonzero(distance > atol + rtol * np.abs(g))
    np.testing.assert_allclose(found.max_abs, distance.max(), rtol=1e-6)
    np.testing.assert_allclose(found.norm, np.linalg.norm(g), rtol=2e-6)


def _read(part: Part) -> None:
    """Read without computing anything."""
    for _ in file_pieces(part.path, 0, part.nbytes, CHUNK_BYTES):
        pass


def _all(function: Callable[[Part], None], parts: Sequence[Part]) -> None:
    for part in parts:
        function(part)


def _two(pool: ThreadPoolExecutor, function: Callable[[Part], None], parts: Sequence[Part]) -> None:
    list(pool.map(function, parts))


def _hash(data: bytes) -> None:
    for _ in range(20):
        hashlib.sha256(data)


def _machine(rounds: int) -> None:
    """What two threads gain here that share nothing and need no memory: cores may be halves of one."""
    data = bytes(_MIB)
    gains = []
    with ThreadPoolExecutor(2) as pool:
        for _ in range(rounds):
            one = _wall(_hash, data) + _wall(_hash, data)
            gains.append(one / _wall(lambda: list(pool.map(_hash, (data, data)))))
    _print(f"two threads that hash: {median(gains):.2f} times as fast as one")


def _stats(folder: Path, nbytes: int, rounds: int) -> None:
    """Rates, and what two threads gain in time and cost in processor time: more than 1.0 is contention.

    Beside it what two threads gain that only read the same bytes into memory of their own.
    """
    for name, wanted in _WANTED.items():
        size = max(nbytes // _PARTS // _TENSOR, 1) * _TENSOR
        parts = [Part(folder / f"{name}{number}", _dtype(name), size) for number in range(_PARTS)]
        for part in parts:
            _write(part.path, part.dtype, part.nbytes)
        _check_stats(parts[0])
        found = []
        with ThreadPoolExecutor(2) as pool:
            for _ in range(rounds):
                base, one = _cpu(_all, _max, parts), _cpu(_all, _stats_of, parts)
                gain = _wall(_all, _stats_of, parts) / _wall(_two, pool, _stats_of, parts)
                cost = _cpu(_two, pool, _stats_of, parts) / one
                reading = _wall(_all, _read, parts) / _wall(_two, pool, _read, parts)
                found.append((_PARTS * size / one / 1e9, base / one, gain, cost, reading))
        rate, ratio, gain, cost, reading = (median(values) for values in zip(*found, strict=True))
        _print(
            f"stats {name:9} {rate:5.2f} GB/s, {ratio:.3f} of max (wanted {wanted}), "
            f"two threads {gain:.2f} times as fast ({ratio * gain:.3f} of max) at {cost:.2f} of the time of "
            f"one processor; two that only read: {reading:.2f}"
        )
        for part in parts:
            part.path.unlink()


def _naive(golden: np.ndarray, actual: np.ndarray) -> None:
    """The measures as one would write them down, in float64, without the statistics of either side."""
    g, a = golden.astype(np.float64), actual.astype(np.float64)
    distance = np.abs(a - g)
    _ = distance.max(), (distance / np.abs(g)).max(), (distance / np.abs(g)).mean()
    _ = g @ a / np.linalg.norm(g) / np.linalg.norm(a), np.linalg.norm(distance) / np.linalg.norm(g)
    _ = np.mean(distance <= 1e-4 + 1e-3 * np.abs(g)), np.argsort(distance)[-5:]


def _compare(rounds: int) -> None:
    rng = np.random.default_rng(0)
    for name in ("float16", "float32"):
        golden = rng.standard_normal(_TENSOR // np.dtype(name).itemsize).astype(name)
        actual = (golden * (1 + 1e-3 * rng.standard_normal(golden.size))).astype(name)
        strict = partial(compare_tensors, rtol=1e-3, atol=1e-4)
        loose = partial(compare_tensors, rtol=1e-2, atol=1e-4)
        for other, rtol in ((actual, 1e-3), (actual, 1e-2), (golden.copy(), 1e-3)):
            _check_compare(golden, other, rtol, 1e-4)
        found = []
        for _ in range(rounds):
            outside, within = _cpu(strict, golden, actual), _cpu(loose, golden, actual)
            same, naive = _cpu(strict, golden, golden.copy()), _cpu(_naive, golden, actual)
            found.append((200 * outside, naive / outside, 200 * within, 200 * same))
        far, less, near, same = (median(values) for values in zip(*found, strict=True))
        _print(
            f"compare {name} 200 x 4 MiB: {far:.2f} s CPU, {less:.1f} times less than naive; all within "
            f"tolerance {near:.2f} s; equal bits {same:.2f} s"
        )


def _anonymous() -> int:
    """Bytes of memory that are this process's own."""
    (line,) = (line for line in _STATUS.read_text().splitlines() if line.startswith("RssAnon:"))
    return int(line.split()[1]) * 1024


def _peak(function: Callable[..., object], *arguments: object) -> float:
    """MiB of memory of its own that the process has, at most, while ``function`` runs."""
    done, peaks = threading.Event(), [_anonymous()]

    def watch() -> None:
        while not done.wait(0.001):
            peaks.append(_anonymous())

    watcher = threading.Thread(target=watch)
    watcher.start()
    function(*arguments)
    done.set()
    watcher.join()
    return max(peaks) / _MIB


def _memory(folder: Path) -> None:
    """Tensors of which the first 64 MiB (32 in the other file) are written, the rest are holes."""
    dtype = np.dtype(np.float16)
    for mib in (1, 64, 1024, 4096):
        pair = []
        for name, most in (("one", 64), ("other", 32)):
            _write(folder / name, dtype, min(mib, most) * _MIB)
            os.truncate(folder / name, mib * _MIB)
            pair.append(_map(folder / name, dtype))
        stats = _peak(tensor_stats, pair[0])
        compare = _peak(partial(compare_tensors, rtol=1e-3, atol=1e-4), *pair)
        _print(f"memory, float16 of {mib} MiB: {stats:.0f} MiB for statistics, {compare:.0f} MiB to compare")


def main() -> None:
    """Measure and print."""
    mib, rounds = (int(value) for value in (sys.argv[1:] + ["400", "5"][len(sys.argv) - 1 :]))
    with tempfile.TemporaryDirectory() as folder:
        if _STATUS.exists():
            _memory(Path(folder))
        _machine(rounds)
        _stats(Path(folder), mib * _MIB, rounds)
    _compare(rounds)


if __name__ == "__main__":
    main()
