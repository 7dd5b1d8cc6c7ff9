"""Rules by operator and by producer, in runs and second runs, by samples of CANN's own dump code."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from pytest_npudump.golden.store import read_golden, write_golden
from pytest_npudump.regression import result as status
from tests.regression.conftest import BOTH, HEALTHY, PRINTED, REGRESSED, Flow, run

if TYPE_CHECKING:
    from pytest_npudump.regression.result import Result

WIDE = {"rtol": 1, "atol": 1, "reason": "other weights"}
HERE, ELSEWHERE = {"soc": "Ascend310P*"}, {"soc": "Ascend910B*"}


def result_of(flow: Flow, *rules: dict[str, Any], sample: Any = REGRESSED, **given: Any) -> Result:
    """Return what becomes of a run with these rules in its marker, the second run included."""
    session = flow.session(flow.case(tolerances=rules, **given), sample, sample)
    run(session)
    if session.wants_second_run:
        run(session)
    return session.result


def failing(result: Result) -> set[str]:
    assert result.comparison is not None
    return {verdict.op_type for verdict in result.comparison.failing}


def test_a_rule_loosens_the_operators_of_its_type(flow: Flow) -> None:
    flow.record()
    types = failing(result_of(flow))
    assert len(types) > 1
    for op_type in types:
        assert failing(result_of(flow, {**WIDE, "op_type": op_type})) == types - {op_type}
    assert result_of(flow, *({**WIDE, "op_type": name} for name in types)).status == status.PASSED


def test_a_rule_for_operators_that_did_not_run_fails(flow: Flow) -> None:
    flow.record()
    result = result_of(flow, {"rtol": 0, "atol": 0, "op_type": "Cnov2D"}, sample=HEALTHY)
    assert result.status == status.FAILED
    (problem,) = result.problems
    assert "op_type=Cnov2D" in problem
    assert "correct its layer, op_type, dtype or statistic" in problem


def test_elements_and_the_second_run_go_by_the_rule_of_their_operator(flow: Flow) -> None:
    flow.record(golden_tensors=BOTH)
    kept = {"golden_tensors": BOTH}
    types = failing(result_of(flow, **kept))
    every = tuple({**WIDE, "op_type": name} for name in types)
    assert result_of(flow, *every, **kept).status == status.PASSED
    tightened = (*every, {"rtol": 0, "atol": 0, "op_type": min(types)})
    result = result_of(flow, *tightened, **kept)
    assert failing(result) == {min(types)}
    assert result.escalation is not None
    differences = [one.difference for one in result.escalation.findings if one.difference is not None]
    assert differences
    assert all((one.rtol, one.atol) == (0, 0) for one in differences)


@pytest.mark.parametrize(("producer", "passes"), [(HERE, True), (ELSEWHERE, False)])
def test_a_rule_holds_for_runs_of_its_producer(flow: Flow, producer: Any, *, passes: bool) -> None:
    flow.record()
    outcome = result_of(flow, {**WIDE, "producer": producer})
    assert (outcome.status == status.PASSED) is passes
    assert not any("matches nothing" in problem for problem in outcome.problems)


def test_it_is_this_run_s_producer_that_counts_and_not_the_golden_s(flow: Flow) -> None:
    flow.record()
    flow.runtime.facts = {"runtime": "acl", "soc": "Ascend910B3"}
    assert result_of(flow, {**WIDE, "producer": ELSEWHERE}).status == status.PASSED
    assert result_of(flow, {**WIDE, "producer": HERE}).status == status.FAILED


def test_a_tightened_producer_fails_where_others_pass(flow: Flow) -> None:
    flow.record()
    wide, tight = dict(WIDE), {"rtol": 0, "atol": 0}
    assert result_of(flow, wide, {**tight, "producer": HERE}).status == status.FAILED
    assert result_of(flow, wide, {**tight, "producer": ELSEWHERE}).status == status.PASSED


def test_a_misspelt_layer_is_told_by_the_producer_that_the_rule_is_for(flow: Flow) -> None:
    flow.record()
    rule = {"rtol": 0, "atol": 0, "layer": "net/Nothing"}
    other = result_of(flow, {**rule, "producer": ELSEWHERE}, sample=HEALTHY)
    assert (other.status, other.problems) == (status.PASSED, ())
    here = result_of(flow, {**rule, "producer": HERE}, sample=HEALTHY)
    assert here.status == status.FAILED
    assert "matches nothing" in here.problems[0]


def test_rules_of_a_file_for_other_producers_are_not_idle(flow: Flow) -> None:
    flow.record()
    path = flow.folder / "rules.yaml"
    path.write_text(
        "rules:\n"
        "- {layer: gone, rtol: 0, atol: 0, producer: {soc: Ascend910B*}}\n"
        "- {layer: lost, rtol: 0, atol: 0, producer: {soc: Ascend310P*}}\n",
        "utf-8",
    )
    flow.settings = flow.settings._replace(tolerances="rules.yaml")
    (idle,) = result_of(flow, sample=HEALTHY).idle_rules
    assert "layer=lost" in idle


def test_a_rule_of_the_marker_for_a_statistic_that_the_run_has_not_fails(flow: Flow) -> None:
    printed = {"layers": (), "dump_data": "stats"}
    flow.record(sample=PRINTED, **printed)
    rule = {"rtol": 0, "atol": 0, "statistic": "projections"}
    outcome = result_of(flow, rule, sample=PRINTED, **printed)
    assert outcome.status == status.FAILED
    (problem,) = outcome.problems
    assert "statistic=projections" in problem
    assert "matches nothing this test dumped" in problem
    of_max = result_of(flow, {**rule, "statistic": "max"}, sample=PRINTED, **printed)
    assert of_max.status == status.PASSED


def test_a_rule_for_a_statistic_that_the_golden_lacks_decides_nothing(flow: Flow) -> None:
    flow.record()
    golden = read_golden(flow.golden)
    write_golden(flow.golden, replace(golden, table=golden.table.with_projections({})))
    rule = {"rtol": 0, "atol": 0, "statistic": "projections"}
    outcome = result_of(flow, rule, sample=HEALTHY)
    assert outcome.status == status.FAILED
    (problem,) = outcome.problems
    assert "decides nothing: the golden has no projections of the tensors that it matches" in problem
    (flow.folder / "rules.yaml").write_text("rules: [{statistic: projections, rtol: 0, atol: 0}]\n", "utf-8")
    flow.settings = flow.settings._replace(tolerances="rules.yaml")
    (idle,) = result_of(flow, sample=HEALTHY).idle_rules
    assert "statistic=projections" in idle
