"""ONNX files: names that are no text are refused, wherever they stand."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from onnx import TensorProto, helper, numpy_helper

from pytest_npudump.cli import main
from pytest_npudump.onnxmodels.sessions import ModelError, plain_session, read_model

if TYPE_CHECKING:
    from pathlib import Path

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
