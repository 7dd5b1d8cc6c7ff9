"""What projections cost beside the statistics: python docs/benchmarks/bench_projections.py.

Ratios of processor time of both together, in the one pass that a dump is read in, to the statistics alone;
medians of paired rounds. Set OPENBLAS_NUM_THREADS=1.

The first table is of tensors in files, as a dump has them, the second one of arrays in memory, the third one
of the whole command ``npudump ls --stats`` on many files. ``mask`` is a half of -inf, ``NaN`` one in a
hundred thousand.
"""

from __future__ import annotations

import math
import os
import shutil
import subprocess
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING

sys.path.insert(0, str(Path(__file__).parents[2] / "tests/dump/stats"))

import ml_dtypes
import numpy as np
from samples import STAMP, STEP, write_tensor
from test_projections import signs

from pytest_npudump.dump.filebytes import chunks
from pytest_npudump.dump.records import Payload
from pytest_npudump.dump.stats.projections import array_projector
from pytest_npudump.dump.stats.tensor import Projected, array_accumulator, payload_stats

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_DTYPES = (np.float32, np.float16, ml_dtypes.bfloat16, np.int8, np.int32, np.float64, ml_dtypes.float8_e4m3fn)
_SIZES = (1_000, 20_000, 300_000, 8_388_608)
_ROUNDS = 21
_ELEMENTS_A_ROUND = 1_000_000
_MANY = 500
_DUMPS = ((256, 2_000), (1_000, 2_000), (20_000, 1_000), (300_000, 200))
"""Elements of a tensor, and tensors."""
_COMMANDS = 5
_START = "import sys; from pytest_npudump.cli import main; sys.exit(main())"


def in_memory(array: np.ndarray, *, projections: bool) -> None:
    """Statistics of an array, piece by piece."""
    projector = array_projector(array.dtype, array.size) if projections else None
    running = Projected(array_accumulator(array.dtype), projector)
    for piece in chunks(array):
        running.add(piece)
    running.stats()


def _arrays(size: int) -> Iterator[tuple[str, np.ndarray]]:
    values = 3 * np.random.default_rng(0).standard_normal(size, np.float32)
    for dtype in map(np.dtype, _DTYPES):
        yield dtype.name, values.astype(dtype)
    for dtype in (np.float32, np.float16):
        few, mask = values.astype(dtype), values.astype(dtype)
        few[:: max(size, 100_000) // 2 + 1] = math.nan
        mask[values > 0] = -math.inf
        yield f"{few.dtype.name} NaN", few
        yield f"{few.dtype.name} mask", mask


def _cpu(function: Callable[[bool], object], times: int) -> tuple[float, float]:
    """Seconds without and with projections."""
    found = []
    for projections in (False, True):
        start = time.process_time()
        for _ in range(times):
            function(projections)
        found.append((time.process_time() - start) / times)
    return found[0], found[1]


def _words(function: Callable[[bool], object], size: int) -> str:
    times = max(_ELEMENTS_A_ROUND // size, 1)
    function(True)  # noqa: FBT003 - as it has no name here
    rounds = [_cpu(function, times) for _ in range(_ROUNDS)]
    alone = median(base for base, _ in rounds)
    return f"{size} elements {1e6 * alone:.0f} us x {median(both / base for base, both in rounds):.2f}"


def _check(payload: Payload, array: np.ndarray) -> None:
    """Assert that statistics are as without projections, and these of small tensors as their definition says.

    The definition is that of the tests, in plain integers.
    """
    alone, both = (
        payload_stats(payload, array.dtype.name, array.size, projections=asked) for asked in (False, True)
    )
    assert alone is not None
    assert both is not None
    assert replace(both, projections=None) == alone
    values = array.astype(np.float64)
    if array.size > _SIZES[0] or not np.isfinite(values).all():
        return
    expected = signs(array.size) @ values
    assert both.projections is not None
    np.testing.assert_allclose(both.projections, expected, atol=1e-6 * np.abs(values).sum(), rtol=0)


def _of_files(folder: Path) -> Iterator[tuple[str, Callable[[bool], object], int]]:
    for size in _SIZES:
        for name, array in _arrays(size):
            path = folder / f"{name}-{size}"
            array.tofile(path)
            payload, dtype = Payload(path, 0, array.nbytes), array.dtype.name
            _check(payload, array)

            def read(
                projections: bool,  # noqa: FBT001 - as all of these
                payload: Payload = payload,
                dtype: str = dtype,
                size: int = size,
            ) -> None:
                payload_stats(payload, dtype, size, projections=projections)

            yield name, read, size
            path.unlink()
    paths = [folder / str(number) for number in range(_MANY)]
    for number, path in enumerate(paths):
        np.arange(number % 64 + 1, dtype=np.float32).tofile(path)

    def read_all(projections: bool) -> None:  # noqa: FBT001 - as above
        for number, path in enumerate(paths):
            count = number % 64 + 1
            payload_stats(Payload(path, 0, 4 * count), "float32", count, projections=projections)

    yield f"{_MANY} tensors of 1 to 64 float32", read_all, _MANY * 32


def _command(tree: Path, *options: str) -> float:
    """Seconds of the processor for the statistics of a dump."""
    child = subprocess.Popen(
        [
            sys.executable,
            "-c",
            _START,
            "ls",
            "--stats",
            str(tree),
            "--executor",
            "serial",
            "--json",
            "-",
            *options,
        ],
        stdout=subprocess.DEVNULL,
    )
    _, status, usage = os.wait4(child.pid, 0)
    child.returncode = os.waitstatus_to_exitcode(status)
    assert child.returncode == 0
    return usage.ru_utime + usage.ru_stime


def _of_dumps(folder: Path) -> Iterator[str]:
    for size, count in _DUMPS:
        for name, array in _arrays(size):
            tree = folder / f"{name}-{size}"
            for number in range(count):
                path = tree / STEP / f"Relu.relu_{number}.{number}.3.{STAMP + number}"
                write_tensor(path, f"relu_{number}", array)
            rounds = [(_command(tree), _command(tree, "--projections")) for _ in range(_COMMANDS)]
            ratio = median(both / alone for alone, both in rounds)
            yield f"{name:14}{count} files of {size} elements: x {ratio:.2f}\n"
            shutil.rmtree(tree)


def _of_arrays() -> Iterator[tuple[str, Callable[[bool], object], int]]:
    for size in _SIZES:
        for name, array in _arrays(size):
            yield name, lambda both, array=array: in_memory(array, projections=both), size  # type: ignore[misc]


def main() -> None:
    """Measure and print."""
    with tempfile.TemporaryDirectory() as folder:
        for title, work in (("files", _of_files(Path(folder))), ("memory", _of_arrays())):
            lines: dict[str, list[str]] = {}
            for name, function, size in work:
                lines.setdefault(name, []).append(_words(function, size))
            sys.stdout.write(f"{title}\n")
            sys.stdout.writelines(f"{name:14}{', '.join(words)}\n" for name, words in lines.items())
        sys.stdout.write("commands\n")
        sys.stdout.writelines(_of_dumps(Path(folder)))


if __name__ == "__main__":
    main()
