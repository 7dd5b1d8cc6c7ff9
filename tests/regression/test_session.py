"""The order of the steps, and what stands where one of them comes to nothing."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from pytest_npudump.errors import ConfigError, RuntimeUnavailableError
from pytest_npudump.regression import result as status
from pytest_npudump.regression.session import CaseSession
from pytest_npudump.report.result_json import result_json
from pytest_npudump.results.serialisation import keep
from pytest_npudump.storage.atomic import dump_bytes, load_bytes
from tests.regression.conftest import HEALTHY, REGRESSED, Flow, run


def _failed(flow: Flow) -> CaseSession:
    """A test whose first run has failed, and which wants a second one."""
    flow.record()
    session = flow.session(flow.case(), REGRESSED, REGRESSED)
    run(session)
    assert session.wants_second_run
    return session


def test_a_test_may_not_pass_before_it_has_been_judged(flow: Flow) -> None:
    session = flow.session(flow.case(), HEALTHY)
    assert (session.good, session.judged) == (False, None)
    session.start()
    assert (session.good, session.wants_second_run) == (False, False)


def test_dumps_of_a_test_are_kept_where_it_fails_or_the_user_keeps_all(flow: Flow) -> None:
    flow.record()
    for given in ({}, {"keep_dumps": "all"}):
        session = flow.session(flow.case(**given), HEALTHY)
        run(session)
        assert (session.good, session.wants_second_run, session.done) == (True, False, True)
        session.clean_up()
        assert session.case.directory.exists() is bool(given)
    assert session.case.directory.is_dir()
    assert session.case.directory.stat().st_mode & 0o777 == 0o700
    session = _failed(flow)
    run(session)
    session.clean_up()
    assert [path.is_dir() for path in session.result.runs] == [True, True]


def test_a_second_run_that_never_started_leaves_the_failure_and_says_why(flow: Flow) -> None:
    session = _failed(flow)
    session.abandon_second_run("its setup failed")
    session.abandon_second_run("too late")
    assert (session.good, session.wants_second_run) == (False, False)
    assert session.result.escalation is not None
    assert session.result.escalation.problem == "its setup failed"


def test_a_run_that_another_plugin_repeats_is_not_explained_by_a_third_and_its_recording_replaced(
    flow: Flow,
) -> None:
    flow.record()
    session = flow.session(flow.case(), REGRESSED, REGRESSED)
    session.start()  # the body fails, and is repeated
    run(session)
    assert (session.good, session.wants_second_run) == (False, False)
    assert session.result.escalation is not None
    assert "another plugin repeated it" in session.result.escalation.problem
    flow.golden.unlink()
    session = flow.session(flow.case(update_golden="all"), HEALTHY, REGRESSED)
    run(session)
    run(session)
    session.commit()
    session.commit()
    assert session.recording is None
    assert flow.first(flow.case(), REGRESSED).status == status.PASSED


def test_a_part_that_did_not_pass_withdraws_the_recording_and_beyond_the_limit_is_none(flow: Flow) -> None:
    session = flow.session(flow.case(update_golden="all"), HEALTHY)
    run(session)
    session.discard()
    session.withdraw("a subtest did not pass")
    session.commit()
    assert (session.good, flow.golden.exists()) == (False, False)
    assert session.result.problems == ("a subtest did not pass",)
    case = flow.case(update_golden="all", golden_tensors=("net/Conv@19",), dump_limit=1)
    session = flow.session(case, HEALTHY)
    run(session)
    assert (session.good, session.wants_second_run, session.recording) == (False, False, None)
    assert session.result.problems[0].startswith("nothing was recorded: ")


def test_golden_tensors_beyond_the_budget_are_not_recorded_and_the_largest_are_named(flow: Flow) -> None:
    flow.record(golden_tensors=("net/MatMul@0",))
    before = {path.name: path.read_bytes() for path in flow.golden.parent.iterdir()}
    case = flow.case(update_golden=True, golden_tensors=("net/MatMul@0",), tensor_budget=100)
    session = flow.session(case, HEALTHY, HEALTHY)
    run(session)
    assert session.wants_second_run
    run(session)
    assert (session.good, session.recording) == (False, None)
    (problem,) = session.result.problems
    assert re.search(
        r"nothing was recorded: golden_tensors: the tensors have 404 bytes, more than "
        r"npudump_tensor_budget \(100 bytes\): net/MatMul@0:input.0 \(400 bytes\), net/MatMul@0:output.0 "
        r"\(4 bytes\); name fewer layers, or raise the budget",
        problem,
    )
    assert {path.name: path.read_bytes() for path in flow.golden.parent.iterdir()} == before


def test_a_folder_that_cannot_be_made_is_an_error_and_a_dump_that_cannot_be_ended_not_judged(
    flow: Flow,
) -> None:
    flow.folder.joinpath("file").touch()
    case = replace(flow.case(), directory=flow.folder / "file" / "dumps")
    with pytest.raises(ConfigError, match="--npudump-output"):
        flow.session(case, HEALTHY).start()
    flow.record()
    session = flow.session(flow.case(), HEALTHY)
    session.start()
    flow.runtime.stop_error = RuntimeUnavailableError("the device is gone")
    with pytest.raises(RuntimeUnavailableError, match="the device is gone"):
        session.finish()
    assert not session.good


def test_a_session_goes_on_from_what_another_process_has_handed_over(flow: Flow) -> None:
    session = _failed(flow)
    other = flow.session(session.case, REGRESSED)
    other.resume(load_bytes(dump_bytes(session.handed_over())))
    assert other.wants_second_run
    run(other)
    assert other.result.escalation is not None
    assert other.result.escalation.reproduced is True
    assert [path.name for path in other.result.runs] == ["run1", "run2"]


def test_a_process_that_dies_fails_the_test_whatever_it_had_done(flow: Flow) -> None:
    recording = flow.session(flow.case(update_golden="all"), HEALTHY)
    run(recording)
    recording.die(1, "was ended by SIGKILL")
    assert recording.result.problems[0].endswith("SIGKILL; nothing was recorded")
    flow.record()
    session = CaseSession(flow.case())  # before a judgement
    session.die(1, "was ended by SIGSEGV")
    assert (session.good, session.result.status) == (False, status.DIED)
    assert session.result.problems[0] == "the test's process was ended by SIGSEGV; nothing was compared"
    for sample in (HEALTHY, REGRESSED):  # behind its body
        session = flow.session(flow.case(), sample)
        run(session)
        comparison = session.result.comparison
        other = CaseSession(session.case)
        other.resume(session.handed_over())
        other.die(1, "was ended by SIGKILL")
        assert (other.good, other.result.status) == (False, status.DIED)
        assert other.result.problems == ("the test's process was ended by SIGKILL",)
        assert other.result.comparison == comparison
    session = _failed(flow)
    session.die(2, "was ended by SIGKILL")  # in the second run, which leaves the failure
    assert session.result.status == status.FAILED
    assert session.result.escalation is not None
    assert session.result.escalation.problem == "its process was ended by SIGKILL"


def test_the_operator_that_failed_decides_about_a_body_that_failed(flow: Flow) -> None:
    healthy = flow.folder / "nothing"
    healthy.mkdir()
    session = flow.session(flow.case(scene="exception", dump_data=None, layers=()), healthy)
    session.start()
    assert (session.judge_failed_body(), session.judged) == (False, None)
    session.die(1, "was ended by SIGABRT")
    assert session.result.status == status.DIED


def test_what_is_kept_of_a_run_is_the_same_whatever_golden_there_was(flow: Flow) -> None:
    texts = []
    for recorded in (True, False):
        if recorded:
            flow.record()
            approved = flow.golden.read_text().replace("columns:", "mine: 1\ncolumns:")
            flow.golden.write_text(f"{approved}edges: |\n  net/Softmax@0 < net/MatMul@0:output.0\n")
        else:
            flow.golden.unlink()
        session = flow.session(flow.case(), REGRESSED)
        run(session)
        told = result_json(session.result, None)
        texts += keep(session.case, session.result, told, flow.golden.parent).records.values()
    assert texts[0] == texts[1]
    assert b"mine" not in texts[0]
