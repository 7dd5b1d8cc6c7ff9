"""Recording runs a test twice, a calibration more often: what differs is known from then on."""

from __future__ import annotations

import os
import re
import shutil
from pathlib import Path
from typing import Any

import pytest
import yaml
from onnx import helper

from tests.onnxmodels.models import onnx_model
from tests.plugin.conftest import Project, held

UPDATE = "--npudump-update-golden"
CALIBRATE = (f"{UPDATE}=calibrate", "-onpudump_calibration_runs=3")


@pytest.fixture(autouse=True)
def statistics(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    """Record statistics only: runs are counted here, and files of statistics edited."""
    monkeypatch.setenv("PYTEST_ADDOPTS", f"{os.environ['PYTEST_ADDOPTS']} -o npudump_auto_tensors=0")
    assert project.path.is_dir()


def head(project: Project) -> dict[str, Any]:
    document: dict[str, Any] = yaml.safe_load(project.golden.read_text("utf-8"))
    return document


def test_what_does_not_repeat_is_listed_with_its_spread_and_is_no_change(project: Project) -> None:
    project.wavering(1e-3)
    project.run(
        "--npudump-update-golden",
        passed=1,
        shows="*tensors differ between 2 equal runs*(first seen at: *",
    )
    lines = project.golden.read_text("utf-8").splitlines()
    assert any(line.split()[-1].startswith("~") for line in lines if "block/conv.2" in line)
    project.run("-onpudump_fail_on=change", passed=1)
    for _ in range(2):  # an odd and an even run, each by a process's own count
        project.wavering(1e-3)
        project.run("-onpudump_fail_on=change").assert_outcomes(passed=1)


def test_the_command_that_a_recording_names_has_a_noisy_test_pass(project: Project) -> None:
    project.wavering(0.01)
    shown = project.run(UPDATE, passed=1).stdout.str()
    (options,) = re.findall(r"measure its\s+tolerances\s+with\s+(\S+\s+\S+=calibrate)", shown)
    project.run(*options.split(), passed=1, shows="*this run updates goldens (*")
    project.wavering(0.01)
    project.run(passed=1)
    project.run(passed=1)


def test_the_command_that_an_acceptance_names_measures_a_noisy_test_anew(project: Project) -> None:
    """A calibration alone would fail: what is new has no noise that its tolerance could be of."""
    project.wavering(0.01)
    project.run(UPDATE, *CALIBRATE, passed=1)
    text = project.golden.read_text("utf-8")
    project.golden.write_text(
        text.replace("1x2x4x4", "1x2x4x5"), "utf-8"
    )  # of tensors that another shape had
    project.wavering(0.01)
    project.run("--npudump-output=out", failed=1)
    code, told, _ = project.command("golden", "accept", "--results", "out")
    assert code == 0
    assert "noise unknown for 2 of 5 tensors" in told
    options = re.findall(r"measured\s+anew\s+by\s+(--.*=calibrate)", told, re.DOTALL)
    project.wavering(0.01, "(next(COUNT) + 1) % 2")
    project.run(*options[0].split(), CALIBRATE[1], passed=1)
    project.run(passed=1)


def test_a_test_that_feeds_its_model_other_values_in_each_run_records_nothing(project: Project) -> None:
    project.test_file(
        """
        RNG = np.random.default_rng(0)

        @pytest.mark.npu_dump
        def test_small(npu_dump):
            run(npu_dump, RNG.normal(size=(1, 1, 8, 8)).astype(np.float32))
        """
    )
    words = "the test feeds its model other values in each run: image*"
    for options in ((UPDATE,), (UPDATE, *CALIBRATE)):
        project.run(*options, failed=1, shows=f"*nothing was recorded: *{words[9:]}")
        assert not [*project.path.glob("golden/**/*.yaml")]
    project.record("-onpudump_repeats=1")
    before = project.golden.read_text("utf-8")
    project.run(*CALIBRATE, failed=1, shows=f"*not calibrated: {words}")
    assert project.golden.read_text("utf-8") == before


def test_data_that_differ_are_seen_where_the_inputs_are_not_in_the_dump(project: Project) -> None:
    shuffled = """
        COUNT = iter(range(99))

        @pytest.mark.npu_dump({marker})
        def test_small(npu_dump):
            image = IMAGE
            with npu_dump.load_model("small.onnx") as model:
                model.run({runs})
        """
    rolled, layers = "np.roll(image, next(COUNT), axis=2)", 'layers=["block/conv.2"]'
    words = "the test feeds its model other values*: image; *"
    for marker in (layers, 'golden_tensors="block/conv.2"'):
        project.test_file(shuffled.format(marker=marker, runs=rolled))
        project.run(UPDATE, failed=1, shows=f"*nothing was recorded: {words.replace('*', ' in each run', 1)}")
        assert not [*project.path.glob("golden/**/*.yaml")]
    # One thread has an order: the same values in another one are other data.
    turned = "image * (number := next(COUNT) % 2)); model.run(image * (1 - number)"
    for runs in (turned, rolled):
        project.test_file(shuffled.format(marker=layers, runs=runs))
        project.record("-onpudump_repeats=1")
        before = project.golden.read_text("utf-8")
        project.run(UPDATE, *CALIBRATE, failed=1, shows=f"*not calibrated: {words}")
        assert project.golden.read_text("utf-8") == before
        project.golden.unlink()
    project.record("-onpudump_repeats=1")
    # A unit in the last place is noise, and what runs before the steps that are dumped is of no account.
    rounded = "image * np.float32(1 + 2**-23 * (next(COUNT) % 2))"
    first_step = f"{rolled})\n                model.run(image"
    for marker, runs in (("", rounded), ("acl_json={'dump_step': '1'}", first_step)):
        project.test_file(shuffled.format(marker=f"{layers}, {marker}", runs=runs))
        project.record(*CALIBRATE)


def test_the_first_change_is_shown_only_where_the_golden_is_known_to_repeat(project: Project) -> None:
    loose = 'tolerances=[{"layer": "block/conv.2", "rtol": 9, "atol": 9, "reason": "a trial"}]'
    project.recorded(loose, change=0.5)
    project.golden.write_text(project.golden.read_text("utf-8").partition("models:")[0], "utf-8")
    begins = "npudump: the change is traced to block/conv.2:output.0 (within tolerance, *); first mismatch: *"
    words = "changed:    block/conv.2:output.0 is the first*"
    project.run("-v", failed=1, shows=[begins, words])
    text = project.golden.read_text("utf-8")
    project.golden.write_text(text.replace("repeats: {runs: 2}\n", ""), "utf-8")
    project.run("-v", failed=1, hides="changed:    *")


def test_a_test_that_cannot_run_again_is_recorded_from_one_run_with_a_note(project: Project) -> None:
    """Runs with other tensors record nothing."""
    project.marked(body=f"{project.body}    from pathlib import Path\n    Path('ran').mkdir()\n")
    words = "*unknown whether the test is deterministic: body of the second run: FileExists*"
    project.run(UPDATE, passed=1, shows=words)
    assert head(project)["repeats"] == {"runs": 1}
    project.golden.unlink()
    project.test_file(
        """
        RUNS = []

        @pytest.mark.npu_dump
        def test_small(npu_dump):
            RUNS.append(1)
            with npu_dump.load_model("small.onnx") as model:
                for _ in RUNS:
                    model.run(np.zeros((1, 1, 8, 8), np.float32))
        """
    )
    words = "*nothing was recorded: run 2 has other tensors than the first: *"
    project.run(UPDATE, failed=1, shows=words)
    assert not [*project.path.glob("golden/**/*.yaml")]


def test_fixtures_are_set_up_anew_for_each_of_as_many_runs_as_are_asked_for(project: Project) -> None:
    source = """
        @pytest.fixture
        def model(npu_dump):
            with open("set-up", "a") as file:
                file.write("x")
            with npu_dump.load_model("small.onnx") as model:
                yield model
            with open("torn-down", "a") as file:
                file.write("x")

        @pytest.mark.npu_dump({marker})
        def test_small(model):
            model.run(np.zeros((1, 1, 8, 8), np.float32))
        """
    tensors = "golden_tensors=['block/conv.2']"
    for marker, options, runs in (
        ("", (), 2),
        ("", ("-onpudump_repeats=1",), 1),
        ("repeats=4", (), 4),
        (tensors, (), 2),
    ):
        project.test_file(source.format(marker=marker))
        project.record(*options)
        assert head(project)["repeats"] == {"runs": runs}
        assert "noise" not in head(project)["columns"]
        for name in ("set-up", "torn-down"):
            assert project.path.joinpath(name).read_text("utf-8") == "x" * runs
            project.path.joinpath(name).unlink()
        project.golden.unlink()
    project.refused("*npudump_repeats is*expected a number of runs, 1 or more*", "-onpudump_repeats=0")


def lines_without_noise(project: Project) -> list[str]:
    """The golden's table without what a calibration adds."""
    document = head(project)
    cells = [line.split() for line in document["tensors"].splitlines()]
    with_noise = document["columns"].endswith(" noise")
    return [" ".join(row[:-1] if with_noise else row) for row in cells]


def test_a_golden_that_matches_learns_its_noise_and_nothing_else_of_it_changes(project: Project) -> None:
    project.recorded()
    before, varied = lines_without_noise(project), ["repeats", "inputs", "threads", "optimisation"]
    shows = [
        "npudump: --npudump-update-golden=calibrate: this run measures noise*",
        f"*calibrated with 5 members, varied: {', '.join(varied)}; factor 5*",
        "*this run updates goldens (--npudump-update-golden=calibrate)",
    ]
    project.run(CALIBRATE[0], "-onpudump_calibration_runs=5", passed=1, shows=shows)
    assert head(project)["calibration"] == {"members": 5, "factor": 5, "varied": varied}
    assert head(project)["repeats"] == {"runs": 2}
    assert lines_without_noise(project) == before
    project.run(passed=1)


def test_a_golden_that_does_not_match_is_not_calibrated(project: Project) -> None:
    """Nor one of a test whose teardown fails."""
    project.recorded()
    before = project.golden.read_text("utf-8")
    project.model(change=0.5)
    project.run(*CALIBRATE, failed=1)
    assert project.golden.read_text("utf-8") == before
    project.model()
    fixture = "@pytest.fixture\ndef bad():\n    yield\n    raise RuntimeError('no')\n\n"
    project.test_file(f"{fixture}@pytest.mark.npu_dump\ndef test_small(npu_dump, bad):\n{project.body}")
    project.run(*CALIBRATE, failed=1, errors=1)
    assert project.golden.read_text("utf-8") == before
    assert not [*project.golden.parent.glob(".npudump-*")]


def test_noise_beyond_the_preset_is_allowed_from_then_on_and_the_report_says_so(project: Project) -> None:
    project.marked('preset="exact"')
    project.record(CALIBRATE[0], "-onpudump_calibration_runs=8")
    project.model(change=1e-8)
    project.run(passed=1)
    project.model(change=0.01)
    wider = "have measured tolerances wider than the preset's"
    shows = [
        f"measured:   * of * tensors with noise {wider} (*8 members, factor 5)",
        "npudump: 2 tensors have measured tolerances wider *",
    ]
    project.run(failed=1, shows=shows)


def test_members_that_stray_alone_fail_the_calibration_and_name_the_layers(project: Project) -> None:
    """A test that feeds one member other values is not calibrated."""
    project.recorded()
    before = project.golden.read_text("utf-8")
    project.wavering(0.5, "next(COUNT) == 2")
    words = "*not calibrated: bounds made from all members but one*Most sensitive: *differs by*"
    project.run(CALIBRATE[0], "-onpudump_calibration_runs=5", failed=1, shows=words)
    assert project.golden.read_text("utf-8") == before
    project.golden.unlink()
    for layers in ("", 'layers=["head/softmax"]'):
        project.test_file(
            f"""
            RUNS = []

            @pytest.mark.npu_dump({layers})
            def test_small(npu_dump):
                RUNS.append(1)
                image = IMAGE.copy()
                image[0, 0, 0, 0] += 0.5 * (len(RUNS) == 4)
                run(npu_dump, image)
            """
        )
        words = "*not calibrated: the test feeds its model other values*: image; *"
        project.run(UPDATE, CALIBRATE[0], "-onpudump_calibration_runs=5", failed=1, shows=words)
        assert not [*project.path.glob("golden/**/*.yaml")]


def test_a_state_that_a_perturbed_model_has_made_is_no_data_of_the_test(project: Project) -> None:
    body = """
    with npu_dump.load_model("small.onnx") as model:
        (out,) = model.run(IMAGE)
        model.run(IMAGE + 1e4 * (out.sum(dtype=np.float64) - out.size / 2).astype(np.float32))
"""
    project.marked('layers=["head/softmax"]', body)
    project.run(UPDATE, CALIBRATE[0], "-onpudump_calibration_runs=6", passed=1)


def test_an_update_keeps_the_calibration_of_unchanged_values_and_drops_any_other(project: Project) -> None:
    project.marked()
    project.record(CALIBRATE[0], "-onpudump_calibration_runs=4")
    calibrated = project.golden.read_text("utf-8")
    project.record()
    assert project.golden.read_text("utf-8") == calibrated
    project.model(change=0.5)
    project.run(UPDATE, shows="*the calibration of the previous golden was removed*")
    assert "calibration" not in head(project)


def as_tensors(project: Project) -> Path:
    """Have the test that is there dump tensors, of which goldens have projections."""
    source = project.path.joinpath("test_small.py")
    text = source.read_text("utf-8")
    source.write_text(text.replace("npu_dump\n", 'npu_dump(acl_json={"dump_data": "tensor"})\n', 1), "utf-8")
    return source


def cells(project: Project) -> list[str]:
    return [line.split()[-1] for line in head(project)["tensors"].splitlines()]


def test_noise_of_projections_fails_a_run_only_where_it_was_not_measured(project: Project) -> None:
    project.wavering(1e-3)
    source = as_tensors(project)
    project.record("--npudump-update-golden=calibrate", "-onpudump_calibration_runs=6")
    assert any(cell.startswith("~") and cell.count(",") == 4 for cell in cells(project))
    source.write_text(source.read_text("utf-8").replace("itertools.count()", "itertools.count(1)"), "utf-8")
    project.run().assert_outcomes(passed=1)
    text = project.golden.read_text("utf-8")
    without = re.sub(r"( ~\S+,\S+,\S+,\S+),\S+$", r"\1", text, flags=re.MULTILINE)
    assert without != text
    project.golden.write_text(without, "utf-8")
    project.run(failed=1, shows="npudump: * l2norm of the difference about *, estimated from projections*")


def test_a_change_that_passes_is_no_noise_and_widens_no_bound(project: Project) -> None:
    for preset, change in (("om-net", 4e-5), ("same", 1e-6)):
        project.recorded(change=change)
        words = "(*, first block/conv.2:output.0): the measured bounds allow for no such change*"
        shows = f"*measured around this run, in which tensors changed within tolerance {words}"
        project.run(
            f"-onpudump_preset={preset}",
            "--npudump-update-golden=calibrate",
            "-onpudump_calibration_runs=8",
            passed=1,
            shows=shows,
        )
        project.model(change=3 * change)
        project.run("-onpudump_escalate=off", failed=1)
        project.golden.unlink()
        project.model()


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
    model = onnx_model(nodes, {"x": [2, 8]}, {"y": [2, 8]}, name="noisy")
    (project.path / "small.onnx").write_bytes(model.SerializeToString())
    project.marked(marker, body=BODY)


def new_process(project: Project, *options: str) -> pytest.RunResult:
    """Run the project in a new process, which has another seed."""
    return project.pytester.runpytest_subprocess("--npudump-runtime=emulator", *options)


def test_recording_notes_it_and_the_failure_of_another_process_says_it(project: Project) -> None:
    """One with a seed is like any other; golden tensors are not recorded from two runs of a process."""
    noisy(project, 'golden_tensors=["net/add"]', seed=3.0)
    held(new_process(project, UPDATE), hides="*random*", passed=1)
    new_process(project).assert_outcomes(passed=1)
    project.golden.unlink()
    noisy(project)
    words = "npudump: note: *: net/noise (RandomNormalLike) draws random numbers: *"
    held(new_process(project, UPDATE), words)
    shows = [
        "*; it draws random numbers, which differ in every process unless it has a seed*",
        "second run: reproduced, as the runs of one process draw the same random numbers; *",
    ]
    held(new_process(project), shows, hides="second run: reproduced;*", failed=1)
    shutil.rmtree(project.path / "golden")
    noisy(project, 'golden_tensors=["net/add"], layers=["net/add"]')
    words = "npudump: nothing was recorded: net/noise (RandomNormalLike) draws random *, maybe from a seed *"
    held(new_process(project, UPDATE), words, failed=1)
    assert not (project.path / "golden").exists()


@pytest.mark.e2e
def test_second_process_finds_out_whether_it_is_reproduced(project: Project) -> None:
    noisy(project, 'isolation="process"')
    held(new_process(project, UPDATE), passed=1)
    held(new_process(project), "second run: NOT REPRODUCED in 2 of 2 tensors: 2 out of *")
