"""Operators inside branches, bodies and functions, which the emulator does not dump: a test says how many."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from onnx import GraphProto, ModelProto, TensorProto, checker, helper

from pytest_npudump.onnxmodels.graph import inside

if TYPE_CHECKING:
    from conftest import Project

X = helper.make_tensor_value_info("x", TensorProto.FLOAT, [4])
VECTOR = """
@pytest.mark.npu_dump({marker})
def test_small(npu_dump):
    with npu_dump.load_model("nested.onnx") as model:
        model.run(np.arange(4, dtype=np.float32))
"""


def branch(name: str, count: int, inner: Any = None) -> GraphProto:
    """So many operators in a row, of which the last one has another within."""
    nodes = [helper.make_node("Constant", [], [f"{name}/two"], value_float=2.0)]
    before = "x"
    for number in range(count):
        nodes.append(
            helper.make_node(
                "Mul", [before, f"{name}/two"], [f"{name}/{number}"], name=f"{name}/mul.{number}"
            )
        )
        before = f"{name}/{number}"
    if inner is not None:
        nodes.append(inner)
        before = inner.output[0]
    return helper.make_graph(nodes, name, [], [helper.make_tensor_value_info(before, TensorProto.FLOAT, [4])])


def nested() -> ModelProto:
    """An If with 2 operators, or 1 and an If of 1 and 1; a Loop with 2; a function with 1."""
    condition = helper.make_tensor_value_info("more", TensorProto.BOOL, [])
    body = helper.make_graph(
        [
            helper.make_node("Identity", ["go"], ["more"], name="again"),
            helper.make_node("Neg", ["held"], ["kept"], name="neg"),
        ],
        "body",
        [
            helper.make_tensor_value_info("n", TensorProto.INT64, []),
            helper.make_tensor_value_info("go", TensorProto.BOOL, []),
            helper.make_tensor_value_info("held", TensorProto.FLOAT, [4]),
        ],
        [condition, helper.make_tensor_value_info("kept", TensorProto.FLOAT, [4])],
    )
    within = helper.make_node(
        "If", ["yes"], ["deep"], name="deep", then_branch=branch("c", 1), else_branch=branch("d", 1)
    )
    nodes = [
        helper.make_node("ReduceMax", ["x"], ["top"], name="top", keepdims=0),
        helper.make_node("Cast", ["top"], ["yes"], name="yes", to=TensorProto.BOOL),
        helper.make_node(
            "If",
            ["yes"],
            ["chosen"],
            name="if",
            then_branch=branch("a", 2),
            else_branch=branch("b", 1, within),
        ),
        helper.make_node("Loop", ["times", "yes", "chosen"], ["looped"], name="loop", body=body),
        helper.make_node("Twice", ["looped"], ["y"], name="own", domain="ours"),
    ]
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("ours", 1)]
    twice = helper.make_function(
        "ours", "Twice", ["v"], ["w"], [helper.make_node("Add", ["v", "v"], ["w"], name="sum")], opsets[:1]
    )
    graph = helper.make_graph(
        nodes,
        "nested",
        [X],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [4])],
        [helper.make_tensor("times", TensorProto.INT64, [], [2])],
    )
    model = helper.make_model(graph, opset_imports=opsets, ir_version=8, functions=[twice])
    checker.check_model(model)
    return model


@pytest.fixture
def inner(project: Project) -> Project:
    project.path.joinpath("nested.onnx").write_bytes(nested().SerializeToString())
    return project


def test_operators_inside_others_are_found_at_any_depth() -> None:
    assert sorted(inside(nested())) == [
        ("a/mul.0", "If"),
        ("a/mul.1", "If"),
        ("again", "Loop"),
        ("b/mul.0", "If"),
        ("c/mul.0", "If"),
        ("d/mul.0", "If"),
        ("deep", "If"),
        ("neg", "Loop"),
        ("sum", "Twice"),
    ]


def test_functions_that_call_each_other_are_entered_once() -> None:
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("ours", 1)]
    functions = [
        helper.make_function(
            "ours",
            f"F{number}",
            ["v"],
            ["w"],
            [
                helper.make_node(f"F{number + 1}", ["v"], ["u"], domain="ours"),
                helper.make_node(f"F{number + 1}", ["u"], ["w"], domain="ours"),
            ],
            opsets,
        )
        for number in range(60)
    ]
    graph = helper.make_graph([helper.make_node("F0", ["x"], ["y"], domain="ours")], "calls", [X], [])
    assert len(inside(helper.make_model(graph, functions=functions))) == 120


@pytest.mark.e2e
def test_a_test_says_how_many_operators_of_its_model_are_not_dumped(inner: Project) -> None:
    words = "not dumped by the emulator: 9 of the operators of nested, inside If, Loop, Twice"
    for marker in ("", 'isolation="process"', 'layers=["*"]'):
        inner.test_file(VECTOR.format(marker=marker))
        for option in ("--npudump-update-golden", "-q"):
            result = inner.run(option)
            result.assert_outcomes(passed=1)
            result.stdout.fnmatch_lines([f"*note: test_small.py::test_small: {words}"])


def test_only_operators_that_were_asked_for_are_missed(inner: Project) -> None:
    inner.test_file(VECTOR.format(marker='layers=["loop"]'))
    for option in ("--npudump-update-golden", "-q"):
        result = inner.run(option)
        result.assert_outcomes(passed=1)
        result.stdout.no_fnmatch_line("*not dumped by the emulator*")
    for layers in ('"a/mul.1"', '"a/*.1"'):
        inner.test_file(VECTOR.format(marker=f"layers=[{layers}]"))
        result = inner.run()
        result.assert_outcomes(failed=1)
        result.stdout.fnmatch_lines(
            ["note: not dumped by the emulator: 1 of the operators of nested, inside If"]
        )


def test_a_model_of_one_level_says_nothing(project: Project) -> None:
    project.marked()
    result = project.run("--npudump-update-golden")
    result.assert_outcomes(passed=1)
    result.stdout.no_fnmatch_line("*not dumped by the emulator*")
