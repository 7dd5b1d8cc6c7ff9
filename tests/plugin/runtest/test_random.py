"""Models that draw random numbers: said where they differ, noticed where they are recorded."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from onnx import TensorProto, helper

if TYPE_CHECKING:
    from conftest import Project

BODY = """
    with npu_dump.load_model("small.onnx") as model:
        model.run(np.zeros((2, 8), dtype=np.float32))
"""


def noisy(project: Project, marker: str = "", **attributes: float) -> None:
    """Write a test of a model that adds normally distributed noise; ``seed`` fixes it."""
    nodes = [
        helper.make_node("Identity", ["x"], ["i"], name="net/in"),
        helper.make_node("RandomNormalLike", ["i"], ["r"], name="net/noise", **attributes),
        helper.make_node("Add", ["i", "r"], ["y"], name="net/add"),
    ]
    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, [2, 8]) for name in "xy")
    graph = helper.make_graph(nodes, "noisy", [x], [y])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    (project.path / "small.onnx").write_bytes(model.SerializeToString())
    project.marked(marker, body=BODY)


def run(project: Project, *options: str) -> pytest.RunResult:
    """Run the project in a new process, which has another seed."""
    return project.pytester.runpytest_subprocess("--npudump-runtime=emulator", *options)


def test_recording_notes_it_and_the_failure_of_another_process_says_it(project: Project) -> None:
    noisy(project)
    recorded = run(project, "--npudump-update-golden")
    recorded.stdout.fnmatch_lines(["npudump: note: *: net/noise (RandomNormalLike) draws random numbers: *"])
    result = run(project)
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(
        [
            "first: *; net/noise draws random numbers: without a seed of its own they differ in *",
            "second run: it agrees, as runs of one process do whose random numbers come from one seed (*",
        ]
    )
    result.stdout.no_fnmatch_line("*the failure reproduced*")


@pytest.mark.e2e
def test_second_process_finds_out_whether_it_is_reproduced(project: Project) -> None:
    noisy(project, 'isolation="process"')
    run(project, "--npudump-update-golden").assert_outcomes(passed=1)
    run(project).stdout.fnmatch_lines(["second run: NOT REPRODUCED in 2 of 2 tensors: 2 out of *"])


def test_operator_with_a_seed_is_like_any_other(project: Project) -> None:
    noisy(project, 'golden_tensors=["net/add"]', seed=3.0)
    recorded = run(project, "--npudump-update-golden")
    recorded.assert_outcomes(passed=1)
    recorded.stdout.no_fnmatch_line("*random*")
    run(project).assert_outcomes(passed=1)


@pytest.mark.parametrize("layers", ["", ', layers=["net/add"]'])
def test_golden_tensors_are_not_recorded_from_two_runs_of_one_process(project: Project, layers: str) -> None:
    noisy(project, f'golden_tensors=["net/add"]{layers}')
    result = run(project, "--npudump-update-golden")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(
        ["npudump: nothing was recorded: net/noise (RandomNormalLike) draws random numbers, from a seed *"]
    )
    assert not (project.path / "golden").exists()


@pytest.mark.e2e
def test_golden_tensors_of_two_processes_that_disagree_are_not_recorded(project: Project) -> None:
    noisy(project, 'golden_tensors=["net/add"], isolation="process"')
    result = run(project, "--npudump-update-golden")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["npudump: nothing was recorded: two runs of the test disagree in net*add*"])
    assert not (project.path / "golden").exists()


def test_failure_behind_an_operator_that_is_not_dumped_names_it_and_is_not_called_reproduced(
    project: Project,
) -> None:
    noisy(project, 'layers=["net/add"]')
    run(project, "--npudump-update-golden").assert_outcomes(passed=1)
    result = run(project)
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(
        ["second run: it agrees, *from one seed, and net/noise (RandomNormalLike) draws random numbers (*"]
    )
    result.stdout.no_fnmatch_line("*the failure reproduced*")
