"""Goldens of tensors where the marker leaves it open: chosen when they are recorded, and kept to."""

from __future__ import annotations

import itertools
import json

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

from pytest_npudump.cli import main
from pytest_npudump.golden.store import read_golden
from pytest_npudump.record.text import render
from tests.onnxmodels.models import onnx_model
from tests.plugin.conftest import Project

UPDATE = "--npudump-update-golden"
BUDGET = ("-o", "npudump_auto_tensors=1KiB")
"""The model's tensors have 464 bytes."""
BODY = """
    with npu_dump.load_model("net.onnx") as model:
        model.run(np.random.default_rng(6).standard_normal((3, 16)).astype(np.float32))
"""


def net(project: Project, order: slice = slice(None)) -> None:
    """Write a model whose inner features, in any order, give the same output."""
    rng = np.random.default_rng(5)
    first, last = (rng.standard_normal(shape).astype(np.float32) for shape in ((16, 12), (12, 2)))
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["a"], name="first"),
        helper.make_node("Relu", ["a"], ["b"], name="act"),
        helper.make_node("MatMul", ["b", "v"], ["y"], name="last"),
    ]
    weights = {"w": first[:, order], "v": last[order]}
    onnx.save(onnx_model(nodes, {"x": [3, 16]}, {"y": [3, 2]}, weights), str(project.path / "net.onnx"))


@pytest.fixture
def small(project: Project) -> Project:
    net(project)
    project.marked(body=BODY)
    return project


def test_what_was_chosen_stands_in_the_golden_and_is_kept_to(small: Project) -> None:
    note = "npudump: note: *recorded with tensors; for statistics only: *"
    small.run(UPDATE, *BUDGET, passed=1, shows=note)
    golden = read_golden(small.golden)
    assert golden.facts["dump_data"] == "tensor"
    assert golden.table.projected is not None
    assert golden.table.projected.all()
    assert golden.extra["repeats"] == {"runs": 2}
    text = small.golden.read_bytes()

    small.run(passed=1, hides="*note:*")
    net(small, slice(None, None, -1))  # which statistics, and the output, do not show
    small.run(
        failed=1,
        shows=[
            "npudump: first (axis 1): weight channels permuted; first mismatch: first:output.0 *",
            "model:      first (axis 1), *: weight channels permuted (2 of 2 operators with weights)",
        ],
    )
    net(small)
    small.run(UPDATE, passed=1, shows="*1 unchanged*")
    assert small.golden.read_bytes() == text

    small.marked('acl_json={"dump_data": "stats"}', BODY)
    small.run(
        passed=1, shows="*not compared, as the golden has it and the device computes none: projections*"
    )
    small.run(UPDATE, *BUDGET, passed=1)
    assert "dump_data" not in read_golden(small.golden).facts


def test_a_tensor_that_begins_with_nan_reproduces_in_a_second_run(small: Project) -> None:
    """Statistics that CANN computes on a device are another matter, see formats.md 1.3."""
    small.marked(body=BODY.replace("model.run(", "model.run(np.float32([[np.nan]] + [[1]] * 2) * "))
    small.run(UPDATE, *BUDGET, passed=1)
    net(small, slice(None, None, -1))
    small.run(failed=1, shows="second run: reproduced; *")


def test_a_golden_of_statistics_is_compared_with_statistics(small: Project) -> None:
    """A variant is of statistics as the common golden is."""
    small.run(UPDATE, "-o", "npudump_auto_tensors=0", passed=1)
    text = small.golden.read_bytes()
    small.run(passed=1, hides="*note:*")
    small.run(UPDATE, passed=1, shows="*1 unchanged*")
    assert small.golden.read_bytes() == text
    small.run(UPDATE, "-o", "npudump_golden_variant=other", passed=1)
    goldens = sorted(small.path.joinpath("golden").rglob("*.yaml"))
    assert [read_golden(path).table.summed for path in goldens] == [False, False]


def test_statistics_where_tensors_cannot_be_tried(small: Project) -> None:
    """Those that do not fit are a note."""
    for marker in ('acl_json={"dump_stats": ["Max", "Min", "Avg"]}', 'isolation="process"', "repeats=1"):
        small.marked(marker, BODY)
        small.run(UPDATE, *BUDGET, passed=1, hides="*recorded with *")
        assert "dump_data" not in read_golden(small.golden).facts
        small.golden.unlink()
    small.marked('acl_json={"dump_data": "auto"}', BODY)
    note = "*recorded with statistics; tensors take 504 B, and npudump_auto_tensors allows 100 B"
    small.run(UPDATE, "-o", "npudump_auto_tensors=100", passed=1, shows=note)
    assert "dump_data" not in read_golden(small.golden).facts


def _in_lines(text: str) -> str:
    """Return a golden as a person may have it: each fact of its producer in a line."""
    line = next(line for line in text.splitlines() if line.startswith("producer: {"))
    facts = line[line.index("{") + 1 : -1].split(", ")
    return text.replace(line, "\n  ".join(["producer:", *facts]))


def test_what_was_chosen_is_read_however_the_file_is_written(small: Project) -> None:
    small.record()
    text = small.golden.read_text()
    for edited in (text.replace("\n", "\r\n"), _in_lines(text)):
        small.golden.write_bytes(edited.encode())
        small.run(passed=1, hides="*note:*")


def test_rows_of_statistics_do_not_make_rounded_projections_of_others_exact(small: Project) -> None:
    small.run(UPDATE, passed=1)
    small.marked('acl_json={"dump_data": "stats"}', BODY)
    scaled(small, 0.1)
    small.run("--npudump-output=out", failed=1)
    assert main(["golden", "accept", "--results", "out", "--layers", "first", "--layers", "act"]) == 0
    table = read_golden(small.golden).table
    assert table.summed
    assert table.projected is not None
    assert table.projected.tolist() == [True, False, False, True]
    small.run(failed=1, shows="golden: * mismatches: 1 of 4 tensors")  # the last one, and not its input


@pytest.mark.parametrize(
    ("seconds", "words"),
    [([4, 1], "recorded with tensors; *"), ([4, 6], "*tensors take 6.0 times as long")],
)
def test_statistics_where_tensors_take_too_long_twice(small: Project, seconds: list[int], words: str) -> None:
    steps = itertools.chain(*((0, one) for one in (1, *seconds)), itertools.repeat(0))  # begins, and ends
    clock = itertools.accumulate(steps)
    small.patch.setattr("pytest_npudump.regression.session.seconds_of", lambda _: next(clock))
    small.patch.setattr("pytest_npudump.regression.run_plan._SECONDS", 0.1)
    small.run(UPDATE, *BUDGET, passed=1, shows=f"npudump: note: *{words}")
    golden = read_golden(small.golden)
    assert ("dump_data" in golden.facts) == (seconds[-1] == 1)
    assert golden.extra["repeats"] == {"runs": 2}


def scaled(project: Project, size: float, *, name: str = "w") -> None:
    """Scale a weight of the model."""
    path = str(project.path / "net.onnx")
    model = onnx.load(path)
    for tensor in model.graph.initializer:
        if tensor.name == name:
            array = numpy_helper.to_array(tensor)
            tensor.CopyFrom(numpy_helper.from_array((array * np.float32(1 + size)).astype(np.float32), name))
    onnx.save(model, path)


def test_weights_that_changed_by_more_than_rounding_fail_though_all_tensors_are_within_tolerance(
    small: Project,
) -> None:
    """Those that were rounded anew pass."""
    small.record()
    whole = small.path.joinpath("net.onnx").read_bytes()
    for size in (1e-5, 3e-6):
        small.path.joinpath("net.onnx").write_bytes(whole)
        scaled(small, size)
        shows = "npudump: first: weights changed *first mismatch: first:output.0 *"
        small.run(failed=1, shows=(shows, "*preset same: its inputs match*"))
        small.run("-o", "npudump_preset=same", passed=1)  # which is what was asked for
    small.path.joinpath("net.onnx").write_bytes(whole)
    scaled(small, 1e-7)
    small.run(passed=1)


@pytest.mark.parametrize("op_type", ["Sub", "Softmax"])
def test_a_step_of_rounding_in_an_input_passes_where_an_operator_makes_more_of_it(
    project: Project, op_type: str
) -> None:
    others = {"Sub": ["b"]}.get(op_type, [])
    nodes = [
        helper.make_node("Relu", ["x"], ["r"], name="act"),
        helper.make_node(op_type, ["r", *others], ["y"], name="last"),
    ]
    model = onnx_model(nodes, {"x": [16, 64]}, {"y": [16, 64]}, {"b": np.full(64, 1000, np.float32)})
    onnx.save(model, str(project.path / "net.onnx"))
    rng = np.random.default_rng(6)
    given = (1000 + rng.standard_normal((16, 64))).astype(np.float32)
    np.save(project.path / "x.npy", given)
    project.marked(body=BODY[: BODY.index("model.run")] + 'model.run(np.load("x.npy"))\n')
    project.run(UPDATE, passed=1)
    given.flat[::97] = np.nextafter(given.flat[::97], np.float32(0))  # which rounding of projections hides
    np.save(project.path / "x.npy", given)
    project.run(passed=1, shows="*tensors changed within tolerance, first *")


@pytest.mark.parametrize("op_type", ["Div", "Mul"])
def test_a_change_that_a_single_number_only_scales_fails(project: Project, op_type: str) -> None:
    nodes = [
        helper.make_node("Relu", ["x"], ["r"], name="act"),
        helper.make_node("ReduceMax", ["r"], ["m"], name="largest"),
        helper.make_node(op_type, ["r", "m"], ["y"], name="last"),
    ]
    onnx.save(onnx_model(nodes, {"x": [3, 16]}, {"y": [3, 16]}), str(project.path / "net.onnx"))
    project.marked(body=BODY)
    project.run(UPDATE, passed=1)
    project.run(passed=1)
    plant = "from pytest_npudump.emulator.faults import distort; distort('net', 'last', factor=1 + 3e-6)"
    project.marked(body=f"\n    {plant}{BODY}")
    shows = (
        "npudump: last:output.0: kernel error or overwritten tensor, 29 of 48 values are farther off than "
        "rounding explains"
    )
    project.run(failed=1, shows=(shows, "*preset same: its inputs match*"))


def test_a_table_with_short_projections_is_merged_line_by_line(small: Project) -> None:
    """The bound of one operator is shown."""
    small.record()
    rows = [line.split() for line in small.golden.read_text().splitlines() if " float32 " in line]
    assert [len(row) for row in rows] == [8] * 4  # no counts of NaN and infinities, where all are 0
    assert [row[-1][26:33] for row in rows] == ["", "", "", "@0x0x1="]  # where the output's rows are largest
    golden = read_golden(small.golden)
    assert golden.table.summed
    assert render(golden) == small.golden.read_text()
    show = ("golden", "show", "--tolerances=", str(small.golden))
    code, out, _ = small.command(*show, "--json", "-")
    assert code == 0
    told = json.loads(out)["tolerances"]
    alone = [row for row in told if row["rule"].endswith("its inputs match)")]
    assert [row["key"] for row in alone] == ["first:output.0", "act:output.0", "last:output.0"]
    for row in alone:
        other = next(one for one in told if one["key"] == row["key"] and one["statistic"] == "projections")
        assert 0 < row["allowed"] < other["allowed"] / 5
    code, out, _ = small.command(*show, "--preset", "same")
    assert (code, "its inputs" in out) == (0, False)
