"""Which failures a second run is to explain, and what it dumps for them."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from pytest_npudump.dump.records import Dump, TensorKey, TensorRecord
from pytest_npudump.explain.operator_alone import ACQUITTED, CONVICTED, UNKNOWN as NOT_JUDGED, UPSTREAM
from pytest_npudump.record.edges import SEVERAL, UNKNOWN, Edges, GraphNode as Node, Port
from pytest_npudump.regression import run_plan
from pytest_npudump.regression.dataflow import edges_of_run
from pytest_npudump.regression.result import Escalation
from pytest_npudump.regression.run_plan import (
    Plan,
    needs_inputs,
    plan_second_run,
    plan_suspects,
    plan_third_run,
    upstream_of,
)
from tests.regression.conftest import BOTH, HEALTHY, PRINTED, REGRESSED, Flow

MATMUL, SOFTMAX = 2 * (200 + 2), 2 * (2 + 2)
"""Bytes of the float16 inputs and outputs of the operators that differ, by their shapes."""


def _plan(flow: Flow, sample: Path, **given: Any) -> Plan | None:
    case = flow.case(**given)
    return plan_second_run(case, flow.first(case, sample))


UPDATE: dict[str, Any] = {"update_golden": "all"}
DIFFER, EXCEEDED = BOTH[2:], "the tensors of 2 layers exceed npudump_dump_limit"
PLANS: dict[str, tuple[Any, ...]] = {
    "all differing, in order of execution": ({}, REGRESSED, DIFFER, (), ""),
    "room for both": ({"dump_limit": MATMUL + SOFTMAX}, REGRESSED, DIFFER, (), ""),
    "a byte too little": ({"dump_limit": MATMUL + SOFTMAX - 1}, REGRESSED, DIFFER[:1], DIFFER[1:], EXCEEDED),
    "room for one": ({"dump_limit": MATMUL}, REGRESSED, DIFFER[:1], DIFFER[1:], EXCEEDED),
    "room for none": (
        {"dump_limit": MATMUL - 1},
        REGRESSED,
        None,
        DIFFER,
        f"{EXCEEDED} ({MATMUL - 1} B)",
    ),
    "a recording's tensors": ({"golden_tensors": ("net/S*",), **UPDATE}, HEALTHY, DIFFER[1:], (), ""),
    "too many of these": (
        {"golden_tensors": DIFFER, "dump_limit": MATMUL, **UPDATE},
        HEALTHY,
        None,
        DIFFER[1:],
        EXCEEDED,
    ),
    "a recording without tensors": (UPDATE, HEALTHY, (), (), ""),
    "a run that passes": ({}, HEALTHY, (), (), ""),
    "not by the marker": ({"escalate": False}, REGRESSED, (), (), ""),
    "nothing that can be read": ({}, "empty", (), (), ""),
}
"""What a marker asks for, a run, and the layers of its plan: none without a plan, None where it says why."""


@pytest.mark.parametrize("case", PLANS.values(), ids=PLANS)
def test_a_second_run_dumps_what_is_to_be_explained_or_kept_and_has_room(flow: Flow, case: Any) -> None:
    given, sample, layers, omitted, note = case
    flow.record()
    (flow.folder / "empty").mkdir()
    plan = _plan(flow, flow.folder / sample if sample == "empty" else sample, **given)
    if layers == ():
        assert plan is None
        return
    assert plan is not None
    assert (plan.runs, plan.accompanies) == (layers is not None, False)
    if plan.skipped is not None:
        assert (layers, plan.skipped.omitted) == (None, omitted)
        assert note in plan.skipped.problem
    else:
        assert (plan.layers, plan.raw_layers, plan.omitted) == (layers, layers, omitted)
        assert bool(plan.notes) is bool(note)
        assert note in " ".join(plan.notes)


def test_of_too_many_layers_the_first_are_dumped_and_those_with_golden_tensors(
    flow: Flow, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run_plan, "_MOST_FAILING", 1)
    note = "second run limited to 1 of 2 mismatching layers "
    cases: tuple[tuple[dict[str, Any], tuple[str, ...], tuple[str, ...]], ...] = (
        ({}, DIFFER[:1], DIFFER[1:]),
        ({"golden_tensors": ("net/S*",)}, DIFFER, ()),
        ({"layers": BOTH[:3]}, DIFFER[:1], ()),
    )
    for given, layers, left_out in cases:
        flow.record(**given)
        plan = _plan(flow, REGRESSED, **given)
        assert plan is not None
        assert (plan.layers, plan.raw_layers, plan.omitted) == (layers, layers, left_out)
        assert [one for one in plan.notes if note in one] == [*plan.notes[: len(left_out)]]
    flow.record()
    flow.settings = flow.settings._replace(escalate="off")
    assert _plan(flow, REGRESSED) is None  # the option is not overruled


def test_layers_that_only_one_side_has_are_not_dumped_and_alone_need_no_second_run(flow: Flow) -> None:
    flow.record(layers=())
    plan = _plan(flow, REGRESSED, layers=())
    assert plan is not None
    assert not {"net/Conv@13", "net/Conv@22"} & {*plan.layers}
    flow.record(layers=("net/*@0",))
    golden = flow.golden.read_text()
    flow.golden.write_text(golden.replace("net/MatMul@0", "net/Gone@0"))
    assert _plan(flow, HEALTHY, layers=("net/*@0",)) is None


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
    plan = _printed(flow, layers=("net/BatchNormalization@0", "net/Add@0", "net/Clip@0"))
    assert plan.raw_layers == ("net/BatchNormalization@0",)  # the marker has them


def test_what_feeds_a_source_is_dumped_behind_it_and_does_not_push_it_out(flow: Flow) -> None:
    plan = _printed(flow, names="net/")  # the golden has the raw names
    assert plan.raw_layers == ("net/BatchNormalization@0", "net/Conv@0")
    assert plan.layers == ("net/BatchNormalization@0", "net_Conv@0")
    assert [str(key) for key in plan.suspects] == ["net/BatchNormalization@0:output.0"]
    tight = _printed(flow, names="net/", dump_limit=150_000)
    assert (tight.layers, tight.omitted) == (("net/BatchNormalization@0",), ())
    assert "; 1 layer dumped (sources first, then their inputs, " in tight.notes[0]


def test_a_dump_of_all_layers_beyond_the_limit_is_not_made(flow: Flow) -> None:
    first = flow.first(flow.case(layers=(), dump_data="stats"), PRINTED)
    assert first.run.dump is not None
    every = sum(record.size or 0 for record in first.run.dump.records)
    plan = _printed(flow, dump_limit=every - 1)
    assert plan.skipped is not None
    assert "a dump of every layer exceeds npudump_dump_limit" in plan.skipped.problem
    assert _printed(flow, dump_limit=every).skipped is None


def test_what_a_source_reads_is_dumped_as_an_input_where_nothing_tells_which_output_it_is(flow: Flow) -> None:
    flow.record()
    case = flow.case()
    first = flow.first(case, REGRESSED)
    assert first.run.dump is not None
    suspects = (TensorKey("net/Softmax@0", "output", 0),)
    assert needs_inputs(case, Edges(), first.run.dump, suspects)
    plan = plan_suspects(case, first, first.run.dump, suspects, BOTH[3:], edges=Edges())
    assert (plan.inputs, plan.layers, plan.suspects) == (True, ("net/Softmax@0",), suspects)
    sizes = [record.size or 0 for record in first.run.dump.records]  # what is read may be as large as any
    for limit, room in ((max(sizes), False), (2 * max(sizes), True)):
        plan = plan_suspects(
            flow.case(dump_limit=limit), first, first.run.dump, suspects, BOTH[3:], edges=Edges()
        )
        assert plan.inputs is room


def test_a_golden_that_keeps_edges_tells_what_is_upstream(flow: Flow) -> None:
    flow.record()
    kept = "net/Softmax@0 < net/MatMul@0:output.0", "net/MatMul@0 < net/Conv@19:output.0 -"
    flow.golden.write_text(flow.golden.read_text() + "edges: |\n  " + "\n  ".join(kept) + "\n")
    case = flow.case()
    first = flow.first(case, REGRESSED)
    assert first.run.dump is not None
    suspects = (TensorKey("net/Softmax@0", "output", 0),)
    edges = edges_of_run(case, first)
    assert upstream_of(edges, first.run.dump, suspects) == ("net/MatMul@0", "net/Conv@19")
    plan = plan_suspects(case, first, first.run.dump, suspects, BOTH[3:], edges=edges)
    assert (plan.inputs, plan.layers) == (False, ("net/Softmax@0", "net/MatMul@0", "net/Conv@19"))


@pytest.mark.parametrize(("size", "least"), [(1 << 20, UPSTREAM), (1 << 10, 115)])
def test_layers_upstream_are_nearest_first_and_no_more_than_can_be_of_use(size: int, least: int) -> None:
    chain = [Node("0", "Conv", (None,))]
    chain += [Node(str(at), "Conv", (Port(str(at - 1)), Port(f"side{at - 1}"))) for at in range(1, 60)]
    nodes = [*chain, *(Node(f"side{at}", "Relu", (Port(str(at)),)) for at in range(59))]
    records = [
        TensorRecord(TensorKey(node.name, "output", 0), node.op_type, "float32", (1,), Path("x"), size=size)
        for node in nodes
        if node.name != "57"
    ]
    dump = Dump(Path("x"), tuple(records))
    found = upstream_of(Edges.of(nodes, "test"), dump, (TensorKey("59", "output", 0),))
    assert found[:5] == ("58", "side58", "side57", "56", "side56")
    assert len(found) == 2 + least


def test_single_operators_cannot_be_selected_and_are_all_dumped(flow: Flow) -> None:
    flow.record(scene="op")
    plan = _plan(flow, REGRESSED, scene="op")
    assert plan is not None
    assert (plan.layers, plan.raw_layers) == (("net/MatMul@0", "net/Softmax@0"), ())
    assert "acl.json cannot select single operators" in plan.notes[-1]


FEEDS = {"x": (), "conv": ("x",), "relu": ("conv",), "add": ("relu", "conv"), "odd": ("?", "*", "add")}
MARKS = {"?": UNKNOWN, "*": SEVERAL}


@pytest.mark.each(
    ("isolated", "dumped", "suspects"),
    [
        # What feeds one that was acquitted, but inputs of the graph, what is unknown, and what was judged.
        ({"add": ACQUITTED}, "add", ["relu", "conv"]),
        ({"add": ACQUITTED, "relu": ACQUITTED}, "add relu", ["conv"]),
        ({"conv": ACQUITTED}, "conv", []),
        ({"odd": ACQUITTED}, "odd", ["add"]),
        # Once one was convicted, what is upstream of a failure is explained, and another failure is not.
        ({"relu": ACQUITTED, "conv": CONVICTED}, "relu conv", []),
        ({"add up": ACQUITTED, "conv": CONVICTED}, "add conv", []),
        ({"add": ACQUITTED, "conv": CONVICTED}, "add conv", ["relu"]),
        ({"add up": ACQUITTED}, "add", ["relu", "conv"]),
        # One whose inputs had no room is tried again.
        ({"add": NOT_JUDGED}, "add relu", ["add"]),
        ({"add": NOT_JUDGED}, "add relu conv", []),
        ({"add": CONVICTED}, "add", []),
    ],
)
def test_a_third_run_sees_what_feeds_operators_that_were_acquitted(
    monkeypatch: pytest.MonkeyPatch, isolated: dict[str, str], dumped: str, suspects: list[str]
) -> None:
    ports = {name: tuple(MARKS.get(port, Port(port)) for port in fed) for name, fed in FEEDS.items()}
    records = [TensorRecord(TensorKey(name, "output", 0), "", "float32", (4,), Path(name)) for name in FEEDS]
    judged = [
        SimpleNamespace(
            key=TensorKey(name.removesuffix(" up"), "output", 0),
            alone=SimpleNamespace(verdict=verdict),
            upstream="up" in name,
        )
        for name, verdict in isolated.items()
    ]
    seen: list[TensorKey] = []

    def plan(_case: Any, _first: Any, _dump: Any, found: tuple[TensorKey, ...], *_: Any, **__: Any) -> Plan:
        seen.extend(found)
        return Plan(("all",))

    monkeypatch.setattr(run_plan, "edges_of_run", lambda *_: Edges(ports, "m"))
    monkeypatch.setattr(run_plan, "plan_suspects", plan)
    settings = SimpleNamespace(second_runs=2, dump_limit=1 << 20)
    case: Any = SimpleNamespace(settings=settings, exchange=None)
    first: Any = SimpleNamespace(run=SimpleNamespace(dump=Dump(Path("dump"), tuple(records))), good=False)
    found: Any = Escalation(layers=tuple(dumped.split()), isolated=tuple(judged))  # type: ignore[arg-type]
    assert (plan_third_run(case, first, found) is not None) is bool(suspects)
    assert [key.layer for key in seen] == suspects
