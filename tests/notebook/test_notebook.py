"""Dumps compared and results read from Python, as IPython's own formatter shows them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from IPython.core.formatters import DisplayFormatter

from pytest_npudump.errors import NpudumpError
from pytest_npudump.notebook import compare_dumps, read_results

HOSTILE = "<script>alert(1)</script>"


def dump(root: Path, **arrays: Any) -> Path:
    root.mkdir()
    for turn, (layer, values) in enumerate(arrays.items()):
        np.save(root / f"Conv.{layer}.{turn}.0.{1700000000000000 + turn}.output.0.DefaultFormat.npy", values)
    return root


@pytest.fixture
def sides(tmp_path: Path) -> tuple[Path, Path]:
    one = np.linspace(-1, 1, 24, dtype=np.float32)
    return dump(tmp_path / "a", first=one, second=one), dump(tmp_path / "b", first=one, second=one * 2)


def test_a_notebook_shows_a_chart_and_the_failing_tensors(sides: tuple[Path, Path]) -> None:
    found = compare_dumps(*sides)
    assert not found.ok
    data, _ = DisplayFormatter().format(found)
    assert data["text/plain"].startswith("<DumpComparison: 1 of 2 tensors match; second")
    assert "<svg" in data["text/html"]
    assert data["text/html"].count("<tr>") == 2
    assert found.data["summary"]["failed"] == 1


def test_equal_dumps_are_ok(sides: tuple[Path, Path]) -> None:
    found = compare_dumps(sides[0], sides[0])
    assert found.ok
    assert "<table" not in found._repr_html_()


def test_a_hostile_name_stays_text(tmp_path: Path) -> None:
    from pytest_npudump.notebook import cells

    assert HOSTILE not in cells((HOSTILE,))
    one = dump(tmp_path / "a", **{"<b>x": np.ones(3, np.float32)})
    other = dump(tmp_path / "b", **{"<b>x": np.zeros(3, np.float32)})
    assert "<b>x" not in compare_dumps(one, other)._repr_html_()


def test_what_cannot_be_read_is_an_error_and_no_half_comparison(sides: tuple[Path, Path]) -> None:
    next(sides[1].iterdir()).write_bytes(b"\x93NUMPY")
    with pytest.raises(NpudumpError):
        compare_dumps(*sides)


def test_wider_tolerances_are_taken(sides: tuple[Path, Path], tmp_path: Path) -> None:
    rules = tmp_path / "rules.yaml"
    rules.write_text("rules:\n  - {layer: '*', rtol: 10, atol: 0, reason: test}\n", "utf-8")
    assert compare_dumps(*sides, tolerances=rules).ok


def test_a_rule_for_some_producers_needs_to_be_told_of_the_run_s(
    sides: tuple[Path, Path], tmp_path: Path
) -> None:
    rules = tmp_path / "rules.yaml"
    item = "{op_type: Conv, rtol: 1, atol: 1, reason: wide, producer: {soc: Ascend910B*}}"
    rules.write_text(f"rules: [{item}]\n", "utf-8")
    found = compare_dumps(*sides, tolerances=rules)
    assert not found.ok
    assert any("nothing tells soc of this run" in note for note in found.notes)
    assert compare_dumps(*sides, tolerances=rules, producer={"soc": "Ascend910B3"}).ok
    assert not compare_dumps(*sides, tolerances=rules, producer={"soc": "Ascend310P3"}).ok


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
