"""Operators that leave no file: those without elements, and those inside branches, bodies and functions."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import ModelProto, checker, helper

from pytest_npudump.cli import main
from pytest_npudump.onnxmodels.graph import inside
from tests.onnxmodels.models import onnx_file, onnx_model
from tests.plugin.conftest import Project


def empty_inside(project: Project, *shape: int, layer: bool = True) -> None:
    """Relu, a slice of no rows, its reshape to ``shape`` unless left out, its sum, and Add.

    A ``shape`` that holds elements is given all rows.
    """
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
    weights = {"zero": [0], "shape": shape, "axes": [0, 1]}
    arrays = {name: np.array(value, np.int64) for name, value in weights.items()}
    model = onnx_model(nodes, {"image": [4, 3]}, {"out": [4, 3]}, arrays)
    onnx.checker.check_model(model)
    onnx.save(model, str(project.path / "small.onnx"))


BODY = """
    with npu_dump.load_model("small.onnx") as model:
        model.run(np.ones((4, 3), np.float32))
"""
EMPTY = "npudump: operators whose tensors hold no element, and which leave no file, differ: empty: 0x3 -> "


def test_an_empty_tensor_of_another_shape_or_an_operator_that_is_gone_fails(project: Project) -> None:
    for marker in ("", "acl_json={'dump_data': 'tensor'}"):
        empty_inside(project, 0, 3)
        project.marked(marker, body=BODY)
        project.record()
        project.run(passed=1)
        empty_inside(project, 3, 0)
        project.run(failed=1, shows=f"{EMPTY}3x0")
    empty_inside(project, 0, 3, layer=False)
    project.run(failed=1, shows=f"{EMPTY}not among them")
    empty_inside(project, 0, 3)
    for layers, begin in (("empty", "the dump is empty: empty"), ("e*y", "empty")):
        project.marked(f"layers=[{layers!r}]", body=BODY)
        project.run(
            failed=1, shows=f"npudump: {begin} returned no elements, and the dump has no other layer*"
        )


def test_a_golden_that_does_not_list_them_passes_with_a_note(project: Project) -> None:
    """An empty tensor beside others has a row of its own."""
    empty_inside(project, 0, 3)
    project.recorded(body=BODY)
    text = project.golden.read_text()
    start, end = text.index("empty:"), text.index("columns:")
    project.golden.write_text(text[:start] + text[end:])
    project.run(passed=1, shows="*note: *cut, empty: not compared, as no tensor of it holds an element*")
    project.record()
    assert project.golden.read_text() == text
    project.recorded("acl_json={'dump_mode': 'all'}", body=BODY)
    assert "  sum:input.0 float32 0x3 - - -" in project.golden.read_text()
    empty_inside(project, 3, 0)
    project.run(failed=1, shows="*ReduceSum*input.0*shape*0x3*3x0*")


def test_an_empty_tensor_of_dynamic_shape_is_compared_by_the_shape_it_had(project: Project) -> None:
    nodes = [
        helper.make_node("Relu", ["x"], ["xo"], name="relu"),
        helper.make_node("Neg", ["y"], ["yo"], name="neg"),
    ]
    ports = {"x": [2, 2], "y": ["a", "b"]}
    onnx_file(project.path / "small.onnx", nodes, ports, {"xo": [2, 2], "yo": ["a", "b"]})
    body = """
    with npu_dump.load_model("small.onnx") as model:
        model.run(np.ones((2, 2), np.float32), np.ones({shape}, np.float32))
"""
    project.recorded(body=body.format(shape=(0, 3)))
    project.marked(body=body.format(shape=(3, 0)))
    project.run(failed=1, shows=f"{EMPTY.replace('empty: ', 'neg: ')}3x0; y: 0x3 -> 3x0")


BOTH = """
    for name in ("other.onnx", "small.onnx"):
        with {}npu_dump.load_model(name) as model:
            model.run(np.ones((4, 3), np.float32))
"""
TWO_MODELS, TWO_CAPTURES = BOTH.format(""), BOTH.format("npu_dump.capture(name[:-5]), ")


def test_operators_of_one_name_in_several_models_do_not_hide_each_other(project: Project) -> None:
    def models(shapes: dict[str, tuple[int, int]]) -> None:
        for name, shape in shapes.items():
            empty_inside(project, *shape)
            (project.path / "small.onnx").rename(project.path / f"{name}.kept")
        for name in shapes:
            (project.path / f"{name}.kept").rename(project.path / f"{name}.onnx")

    for body, qualifier, other, changed in (
        (TWO_MODELS, "model", (0, 3), "small"),
        (TWO_MODELS, "model", (4, 3), "other"),
        (TWO_CAPTURES, "capture", (4, 3), "small"),
        (TWO_CAPTURES, "capture", (0, 3), "other"),
    ):
        before = {"other": other, "small": (0, 3)}
        models(before)
        project.marked(body=body)
        project.record("-onpudump_repeats=1")
        project.run(passed=1)
        models({**before, changed: (3, 0)})
        old = "0x3" if before[changed] == (0, 3) else "not among them"
        words = f"*leave no file, differ: *empty#{qualifier}={changed}: {old} -> 3x0*"
        project.run("-onpudump_escalate=off", failed=1, shows=words)


def test_a_new_operator_of_empty_tensors_fails_where_there_was_none(project: Project) -> None:
    project.marked(body=BODY)
    relu = [helper.make_node("Relu", ["image"], ["out"], name="relu")]
    cut = helper.make_node("Slice", ["image", "zero", "zero"], ["none"], name="cut")
    small, given, zero = project.path / "small.onnx", {"image": [4, 3]}, {"zero": np.array([0], np.int64)}
    onnx_file(small, relu, given, {"out": [4, 3]}, zero)
    project.record()
    onnx_file(small, [*relu, cut], given, {"out": [4, 3], "none": [0, 3]}, zero)
    assert "empty: {}\n" in project.golden.read_text()
    project.run(failed=1, shows="*leave no file, differ: cut: not among them -> 0x3")


VECTOR = """
@pytest.mark.npu_dump({marker})
def test_small(npu_dump):
    with npu_dump.load_model("nested.onnx") as model:
        model.run(np.arange(4, dtype=np.float32))
"""


def nested() -> ModelProto:
    """An If with 2 operators, or 1 and an If of 1 and 1; a Loop with 2; a function with 1."""
    model: ModelProto = onnx.parser.parse_model(
        """
        <ir_version: 8, opset_import: ["" : 17, "ours" : 1]>
        nested (float[4] x) => (float[4] own) <int64 times = {2}, float two = {2.0}> {
            top = ReduceMax <keepdims = 0> (x)
            yes = Cast <to = 9> (top)
            if = If (yes) <
                then_branch = a () => (float[4] a_mul_1) {
                    four = Constant <value_float = 4.0> ()
                    a_mul_0 = Mul (x, four)
                    a_mul_1 = Mul (a_mul_0, two)
                },
                else_branch = b () => (float[4] deep) {
                    b_mul_0 = Mul (x, two)
                    deep = If (yes) <
                        then_branch = c () => (float[4] c_mul_0) { c_mul_0 = Mul (b_mul_0, two) },
                        else_branch = d () => (float[4] d_mul_0) { d_mul_0 = Mul (b_mul_0, two) }
                    >
                }
            >
            loop = Loop (times, yes, if) <
                body = body (int64 n, bool go, float[4] held) => (bool again, float[4] neg) {
                    again = Identity (go)
                    neg = Neg (held)
                }
            >
            own = ours.Twice (loop)
        }
        <domain: "ours", opset_import: ["" : 17]>
        Twice (v) => (sum) { sum = Add (v, v) }
        """
    )

    def name(nodes: Iterable[Any]) -> None:
        for node in nodes:
            node.name = node.output[0].replace("_mul_", "/mul.") if node.op_type != "Constant" else ""
            for attribute in node.attribute:
                name(attribute.g.node)

    name([*model.graph.node, *model.functions[0].node])
    checker.check_model(model)
    return model


@pytest.fixture
def inner(project: Project) -> Project:
    project.path.joinpath("nested.onnx").write_bytes(nested().SerializeToString())
    return project


def test_operators_inside_others_are_found_at_any_depth() -> None:
    found = {"if": "a/mul.0 a/mul.1 b/mul.0 c/mul.0 d/mul.0 deep", "loop": "again neg", "own": "sum"}
    pairs = [(name, outer) for outer, names in found.items() for name in names.split()]
    assert sorted(inside(nested())) == sorted(pairs)


@pytest.mark.e2e
def test_a_test_says_how_many_operators_of_its_model_are_not_dumped(inner: Project) -> None:
    words = "operators neither dumped nor compared: 9, inside if, loop, own (nested)"
    for marker in ("", 'isolation="process"', 'layers=["*"]'):
        inner.test_file(VECTOR.format(marker=marker))
        for option in ("--npudump-update-golden", "-q"):
            inner.run(option, passed=1, shows=f"npudump: {words}", hides="*note: *dumped by*")


def test_only_operators_that_were_asked_for_are_missed(inner: Project) -> None:
    inner.test_file(VECTOR.format(marker='layers=["loop"]'))
    for option in ("--npudump-update-golden", "-q"):
        inner.run(option, passed=1, hides="*not dumped*")
    for layers in ('"a/mul.1"', '"a/*.1"'):
        inner.test_file(VECTOR.format(marker=f"layers=[{layers}]"))
        inner.run(failed=1, shows="note:       operators not dumped by the emulator: 1, inside if (nested)")


BOXES = [[[0, 0, 1, 1], [2, 2, 3, 3], [4, 4, 5, 5]]]


def detector(*, threshold: float = 0.5, end: int = 3, fed: bool = False) -> onnx.ModelProto:
    """NonMaxSuppression of boxes, of which two have scores above 0.5 and none above 0.9, and a Slice."""
    nodes = [
        helper.make_node("Sigmoid", ["logits"], ["scores"], name="scores"),
        helper.make_node(
            "NonMaxSuppression", ["boxes", "scores", "most", "iou", "least"], ["some"], name="nms"
        ),
        helper.make_node("Slice", ["some", "begin", "end"], ["out"], name="out"),
    ]
    weights = {
        "begin": np.array([0], np.int64),
        "end": np.array([end], np.int64),
        "boxes": np.float32(BOXES),
        "most": np.array([3], np.int64),
        "iou": np.float32([0.5]),
        "least": np.float32([threshold]),
    }
    out = onnx.TensorProto.INT64, ["n", 3]
    given = {"logits": [1, 1, 3]}
    if fed:
        given["boxes"] = [*weights.pop("boxes").shape]
    return onnx_model(nodes, given, {"out": out}, weights)


DETECTING = """
    import onnx
    from unittest import mock
    from pytest_npudump.emulator import onnx_model
    from pytest_npudump.emulator.faults import distort

    wrong = mock.patch.object(onnx_model, "distorted_model", lambda *_: onnx.load("wrong.onnx"))
    with wrong, distort("small", {wrong!r}, factor=2) if {wrong!r} else mock.MagicMock():
        with npu_dump.load_model("small.onnx") as model:
            model.run(np.array([[[1, -1, 2]]], np.float32), *np.float32({boxes}))
"""


@pytest.mark.parametrize("fed", [False, True])
@pytest.mark.parametrize("data", ["stats", "tensor"])
def test_an_operator_that_returns_no_element_any_more_is_explained(
    project: Project, data: str, *, fed: bool
) -> None:
    """Its shape is a mismatch with a source, and it is recomputed: the model's doing, or not."""
    boxes = [BOXES] if fed else []
    onnx.save(detector(fed=fed), project.path / "small.onnx")
    onnx.save(detector(threshold=0.9, fed=fed), project.path / "wrong.onnx")
    told, marker = "nms:output.0 shape 0x3, expected 2x3", f"acl_json={{'dump_data': '{data}'}}"
    project.recorded(marker, body=DETECTING.format(boxes=boxes, wrong=""))
    project.run(passed=1)
    project.marked(marker, body=DETECTING.format(boxes=boxes, wrong="nms"))
    again = f"second run: reproduced; {4 + fed} layers dumped as tensors"
    project.run(
        failed=1,
        shows=[
            f"npudump: {told}",
            "source: *nms:output.0; *",
            again,
            "recomputed: *nms:output.0 *its shape is [[]0, 3], recomputed [[]2, 3]*",
        ],
    )
    onnx.save(detector(threshold=0.9, fed=fed), project.path / "small.onnx")
    project.marked(marker, body=DETECTING.format(boxes=boxes, wrong=""))
    matches = "recomputed: 2 operators match small.onnx on the same inputs: nms:output.0,*"
    project.run(failed=1, shows=[f"npudump: nms: weights changed *{told}", again, matches])


@pytest.mark.parametrize("data", ["stats", "tensor"])
@pytest.mark.parametrize("rows", [0, 1])
def test_a_copy_of_fewer_elements_than_its_inputs_give_is_convicted(
    project: Project, data: str, rows: int
) -> None:
    onnx.save(detector(), project.path / "small.onnx")
    onnx.save(detector(end=rows), project.path / "wrong.onnx")
    marker = f"acl_json={{'dump_data': '{data}'}}"
    project.recorded(marker, body=DETECTING.format(boxes=[], wrong=""))
    project.marked(marker, body=DETECTING.format(boxes=[], wrong="out"))
    words = f"npudump: out:output.0: kernel error *, its shape is [[]{rows}, 3], recomputed [[]2, 3]"
    handed = "hand over: *"
    project.run(failed=1, shows=[words, *[handed] * rows], hides=[handed][rows:])


@pytest.mark.parametrize("data", ["stats", "tensor"])
def test_an_operator_that_returned_no_element_is_explained_where_it_does(project: Project, data: str) -> None:
    """The golden lists its shape, which is a mismatch with a source; the marker's layers are no others."""
    told = "nms:output.0 shape 2x3, expected 0x3"
    for layers in ("", ", layers=['*s']"):
        marker = f"acl_json={{'dump_data': '{data}'}}{layers}"
        onnx.save(detector(threshold=0.9), project.path / "small.onnx")
        onnx.save(detector(), project.path / "wrong.onnx")
        project.marked(marker, body=DETECTING.format(boxes=[], wrong=""))
        project.record()
        project.run(passed=1)
        project.marked(marker, body=DETECTING.format(boxes=[], wrong="nms"))
        project.run(
            "--npudump-output=out",
            failed=1,
            shows=[
                f"npudump: {told}",
                "source: *nms:output.0; *including those of the outputs that *; *",
                "second run: reproduced; [34] layers dumped as tensors",
            ],
            hides="* is new*",
        )
        assert main(["golden", "accept", "--results", "out"]) == 0
        project.run(passed=1)
