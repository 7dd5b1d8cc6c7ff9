"""``--npudump-calibrate``: tolerances that are measured, kept with the golden, and judged by."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from pytest_npudump.compare.tolerances.calibrated import calibrated_of
from pytest_npudump.golden.store import read_golden

if TYPE_CHECKING:
    from pathlib import Path

    from conftest import Project

NOTED = """
    with open("ran", "a") as file:
        file.write("x")
"""

INTEGERS = """
from onnx import TensorProto, helper

def write(path):
    nodes = [
        helper.make_node("Cast", ["ids"], ["f"], name="cast", to=TensorProto.FLOAT),
        helper.make_node("Add", ["f", "x"], ["y"], name="add"),
    ]
    graph = helper.make_graph(
        nodes, "two",
        [helper.make_tensor_value_info("ids", TensorProto.INT64, [4]),
         helper.make_tensor_value_info("x", TensorProto.FLOAT, [4])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [4])],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    with open(path, "wb") as file:
        file.write(model.SerializeToString())

@pytest.mark.npu_dump
def test_small(npu_dump):
    write("two.onnx")
    with npu_dump.load_model("two.onnx") as model:
        model.run(np.arange(4), np.linspace(0.1, 0.9, 4, dtype=np.float32))
"""


def head(project: Project) -> dict[str, Any]:
    document: dict[str, Any] = yaml.safe_load(project.golden.read_text("utf-8"))
    return document


def lines_without_noise(project: Project) -> list[str]:
    """The golden's table without what a calibration adds."""
    document = head(project)
    cells = [line.split() for line in document["tensors"].splitlines()]
    with_noise = document["columns"].endswith(" noise")
    return [" ".join(row[:-1] if with_noise else row) for row in cells]


def test_a_golden_that_matches_learns_its_noise_and_nothing_else_of_it_changes(project: Project) -> None:
    project.marked()
    project.record()
    before = lines_without_noise(project)
    result = project.run("--npudump-calibrate=5")
    result.assert_outcomes(passed=1)
    result.stdout.fnmatch_lines(
        [
            "npudump: THIS RUN CALIBRATES*",
            "*calibrated with 5 members, varied: repeats, inputs, threads, optimisation; factor 5*",
            "*this run approves (--npudump-calibrate)",
        ]
    )
    assert head(project)["calibration"] == {
        "members": 5,
        "factor": 5,
        "varied": ["repeats", "inputs", "threads", "optimisation"],
    }
    assert head(project)["repeats"] == {"runs": 2}
    assert lines_without_noise(project) == before
    project.run().assert_outcomes(passed=1)


def test_recording_and_calibrating_go_together(project: Project) -> None:
    project.marked(body=project.body + NOTED)
    project.record("--npudump-calibrate=4")
    assert project.path.joinpath("ran").read_text("utf-8") == "xxxxx"
    assert head(project)["calibration"]["members"] == 4
    assert head(project)["repeats"] == {"runs": 2}


def test_a_golden_that_does_not_match_is_not_calibrated(project: Project) -> None:
    project.marked()
    project.record()
    before = project.golden.read_text("utf-8")
    project.model(change=0.5)
    project.run("--npudump-calibrate=3").assert_outcomes(failed=1)
    assert project.golden.read_text("utf-8") == before


def test_without_a_golden_there_is_nothing_to_calibrate(project: Project) -> None:
    project.marked()
    project.run("--npudump-calibrate=3").assert_outcomes(failed=1)


def test_a_test_whose_teardown_fails_calibrates_nothing(project: Project) -> None:
    project.marked()
    project.record()
    before = project.golden.read_text("utf-8")
    project.test_file(
        "@pytest.fixture\ndef bad():\n    yield\n    raise RuntimeError('no')\n\n"
        f"@pytest.mark.npu_dump\ndef test_small(npu_dump, bad):\n{project.body}"
    )
    project.run("--npudump-calibrate=3").assert_outcomes(failed=1, errors=1)
    assert project.golden.read_text("utf-8") == before
    assert not [*project.golden.parent.glob(".npudump-*")]


def test_noise_beyond_the_preset_is_allowed_from_then_on_and_the_report_says_so(project: Project) -> None:
    project.marked('preset="exact"')
    project.record("--npudump-calibrate=8")
    project.model(change=1e-8)
    project.run().assert_outcomes(passed=1)
    project.model(change=0.01)
    result = project.run()
    result.assert_outcomes(failed=1)
    wider = "have measured bounds wider than the preset's"
    result.stdout.fnmatch_lines(
        [f"measured:   * of the * tensors that strayed {wider} (*8 members, factor 5)", f"*tensors {wider}*"]
    )


@pytest.mark.parametrize(("preset", "change"), [("om-net", 4e-5), ("same", 1e-6)])
def test_a_change_that_passes_is_no_noise_and_widens_no_bound(
    project: Project, preset: str, change: float
) -> None:
    project.marked()
    project.record()
    project.model(change=change)
    result = project.run(f"--npudump-preset={preset}", "--npudump-calibrate=8")
    result.assert_outcomes(passed=1)
    words = (
        "tensors changed within tolerance (first block/conv.2:output.0): the measured bounds allow for none"
    )
    result.stdout.fnmatch_lines([f"*measured around this run, in which * {words} of that change*"])
    project.model(change=3 * change)
    project.run().assert_outcomes(failed=1)


def test_noise_within_the_preset_s_bounds_is_counted_as_no_bound(project: Project) -> None:
    project.marked()
    project.record("--npudump-calibrate=8")
    measured = calibrated_of(read_golden(project.golden))
    assert measured is not None
    assert measured.noise
    assert measured.factor * max(max(found.largest) for found in measured.noise.values()) < 5e-6
    result = project.run()
    result.assert_outcomes(passed=1)
    result.stdout.no_fnmatch_line("*measured bounds*")
    under_exact = project.run("--npudump-preset=exact")
    under_exact.stdout.fnmatch_lines([f"*, {len(measured.noise)} tensors have measured bounds wider than *"])


def test_members_that_stray_alone_fail_the_calibration_and_name_the_layers(project: Project) -> None:
    project.marked()
    project.record()
    before = project.golden.read_text("utf-8")
    project.wavering(0.5, "next(COUNT) == 2")
    result = project.run("--npudump-calibrate=5")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(
        ["*not calibrated: bounds made from all members but one*Most sensitive: *strays by*"]
    )
    assert project.golden.read_text("utf-8") == before


def test_a_state_that_a_perturbed_model_has_made_is_no_data_of_the_test(project: Project) -> None:
    project.test_file(
        """
        @pytest.mark.npu_dump(layers=["head/softmax"])
        def test_small(npu_dump):
            image = np.linspace(-1, 1, 64, dtype=np.float32).reshape(1, 1, 8, 8)
            with npu_dump.load_model("small.onnx") as model:
                (out,) = model.run(image)
                model.run(image + 1e4 * (out.sum(dtype=np.float64) - out.size / 2).astype(np.float32))
        """
    )
    project.run("--npudump-update-golden", "--npudump-calibrate=6").assert_outcomes(passed=1)


def test_a_test_that_feeds_one_member_other_values_is_not_calibrated(project: Project) -> None:
    for layers in ("", 'layers=["head/softmax"]'):
        project.test_file(
            f"""
            import itertools
            COUNT = itertools.count(1)

            @pytest.mark.npu_dump({layers})
            def test_small(npu_dump):
                image = np.linspace(-1, 1, 64, dtype=np.float32).reshape(1, 1, 8, 8)
                image[0, 0, 0, 0] += 0.5 * (next(COUNT) == 4)
                with npu_dump.load_model("small.onnx") as model:
                    model.run(image)
            """
        )
        result = project.run("--npudump-update-golden", "--npudump-calibrate=5")
        result.assert_outcomes(failed=1)
        result.stdout.fnmatch_lines(["*not calibrated: the test feeds its model other values*: image; *"])
        assert not [*project.path.glob("golden/**/*.yaml")]


def test_inputs_that_are_integers_are_named_as_not_perturbed(project: Project) -> None:
    project.test_file(INTEGERS)
    result = project.run("--npudump-update-golden", "--npudump-calibrate=3")
    result.assert_outcomes(passed=1)
    result.stdout.fnmatch_lines(["*not perturbed, as they hold no floating-point values: inputs ids*"])


@pytest.mark.e2e
def test_an_isolated_test_is_calibrated_in_processes_of_their_own(project: Project) -> None:
    project.marked('isolation="process"')
    project.record("--npudump-calibrate=3")
    assert head(project)["calibration"]["varied"] == ["repeats", "inputs", "threads", "optimisation"]
    project.run().assert_outcomes(passed=1)


def test_an_update_keeps_the_calibration_of_unchanged_values_and_drops_any_other(project: Project) -> None:
    project.marked()
    project.record("--npudump-calibrate=4")
    calibrated = project.golden.read_text("utf-8")
    project.record()
    assert project.golden.read_text("utf-8") == calibrated
    project.model(change=0.5)
    result = project.run("--npudump-update-golden")
    result.stdout.fnmatch_lines(["*the calibration of the golden that was there is dropped*"])
    assert "calibration" not in head(project)


def test_a_calibration_of_what_does_not_repeat_says_both(project: Project) -> None:
    project.wavering(1e-3)
    project.record("--npudump-calibrate=6")
    assert head(project)["repeats"]["not_deterministic"]
    assert head(project)["calibration"]["members"] == 6


@pytest.mark.parametrize("number", ["0.5", "2", "x"])
def test_too_few_members_are_refused(project: Project, number: str) -> None:
    project.marked()
    result = project.run(f"--npudump-calibrate={number}")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["*--npudump-calibrate is*expected a number of runs, 3 or more*"])


def test_calibrating_is_refused_under_ci_and_as_a_standing_setting(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    project.marked()
    with monkeypatch.context() as patch:
        patch.setenv("CI", "true")
        refused = project.run("--npudump-calibrate=3")
    assert refused.ret == pytest.ExitCode.USAGE_ERROR
    refused.stderr.fnmatch_lines(["*--npudump-calibrate is refused because the variable CI is set*"])
    monkeypatch.setenv("PYTEST_ADDOPTS", "--npudump-calibrate=3")
    standing = project.run()
    assert standing.ret == pytest.ExitCode.USAGE_ERROR
    standing.stderr.fnmatch_lines(["*--npudump-calibrate in the variable PYTEST_ADDOPTS*"])


def as_tensors(project: Project) -> Path:
    """Have the test that is there dump tensors, of which goldens have projections."""
    source = project.path.joinpath("test_small.py")
    text = source.read_text("utf-8")
    source.write_text(text.replace("npu_dump\n", 'npu_dump(dump_data="tensor")\n', 1), "utf-8")
    return source


def cells(project: Project) -> list[str]:
    return [line.split()[-1] for line in head(project)["tensors"].splitlines()]


def test_projections_are_measured_where_tensors_are_dumped(project: Project) -> None:
    project.marked('dump_data="tensor"')
    project.record()
    assert "projections: |" in project.golden.read_text("utf-8")
    project.run("--npudump-calibrate=9").assert_outcomes(passed=1)
    assert any(cell.count(",") == 4 for cell in cells(project))
    assert "projections: |" in project.golden.read_text("utf-8")
    project.run().assert_outcomes(passed=1)


def test_noise_of_projections_fails_a_run_only_where_it_was_not_measured(project: Project) -> None:
    project.wavering(1e-3)
    source = as_tensors(project)
    project.record("--npudump-calibrate=6")
    assert any(cell.startswith("~") and cell.count(",") == 4 for cell in cells(project))
    source.write_text(source.read_text("utf-8").replace("itertools.count()", "itertools.count(1)"), "utf-8")
    project.run().assert_outcomes(passed=1)
    text = project.golden.read_text("utf-8")
    without = re.sub(r"( ~\S+,\S+,\S+,\S+),\S+$", r"\1", text, flags=re.MULTILINE)
    assert without != text
    project.golden.write_text(without, "utf-8")
    result = project.run()
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*its elements are off by an l2norm of roughly *(projections)*"])
