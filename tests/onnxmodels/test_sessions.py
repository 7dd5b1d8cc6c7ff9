"""ONNX files: names that are no text are refused, wherever they stand."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from pytest_npudump.cli import main
from pytest_npudump.onnxmodels import sessions
from pytest_npudump.onnxmodels.sessions import ModelError, exposed_session, plain_session, prepare, read_model
from pytest_npudump.onnxmodels.tensor_types import BY_NAME, from_array

NAMES = [
    "axis",
    "graph",
    "input",
    "output",
    "inner",
    "weight",
    "node",
    "Relu",
    "domain",
    "shaped",
    "branch",
    "alpha",
]


def model() -> bytes:
    branch = helper.make_graph(
        [helper.make_node("Identity", ["inner-"], ["branched-"], name="branch-")],
        "body",
        [],
        [helper.make_tensor_value_info("branched-", TensorProto.FLOAT, [2])],
    )
    nodes = [
        helper.make_node("Add", ["input-", "weight-"], ["inner-"], name="node-"),
        helper.make_node("Relu-", ["inner-"], ["output-"], domain="domain-", **{"alpha-": 1.0}),
        helper.make_node("If", ["flag"], ["chosen"], then_branch=branch, else_branch=branch),
    ]
    graph = helper.make_graph(
        nodes,
        "graph-",
        [helper.make_tensor_value_info("input-", TensorProto.FLOAT, ["axis-"])],
        [helper.make_tensor_value_info("output-", TensorProto.FLOAT, [2])],
        [numpy_helper.from_array(numpy_helper.to_array(helper.make_tensor("", 1, [2], [1, 2])), "weight-")],
        value_info=[helper.make_tensor_value_info("shaped-", TensorProto.FLOAT, [2])],
    )
    content: bytes = helper.make_model(graph).SerializeToString()
    return content


def test_a_name_that_is_not_utf_8_is_an_error_with_the_file(tmp_path: Path) -> None:
    whole = model()
    read_model(whole)
    path = tmp_path / "net.onnx"
    for name in NAMES:
        path.write_bytes(whole.replace(f"{name}-".encode(), f"{name}\xff".encode("latin-1")))
        for source in (path, path.read_bytes()):
            with pytest.raises(ModelError, match=rf"is no ONNX model: its name b'{name}\\xff' is not UTF-8"):
                read_model(source)


def test_a_model_that_onnxruntime_loads_and_whose_input_is_no_text_is_an_error(tmp_path: Path) -> None:
    value = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [2]) for name in ("input-", "output")]
    graph = helper.make_graph([helper.make_node("Relu", ["input-"], ["output"])], "g", value[:1], value[1:])
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    path = tmp_path / "net.onnx"
    path.write_bytes(made.SerializeToString().replace(b"input-", b"input\xff"))
    with pytest.raises(ModelError, match=r"onnxruntime cannot load .*net\.onnx: .*utf-8"):
        plain_session(path)


def test_compare_names_the_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "net.onnx"
    path.write_bytes(model().replace(b"node-", b"node\xff"))
    assert main(["compare", str(path), "tests/data/trees/acl-tensor"]) == 2
    assert "net.onnx is no ONNX model: its name b'node\\xff' is not UTF-8" in "".join(capsys.readouterr())


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


def test_results_do_not_depend_on_what_is_handed_out() -> None:
    expected = run(chain(), ["m", "c", "a", "y"])["y"]
    for names in (["y"], ["a", "y"], ["m", "y"], ["shape", "y"]):
        np.testing.assert_array_equal(run(chain(), names)["y"], expected)


def test_the_model_stays_as_it_was_and_its_own_outputs_come_first() -> None:
    model = chain()
    before = model.SerializeToString()
    session = exposed_session(Path("chain.onnx"), model, ["a", "shape"])
    assert model.SerializeToString() == before
    assert [port.name for port in session.get_outputs()][:3] == ["y", "a", "shape"]


def test_an_optimised_graph_is_left_to_onnxruntime() -> None:
    session = exposed_session(Path("chain.onnx"), chain(), ["a"], optimised=True)
    assert [port.name for port in session.get_outputs()] == ["y", "a"]


FED = np.array([1, -2, 3], np.float32)


@pytest.fixture(autouse=True)
def nothing_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sessions, "_kept", {})


def network(nodes: Sequence[Any], weights: Sequence[Any] = (), **domains: int) -> onnx.ModelProto:
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [3]) for name in "xy"]
    graph = helper.make_graph(list(nodes), "graph", ends[:1], ends[1:], list(weights))
    opsets = [helper.make_opsetid(name.replace("_", "."), version) for name, version in domains.items()]
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17), *opsets])
    made.ir_version = 8
    return made


def scaled(factor: float) -> onnx.ModelProto:
    weight = numpy_helper.from_array(np.full(3, factor, np.float32), "w")
    nodes = [helper.make_node("Mul", ["x", "w"], ["m"]), helper.make_node("Relu", ["m"], ["y"])]
    return network(nodes, [weight])


def ran(source: Path | bytes, *tensors: str) -> dict[str, np.ndarray]:
    session = prepare(source).session(tensors)
    feeds = {"x": from_array(BY_NAME["float32"], FED)}
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
    np.testing.assert_array_equal(ran(path, "m")["m"], FED * 2)


def test_a_file_of_the_same_size_and_time_with_other_weights_is_another_model(tmp_path: Path) -> None:
    path = tmp_path / "net.onnx"
    onnx.save(scaled(2), path)
    before = path.stat()
    np.testing.assert_array_equal(ran(path, "m")["m"], FED * 2)
    path.write_bytes(scaled(3).SerializeToString())
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert path.stat().st_size == before.st_size
    np.testing.assert_array_equal(ran(path, "m")["m"], FED * 3)


def test_operators_that_may_remember_something_begin_anew() -> None:
    nodes = (
        helper.make_node("RandomNormalLike", ["x"], ["y"], seed=7.0),
        helper.make_node("RandomUniformLike", ["x"], ["y"]),
        helper.make_node("Gelu", ["x"], ["y"], domain="com.microsoft"),
    )
    contents = [network([node], com_microsoft=1).SerializeToString() for node in nodes]
    for content in contents:
        assert prepare(content).session([]) is not prepare(content).session([])
    np.testing.assert_array_equal(ran(contents[0])["y"], ran(contents[0])["y"])


def test_random_operators_inside_a_branch_are_seen() -> None:
    inner = helper.make_graph(
        [helper.make_node("RandomNormalLike", ["x"], ["b"], seed=7.0)],
        "branch",
        [],
        [helper.make_tensor_value_info("b", TensorProto.FLOAT, [3])],
    )
    condition = helper.make_tensor("c", TensorProto.BOOL, [], [True])
    node = helper.make_node("If", ["c"], ["y"], then_branch=inner, else_branch=inner)
    content = network([node], [condition]).SerializeToString()
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
    np.testing.assert_array_equal(ran(path, "m")["m"], FED * 2)
    (tmp_path / "w.bin").write_bytes(np.full(3, 5, np.float32).tobytes())
    np.testing.assert_array_equal(ran(path, "m")["m"], FED * 5)


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
