"""Operators of float16 read what is handed out of those before them, whatever else is handed out."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pytest_npudump.onnxmodels.sessions import exposed_session

onnx = pytest.importorskip("onnx")
helper = onnx.helper
HALF = onnx.TensorProto.FLOAT16

RNG = np.random.default_rng(3)
X = RNG.normal(size=(4, 32)).astype(np.float16)
W = RNG.normal(size=(32, 32)).astype(np.float16)
B = RNG.normal(size=32).astype(np.float16)


def chain() -> Any:
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["m"], name="m"),
        helper.make_node("Split", ["m"], ["s", "t"], name="s", axis=1),
        helper.make_node("Concat", ["t", "s"], ["c"], name="c", axis=1),
        helper.make_node("Add", ["c", "b"], ["a"], name="a"),
        helper.make_node("Shape", ["a"], ["shape"], name="shape"),
        helper.make_node("MatMul", ["a", "w"], ["y"], name="y"),
    ]
    weights = [onnx.numpy_helper.from_array(W, "w"), onnx.numpy_helper.from_array(B, "b")]
    ports = [helper.make_tensor_value_info(name, HALF, [4, 32]) for name in ("x", "y")]
    graph = helper.make_graph(nodes, "chain", ports[:1], ports[1:], weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def run(model: Any, names: list[str], **how: Any) -> dict[str, np.ndarray]:
    session = exposed_session(Path("chain.onnx"), model, names, **how)
    return dict(zip(names, session.run(names, {"x": X}), strict=True))


def test_an_operator_reads_what_the_one_before_it_is_seen_to_give() -> None:
    found = run(chain(), ["m", "c", "a", "y"])
    product = (X.astype(np.float32) @ W.astype(np.float32)).astype(np.float16)
    np.testing.assert_array_equal(found["m"], product)
    np.testing.assert_array_equal(found["a"], found["c"] + B)
    np.testing.assert_array_equal(found["c"], np.roll(found["m"], 16, axis=1))
    last = (found["a"].astype(np.float32) @ W.astype(np.float32)).astype(np.float16)
    np.testing.assert_array_equal(found["y"], last)


@pytest.mark.parametrize("names", [["y"], ["a", "y"], ["m", "y"], ["shape", "y"]])
def test_results_do_not_depend_on_what_is_handed_out(names: list[str]) -> None:
    np.testing.assert_array_equal(run(chain(), names)["y"], run(chain(), ["m", "c", "a", "y"])["y"])


def test_the_model_stays_as_it_was_and_its_own_outputs_come_first() -> None:
    model = chain()
    before = model.SerializeToString()
    session = exposed_session(Path("chain.onnx"), model, ["a", "shape"])
    assert model.SerializeToString() == before
    assert [port.name for port in session.get_outputs()][:3] == ["y", "a", "shape"]


def test_an_optimised_graph_is_left_to_onnxruntime() -> None:
    session = exposed_session(Path("chain.onnx"), chain(), ["a"], optimised=True)
    assert [port.name for port in session.get_outputs()] == ["y", "a"]
