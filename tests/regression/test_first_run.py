"""What becomes of a first run, by samples of CANN's own dump code."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from pytest_npudump.dump.table import PROJECTIONS
from pytest_npudump.regression import result as status
from tests.regression.conftest import BOTH, HEALTHY, PRINTED, REGRESSED, Flow, float16_at_end

if TYPE_CHECKING:
    from pathlib import Path


def _file(dump: Path, name: str) -> Path:
    (path,) = [path for path in dump.rglob("*") if f".{name}." in path.name]
    return path


def _cut(dump: Path) -> None:
    os.truncate(_file(dump, "net_MatMul@0"), 100)


def _mirrored(dump: Path) -> None:
    """Turn the order of an operator's 32 outputs round: no statistic changes."""
    path = _file(dump, "net_Conv@19")
    content = path.read_bytes()
    path.write_bytes(content[:-64] + np.frombuffer(content[-64:], np.float16)[::-1].tobytes())


def test_a_run_that_is_as_its_golden_says_passes(flow: Flow) -> None:
    flow.record()
    outcome = flow.first(flow.case(), HEALTHY)
    assert (outcome.status, outcome.problems, outcome.tensors) == (status.PASSED, (), 9)


def test_a_changed_weight_fails_and_names_the_first_operator_that_differs(flow: Flow) -> None:
    assert not np.array_equal(
        float16_at_end(HEALTHY, "net/MatMul@0", 2), float16_at_end(REGRESSED, "net/MatMul@0", 2)
    )
    flow.record()
    outcome = flow.first(flow.case(), REGRESSED)
    assert (outcome.status, outcome.good) == (status.FAILED, False)
    assert outcome.comparison is not None
    assert outcome.comparison.first is not None
    assert outcome.comparison.first.key.layer == "net/MatMul@0"
    assert {verdict.key.layer for verdict in outcome.comparison.failing} == {"net/MatMul@0", "net/Softmax@0"}


def test_what_only_one_of_golden_and_run_has_fails(flow: Flow) -> None:
    flow.record(layers=())
    comparison = flow.first(flow.case(layers=()), REGRESSED).comparison
    assert comparison is not None
    told = {(verdict.key.layer, verdict.status) for verdict in comparison.failing}
    assert ("net/Conv@13", "missing") in told
    assert ("net/Conv@22", "extra") in told


def test_no_golden_is_a_failure_that_names_the_file(flow: Flow) -> None:
    outcome = flow.first(flow.case(), HEALTHY)
    assert outcome.status == status.MISSING_GOLDEN
    assert str(flow.golden) in outcome.problems[0]


def test_a_recording_counts_once_it_is_committed(flow: Flow) -> None:
    outcome = flow.first(flow.case(update_golden="all"), HEALTHY)
    assert (outcome.status, flow.golden.exists()) == (status.RECORDED, False)
    assert outcome.recording is not None
    outcome.recording.commit()
    assert flow.golden.exists()


def test_a_recording_that_is_discarded_leaves_the_golden_as_it_was(flow: Flow) -> None:
    flow.record()
    before = flow.golden.read_bytes()
    outcome = flow.first(flow.case(update_golden="all"), REGRESSED)
    assert outcome.status == status.RECORDED
    assert outcome.recording is not None
    outcome.recording.discard()
    assert flow.golden.read_bytes() == before
    assert [path.name for path in flow.golden.parent.iterdir() if path.suffix != ".lock"] == ["test.yaml"]


def test_an_update_with_the_same_values_is_unchanged(flow: Flow) -> None:
    flow.record()
    before = flow.golden.stat().st_mtime_ns, flow.golden.stat().st_ino
    flow.record()
    assert (flow.golden.stat().st_mtime_ns, flow.golden.stat().st_ino) == before
    assert flow.first(flow.case(update_golden="all"), HEALTHY).status == status.UNCHANGED


@pytest.mark.parametrize("update", ["", "all"])
def test_a_layer_that_the_dump_has_not_is_a_problem_with_a_suggestion(flow: Flow, update: bool) -> None:  # noqa: FBT001 - a parameter
    flow.record()
    case = flow.case(layers=(*BOTH, "net/Softmaxx@0"), update_golden=update)
    outcome = flow.first(case, HEALTHY)
    assert not outcome.good
    (problem,) = [problem for problem in outcome.problems if "net/Softmaxx@0" in problem]
    assert "net/Softmax@0" in problem.split(";")[1]


def test_a_dump_with_none_of_the_layers_is_an_error(flow: Flow) -> None:
    outcome = flow.first(flow.case(layers=("net/Nothing",)), HEALTHY)
    assert outcome.status == status.ERROR
    assert "has none of the layers that the marker names ('net/Nothing')" in outcome.problems[0]


@pytest.mark.parametrize("update", ["", "all"])
def test_an_empty_dump_is_an_error_that_names_the_likely_cause(flow: Flow, update: bool) -> None:  # noqa: FBT001 - a parameter
    flow.record()
    flow.runtime.activity.initialised = False
    empty = flow.folder / "empty"
    empty.mkdir()
    outcome = flow.first(flow.case(layers=(), update_golden=update), empty)
    assert outcome.status == status.ERROR
    assert "the dump holds nothing" in outcome.problems[0]
    assert "ACL was never initialised" in outcome.problems[0]


@pytest.mark.parametrize("update", ["", "all"])
def test_a_file_that_was_cut_off_fails_and_is_named(flow: Flow, update: bool) -> None:  # noqa: FBT001 - a parameter
    flow.record()
    before = flow.golden.read_bytes()
    outcome = flow.first(flow.case(update_golden=update), HEALTHY, change=_cut)
    assert not outcome.good
    assert any("net_MatMul@0" in problem for problem in outcome.problems)
    assert (outcome.recording, flow.golden.read_bytes()) == (None, before)


def test_a_damaged_golden_is_an_error_and_an_update_replaces_it(flow: Flow) -> None:
    flow.record()
    text = flow.golden.read_text()
    flow.golden.write_text(text.replace("net/Softmax@0:output.0", "net/Softmax@0:output.0 x", 1))
    outcome = flow.first(flow.case(), HEALTHY)
    assert outcome.status == status.ERROR
    line = text[: text.index("net/Softmax@0:output.0")].count("\n") + 1
    assert f"test.yaml, line {line}" in outcome.problems[0]
    flow.record()
    assert flow.golden.read_text() == text


@pytest.mark.parametrize(
    ("before", "after", "message"),
    [
        (
            "test: test.py::test",
            "test: test.py::test_other",
            "test.yaml is the golden of 'test.py::test_other', this test is 'test.py::test': if it has",
        ),
        (
            "scene: model",
            "scene: op",
            "was recorded with scene 'op', this test asks for 'model': approve anew",
        ),
        (
            "dump_mode: output",
            "dump_mode: all",
            "was recorded with dump_mode 'all', this test asks for 'output': approve anew",
        ),
    ],
)
def test_a_golden_of_another_test_scene_or_mode_fails_and_an_update_mends_it(
    flow: Flow, before: str, after: str, message: str
) -> None:
    flow.record()
    approved = flow.golden.read_text()
    assert before in approved
    flow.golden.write_text(approved.replace(before, after))
    outcome = flow.first(flow.case(), HEALTHY)
    assert outcome.status == status.FAILED
    assert message in outcome.problems[0]
    flow.record()
    assert flow.golden.read_text() == approved


@pytest.mark.parametrize(
    ("lost", "named"),
    [(", scene: model", "scene"), (", scene: model, dump_mode: output", "scene and dump_mode")],
)
def test_a_golden_that_does_not_say_its_scene_or_mode_is_noted(flow: Flow, lost: str, named: str) -> None:
    flow.record()
    approved = flow.golden.read_text()
    assert lost in approved
    flow.golden.write_text(approved.replace(lost, ""))
    outcome = flow.first(flow.case(), HEALTHY)
    assert outcome.status == status.PASSED
    assert any(f"the golden does not say which {named} it was recorded with" in n for n in outcome.notes)


def test_what_ran_and_is_not_in_the_dump_fails_a_run_that_looks_whole(flow: Flow) -> None:
    flow.record()
    flow.runtime.activity.evidence.undumped.append("2 captured graphs were replayed")
    outcome = flow.first(flow.case(), HEALTHY)
    assert (outcome.status, outcome.problems) == (status.ERROR, ("2 captured graphs were replayed",))


def test_a_rule_of_the_marker_lets_a_difference_pass(flow: Flow) -> None:
    flow.record()
    rules = tuple({"layer": layer, "rtol": 1, "atol": 1, "reason": "other weights"} for layer in BOTH[2:])
    assert flow.first(flow.case(tolerances=rules), REGRESSED).status == status.PASSED


def test_a_rule_of_the_marker_that_matches_nothing_fails(flow: Flow) -> None:
    flow.record()
    outcome = flow.first(flow.case(tolerances=({"layer": "net/Nothing", "rtol": 0, "atol": 0},)), HEALTHY)
    assert outcome.status == status.FAILED
    assert "matches nothing this test dumped" in outcome.problems[0]


def test_a_run_on_another_chip_is_told_and_judged_by_the_bounds_for_that(flow: Flow) -> None:
    flow.record()
    flow.runtime.facts = {"runtime": "acl", "soc": "Ascend910B3"}
    outcome = flow.first(flow.case(), HEALTHY)
    assert outcome.status == status.PASSED
    assert outcome.environment["soc"] == ("Ascend310P3", "Ascend910B3")
    assert outcome.numerics is not None
    assert outcome.numerics.bounds == "other"


def test_elements_in_another_order_are_seen_by_projections_of_dumped_tensors(flow: Flow) -> None:
    flow.record()
    outcome = flow.first(flow.case(), HEALTHY, change=_mirrored)
    assert outcome.status == status.FAILED
    assert outcome.comparison is not None
    [verdict] = outcome.comparison.failing
    assert str(verdict.key) == "net/Conv@19:output.0"
    assert [reason.statistic for reason in verdict.reasons] == [PROJECTIONS]


def test_elements_in_another_order_fail_where_tensors_are_kept(flow: Flow) -> None:
    kept: dict[str, Any] = {"golden_tensors": ("net/Conv@19",)}
    flow.record(**kept)
    outcome = flow.first(flow.case(**kept), HEALTHY, change=_mirrored)
    assert outcome.status == status.FAILED
    assert outcome.comparison is not None
    assert [str(verdict.key) for verdict in outcome.comparison.failing] == ["net/Conv@19:output.0"]


def test_printed_statistics_are_judged_as_they_are_printed(flow: Flow) -> None:
    given: dict[str, Any] = {"layers": (), "dump_data": "stats"}
    flow.record(PRINTED, **given)
    assert flow.first(flow.case(**given), PRINTED).status == status.PASSED
    path = flow.golden
    path.write_text(path.read_text().replace("10.9219", "10.95", 1))
    outcome = flow.first(flow.case(**given), PRINTED)
    assert outcome.comparison is not None
    assert [reason.statistic for verdict in outcome.comparison.failing for reason in verdict.reasons] == [
        "max"
    ]
