"""What the benchmarks read: ``samples.py KIND WORK ...`` of the functions below, as :func:`main` names them.

Run in processes of their own, so that the benchmark itself stays small: a child's largest resident set is not
less than its parent's was.
"""

from __future__ import annotations

import json
import shutil
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


def write_tensor(path: Path, name: str, array: np.ndarray, repeats: int = 1) -> None:
    """Write one dump file with one output, ``array`` several times over."""
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


def tensor_trees(work: Path, dtype: str) -> None:
    """Two runs of one model: the second with noise of a third of the tolerance in every element."""
    generator = np.random.default_rng(0)
    count = TENSOR_BYTES // np.dtype(dtype).itemsize
    base = generator.standard_normal(count, np.float32)
    noise = 3e-5 if dtype == "float32" else 3e-4
    for number in range(TENSORS):
        values = np.roll(base, number * 1001)
        other = values * (1 + noise * generator.standard_normal(count, np.float32) / 3)
        for side, array in (("golden", values), ("actual", other)):
            name = f"Relu.relu_{number:04d}.{number}.3.{STAMP + number}"
            path = work / f"{dtype}_{side}" / STEP / name
            write_tensor(path, f"relu_{number:04d}", array.astype(dtype).reshape(8, -1))


def failing_trees(work: Path, dtype: str, count: int, content: str) -> None:
    """Two runs of one model whose tensors differ throughout, in a way that the content names."""
    kind, generator = np.dtype(getattr(ml_dtypes, dtype, dtype)), np.random.default_rng(0)
    size = (64 << 20) if content == "64 Mi elements" else TENSOR_BYTES // kind.itemsize
    shape = {"one row, two pieces exchanged": (1, -1), "pairs": (-1, 2), "two rows": (2, -1)}.get(
        content, (128, -1)
    )
    if content == "five axes in another order":
        shape = (4, 8, 16, 32, -1)
    shutil.rmtree(work / "failing_golden", ignore_errors=True)
    shutil.rmtree(work / "failing_actual", ignore_errors=True)
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
        elif content.endswith("in another order"):
            other = generator.permutation(values)
        elif content == "transposed":
            other = values.reshape(shape).T.ravel()
        elif content == "every other column":
            other[1::2] = values[1::2]
        elif content == "zeros, but one in a hundred":
            values, other = (side * (generator.random(size) < 0.01) for side in (values, other))
        elif content in {"rounded", "pairs"} and kind.kind != "i":
            values, other = np.round(4 * values), np.round(4 * other)
        elif shape[0] == 1:
            other = values.copy()
            other[: size // 8], other[-size // 8 :] = values[-size // 8 :], values[: size // 8]
        for side, array in (("golden", values), ("actual", other)):
            path = work / f"failing_{side}" / STEP / f"Relu.relu_{number:04d}.{number}.3.{STAMP + number}"
            write_tensor(path, f"relu_{number:04d}", array.astype(kind).reshape(shape))


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

    write_golden(Record("test_model.py::test_model", {"runtime": "acl"}, table, path))


def merged_statistics(
    work: Path, prefix: str = "merged", name: str = "Default_conv", rows: int = ROWS, factor: float = 1
) -> None:
    """The statistics of tensors in one file, as MindSpore and msprobe merge them; one side times a factor."""
    for side, scale in (("golden", 1.0), ("actual", factor)):
        generator = np.random.default_rng(0)
        lines = [MERGED]
        for number in range(rows // 2):
            for io in ("input", "output"):
                high, low, mean = np.sort(generator.standard_normal(3))[[2, 0, 1]] * scale
                ids = f"Conv2D,{name}-op{number},0,0,{STAMP + number},{io},0,4096,float16"
                lines.append(f'{ids},"(1,8,16,16)",{high:g},{low:g},{mean:g},{30.5 * scale:g}')
        path = work / f"{prefix}_{side}" / "rank_0" / "net" / "0" / "0" / "statistic.csv"
        path.parent.mkdir(parents=True)
        path.write_text("\n".join(lines) + "\n")


def peer_rows(work: Path) -> None:
    """The statistics of ``ROWS`` tensors as msprobe dumps them."""
    tensor = {"type": "torch.Tensor", "dtype": "torch.float16", "shape": [1, 8, 16, 16], "Max": 1.5}
    tensor |= {"Min": -1.25, "Mean": 0.01, "Norm": 30.5, "requires_grad": False}
    call = {"input_args": [tensor], "input_kwargs": {}, "output": [tensor]}
    for side in ("golden", "actual"):
        calls = {f"Functional.conv2d.{number}.forward": call for number in range(ROWS // 2)}
        _peer_dump(work / f"peer_{side}", "statistics", None, calls)


def peer_tensors(work: Path, dtype: str) -> None:
    """The tensors of :func:`tensor_trees` as msprobe dumps them; by an interpreter that has torch."""
    import torch

    for side in ("golden", "actual"):
        folder, calls = work / f"peer_{dtype}_{side}", {}
        data = folder / "dump_tensor_data"
        data.mkdir(parents=True)
        for number, path in enumerate(sorted((work / f"{dtype}_{side}").rglob("Relu*"))):
            offset = 8 + struct.unpack("<Q", path.read_bytes()[:8])[0]
            tensor = torch.from_numpy(np.fromfile(path, dtype, offset=offset))
            name = f"Functional.relu.{number}.forward"
            torch.save(tensor, data / f"{name}.output.0.pt")
            wide = tensor.float()
            found = {"Max": wide.max().item(), "Min": wide.min().item(), "Mean": wide.mean().item()}
            found |= {"Norm": wide.norm().item(), "type": "torch.Tensor", "dtype": str(tensor.dtype)}
            found |= {"shape": [*tensor.shape], "requires_grad": False, "data_name": f"{name}.output.0.pt"}
            calls[name] = {"input_args": [], "input_kwargs": {}, "output": [found]}
        _peer_dump(folder, "tensor", str(data.absolute()), calls)


def _peer_dump(folder: Path, task: str, data: str | None, calls: dict[str, Any]) -> None:
    head = {"task": task, "level": "L1", "framework": "pytorch", "dump_data_dir": data, "data": calls}
    stack = {"0": [[*calls], ["File model.py, line 1, in forward"]]}
    folder.mkdir(exist_ok=True)
    (folder / "dump.json").write_text(json.dumps(head))
    (folder / "stack.json").write_text(json.dumps(stack))


def statistics(work: Path) -> None:
    """Files of statistics in all forms."""
    for write in (csv_trees, merged_statistics, peer_rows):
        write(work)
    merged_statistics(work, "long", "Default_network_".ljust(293, "x"))
    merged_statistics(work, "off", rows=100_000, factor=1.5)


def golden_sides(work: Path) -> None:
    """A golden of 100,000 rows, and two that have each changed 1,000 of them."""
    from pytest_npudump.dump.records import Stats, TensorKey, TensorRecord
    from pytest_npudump.golden.store import write_golden
    from pytest_npudump.record.record import Record

    for name, first, factor in (("base", 0, 1), ("ours", 0, 2), ("theirs", 50_000, 3)):
        values = np.random.default_rng(0).normal(size=(100_000, 4))
        values[first : first + 1000] *= factor
        rows = [
            TensorRecord(
                TensorKey.parse(f"network/encoder/layer.{i // 40}/MatMul_{i}:output.0"),
                "",
                "float16",
                (8,),
                Path("x"),
                stats=Stats(8, *row, 0, 0, 0),
            )
            for i, row in enumerate(values.tolist())
        ]
        write_golden(Record("t", {}, StatsTable.from_records(rows), work / name))


MARKED = """
import numpy as np, pytest

@pytest.mark.npu_dump({marker})
@pytest.mark.parametrize("k", range({count}))
def test_small(npu_dump, k):
    with npu_dump.load_model(({models})[k % 2]) as model:
        model.run(np.linspace(-1, 1, 64, dtype=np.float32).reshape(1, 1, 8, 8) + np.float32(k))
"""
PLAIN = """
import pytest

@pytest.mark.parametrize("k", range({count}))
def test_plain(k): pass
"""
FLOOR = """
import numpy as np, onnx, onnxruntime

def test_floor():
    model, options = onnx.load("net.onnx"), onnxruntime.SessionOptions()
    values = (onnx.helper.make_tensor_value_info(f"t{n}", 1, [1, 1, 8, 8]) for n in range(999))
    model.graph.output.extend(values)
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession(model.SerializeToString(), options)
    assert len(session.run(None, {"image": np.ones((1, 1, 8, 8), np.float32)})) == 1000
"""
TIMES = """
import time

TIMES = []

def pytest_runtest_logfinish():
    TIMES.append(time.process_time())

def pytest_terminal_summary(terminalreporter):
    took = [b - a for a, b in zip(TIMES, TIMES[1:])]
    many = len(took) // 4  # a full garbage collection comes every 300 or so
    late, early = sum(took[-many:]), sum(took[200 : 200 + many])
    if early:
        terminalreporter.write_line(f"late/early {late / early:.2f}")
"""


def small_model() -> Any:
    """Two convolutions with a Relu between them."""
    from onnx import TensorProto, helper, numpy_helper

    rng = np.random.default_rng(3)
    weights = rng.normal(size=(4, 1, 3, 3)), rng.normal(scale=0.1, size=(2, 4, 3, 3))
    nodes = [
        helper.make_node("Conv", ["image", "w1"], ["a"], name="first"),
        helper.make_node("Relu", ["a"], ["b"], name="relu"),
        helper.make_node("Conv", ["b", "w2"], ["out"], name="second"),
    ]
    ports = [helper.make_tensor_value_info("image", TensorProto.FLOAT, [1, 1, 8, 8])]
    ports += [helper.make_tensor_value_info("out", TensorProto.FLOAT, [1, 2, 4, 4])]
    held = [numpy_helper.from_array(one.astype(np.float32), f"w{at}") for at, one in enumerate(weights, 1)]
    graph = helper.make_graph(nodes, "small", ports[:1], ports[1:], held)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def chain_model(count: int) -> Any:
    """Additions, one after the other."""
    from onnx import TensorProto, helper, numpy_helper

    names = ["image", *(f"t{number}" for number in range(count))]
    nodes = [
        helper.make_node("Add", [names[at], "w"], [names[at + 1]], name=f"layer{at}") for at in range(count)
    ]
    ports = [helper.make_tensor_value_info(one, TensorProto.FLOAT, [1, 1, 8, 8]) for one in names[::count]]
    weight = numpy_helper.from_array(np.ones((1, 1, 8, 8), np.float32), "w")
    graph = helper.make_graph(nodes, "chain", ports[:1], ports[1:], [weight])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def project(work: Path, kind: str, count: int) -> None:
    """Tests of a model on the emulator, in a folder of their own but for ``starts``."""
    import onnx

    folder = work if kind == "starts" else work / kind
    folder.mkdir(exist_ok=True)
    (folder / "pytest.ini").write_text("[pytest]\nnpudump_runtime = emulator\n")
    onnx.save(small_model(), folder / "other.onnx")
    single = kind in {"layers", "starts"}
    onnx.save(chain_model(count) if single else small_model(), folder / "net.onnx")
    models, tests = '("other.onnx", "net.onnx")' if kind == "half" else '["net.onnx"] * 2', count
    if single:
        tests = 1
    (work / "test_plain.py").write_text(PLAIN.format(count=tests))
    names = {"starts": {"first": ""}, "isolated": {"here": "", "apart": "isolation='process'"}}
    for name, marker in names.get(kind, {"small": ""}).items():
        text = MARKED.format(count=tests, marker=marker, models=models)
        (folder / f"test_{name}.py").write_text(text)
    if kind == "half":
        (folder / "conftest.py").write_text(TIMES)
    if kind != "starts":
        return
    (folder / "empty.py").touch()
    (folder / "test_floor.py").write_text(FLOOR)
    for number in (1, 1000):
        (folder / f"test_{number}.py").write_text(PLAIN.format(count=number))
    path = folder / "one" / STEP / f"Relu.net_relu.1.2.{STAMP}.csv"
    path.parent.mkdir(parents=True)
    path.write_text(HEADER + "Output,0,4096,DT_FLOAT,ND,32x32,1,-1,0.5,1024,0,0,0\n")


def changed(folder: Path) -> None:
    """A copy of a project, with its goldens, whose model's last weights are others."""
    import onnx

    other = folder.with_name(f"{folder.name}_changed")
    shutil.copytree(folder, other)
    model = onnx.load(other / "net.onnx")
    weights = model.graph.initializer[-1]
    values = onnx.numpy_helper.to_array(weights) + np.float32(0.01)
    weights.CopyFrom(onnx.numpy_helper.from_array(values, weights.name))
    onnx.save(model, other / "net.onnx")


def main() -> None:
    """Write what the arguments name."""
    kind, place, *rest = sys.argv[1:]
    work = Path(place)
    if kind in {"starts", "suite", "layers", "half", "isolated"}:
        project(work, kind, int(rest[0]) if rest else 1000)
    elif kind == "large":
        large_trees(work, int(rest[0]), *map(float, rest[1:]))
    elif kind == "failing":
        failing_trees(work, rest[0], int(rest[1]), rest[2])
    else:
        kinds = {"tensors": tensor_trees, "peer": peer_tensors, "merge": golden_sides}
        (kinds | {"statistics": statistics, "changed": changed})[kind](work, *rest)


if __name__ == "__main__":
    main()
