"""A test whose layers have other names than in its golden: the marker's map."""

from __future__ import annotations

from pytest_npudump.cli import main
from tests.plugin.conftest import Project

RENAMED = "block/second"


def test_renamed_layers_are_compared_explained_and_checked_again_by_the_markers_map(project: Project) -> None:
    project.recorded()
    project.model(named=RENAMED)
    project.run(failed=1, shows="npudump: renamed in the model*: block/conv.2 -> block/second")
    project.path.joinpath("names.yaml").write_text("block/second: block/conv.2\n")
    project.marked("map='names.yaml'")
    project.run(passed=1)
    project.model(named=RENAMED, change=0.5)
    project.run(
        "--npudump-output=out",
        failed=1,
        shows=[
            "npudump: block/second: weights changed *; first mismatch: block/second:output.0 avg *",
            "second run: reproduced*",
            "recomputed:*block/second*",
        ],
    )
    assert main(["check", "out"]) == 1
    project.path.joinpath("names.yaml").write_text("block/second: nobody\n")
    project.run(failed=1, shows="npudump: *conv.2*missing*")
    assert main(["check", "out"]) == 1
    project.path.joinpath("names.yaml").write_text("block/second: [\n")
    project.run(errors=1, shows="*names.yaml, line *")


def test_a_glob_of_no_layer_is_told_the_layers_as_the_model_has_them(project: Project) -> None:
    project.marked("layers=['*pool*']")
    project.run(failed=1, shows="npudump: the dump has none of the layers * the dump has *block/conv.1*")
    project.marked("layers=['*CONV*2']")
    project.run(failed=1, shows="npudump: the dump has none of the layers * did you mean block/conv.2[?]")
