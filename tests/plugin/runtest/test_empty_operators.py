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
    """Relu, a slice of no rows, its reshape to ``shape`` unless left out, its sum, and Add.

    A ``shape`` that holds elements is given all rows.
    """
    axes = [0, 1]
    nodes = [
        helper.make_node("Relu", ["image"], ["a"], name="relu"),
        helper.make_node("Slice", ["a", "zero", "zero"], ["none"], name="cut"),
        helper.make_node("Reshape", ["none", "shape"], ["b"], name="empty", allowzero=1),
        helper.make_node("ReduceSum", ["b" if layer else "none", "axes"], ["c"], name="sum", keepdims=0),
        helper.make_node("Add", ["a", "c"], ["out"], name="add"),
    ]
    if 0 not in shape:
        nodes[1] = helper.make_node("Identity", ["a"], ["none"], name="cut")
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


@pytest.mark.parametrize("marker", ["", "dump_data='tensor'"])
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


def two_ports(project: Project) -> None:
    """Neg of an input of any two sizes, beside Relu of one that is not empty."""
    values = {"x": [2, 2], "y": ["a", "b"]}
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name, shape in values.items()]
    outs = [
        helper.make_tensor_value_info(f"{name}o", TensorProto.FLOAT, shape) for name, shape in values.items()
    ]
    nodes = [
        helper.make_node("Relu", ["x"], ["xo"], name="relu"),
        helper.make_node("Neg", ["y"], ["yo"], name="neg"),
    ]
    graph = helper.make_graph(nodes, "small", ends, outs)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.save(model, str(project.path / "small.onnx"))


def test_an_empty_tensor_of_dynamic_shape_is_compared_by_the_shape_it_had(project: Project) -> None:
    two_ports(project)
    body = """
    with npu_dump.load_model("small.onnx") as model:
        model.run(np.ones((2, 2), np.float32), np.ones({shape}, np.float32))
"""
    project.marked(body=body.format(shape=(0, 3)))
    project.record()
    project.marked(body=body.format(shape=(3, 0)))
    result = project.run()
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines([f"{EMPTY.replace('empty: ', 'neg: ')}3x0; y: 0x3 -> 3x0"])


TWO_MODELS = """
    for name in ("other.onnx", "small.onnx"):
        with npu_dump.load_model(name) as model:
            model.run(np.ones((4, 3), np.float32))
"""
TWO_CAPTURES = """
    for name in ("other", "small"):
        with npu_dump.capture(name), npu_dump.load_model(name + ".onnx") as model:
            model.run(np.ones((4, 3), np.float32))
"""


@pytest.mark.parametrize(
    ("body", "qualifier"), [(TWO_MODELS, "model"), (TWO_CAPTURES, "capture")], ids=["models", "captures"]
)
@pytest.mark.parametrize("other", [(0, 3), (4, 3)], ids=["empty", "not empty"])
@pytest.mark.parametrize("changed", ["small", "other"])
def test_operators_of_one_name_in_several_models_do_not_hide_each_other(
    project: Project, body: str, qualifier: str, other: tuple[int, int], changed: str
) -> None:
    def models(**shapes: tuple[int, int]) -> None:
        for name in ("other", "small"):
            empty_inside(project, *shapes[name])
            (project.path / "small.onnx").rename(project.path / f"{name}.onnx.kept")
        for name in ("other", "small"):
            (project.path / f"{name}.onnx.kept").rename(project.path / f"{name}.onnx")

    before = {"other": other, "small": (0, 3)}
    models(**before)
    project.marked(body=body)
    project.record()
    project.run().assert_outcomes(passed=1)
    models(**{**before, changed: (3, 0)})
    result = project.run()
    result.assert_outcomes(failed=1)
    old = "0x3" if before[changed] == (0, 3) else "not among them"
    result.stdout.fnmatch_lines([f"*leave no file, differ: *empty#{qualifier}={changed}: {old} -> 3x0*"])


def test_a_new_operator_of_empty_tensors_fails_where_there_was_none(project: Project) -> None:
    project.marked(body=BODY)
    relu = [helper.make_node("Relu", ["image"], ["out"], name="relu")]
    cut = helper.make_node("Slice", ["image", "zero", "zero"], ["none"], name="cut")
    for nodes in (relu, [*relu, cut]):
        ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [4, 3]) for name in ("image", "out")]
        zero = numpy_helper.from_array(np.array([0], np.int64), "zero")
        graph = helper.make_graph(nodes, "small", ends[:1], ends[1:], [zero])
        if nodes is not relu:
            graph.output.append(helper.make_tensor_value_info("none", TensorProto.FLOAT, [0, 3]))
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
        onnx.save(model, str(project.path / "small.onnx"))
        if nodes is relu:
            project.record()
    assert "empty: {}\n" in project.golden.read_text()
    result = project.run()
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*leave no file, differ: cut: not among them -> 0x3"])
