"""Which failures a second run is to explain, and what it dumps for them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from pytest_npudump.dump.records import Dump, TensorKey, TensorRecord
from pytest_npudump.explain.operator_alone import UPSTREAM
from pytest_npudump.graph.edges import Edges, Port
from pytest_npudump.graph.edges import GraphNode as Node
from pytest_npudump.regression.dataflow import edges_of_run
from pytest_npudump.regression.second_run.run_plan import (
    needs_inputs,
    plan_second_run,
    plan_suspects,
    upstream_of,
)
from tests.regression.conftest import BOTH, HEALTHY, PRINTED, REGRESSED, Flow

if TYPE_CHECKING:
    from pytest_npudump.regression.second_run.run_plan import Plan

MATMUL, SOFTMAX = 2 * (200 + 2), 2 * (2 + 2)
"""Bytes of the float16 inputs and outputs of the operators that differ, by their shapes."""


def _plan(flow: Flow, sample: Path, **given: Any) -> Plan | None:
    case = flow.case(**given)
    return plan_second_run(case, flow.first(case, sample))


def test_a_run_that_passes_needs_no_second(flow: Flow) -> None:
    flow.record()
    assert _plan(flow, HEALTHY) is None


def test_the_layers_that_differ_are_dumped_in_execution_order(flow: Flow) -> None:
    flow.record()
    plan = _plan(flow, REGRESSED)
    assert plan is not None
    assert plan.runs
    assert plan.layers == plan.raw_layers == ("net/MatMul@0", "net/Softmax@0")
    assert (plan.omitted, plan.notes, plan.accompanies) == ((), (), False)


def test_layers_that_only_one_side_has_are_not_dumped(flow: Flow) -> None:
    flow.record(layers=())
    plan = _plan(flow, REGRESSED, layers=())
    assert plan is not None
    assert "net/Conv@13" not in plan.layers
    assert "net/Conv@22" not in plan.layers


def test_a_failure_without_a_value_to_look_at_needs_no_second_run(flow: Flow) -> None:
    flow.record(layers=("net/*@0",))
    golden = flow.golden.read_text()
    flow.golden.write_text(golden.replace("net/MatMul@0", "net/Gone@0"))
    assert _plan(flow, HEALTHY, layers=("net/*@0",)) is None


@pytest.mark.parametrize("where", ["option", "marker"])
def test_neither_the_option_nor_the_marker_is_overruled(flow: Flow, where: str) -> None:
    flow.record()
    if where == "option":
        flow.settings = flow.settings._replace(escalate=False)
        assert _plan(flow, REGRESSED) is None
    else:
        assert _plan(flow, REGRESSED, escalate=False) is None


def test_a_run_that_cannot_be_read_is_not_explained(flow: Flow) -> None:
    flow.record()
    empty = flow.folder / "empty"
    empty.mkdir()
    assert _plan(flow, empty) is None


@pytest.mark.parametrize(
    ("limit", "layers"),
    [
        (MATMUL + SOFTMAX, BOTH[2:]),
        (MATMUL + SOFTMAX - 1, BOTH[2:3]),
        (MATMUL, BOTH[2:3]),
    ],
)
def test_as_many_layers_are_dumped_as_the_limit_in_bytes_has_room_for(
    flow: Flow, limit: int, layers: tuple[str, ...]
) -> None:
    flow.record()
    plan = _plan(flow, REGRESSED, dump_limit=limit)
    assert plan is not None
    assert (plan.runs, plan.layers, plan.raw_layers) == (True, layers, layers)
    assert plan.omitted == BOTH[2 + len(layers) :]
    assert bool(plan.notes) is bool(plan.omitted)


def test_without_room_for_one_layer_there_is_no_second_run_and_the_report_says_why(flow: Flow) -> None:
    flow.record()
    plan = _plan(flow, REGRESSED, dump_limit=MATMUL - 1)
    assert plan is not None
    assert not plan.runs
    assert plan.skipped is not None
    assert plan.skipped.omitted == ("net/MatMul@0", "net/Softmax@0")
    assert f"the tensors of 2 layers exceed --npudump-dump-limit ({MATMUL - 1} bytes)" in plan.skipped.problem


def test_a_recording_with_tensors_runs_again_for_just_these(flow: Flow) -> None:
    plan = _plan(flow, HEALTHY, golden_tensors=("net/S*",), update_golden="all")
    assert plan is not None
    assert (plan.runs, plan.raw_layers) == (True, ("net/Softmax@0",))


def test_a_recording_whose_tensors_exceed_the_limit_does_not_run_again(flow: Flow) -> None:
    plan = _plan(flow, HEALTHY, golden_tensors=BOTH[2:], update_golden="all", dump_limit=MATMUL)
    assert plan is not None
    assert plan.skipped is not None
    assert plan.skipped.omitted == ("net/Softmax@0",)


def test_a_recording_without_tensors_needs_no_second_run(flow: Flow) -> None:
    assert _plan(flow, HEALTHY, update_golden="all") is None


def _printed(flow: Flow, **given: Any) -> Plan:
    """Plan for one layer that fails, in a dump that says names as files have them."""
    flow.record(PRINTED, layers=(), dump_data="stats")
    text = flow.golden.read_text()
    flow.golden.write_text(text.replace("10.9219", "10.95", 1).replace("net_", given.pop("names", "net_")))
    plan = _plan(flow, PRINTED, **{"layers": (), "dump_data": "stats", **given})
    assert plan is not None
    return plan


def test_a_name_that_nothing_knows_makes_the_second_run_dump_all(flow: Flow) -> None:
    plan = _printed(flow)
    assert (plan.runs, plan.layers, plan.raw_layers) == (True, ("net_BatchNormalization@0",), ())
    assert "the raw operator name behind net_BatchNormalization@0 is not known" in plan.notes[0]


def test_a_dump_of_all_layers_beyond_the_limit_is_not_made(flow: Flow) -> None:
    plan = _printed(flow, dump_limit=100_000)
    assert plan.skipped is not None
    assert "a dump of every layer exceeds --npudump-dump-limit" in plan.skipped.problem


def test_a_golden_that_has_the_raw_names_tells_them(flow: Flow) -> None:
    assert _printed(flow, names="net/").raw_layers == ("net/BatchNormalization@0", "net/Conv@0")


def test_what_feeds_a_source_is_dumped_behind_it_and_does_not_push_it_out(flow: Flow) -> None:
    plan = _printed(flow, names="net/")
    assert plan.layers == ("net/BatchNormalization@0", "net_Conv@0")
    assert [str(key) for key in plan.suspects] == ["net/BatchNormalization@0:output.0"]
    tight = _printed(flow, names="net/", dump_limit=150_000)
    assert (tight.layers, tight.omitted) == (("net/BatchNormalization@0",), ())
    assert "sources and what feeds them first" in tight.notes[0]


def test_what_a_source_reads_is_dumped_as_an_input_where_nothing_tells_which_output_it_is(flow: Flow) -> None:
    flow.record()
    case = flow.case()
    first = flow.first(case, REGRESSED)
    assert first.run.dump is not None
    suspects = (TensorKey("net/Softmax@0", "output", 0),)
    assert needs_inputs(case, Edges(), first.run.dump, suspects)
    plan = plan_suspects(case, first, first.run.dump, suspects, BOTH[3:], edges=Edges())
    assert (plan.inputs, plan.layers, plan.suspects) == (True, ("net/Softmax@0",), suspects)


def test_a_golden_that_keeps_edges_tells_what_is_upstream(flow: Flow) -> None:
    flow.record()
    kept = "net/Softmax@0 < net/MatMul@0:output.0", "net/MatMul@0 < net/Conv@19:output.0 -"
    flow.golden.write_text(flow.golden.read_text() + "edges: |\n  " + "\n  ".join(kept) + "\n")
    case = flow.case()
    first = flow.first(case, REGRESSED)
    assert first.run.dump is not None
    suspects = (TensorKey("net/Softmax@0", "output", 0),)
    edges = edges_of_run(case, first, first.run.dump)
    assert upstream_of(edges, first.run.dump, suspects) == ("net/MatMul@0", "net/Conv@19")
    plan = plan_suspects(case, first, first.run.dump, suspects, BOTH[3:], edges=edges)
    assert (plan.inputs, plan.layers) == (False, ("net/Softmax@0", "net/MatMul@0", "net/Conv@19"))


def test_layers_upstream_are_nearest_first_and_no_more_than_can_be_of_use() -> None:
    chain = [Node("0", "Conv", (None,))]
    chain += [Node(str(at), "Conv", (Port(str(at - 1)), Port(f"side{at - 1}"))) for at in range(1, 60)]
    nodes = [*chain, *(Node(f"side{at}", "Relu", (Port(str(at)),)) for at in range(59))]
    records = [
        TensorRecord(TensorKey(node.name, "output", 0), node.op_type, "float32", (1,), Path("x"))
        for node in nodes
        if node.name != "57"
    ]
    dump = Dump(Path("x"), tuple(records))
    found = upstream_of(Edges.of(nodes, "test"), dump, (TensorKey("59", "output", 0),))
    assert found[:5] == ("58", "side58", "side57", "56", "side56")
    assert len(found) == 2 + UPSTREAM


def test_a_marker_that_has_the_raw_names_tells_them(flow: Flow) -> None:
    plan = _printed(flow, layers=("net/BatchNormalization@0", "net/Add@0", "net/Clip@0"))
    assert plan.raw_layers == ("net/BatchNormalization@0",)


def test_single_operators_cannot_be_selected_and_are_all_dumped(flow: Flow) -> None:
    flow.record(scene="op")
    plan = _plan(flow, REGRESSED, scene="op")
    assert plan is not None
    assert (plan.layers, plan.raw_layers) == (("net/MatMul@0", "net/Softmax@0"), ())
    assert "acl.json cannot select single operators" in plan.notes[-1]
