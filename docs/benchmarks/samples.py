"""What the benchmarks read. Run in processes of their own, so that the benchmark itself stays small.

python docs/benchmarks/samples.py tensors WORK float16    two trees of tensor files; prints the data's offset
python docs/benchmarks/samples.py failing WORK int8 40 unrelated   two trees of tensors that differ; the same
python docs/benchmarks/samples.py large WORK MEBIBYTES [VALUE]     two trees of one tensor each
python docs/benchmarks/samples.py statistics WORK         trees of statistics, a golden file, msprobe's own
"""

from __future__ import annotations

import json
import struct
import sys
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np

from pytest_npudump.dump.dtypes import BY_NAME
from pytest_npudump.dump.files.container import dump_data_class
from pytest_npudump.dump.reader import read_dump
from pytest_npudump.dump.table import StatsTable

TENSORS = 200
TENSOR_BYTES = 4 << 20
CSV_FILES = 10_000
ROWS = 20_000
STAMP = 1795228705872229
STEP = "20261120080910/0/model/1/0"
HEADER = (
    "Input/Output,Index,Data Size,Data Type,Format,Shape,Max Value,Min Value,Avg Value,Count,"
    "Nan Count,Negative Inf Count,Positive Inf Count\n"
)
MERGED = (
    "Op Type,Op Name,Task ID,Stream ID,Timestamp,IO,Slot,Data Size,Data Type,Shape,Max Value,Min Value,"
    "Avg Value,L2Norm Value"
)


def write_tensor(path: Path, name: str, array: np.ndarray, repeats: int = 1) -> int:
    """Write one dump file with one output, ``array`` several times over; return the offset of the data."""
    message: Any = dump_data_class()(version="2.0", dump_time=STAMP, op_name=name)
    tensor = message.output.add()
    tensor.data_type, tensor.format = BY_NAME[array.dtype.name].proto, 2
    tensor.size, tensor.address = array.nbytes, 4096
    tensor.size *= repeats
    tensor.shape.dim.extend((repeats, *array.shape))
    header = message.SerializeToString()
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("wb") as file:
        file.write(struct.pack("<Q", len(header)) + header)
        for _ in range(repeats):
            array.tofile(file)
    return 8 + len(header)


def tensor_trees(work: Path, dtype: str) -> int:
    """Two runs of one model: the second with noise of a third of the tolerance in every element."""
    generator = np.random.default_rng(0)
    count = TENSOR_BYTES // np.dtype(dtype).itemsize
    base = generator.standard_normal(count, np.float32)
    noise = 3e-5 if dtype == "float32" else 3e-4
    offset = 0
    for number in range(TENSORS):
        values = np.roll(base, number * 1001)
        other = values * (1 + noise * generator.standard_normal(count, np.float32) / 3)
        for side, array in (("golden", values), ("actual", other)):
            name = f"Relu.relu_{number:04d}.{number}.3.{STAMP + number}"
            path = work / f"{dtype}_{side}" / STEP / name
            offset = write_tensor(path, f"relu_{number:04d}", array.astype(dtype).reshape(8, -1))
    return offset


def failing_trees(work: Path, dtype: str, count: int, content: str) -> int:
    """Two runs of one model whose tensors differ throughout, in a way that the content names."""
    kind, generator = np.dtype(getattr(ml_dtypes, dtype, dtype)), np.random.default_rng(0)
    size = (64 << 20) if content == "64 Mi elements" else TENSOR_BYTES // kind.itemsize
    rows, offset = (1 if content == "one row, two pieces exchanged" else 128), 0
    for number in range(count):
        values = generator.standard_normal(size, np.float32) * (30 if kind.kind == "i" else 1)
        other = generator.standard_normal(size, np.float32) * (30 if kind.kind == "i" else 1)
        if content == "sorted":
            values, other = np.sort(values), values
        elif content == "all NaN":
            other = np.full(size, np.nan, np.float32)
        elif content == "one value":
            values, other = np.ones_like(values), np.zeros_like(values)
        elif content == "two values":
            values, other = values > 0, other > 0
        elif content == "in another order":
            other = generator.permutation(values)
        elif rows == 1:
            other = values.copy()
            other[: size // 8], other[-size // 8 :] = values[-size // 8 :], values[: size // 8]
        for side, array in (("golden", values), ("actual", other)):
            path = work / f"failing_{side}" / STEP / f"Relu.relu_{number:04d}.{number}.3.{STAMP + number}"
            offset = write_tensor(path, f"relu_{number:04d}", array.astype(kind).reshape(rows, -1))
    return offset


def large_trees(work: Path, mebibytes: int, value: float = 1) -> None:
    """One tensor of ones, and one of another value."""
    for side, own in (("one", 1), ("other", value)):
        array = np.full(1 << 18, own, np.float32)
        write_tensor(work / side / f"Relu.relu.1.3.{STAMP}", "relu", array, mebibytes)


def csv_trees(work: Path) -> None:
    """Two runs of a model as statistics, a file for each layer, and the golden file of the first."""
    generator = np.random.default_rng(0)
    for number in range(CSV_FILES):
        high, low, mean = np.sort(generator.standard_normal(3))[[2, 0, 1]]
        row = f"4096,DT_FLOAT16,NCHW,1x8x16x16,{high:g},{low:g},{mean:g},2048,0,0,0\n"
        for side in ("golden", "actual"):
            path = work / f"csv_{side}" / STEP / f"Conv2D.conv_{number:05d}.{number}.3.{STAMP + number}.csv"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(f"{HEADER}Input,0,{row}Output,0,{row}")
    table = StatsTable.from_records(read_dump(work / "csv_golden").records)
    path = work / "csv_golden.yaml"
    from pytest_npudump.golden.store import write_golden
    from pytest_npudump.record.text import Record  # an older checkout may not have it

    write_golden(path, Record("test_model.py::test_model", {"runtime": "acl"}, table, path))


def merged_statistics(work: Path, prefix: str = "merged", name: str = "Default_conv") -> None:
    """The statistics of ``ROWS`` tensors in one file, as MindSpore and msprobe merge them."""
    generator = np.random.default_rng(0)
    lines = [MERGED]
    for number in range(ROWS // 2):
        for io in ("input", "output"):
            high, low, mean = np.sort(generator.standard_normal(3))[[2, 0, 1]]
            ids = f"Conv2D,{name}-op{number},0,0,{STAMP + number},{io},0,4096,float16"
            lines.append(f'{ids},"(1,8,16,16)",{high:g},{low:g},{mean:g},30.5')
    for side in ("golden", "actual"):
        path = work / f"{prefix}_{side}" / "rank_0" / "net" / "0" / "0" / "statistic.csv"
        path.parent.mkdir(parents=True)
        path.write_text("\n".join(lines) + "\n")


def peer_rows(work: Path) -> None:
    """The statistics of ``ROWS`` tensors as msprobe dumps them."""
    tensor = {"type": "torch.Tensor", "dtype": "torch.float16", "shape": [1, 8, 16, 16], "Max": 1.5}
    tensor |= {"Min": -1.25, "Mean": 0.01, "Norm": 30.5, "requires_grad": False}
    call = {"input_args": [tensor], "input_kwargs": {}, "output": [tensor]}
    data = {f"Functional.conv2d.{number}.forward": call for number in range(ROWS // 2)}
    head = {"task": "statistics", "level": "L1", "framework": "pytorch", "dump_data_dir": None, "data": data}
    stack = {"0": [list(data), ["File model.py, line 1, in forward"]]}
    for side in ("golden", "actual"):
        folder = work / f"peer_{side}"
        folder.mkdir(exist_ok=True)
        (folder / "dump.json").write_text(json.dumps(head))
        (folder / "stack.json").write_text(json.dumps(stack))


def main() -> None:
    """Write what the arguments name."""
    what, work, *rest = sys.argv[1:]
    if what == "tensors":
        sys.stdout.write(str(tensor_trees(Path(work), rest[0])))
    elif what == "large":
        large_trees(Path(work), int(rest[0]), *map(float, rest[1:]))
    elif what == "failing":
        sys.stdout.write(str(failing_trees(Path(work), rest[0], int(rest[1]), rest[2])))
    else:
        for write in (csv_trees, merged_statistics, peer_rows):
            write(Path(work))
        merged_statistics(Path(work), "long", "Default_network_".ljust(293, "x"))


if __name__ == "__main__":
    main()
