"""Cost of a comparison by the number of files and by who does the work, as a table.

    python docs/benchmarks/bench_files.py [--against DIR] [--work DIR] [--only tables|tensors] [--times N]

DIR is the top of another checkout, such as one of the commit before: both are run in turn. Each figure is of
a whole process: processor seconds (user and system), elapsed seconds, and the largest resident set in MiB; of
several runs the one that took the least processor time. Of Dask it is the process that hands the work out;
the two workers, each with a scratch directory of its own as on two machines, are started before.

Half of a percent of the tensors differ. How many is counted here as well: of tables by the csv module, of
tensors by numpy in float64. A run that finds another number ends the benchmark.
"""

from __future__ import annotations

import argparse
import csv
import os
import re
import subprocess
import sys
import tempfile
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from bench_cli import Cost, row
from samples import HEADER, STAMP, write_tensor

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

COMMAND = "import sys; from pytest_npudump.cli import main; sys.exit(main())"
RANKS, STEPS = 8, 10
TABLES = (10_000, 100_000, 160_000)
TENSORS = ((10_000, 1 << 10), (2_000, 1 << 16), (100, 1 << 22))
EXECUTORS = ("serial", "threads", "processes:2")
OFF_EVERY = 200
CHANGE = 1.5
SIDES = ("golden", "actual")


def write_tables(work: Path, count: int) -> int:
    """Write ``count`` statistics files a side, of 8 ranks and 10 steps; return how many tensors differ."""
    generator = np.random.default_rng(0)
    operators = count // (RANKS * STEPS)
    for rank in range(RANKS):
        for step in range(STEPS):
            folder = f"worldsize{RANKS}_global_rank{rank}/20261120080910/{rank}/graph_1/1/{step}"
            values = np.sort(generator.standard_normal((operators, 3)))
            for side in SIDES:
                (work / side / folder).mkdir(parents=True)
            for number, (low, mean, high) in enumerate(values.tolist()):
                name = f"Conv2D.conv_{number:05d}.{number}.3.{STAMP + (step * operators + number) * 10}.csv"
                for side in SIDES:
                    off = CHANGE if side == "actual" and number % OFF_EVERY == 0 else 1.0
                    cells = f"{high * off:g},{low * off:g},{mean * off:g},2048,0,0,0"
                    line = f"Output,0,4096,DT_FLOAT16,NCHW,1x8x16x16,{cells}"
                    (work / side / folder / name).write_text(f"{HEADER}{line}\n")
    return sum(
        differs(*rows)
        for paths in zip(*(sorted((work / side).rglob("*.csv")) for side in SIDES), strict=True)
        for rows in zip(*map(read_rows, paths), strict=True)
    )


def read_rows(path: Path) -> list[dict[str, str]]:
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def differs(golden: dict[str, str], actual: dict[str, str]) -> bool:
    """Whether max and min are far off: nothing in between is written."""
    here, there = (
        np.array([float(found["Max Value"]), float(found["Min Value"])]) for found in (golden, actual)
    )
    return bool(np.abs(there - here).max() > 0.1 * np.abs(here).max())


def write_tensors(work: Path, count: int, nbytes: int) -> int:
    """Write ``count`` tensors of float32 a side; return how many differ."""
    generator = np.random.default_rng(0)
    differing = 0
    for number in range(count):
        values = generator.standard_normal(nbytes // 4).astype(np.float32)
        other = values * np.float32(CHANGE if number % OFF_EVERY == 0 else 1)
        for side, array in zip(SIDES, (values, other), strict=True):
            name = f"Relu.relu_{number:05d}.{number}.3.{STAMP + number}"
            write_tensor(work / side / "20261120080910/0/model/1/0" / name, f"relu_{number:05d}", array)
        wide = values.astype(np.float64), other.astype(np.float64)
        differing += bool(np.abs(wide[1] - wide[0]).max() > 0.1 * np.abs(wide[0]).max())
    return differing


def measure(work: Path, executor: str, tree: Path | None, count: int, differing: int) -> Cost:
    """Compare the two sides with the package of ``tree``; the verdict must be the one counted here.

    Raises:
        SystemExit: it is another.
    """
    environment = {**os.environ, "OPENBLAS_NUM_THREADS": "1"}
    if tree is not None:
        environment["PYTHONPATH"] = str(tree)
    words = [sys.executable, "-c", COMMAND, "compare", *(str(work / side) for side in SIDES)]
    start = os.times().elapsed
    # Not from here: Python looks for packages in the working directory first.
    child = subprocess.Popen(
        [*words, "--executor", executor], cwd=work, env=environment, stdout=subprocess.PIPE, text=True
    )
    assert child.stdout is not None
    text = child.stdout.read()
    _, status, usage = os.wait4(child.pid, 0)
    child.returncode = os.waitstatus_to_exitcode(status)
    said = re.search(r"^(\d+) of (\d+) tensors compared.*: (\d+) differ$", text, re.MULTILINE)
    if child.returncode != 1 or said is None or list(map(int, said.groups())) != [count, count, differing]:
        sys.exit(
            f"{executor}: expected {differing} of {count} to differ, exit {child.returncode}:\n{text[:2000]}"
        )
    cpu = usage.ru_utime + usage.ru_stime
    return Cost(os.times().elapsed - start, cpu, usage.ru_maxrss / 1024, 0)


@contextmanager
def cluster(scratch: Path, tree: Path | None) -> Iterator[str | None]:
    """Start a Dask scheduler and two workers with a scratch directory each; None where Dask is not there."""
    try:
        from distributed import Client
    except ImportError:
        yield None
        return
    environment = {**os.environ, **({} if tree is None else {"PYTHONPATH": str(tree)})}
    dask = [sys.executable, "-m", "dask"]
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL, "env": environment, "cwd": scratch}
    file = scratch / "scheduler.json"
    words = [
        *dask,
        "scheduler",
        "--host",
        "127.0.0.1",
        "--port",
        "0",
        "--no-dashboard",
        "--scheduler-file",
        file,
    ]
    started = [subprocess.Popen(list(map(str, words)), **quiet)]  # type: ignore[call-overload]
    for number in range(2):
        words = [*dask, "worker", "--scheduler-file", file, "--nthreads", "1", "--no-dashboard", "--no-nanny"]
        words += ["--local-directory", scratch / f"machine_{number}"]
        started.append(subprocess.Popen(list(map(str, words)), **quiet))  # type: ignore[call-overload]
    try:
        with Client(scheduler_file=str(file), timeout=60, set_as_default=False) as client:
            client.wait_for_workers(2, timeout=60)
            address = client.scheduler.address
        yield f"dask:{address}"
    finally:
        for process in reversed(started):  # a worker that has lost its scheduler may wait for it for ever
            process.kill()
            process.wait()


def bench(work: Path, what: str, found: tuple[int, int], trees: Sequence[Path | None], times: int) -> None:
    """Print a line for each executor: the trees in turn."""
    count, differing = found
    with tempfile.TemporaryDirectory(dir=work) as scratch:
        for executor in (*EXECUTORS, "dask"):
            best: dict[Path | None, Cost] = {}
            for tree in [*trees] * times:
                if executor == "dask":
                    folder = Path(tempfile.mkdtemp(dir=scratch))
                    with cluster(folder, tree) as address:
                        if address is None:
                            continue
                        cost = measure(work, address, tree, count, differing)
                else:
                    cost = measure(work, executor, tree, count, differing)
                if tree not in best or cost.cpu < best[tree].cpu:
                    best[tree] = cost
            row(f"{what}, {executor}", *(best.get(tree) for tree in trees))


def main() -> None:
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)  # else each process compiles what it imports
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--against", type=Path, help="top of another checkout")
    parser.add_argument("--work", type=Path, help="directory for 1.5 GiB of files")
    parser.add_argument("--only", choices=("tables", "tensors"))
    parser.add_argument("--times", type=int, default=2, help="how often each is run")
    parser.add_argument("--most", type=int, default=max(TABLES), help="statistics files a side, at most")
    arguments = parser.parse_args()
    place = None if arguments.work is None else arguments.work.absolute()
    own = Path(__file__).absolute().parent.parent.parent
    trees = [own] if arguments.against is None else [arguments.against.absolute(), own]
    row("compare, files a side", *(["before"] if arguments.against else []), "npudump")
    row(*["---"] * (1 + len(trees)))
    for count in TABLES if arguments.only != "tensors" else ():
        if count <= arguments.most:
            with tempfile.TemporaryDirectory(dir=place) as folder:
                differing = write_tables(Path(folder), count)
                bench(Path(folder), f"{count} of statistics", (count, differing), trees, arguments.times)
    for count, nbytes in TENSORS if arguments.only != "tables" else ():
        with tempfile.TemporaryDirectory(dir=place) as folder:
            differing = write_tensors(Path(folder), count, nbytes)
            what = f"{count} tensors of {nbytes >> 10} KiB"
            bench(Path(folder), what, (count, differing), trees, arguments.times)


if __name__ == "__main__":
    main()
