"""Cost of the command line against numpy and against msprobe, in one run.

    python tests/benchmarks/bench_cli.py [--peer PYTHON] [--work DIR]

PYTHON is an interpreter of an environment that has msprobe (``pip install mindstudio-probe torch``).
Times are CPU seconds (user and system) of the whole process, interpreter start included; memory is the
largest resident set, pages of mapped files included.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import struct
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from pytest_npudump.dump.proto import dump_data_class

if TYPE_CHECKING:
    from collections.abc import Sequence

TENSORS = 200
TENSOR_BYTES = 4 << 20
CSV_FILES = 10_000
ROWS = 20_000
NUMBERS = {np.dtype(np.float32): 1, np.dtype(np.float16): 2}
STAMP = 1795228705872229
HEADER = (
    "Input/Output,Index,Data Size,Data Type,Format,Shape,Max Value,Min Value,Avg Value,Count,"
    "Nan Count,Negative Inf Count,Positive Inf Count\n"
)

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
CONVERT = """
import sys, numpy as np, pathlib
tree, out, dtype, offset = sys.argv[1:]
for path in sorted(pathlib.Path(tree).rglob("Relu*")):
    np.save(pathlib.Path(out) / (path.name + ".npy"), np.fromfile(path, dtype, offset=int(offset)))
"""


@dataclass(frozen=True)
class Cost:
    """Of one child process: wall and CPU seconds, MiB, exit code."""

    wall: float
    cpu: float
    memory: float
    code: int

    def __str__(self) -> str:
        return f"{self.wall:6.2f} s wall {self.cpu:6.2f} s CPU {self.memory:6.0f} MiB, exit {self.code}"


def measure(command: Sequence[str | Path], cwd: Path | None = None) -> Cost:
    start = os.times().elapsed
    with tempfile.TemporaryFile() as sink:
        child = subprocess.Popen(list(map(str, command)), stdout=sink, stderr=sink, cwd=cwd)
        _, status, usage = os.wait4(child.pid, 0)
        child.returncode = os.waitstatus_to_exitcode(status)
    cpu = usage.ru_utime + usage.ru_stime
    return Cost(os.times().elapsed - start, cpu, usage.ru_maxrss / 1024, child.returncode)


def best(command: Sequence[str | Path], times: int = 3) -> Cost:
    return min((measure(command) for _ in range(times)), key=lambda cost: cost.cpu)


def npudump(*words: str | Path) -> list[str | Path]:
    return [sys.executable, "-c", "import sys; from pytest_npudump.cli import main; sys.exit(main())", *words]


def write_tensor(path: Path, name: str, array: np.ndarray, repeats: int = 1) -> int:
    """Write one dump file with one output, ``array`` several times over; return the offset of the data."""
    message = dump_data_class()(version="2.0", dump_time=STAMP, op_name=name)
    tensor = message.output.add()
    tensor.data_type, tensor.format, tensor.size, tensor.address = NUMBERS[array.dtype], 2, array.nbytes, 4096
    tensor.size *= repeats
    tensor.shape.dim.extend((repeats, *array.shape))
    header = message.SerializeToString()
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("wb") as file:
        file.write(struct.pack("<Q", len(header)) + header)
        for _ in range(repeats):
            array.tofile(file)
    return 8 + len(header)


def tensor_trees(work: Path, dtype: type[np.floating]) -> tuple[Path, Path, int]:
    """Two runs of one model: the second with noise of a third of the tolerance in every element."""
    generator = np.random.default_rng(0)
    trees = [work / f"{np.dtype(dtype).name}_{side}" for side in ("golden", "actual")]
    count = TENSOR_BYTES // np.dtype(dtype).itemsize
    base = generator.standard_normal(count, np.float32)
    noise = 3e-5 if dtype is np.float32 else 3e-4
    offset = 0
    for number in range(TENSORS):
        values = np.roll(base, number * 1001)
        other = values * (1 + noise * generator.standard_normal(count, np.float32) / 3)
        for tree, array in zip(trees, (values, other), strict=True):
            name = f"Relu.relu_{number:04d}.{number}.3.{STAMP + number}"
            path = tree / "20261120080910" / "0" / "model" / "1" / "0" / name
            offset = write_tensor(path, f"relu_{number:04d}", array.astype(dtype).reshape(8, -1))
    return trees[0], trees[1], offset


def csv_trees(work: Path) -> tuple[Path, Path]:
    """Two runs of a model as statistics, a file for each layer."""
    trees = work / "csv_golden", work / "csv_actual"
    generator = np.random.default_rng(0)
    for number in range(CSV_FILES):
        high, low, mean = np.sort(generator.standard_normal(3))[[2, 0, 1]]
        row = f"4096,DT_FLOAT16,NCHW,1x8x16x16,{high:g},{low:g},{mean:g},2048,0,0,0\n"
        text = HEADER + f"Input,0,{row}Output,0,{row}"
        for tree in trees:
            path = (
                tree
                / "20261120080910/0/model/1/0"
                / f"Conv2D.conv_{number:05d}.{number}.3.{STAMP + number}.csv"
            )
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
    return trees


def merged_statistics(work: Path) -> tuple[Path, Path]:
    """The statistics of ``ROWS`` tensors in one file, as MindSpore and msprobe merge them."""
    generator = np.random.default_rng(0)
    lines = [
        "Op Type,Op Name,Task ID,Stream ID,Timestamp,IO,Slot,Data Size,Data Type,Shape,Max Value,Min Value,"
    ]
    lines[0] += "Avg Value,L2Norm Value"
    for number in range(ROWS // 2):
        for io in ("input", "output"):
            high, low, mean = np.sort(generator.standard_normal(3))[[2, 0, 1]]
            ids = f"Conv2D,Default_conv-op{number},0,0,{STAMP + number},{io},0,4096,float16"
            lines.append(f'{ids},"(1,8,16,16)",{high:g},{low:g},{mean:g},30.5')
    found = work / "merged_golden", work / "merged_actual"
    for tree in found:
        path = tree / "rank_0" / "net" / "0" / "0" / "statistic.csv"
        path.parent.mkdir(parents=True)
        path.write_text("\n".join(lines) + "\n")
    return found


def peer_rows(work: Path) -> tuple[Path, Path]:
    """The statistics of ``ROWS`` tensors as msprobe dumps them."""
    found = []
    for side in ("golden", "actual"):
        folder = work / f"peer_{side}"
        folder.mkdir(exist_ok=True)
        tensor = {"type": "torch.Tensor", "dtype": "torch.float16", "shape": [1, 8, 16, 16], "Max": 1.5}
        tensor |= {"Min": -1.25, "Mean": 0.01, "Norm": 30.5, "requires_grad": False}
        data = {
            f"Functional.conv2d.{number}.forward": {
                "input_args": [tensor],
                "input_kwargs": {},
                "output": [tensor],
            }
            for number in range(ROWS // 2)
        }
        head = {
            "task": "statistics",
            "level": "L1",
            "framework": "pytorch",
            "dump_data_dir": None,
            "data": data,
        }
        (folder / "dump.json").write_text(json.dumps(head))
        stack = {"0": [list(data), ["File model.py, line 1, in forward"]]}
        (folder / "stack.json").write_text(json.dumps(stack))
        found.append(folder / "dump.json")
    return found[0], found[1]


def report(title: str, ours: Cost, theirs: Cost | None = None, other: str = "numpy") -> None:
    sys.stdout.write(f"{title:52} npudump {ours}\n")
    if theirs is not None:
        sys.stdout.write(f"{'':52} {other:7} {theirs}\n")
        sys.stdout.write(f"{'':52} CPU of {other} / npudump: {theirs.cpu / ours.cpu:.2f}\n")


def bench_tensors(work: Path) -> None:
    for dtype in (np.float16, np.float32):
        golden, actual, offset = tensor_trees(work, dtype)
        name = np.dtype(dtype).name
        plain = best([sys.executable, "-c", COMPARE, golden, actual, name, str(offset)])
        for executor in ("serial", "threads"):
            cost = best(npudump("compare", golden, actual, "--executor", executor))
            report(f"compare {TENSORS} x 4 MiB {name}, {executor}", cost, plain)
        (work / "out").mkdir(exist_ok=True)
        plain = best([sys.executable, "-c", CONVERT, golden, work / "out", name, str(offset)])
        cost = best(npudump("convert", golden, "-o", work / "out2", "--executor", "serial"))
        report(f"convert {TENSORS} x 4 MiB {name} to npy, serial", cost, plain)
        for folder in (golden, actual, work / "out", work / "out2"):
            shutil.rmtree(folder)


def bench_statistics(work: Path, peer: str | None) -> None:
    golden, actual = csv_trees(work)
    rows = 2 * CSV_FILES
    report(f"stats of {CSV_FILES} CSV files", best(npudump("stats", golden)))
    ours = best(npudump("compare", golden, actual))
    report(f"compare {CSV_FILES} with {CSV_FILES} CSV files ({rows} rows)", ours)
    ours = best(npudump("compare", *merged_statistics(work)))
    report(f"compare {rows} rows of merged statistics", ours)
    if peer:
        one, other = peer_rows(work)
        words = ["compare", "-tp", other, "-gp", one, "-o", work / "peer_out"]
        theirs = best([peer, "-c", "from msprobe.msprobe import main; main()", *words], times=1)
        report(f"compare {rows} rows of statistics", ours, theirs, "msprobe")


def bench_memory(work: Path) -> None:
    for mebibytes in (1, 64, 1024):
        trees = work / "one", work / "other"
        for tree in trees:
            # A child process inherits the peak of its parent, which is therefore kept low.
            write_tensor(tree / f"Relu.relu.1.3.{STAMP}", "relu", np.ones(1 << 18, np.float32), mebibytes)
        report(f"compare one tensor of {mebibytes} MiB", best(npudump("compare", *trees), times=1))
        report(
            f"convert one tensor of {mebibytes} MiB", best(npudump("convert", trees[0], "-o", work / "out"))
        )
        for tree in (*trees, work / "out"):
            shutil.rmtree(tree)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--peer", help="interpreter of an environment with mindstudio-probe")
    parser.add_argument("--work", type=Path, help="directory for 4 GiB of files")
    parser.add_argument("--only", choices=("tensors", "statistics", "memory"))
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=arguments.work) as folder:
        work = Path(folder)
        if arguments.only in (None, "statistics"):
            bench_statistics(work, arguments.peer)
        if arguments.only in (None, "tensors"):
            bench_tensors(work)
        if arguments.only in (None, "memory"):
            bench_memory(work)


if __name__ == "__main__":
    main()
