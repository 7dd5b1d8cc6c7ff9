"""Operators of an ONNX graph have the names that GE gives them."""

from __future__ import annotations

import numpy as np
from onnx import GraphProto, helper, numpy_helper

from pytest_npudump.onnxmodels.graph import operators


def graph(*names: tuple[str, str]) -> GraphProto:
    """A chain of ``(type, name)`` nodes."""
    nodes = []
    for index, (op_type, name) in enumerate(names):
        value = {"value": numpy_helper.from_array(np.zeros(1, np.float32))} if op_type == "Constant" else {}
        inputs = [] if op_type == "Constant" else [f"t{index}"]
        nodes.append(helper.make_node(op_type, inputs, [f"t{index + 1}"], name=name, **value))
    return helper.make_graph(nodes, "graph", [], [])


def test_unnamed_nodes_are_counted_over_the_whole_file() -> None:
    files = {
        "unnamed": ([("Relu", ""), ("Neg", ""), ("Relu", "")], ["Relu_0", "Neg_1", "Relu_2"]),
        "constants count": (
            [("Constant", ""), ("Relu", ""), ("Constant", ""), ("Neg", "")],
            ["Relu_1", "Neg_3"],
        ),
        "named do not": ([("Relu", "a"), ("Constant", "c"), ("Neg", ""), ("Relu", "b")], ["a", "Neg_0", "b"]),
        "twice": ([("Relu", "a"), ("Neg", "a")], ["a", "a_1"]),
        "taken": ([("Relu", ""), ("Neg", "Relu_0")], ["Relu_0_1", "Relu_0"]),
        "constant of the name": ([("Constant", "a"), ("Relu", "a")], ["a"]),
    }
    for name, (nodes, expected) in files.items():
        found = operators(graph(*nodes))
        assert [operator.name for operator in found] == expected, name
        assert [operator.task for operator in found] == list(range(1, len(expected) + 1)), name
