"""What a test on the emulator costs beside onnxruntime itself, and a session of many tests.

Run by hand: ``python docs/benchmarks/bench_emulator.py [--against TREE] [--tests 1000] [--work DIR]``.
TREE is a checkout of another state of this package, which is run in turn with this one. ``onnxruntime`` is a
session of the same graph, not optimised, that hands out every tensor: built and run once; nothing is written.
``files`` are those of the dump, written once more by ``os.write``; ``ratio`` is later to onnxruntime.
A test on the emulator sets a dump, loads the model, runs it once, unloads it and ends the dump; ``first`` is
the first one with that model in its process. Figures are medians of processor time, the system's included.

What was dumped is compared with what onnxruntime gives: elements bit for bit, statistics by numpy in float64.
"""

from __future__ import annotations

import argparse
import csv
import ctypes
import json
import math
import os
import re
import resource
import shutil
import struct
import subprocess
import sys
import tempfile
import time
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, helper, numpy_helper

HERE = Path(__file__).parents[2]
FLOAT, INT8, BF16 = TensorProto.FLOAT, TensorProto.INT8, TensorProto.BFLOAT16


def _model(path: Path, nodes: list[Any], shape: list[int], kinds: list[int], weights: dict[str, Any]) -> None:
    """A chain x -> t0 -> t1 ..., each tensor of the kind given."""
    names = ["x", *(f"t{at}" for at in range(len(kinds)))]
    values = [helper.make_tensor_value_info(n, k, shape) for n, k in zip(names, [FLOAT, *kinds], strict=True)]
    held = [numpy_helper.from_array(array, name) for name, array in weights.items()]
    graph = helper.make_graph(nodes, "net", values[:1], values[-1:], held, value_info=values[1:-1])
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    onnx.save(made, path)


def _chain(op_type: str, count: int, *more: str) -> list[Any]:
    names = ["x", *(f"t{at}" for at in range(count))]
    pairs = enumerate(pairwise(names))
    return [helper.make_node(op_type, [a, *more], [b], name=f"{op_type}_{at}") for at, (a, b) in pairs]


def write_models(work: Path) -> dict[str, tuple[Path, tuple[int, ...]]]:
    from pytest_npudump.demo import MODEL

    half = {"w": np.float32(0.5)}
    _model(work / "tiny.onnx", _chain("Add", 2000, "w"), [8], [FLOAT] * 2000, half)
    _model(work / "large.onnx", _chain("Mul", 4, "w"), [8 << 20], [FLOAT] * 4, half)
    cast = [
        helper.make_node("Cast", ["x" if not at else "t1"], [f"t{at}"], to=kind, name=f"c{at}")
        for at, kind in ((0, BF16), (2, BF16))
    ]
    back = helper.make_node("Cast", ["t0"], ["t1"], to=FLOAT, name="c1")
    _model(work / "bf16.onnx", [cast[0], back, cast[1]], [1 << 20], [BF16, FLOAT, BF16], {})
    scale = {"s": np.float32(0.02), "z": np.int8(3)}
    nodes = [
        helper.make_node("QuantizeLinear", ["x", "s", "z"], ["t0"], name="q"),
        helper.make_node("DequantizeLinear", ["t0", "s", "z"], ["t1"], name="d"),
    ]
    _model(work / "int8.onnx", nodes, [1 << 20], [INT8, FLOAT], scale)
    return {
        "PP-OCR cls, 258 files": (MODEL, (1, 3, 48, 192)),
        "2,000 operators of 8 numbers": (work / "tiny.onnx", (8,)),
        "4 operators of 32 MiB": (work / "large.onnx", (8 << 20,)),
        "bfloat16, 2 of 3 of 1 Mi numbers": (work / "bf16.onnx", (1 << 20,)),
        "int8, 1 of 2 of 1 Mi numbers": (work / "int8.onnx", (1 << 20,)),
    }


def _cpu() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return (used.ru_utime + used.ru_stime) * 1e3


def plain(path: Path, array: np.ndarray) -> tuple[float, dict[str, tuple[str, np.ndarray]]]:
    """Build and run a session without this package: milliseconds, and by operator its type and output."""
    start = _cpu()
    model = onnx.load(str(path))
    nodes = [node for node in model.graph.node if node.op_type != "Constant"]
    known = {value.name for value in model.graph.output}
    names = [name for node in nodes for name in node.output if name]
    model.graph.output.extend(onnx.ValueInfoProto(name=name) for name in names if name not in known)
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    session = onnxruntime.InferenceSession(
        model.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )
    feed = onnxruntime.OrtValue.ortvalue_from_numpy(array)
    results = session.run_with_ort_values(names, {session.get_inputs()[0].name: feed})
    took = _cpu() - start
    kinds = [str(value.data_type()) for value in results]
    return took, {
        name: (kind, _array(value, kind)) for name, kind, value in zip(names, kinds, results, strict=True)
    }


def _array(value: Any, kind: str) -> np.ndarray:
    """Copy a result; bfloat16, which onnxruntime gives no array of, as plain 16-bit numbers."""
    if "bfloat16" not in kind:
        return np.array(value.numpy())
    return np.frombuffer(ctypes.string_at(value.data_ptr(), 2 * math.prod(value.shape())), np.uint16)


def run_test(path: Path, array: np.ndarray, mode: str, folder: Path) -> float:
    """Do what a test on the emulator does; return milliseconds."""
    import acl

    from pytest_npudump.runtime.pyacl.adapter import PyAclRuntime

    config = folder / "acl.json"
    dump = {"dump_path": str(folder), "dump_mode": "output", "dump_data": mode, "dump_list": [{}]}
    config.write_text(json.dumps({"dump": dump}))
    start = _cpu()
    runtime = PyAclRuntime(acl, "emulator")
    runtime.start(config)
    with runtime.load_model(path) as model:
        model.run(array)
    runtime.stop()
    runtime.close()
    return _cpu() - start


def check(folder: Path, mode: str, truth: dict[str, tuple[str, np.ndarray]]) -> None:
    """Compare what was dumped, in the order of time, with onnxruntime's own results."""
    files = sorted(
        (f for f in folder.rglob("*") if re.search(r"\d{16}(\.csv)?$", f.name)),
        key=lambda file: int(file.name.removesuffix(".csv").rpartition(".")[2]),
    )
    files = [file for file in files if not file.name.startswith("Data.")]
    wanted = [value for value in truth.values() if value[1].nbytes]
    assert len(files) == len(wanted), (len(files), len(wanted))
    for file, (kind, array) in zip(files, wanted, strict=True):
        if mode == "tensor":
            content = file.read_bytes()
            assert content[8 + struct.unpack_from("<Q", content)[0] :] == array.tobytes(), file
            continue
        (line,) = csv.DictReader(file.read_text().splitlines())
        assert line["Shape"] == "x".join(map(str, array.shape)) or not array.shape, file
        if "bfloat16" in kind:
            assert line["Max Value"] == "", "CANN's device computes no statistics of bfloat16"
            continue
        wide = array.astype(np.float64)
        numbers = [float(line[f"{name} Value"]) for name in ("Max", "Min", "Avg")]
        np.testing.assert_allclose(numbers, [wide.max(), wide.min(), wide.mean()], rtol=1e-5, atol=1e-6)
        assert int(line["Count"]) == array.size, file


def worker(path: Path, shape: tuple[int, ...], mode: str, rounds: int, work: Path) -> None:
    from pytest_npudump.emulator import install

    install.install()
    array = np.random.default_rng(0).standard_normal(shape, np.float32)
    plain(path, array)
    peer, ours, files = [], [], []
    for _ in range(rounds + 1):
        took, truth = plain(path, array)
        peer.append(took)
        folder = Path(tempfile.mkdtemp(dir=work))
        ours.append(run_test(path, array, mode, folder))
        check(folder, mode, truth)
        files.append(write_again(folder, work))
        shutil.rmtree(folder)
    sys.stdout.write(json.dumps([median(peer), median(files), ours[0], median(ours[1:])]))


def write_again(folder: Path, work: Path) -> float:
    """Write the same files once more and do nothing else; return milliseconds."""
    with tempfile.TemporaryDirectory(dir=work) as other:
        found = [
            (file.relative_to(folder), file.read_bytes()) for file in folder.rglob("*") if file.is_file()
        ]
        for directory in {path.parent for path, _ in found}:
            Path(other, directory).mkdir(parents=True, exist_ok=True)
        paths = [(f"{other}/{path}", content) for path, content in found]
        start = _cpu()
        for path, content in paths:
            descriptor = os.open(path, os.O_WRONLY | os.O_CREAT, 0o600)
            os.write(descriptor, content)
            os.close(descriptor)
        return _cpu() - start


TESTS = """
from pathlib import Path
import numpy as np, pytest
NET = Path(__file__).with_name("net.onnx")

@pytest.mark.npu_dump
@pytest.mark.parametrize("number", range({count}))
def test_it(npu_dump, number):
    with npu_dump.load_model(NET) as model:
        (y,) = model.run(np.full(8, number % 7, np.float32))
    np.testing.assert_array_equal(y, np.full(8, number % 7, np.float32) + {added})
"""


def session(tree: Path, folder: Path, count: int, added: float, *options: str) -> tuple[float, float, str]:
    """Run pytest in a process of its own: processor and wall-clock milliseconds, and what it says."""
    _model(folder / "net.onnx", _chain("Add", 2, "w"), [8], [FLOAT] * 2, {"w": np.float32(added / 2)})
    (folder / "test_it.py").write_text(TESTS.format(count=count, added=added))
    (folder / "pytest.ini").write_text("[pytest]\nnpudump_runtime = emulator\nnpudump_escalate = off\n")
    words = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-p",
        "no:cacheprovider",
        "-p",
        "no:asyncio",
        "--tb=no",
        *options,
    ]
    before, start = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    environment = {**os.environ, "PYTHONPATH": str(tree)}
    done = subprocess.run(words, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    wall, after = time.perf_counter() - start, resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return cpu * 1e3, wall * 1e3, done.stdout


def bench_session(trees: list[Path], work: Path, count: int, rounds: int) -> None:
    folder = work / "project"
    folder.mkdir()
    recorded = session(trees[-1], folder, count, 1.0, "--npudump-update-golden")[2]
    assert f"{count} passed" in recorded, recorded
    assert f"{count} failed" in session(trees[-1], folder, count, 1.5)[2], "other numbers are not noticed"
    every: dict[Path, list[tuple[float, float]]] = {tree: [] for tree in trees}
    for _ in range(rounds):
        for tree in trees:
            single, many = (session(tree, folder, number, 1.0) for number in (1, count))
            assert f"{count} of {count} tests passed" in many[2], many[2]
            each = [(many[at] - single[at]) / (count - 1) for at in (0, 1)]
            every[tree].append((each[0], each[1]))
    for at, name in enumerate(("processor", "wall clock")):
        row(f"a tiny test of {count:,}, {name}, ms", *(median(e[at] for e in every[t]) for t in trees))


def row(*cells: object) -> None:
    shown = (f"{cell:.1f}" if isinstance(cell, float) else str(cell) for cell in cells)
    sys.stdout.write(f"| {' | '.join(shown)} |\n")
    sys.stdout.flush()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--against", type=Path, help="a checkout to compare with")
    parser.add_argument("--tests", type=int, default=1000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--work", type=Path, help="where dumps of the first table go; a tmpfs by preference")
    parser.add_argument("--worker", nargs=4, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.worker:
        path, shape, mode, work = given.worker
        worker(Path(path), tuple(json.loads(shape)), mode, given.rounds, Path(work))
        return
    trees = [*([given.against.resolve()] if given.against else []), HERE]
    heads = ["before", "here"][-len(trees) :]
    with tempfile.TemporaryDirectory(dir=given.work) as folder:
        work = Path(folder)
        columns = [f"{head} {what}" for head in heads for what in ("first, ms", "later, ms", "ratio")]
        row("model, mode", "onnxruntime, ms", "files, ms", *columns)
        row("---", "---", "---", *["---"] * len(columns))
        for name, (path, shape) in write_models(work).items():
            for mode in ("tensor", "stats"):
                cells: list[object] = []
                for tree in trees:
                    words = ["--rounds", str(given.rounds), "--worker", str(path), json.dumps(shape), mode]
                    peer, files, first, later = _measured(tree, *words, str(work))
                    cells += [first, later, later / peer]
                row(f"{name}, {mode}", peer, files, *cells)
        row("", *heads)
        row("---", *["---"] * len(heads))
        bench_session(trees, work, given.tests, max(given.rounds // 2, 1))


def _measured(tree: Path, *words: str) -> tuple[float, float, float, float]:
    environment = {**os.environ, "PYTHONPATH": str(tree)}
    command = [sys.executable, __file__, *words]
    done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, check=True)
    peer, files, first, later = json.loads(done.stdout)
    return peer, files, first, later


if __name__ == "__main__":
    main()
