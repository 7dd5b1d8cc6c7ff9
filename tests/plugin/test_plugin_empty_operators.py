"""Operators whose tensors hold no element, of which CANN writes no file."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

if TYPE_CHECKING:
    from conftest import Project


def empty_inside(project: Project, *shape: int, layer: bool = True) -> None:
    """Relu, a slice of no rows, a reshape of it to ``shape`` unless left out, its sum, and Add."""
    axes = [0, 1]
    nodes = [
        helper.make_node("Relu", ["image"], ["a"], name="relu"),
        helper.make_node("Slice", ["a", "zero", "zero"], ["none"], name="cut"),
        helper.make_node("Reshape", ["none", "shape"], ["b"], name="empty", allowzero=1),
        helper.make_node("ReduceSum", ["b" if layer else "none", "axes"], ["c"], name="sum", keepdims=0),
        helper.make_node("Add", ["a", "c"], ["out"], name="add"),
    ]
    if not layer:
        del nodes[2]
    weights = {"zero": [0], "shape": shape, "axes": axes}
    graph = helper.make_graph(
        nodes,
        "small",
        [helper.make_tensor_value_info("image", TensorProto.FLOAT, [4, 3])],
        [helper.make_tensor_value_info("out", TensorProto.FLOAT, [4, 3])],
        [numpy_helper.from_array(np.array(value, np.int64), name) for name, value in weights.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.checker.check_model(model)
    onnx.save(model, str(project.path / "small.onnx"))


BODY = """
    with npu_dump.load_model("small.onnx") as model:
        model.run(np.ones((4, 3), np.float32))
"""
EMPTY = "npudump: operators whose tensors hold no element, and which leave no file, differ: empty: 0x3 -> "


@pytest.mark.parametrize("marker", ["", "dump_data='tensor', transport='callback'"])
def test_an_empty_tensor_of_another_shape_fails(project: Project, marker: str) -> None:
    empty_inside(project, 0, 3)
    project.marked(marker, body=BODY)
    project.record()
    project.run().assert_outcomes(passed=1)
    empty_inside(project, 3, 0)
    result = project.run()
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines([f"{EMPTY}3x0"])


def test_an_operator_of_empty_tensors_that_is_gone_fails(project: Project) -> None:
    empty_inside(project, 0, 3)
    project.marked(body=BODY)
    project.record()
    empty_inside(project, 0, 3, layer=False)
    result = project.run()
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines([f"{EMPTY}not among them"])


def test_a_golden_that_does_not_list_them_passes_with_a_note(project: Project) -> None:
    empty_inside(project, 0, 3)
    project.marked(body=BODY)
    project.record()
    text = project.golden.read_text()
    start, end = text.index("empty:"), text.index("columns:")
    project.golden.write_text(text[:start] + text[end:])
    result = project.run()
    result.assert_outcomes(passed=1)
    result.stdout.fnmatch_lines(["*note: *cut, empty: not compared, as no tensor of it holds an element*"])
    project.record()
    assert project.golden.read_text() == text


def test_an_empty_tensor_beside_others_has_a_row_of_its_own(project: Project) -> None:
    empty_inside(project, 0, 3)
    project.marked("dump_mode='all'", body=BODY)
    project.record()
    assert "  sum:input.0 float32 0x3 - - -" in project.golden.read_text()
    empty_inside(project, 3, 0)
    result = project.run()
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*ReduceSum*input.0*shape*0x3*3x0*"])


def test_a_model_without_empty_tensors_has_no_such_key(project: Project) -> None:
    project.marked()
    project.record()
    assert "empty:" not in project.golden.read_text()
