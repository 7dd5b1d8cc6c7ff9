"""The folder in which the blocks of a page run: the files that a reader would have of their own."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

DATA = Path(__file__).parents[1] / "data"
TREES = {"device_dump": "acl-tensor", "overflow_dump": "acl-overflow"}
"""Dumps that CANN's own code wrote, under the names that pages give them."""

PROGRAM = f"""#!{sys.executable}
import runpy, sys
from pytest_npudump.emulator.install import install

install()
sys.argv = ["classify.py", "resnet50.om", "image.npy", "result.npy", "acl.json"]
runpy.run_path("classify.py", run_name="__main__")
"""
"""``./main``: an application on pyACL, in a process of its own."""


def _save(
    path: Path, nodes: Sequence[onnx.NodeProto], ports: Sequence[tuple[str, int, list[int]]], *w: object
) -> None:
    given, out = (helper.make_tensor_value_info(*port) for port in ports)
    graph = helper.make_graph(nodes, path.stem, [given], [out], w)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.checker.check_model(model)
    path.write_bytes(model.SerializeToString())


def _classifier(path: Path, *, change: float = 0.0) -> None:
    """``conv1``, ``relu1``, ``pool``, ``flat``, ``fc``: (1, 3, 8, 8) to (1, 10)."""
    rng = np.random.default_rng(5)
    weights = {"w1": rng.normal(size=(4, 3, 3, 3)) + change, "w2": rng.normal(size=(10, 4))}
    nodes = [
        helper.make_node("Conv", ["image", "w1"], ["a"], name="conv1"),
        helper.make_node("Relu", ["a"], ["b"], name="relu1"),
        helper.make_node("GlobalAveragePool", ["b"], ["c"], name="pool"),
        helper.make_node("Flatten", ["c"], ["d"], name="flat"),
        helper.make_node("Gemm", ["d", "w2"], ["scores"], name="fc", transB=1),
    ]
    ports = [("image", TensorProto.FLOAT, [1, 3, 8, 8]), ("scores", TensorProto.FLOAT, [1, 10])]
    _save(path, nodes, ports, *(numpy_helper.from_array(w.astype(np.float32), n) for n, w in weights.items()))


def _half(path: Path) -> None:
    """``block/exp`` and ``block/square`` in float16, which overflow where the input is large."""
    nodes = [
        helper.make_node("Relu", ["x"], ["y"], name="block/relu"),
        helper.make_node("Mul", ["y", "y"], ["z"], name="block/square"),
    ]
    _save(path, nodes, [("x", TensorProto.FLOAT16, [2, 3]), ("z", TensorProto.FLOAT16, [2, 3])])


@pytest.fixture
def stocked(tmp_path: Path) -> Callable[[], Path]:
    """Return a new folder with models, an input, an application and real dumps."""

    def stock() -> Path:
        folder = tmp_path / "page"
        folder.mkdir()
        _classifier(folder / "resnet50.onnx")
        _classifier(folder / "changed.onnx", change=0.01)
        _half(folder / "half.onnx")
        image = np.random.default_rng(7).normal(size=(1, 3, 8, 8)).astype(np.float32)
        np.save(folder / "image.npy", image)
        np.savez(folder / "image.npz", image=image)
        for name, tree in TREES.items():
            shutil.copytree(DATA / "trees" / tree, folder / name)
        tools = DATA / "tools"
        for name, change, top in (("good", 1, ""), ("bad", 1.001, ""), ("gpu", 1, ""), ("npu", 3, "net.")):
            shutil.copytree(tools / "msprobe" / "mix-statistics", folder / name)
            path = folder / name / "step0" / "proc7" / "dump.json"
            said = json.loads(path.read_text())
            said["data"]["Module.block.fc.Linear.forward.1"]["output"][0]["Mean"] *= change
            path.write_text(json.dumps(said))
            for path in (folder / name).rglob("dump.json"):
                path.write_text(path.read_text().replace('"Module.', f'"Module.{top}'))
        for name, step in (("eager", 0), ("graph", 1)):
            (folder / name).mkdir()
            shutil.copy(tools / "plain" / "value.pt", folder / name / "hidden_device_0.pt")
            (last,) = (tools / "sglang-tp2").glob(f"step={step}___rank=0*attn_out*")
            shutil.copy(last, folder / name / "logits_device_0.pt")
        for name in ("tp1", "tp2"):
            shutil.copytree(tools / f"sglang-{name}", folder / name)
        shutil.copy(DATA / "emulator" / "classify.py", folder)
        (folder / "main").write_text(PROGRAM, encoding="utf-8")
        (folder / "main").chmod(0o755)
        return folder

    return stock
