"""Goldens of tensors where the marker leaves it open: chosen when they are recorded, and kept to."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

from pytest_npudump.golden.store import read_golden
from pytest_npudump.record.text import render
from tests.plugin.conftest import onnx_model

if TYPE_CHECKING:
    from conftest import Project

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
    small.run("--npudump-update-golden", *BUDGET, passed=1, shows=note)
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
        shows="npudump: the channels of the weights of first (axis 1), *; first mismatch: first:output.0 *",
    )
    net(small)
    small.run("--npudump-update-golden", passed=1, shows="*1 unchanged*")
    assert small.golden.read_bytes() == text

    small.marked('acl_json={"dump_data": "stats"}', BODY)
    small.run(
        passed=1, shows="*not compared, as the golden has it and the device computes none: projections*"
    )
    small.run("--npudump-update-golden", *BUDGET, passed=1)
    assert "dump_data" not in read_golden(small.golden).facts


def test_a_golden_of_statistics_is_compared_with_statistics(small: Project) -> None:
    small.run("--npudump-update-golden", "-o", "npudump_auto_tensors=0", passed=1)
    text = small.golden.read_bytes()
    small.run(passed=1, hides="*note:*")
    small.run("--npudump-update-golden", passed=1, shows="*1 unchanged*")
    assert small.golden.read_bytes() == text


@pytest.mark.parametrize(
    ("marker", "options"),
    [
        ('acl_json={"dump_data": "auto"}', ("-o", "npudump_auto_tensors=100")),
        ('acl_json={"dump_stats": ["Max", "Min", "Avg"]}', BUDGET),
        ('isolation="process"', BUDGET),
        ("repeats=1", BUDGET),
    ],
)
def test_statistics_where_tensors_do_not_fit_or_cannot_be_tried(
    small: Project, marker: str, options: tuple[str, ...]
) -> None:
    small.marked(marker, BODY)
    small.run("--npudump-update-golden", *options, passed=1, hides="*recorded with *")
    assert "dump_data" not in read_golden(small.golden).facts


def test_statistics_where_tensors_take_too_long(small: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = itertools.accumulate(range(100))  # each run takes longer than the one before
    monkeypatch.setattr("pytest_npudump.regression.session.monotonic", lambda: next(clock))
    note = "npudump: note: *recorded with statistics; tensors take 3.0 times as long"
    small.run("--npudump-update-golden", *BUDGET, passed=1, shows=note)
    golden = read_golden(small.golden)
    assert "dump_data" not in golden.facts
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


@pytest.mark.parametrize("size", [1e-5, 3e-6])
def test_weights_that_changed_by_more_than_rounding_fail_though_all_tensors_are_within_tolerance(
    small: Project, size: float
) -> None:
    small.run("--npudump-update-golden", passed=1)
    scaled(small, size)
    shows = "npudump: the weights of first changed *first mismatch: first:output.0 *"
    small.run(failed=1, shows=(shows, "*preset same: its inputs are the golden's*"))
    small.run("-o", "npudump_preset=same", passed=1)  # which is what was asked for


def test_weights_that_were_rounded_anew_pass(small: Project) -> None:
    small.run("--npudump-update-golden", passed=1)
    scaled(small, 1e-7)
    small.run(passed=1)


def test_a_table_with_short_projections_is_merged_line_by_line(small: Project) -> None:
    small.run("--npudump-update-golden", passed=1)
    rows = [line.split() for line in small.golden.read_text().splitlines() if ":output.0 float32" in line]
    assert [len(row[-1]) for row in rows] == [26] * 4
    golden = read_golden(small.golden)
    assert golden.table.summed
    assert render(golden) == small.golden.read_text()
