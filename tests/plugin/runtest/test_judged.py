from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.plugin.conftest import Project

MODEL = """
import sys
import numpy as np
from onnx import TensorProto as T, helper as h, numpy_helper as n, save
kind, factor = sys.argv[1], float(sys.argv[2])
weights = np.full(4, factor, np.float32)
if kind == "bf16":
    nodes = [h.make_node("Mul", ["x", "w"], ["m"], name="mul"),
             h.make_node("Cast", ["m"], ["b"], name="to_bf16", to=T.BFLOAT16),
             h.make_node("Cast", ["b"], ["y"], name="back", to=T.FLOAT)]
elif kind == "nan":
    nodes = [h.make_node("Log", ["x"], ["l"], name="log"), h.make_node("Mul", ["l", "w"], ["y"], name="mul")]
else:
    weights = np.random.default_rng(0).standard_normal(4096).astype(np.float32)
    weights[:2] = 1e7, -1e7
    weights[2:] = weights[2:][::-1] if factor < 0 else weights[2:]
    nodes = [h.make_node("Mul", ["x", "w"], ["y"], name="mul")]
value = lambda name: h.make_tensor_value_info(name, T.FLOAT, [len(weights)])
graph = h.make_graph(nodes, "g", [value("x")], [value("y")], [n.from_array(weights, "w")])
save(h.make_model(graph, opset_imports=[h.make_opsetid("", 17)], ir_version=8), "model.onnx")
"""
BODY = """
    with npu_dump.load_model("model.onnx") as model:
        model.run(np.array({input}, np.float32))
"""


def _model(project: Project, kind: str, factor: float) -> None:
    project.path.joinpath("make.py").write_text(MODEL)
    assert (
        project.pytester.runpython_c(
            f"import sys; sys.argv = ['make.py', {kind!r}, '{factor}']; exec(open('make.py').read())"
        ).ret
        == 0
    )


@pytest.mark.parametrize("more", ["", ", golden_tensors=['to_bf16']"])
def test_a_dump_that_tells_nothing_of_any_tensor_is_not_recorded(project: Project, more: str) -> None:
    _model(project, "bf16", 1)
    project.marked(f"layers=['to_bf16']{more}", body=BODY.format(input="[1, 2, 3, 4]"))
    result = project.run("--npudump-update-golden")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*tells neither statistics nor hashes of any of its 1 tensors (ACL*"])


def test_a_test_of_which_no_value_is_judged_does_not_pass(project: Project) -> None:
    _model(project, "nan", 1)
    project.marked("layers=['mul']", body=BODY.format(input="[-1, 2, 3, 4]"))
    project.record()
    _model(project, "nan", 1000)
    result = project.run()
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*no value was judged: *share neither a finite statistic nor a hash*"])


def test_golden_tensors_tell_what_nan_hides(project: Project) -> None:
    _model(project, "nan", 1)
    marker = "layers=['mul'], dump_data='tensor', golden_tensors=['mul']"
    project.marked(marker, body=BODY.format(input="[-1, 2, 3, 4]"))
    project.record()
    project.run().assert_outcomes(passed=1)
    _model(project, "nan", 1000)
    project.run().assert_outcomes(failed=1)


def test_elements_that_pass_beside_much_larger_ones_are_noted(project: Project) -> None:
    _model(project, "large", 1)
    marker = "layers=['mul'], dump_data='tensor', golden_tensors=['mul']"
    project.marked(marker, body=BODY.format(input="[1] * 4096"))
    project.record()
    result = project.run()
    assert "most elements" not in result.stdout.str()
    _model(project, "large", -1)
    result = project.run("-rA")
    result.assert_outcomes(passed=1)
    result.stdout.fnmatch_lines(["*most elements are farther off than rtol of themselves*"])
