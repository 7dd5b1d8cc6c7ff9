"""Changes of a model's graph, which a failure names by the layers and edges of both sides."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from pytest_npudump.compare.judge import Terms
from pytest_npudump.record.edges import Edges, GraphNode, Port, lines_of
from pytest_npudump.record.record import EDGES, MODELS, Record
from pytest_npudump.regression.judgement import judge_run
from pytest_npudump.report.origins import what_changed
from pytest_npudump.report.terminal import full_lines

if TYPE_CHECKING:
    from collections.abc import Callable

    from pytest_npudump.regression.result import Result

FED = {"x": "", "conv": "x", "relu": "conv", "pool": "relu", "add": "pool conv"}
DIGESTS = "conv AAAA wwwwww 0000\npool PPPP\n"


def side(
    make: Callable[..., Any], fed: dict[str, str], off: str, digests: str, graph: int = 1
) -> tuple[Record, Edges]:
    """Return a record whose layers have 1 as the largest element, and those ``off`` 2."""
    table = make(
        *(
            (
                f"{name}:output.0",
                "float32",
                (4,),
                {"max": 2.0 if name in off.split() else 1.0, "min": -1.0, "avg": 0.5},
            )
            for name in fed
        )
    )
    edges = Edges.of(
        [GraphNode(name, "", tuple(map(Port, ports.split()))) for name, ports in fed.items()], "m"
    )
    models = f"#m.onnx {str(graph) * 16} graph{graph}\n{digests}"
    blocks = {EDGES: lines_of(edges, fed), MODELS: models}
    return Record("t.py::t", {}, table, Path("t.yaml"), blocks=blocks), edges


def judged(
    make: Callable[..., Any], fed: dict[str, str], off: str, digests: str, *, live: bool = True
) -> Result:
    golden, _ = side(make, FED, "", DIGESTS)
    run, edges = side(make, fed, off, digests, 2)
    if live:  # a run that is kept has the edges that were dumped
        run = replace(run, blocks={MODELS: run.blocks[MODELS]})
    return judge_run(Terms(), golden, run, at_hand=(lambda _table: (edges, ())) if live else None)


WITHOUT = {name: ports.replace("relu", "conv") for name, ports in FED.items() if name != "relu"}
BESIDE = {"x": "", "conv": "x", "relu": "conv", "abs": "relu", "pool": "abs", "add": "pool conv"}
OTHERWISE = {**FED, "add": "pool relu"}


@pytest.mark.parametrize("live", [True, False])
@pytest.mark.each(
    ("fed", "off", "digests", "changed", "source"),
    [
        (
            WITHOUT,
            "pool add",
            DIGESTS,
            "relu: removed",
            "relu (removed), upstream of pool:output.0",
        ),
        (BESIDE, "pool add", DIGESTS, "abs: added", "abs (added), upstream of pool:output.0"),
        (OTHERWISE, "add", DIGESTS, "add: connections changed", "add:output.0"),
        (FED, "pool add", DIGESTS, "the model's graph changed: ", "pool:output.0"),
        (
            WITHOUT,
            "pool add",
            "conv AAAA wwwwww 0000\n",
            "pool: attributes changed; relu: removed",
            "relu (removed), upstream of pool:output.0",
        ),
    ],
)
def test_what_changed_in_a_graph_is_named(
    make_table: Callable[..., Any],
    *,
    live: bool,
    fed: dict[str, str],
    off: str,
    digests: str,
    changed: str,
    source: str,
) -> None:
    result = judged(make_table, fed, off, digests, live=live)
    assert what_changed(result).startswith(changed)
    assert result.models is not None
    assert result.models.changed
    (line,) = (line for line in full_lines(result) if line.startswith("source: "))
    assert line.removeprefix("source:     ").startswith(source)
    headline = full_lines(result)[0]
    assert " mismatch: pool:output.0" in headline or " mismatch: add:output.0" in headline


def test_an_attribute_upstream_that_no_statistic_shows_is_the_source(make_table: Callable[..., Any]) -> None:
    golden, edges = side(make_table, FED, "", DIGESTS)
    run, _ = side(make_table, FED, "add", DIGESTS.replace("PPPP", "QQQQ"))
    run = replace(run, blocks={MODELS: run.blocks[MODELS].replace("1111", "2222", 1)})
    result = judge_run(Terms(), golden, run, at_hand=lambda _table: (edges, ()))
    (line,) = (line for line in full_lines(result) if line.startswith("source: "))
    assert line.startswith("source:     pool (attributes changed), upstream of add:output.0; ")


def test_a_layer_that_the_marker_no_longer_names_is_not_said_to_be_removed(
    make_table: Callable[..., Any],
) -> None:
    golden, _ = side(make_table, FED, "", DIGESTS)
    run, edges = side(make_table, WITHOUT, "pool add", DIGESTS, 2)
    for terms, known in ((Terms(layers=("x", "conv", "pool", "add")), edges), (Terms(), Edges())):
        result = judge_run(terms, golden, run, at_hand=lambda _table, known=known: (known, ()))  # type: ignore[misc]
        assert ("removed" in what_changed(result)) is not terms.layers
