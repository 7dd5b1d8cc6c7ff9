"""Edges of ONNX models, held against the file itself."""

from __future__ import annotations

from typing import TYPE_CHECKING

import onnx
from onnx import TensorProto, helper

from pytest_npudump.graph.edges import UNKNOWN, Port
from pytest_npudump.graph.model_files import read_onnx

if TYPE_CHECKING:
    from pathlib import Path


def test_edges_of_a_real_model_are_its_tensors_names(classifier: Path) -> None:
    edges = read_onnx(classifier)
    graph = onnx.load(str(classifier)).graph
    makers = {name: (node.name, slot) for node in graph.node for slot, name in enumerate(node.output)}
    constant = {name for node in graph.node if node.op_type == "Constant" for name in node.output}
    constant |= {tensor.name for tensor in graph.initializer}
    makers |= {value.name: (value.name, 0) for value in graph.input}
    seen = 0
    for node in graph.node:
        if node.op_type == "Constant":
            continue
        ports = edges.feeds[node.name.replace("/", "_")]
        fed = [makers[name] for name in node.input if name and name not in constant]
        assert [(port.layer, port.slot) for port in ports if port is not None] == fed
        seen += len(fed)
    assert seen > 250


def test_what_a_branch_reads_of_the_graph_around_it_is_not_known(tmp_path: Path) -> None:
    value = helper.make_tensor_value_info
    branch = helper.make_graph(
        [helper.make_node("Neg", ["x"], ["inner"])], "branch", [], [value("inner", TensorProto.FLOAT, [1])]
    )
    nodes = [helper.make_node("If", ["c"], ["y"], "choose", then_branch=branch, else_branch=branch)]
    ports = [value("c", TensorProto.BOOL, []), value("x", TensorProto.FLOAT, [1])]
    graph = helper.make_graph(nodes, "g", ports, [value("y", TensorProto.FLOAT, [1])])
    path = tmp_path / "model.onnx"
    onnx.save(helper.make_model(graph), str(path))
    assert read_onnx(path).feeds["choose"] == (Port("c"), UNKNOWN)
