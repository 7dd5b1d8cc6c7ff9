"""What a golden's header says is held against the run."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from conftest import Project


def edit(project: Project, before: str, after: str) -> None:
    text = project.golden.read_text()
    assert before in text
    project.golden.write_text(text.replace(before, after))


@pytest.mark.parametrize(
    ("before", "after", "message"),
    [
        (
            "test: test_small.py::test_small",
            "test: test_small.py::test_other",
            "*test_small.yaml is the golden of '*::test_other', this test is '*::test_small': if it has*",
        ),
        (
            "scene: model",
            "scene: op",
            "*was recorded with scene 'op', this test asks for 'model': approve anew*",
        ),
        (
            "dump_mode: output",
            "dump_mode: all",
            "*was recorded with dump_mode 'all', this test asks for 'output': approve anew*",
        ),
    ],
)
def test_a_golden_of_another_test_scene_or_mode_fails_and_an_update_mends_it(
    project: Project, before: str, after: str, message: str
) -> None:
    project.marked()
    project.record()
    approved = project.golden.read_text()
    edit(project, before, after)
    result = project.run()
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines([f"npudump: {message}"])
    project.record()
    assert project.golden.read_text() == approved


@pytest.mark.parametrize(
    ("lost", "named"),
    [(", scene: model", "scene"), (", scene: model, dump_mode: output", "scene and dump_mode")],
)
def test_a_golden_that_does_not_say_its_scene_or_mode_is_noted(
    project: Project, lost: str, named: str
) -> None:
    project.marked()
    project.record()
    edit(project, lost, "")
    result = project.run()
    result.assert_outcomes(passed=1)
    result.stdout.fnmatch_lines([f"*note: *: the golden does not say which {named} it was recorded with"])


def test_goldens_that_do_not_say_their_scene_share_one_note(project: Project) -> None:
    project.test_file(
        "@pytest.mark.npu_dump\n@pytest.mark.parametrize('a', [1, 2])\n"
        f"def test_small(npu_dump, a):{project.body}"
    )
    project.record()
    for path in project.path.joinpath("golden").rglob("*.yaml"):
        path.write_text(path.read_text().replace(", scene: model", ""))
    result = project.run()
    result.assert_outcomes(passed=2)
    notes = [line for line in result.outlines if "does not say which scene" in line]
    assert len(notes) == 1
    assert "2 tests (" in notes[0]


def test_a_dtype_and_a_shape_that_the_golden_leaves_open_are_noted(project: Project) -> None:
    project.marked()
    project.record()
    edit(project, "block/conv.2:output.0 float32 1x2x4x4", "block/conv.2:output.0 - ?")
    result = project.run()
    result.assert_outcomes(passed=1)
    note = (
        "not compared, as the golden does not have it (1 tensors, first: block/conv.2:output.0): dtype, shape"
    )
    result.stdout.fnmatch_lines([f"*note: *{note}*"])


def test_an_overflow_golden_of_another_scene_fails(project: Project) -> None:
    project.marked()
    project.record()
    project.marked("scene='overflow'")
    result = project.run()
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["npudump: *recorded with scene 'model', this test asks for 'overflow'*"])
    project.record()
    project.run().assert_outcomes(passed=1)
