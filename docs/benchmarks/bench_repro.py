"""Does a reproduction of a fault fail by itself in a fresh process, and pass with the fault taken out?

``python docs/benchmarks/bench_repro.py [--faults N]``: half of the faults are kernels of the emulator which
compute wrongly, half are changed weights, in operators of all of PP-OCR's angle classifier. A kernel's fault
is in the environment, as a plugin that the fresh process loads; one of weights is in the folder, and is taken
out by putting the model's own weights back.
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

import numpy as np
import onnx

from pytest_npudump.demo import CHANGED, ORIGINAL, write_project

PLUGIN = """
import os

import pytest

from pytest_npudump.emulator import faults


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item):
    faults.distort("angle_classifier", os.environ["FAULT"], factor=1.01)
"""

TYPES = frozenset({"Conv", "MatMul", "Add", "Clip", "Mul", "Relu"})


@dataclass(frozen=True)
class Row:
    """What became of one fault."""

    kind: str
    layer: str
    named: str
    fails: bool
    passes: bool


def pytest_in(folder: Path, *options: str, fault: str = "", tools: Path | None = None) -> int:
    environment = {name: value for name, value in os.environ.items() if name not in {"CI", "FAULT"}}
    environment |= {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    command = [sys.executable, "-m", "pytest", "-q", "-p", "npudump", "-p", "no:cacheprovider"]
    if fault and tools is not None:
        environment |= {"FAULT": fault, "PYTHONPATH": str(tools)}
        command += ["-p", "planted"]
    done = subprocess.run([*command, *options], cwd=folder, env=environment, capture_output=True, check=False)
    return done.returncode


def npudump(*words: str, fault: str = "", tools: Path) -> tuple[int, str]:
    environment = {name: value for name, value in os.environ.items() if name not in {"CI", "FAULT"}}
    if fault:
        addopts = "-p planted"
        environment |= {"FAULT": fault, "PYTHONPATH": str(tools), "PYTEST_ADDOPTS": addopts}
    command = [sys.executable, "-c", "from pytest_npudump.cli import main; raise SystemExit(main())", *words]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    return done.returncode, done.stdout + done.stderr


def weights_of(proto: onnx.ModelProto) -> dict[str, onnx.TensorProto]:
    """Return all float weights by name: initializers, and the values of constants."""
    found = {tensor.name: tensor for tensor in proto.graph.initializer}
    constants = (node for node in proto.graph.node if node.op_type == "Constant")
    found |= {node.output[0]: node.attribute[0].t for node in constants}
    return {name: tensor for name, tensor in found.items() if tensor.data_type == onnx.TensorProto.FLOAT}


def change_weights(model: Path, layer: str) -> None:
    """Make the first float weight that a node reads one in a hundred larger."""
    proto = onnx.load(model)
    weights = weights_of(proto)
    node = next(node for node in proto.graph.node if node.name == layer)
    tensor = next(weights[name] for name in node.input if name in weights)
    array = onnx.numpy_helper.to_array(tensor) * np.float32(1.01)
    tensor.CopyFrom(onnx.numpy_helper.from_array(array, tensor.name))
    onnx.save(proto, model)


def tried(project: Path, kind: str, layer: str, work: Path) -> Row:
    for leftover in (work / "dumps", work / "made", work / "fresh", work / "healthy"):
        shutil.rmtree(leftover, ignore_errors=True)
    fault = layer if kind == "kernel" else ""
    shutil.copy(project / ORIGINAL, project / CHANGED)
    if kind == "weights":
        change_weights(project / CHANGED, layer)
    failed = pytest_in(project, f"--npudump-output={work / 'dumps'}", fault=fault, tools=work)
    if failed != 1:
        return Row(kind, layer, "(the test itself passed)", fails=False, passes=False)
    [report] = (work / "dumps").glob("dumps/*/report.json")
    code, told = npudump("repro", str(report), "-o", str(work / "made"), fault=fault, tools=work)
    if code != 0:
        return Row(kind, layer, told.strip().splitlines()[-1], fails=False, passes=False)
    named = told.partition(":")[0]
    shutil.copytree(work / "made", work / "fresh")
    fails = pytest_in(work / "fresh", fault=fault, tools=work) == 1
    if kind == "weights":
        whole = onnx.load(project / ORIGINAL)
        piece = onnx.load(work / "fresh" / CHANGED)
        originals = weights_of(whole)
        for name, tensor in weights_of(piece).items():
            tensor.CopyFrom(originals[name])
        onnx.save(piece, work / "fresh" / CHANGED)
    passes = pytest_in(work / "fresh") == 0
    return Row(kind, layer, named, fails, passes)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--faults", type=int, default=20)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        work = Path(folder)
        project = work / "project"
        write_project(project)
        shutil.copy(project / CHANGED, project / ORIGINAL)
        (work / "planted.py").write_text(PLUGIN, encoding="utf-8")
        if pytest_in(project, "--npudump-update-golden") != 0:
            raise SystemExit("the golden could not be recorded")
        proto = onnx.load(project / CHANGED)
        weights = weights_of(proto).keys()
        nodes = [node for node in proto.graph.node if node.op_type in TYPES]
        every = [node.name for node in nodes]
        weighted = [
            node.name for node in nodes if node.op_type in {"Conv", "MatMul"} and weights & {*node.input}
        ]
        half = arguments.faults // 2
        kernels = [every[at * len(every) // half] for at in range(half)]
        changed = [weighted[at * len(weighted) // half] for at in range(arguments.faults - half)]
        rows = []
        for kind, layer in [("kernel", name) for name in kernels] + [("weights", name) for name in changed]:
            rows.append(tried(project, kind, layer, work))
            one = rows[-1]
            print(
                f"{kind:8} {layer:24} named {one.named:24} fails {one.fails!s:6} passes without {one.passes}",
                flush=True,
            )
    good = sum(row.fails and row.passes for row in rows)
    print(f"{good} of {len(rows)} fail by themselves and pass with the fault taken out")
    print(f"{sum(row.named == row.layer for row in rows)} of {len(rows)} name the operator with the fault")
    return 0 if good == len(rows) else 1


if __name__ == "__main__":
    raise SystemExit(main())
