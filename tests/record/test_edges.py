"""Edges as a value: what joining, completing and leaving out does to them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, strategies as st

from pytest_npudump.dump.records import ARGMAX, TensorKey, TensorRecord, sanitise
from pytest_npudump.dump.stats.tensor import tensor_stats
from pytest_npudump.dump.table import StatsTable
from pytest_npudump.graph.model_files import read_onnx
from pytest_npudump.onnxmodels import sessions
from pytest_npudump.record.edges import (
    SEVERAL,
    UNKNOWN,
    Edges,
    GraphNode as Node,
    Port,
    edge_lines_under,
    edges_of_lines,
    lines_of,
    same_values,
)
from pytest_npudump.record.text import check_edge_lines
from tests.conftest import table_of

CHAIN = Edges.of(
    [
        Node("a", "Data", ()),
        Node("b", "Conv", (Port("a"), None)),
        Node("c", "Split", (Port("b"),)),
        Node("d", "Add", (Port("c", 0), Port("c", 1))),
        Node("e", "Add", (Port("d"), Port("b"))),
        Node("f", "Relu", (Port("e"),)),
    ],
    "model",
)


def test_what_is_left_out_is_looked_through() -> None:
    found = CHAIN.restricted(["a", "d", "f"])
    assert found.feeds == {"a": (), "d": (Port("a"), Port("a")), "f": (SEVERAL, Port("d"), Port("a"))}


def test_slots_and_constants_stay() -> None:
    assert CHAIN.restricted(["a", "b", "c", "d"]).feeds["d"] == (Port("c", 0), Port("c", 1))
    assert CHAIN.restricted(["a", "b"]).feeds["b"] == (Port("a"), None)


def test_raw_names_are_those_of_the_layers_asked_for() -> None:
    edges = Edges.of([Node("net/a.b", "Relu", ()), Node("net/c", "Relu", (Port("net/a.b"),))], "model")
    assert edges.restricted(["net_a_b", "net_c"]).feeds == {"net_a_b": (), "net_c": (Port("net_a_b"),)}
    assert edges.restricted(["net/a.b", "net/c"]).feeds["net_c"] == (Port("net/a.b"),)


TURNS = """\
a < -
relu < a
b < relu
out < relu relu#turn=1
relu#turn=1 < b
"""


def test_executions_that_are_fed_by_others_each_are_told_apart() -> None:
    check_edge_lines(TURNS)
    edges = edges_of_lines(TURNS, "golden")
    assert lines_of(edges, ["a", "relu", "b", "out"]) == TURNS
    assert lines_of(edges, ["a", "b", "out"]).splitlines()[1:] == ["b < a", "out < a b"]
    names = ("a", "relu", "b", "relu#turn=1", "out", "a#step=1", "relu#step=1", "out#step=1")
    keys = [TensorKey.parse(f"{name}:output.0") for name in names]
    found = edges.parents_of(keys)
    assert found[:5] == [((), True), ((0,), True), ((1,), True), ((2,), True), ((1, 3), True)]
    assert found[5:] == [((), True), ((), False), ((), False)]  # another number of executions in this step
    assert edges.unknown({"relu"}).parents_of(keys)[3] == ((), False)


@pytest.mark.each("name", ["net/relu", "net:relu", "net:output.0", "-", "<"])
def test_layers_have_other_names_in_edges(name: str) -> None:
    text = edge_lines_under({"relu": name, "a": "x"}, TURNS + "d < relu:output.1 ? *\n")
    feeds = edges_of_lines(text, "golden").feeds
    assert feeds["out"] == (Port(name), Port(name, 0, 1))
    assert feeds["d"] == (Port(name, 1), UNKNOWN, SEVERAL)
    assert feeds[sanitise(name)] == (Port("x"),)


def test_an_operator_that_no_graph_has_is_unknown_wherever_it_feeds() -> None:
    edges = Edges.of([Node("b", "Relu", (Port("elsewhere"),))], "model")
    assert edges.restricted(["b"]).feeds["b"] == (UNKNOWN,)


def test_a_cycle_ends() -> None:
    edges = Edges.of(
        [Node("a", "", (Port("b"),)), Node("b", "", (Port("a"),)), Node("c", "", (Port("a"),))], ""
    )
    assert edges.restricted(["c"]).feeds["c"] == (None,)


def test_graphs_that_disagree_on_a_name_know_nothing_of_it() -> None:
    one = Edges.of([Node("a", "", ()), Node("b", "", (Port("a"),))], "one.onnx")
    other = Edges.of([Node("b", "", (Port("x"),)), Node("c", "", ())], "two.onnx")
    joined = one.joined(other)
    assert joined.feeds == {"a": (), "b": (UNKNOWN,), "c": ()}
    assert joined.told_by == "one.onnx, two.onnx"
    twice = Edges.of([Node("x/y", "", ()), Node("x.y", "", (Port("z"),))], "")
    assert twice.feeds == {"x_y": (UNKNOWN,)}


def test_edges_are_completed_by_what_only_others_know() -> None:
    one, other = Edges({"a": (Port("x"),)}, "golden"), Edges({"a": (Port("y"),), "b": ()}, "model")
    assert one.completed(other) == Edges({"a": (Port("x"),), "b": ()}, "golden, model")
    assert one.completed(Edges({"a": ()}, "model")) is one
    calls = edges_of_lines(TURNS, "golden")  # of a layer that has one call now, those of before are gone
    now = Edges({"relu": (Port("a"),)}, "model").completed(calls)
    first = edges_of_lines(TURNS.rpartition("relu#turn=1 <")[0], "golden").feeds
    assert now.feeds == {**first, "relu": (Port("a"),)}


@given(st.data())
def test_restricted_edges_are_the_paths_through_what_is_left_out(data: st.DataObject) -> None:
    count = data.draw(st.integers(1, 9))
    parents = [data.draw(st.sets(st.integers(0, max(at - 1, 0)))) - {at} for at in range(count)]
    kept = data.draw(st.sets(st.integers(0, count - 1)))
    edges = Edges.of(
        [Node(str(at), "", tuple(Port(str(p)) for p in sorted(fed))) for at, fed in enumerate(parents)], ""
    )

    def behind(at: int) -> set[int]:
        return {at} if at in kept else set().union(*map(behind, parents[at]))

    found = edges.restricted([str(at) for at in kept]).feeds
    assert found.keys() == {str(at) for at in kept}
    for at in kept:
        ports = {port for port in found[str(at)] if port not in (None, SEVERAL)}
        assert ports == {Port(str(p)) for fed in parents[at] for p in behind(fed)}


def test_what_two_operators_of_one_file_name_feed_is_unknown() -> None:
    nodes = [Node("x", "Data", ()), Node("a/b", "Relu", (Port("x"),)), Node("a_b", "Relu", (Port("x"),))]
    edges = Edges.of(
        [*nodes, Node("c", "Relu", (Port("a/b"),)), Node("d", "Add", (Port("x"), None))], "model"
    )
    assert edges.feeds == {"x": (), "a_b": (UNKNOWN,), "c": (UNKNOWN,), "d": (Port("x"), None)}


def test_nothing_is_said_of_what_feeds_layers_that_are_unknown() -> None:
    assert CHAIN.unknown({"b", "z"}).feeds == {**CHAIN.feeds, "b": (UNKNOWN,)}


GOLDEN = "test_ocr.yaml"
EDGES = Edges(
    {
        "x": (),
        "conv": (Port("x"), None),
        "split": (Port("conv"),),
        "add": (SEVERAL, UNKNOWN, Port("split", 1)),
    },
    "",
)
TEXT = """\
x <
conv < x -
split < conv
add < * ? split:output.1
"""


def test_lines_are_in_the_order_of_the_layers() -> None:
    assert lines_of(EDGES, ["x", "conv", "split", "add"]) == TEXT


def test_lines_are_read_back() -> None:
    assert edges_of_lines(TEXT, GOLDEN) == Edges(EDGES.feeds, GOLDEN)
    earlier = TEXT.replace(" x -", " x:output.0 -").replace(" conv\n", " conv:output.0\n")
    assert edges_of_lines(earlier, GOLDEN) == Edges(EDGES.feeds, GOLDEN)


def test_layers_of_which_nothing_is_known_have_no_line() -> None:
    assert lines_of(EDGES, ["other", "x"]) == "x <\n"
    assert lines_of(Edges(), ["x"]) == ""


@given(st.lists(st.text(min_size=1, max_size=8), min_size=2, max_size=2, unique=True))
@example(["-", "a"])
@example(["a:output.1", "?"])
def test_any_name_is_read_back_or_left_out(names: list[str]) -> None:
    first, second = names
    edges = Edges({sanitise(first): (), sanitise(second): (Port(first, 2), Port(first))}, "")
    text = lines_of(edges, names)
    assert all(line.isprintable() for line in text.splitlines())
    found = edges_of_lines(text, GOLDEN).feeds
    assert found.items() <= edges.restricted(names).feeds.items()
    if first.isascii() and second.isascii() and sanitise(first) != sanitise(second):
        assert len(found) == 2


def test_raw_names_that_file_names_cannot_tell_apart_know_nothing() -> None:
    assert edges_of_lines("a/b < x:output.0\na.b <\n", GOLDEN).feeds == {"a_b": (UNKNOWN,)}


A: dict[str, Any] = {"count": 4, "max": 2.5, "min": -1.0, "avg": 0.5, "nan": 0, "neg_inf": 0, "pos_inf": 0}
B = A | {"avg": 0.25}


def rows(*pairs: tuple[str, dict[str, Any]]) -> list[tuple[str, str, tuple[int, ...], dict[str, Any]]]:
    return [(key, "float32", (4,), stats) for key, stats in pairs]


def test_an_input_that_holds_what_one_output_held_came_from_there() -> None:
    table = table_of(*rows(("a:output.0", A), ("b:output.1", B), ("c:input.0", B), ("c:input.1", A)))
    assert same_values(table).feeds == {"c": (Port("b", 1), Port("a"))}


@pytest.mark.each(
    "before",
    [[("a:output.0", A), ("b:output.0", A)], [("a:output.0", B)], [("a#step=1:output.0", A)], []],
    ids=["two", "none alike", "of another step", "none"],
)
def test_several_or_none_are_no_evidence(before: list[tuple[str, dict[str, Any]]]) -> None:
    table = table_of(*rows(("z:output.0", B), *before, ("c:input.0", B), ("c:input.1", A)))
    assert same_values(table).feeds.get("c", (UNKNOWN, UNKNOWN))[1] == UNKNOWN


def test_elements_that_are_all_alike_or_unknown_are_no_evidence() -> None:
    for stats in (A | {"max": 0.5, "min": 0.5}, A | {"avg": None}, A | {"max": float("nan")}):
        table = table_of(*rows(("a:output.0", stats), ("c:input.0", stats)))
        assert same_values(table).feeds == {}


def test_hashes_tell_outputs_of_the_same_statistics_apart() -> None:
    table = table_of(*rows(("a:output.0", A), ("b:output.0", A), ("c:input.0", A)))
    table = replace(table, digests=(f"md5:1 {ARGMAX}:5", f"md5:2 {ARGMAX}:5", "md5:2"))
    assert same_values(table).feeds == {"c": (Port("b"),)}


def test_an_output_behind_an_input_did_not_feed_it() -> None:
    assert same_values(table_of(*rows(("c:input.0", A), ("a:output.0", A)))).feeds == {}


def test_on_a_real_model_they_are_edges_of_the_model(classifier: Path) -> None:
    model = sessions.prepare(classifier)
    names = [name for operator in model.operators for name in operator.outputs]
    feeds = {"x": np.load(classifier.with_suffix(".npz"))["x"]}
    tensors = feeds | dict(zip(names, model.session(names).run(names, feeds), strict=True))
    records = [
        TensorRecord(
            TensorKey(operator.name, io, slot),
            operator.op_type,
            str(tensors[name].dtype),
            tensors[name].shape,
            classifier,
            stats=tensor_stats(tensors[name]),
        )
        for operator in model.operators
        for io, side in (("input", operator.inputs), ("output", operator.outputs))
        for slot, name in enumerate(side)
    ]
    found, true = same_values(StatsTable.from_records(records)).feeds, read_onnx(classifier).feeds
    told = 0
    for layer, ports in found.items():
        for port, real in zip(ports, true[layer], strict=True):
            assert port in (real, UNKNOWN)
            told += port != UNKNOWN
    assert told > 200


@pytest.mark.each(
    ("feeds", "key", "parents"),
    [
        ({"b": (Port("a"), Port("c"))}, "b:input.1", ((1,), True)),
        ({"b": (Port("a"), None)}, "b:input.1", ((), True)),
        # Which output feeds this input is not known: all that feed the layer, but calls inside of it.
        ({"b": (Port("a"),)}, "b:input.1", ((0,), True)),
        ({"b": (SEVERAL, Port("a"), Port("c"))}, "b:input.0", ((0, 1), True)),
        ({"b": (UNKNOWN, Port("a"))}, "b:input.0", ((0,), False)),
        ({"b": (UNKNOWN, Port("b.c"))}, "b:input.0", ((), False)),
        # An output has all dumped inputs, and calls inside of its layer, but not itself.
        ({"b": (Port("a"), Port("b.c"))}, "b:output.0", ((2, 3, 4), True)),
        # Of a model, whose parts have names of their own, they stand behind all slots.
        ({"b": (None, None, Port("a"), UNKNOWN)}, "b:output.0", ((2, 3, 0), True)),
        ({"b": (SEVERAL, None, Port("a"), Port("c"))}, "b:output.0", ((2, 3), True)),
        ({"b.backward": (Port("b.backward"), Port("b.c"))}, "b.backward:output.0", ((6, 4), True)),
        ({"b": (Port("a"),)}, "a:output.0", ((), False)),
        ({"b": (Port("a"),), "a": (Port("gone"),)}, "a:output.0", ((), False)),
    ],
)
def test_inputs_are_what_is_known_to_feed_them(
    feeds: dict[str, tuple[Port | None, ...]], key: str, parents: tuple[tuple[int, ...], bool]
) -> None:
    names = ("a:output.0", "c:output.0", "b:input.0", "b:input.1", "b.c:output.0", "b:output.0")
    keys = [*map(TensorKey.parse, (*names, "b.backward:input.0", "b.backward:output.0"))]
    edges = Edges({sanitise(name): ports for name, ports in feeds.items()})
    assert edges.parents_of(keys)[keys.index(TensorKey.parse(key))] == parents
