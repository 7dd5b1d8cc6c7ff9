"""Results of a session from Python, as IPython's own formatter shows them."""

from __future__ import annotations

from pathlib import Path

import pytest
from IPython.core.formatters import DisplayFormatter

from pytest_npudump.errors import NpudumpError
from pytest_npudump.notebook import read_results

TESTS = """
import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

@pytest.mark.npu_dump
@pytest.mark.parametrize("name", ["<b>", "relu"])
def test_layer(npu_dump, tmp_path, name):
    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, [4]) for name in "xy")
    graph = helper.make_graph([helper.make_node(KIND[name], ["x"], ["y"], name=name)], "g", [x], [y])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.save(model, tmp_path / "m.onnx")
    with npu_dump.load_model(tmp_path / "m.onnx") as loaded:
        loaded.run(np.arange(-2, 2, dtype=np.float32))

@pytest.mark.npu_dump
@pytest.mark.skip
def test_skipped():
    pass
"""
OPTIONS = ("--npudump-runtime=emulator", "--npudump-output=.")


@pytest.mark.e2e
def test_a_notebook_shows_tests_and_strips_of_those_that_fail(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(test_it=TESTS + "KIND = {'<b>': 'Relu', 'relu': 'Relu'}")
    pytester.runpytest_subprocess("--npudump-update-golden", *OPTIONS)
    pytester.runpytest_subprocess(*OPTIONS).assert_outcomes(passed=2, skipped=1)
    found = read_results("results")
    assert found.ok
    assert repr(found) == "<SessionResults: 2 of 2 tests passed>"
    pytester.makepyfile(test_it=TESTS + "KIND = {'<b>': 'Neg', 'relu': 'Relu'}")
    pytester.runpytest_subprocess(*OPTIONS).assert_outcomes(passed=1, failed=1, skipped=1)
    found = read_results(pytester.path / "results", root=pytester.path)
    assert not found.ok
    assert found.tests["test_it.py::test_layer[<b>]"] == "failed"
    assert found.tests["test_it.py::test_layer[relu]"] == "passed"
    data, _ = DisplayFormatter().format(found)
    assert data["text/plain"].startswith(
        "<SessionResults: 1 of 2 tests passed; test_it.py::test_layer[<b>]: "
    )
    assert "<b> (" not in data["text/html"]
    assert data["text/html"].count("<tr>") == 4
    assert data["text/html"].count("<svg") == 1


def test_a_folder_without_results_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(NpudumpError):
        read_results(tmp_path)
