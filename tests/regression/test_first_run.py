"""What becomes of a first run, by samples of CANN's own dump code."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pytest_npudump.dump.table import PROJECTIONS
from pytest_npudump.golden.store import read_golden, write_golden
from pytest_npudump.record.record import EDGES, Record
from pytest_npudump.regression import first_run, result as status
from pytest_npudump.regression.first_run import _why, judge_settled
from pytest_npudump.regression.result import Result
from tests.regression.conftest import BOTH, HEALTHY, PRINTED, REGRESSED, Flow, float16_at_end, run

KEPT: dict[str, Any] = {"golden_tensors": ("net/MatMul@0",)}
STATS: dict[str, Any] = {"layers": (), "dump_data": "stats"}
WIDE = {"rtol": 1, "atol": 1, "reason": "other weights"}
TIGHT = {"rtol": 0, "atol": 0}
HERE, ELSEWHERE = {"soc": "Ascend310P*"}, {"soc": "Ascend910B*"}


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


def failing(result: Result) -> set[tuple[str, str]]:
    assert result.comparison is not None
    return {(verdict.key.layer, verdict.status) for verdict in result.comparison.failing}


def result_of(flow: Flow, *rules: dict[str, Any], sample: Any = REGRESSED, **given: Any) -> Result:
    """Return what becomes of a run with these rules in its marker, the second run included."""
    session = flow.session(flow.case(tolerances=rules, **given), sample, sample)
    run(session)
    if session.wants_second_run:
        run(session)
    return session.result


def types_of(result: Result) -> set[str]:
    assert result.comparison is not None
    return {verdict.op_type for verdict in result.comparison.failing}


def test_a_run_that_is_as_its_golden_says_passes_unless_the_dump_lacks_what_ran(flow: Flow) -> None:
    flow.record()
    result = flow.first(flow.case(), HEALTHY)
    assert (result.status, result.problems, result.tensors) == (status.PASSED, (), 9)
    assert flow.first(flow.case(update_golden="all", ranks="same"), HEALTHY).recording is not None
    flow.runtime.facts = {"runtime": "acl", "soc": "Ascend910B3"}  # judged by the bounds for other numerics
    result = flow.first(flow.case(), HEALTHY)
    assert result.status == status.PASSED
    assert result.environment["soc"] == ("Ascend310P3", "Ascend910B3")
    assert result.numerics is not None
    assert result.numerics.bounds == "other"
    flow.runtime.activity.evidence.undumped.append("2 captured graphs were replayed")
    result = flow.first(flow.case(), HEALTHY)
    assert (result.status, result.problems) == (status.ERROR, ("2 captured graphs were replayed",))


def test_what_is_saved_of_a_run_has_edges_that_no_golden_has_and_raw_names(
    flow: Flow, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An acceptance makes a golden of it, without the models at hand."""

    def saved(sample: Path, **given: Any) -> Record:
        found = flow.first(flow.case(**given), sample).run.record
        assert found is not None
        return found

    with monkeypatch.context() as patched:
        patched.setattr(first_run, "edges_to_keep", lambda *_: ({EDGES: "a <- b\n"}, ()))
        assert saved(HEALTHY).blocks == {EDGES: "a <- b\n"}
    flow.record(layers=())
    monkeypatch.setattr(first_run, "edges_to_keep", lambda *_: ({EDGES: "a <- b\n"}, ()))
    assert saved(HEALTHY, layers=()).blocks == {}
    assert saved(REGRESSED, layers=()).blocks == {EDGES: "a <- b\n"}
    keys = saved(PRINTED, layers=("net/Add@0",), dump_data="stats").table.keys
    assert {key.partition(":")[0] for key in keys} == {"net/Add@0"}


def test_a_changed_weight_fails_and_names_the_first_operator_that_differs(flow: Flow) -> None:
    sides = (float16_at_end(sample, "net/MatMul@0", 2) for sample in (HEALTHY, REGRESSED))
    assert not np.array_equal(*sides)
    flow.record()
    result = flow.first(flow.case(), REGRESSED)
    assert (result.status, result.good) == (status.FAILED, False)
    assert result.comparison is not None
    assert result.comparison.first is not None
    assert result.comparison.first.key.layer == "net/MatMul@0"
    assert failing(result) == {("net/MatMul@0", "fail"), ("net/Softmax@0", "fail")}
    flow.record(layers=())
    told = failing(flow.first(flow.case(layers=()), REGRESSED))
    assert {("net/Conv@13", "missing"), ("net/Conv@22", "extra")} <= told


def test_a_recording_counts_once_it_is_committed_and_leaves_nothing_if_discarded(flow: Flow) -> None:
    missing = flow.first(flow.case(), HEALTHY)
    assert (missing.status, str(flow.golden) in missing.problems[0]) == (status.MISSING_GOLDEN, True)
    recorded = flow.first(flow.case(update_golden="all"), HEALTHY)
    assert (recorded.status, flow.golden.exists()) == (status.RECORDED, False)
    assert recorded.recording is not None
    recorded.recording.commit()
    before = flow.golden.read_bytes(), flow.golden.stat().st_mtime_ns, flow.golden.stat().st_ino
    again = flow.first(flow.case(update_golden="all"), REGRESSED)
    assert again.status == status.RECORDED
    assert again.recording is not None
    again.recording.discard()
    flow.record()
    assert (flow.golden.read_bytes(), flow.golden.stat().st_mtime_ns, flow.golden.stat().st_ino) == before
    assert [path.name for path in flow.golden.parent.iterdir() if path.suffix != ".lock"] == ["test.yaml"]
    assert flow.first(flow.case(update_golden="all"), HEALTHY).status == status.UNCHANGED


@pytest.mark.parametrize("update", ["", "all"])
def test_a_dump_that_lacks_something_fails_and_records_nothing(flow: Flow, update: str) -> None:
    flow.record()
    before = flow.golden.read_bytes()
    named = flow.first(flow.case(layers=(*BOTH, "net/Softmaxx@0"), update_golden=update), HEALTHY)
    (problem,) = [problem for problem in named.problems if "net/Softmaxx@0" in problem]
    assert (named.good, "net/Softmax@0" in problem.split(";")[1]) == (False, True)
    none = flow.first(flow.case(layers=("net/Nothing",), update_golden=update), HEALTHY)
    assert none.status == status.ERROR
    assert "has none of the layers that the marker names ('net/Nothing')" in none.problems[0]
    cut = flow.first(flow.case(update_golden=update), HEALTHY, change=_cut)
    assert (cut.good, cut.recording) == (False, None)
    assert any("net_MatMul@0" in problem for problem in cut.problems)
    flow.runtime.activity.initialised = False
    (flow.folder / "empty").mkdir()
    empty = flow.first(flow.case(layers=(), update_golden=update), flow.folder / "empty")
    assert empty.status == status.ERROR
    assert "the dump is empty" in empty.problems[0]
    assert "ACL was never initialised" in empty.problems[0]
    assert flow.golden.read_bytes() == before


ANOTHER = [
    ("test: test.py::test", "test: test.py::test_other",
     "test.yaml is the golden of 'test.py::test_other', this test is 'test.py::test': if it has"),
    ("scene: model", "scene: op", "was recorded with scene 'op', this test asks for 'model': accept anew"),
    ("dump_mode: output", "dump_mode: all",
     "was recorded with dump_mode 'all', this test asks for 'output': accept anew"),
    (", scene: model", "", "the golden does not record its scene"),
    (", scene: model, dump_mode: output", "", "the golden does not record its scene and dump_mode"),
]  # fmt: skip


def test_a_golden_of_another_test_scene_or_mode_fails_and_an_update_mends_it(flow: Flow) -> None:
    """One that does not say its scene or mode passes with a note."""
    flow.record()
    approved = flow.golden.read_text()
    for old, new, message in ANOTHER:
        assert old in approved
        flow.golden.write_text(approved.replace(old, new))
        result = flow.first(flow.case(), HEALTHY)
        assert result.status == (status.FAILED if new else status.PASSED)
        told = result.problems[:1] if new else result.notes
        assert any(message in one for one in told)
        if new:
            flow.record()
            assert flow.golden.read_text() == approved


@pytest.mark.parametrize("kept", [(), ("net/Conv@19",)], ids=["projections", "elements"])
def test_elements_in_another_order_fail(flow: Flow, kept: tuple[str, ...]) -> None:
    flow.record(golden_tensors=kept)
    result = flow.first(flow.case(golden_tensors=kept), HEALTHY, change=_mirrored)
    assert result.status == status.FAILED
    assert result.comparison is not None
    [verdict] = result.comparison.failing
    assert str(verdict.key) == "net/Conv@19:output.0"
    assert kept or [reason.statistic for reason in verdict.reasons] == [PROJECTIONS]


def test_printed_statistics_are_judged_as_they_are_printed(flow: Flow) -> None:
    flow.record(PRINTED, **STATS)
    assert flow.first(flow.case(**STATS), PRINTED).status == status.PASSED
    flow.golden.write_text(flow.golden.read_text().replace("10.9219", "10.95", 1))
    found = flow.first(flow.case(**STATS), PRINTED).comparison
    assert found is not None
    assert [reason.statistic for verdict in found.failing for reason in verdict.reasons] == ["max"]


LOST = "the golden that was there could not be read, and nothing of it is kept: "
DAMAGES: dict[str, Callable[[bytes], bytes]] = {
    "cut": lambda content: content[:-40],
    "another version": lambda content: content.replace(b"golden: 1", b"golden: 9"),
    "a key that is none": lambda content: content.replace(b"@0:output.0", b"@0:output.0 x", 1),
}


def test_an_update_replaces_a_golden_that_cannot_be_read_and_says_so(flow: Flow) -> None:
    flow.record()
    approved = flow.golden.read_bytes()
    for name, damage in DAMAGES.items():
        flow.golden.write_bytes(damage(approved))
        refused = flow.first(flow.case(), HEALTHY)
        assert (refused.status, "test.yaml" in refused.problems[0]) == (status.ERROR, True), name
        updated = flow.first(flow.case(update_golden="all"), HEALTHY)
        assert updated.status == status.RECORDED, name
        assert any(note.startswith(LOST) and "test.yaml" in note for note in updated.notes), name
        assert updated.recording is not None
        updated.recording.commit()
        assert flow.golden.read_bytes() == approved, name


def test_no_update_replaces_a_golden_whose_variants_cannot_be_told_apart(flow: Flow) -> None:
    flow.record()
    text = flow.golden.read_text("utf-8")
    flow.golden.write_text(
        text.replace("columns:", "variants: {b: {soc: Ascend310P3}, c: {runtime: acl}}\ncolumns:", 1), "utf-8"
    )
    for mode in ("", "all"):
        case = flow.case(update_golden=mode)
        session = flow.session(case, HEALTHY)
        session.start()
        refused, _ = judge_settled(case, session.attempt)
        assert (refused.status, "fit one run" in refused.problems[0]) == (status.ERROR, True)


@pytest.mark.each(
    ("mode", "there", "sample", "recorded"),
    [
        ("new", False, HEALTHY, True),
        ("new", True, HEALTHY, False),
        ("new", True, REGRESSED, False),  # nobody has accepted it
        ("failed", True, HEALTHY, False),
        ("failed", True, REGRESSED, True),
        ("all", True, HEALTHY, True),
        ("", True, HEALTHY, False),
    ],
)
def test_an_update_records_what_it_is_for(
    flow: Flow, mode: str, sample: Path, *, there: bool, recorded: bool
) -> None:
    flow.golden.unlink(missing_ok=True)
    if there:
        flow.record()
    case = flow.case(update_golden=mode)
    session = flow.session(case, sample, sample)
    session.start()
    first, settled = judge_settled(case, session.attempt)
    assert (settled.update_golden == "all", first.recording is not None) == (recorded, recorded)
    assert first.good is (recorded or sample == HEALTHY)


def test_why_a_golden_was_rewritten_is_told_without_a_tensor_that_differs(flow: Flow) -> None:
    """Where the reference is off."""
    flow.record()
    passed = flow.first(flow.case(), HEALTHY)
    assert _why(passed).endswith("mismatches: the reference or the scene")
    assert _why(flow.first(flow.case(), REGRESSED)).endswith("3 of 9 tensors, first net/MatMul@0:input.0")
    assert _why(Result(status.FAILED, None, problems=("it is off",))).endswith("mismatches: it is off")


def test_a_key_that_cannot_be_written_again_is_dropped_and_named(flow: Flow) -> None:
    flow.record()
    approved = flow.golden.read_text()
    flow.golden.write_text(approved.replace("columns:", "mine: .nan\nother: 1\ncolumns:"))
    updated = flow.first(flow.case(update_golden="all"), HEALTHY)
    assert any("test.yaml: its key 'mine' cannot be written again" in note for note in updated.notes)
    assert updated.recording is not None
    updated.recording.commit()
    assert flow.golden.read_text() == approved.replace("columns:", "other: 1\ncolumns:")


def test_golden_tensors_that_are_lost_damaged_or_of_another_recording_fail_until_recorded_anew(
    flow: Flow,
) -> None:
    flow.record(**KEPT)
    beside = flow.golden.with_suffix(".safetensors")
    approved = beside.read_bytes()
    for content in (None, b"damaged"):
        beside.unlink()
        if content is not None:
            beside.write_bytes(content)
        refused = flow.first(flow.case(**KEPT), HEALTHY)
        assert (refused.good, "safetensors" in " ".join(refused.problems)) == (False, True)
        flow.record(**KEPT)
        assert beside.read_bytes() == approved
    flow.record(REGRESSED, **KEPT)
    beside.write_bytes(approved)
    refused = flow.first(flow.case(**KEPT), REGRESSED)
    assert not refused.good
    assert "was recorded with other statistics than test.yaml" in " ".join(refused.problems)
    flow.record(REGRESSED, **KEPT)
    assert flow.first(flow.case(**KEPT), REGRESSED).good
    flow.record(HEALTHY)  # the marker names none: what is beside the golden is not judged
    assert flow.first(flow.case(), HEALTHY).good


RULES: list[tuple[list[dict[str, Any]], Path, str]] = [
    ([{**WIDE, "layer": layer} for layer in BOTH[2:]], REGRESSED, ""),
    ([{**WIDE, "producer": HERE}], REGRESSED, ""),
    ([{**WIDE, "producer": ELSEWHERE}], REGRESSED, "-"),
    ([WIDE, {**TIGHT, "producer": HERE}], REGRESSED, "-"),
    ([WIDE, {**TIGHT, "producer": ELSEWHERE}], REGRESSED, ""),
    ([{**TIGHT, "layer": "net/Nothing"}], HEALTHY, "matches nothing this test dumped"),
    ([{**TIGHT, "layer": "net/Nothing", "producer": HERE}], HEALTHY, "matches nothing"),
    ([{**TIGHT, "layer": "net/Nothing", "producer": ELSEWHERE}], HEALTHY, ""),
    ([{**TIGHT, "op_type": "Cnov2D"}], HEALTHY, "op_type=Cnov2D"),
    ([{**TIGHT, "op_type": "Cnov2D"}], HEALTHY, "correct its layer, op_type, dtype or statistic"),
]
"""Rules of a marker, a run, and what is said of it: "" where it passes, "-" where values differ only."""


def test_a_rule_of_the_marker_decides_or_says_that_it_does_not(flow: Flow) -> None:
    flow.record()
    for rules, sample, said in RULES:
        result = result_of(flow, *rules, sample=sample)
        assert result.status == (status.FAILED if said else status.PASSED), rules
        assert said.strip("-") in " ".join(result.problems), rules
        assert len(result.problems) == (said not in {"", "-"}), rules
    types = types_of(result_of(flow))
    assert len(types) > 1
    for op_type in types:
        assert types_of(result_of(flow, {**WIDE, "op_type": op_type})) == types - {op_type}
    assert result_of(flow, *({**WIDE, "op_type": name} for name in types)).status == status.PASSED
    # It is this run's producer that counts, and not the golden's.
    flow.runtime.facts = {"runtime": "acl", "soc": "Ascend910B3"}
    assert result_of(flow, {**WIDE, "producer": ELSEWHERE}).status == status.PASSED
    assert result_of(flow, {**WIDE, "producer": HERE}).status == status.FAILED


def test_elements_and_the_second_run_go_by_the_rule_of_their_operator(flow: Flow) -> None:
    flow.record(golden_tensors=BOTH)
    kept = {"golden_tensors": BOTH}
    types = types_of(result_of(flow, **kept))
    every = tuple({**WIDE, "op_type": name} for name in types)
    assert result_of(flow, *every, **kept).status == status.PASSED
    result = result_of(flow, *every, {**TIGHT, "op_type": min(types)}, **kept)
    assert types_of(result) == {min(types)}
    assert result.escalation is not None
    differences = [one.difference for one in result.escalation.findings if one.difference is not None]
    assert differences
    assert all((one.rtol, one.atol) == (0, 0) for one in differences)


def idle_of(flow: Flow, rules: str) -> str:
    """Return the one rule of a file of rules that decides about nothing."""
    (flow.folder / "rules.yaml").write_text(rules, "utf-8")
    flow.settings = flow.settings._replace(tolerances="rules.yaml")
    (idle,) = result_of(flow, sample=HEALTHY).idle_rules
    return idle


def test_rules_of_a_file_for_other_producers_are_not_idle(flow: Flow) -> None:
    flow.record()
    gone = "- {layer: gone, rtol: 0, atol: 0, producer: {soc: Ascend910B*}}\n"
    lost = "- {layer: lost, rtol: 0, atol: 0, producer: {soc: Ascend310P*}}\n"
    assert "layer=lost" in idle_of(flow, f"rules:\n{gone}{lost}")


def test_a_rule_of_the_marker_for_a_statistic_that_one_side_has_not_fails(flow: Flow) -> None:
    flow.record(sample=PRINTED, **STATS)
    rule = {**TIGHT, "statistic": "projections"}
    (problem,) = result_of(flow, rule, sample=PRINTED, **STATS).problems
    assert "statistic=projections" in problem
    assert "matches nothing this test dumped" in problem
    assert result_of(flow, {**TIGHT, "statistic": "max"}, sample=PRINTED, **STATS).status == status.PASSED
    flow.record()
    golden = read_golden(flow.golden)
    write_golden(replace(golden, table=golden.table.with_projections({})))
    result = result_of(flow, rule, sample=HEALTHY)
    (problem,) = result.problems
    assert result.status == status.FAILED
    assert "decides nothing: the golden has no projections of the tensors that it matches" in problem
    assert "statistic=projections" in idle_of(flow, "rules: [{statistic: projections, rtol: 0, atol: 0}]\n")
