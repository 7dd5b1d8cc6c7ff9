"""Sources of a failure, held against a definition by brute force."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, strategies as st

from pytest_npudump.cli import main
from pytest_npudump.compare.stats.allowances import shares_of_allowed
from pytest_npudump.compare.stats.tables import compare_tables
from pytest_npudump.compare.stats.verdict import Comparison, explain_first
from pytest_npudump.compare.tolerances.tolerance import Rule, Tolerances
from pytest_npudump.dump.records import TensorKey
from pytest_npudump.dump.table import StatsTable
from pytest_npudump.errors import FormatError
from pytest_npudump.graph.model_files import code_of
from pytest_npudump.graph.sources import (
    Sources,
    TensorGraph,
    changes_upstream,
    explained,
    fed_first,
    find_sources,
    nearest,
    numbers_of_bits,
    relative_differences,
    sources_upstream,
    walked_back,
)
from pytest_npudump.record.edges import UNKNOWN, Edges, GraphNode as Node, Port
from pytest_npudump.record.noise import Calibrated
from pytest_npudump.report.origins import feeds_are_seen, mismatches

Make = Callable[..., StatsTable]
BASE: dict[str, Any] = {"count": 4, "max": 2.0, "min": -1.0, "avg": 0.5, "l2norm": 4.0}
FED = {"a": "", "b": "a", "c": "b", "d": "c", "p": "a", "q": "p", "end": "d q"}
"""Two branches, a-b-c-d and a-p-q, that meet in end."""
WITHIN = "all tensors compared before it are within tolerance"


def edges(fed: dict[str, str]) -> Edges:
    nodes = [Node(name, "", tuple(map(Port, parents.split()))) for name, parents in fed.items()]
    return Edges.of([*nodes, Node("unread", "", (UNKNOWN,))], "model.onnx")


def comparison_of(
    make_table: Make,
    fed: dict[str, str],
    off: dict[str, float],
    *,
    dtypes: dict[str, str] | None = None,
    noise: dict[str, str] | None = None,
    projected: bool = False,
) -> Comparison:
    """Comparison where the max of each layer is off by so many times its tolerance."""
    tables = [
        make_table(
            *[
                (
                    name if ":" in name else f"{name}:output.0",
                    (dtypes or {}).get(name, "float32"),
                    (4,),
                    BASE | {"max": 2.0 * (1 + 2e-5 * off.get(name, 0.0) * side)},
                )
                for name in fed
            ]
        )
        for side in (0, 1)
    ]
    cells = [(noise or {}).get(name, "-") for name in fed]
    measured = Calibrated.of(tables[0].keys, cells) if noise else None
    tolerances = Tolerances("same").with_measured(measured)
    if projected:
        sums = {row: [3.0, 1.0, -2.0, 0.5, 1.5, -1.0, 2.5, 0.0] for row in range(len(tables[0]))}
        tables = [table.with_projections(sums) for table in tables]
    return compare_tables(*tables, tolerances)


def sources(
    make_table: Make,
    off: dict[str, float],
    fed: dict[str, str] | None = None,
    *,
    dtypes: dict[str, str] | None = None,
    known: Edges | None = None,
    repeats: bool = False,
    noise: dict[str, str] | None = None,
    walks: bool = True,
    altered: dict[str, str] | None = None,
    projected: bool = False,
) -> Sources | None:
    """Sources where the max of each layer is off by so many times its tolerance."""
    fed = FED if fed is None else fed
    comparison = comparison_of(make_table, fed, off, dtypes=dtypes, noise=noise, projected=projected)
    told = edges(fed) if known is None else known
    return find_sources(
        comparison, told, comparison.tolerances, repeats=repeats, walks=walks, altered=altered or {}
    )


def layers(found: Sources | None) -> list[str]:
    assert found is not None
    return [source.key.layer for source in found.found]


def test_what_differs_by_rounding_is_not_followed(make_table: Make) -> None:
    off = {"b": 0.5, "c": 0.9, "d": 1.2, "p": 0.8, "q": 1.1, "end": 1.3}
    walked, rested = sources(make_table, off), sources(make_table, off, walks=False)
    assert walked is not None
    assert rested is not None
    assert [source.begins is None for source in walked.found] == [False, False]
    assert [(s.key.layer, s.begins, s.explains, s.behind) for s in rested.found] == [
        ("d", None, 2, None),
        ("q", None, 2, None),
    ]


# What is off, by how many times its tolerance; and of each source its layer, where it begins, how many
# failing tensors it explains, and which source it lies behind.
SOURCES: list[tuple[dict[str, float], dict[str, Any], list[tuple[str, str | None, int, str | None]]]] = [
    ({"b": 50, "c": 40, "d": 30, "end": 20}, {}, [("b", None, 4, None)]),
    ({"c": 40, "d": 30, "q": 90, "end": 20}, {}, [("c", None, 3, None), ("q", None, 2, None)]),
    # a change is walked back through what passes, a small one only where the golden repeats;
    # b shows no change, and is passed over
    ({"b": 0.6, "c": 0.9, "d": 2.0, "end": 2.0}, {}, [("d", "b", 2, None)]),
    ({"a": 0.01, "b": 0.0, "c": 0.1, "d": 20.0}, {}, [("d", None, 1, None)]),
    (
        {"a": 0.01, "b": 0.0, "c": 0.1, "d": 20.0},
        {"repeats": True},
        [("d", "a", 1, None)],
    ),  # b is passed over
    # nor are all changes as large as projections tell
    ({"c": 0.9, "d": 20.0}, {"repeats": True, "projected": True}, [("d", "c", 1, None)]),
    ({"c": 0.9, "d": 20.0}, {"projected": True}, [("d", None, 1, None)]),
    # integers differ by whatever their inputs do
    ({"c": 0.1, "d": 1e5}, {"dtypes": {"d": "int32"}}, [("d", "c", 1, None)]),
    # what passes between two failing tensors joins them, unless one is off by far more than that can explain
    ({"b": 2.0, "c": 0.9, "d": 1.5}, {}, [("b", None, 2, None)]),
    ({"b": 2.0, "c": 0.1, "d": 1.5}, {}, [("b", None, 2, None), ("d", None, 1, "b")]),
    # a fault behind what did not change is a source of its own
    ({"b": 50, "c": 0.0, "d": 30}, {"repeats": True}, [("b", None, 1, None), ("d", None, 1, "b")]),
]


def test_sources_explain_what_they_feed_and_begin_where_a_change_came_in(make_table: Make) -> None:
    for off, known, expected in SOURCES:
        found = sources(make_table, off, **known)
        assert found is not None
        told = [
            (s.key.layer, s.begins and s.begins.layer, s.explains, s.behind and s.behind.layer)
            for s in found.found
        ]
        assert told == expected, (off, known)
        assert found.told_by == "model.onnx"
    two = sources(make_table, SOURCES[1][0])
    assert two.independent == two.found
    [source] = sources(make_table, SOURCES[2][0]).found
    assert source.share == pytest.approx(0.6, rel=1e-3)
    assert sources(make_table, {"b": 0.5}) is None


@pytest.mark.each(
    ("noise", "begins"),
    [
        ({}, "a"),  # all repeats: any change counts
        ({"a": "~2e-6,-,-,-"}, "b"),  # a differs by no more than runs alike did
        ({"a": "~2e-8,-,-,-"}, "a"),  # by more
        ({"a": "2e-6,-,-,-"}, "a"),  # calibrated, and known to repeat
        ({"b": "~2e-8,-,-,-"}, "b"),  # what feeds b does not have to be why it changed
        ({"c": "~2e-8,-,-,-"}, None),
    ],
)
def test_what_does_not_repeat_has_not_changed_where_it_differs_as_it_always_does(
    make_table: Make, noise: dict[str, str], begins: str | None
) -> None:
    found = sources(make_table, {"a": 0.1, "b": 0.9, "c": 40}, repeats=True, noise=noise)
    assert layers(found) == ["c"]
    assert found is not None
    start = found.found[0].begins
    assert (start.layer if start is not None else None) == begins


def test_what_an_unknown_tensor_may_feed_is_not_said_to_follow_from_another(make_table: Make) -> None:
    known = edges(FED).feeds | {"d": (Port("c"), UNKNOWN)}
    found = sources(make_table, {"b": 50, "c": 0.0, "d": 30}, known=Edges(known, "golden"), repeats=True)
    assert layers(found) == ["b"]
    assert [key.layer for key in found.unplaced] == ["d"]


def test_operators_that_only_move_values_are_looked_through() -> None:
    keys = [TensorKey(name, "output", 0) for name in "abc"]
    for op_type, expected in (
        ("Cast", (0,)),
        ("aclnnInplaceCopy", (0,)),
        ("TransposeD", (0,)),
        ("Relu", (0, 2)),
    ):
        graph = TensorGraph(keys, ["Conv", op_type, "Conv"], [(), (0,), (1,)], [True] * 3)
        assert explained([0, 2], graph, lambda at: [at]).sources == expected


def test_where_what_feeds_a_tensor_is_not_known_that_is_said(make_table: Make) -> None:
    known = Edges.of(
        [Node("a", "", ()), Node("b", "", (UNKNOWN,)), Node("d", "", (Port("c"), UNKNOWN))], "golden"
    )
    found = sources(make_table, {"b": 3.0, "c": 3.0, "d": 3.0, "q": 3.0}, known=known)
    assert [(source.key.layer, source.known) for source in found.found] == [("b", False)]
    assert [key.layer for key in found.unplaced] == ["c", "q"]
    assert sources(make_table, {"b": 3.0}, known=Edges()) is None


@pytest.mark.each(
    ("unseen", "first", "said"),
    [
        ("", "c:output.0", "all statistics before it match, including those of the outputs that feed it"),
        ("a", "c:output.0", f"{WITHIN}, including those of the outputs that feed it"),
        ("b", "c:output.0", f"{WITHIN}; not all of its inputs are known"),
        ("p", "c:output.0", f"{WITHIN}; not all of its inputs are known"),
        ("a", "c:input.0", "the output that feeds it is within tolerance: changed on the way by"),
        ("b", "c:input.0", "caused by a layer that was not dumped or compared, by what is fed, or by an"),
    ],
)
def test_an_output_that_was_not_compared_is_not_said_to_be_within_tolerance(
    make_table: Make, unseen: str, first: str, said: str
) -> None:
    tables = [
        make_table(
            *[
                (key, "float32", (4,), {} if key[0] == unseen else BASE | {"max": most})
                for key, most in (
                    ("a:output.0", 2.0),
                    ("b:output.0", 2.0),
                    ("p:output.0", 2.0),
                    (first, 2.0 + side),
                )
            ]
        )
        for side in (0, 1)
    ]
    comparison = compare_tables(*tables, Tolerances("same"))
    found = find_sources(comparison, edges({"a": "", "b": "a", "p": "a", "c": "b p"}), comparison.tolerances)
    words = explain_first(comparison, feeds_seen=feeds_are_seen(found, comparison.first))
    assert words.startswith(said)


def test_a_cycle_is_said(make_table: Make) -> None:
    fed = {"a": "", "b": "a d", "c": "b", "d": "c", "e": "d"}
    found = sources(make_table, {"b": 3.0, "c": 3.0, "d": 3.0, "e": 3.0}, fed)
    assert [(source.key.layer, source.explains, source.cycle) for source in found.found] == [("b", 4, True)]
    assert found.found[0].begins is None  # what feeds it fails itself, and is no passing tensor upstream


def test_dumped_inputs_are_what_feeds_an_output(make_table: Make) -> None:
    fed = {"a": "", "b:input.0": "", "b": "a", "c:input.0": "", "c": "b"}
    found = sources(make_table, {"b:input.0": 3.0, "b": 3.0, "c:input.0": 3.0, "c": 3.0}, fed)
    [source] = found.found
    assert str(source.key) == "b:input.0"  # between a, which passes, and b: neither's own
    assert source.explains == 4


def test_turns_of_a_loop_are_fed_by_their_own(make_table: Make) -> None:
    fed = {"a": "", "b": "a", "c": "b"}
    rows = {"a": 0.0, "b": 0.0, "c": 0.0, "b#turn=1": 3.0, "c#turn=1": 3.0, "c#turn=2": 3.0}
    tables = [
        make_table(
            *[
                (f"{name}:output.0", "float32", (4,), BASE | {"max": 2.0 + 1e-4 * off * side})
                for name, off in rows.items()
            ]
        )
        for side in (0, 1)
    ]
    comparison = compare_tables(*tables, Tolerances("same"))
    found = find_sources(comparison, edges(fed), Tolerances("same"))
    assert [str(source.key) for source in found.found] == ["b#turn=1:output.0"]
    assert [str(key) for key in found.unplaced] == ["c#turn=2:output.0"]


def test_an_input_that_is_dumped_with_each_reader_counts_once_in_each_execution(make_table: Make) -> None:
    names = ["x", "x#turn=1", "a", "x#step=1", "x#step=1,turn=1", "a#step=1"]

    def table(high: float, most: int = 6) -> StatsTable:
        rows = [(f"{name}:output.0", "float32", (4,), BASE | {"max": high}) for name in names[:most]]
        return replace(make_table(*rows), op_types=("Data", "Data", "Relu") * (most // 3))

    comparison = compare_tables(table(2.0), table(3.0), Tolerances("same"))
    found = find_sources(comparison, edges({"x": "", "a": "x"}), Tolerances("same"))
    assert (comparison.count("fail"), found.failing) == (4, 4)
    assert {str(one.key): one.explains for one in found.found} == {"x:output.0": 2, "x#step=1:output.0": 2}
    more = compare_tables(table(2.0, 3), table(2.0), Tolerances("same"))
    assert mismatches(more) == "mismatches: 0 of 3 tensors, 2 new"


@st.composite
def graphs(draw: Any) -> tuple[TensorGraph, list[int]]:
    count = draw(st.integers(1, 10))
    parents = [
        tuple(sorted(draw(st.sets(st.integers(0, at - 1), max_size=3)))) if at else () for at in range(count)
    ]
    types = [draw(st.sampled_from(["Conv", "Reshape"])) for _ in range(count)]
    keys = [TensorKey(str(at), "output", 0) for at in range(count)]
    failing = sorted(draw(st.sets(st.integers(0, count - 1), min_size=1)))
    return TensorGraph(keys, types, parents, [True] * count), failing


@given(graphs())
def test_sources_are_those_that_no_failing_tensor_feeds(drawn: tuple[TensorGraph, list[int]]) -> None:
    graph, failing = drawn

    def paths(at: int) -> list[list[int]]:
        return [[parent, *path] for parent in graph.parents[at] for path in ([], *paths(parent))]

    def follows(at: int) -> bool:
        return any(
            path[-1] in failing
            and all(node not in failing and graph.op_types[node] == "Reshape" for node in path[:-1])
            for path in paths(at)
        )

    found = explained(failing, graph, lambda at: [at])
    assert list(found.sources) == [at for at in failing if not follows(at)]
    assert not found.cycles
    assert not found.unplaced


@given(graphs(), st.sets(st.integers(0, 9)))
def test_a_source_explains_what_a_chain_of_changes_leads_to(
    drawn: tuple[TensorGraph, list[int]], others: set[int]
) -> None:
    graph, failing = drawn
    changed = set(failing) | {at for at in others if at < len(graph.keys)}

    def chained(source: int, at: int) -> bool:
        return at == source or any(
            parent in changed and chained(source, parent) for parent in graph.parents[at] if at in changed
        )

    found = sources_upstream(failing, graph, changed)
    for number, source in enumerate(failing):
        reached = {at for at in range(len(found)) if found[at] >> number & 1}
        assert reached == {at for at in range(len(found)) if chained(source, at)}


@given(graphs(), st.lists(st.lists(st.integers(0, 9), max_size=3), min_size=10, max_size=10))
def test_every_failing_tensor_follows_from_a_source_whatever_the_graph(
    drawn: tuple[TensorGraph, list[int]], wild: Sequence[Sequence[int]]
) -> None:
    graph, failing = drawn
    count = len(graph.keys)
    parents = [tuple(parent for parent in wild[at] if parent < count) for at in range(count)]
    graph = TensorGraph(graph.keys, graph.op_types, parents, graph.known)
    found = explained(failing, graph, lambda at: [at])
    assert set(found.sources) <= set(failing)
    assert found.sources
    upstream = sources_upstream(found.sources, graph, set(range(count)))
    assert all(upstream[at] for at in failing)


@pytest.mark.each(
    ("off", "altered", "projected", "cause"),
    [
        ({"d": 9, "c": 0.1}, {"c": "c"}, True, "c"),
        ({"d": 9, "c": 0.1, "b": 0.1}, {"b": "gone"}, True, "gone"),
        ({"d": 9}, {"c": "c"}, True, ""),
        ({"d": 9}, {"c": "c"}, False, "c"),
        ({"d": 9, "c": 0.1}, {"d": "d", "c": "c"}, True, ""),
    ],
)
def test_a_changed_operator_is_a_cause_where_what_it_gives_may_have_changed(
    off: dict[str, float], altered: dict[str, str], cause: str, make_table: Make, *, projected: bool
) -> None:
    found = sources(make_table, off, altered=altered, projected=projected)
    assert found is not None
    assert [one.altered for one in found.found] == [cause]
    assert found.found[0].begins is None or "d" not in altered


@pytest.mark.each(
    ("off", "altered", "projected", "upstream"),
    [
        ({"d": 9}, {"p"}, True, set()),  # on another branch
        ({"d": 9}, {"p"}, False, set()),
        ({"d": 9}, {"end"}, True, set()),
        ({"d": 9}, {"b"}, True, set()),  # without effect
        ({"d": 9}, {"b"}, False, {"b"}),
        ({"d": 9, "c": 0.1}, {"b"}, True, set()),
        ({"d": 9, "c": 0.1}, {"b", "c"}, True, {"c"}),
        ({"d": 9, "c": 0.1, "b": 0.1}, {"b"}, True, {"b"}),
        ({"d": 9, "c": 0.1, "b": 0.1}, {"b", "c", "p"}, True, {"b", "c"}),
        ({"d": 9, "c": 0.1, "b": 0.1}, {"b#model=m"}, True, {"b#model=m"}),
        ({"d": 9}, {"d"}, True, {"d"}),
        ({"d": 9}, {"d.inner"}, True, None),
        ({"d": 9}, {"p", "strange"}, True, None),  # which the graph does not have
        ({"unread": 9}, {"p"}, True, None),
        ({"end": 9, "d": 0.1}, {"c"}, True, set()),
    ],
)
def test_changes_are_upstream_of_the_first_mismatch_by_way_of_what_may_differ(
    off: dict[str, float],
    altered: set[str],
    make_table: Make,
    *,
    projected: bool,
    upstream: set[str] | None,
) -> None:
    comparison = comparison_of(make_table, {**FED, "unread": ""}, off, projected=projected)
    graph = edges(FED | {"d.inner": ""})
    assert changes_upstream(comparison, graph, altered, comparison.mismatches[:1]) == upstream


@pytest.mark.each(("layers", "altered", "upstream"), [("a d", "b", {"b"}), ("a d", "q", set())])
def test_a_change_between_layers_that_are_compared_may_reach_the_next_one(
    layers: str, altered: str, make_table: Make, *, upstream: set[str]
) -> None:
    comparison = comparison_of(make_table, dict.fromkeys(layers.split(), ""), {"d": 9}, projected=True)
    assert changes_upstream(comparison, edges(FED), {altered}, comparison.mismatches) == upstream


def test_each_source_names_the_changed_operator_upstream(make_table: Make) -> None:
    fed = {f"n{at}": f"n{at - 1}" if at else "" for at in range(300)}
    off = dict.fromkeys([*fed][1::2], 9.0)
    for altered in ({}, {"n0": "n0"}):
        found = sources(make_table, off, fed, altered=altered)
        assert found is not None
        assert [one.altered for one in found.found] == ["n0" if altered else ""] * 150


def test_of_sources_that_reach_each_other_the_first_is_behind_none(make_table: Make) -> None:
    fed = {"a": "", "p": "a w", "u": "p", "q": "u", "w": "q"}  # through u and w, which changed and pass
    found = sources(make_table, {"p": 30, "u": 0.9, "q": 30, "w": 0.9}, fed)
    assert [(source.key.layer, source.behind is None) for source in found.found] == [
        ("p", True),
        ("q", False),
    ]


def test_what_an_unknown_tensor_behind_it_feeds_has_that_for_its_source(make_table: Make) -> None:
    known = Edges({"b": (Port("d"),), "d": (Port("a"), UNKNOWN)}, "msprobe")  # the dump has b before d
    found = sources(make_table, {"b": 30, "d": 30}, known=known)
    assert layers(found) == ["d"]
    assert not found.unplaced


@given(st.lists(st.integers(0, 2**19 - 1)), st.integers(19, 30))
def test_bits_are_counted_by_their_numbers(words: list[int], width: int) -> None:
    assert numbers_of_bits(words, width) == [sum(word >> bit & 1 for word in words) for bit in range(width)]


ROW: dict[str, Any] = {"count": 4, "max": 2.0, "min": -1.0, "avg": 0.5, "l2norm": 3.0, "nan": 0, "pos_inf": 0}
TOLERANCES = Tolerances(rules=(Rule(0.25, 0.5),))


def compared(make_table: Make, changed: dict[str, Any], dtype: str = "float32", **before: Any) -> Any:
    sides = [make_table(("a:output.0", dtype, (4,), ROW | before | side)) for side in ({}, changed)]
    return compare_tables(*sides, TOLERANCES)


@pytest.mark.each(
    ("changed", "before", "relative", "share"),
    [
        ({}, {}, 0, 0),
        ({}, {"max": math.inf, "min": math.nan, "pos_inf": 1, "nan": 2}, 0, 0),
        ({"max": 1e-3}, {"max": 0.0, "min": 0.0, "avg": 0.0, "l2norm": 0.0}, math.inf, 2e-3),
        ({"max": 2.5}, {}, 0.25, 0.5),  # by the magnitude of 2
        ({"min": -1.5}, {}, 0.25, 0.5),
        ({"avg": 0.8}, {}, 0.2, 0.3 / 0.875),  # by the root mean square of 1.5
        ({"l2norm": 3.75}, {}, 0.25, 0.6),  # by itself
        ({"max": 2.5, "l2norm": 3.75}, {}, 0.25, 0.6),
        ({"nan": 1}, {}, math.inf, math.inf),
        ({"max": math.inf, "pos_inf": 1}, {}, math.inf, math.inf),
        ({"avg": None}, {}, 0, math.inf),
    ],
)
def test_differences_are_by_the_scale_of_the_tensor(
    make_table: Make, changed: dict[str, Any], before: dict[str, Any], relative: float, share: float
) -> None:
    found = compared(make_table, changed, **before)
    assert relative_differences(found).tolist() == [pytest.approx(relative)]
    assert shares_of_allowed(found, TOLERANCES)[0] == pytest.approx(share)


def test_projections_tell_the_size_of_a_difference_where_both_sides_have_them(make_table: Make) -> None:
    sums = (3.0, -3.0, 3.0, 3.0, -3.0, 3.0, 3.0, 3.0)
    away = tuple(one + 0.6 for one in sums)
    found = compared(make_table, {"projections": away, "max": 2.1}, projections=sums)
    assert relative_differences(found).tolist() == [pytest.approx(0.2)]  # 0.6 by the l2norm of 3
    assert shares_of_allowed(found, TOLERANCES)[0] == pytest.approx(0.6 / (0.5 * 2 + 0.25 * 3))
    found = compared(make_table, {"projections": None, "max": 2.1}, projections=sums)
    assert relative_differences(found).tolist() == [pytest.approx(0.05)]
    found = compared(make_table, {"projections": away, "nan": 1}, projections=sums)
    assert relative_differences(found).tolist() == [math.inf]


def test_another_type_or_shape_is_beyond_any_difference(make_table: Make) -> None:
    golden = make_table(*[(f"{name}:output.0", "float32", (4,), ROW) for name in "abc"])
    actual = make_table(
        ("a:output.0", "float16", (4,), ROW),
        ("b:output.0", "float32", (2, 2), ROW),
        ("d:output.0", "float32", (4,), ROW),
    )
    found = compare_tables(golden, actual, TOLERANCES)
    assert sorted(relative_differences(found).tolist()) == [0, 0, math.inf, math.inf]


PARENTS = [[], [0], [1], [1, 2], [3]]


@pytest.mark.each(
    ("difference", "path"),
    [
        ([0, 0, 0, 0, 1.0], [4]),
        ([0, 0, 0, 0.3, 1.0], [4]),
        ([0, 0, 0, 0.34, 1.0], [4, 3]),
        ([0, 0.2, 0.6, 0.9, 1.0], [4, 3, 2, 1]),
        ([0, 0.6, 0.2, 0.9, 1.0], [4, 3, 1]),
        ([5.0, 0.3, 0.2, 0.9, 1.0], [4, 3, 1, 0]),
        ([0, 0, 0, 9.0, math.inf], [4]),
        ([0, 0, math.inf, 9.0, math.inf], [4]),
        ([0, 0, math.inf, math.inf, math.inf], [4, 3, 2]),
    ],
)
def test_the_worst_input_is_followed_from_a_third_on(difference: list[float], path: list[int]) -> None:
    assert walked_back(4, PARENTS.__getitem__, difference, any_change=lambda _: False) == path


def test_any_change_is_followed_where_asked_to_an_end_or_round_a_cycle() -> None:
    difference = [0.0, 1e-9, 1e-6, 1e-6, math.inf]
    for any_change, path in ((lambda _: True, [4, 3, 2, 1]), (lambda at: at == 4, [4, 3, 2])):
        assert walked_back(4, PARENTS.__getitem__, difference, any_change=any_change) == path
    path = walked_back(4, PARENTS.__getitem__, [1.0] * 5, any_change=lambda _: True, ends={1, 4})
    assert path == [4, 3, 1]
    assert walked_back(0, [[1], [0]].__getitem__, [1.0, 1.0], any_change=lambda _: True) == [0, 1]


def test_the_nearest_changed_tensors_are_found_through_unchanged_ones() -> None:
    assert nearest(4, PARENTS, {1}) == [1]
    assert nearest(4, PARENTS, {0, 2}) == [2, 0]
    assert nearest(4, PARENTS, {3, 1}) == [3]
    assert nearest(4, PARENTS, set()) == []


@given(
    st.lists(st.sets(st.integers(0, 11), max_size=3), min_size=12, max_size=12), st.permutations(range(12))
)
def test_what_is_fed_stands_behind_what_feeds_it(feeds: list[set[int]], names: list[int]) -> None:
    parents: list[list[int]] = [[] for _ in names]
    for at, fed_by in enumerate(feeds):
        parents[names[at]] = [names[parent] for parent in fed_by if parent < at]
    order = fed_first(range(12), parents)
    assert sorted(order) == list(range(12))
    assert all(order.index(parent) < order.index(at) for at in range(12) for parent in parents[at])


OWN = "/opt/lib/python3.11/site-packages/mindspore/nn/layer/conv.py"
NODES = f"""\
subgraph @kernel_graph0() {{
  %0(CNode_15) = Load(%para5_conv1.weight, UMonad[U])
      # Fullname with scope: (Default/Load-op0)
  %1(output) = Conv2D(%para9_x, %0) {{instance name: conv2d}}
      : (Tensor, Tensor) -> (Tensor)
      # Fullname with scope: (Default/conv1-Conv2d/Conv2D-op0)
      # In file /samples/lenet.py:30~36, 4~30/    def construct(self, x):/
      # In file /samples/lenet.py:31, 32~42/        x = self.pool(self.relu(self.conv1(x)))/
      # In file {OWN}:372~376, 4~21/    def construct(self, x):/
      # In file {OWN}:373, 17~44/        output = self.conv2d(x, self.weight)/
  %2(CNode_17) = PrimFunc_ReLU(%1)
      # Fullname with scope: (Default/relu-ReLU/ReLU-op0)
      # In file {OWN}:525, 15~31/        return self.relu(input)/
}}
"""


def test_the_innermost_line_that_is_not_mindspores_own_counts(tmp_path: Path) -> None:
    layers = ("Default/conv1-Conv2d/Conv2D-op0", "Default_relu-ReLU_ReLU-op0", "Default/Load-op0", "other")
    assert code_of(tmp_path, layers) == {}
    graphs = tmp_path / "rank_0" / "graphs"
    graphs.mkdir(parents=True)
    (graphs / "ms_output_trace_code_graph_0.ir").write_text(NODES)
    (graphs / "ms_output_trace_code_graph_1.ir").write_text(NODES.replace(":31,", ":99,"))
    assert code_of(tmp_path, layers) == {
        "Default_conv1-Conv2d_Conv2D-op0": "/samples/lenet.py:31: x = self.pool(self.relu(self.conv1(x)))",
        "Default_relu-ReLU_ReLU-op0": f"{OWN}:525: return self.relu(input)",
    }
    (graphs / "ms_output_trace_code_graph_0.ir").unlink()
    (graphs / "ms_output_trace_code_graph_0.ir").mkdir()
    with pytest.raises(FormatError, match=r"graph_0\.ir"):
        code_of(tmp_path, layers)


def test_a_comparison_of_folders_names_the_line_of_the_first_mismatch(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for side in (0, 1):
        rank = tmp_path / str(side) / "rank_0"
        folder = rank / "LeNet" / "0" / "0"
        folder.mkdir(parents=True)
        (rank / "graphs").mkdir()
        (rank / "graphs" / "ms_output_trace_code_graph_0.ir").write_text(NODES)
        name = (
            "Conv2D.Default_conv1-Conv2d_Conv2D-op0.0.0.1795228695299630.output.0.DefaultFormat.Float32.npy"
        )
        np.save(folder / name, np.full(3, side, np.float32))
    assert main(["compare", str(tmp_path / "0"), str(tmp_path / "1")]) == 1
    told = capsys.readouterr().out
    assert "Conv2D-op0:output.0 is called at /samples/lenet.py:31: x = self.pool(self.relu(" in told
