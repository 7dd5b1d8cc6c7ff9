"""Edges as a value: what joining, completing and leaving out does to them."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from pytest_npudump.graph.edges import SEVERAL, UNKNOWN, Edges, Port
from pytest_npudump.graph.edges import GraphNode as Node

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
    assert found.feeds == {
        "a": (),
        "d": (Port("a"), Port("a")),
        "f": (SEVERAL, Port("d"), Port("a")),
    }


def test_slots_and_constants_stay() -> None:
    assert CHAIN.restricted(["a", "b", "c", "d"]).feeds["d"] == (Port("c", 0), Port("c", 1))
    assert CHAIN.restricted(["a", "b"]).feeds["b"] == (Port("a"), None)


def test_raw_names_are_those_of_the_layers_asked_for() -> None:
    edges = Edges.of([Node("net/a.b", "Relu", ()), Node("net/c", "Relu", (Port("net/a.b"),))], "model")
    assert edges.restricted(["net_a_b", "net_c"]).feeds == {"net_a_b": (), "net_c": (Port("net_a_b"),)}
    assert edges.restricted(["net/a.b", "net/c"]).feeds["net_c"] == (Port("net/a.b"),)


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
