"""Recording runs a test twice: what differs between the runs is known from then on."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import onnx
import pytest
import yaml

if TYPE_CHECKING:
    from conftest import Project

NOTED = """
    with open("ran", "a") as file:
        file.write("x")
"""


def head(project: Project) -> dict[str, Any]:
    document: dict[str, Any] = yaml.safe_load(project.golden.read_text("utf-8"))
    return document


def test_a_test_that_repeats_says_so_and_its_golden_has_no_column_of_noise(project: Project) -> None:
    project.marked()
    project.record()
    assert head(project)["repeats"] == {"runs": 2}
    assert "noise" not in head(project)["columns"]
    project.run().assert_outcomes(passed=1)


def test_one_run_saves_the_time_and_the_golden_does_not_know_whether_it_repeats(project: Project) -> None:
    project.marked(body=project.body + NOTED)
    project.record("--npudump-repeats=1")
    assert project.path.joinpath("ran").read_text("utf-8") == "x"
    assert head(project)["repeats"] == {"runs": 1}


def test_the_marker_says_how_often_a_test_runs_where_it_is_recorded(project: Project) -> None:
    project.marked("repeats=4", body=project.body + NOTED)
    project.record()
    assert project.path.joinpath("ran").read_text("utf-8") == "xxxx"
    assert head(project)["repeats"] == {"runs": 4}
    project.run().assert_outcomes(passed=1)
    assert project.path.joinpath("ran").read_text("utf-8") == "xxxxx"


def test_fixtures_are_set_up_anew_for_each_recording_run(project: Project) -> None:
    project.test_file(
        """
        @pytest.fixture
        def model(npu_dump):
            with open("set-up", "a") as file:
                file.write("x")
            with npu_dump.load_model("small.onnx") as model:
                yield model
            with open("torn-down", "a") as file:
                file.write("x")

        @pytest.mark.npu_dump
        def test_small(model):
            model.run(np.zeros((1, 1, 8, 8), np.float32))
        """
    )
    project.record()
    assert project.path.joinpath("set-up").read_text("utf-8") == "xx"
    assert project.path.joinpath("torn-down").read_text("utf-8") == "xx"


def test_an_operator_behind_an_unstable_one_is_not_called_unstable(project: Project) -> None:
    """What the first multiplies by has another last bit in each run, which six digits do not show."""
    value = onnx.helper.make_tensor_value_info
    nodes = [
        onnx.helper.make_node("Mul", ["image", "one"], ["a"], "unstable"),
        onnx.helper.make_node("Sub", ["a", "one"], ["out"], "sub"),
    ]
    ports = [value("image", 1, [4])], [value("out", 1, [4])]
    one = [onnx.numpy_helper.from_array(np.ones(1, np.float32), "one")]
    graph = onnx.helper.make_graph(nodes, "small", *ports, one)
    opset = [onnx.helper.make_opsetid("", 17)]
    onnx.save(onnx.helper.make_model(graph, opset_imports=opset, ir_version=8), project.path / "small.onnx")
    project.test_file(
        """
        import itertools
        from pytest_npudump.emulator import faults

        RUN = itertools.count(1)

        @pytest.mark.npu_dump
        def test_small(npu_dump):
            faults.distort("small", "unstable", factor=1 + next(RUN) * 2.0**-23)
            with npu_dump.load_model("small.onnx") as model:
                model.run(np.ones(4, np.float32))
        """
    )
    result = project.run("--npudump-update-golden")
    result.stdout.fnmatch_lines(["*2 runs alike* (first seen at: sub): *"])
    result.stdout.no_fnmatch_line("*not deterministic*")


def test_what_does_not_repeat_is_listed_with_its_spread_and_is_no_change(project: Project) -> None:
    project.wavering(1e-3)
    result = project.run("--npudump-update-golden")
    result.assert_outcomes(passed=1)
    result.stdout.fnmatch_lines(["*tensors are not the same in 2 runs alike*(first seen at: *"])
    lines = project.golden.read_text("utf-8").splitlines()
    assert any(line.split()[-1].startswith("~") for line in lines if "block/conv.2" in line)
    passes = project.run("--npudump-fail-on=change")
    passes.assert_outcomes(passed=1)
    for _ in range(2):  # an odd and an even run, each by a process's own count
        project.wavering(1e-3)
        project.run("--npudump-fail-on=change").assert_outcomes(passed=1)


def test_a_test_that_feeds_its_model_other_values_in_each_run_records_nothing(project: Project) -> None:
    project.test_file(
        """
        RNG = np.random.default_rng(0)

        @pytest.mark.npu_dump
        def test_small(npu_dump):
            with npu_dump.load_model("small.onnx") as model:
                model.run(RNG.normal(size=(1, 1, 8, 8)).astype(np.float32))
        """
    )
    for option in ("--npudump-update-golden", "--npudump-update-golden --npudump-calibrate=3"):
        result = project.run(*option.split())
        result.assert_outcomes(failed=1)
        result.stdout.fnmatch_lines(
            ["*nothing was recorded: *feeds its model other values in each run: image*"]
        )
        assert not [*project.path.glob("golden/**/*.yaml")]
    project.record("--npudump-repeats=1")
    before = project.golden.read_text("utf-8")
    result = project.run("--npudump-calibrate=3")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(
        ["*not calibrated: the test feeds its model other values in each run: image*"]
    )
    assert project.golden.read_text("utf-8") == before


def test_data_that_differ_are_seen_where_the_inputs_are_not_in_the_dump(project: Project) -> None:
    shuffled = """
        COUNT = iter(range(99))

        @pytest.mark.npu_dump({marker})
        def test_small(npu_dump):
            image = np.linspace(-1, 1, 64, dtype=np.float32).reshape(1, 1, 8, 8)
            with npu_dump.load_model("small.onnx") as model:
                model.run({runs})
        """
    rolled = "np.roll(image, next(COUNT), axis=2)"
    for marker in ('layers=["block/conv.2"]', 'golden_tensors="block/conv.2"'):
        project.test_file(shuffled.format(marker=marker, runs=rolled))
        result = project.run("--npudump-update-golden")
        result.assert_outcomes(failed=1)
        result.stdout.fnmatch_lines(
            ["*nothing was recorded: the test feeds its model other values in each run: image; *"]
        )
        assert not [*project.path.glob("golden/**/*.yaml")]
    # One thread has an order: the same values in another one are other data.
    turned = "image * (number := next(COUNT) % 2)); model.run(image * (1 - number)"
    project.test_file(shuffled.format(marker='layers=["block/conv.2"]', runs=turned))
    project.record("--npudump-repeats=1")
    result = project.run("--npudump-update-golden", "--npudump-calibrate=3")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*not calibrated: the test feeds its model other values*: image; *"])
    project.golden.unlink()
    project.test_file(shuffled.format(marker='layers=["block/conv.2"]', runs=rolled))
    project.record("--npudump-repeats=1")
    before = project.golden.read_text("utf-8")
    result = project.run("--npudump-update-golden", "--npudump-calibrate=3")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*not calibrated: the test feeds its model other values*: image; *"])
    assert project.golden.read_text("utf-8") == before
    # A unit in the last place is noise, and what runs before the steps that are dumped is of no account.
    rounded = "image * np.float32(1 + 2**-23 * (next(COUNT) % 2))"
    first_step = f"{rolled})\n                model.run(image"
    for marker, runs in (("", rounded), ("dump_step='1'", first_step)):
        layers = f'layers=["block/conv.2"], {marker}'
        project.test_file(shuffled.format(marker=layers, runs=runs))
        project.record("--npudump-calibrate=3")


def test_noise_that_was_recorded_hides_no_larger_difference(project: Project) -> None:
    project.wavering(1e-4)
    project.record()
    project.model(change=0.05)
    project.run().assert_outcomes(failed=1)


def test_the_first_change_is_shown_only_where_the_golden_is_known_to_repeat(project: Project) -> None:
    loose = 'tolerances=[{"layer": "block/conv.2", "rtol": 9, "atol": 9, "reason": "a trial"}]'
    project.marked(loose)
    project.record()
    project.model(change=0.5)
    project.run().stdout.fnmatch_lines(["changed:    block/conv.2:output.0 is the first*"])
    text = project.golden.read_text("utf-8")
    project.golden.write_text(text.replace("repeats: {runs: 2}\n", ""), "utf-8")
    result = project.run()
    result.assert_outcomes(failed=1)
    result.stdout.no_fnmatch_line("changed:    *")


def test_a_test_that_cannot_run_again_is_recorded_from_one_run_with_a_note(project: Project) -> None:
    body = f"{project.body}    from pathlib import Path\n    Path('ran').mkdir()\n"
    project.marked(body=body)
    result = project.run("--npudump-update-golden")
    result.assert_outcomes(passed=1)
    result.stdout.fnmatch_lines(
        ["*does not know whether the test repeats: body of the second run: FileExists*"]
    )
    assert head(project)["repeats"] == {"runs": 1}


def test_runs_with_other_tensors_record_nothing(project: Project) -> None:
    project.test_file(
        """
        import itertools
        COUNT = itertools.count(1)

        @pytest.mark.npu_dump
        def test_small(npu_dump):
            with npu_dump.load_model("small.onnx") as model:
                for _ in range(next(COUNT)):
                    model.run(np.zeros((1, 1, 8, 8), np.float32))
        """
    )
    result = project.run("--npudump-update-golden")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*nothing was recorded: run 2 has other tensors than the first: *"])
    assert not [*project.path.glob("golden/**/*.yaml")]


@pytest.mark.e2e
def test_an_isolated_test_runs_twice_in_processes_of_their_own(project: Project) -> None:
    project.marked('isolation="process"', body=project.body + NOTED)
    project.record()
    assert project.path.joinpath("ran").read_text("utf-8") == "xx"
    assert head(project)["repeats"] == {"runs": 2}
    project.run().assert_outcomes(passed=1)


def test_the_run_that_records_golden_tensors_shows_whether_all_tensors_repeat(project: Project) -> None:
    body = project.body + NOTED
    project.marked('golden_tensors=["block/conv.2"]', body=body)
    project.record()
    assert project.path.joinpath("ran").read_text("utf-8") == "xx"
    assert head(project)["repeats"] == {"runs": 2}


def test_a_test_that_may_fail_runs_once_and_records_nothing(project: Project) -> None:
    project.test_file("@pytest.mark.xfail\n@pytest.mark.npu_dump\ndef test_small(npu_dump):\n" + project.body)
    result = project.run("--npudump-update-golden")
    result.assert_outcomes(xpassed=1)
    assert not [*project.path.joinpath("golden").rglob("*.yaml")]
    result.stdout.fnmatch_lines(["npudump: 0 of 1 tests good, 1 not recorded *"])


def test_an_update_of_a_golden_without_the_key_keeps_its_lines(project: Project) -> None:
    project.marked()
    project.record()
    before = project.golden.read_text("utf-8")
    old = before.replace("repeats: {runs: 2}\n", "")
    assert old != before
    project.golden.write_text(old, "utf-8")
    project.run().assert_outcomes(passed=1)
    project.record()
    after = project.golden.read_text("utf-8").splitlines()
    assert [line for line in after if line != "repeats: {runs: 2}"] == old.splitlines()
    assert len(after) == len(before.splitlines())


@pytest.mark.parametrize("repeats", ["0", "-1", "two", "1e3"])
def test_a_number_of_repeats_that_is_none_is_refused(project: Project, repeats: str) -> None:
    project.marked()
    result = project.run(f"--npudump-repeats={repeats}")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["*--npudump-repeats is*expected a number of runs, 1 or more*"])


def test_a_golden_whose_key_is_damaged_fails_with_the_way_out(project: Project) -> None:
    project.marked()
    project.record()
    text = project.golden.read_text("utf-8")
    project.golden.write_text(text.replace("{runs: 2}", "{runs: many}"), "utf-8")
    result = project.run()
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*repeats is {'runs': 'many'}, expected a mapping*approve anew*"])
