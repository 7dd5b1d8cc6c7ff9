"""What a pair of small tensors costs from the command to the report, by type and content: a table.

    python docs/benchmarks/bench_small.py [--against TREE] [--pairs N] [--kib N] [--rounds N] [--types NAME]

Microseconds of processor time a pair of ``npudump compare`` on two dumps of one tensor a file, in a process
that has run the command before: the least of all rounds, by ``--executor serial`` and, as a part of that, by
the default. TREE is another checkout, run in turn with this one: the last column is this one as a part of it.

What the command says of each dump (how many tensors differ, and how many elements of each are outside the
tolerance) is held against numpy in float64.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from contextlib import redirect_stderr, redirect_stdout, suppress
from io import StringIO
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
from sides import Side, answer_all

ROOT = Path(__file__).parents[2]
TYPES = ("float32", "bfloat16", "float16", "int8")
CONTENTS = ("all differ", "equal", "masked")
RTOL = 1e-3
FACTOR = 1.02


def tensors(name: str, content: str, nbytes: int) -> tuple[Any, Any]:
    """A golden tensor and its counterpart; of a masked one a quarter is the lowest value of the type."""
    dtype = np.dtype(getattr(ml_dtypes, name, name))
    golden = (np.random.default_rng(0).standard_normal(nbytes // dtype.itemsize) * 30).astype(dtype)
    if content == "masked":
        golden[::4] = np.iinfo(dtype).min if dtype.kind == "i" else ml_dtypes.finfo(dtype).min
    if content == "equal":
        return golden, golden
    if dtype.kind == "i":
        return golden, golden ^ dtype.type(1)
    with np.errstate(over="ignore"):
        actual = (golden.astype(np.float64) * FACTOR).astype(dtype)
    actual[~np.isfinite(actual.astype(np.float64))] = golden[0]
    return golden, actual


def write(folder: Path, name: str, content: str, nbytes: int, pairs: int) -> int:
    """Write both dumps; return how many elements of a tensor are outside of the tolerance."""
    from samples import STAMP, STEP, write_tensor  # what it needs an older checkout may not have

    golden, actual = tensors(name, content, nbytes)
    for side, array in (("golden", golden), ("actual", actual)):
        for number in range(pairs):
            path = folder / side / STEP / f"Relu.relu_{number:05d}.{number}.3.{STAMP + number}"
            write_tensor(path, f"relu_{number:05d}", array)
    one, other = golden.astype(np.float64), actual.astype(np.float64)
    return int(np.count_nonzero(np.abs(other - one) > RTOL * np.abs(one)))


def work(*command: str) -> tuple[float, str]:
    """Run the command; its seconds and what it printed."""
    from pytest_npudump.cli import main as npudump

    sys.argv = ["npudump", *command]
    out, start = StringIO(), time.process_time()
    with redirect_stdout(out), redirect_stderr(StringIO()), suppress(SystemExit):
        npudump()
    return time.process_time() - start, out.getvalue()


def run(side: Side, folder: Path, *words: str) -> tuple[float, str]:
    """Seconds and output of a comparison of both dumps."""
    dumps = [str(folder / name) for name in ("golden", "actual")]
    seconds, output = side.ask("compare", *dumps, "--rtol", str(RTOL), "--atol", "0", *words)
    return seconds, output


def check(side: Side, folder: Path, pairs: int, outside: int) -> None:
    """Assert that every tensor was compared, and judged as numpy judges it."""
    _, output = run(side, folder, "--json", "-")
    found = [verdict["elements"] for verdict in json.loads(output)["verdicts"]]
    assert [one["outside"] for one in found] == [outside] * pairs


def row(*cells: str) -> None:
    sys.stdout.write(f"| {' | '.join(cells)} |\n")
    sys.stdout.flush()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--against", type=Path, metavar="TREE")
    parser.add_argument("--pairs", type=int, default=3000)
    parser.add_argument("--kib", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--types", nargs="+", default=TYPES)
    parser.add_argument("--work", action="store_true")
    given = parser.parse_args()
    if given.work:
        answer_all(work)
        return
    sides = [Side(__file__, tree) for tree in (ROOT, given.against) if tree]
    row("type, content", "us a pair", "default beside serial", "beside the other checkout")
    row(*["---"] * 4)
    for name in given.types:
        for content in CONTENTS:
            with tempfile.TemporaryDirectory() as work_folder:
                folder = Path(work_folder)
                outside = write(folder, name, content, given.kib << 10, given.pairs)
                for side in sides:
                    check(side, folder, given.pairs, outside)
                rounds = [
                    [run(side, folder, "--executor", "serial")[0] for side in sides]
                    + [run(sides[0], folder)[0]]
                    for _ in range(given.rounds)
                ]
            here, *before, default = (min(seconds) for seconds in zip(*rounds, strict=True))
            beside = f"{here / before[0]:.2f}" if before else "-"
            row(f"{name}, {content}", f"{1e6 * here / given.pairs:.0f}", f"{default / here:.2f}", beside)


if __name__ == "__main__":
    main()
