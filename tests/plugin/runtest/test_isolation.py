"""The operator alone: what a failure says of the kernel, the weights, and of what only passes a change on."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING, Any

import pytest

from pytest_npudump.cli import main
from tests.plugin.runtest.test_sources import write

if TYPE_CHECKING:
    from conftest import Project

pytestmark = pytest.mark.e2e

DUMPS = "--npudump-dump-dir=dumps"
FAULTY = """
    from pytest_npudump.emulator import faults
    faults.distort("small", "left/a", factor=1.001)
    faults.distort("small", "right/b", offset=0.01)
"""


def isolated(project: Project) -> dict[str, dict[str, Any]]:
    escalation: Any = project.report()["escalation"]
    return {found["key"]: found for found in escalation["isolated"]}


@pytest.fixture
def recorded(project: Project) -> Project:
    """A project with a golden of the model as it should be, which is the reference as well."""
    write(project)
    project.path.joinpath("reference.onnx").write_bytes(project.path.joinpath("small.onnx").read_bytes())
    project.marked()
    project.record()
    return project


def test_wrong_kernels_in_independent_branches_are_both_convicted(recorded: Project) -> None:
    recorded.marked(body=FAULTY + recorded.body)
    result = recorded.run(DUMPS)
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(
        [
            "sources:    2 sources: left/a:output.0 *, right/b:output.0 *",
            "alone:      left/a:output.0 is CONVICTED: * by small.onnx: 0.001 off *; its kernel did it",
            "alone:      right/b:output.0 is CONVICTED: *",
        ]
    )
    found = isolated(recorded)
    assert {key: one["verdict"] for key, one in found.items()} == {
        "left/a:output.0": "convicted",
        "right/b:output.0": "convicted",
    }
    one = found["left/a:output.0"]
    assert one["relative_l2"] == pytest.approx(1e-3, rel=1e-3)
    assert (one["model"], one["own_model"], one["op_type"], one["why"]) == ("small.onnx", True, "Mul", None)


def test_a_changed_weight_is_not_blamed_on_the_kernel_by_the_model_that_ran(recorded: Project) -> None:
    write(recorded, left_b=0.1)
    result = recorded.run(DUMPS)
    result.stdout.fnmatch_lines(
        ["alone:      left/b:output.0 computes what small.onnx, the run's own model, says (0 off): *"]
    )
    assert isolated(recorded)["left/b:output.0"]["verdict"] == "acquitted"


def test_a_changed_weight_is_convicted_by_the_unchanged_reference(recorded: Project) -> None:
    recorded.marked("reference='reference.onnx'")
    write(recorded, left_b=0.1)
    result = recorded.run(DUMPS)
    result.stdout.fnmatch_lines(
        ["alone:      left/b:output.0 is CONVICTED: * reference.onnx: 0.1 off *; its kernel, type, weights *"]
    )
    found = isolated(recorded)
    assert list(found) == ["left/b:output.0"]
    assert found["left/b:output.0"]["own_model"] is False


def test_inputs_beyond_the_limit_are_said_to_be_missing(recorded: Project) -> None:
    recorded.marked(body=FAULTY + recorded.body)
    recorded.run(DUMPS, "--npudump-dump-limit=600")
    assert {one["why"] for one in isolated(recorded).values()} == {
        "of its inputs the second run has not dumped 'image'",
        "of its inputs the second run has not dumped 'right/a'",
    }


@pytest.mark.parametrize(("limit", "verdict"), [(768, "convicted"), (767, "unknown")])
def test_inputs_that_the_first_run_has_not_dumped_are_in_the_second_one_where_they_fit(
    recorded: Project, limit: int, verdict: str
) -> None:
    """The golden has one layer, and nothing that feeds it: 256 bytes, and twice as many that it reads."""
    recorded.marked("layers=['both']")
    recorded.record("--npudump-update-golden")
    fault = """
    from pytest_npudump.emulator import faults
    faults.distort("small", "both", factor=1.001)
"""
    recorded.marked("layers=['both']", body=fault + recorded.body)
    recorded.run(DUMPS, f"--npudump-dump-limit={limit}")
    assert {key: one["verdict"] for key, one in isolated(recorded).items()} == {"both:output.0": verdict}


@pytest.mark.parametrize("isolation", ["none", "process"])
def test_a_third_run_judges_what_feeds_an_acquitted_operator(recorded: Project, isolation: str) -> None:
    """The golden has the last operator only, so that nothing is known to have changed before it."""
    marker = f"layers=['bot*'], reference='reference.onnx', isolation={isolation!r}"
    recorded.marked(marker)
    recorded.record("--npudump-update-golden")
    fault = """
    from pytest_npudump.emulator import faults
    faults.distort("small", "left/b", factor=1.001)
"""
    recorded.marked(marker, body=fault + recorded.body)
    recorded.run(DUMPS)
    assert {key: one["verdict"] for key, one in isolated(recorded).items()} == {"both:output.0": "acquitted"}
    assert recorded.report()["escalation"]["third"] is None
    shutil.rmtree(recorded.path / "dumps")
    recorded.run(DUMPS, "--npudump-escalate=twice").assert_outcomes(failed=1)
    assert {key: one["verdict"] for key, one in isolated(recorded).items()} == {
        "both:output.0": "acquitted",
        "left/b:output.0": "convicted",
        "right/reshape:output.0": "acquitted",
    }
    third = recorded.report()["escalation"]["third"]
    assert third["layers"] == ["left/b", "right/reshape"]
    assert third["directory"].endswith("run3")
    made = recorded.path / "made"
    assert main(["repro", str(third["directory"] + "/.."), "-o", str(made), "--no-run"]) == 0
    assert "left/b" in (made / "README.md").read_text(encoding="utf-8")


def test_a_third_run_has_room_for_the_inputs_of_one_suspect(recorded: Project) -> None:
    recorded.marked(body=FAULTY + recorded.body)
    recorded.run(DUMPS, "--npudump-dump-limit=600", "--npudump-escalate=twice")
    assert {key: one["verdict"] for key, one in isolated(recorded).items()} == {
        "left/a:output.0": "unknown",
        "right/b:output.0": "convicted",
    }


def test_a_third_run_that_fails_leaves_what_the_second_one_found(recorded: Project) -> None:
    fault = """
    import os
    if os.path.exists("twice"):
        raise OSError("the disk is gone")
    os.rename("once", "twice") if os.path.exists("once") else open("once", "w").close()
"""
    recorded.marked(body=fault + FAULTY + recorded.body)
    recorded.run(DUMPS, "--npudump-dump-limit=600", "--npudump-escalate=twice").assert_outcomes(failed=1)
    found = recorded.report()["escalation"]
    assert found["reproduced"] is True
    assert "the disk is gone" in found["third"]["problem"]
    assert {one["verdict"] for one in isolated(recorded).values()} == {"unknown"}
