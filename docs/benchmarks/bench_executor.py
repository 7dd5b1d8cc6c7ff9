"""From which size of tensor threads gain: a table.

    python docs/benchmarks/bench_executor.py [--work DIR] [--rounds N]

Pairs of float32 tensors in files are compared element by element, as ``npudump compare`` does it, by one
thread (``serial``) and by two, in turns; each figure is the least of all rounds. ``default`` is
``--executor threads`` as it comes, which works in one thread below a size; ``always`` hands every size to
the threads. Ratios to ``serial``: of elapsed time, and of processor time behind it. Only the elapsed ones
of a machine with two idle cores say what threads gain.

The largest distance of each pair is held against numpy's in float64.
"""

from __future__ import annotations

import argparse
import math
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING
from unittest.mock import patch

import numpy as np
from samples import STAMP, write_tensor

from pytest_npudump.cli.common.executors import open_workers, run_together
from pytest_npudump.compare.tensors.tensor_pair import Pair, compare_pairs
from pytest_npudump.dump import batches
from pytest_npudump.dump.reader import read_dump

if TYPE_CHECKING:
    from collections.abc import Sequence


KIBIBYTES = (16, 64, 128, 192, 256, 384, 512, 1024, 4096)
BYTES_A_ROUND = 32 << 20
MOST = 512
WAYS = {"serial": ("serial", None), "default": ("threads:2", None), "always": ("threads:2", 0)}
"""The executor, and the bytes of a pair from which it uses its threads; None for its own."""


def write_pairs(work: Path, kibibytes: int, *, equal: bool) -> tuple[list[Pair], list[float]]:
    """Write as many pairs as a round takes; return them, and the largest distance of each in float64."""
    generator = np.random.default_rng(0)
    count = min(BYTES_A_ROUND // (kibibytes << 10), MOST)
    distances = []
    for number in range(count):
        golden = generator.standard_normal(kibibytes << 8).astype(np.float32)
        actual = golden if equal else golden * np.float32(1.0001)
        for side, array in (("golden", golden), ("actual", actual)):
            name = f"Relu.relu_{number:05d}.{number}.3.{STAMP + number}"
            write_tensor(work / side / "20261120080910/0/model/1/0" / name, f"relu_{number:05d}", array)
        distances.append(float(np.abs(actual.astype(np.float64) - golden.astype(np.float64)).max()))
    sides = [read_dump(work / side, stats=False).records for side in ("golden", "actual")]
    return [Pair(*pair, "ND", rtol=0.01, atol=0.01) for pair in zip(*sides, strict=True)], distances


def run(pairs: Sequence[Pair], distances: Sequence[float], way: str) -> tuple[float, float]:
    """Compare all pairs; return the elapsed and the processor time."""
    spec, least = WAYS[way]
    threshold = batches._THREADED_BYTES if least is None else least
    with patch.object(batches, "_THREADED_BYTES", threshold), open_workers(spec) as workers:
        elapsed, cpu = time.perf_counter(), time.process_time()
        tasks = run_together(
            compare_pairs, pairs, workers, weight=lambda pair: pair.nbytes, progress=lambda *_: None
        )
        found = [one.difference for one in tasks]
        elapsed, cpu = time.perf_counter() - elapsed, time.process_time() - cpu
    for difference, distance in zip(found, distances, strict=True):
        assert difference is not None
        assert math.isclose(difference.max_abs, distance, rel_tol=1e-6), (difference.max_abs, distance)
        assert difference.outside == 0
    return elapsed, cpu


def row(*cells: object) -> None:
    shown = (f"{cell:.2f}" if isinstance(cell, float) else str(cell) for cell in cells)
    sys.stdout.write(f"| {' | '.join(shown)} |\n")
    sys.stdout.flush()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--work", type=Path, help="where the files go; a tmpfs by preference")
    parser.add_argument("--rounds", type=int, default=25)
    given = parser.parse_args()
    others = [way for way in WAYS if way != "serial"]
    row("KiB a tensor", *(f"{way}, {what}" for way in others for what in ("elapsed", "processor")))
    row("---", *["---"] * (2 * len(others)))
    for kibibytes in KIBIBYTES:
        for equal in (True, False):
            with tempfile.TemporaryDirectory(dir=given.work) as folder:
                pairs, distances = write_pairs(Path(folder), kibibytes, equal=equal)
                rounds = [{way: run(pairs, distances, way) for way in WAYS} for _ in range(given.rounds)]
            best = {way: [min(one[way][at] for one in rounds) for at in (0, 1)] for way in WAYS}
            ratios = [best[way][at] / best["serial"][at] for way in others for at in (0, 1)]
            row(f"{kibibytes}, {'equal' if equal else 'all differ'}", *ratios)


if __name__ == "__main__":
    main()
