"""Models are kept for as long as their bytes say the same, and only those that have no memory."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from pytest_npudump.onnxmodels import sessions
from pytest_npudump.onnxmodels.sessions import exposed_session, prepare
from pytest_npudump.onnxmodels.tensor_types import BY_NAME, from_array

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

X = np.array([1, -2, 3], np.float32)


@pytest.fixture(autouse=True)
def nothing_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sessions, "_kept", {})


def model(nodes: Sequence[Any], weights: Sequence[Any] = (), **domains: int) -> onnx.ModelProto:
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [3]) for name in "xy"]
    graph = helper.make_graph(list(nodes), "graph", ends[:1], ends[1:], list(weights))
    opsets = [helper.make_opsetid(name.replace("_", "."), version) for name, version in domains.items()]
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17), *opsets])
    made.ir_version = 8
    return made


def scaled(factor: float) -> onnx.ModelProto:
    weight = numpy_helper.from_array(np.full(3, factor, np.float32), "w")
    nodes = [helper.make_node("Mul", ["x", "w"], ["m"]), helper.make_node("Relu", ["m"], ["y"])]
    return model(nodes, [weight])


def run(source: Path | bytes, *tensors: str) -> dict[str, np.ndarray]:
    session = prepare(source).session(tensors)
    feeds = {"x": from_array(BY_NAME["float32"], X)}
    return {name: t.data for name, t in sessions.run(session, feeds, ["y", *tensors]).items()}


def test_an_unchanged_file_is_read_and_built_once(tmp_path: Path) -> None:
    path = tmp_path / "net.onnx"
    onnx.save(scaled(2), path)
    first = prepare(path)
    second = prepare(path)
    assert second.session(["m"]) is first.session(["m"])
    assert second.operators is first.operators
    assert prepare(path.read_bytes()).session(["m"]) is first.session(["m"]), "the bytes are the model"
    assert first.session([]) is not first.session(["m"])
    np.testing.assert_array_equal(run(path, "m")["m"], X * 2)


def test_a_file_of_the_same_size_and_time_with_other_weights_is_another_model(tmp_path: Path) -> None:
    path = tmp_path / "net.onnx"
    onnx.save(scaled(2), path)
    before = path.stat()
    np.testing.assert_array_equal(run(path, "m")["m"], X * 2)
    path.write_bytes(scaled(3).SerializeToString())
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert path.stat().st_size == before.st_size
    np.testing.assert_array_equal(run(path, "m")["m"], X * 3)


@pytest.mark.parametrize(
    "node",
    [
        helper.make_node("RandomNormalLike", ["x"], ["y"], seed=7.0),
        helper.make_node("RandomUniformLike", ["x"], ["y"]),
        helper.make_node("Gelu", ["x"], ["y"], domain="com.microsoft"),
    ],
    ids=["seeded", "unseeded", "foreign"],
)
def test_operators_that_may_remember_something_begin_anew(node: Any) -> None:
    content = model([node], com_microsoft=1).SerializeToString()
    assert prepare(content).session([]) is not prepare(content).session([])


def test_a_generator_with_a_seed_begins_again_with_each_model() -> None:
    content = model([helper.make_node("RandomNormalLike", ["x"], ["y"], seed=7.0)]).SerializeToString()
    np.testing.assert_array_equal(run(content)["y"], run(content)["y"])


def test_random_operators_inside_a_branch_are_seen() -> None:
    inner = helper.make_graph(
        [helper.make_node("RandomNormalLike", ["x"], ["b"], seed=7.0)],
        "branch",
        [],
        [helper.make_tensor_value_info("b", TensorProto.FLOAT, [3])],
    )
    condition = helper.make_tensor("c", TensorProto.BOOL, [], [True])
    node = helper.make_node("If", ["c"], ["y"], then_branch=inner, else_branch=inner)
    content = model([node], [condition]).SerializeToString()
    assert prepare(content).session([]) is not prepare(content).session([])


def test_weights_in_another_file_are_read_each_time(tmp_path: Path) -> None:
    path = tmp_path / "net.onnx"
    onnx.save_model(
        scaled(2),
        path,
        save_as_external_data=True,
        location="w.bin",
        size_threshold=0,
        convert_attribute=True,
    )
    np.testing.assert_array_equal(run(path, "m")["m"], X * 2)
    (tmp_path / "w.bin").write_bytes(np.full(3, 5, np.float32).tobytes())
    np.testing.assert_array_equal(run(path, "m")["m"], X * 5)


def test_only_so_many_models_are_kept_and_the_last_used_stay() -> None:
    contents = [scaled(factor).SerializeToString() for factor in range(1, sessions.KEPT + 2)]
    first = prepare(contents[0]).session([])
    for content in contents[1:-1]:
        prepare(content)
    assert prepare(contents[0]).session([]) is first
    prepare(contents[-1])
    assert len(sessions._kept) == sessions.KEPT
    assert prepare(contents[0]).session([]) is first, "it was used after the others"


def test_large_models_are_not_kept(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    path = tmp_path / "net.onnx"
    onnx.save(scaled(2), path)
    monkeypatch.setattr(sessions, "KEPT_BYTES", path.stat().st_size - 1)
    assert prepare(path).session([]) is not prepare(path).session([])


def test_an_input_that_is_an_output_keeps_its_bytes() -> None:
    """onnxruntime hands out the very memory it was given, which nothing else keeps alive."""
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [100_000]) for name in "xy"]
    graph = helper.make_graph([helper.make_node("Relu", ["x"], ["y"])], "g", ends[:1], ends)
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
    made.ir_version = 8
    session = exposed_session(made.SerializeToString(), made, [])
    values = np.arange(100_000, dtype=np.float32)
    result = sessions.run(session, {"x": from_array(BY_NAME["float32"], values.copy())}, ["x", "y"])
    refill = [np.full(100_000, 7, np.float32) for _ in range(20)]
    np.testing.assert_array_equal(result["x"].data, values)
    np.testing.assert_array_equal(result["y"].data, values)
    del refill


def test_exposing_tensors_leaves_the_model_as_it_was() -> None:
    made = scaled(2)
    before = made.SerializeToString()
    exposed_session(before, made, ["m"])
    assert made.SerializeToString() == before
