"""Tensors beside a golden: which of them are kept, and that they stay with their golden."""

from __future__ import annotations

import os
import signal
from typing import TYPE_CHECKING

import onnx
import pytest
from onnx import TensorProto, helper

from pytest_npudump.golden.store import waiting_path
from pytest_npudump.golden.tensors import load_tensors

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from conftest import Project


ALIKE = ("a/b", "a_b", "a.b", "plain")


def _alike_names(project: Project) -> None:
    """Four operators, of which three have one name in files."""
    steps = ["image", *(f"t{number}" for number in range(3)), "out"]
    nodes = [
        helper.make_node("Neg", [steps[at]], [steps[at + 1]], name=name) for at, name in enumerate(ALIKE)
    ]
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [1, 1, 8, 8]) for name in ("image", "out")]
    graph = helper.make_graph(nodes, "alike", ends[:1], ends[1:])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.save(model, str(project.path / "small.onnx"))


@pytest.mark.parametrize("dump", ["stats", "tensor"])
def test_layers_alike_in_file_names_are_left_out_of_the_golden_tensors_and_named(
    project: Project, dump: str
) -> None:
    _alike_names(project)
    project.marked(f"golden_tensors=['*'], dump_data={dump!r}")
    recorded = project.run("--npudump-update-golden")
    recorded.assert_outcomes(passed=1)
    recorded.stdout.fnmatch_lines(["*note: *no golden tensors of a_b, only statistics: several layers go*"])
    kept = load_tensors(project.golden.with_suffix(".safetensors"))
    assert {key.partition(":")[0] for key in kept} == {"image", "plain"}
    compared = project.run()
    compared.assert_outcomes(passed=1)
    compared.stdout.fnmatch_lines(["*note: *no golden tensors of a_b, only statistics*"])


def test_a_layer_named_for_its_golden_tensors_and_alike_in_file_names_is_refused(project: Project) -> None:
    _alike_names(project)
    project.marked("golden_tensors=['a/b', 'plain']")
    result = project.run("--npudump-update-golden")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(
        ["npudump: nothing was recorded: *a_b:output.0*name is the same in file names"]
    )
    assert not project.path.joinpath("golden").exists()


def test_golden_tensors_of_nothing_but_layers_alike_in_file_names_are_refused(project: Project) -> None:
    _alike_names(project)
    project.marked("golden_tensors=['a?b']")
    result = project.run("--npudump-update-golden")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["npudump: nothing was recorded: *of a_b, or cannot tell it*"])


def test_bytes_of_layers_alike_in_file_names_count_once_towards_the_limit(project: Project) -> None:
    _alike_names(project)
    project.marked("golden_tensors=['*'], dump_data='tensor'")
    # Five tensors of 8x8 float32, the graph's input among them.
    project.record("--npudump-dump-limit=1280")
    assert project.golden.with_suffix(".safetensors").exists()


def test_a_second_run_judges_no_layer_by_one_alike_in_file_names(project: Project) -> None:
    _alike_names(project)
    project.marked("dump_data='tensor'")
    project.record()
    project.marked("dump_data='tensor'", body=project.body.replace("-1, 1", "-1, 2"))
    result = project.run()
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["second run: the failure reproduced, but for * tensors it did not dump*"])


KILL = """
import os, signal, sys
left = [int(os.environ.get("KILL", "0"))]
def hook(event, arguments):
    if event == "os.rename" and "{0}golden{0}".format(os.sep) in str(arguments[1]):
        left[0] -= 1
        if left[0] == 0:
            os.kill(os.getpid(), signal.SIGKILL)
if left[0]:
    sys.addaudithook(hook)
"""


@pytest.mark.e2e
@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="nothing is killed like that here")
@pytest.mark.parametrize(("rename", "passes"), [(2, "old"), (3, "new")])
def test_an_update_killed_between_the_two_files_leaves_one_recording(
    project: Project, monkeypatch: pytest.MonkeyPatch, rename: int, passes: str
) -> None:
    project.path.joinpath("conftest.py").write_text(KILL)
    project.marked("golden_tensors=['block/conv.2'], dump_data='tensor', escalate=False")
    project.record()
    project.model(change=0.01)
    monkeypatch.setenv("KILL", str(rename))
    arguments = ["--npudump-runtime=emulator", "-p", "no:cacheprovider"]
    killed = project.pytester.runpytest_subprocess(*arguments, "--npudump-update-golden")
    assert killed.ret == -signal.SIGKILL
    monkeypatch.delenv("KILL")
    project.model(change=0.01 if passes == "new" else 0.0)
    project.run().assert_outcomes(passed=1)
    project.model(change=0.02)
    project.record()
    project.run().assert_outcomes(passed=1)
    (folder,) = {path.parent for path in project.path.joinpath("golden").rglob("*.yaml")}
    assert {path.suffix for path in folder.iterdir()} == {".yaml", ".safetensors"}
    assert len([*folder.iterdir()]) == 2


ODD = pytest.mark.parametrize(
    ("make", "reason", "kind"),
    [(os.mkfifo, "not a regular file", "a pipe"), (os.mkdir, "Is a directory", "a directory")],
    ids=["pipe", "directory"],
)


@ODD
def test_what_is_no_file_in_place_of_golden_tensors_is_named_and_not_waited_for(
    project: Project, make: Callable[[Path], None], reason: str, kind: str
) -> None:
    project.marked("golden_tensors=['*']")
    project.record()
    tensors = project.golden.with_suffix(".safetensors")
    tensors.unlink()
    make(tensors)
    compared = project.run()
    compared.assert_outcomes(failed=1)
    compared.stdout.fnmatch_lines([f"npudump: *{tensors.name}: not a file of golden tensors: {reason}; *"])
    updated = project.run("--npudump-update-golden")
    updated.assert_outcomes(failed=1)
    updated.stdout.fnmatch_lines([f"npudump: *{tensors.name}: cannot be written: it is {kind}*"])


@ODD
def test_what_is_no_file_where_new_golden_tensors_wait_is_not_waited_for(
    project: Project, make: Callable[[Path], None], reason: str, kind: str
) -> None:
    project.marked("golden_tensors=['*']")
    project.record()
    waiting = waiting_path(project.golden.with_suffix(".safetensors"))
    make(waiting)
    project.run().assert_outcomes(passed=1)
    project.golden.with_suffix(".safetensors").unlink()
    compared = project.run()
    compared.assert_outcomes(failed=1)
    compared.stdout.fnmatch_lines([f"npudump: *{waiting.name}: not a file of golden tensors: {reason}; *"])
    updated = project.run("--npudump-update-golden")
    if kind == "a pipe":
        updated.assert_outcomes(passed=1)
    else:
        updated.assert_outcomes(failed=1)
        updated.stdout.fnmatch_lines([f"*{waiting.name}: left by a recording that did not end, *remove it*"])


def test_golden_tensors_that_git_lfs_has_not_fetched_fail_the_test_with_the_way_out(project: Project) -> None:
    project.marked("golden_tensors=['block/conv.2']")
    project.record()
    tensors = project.golden.with_suffix(".safetensors")
    tensors.write_text("version https://git-lfs.github.com/spec/v1\noid sha256:ab\nsize 9\n")
    result = project.run()
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines([f"npudump: {tensors}: Git LFS has not fetched this file*'git lfs pull'*"])
