"""Cost of the command line beside plain numpy and msprobe, in one run, as a table.

    python docs/benchmarks/bench_cli.py [--peer PYTHON] [--work DIR] [--only PART]

PYTHON is an interpreter of an environment that has msprobe (``pip install mindstudio-probe torch``).
Each figure is of a whole process, interpreter start included: processor seconds (user and system), elapsed
seconds, and the largest resident set in MiB, pages of mapped files included; of several runs the one that
took the least processor time. What the commands find is held against numpy in float64 once, and each timed
run has to say the same in its summary. numpy reads and computes the same in float32, with four measures
instead of fifteen and no verdict; of rows of statistics, Python's csv compares four cells. msprobe has the
same values as PyTorch files.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from cli_truth import BOUNDS, START

if TYPE_CHECKING:
    from collections.abc import Sequence

ONE = "1 of 1 tensors compared, 1 of them element by element, all within tolerance"
FAILING_TYPES = {"int8": 40, "float16": 10, "bfloat16": 10, "float8_e4m3fn": 10, "float32": 40}
FAILING_CONTENTS = (
    *("in another order", "one row, two pieces exchanged", "sorted", "all NaN", "one value", "two values"),
)
SAMPLES = Path(__file__).with_name("samples.py")

COMPARE = """
import sys, numpy as np, pathlib
golden, actual, dtype, offset = sys.argv[1:]
for path in sorted(pathlib.Path(golden).rglob("Relu*")):
    pair = path, pathlib.Path(actual) / path.relative_to(golden)
    a, b = (np.fromfile(one, dtype, offset=int(offset)).astype(np.float32) for one in pair)
    d = np.abs(a - b)
    cosine = a @ b / np.sqrt((a @ a) * (b @ b))
    found = d.max(), cosine, np.sqrt((d @ d) / (a @ a)), (d <= 1e-3 * np.abs(a)).mean()
"""
FAILING = """
import sys, numpy as np, ml_dtypes, pathlib
golden, actual, dtype, offset = sys.argv[1:]
np.seterr(all="ignore")
for path in sorted(pathlib.Path(golden).rglob("Relu*")):
    pair, kind = (path, pathlib.Path(actual) / path.relative_to(golden)), getattr(ml_dtypes, dtype, dtype)
    a, b = (np.fromfile(one, kind, offset=int(offset)).astype(np.float64) for one in pair)
    d = np.abs(a - b)
    found = d.max(), (d / np.abs(a)).max(), a @ b / np.sqrt((a @ a) * (b @ b)), np.sqrt((d @ d) / (a @ a))
    found += (d > 1e-3 * np.abs(a) + 1e-5).sum(), np.isnan(b).sum()
"""
ROWS = """
import csv, sys, pathlib
sides = []
for tree in sys.argv[1:]:
    with next(pathlib.Path(tree).rglob("*.csv")).open(newline="") as file:
        sides.append(list(csv.DictReader(file)))
off = 0
for one, other in zip(*sides, strict=True):
    for name in ("Max Value", "Min Value", "Avg Value", "L2Norm Value"):
        golden, actual = float(one[name]), float(other[name])
        off += abs(actual - golden) > 1e-3 * abs(golden)
print(len(sides[0]), "rows,", off, "off")
"""
STATS = """
import sys, numpy as np, pathlib
tree, dtype, offset = sys.argv[1:]
for path in sorted(pathlib.Path(tree).rglob("Relu*")):
    a = np.fromfile(path, dtype, offset=int(offset))
    found = a.max(), a.min(), a.mean(), np.linalg.norm(a)
    found += np.isnan(a).sum(), np.isinf(a).sum(), (a == 0).sum()
"""
CONVERT = """
import sys, numpy as np, pathlib
tree, out, dtype, offset = sys.argv[1:]
pathlib.Path(out).mkdir()
for path in sorted(pathlib.Path(tree).rglob("Relu*")):
    np.save(pathlib.Path(out) / (path.name + ".npy"), np.fromfile(path, dtype, offset=int(offset)))
"""
PEER = "from msprobe.msprobe import main; main()"
PEER_TENSORS = """
import json, pathlib, sys, numpy as np, torch
work, dtype, offset = pathlib.Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])
for side in ("golden", "actual"):
    folder, calls = work / f"peer_{dtype}_{side}", {}
    (folder / "dump_tensor_data").mkdir(parents=True)
    for number, path in enumerate(sorted((work / f"{dtype}_{side}").rglob("Relu*"))):
        name = f"Functional.relu.{number}.forward"
        tensor = torch.from_numpy(np.fromfile(path, dtype, offset=offset))
        torch.save(tensor, folder / "dump_tensor_data" / f"{name}.output.0.pt")
        wide = tensor.float()
        found = {"Max": wide.max().item(), "Min": wide.min().item(), "Mean": wide.mean().item()}
        found |= {"Norm": wide.norm().item(), "type": "torch.Tensor", "dtype": str(tensor.dtype)}
        found |= {"shape": list(tensor.shape), "requires_grad": False, "data_name": f"{name}.output.0.pt"}
        calls[name] = {"input_args": [], "input_kwargs": {}, "output": [found]}
    head = {"task": "tensor", "level": "L1", "framework": "pytorch", "data": calls}
    head["dump_data_dir"] = str((folder / "dump_tensor_data").absolute())
    (folder / "dump.json").write_text(json.dumps(head))
    stack = {"0": [list(calls), ["File model.py, line 1, in forward"]]}
    (folder / "stack.json").write_text(json.dumps(stack))
"""


@dataclass(frozen=True)
class Cost:
    """Of one child process: elapsed and processor seconds, MiB, exit code."""

    wall: float
    cpu: float
    memory: float
    code: int

    def __str__(self) -> str:
        failed = f", exit {self.code}" if self.code else ""
        return f"{self.cpu:.2f} s ({self.wall:.2f} s elapsed), {self.memory:.0f} MiB{failed}"


def measure(command: Sequence[str | Path], says: str) -> Cost:
    """Run a command, which has to print ``says``."""
    start = os.times().elapsed
    with tempfile.TemporaryFile() as sink:
        child = subprocess.Popen(list(map(str, command)), stdout=sink, stderr=sink)
        _, status, usage = os.wait4(child.pid, 0)
        child.returncode = os.waitstatus_to_exitcode(status)
        sink.seek(0)
        said = sink.read().decode()
        assert says in said, said[-2000:]
    cpu = usage.ru_utime + usage.ru_stime
    return Cost(os.times().elapsed - start, cpu, usage.ru_maxrss / 1024, child.returncode)


def best(command: Sequence[str | Path], out: Path | None = None, times: int = 5, says: str = "") -> Cost:
    """Run a command several times, each time without the directory it writes to."""
    found = []
    for _ in range(times):
        if out is not None:
            shutil.rmtree(out, ignore_errors=True)
        found.append(measure(command, says))
    return min(found, key=lambda cost: cost.cpu)


def npudump(*words: str | Path) -> list[str | Path]:
    return [sys.executable, "-c", START, *words]


def printed(*words: str | Path) -> str:
    """What the command prints; an exit code of 1 is a verdict."""
    done = subprocess.run(list(map(str, npudump(*words))), stdout=subprocess.PIPE, text=True, check=False)
    assert done.returncode in {0, 1}
    return done.stdout


def check(*words: str | Path) -> None:
    """Have ``cli_truth.py`` hold what a command finds against numpy."""
    subprocess.run([sys.executable, SAMPLES.with_name("cli_truth.py"), *words], check=True)


def samples(*words: str | Path) -> str:
    done = subprocess.run([sys.executable, SAMPLES, *words], check=True, stdout=subprocess.PIPE, text=True)
    return done.stdout


def row(*cells: object) -> None:
    sys.stdout.write(f"| {' | '.join('-' if cell is None else str(cell) for cell in cells)} |\n")
    sys.stdout.flush()


def bench_tensors(work: Path, dtype: str, peer: str | None) -> None:
    offset = samples("tensors", work, dtype)
    golden, actual, out = work / f"{dtype}_golden", work / f"{dtype}_actual", work / "out"
    python = [sys.executable, "-c"]
    theirs = None
    if peer:
        subprocess.run([peer, "-c", PEER_TENSORS, work, dtype, offset], check=True)
        one, other = (work / f"peer_{dtype}_{side}" for side in ("golden", "actual"))
        words: list[str | Path] = [
            "compare",
            "-tp",
            other / "dump.json",
            "-gp",
            one / "dump.json",
            "-o",
            work / "peer_out",
        ]
        theirs = best([peer, "-c", PEER, *words], times=1)
        for folder in (one, other):
            shutil.rmtree(folder)
    plain = best([*python, COMPARE, golden, actual, dtype, offset])
    check("compare", dtype, offset, golden, actual)
    says = printed("compare", golden, actual, *BOUNDS).splitlines()[0]
    for executor in ("serial", "threads"):
        ours = best(npudump("compare", golden, actual, *BOUNDS, "--executor", executor), says=says)
        row(f"compare 200 x 4 MiB, {dtype}, {executor}", ours, plain, theirs)
    plain = best([*python, STATS, golden, dtype, offset])
    check("stats", dtype, offset, golden, actual)
    says = printed("ls", "--stats", golden)
    for executor in ("serial", "threads"):
        ours = best(npudump("ls", "--stats", golden, "--executor", executor), says=says)
        row(f"statistics of 800 MiB, {dtype}, {executor}", ours, plain, None)
    plain = best([*python, CONVERT, golden, out, dtype, offset], out)
    ours = best(npudump("convert", golden, "-o", out, "--executor", "serial"), out)
    check("convert", dtype, offset, golden, out)
    row(f"convert 800 MiB of {dtype} to npy, serial", ours, plain, None)
    for folder in (golden, actual, out):
        shutil.rmtree(folder)


def bench_failing(work: Path) -> None:
    """Tensors that fail, of which a report says how they differ; numpy's measures are in float64."""
    rows = [(dtype, count, "unrelated") for dtype, count in FAILING_TYPES.items()]
    dtypes = "int8", "float16", "float32"
    rows += [(dtype, FAILING_TYPES[dtype], content) for content in FAILING_CONTENTS for dtype in dtypes]
    rows = [one for one in rows if one[::2] != ("int8", "all NaN")]
    for dtype, count, content in [*rows, ("float16", 1, "64 Mi elements"), ("float32", 1, "64 Mi elements")]:
        offset = samples("failing", work, dtype, str(count), content)
        golden, actual = work / "failing_golden", work / "failing_actual"
        if content in {"unrelated", "in another order"}:
            check("compare", dtype, offset, golden, actual)
        plain = best([sys.executable, "-c", FAILING, golden, actual, dtype, offset], times=3)
        command = npudump("compare", golden, actual, *BOUNDS, "--executor", "serial")
        ours = best(command, times=3, says=f"{count} differ")
        row(f"{count} x {dtype} that fail, {content}", ours, plain, f"{ours.cpu / plain.cpu:.1f} x numpy")
        for folder in (golden, actual):
            shutil.rmtree(folder)


def bench_statistics(work: Path, peer: str | None) -> None:
    samples("statistics", work)
    theirs = None
    if peer:
        one, other = (work / f"peer_{side}" / "dump.json" for side in ("golden", "actual"))
        words: list[str | Path] = ["compare", "-tp", other, "-gp", one, "-o", work / "peer_out"]
        theirs = best([peer, "-c", PEER, *words], times=1)
    says = "20000 of 20000 tensors compared, all within tolerance"
    merged = work / "merged_golden", work / "merged_actual"
    plain = best([sys.executable, "-c", ROWS, *merged], says="20000 rows, 0 off")
    row("compare 20,000 rows of statistics", best(npudump("compare", *merged), says=says), plain, theirs)
    merged = work / "long_golden", work / "long_actual"
    plain = best([sys.executable, "-c", ROWS, *merged], says="20000 rows, 0 off")
    row("the same, names of 300 characters", best(npudump("compare", *merged), says=says), plain, None)
    ours = best(npudump("compare", work / "csv_golden", work / "csv_actual"), says=says)
    row("compare 10,000 with 10,000 statistics files (20,000 rows)", ours, None, None)
    ours = best(npudump("compare", work / "csv_golden.yaml", work / "csv_actual"), says=says)
    row("compare a golden file with 10,000 statistics files", ours, None, None)


def bench_memory(work: Path) -> None:
    for mebibytes in (1, 64, 256, 1024, 4096):
        samples("large", work, str(mebibytes))
        one, other, out = work / "one", work / "other", work / "out"
        ours = best(npudump("compare", one, other, "--executor", "serial"), times=1, says=ONE)
        row(f"compare one tensor of {mebibytes} MiB", ours, None, None)
        ours = best(npudump("convert", one, "-o", out, "--executor", "serial"), out, times=1)
        row(f"convert one tensor of {mebibytes} MiB", ours, None, None)
        for tree in (one, other, out):
            shutil.rmtree(tree)
        samples("large", work, str(mebibytes), "2")
        ours = best(npudump("compare", one, other, "--executor", "serial"), times=1, says="1 differ")
        row(f"compare one tensor of {mebibytes} MiB that fails", ours, None, None)
        for tree in (one, other):
            shutil.rmtree(tree)


def main() -> None:
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)  # else each process compiles what it imports
    os.environ["OPENBLAS_NUM_THREADS"] = "1"  # else numpy's own scripts spend time in threads that wait
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--peer", help="interpreter of an environment with mindstudio-probe and torch")
    parser.add_argument("--work", type=Path, help="directory for 12 GiB of files")
    parser.add_argument("--only", choices=("tensors", "failing", "statistics", "memory"))
    arguments = parser.parse_args()
    row("job", "npudump", "numpy", "msprobe")
    row("---", "---", "---", "---")
    with tempfile.TemporaryDirectory(dir=arguments.work) as folder:
        work = Path(folder)
        if arguments.only in (None, "statistics"):
            bench_statistics(work, arguments.peer)
        if arguments.only in (None, "tensors"):
            for dtype in ("float16", "float32"):
                bench_tensors(work, dtype, arguments.peer)
        if arguments.only in (None, "failing"):
            bench_failing(work)
        if arguments.only in (None, "memory"):
            bench_memory(work)


if __name__ == "__main__":
    main()
