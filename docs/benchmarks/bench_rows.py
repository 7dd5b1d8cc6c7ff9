"""Goldens by their number of rows: a table.

    python docs/benchmarks/bench_rows.py [--against DIR] [--rows N ...]

Microseconds of processor time a row, the least of some rounds, and the largest resident set: reading the
golden file, comparing it with a dump that is equal, and with one that is off in all rows and four
statistics, each without the files of a report. DIR is the top of another checkout, measured in turn with
this one.

Which rows differ is asked of numpy in float64 as well. The numbers have 6 digits, and three of the seven
statistics are 0.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable

HERE = Path(__file__).absolute().parents[2]
ROWS = (10_000, 100_000, 1_000_000)
FIGURES = ("read", "compare, equal", "compare, all differ")


def write(path: Path, count: int) -> None:
    """Write a golden of ``count`` rows in the format that users commit."""
    values = np.sort(np.random.default_rng(0).standard_normal((count, 3)))
    with path.open("w") as file:
        file.write("npudump-golden: 1\ntest: t\nproducer:\n  digits: 6\n")
        file.write("columns: tensor dtype shape max min avg l2norm nan -inf +inf\ntensors: |\n")
        for row, (low, mean, high) in enumerate(values.tolist()):
            key = f"network/encoder/layer.{row // 40}/MatMul_{row}:output.0"
            cells = f"{high:.6g} {low:.6g} {mean:.6g} {abs(high) + abs(low):.6g} 0 0 0"
            file.write(f"  {key} float16 1x8x{row % 64 + 1} {cells}\n")


def measure(path: Path, count: int, rounds: int) -> dict[str, float]:
    """Microseconds a row, in this process."""
    from dataclasses import replace

    from pytest_npudump.compare.stats.tables import compare_tables
    from pytest_npudump.compare.tolerances.tolerance import Tolerances
    from pytest_npudump.golden.store import read_golden

    best: dict[str, float] = {}

    def timed(name: str, work: Callable[[], object]) -> object:
        start = time.process_time()
        found = work()
        best[name] = min(best.get(name, 1e9), (time.process_time() - start) / count * 1e6)
        return found

    golden = read_golden(path).table
    moved = golden.values.copy()
    moved[:, :4] = moved[:, :4] * 1.5 + 1
    off = replace(golden, values=moved)
    far = np.abs(moved[:, :2] - golden.values[:, :2]).max(axis=1) > 0.01 * np.abs(golden.values[:, :2]).max(1)
    for _ in range(rounds):
        timed("read", lambda: read_golden(path))
        equal = timed("compare, equal", lambda: compare_tables(golden, golden, Tolerances()))
        assert equal.ok
        assert equal.passed == count
        del equal
        differ = timed("compare, all differ", lambda: compare_tables(golden, off, Tolerances()))
        assert len(differ.failing) == count == int(np.count_nonzero(far))
        del differ
    return best | {"MiB": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024}


def row(*cells: object) -> None:
    shown = (f"{cell:.2f}" if isinstance(cell, float) else str(cell) for cell in cells)
    sys.stdout.write(f"| {' | '.join(shown)} |\n")
    sys.stdout.flush()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--against", type=Path, help="top of another checkout")
    parser.add_argument("--rows", type=int, nargs="+", default=ROWS)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--worker", type=Path, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.worker:
        sys.stdout.write(json.dumps(measure(given.worker, given.rows[0], given.rounds)))
        return
    trees = [*([given.against.absolute()] if given.against else []), HERE]
    heads = ["before", "here"][-len(trees) :]
    row("rows", *(f"{head}: {name}" for head in heads for name in (*FIGURES, "MiB")))
    row("---", *["---"] * (4 * len(heads)))
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "golden.yaml"
        for count in given.rows:
            write(path, count)
            found: dict[Path, list[dict[str, float]]] = {tree: [] for tree in trees}
            for tree in trees * 2:
                words = ["--rows", str(count), "--rounds", str(given.rounds), "--worker", str(path)]
                environment = {**os.environ, "PYTHONPATH": str(tree)}
                done = subprocess.run(
                    [sys.executable, __file__, *words], env=environment, stdout=subprocess.PIPE, check=True
                )
                found[tree].append(json.loads(done.stdout))
            names = (*FIGURES, "MiB")
            row(count, *(min(one[name] for one in found[tree]) for tree in trees for name in names))


if __name__ == "__main__":
    main()
