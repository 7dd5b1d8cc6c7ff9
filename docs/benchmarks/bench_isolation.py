"""What a test in a process of its own costs: forked from a prepared process, and started anew, in turn.

Usage: ``python docs/benchmarks/bench_isolation.py [tests] [pairs]``. Every run asserts that all tests pass
against their goldens.
"""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import onnx
from onnx import helper

TEST = """\
import numpy as np
import pytest

@pytest.mark.npu_dump({marker})
@pytest.mark.parametrize("number", range({count}))
def test_it(npu_dump, number):
    with npu_dump.load_model("relu.onnx") as model:
        model.run(np.ones((1, 3), np.float32))
"""
PLAIN = ("-p", "no:cacheprovider", "-p", "no:asyncio", "-p", "no:pytest-retry", "-p", "no:flaky")
ANEW = """\
import pytest_npudump.plugin.features.isolation.server as prepared
prepared.ServerProcess.is_ready = lambda *_: False
"""


def model() -> onnx.ModelProto:
    """One layer, so that the model costs next to nothing."""
    values = [helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, [1, 3]) for name in "xy"]
    node = helper.make_node("Relu", ["x"], ["y"], name="relu1")
    graph = helper.make_graph([node], "relu", values[:1], values[1:])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def run(folder: Path, count: int, *options: str) -> tuple[float, float]:
    """Return CPU and wall seconds of one session."""
    environment = {name: value for name, value in os.environ.items() if name not in {"CI", "GITHUB_ACTIONS"}}
    command = [sys.executable, "-m", "pytest", "-q", "--npudump-runtime=emulator", *PLAIN]
    before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    ended = subprocess.run(
        [*command, *options],
        cwd=folder,
        env={**environment, "PYTHONPATH": str(folder)},
        capture_output=True,
        text=True,
        check=False,
    )
    wall, after = time.perf_counter() - began, resource.getrusage(resource.RUSAGE_CHILDREN)
    if f"{count} passed" not in ended.stdout:
        raise AssertionError(ended.stdout)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, wall


def main(count: int = 12, pairs: int = 3) -> None:
    """Print the cost a test of each way, and their ratio."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        onnx.save(model(), folder / "relu.onnx")
        (folder / "anew.py").write_text(ANEW)
        (folder / "pytest.ini").write_text("[pytest]\n")
        test = folder / "test_it.py"
        test.write_text(TEST.format(marker="", count=count))
        run(folder, count, "--npudump-update-golden")
        base = min(run(folder, count) for _ in range(pairs))
        test.write_text(TEST.format(marker="isolation='process'", count=count))
        for _ in range(pairs):
            forked, anew = run(folder, count), run(folder, count, "-p", "anew")
            cpu, wall = ([(found[at] - base[at]) / count for found in (anew, forked)] for at in (0, 1))
            print(
                f"a test, above one in pytest's own: CPU {cpu[0]:.2f} s anew, {cpu[1]:.2f} s forked "
                f"({cpu[0] / cpu[1]:.1f} x); wall {wall[0]:.2f} s and {wall[1]:.2f} s"
            )


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
