"""What a golden's header says is held against the run."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from conftest import Project


def edit(project: Project, before: str, after: str) -> None:
    text = project.golden.read_text()
    assert before in text
    project.golden.write_text(text.replace(before, after))


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
