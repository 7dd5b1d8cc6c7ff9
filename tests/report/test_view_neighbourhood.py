"""The graph around a source."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pytest_npudump.compare.stats.tables import compare_tables
from pytest_npudump.compare.tolerances.tolerance import Tolerances
from pytest_npudump.dump.records import Stats, TensorKey, TensorRecord
from pytest_npudump.dump.table import StatsTable
from pytest_npudump.graph.edges import Edges, Port
from pytest_npudump.report.charts import graph_svg
from pytest_npudump.report.view import ABREAST, Neighbourhood, neighbourhoods, tensor_views


def around(feeds: dict[str, list[str]], source: str, wrong: set[str]) -> tuple[Neighbourhood, ...]:
    """Return the picture of a chain in which some layers differ."""

    def table(*, changed: bool) -> StatsTable:
        def stats(layer: str) -> Stats:
            shown: dict[str, Any] = {
                "count": 4,
                "max": 2.0 if changed and layer in wrong else 1.0,
                "min": -1.0,
            }
            return Stats(**shown, avg=0.25, l2norm=None, nan=0, neg_inf=0, pos_inf=0, digits=0)

        keys = ((layer, TensorKey(layer, "output", 0)) for layer in feeds)
        return StatsTable.from_records(
            TensorRecord(key, "Add", "float32", (4,), Path("f"), stats=stats(layer)) for layer, key in keys
        )

    comparison = compare_tables(table(changed=False), table(changed=True), Tolerances())
    keys = [TensorKey(source, "output", 0)]
    views = tensor_views(comparison, Tolerances(), frozenset(keys))
    edges = Edges({name: tuple(map(Port, fed)) for name, fed in feeds.items()}, "test")
    return neighbourhoods(comparison, edges, views, keys)


CHAIN = {"a": [], "b": ["a"], "c": ["b"], "d": ["c"], "e": ["d"], "f": ["e"], "g": ["f"], "h": ["g"]}


def test_two_operators_before_and_three_behind_are_shown_in_columns() -> None:
    (found,) = around(CHAIN, "d", {"d", "e", "f"})
    assert {one.name: one.column for one in found.operators} == {
        "b": -2,
        "c": -1,
        "d": 0,
        "e": 1,
        "f": 2,
        "g": 3,
    }
    names = [one.name for one in found.operators]
    assert {(names[one], names[other]) for one, other in found.arrows} == {
        ("b", "c"),
        ("c", "d"),
        ("d", "e"),
        ("e", "f"),
        ("f", "g"),
    }
    assert {one.name: one.state for one in found.operators}["d"] == "source"


def test_of_many_consumers_the_worst_are_shown_and_the_others_counted() -> None:
    feeds = {"a": [], **{f"b{at}": ["a"] for at in range(9)}}
    (found,) = around(feeds, "a", {"a", "b7", "b8"})
    behind = [one.name for one in found.operators if one.column == 1]
    assert behind[:2] == ["b7", "b8"]
    assert len(behind) == ABREAST
    assert found.left_out == 9 - ABREAST


def test_where_no_edge_is_known_there_is_no_picture() -> None:
    comparison_only = around({}, "a", set())
    assert comparison_only == ()


def test_the_drawing_names_each_operator_once_and_escapes_it() -> None:
    name = "<b>&'\u202e"
    (found,) = around({"a": [], name: ["a"]}, name, {name})
    drawn = graph_svg(found)
    assert "<b>" not in drawn
    assert "\u202e" not in drawn
    assert drawn.count('class="operator') == 2
