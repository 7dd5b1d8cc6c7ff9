"""What a second run says of the failure of the first, and what it adds to a recording."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import load_file

from pytest_npudump.compare.patterns.pattern_search import Limits
from pytest_npudump.compare.tensors.difference import compare_tensors
from pytest_npudump.dump.records import Payload, TensorKey, TensorRecord
from pytest_npudump.regression import result as status
from pytest_npudump.regression.result import Escalation, Finding
from pytest_npudump.regression.second_run import with_patterns
from pytest_npudump.regression.session import CaseSession
from tests.regression.conftest import HEALTHY, REGRESSED, Flow, files, float16_at_end, run, unchanged


def _remove(dump: Path) -> None:
    for path in dump.rglob("*net_Softmax@0*"):
        path.unlink()


def _cut(dump: Path) -> None:
    for path in dump.rglob("*net_Softmax@0*"):
        os.truncate(path, 100)


def _both(
    flow: Flow, second: Path, change: Callable[[Path], None] = unchanged, **given: Any
) -> tuple[CaseSession, Escalation]:
    """Make a first run that fails and a second one that leaves ``second``."""
    session = flow.session(flow.case(**given), REGRESSED, second, change=change)
    run(session)
    assert session.wants_second_run
    run(session)
    assert not session.good
    assert session.judged is not None
    assert session.judged.status == status.FAILED
    assert session.result.escalation is not None
    return session, session.result.escalation


def test_a_failure_that_reproduces_is_said_to_and_described_where_no_golden_has_tensors(flow: Flow) -> None:
    flow.record()
    session, escalation = _both(flow, REGRESSED)
    assert (escalation.reproduced, escalation.problem) == (True, "")
    assert escalation.layers == ("net/MatMul@0", "net/Softmax@0")
    assert flow.runtime.asked[-1] == (("net/MatMul@0", "net/Softmax@0"), "tensor")
    assert files(session.attempt.dump_path) == ["net_MatMul@0", "net_Softmax@0"]  # those that fail alone
    found = {str(finding.key): finding for finding in escalation.findings}["net/MatMul@0:output.0"]
    expected = float16_at_end(REGRESSED, "net/MatMul@0", 2)
    assert (found.difference, found.note) == (None, "")
    assert found.description is not None
    assert (found.description.max, found.description.min) == (expected.max(), expected.min())


def test_a_failure_that_does_not_reproduce_still_fails_and_says_what_both_runs_had(flow: Flow) -> None:
    flow.record()
    _, escalation = _both(flow, HEALTHY)
    assert escalation.reproduced is False
    finding = next(found for found in escalation.findings if str(found.key) == "net/MatMul@0:output.0")
    before, after = (float16_at_end(dump, "net/MatMul@0", 2).max() for dump in (REGRESSED, HEALTHY))
    assert finding.differences["max"] == (float(before), float(after))


def test_a_tensor_is_compared_with_the_golden_s_element_by_element(flow: Flow) -> None:
    kept = {"golden_tensors": ("net/MatMul@0",), "dump_data": "stats"}
    flow.record(**kept)
    _, escalation = _both(flow, REGRESSED, **kept)
    found = {str(finding.key): finding for finding in escalation.findings}["net/MatMul@0:output.0"]
    golden, actual = (
        float16_at_end(dump, "net/MatMul@0", 2).astype(np.float64) for dump in (HEALTHY, REGRESSED)
    )
    distance = np.abs(actual - golden)
    assert found.difference is not None
    assert found.difference.max_abs == distance.max()
    assert found.difference.worst[0].index == (0, int(distance.argmax()))


def test_a_golden_tensor_of_another_layer_explains_values_that_were_taken_from_it(tmp_path: Path) -> None:
    golden, other = np.random.default_rng(3).normal(size=(2, 64)).astype(np.float32)
    other.tofile(tmp_path / "a")
    key, payload = TensorKey("a", "output", 0), Payload(tmp_path / "a", 0, other.nbytes)
    record = TensorRecord(key, "Relu", "float32", (64,), tmp_path / "a", payload=payload)
    finding = Finding(key, reproduced=True, difference=compare_tensors(golden, other, rtol=1e-3, atol=1e-6))
    tensors = {"a:output.0": golden, "b:output.0": other}
    (told,) = with_patterns([finding], {"a:output.0": record}, tensors, Limits())
    assert "the values of the golden's b:output.0" in str(told.pattern)


def test_what_is_left_out_of_the_search_for_patterns_is_counted(tmp_path: Path) -> None:
    findings, records, tensors = [], {}, {}
    for number, (golden, actual) in enumerate(np.random.default_rng(3).normal(size=(23, 2, 64))):
        key, path = TensorKey(f"a{number}", "output", 0), tmp_path / str(number)
        actual.tofile(path)
        payload = Payload(path, 0, actual.nbytes)
        records[str(key)] = TensorRecord(key, "Relu", "float64", (64,), path, payload=payload)
        tensors[str(key)] = golden
        difference = compare_tensors(golden, actual, rtol=1e-3, atol=1e-6)
        findings.append(Finding(key, reproduced=True, difference=difference))
    limits = Limits()
    told = with_patterns(findings, records, tensors, limits)
    assert [finding.picture is None for finding in told] == [False] * 20 + [True] * 3
    assert {str(limit): number for limit, number in limits.items()} == {
        "after the first 20": 3,
        "with more than 16 others of their type and size": 20,
    }


def test_a_tensor_that_the_second_run_lacks_or_has_no_room_for_is_named(flow: Flow) -> None:
    flow.record()
    _, escalation = _both(flow, REGRESSED, _remove)
    lacking = [finding for finding in escalation.findings if finding.reproduced is None]
    assert {finding.key.layer for finding in lacking} == {"net/Softmax@0"}
    assert all(finding.note.startswith("the second run did not dump it") for finding in lacking)
    assert escalation.reproduced is True
    _, escalation = _both(flow, REGRESSED, dump_limit=404)
    assert (escalation.layers, escalation.omitted) == (("net/MatMul@0",), ("net/Softmax@0",))
    assert {finding.key.layer for finding in escalation.findings} == {"net/MatMul@0"}


def test_a_second_dump_that_is_damaged_or_not_whole_explains_nothing(flow: Flow) -> None:
    flow.record()
    _, escalation = _both(flow, REGRESSED, _cut)
    assert escalation.problem.startswith("what the second run dumped cannot be compared: ")
    assert "net_Softmax@0" in escalation.problem
    assert escalation.findings == ()
    session = flow.session(flow.case(), REGRESSED, REGRESSED)
    run(session)
    flow.runtime.activity.evidence.undumped.append("a graph was replayed")
    run(session)
    assert session.result.escalation is not None
    assert session.result.escalation.problem.endswith("is in its dump: a graph was replayed")


def test_a_recording_keeps_the_tensors_that_it_was_asked_for(flow: Flow) -> None:
    flow.record(golden_tensors=("net/Softmax@0",))
    kept = load_file(flow.golden.with_suffix(".safetensors"))
    assert sorted(kept) == ["net/Softmax@0:input.0", "net/Softmax@0:output.0"]
    expected = float16_at_end(HEALTHY, "net/Softmax@0", 2)
    np.testing.assert_array_equal(kept["net/Softmax@0:output.0"].ravel(), expected)


def test_a_recording_whose_second_run_does_not_bear_it_out_records_nothing(flow: Flow) -> None:
    for second, change, problem in (
        (REGRESSED, unchanged, "two runs of the test differ in "),
        (HEALTHY, _remove, "net/Softmax@0"),
        (HEALTHY, _cut, "net_Softmax@0"),
    ):
        case = flow.case(golden_tensors=("net/Softmax@0",), update_golden="all")
        session = flow.session(case, HEALTHY, second, change=change)
        run(session)
        run(session)
        assert (session.good, session.recording) == (False, None)
        assert session.result.escalation is not None
        told = (*session.result.problems, session.result.escalation.problem)
        assert problem in " ".join(told)
        assert not flow.golden.exists()
