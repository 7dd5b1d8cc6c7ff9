"""``--npudump-bisect``: what a session's exit code tells git, and a real bisection."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
from onnx import TensorProto, helper

if TYPE_CHECKING:
    from pathlib import Path

    from conftest import Project

BISECT = "--npudump-bisect"
SKIPPED = 125
SECOND = """
@pytest.mark.npu_dump
def test_second(npu_dump):
    {first}
    image = np.ones((1, 1, 8, 8), np.float32)
    with npu_dump.load_model("small.onnx") as model:
        model.run(image)
"""


def said(result: pytest.RunResult) -> str:
    """Return what the line of a session says of its exit code."""
    (line,) = [line for line in result.stderr.lines if line.startswith("npudump: bisect: ")]
    return line.removeprefix("npudump: bisect: ")


def test_revision_whose_tests_pass_is_good(project: Project) -> None:
    project.marked()
    project.record()
    result = project.run(BISECT)
    assert result.ret == 0
    assert said(result) == "exit code 0 (good): 1 marked tests judged, none differs"


def test_revision_in_which_a_layer_differs_is_bad(project: Project) -> None:
    project.marked()
    project.record()
    project.model(change=0.01)
    result = project.run(BISECT)
    assert result.ret == 1
    assert said(result).startswith(
        "exit code 1 (bad): test_small.py::test_small: block/conv.2:output.0; 1 of 1"
    )


def test_revision_that_lacks_a_layer_of_the_golden_is_bad(project: Project) -> None:
    project.marked()
    project.record()
    project.model(without="block/relu.1")
    assert project.run(BISECT).ret == 1


def test_revision_without_a_golden_is_skipped(project: Project) -> None:
    project.marked()
    result = project.run(BISECT)
    assert result.ret == SKIPPED
    assert "test_small.py::test_small: golden missing" in said(result)


def test_revision_whose_test_raises_by_itself_is_skipped(project: Project) -> None:
    project.marked()
    project.record()
    project.marked(body="    raise RuntimeError('an API that this revision lacks')")
    result = project.run(BISECT)
    assert result.ret == SKIPPED
    assert "not judged" in said(result)


def test_one_test_that_differs_counts_though_another_could_not_run(project: Project) -> None:
    project.test_file(SECOND.format(first="pass"), "test_other.py")
    project.marked()
    project.record()
    project.model(change=0.01)
    project.test_file(SECOND.format(first="raise RuntimeError"), "test_other.py")
    assert project.run(BISECT).ret == 1


@pytest.mark.parametrize("first", ["raise RuntimeError", "pytest.skip('not here')"])
def test_a_pass_does_not_count_where_another_marked_test_was_not_judged(project: Project, first: str) -> None:
    project.test_file(SECOND.format(first="pass"), "test_other.py")
    project.marked()
    project.record()
    project.test_file(SECOND.format(first=first), "test_other.py")
    result = project.run(BISECT)
    assert result.ret == SKIPPED
    assert "test_other.py::test_second" in said(result)


def test_a_pass_does_not_count_where_a_test_without_the_marker_fails(project: Project) -> None:
    project.marked()
    project.record()
    project.test_file("def test_plain():\n    assert False\n", "test_plain.py")
    result = project.run(BISECT)
    assert result.ret == SKIPPED
    assert "something else failed" in said(result)


def test_revision_whose_test_file_cannot_be_imported_is_skipped(project: Project) -> None:
    project.test_file("import no_such_module_of_this_revision\n")
    assert project.run(BISECT).ret == SKIPPED


def test_revision_without_the_test_is_skipped(project: Project) -> None:
    project.marked()
    result = project.run(BISECT, "test_of_later_revisions.py")
    assert result.ret == SKIPPED
    result.stderr.fnmatch_lines(["ERROR: file or directory not found: test_of_later_revisions.py"])
    assert project.run(BISECT, "-k", "nothing").ret == SKIPPED


@pytest.mark.e2e
def test_revision_whose_conftest_cannot_be_loaded_is_skipped(project: Project) -> None:
    project.marked()
    project.path.joinpath("conftest.py").write_text("import no_such_module_of_this_revision\n", "utf-8")
    result = project.pytester.runpytest_subprocess("--npudump-runtime=emulator", BISECT)
    assert result.ret == SKIPPED
    assert "a conftest file cannot be loaded" in said(result)
    plain = project.pytester.runpytest_subprocess("--npudump-runtime=emulator")
    assert plain.ret == pytest.ExitCode.USAGE_ERROR


def test_a_difference_that_does_not_come_again_is_skipped(project: Project) -> None:
    project.marked()
    project.record()
    project.wavering(0.01)
    source = project.path.joinpath("test_small.py")
    source.write_text(source.read_text("utf-8").replace("next(COUNT) % 2", "1 - next(COUNT) % 2"), "utf-8")
    result = project.run(BISECT)
    assert result.ret == SKIPPED
    assert "did not when it ran again" in said(result)


@pytest.mark.e2e
def test_interrupted_session_ends_the_bisection(project: Project) -> None:
    project.marked(body="    raise KeyboardInterrupt")
    result = project.pytester.runpytest_subprocess("--npudump-runtime=emulator", BISECT)
    assert result.ret == 130


@pytest.mark.e2e
def test_test_in_a_process_of_its_own_and_workers_of_xdist_count_alike(project: Project) -> None:
    project.marked("isolation='process'")
    project.record()
    project.model(change=0.01)
    assert project.run(BISECT).ret == 1
    assert project.run(BISECT, "-n1").ret == 1


def test_scene_with_findings_is_bad_and_without_is_good(project: Project) -> None:
    values = [helper.make_tensor_value_info(name, TensorProto.FLOAT16, [4]) for name in ("x", "y")]
    node = helper.make_node("Mul", ["x", "x"], ["y"], name="square")
    graph = helper.make_graph([node], "square", values[:1], values[1:])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    project.path.joinpath("square.onnx").write_bytes(model.SerializeToString())
    body = """
    with npu_dump.load_model("square.onnx") as model:
        model.run(np.full(4, {}, np.float16))
"""
    project.marked("scene='overflow'", body.format(100))
    assert project.run(BISECT).ret == 0
    project.marked("scene='overflow'", body.format(30_000))
    assert project.run(BISECT).ret == 1


def test_codes_are_pytest_s_own_without_the_option(project: Project) -> None:
    project.marked()
    assert project.run("-k", "nothing").ret == pytest.ExitCode.NO_TESTS_COLLECTED
    assert project.run("no_such_file.py").ret == pytest.ExitCode.USAGE_ERROR


def test_what_runs_no_session_keeps_its_code(project: Project) -> None:
    assert project.run(BISECT, "--markers").ret == 0


@pytest.mark.e2e
def test_the_ini_key_and_the_variable_switch_it_on_too(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    project.marked()
    before = os.environ.get("PYTEST_ADDOPTS", "")
    monkeypatch.setenv("PYTEST_ADDOPTS", f"{before} {BISECT}")
    assert project.run().ret == SKIPPED
    monkeypatch.setenv("PYTEST_ADDOPTS", before)
    assert project.run("-o", "npudump_bisect=true").ret == SKIPPED
    project.path.joinpath("conftest.py").write_text("import no_such_module_of_this_revision\n", "utf-8")
    result = project.pytester.runpytest_subprocess("-o", "npudump_bisect=true")
    assert result.ret == SKIPPED


def test_test_that_is_expected_to_fail_is_left_out(project: Project) -> None:
    project.test_file(SECOND.format(first="pass"), "test_other.py")
    project.marked()
    project.record()
    source = project.path.joinpath("test_other.py")
    source.write_text(source.read_text("utf-8").replace("@pytest", "@pytest.mark.xfail\n@pytest", 1), "utf-8")
    project.test_file(f"@pytest.mark.xfail\n@pytest.mark.npu_dump\ndef test_small(npu_dump):\n{project.body}")
    project.model(change=0.01)
    assert project.run(BISECT).ret == SKIPPED


def test_a_failing_teardown_is_no_pass_and_no_difference(project: Project) -> None:
    project.marked()
    project.record()
    project.path.joinpath("conftest.py").write_text(
        "import pytest\n\n@pytest.fixture(autouse=True)\ndef late():\n    yield\n    raise RuntimeError\n",
        "utf-8",
    )
    assert project.run(BISECT).ret == SKIPPED


def test_a_run_that_approves_is_no_bisection(project: Project) -> None:
    project.marked()
    result = project.run(BISECT, "--npudump-update-golden")
    assert result.ret == SKIPPED
    result.stderr.fnmatch_lines(["ERROR: npudump: --npudump-bisect asks *"])
    assert not project.path.joinpath("golden").exists()


def git(folder: Path, *words: str, check: bool = True) -> str:
    """Run git as a person without any configuration would."""
    who = {f"GIT_{role}_{what}": "a@b.c" for role in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")}
    environment = {**os.environ, **who, "GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_SYSTEM": os.devnull}
    command = ["git", "-C", str(folder), *words]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    assert done.returncode == 0 or not check, done.stdout + done.stderr
    return done.stdout


def test_git_finds_the_commit_that_changed_a_weight_past_one_that_cannot_run(
    project: Project, tmp_path_factory: pytest.TempPathFactory
) -> None:
    project.marked()
    project.record()
    golden = tmp_path_factory.mktemp("approved") / "golden"
    project.path.joinpath("golden").rename(golden)
    project.path.joinpath(".gitignore").write_text("__pycache__\n", "utf-8")
    git(project.path, "init", "-q")
    broken = "import no_such_module_of_this_revision\n"
    states = [(0.0, ""), (0.0, "# two\n"), (0.0, broken), (0.01, ""), (0.01, broken), (0.01, "# six\n")]
    source = project.path.joinpath("test_small.py").read_text("utf-8")
    for number, (change, line) in enumerate(states):
        project.model(change=change)
        project.path.joinpath("test_small.py").write_text(line + source, "utf-8")
        git(project.path, "add", "-A")
        git(project.path, "commit", "-q", "--allow-empty", "-m", f"state {number}")
    git(project.path, "bisect", "start", "HEAD", "HEAD~5")
    run = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "--npudump-runtime=emulator",
        BISECT,
        f"--npudump-golden-dir={golden}",
    ]
    told = git(project.path, "bisect", "run", *run, check=False)
    assert "only 'skip'ped commits left" in told or "only skipped commits left" in log_of(project), told
    judged = re.findall(r"^# (good|bad|skip): \[\w+\] (state \d)$", log_of(project), re.MULTILINE)
    found = {state: word for word, state in judged}
    assert found == {
        "state 0": "good",
        "state 1": "good",
        "state 2": "skip",
        "state 3": "bad",
        "state 5": "bad",
    }


def log_of(project: Project) -> str:
    return git(project.path, "bisect", "log")
