"""Inputs and outputs of a graph, told apart element by element where the device computes statistics only."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import onnx
from onnx import helper

from pytest_npudump.dump.records import Dump, TensorKey, TensorRecord
from pytest_npudump.golden.store import read_golden
from pytest_npudump.regression.host_copies import HostCopies
from tests.onnxmodels.models import onnx_model

if TYPE_CHECKING:
    import pytest

    from conftest import Project

_RNG = np.random.default_rng(5)
WEIGHTS, LOGITS = (_RNG.standard_normal(shape).astype(np.float32) for shape in ((16, 16), (16, 12)))
SESSION = """
    import os
    import numpy as np
    import pytest

    X = np.random.default_rng(6).standard_normal((3, 16)).astype(np.float32)
    DATA = {"dump_data": os.environ["DATA"]} if "DATA" in os.environ else {}

    @pytest.mark.npu_dump(acl_json=DATA)
    def test_logits(npu_dump):
        x = X[:, ::-1].copy() if "MIRRORED" in os.environ else X
        with npu_dump.load_model("logits.onnx") as model:
            model.run(x)

    @pytest.mark.npu_dump(layers=["act"], acl_json=DATA)
    def test_layer_before(npu_dump):
        with npu_dump.load_model("logits.onnx") as model:
            model.run(X)

    @pytest.mark.npu_dump(acl_json={**DATA, "dump_step": "1-2"})
    def test_executions(npu_dump):
        with npu_dump.load_model("logits.onnx") as one, npu_dump.load_model("logits.onnx") as other:
            for number in range(4):
                one.run(X * (number + 1))
                other.run(X / (number + 1))

    @pytest.mark.npu_dump(acl_json=DATA)
    def test_parts(npu_dump):
        with npu_dump.load_model("logits.onnx") as model:
            model.run(X)
        with npu_dump.capture("again"), npu_dump.load_model("logits.onnx") as model:
            model.run(X * 2)
"""


def logits(project: Project, weights: np.ndarray) -> None:
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["a"], name="block/first"),
        helper.make_node("Relu", ["a"], ["b"], name="act"),
        helper.make_node("MatMul", ["b", "v"], ["y"], name="head/logits"),
    ]
    model = onnx_model(nodes, {"x": [3, 16]}, {"y": [3, 12]}, {"w": WEIGHTS, "v": weights})
    onnx.save(model, str(project.path / "logits.onnx"))


def test_outputs_and_inputs_are_told_apart_by_elements(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Logits shifted by one keep all statistics, as do mirrored inputs; nothing outside of layers counts."""
    project.test_file(SESSION)
    logits(project, LOGITS)
    project.run("--npudump-update-golden", "-onpudump_auto_tensors=0", passed=4)
    told = {
        name: [key for key, has in zip(table.keys, table.projected, strict=True) if has]
        for name in ("logits", "executions", "parts")
        if (table := read_golden(next(project.path.rglob(f"test_{name}.yaml"))).table).projected is not None
    }
    one = ["x{}:output.0", "head/logits{}:output.0"]
    loads = ("", "#step=1", "#load=1", "#load=1,step=1")
    assert told["logits"] == [text.format("") for text in one]
    assert sorted(told["executions"]) == sorted(text.format(load) for load in loads for text in one)
    assert told["parts"] == [text.format(part) for part in ("", "#capture=again") for text in one]

    monkeypatch.setenv("DATA", "tensor")  # the elements in files have the projections of those in memory
    project.run(passed=4)
    monkeypatch.delenv("DATA")
    project.run(passed=4)

    logits(project, np.roll(LOGITS, 1, axis=1))
    project.run(
        passed=1, failed=3, shows="npudump: *; first mismatch: head/logits:output.0 differs by*projections*"
    )
    logits(project, LOGITS)
    monkeypatch.setenv("MIRRORED", "1")
    project.run(
        "-k",
        "test_logits",
        failed=1,
        shows="source: *x:output.0; an input of the graph: other values are fed, or something wrote to them*",
    )


class Session:
    """One input, one output that is known, and one that is not."""

    input_ports = (("x", 0),)
    output_ports = (("block/last", 1), None)
    look = None


def test_a_tensor_of_another_shape_or_type_is_none_that_passed() -> None:
    copies, session = HostCopies(), Session()
    copies.watch(session, "net", lambda: "", ())
    x, y = np.arange(6, dtype=np.float32), np.ones((2, 3), np.float16)
    assert session.look is not None
    session.look([x], [y, y])

    def row(layer: str, dtype: str, shape: tuple[int, ...], slot: int = 0, **more: object) -> TensorRecord:
        return TensorRecord(TensorKey(layer, "output", slot, **more), "", dtype, shape, Path())

    fitting = row("x", "float32", (6,)), row("block_last", "float16", (2, 3), 1, model="net")
    others = (
        row("block_last", "float32", (2, 3), 1),
        row("x", "float32", (2, 3), step=1),
        row("z", "bool", (6,)),
    )
    dump = copies.completed(Dump(Path(), (*fitting, *others)))
    assert [one.stats is not None and one.stats.projections is not None for one in dump.records] == [
        *(True, True),
        *(False, False, False),
    ]
