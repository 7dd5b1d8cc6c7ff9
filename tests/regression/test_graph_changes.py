"""Changes of a model's graph, which a failure names by the layers and edges of both sides."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from pytest_npudump.compare.correspondence import Correspondence
from pytest_npudump.compare.judge import Terms
from pytest_npudump.record.edges import Edges, GraphNode, Port, lines_of
from pytest_npudump.record.model_lines import fed_line
from pytest_npudump.record.record import EDGES, MODELS, Record
from pytest_npudump.regression.judgement import judge_run, models_between
from pytest_npudump.report.origins import _model_changes, what_changed
from pytest_npudump.report.terminal import full_lines, verdict_lines
from tests.conftest import table_of

if TYPE_CHECKING:
    from pytest_npudump.regression.result import Result

FED = {"x": "", "conv": "x", "relu": "conv", "pool": "relu", "add": "pool conv"}
CONV = "conv AAAA wwwwww 0000\n"
DIGESTS = f"{CONV}pool PPPP\n"


def side(fed: dict[str, str], off: str, digests: str, graph: int = 1) -> tuple[Record, Edges]:
    """Return a record whose layers have 1 as the largest element, and those ``off`` 2."""
    largest = ((name, 2.0 if name in off.split() else 1.0) for name in fed)
    stats = ((name, {"max": value, "min": -1.0, "avg": 0.5}) for name, value in largest)
    table = table_of(*((f"{name}:output.0", "float32", (4,), told) for name, told in stats))
    nodes = [GraphNode(name, "", tuple(map(Port, ports.split()))) for name, ports in fed.items()]
    edges = Edges.of(nodes, "m")
    blocks = {EDGES: lines_of(edges, fed), MODELS: f"#m.onnx {str(graph) * 16} graph{graph}=\n{digests}"}
    return Record("t.py::t", {}, table, Path("t.yaml"), blocks=blocks), edges


def with_edges(golden: Record, run: Record, edges: Edges) -> Result:
    return judge_run(Terms(), golden, run, at_hand=lambda _table: (edges, ()))


def source_line(result: Result) -> str:
    (line,) = (line for line in full_lines(result) if line.startswith("source: "))
    return line.removeprefix("source:     ")


def judged(fed: dict[str, str], off: str, digests: str, *, live: bool = True) -> Result:
    golden, _ = side(FED, "", DIGESTS)
    run, edges = side(fed, off, digests, 2)
    if live:  # a run that is kept has the edges that were dumped
        run = replace(run, blocks={MODELS: run.blocks[MODELS]})
    return judge_run(Terms(), golden, run, at_hand=(lambda _table: (edges, ())) if live else None)


WITHOUT = {name: ports.replace("relu", "conv") for name, ports in FED.items() if name != "relu"}
BESIDE = {"x": "", "conv": "x", "relu": "conv", "abs": "relu", "pool": "abs", "add": "pool conv"}
OTHERWISE = {**FED, "add": "pool relu"}


INSTEAD = {"x": "", "conv": "x", "Sub_1": "conv", "pool": "Sub_1", "add": "pool conv"}
GONE = "relu (removed), upstream of pool:output.0"


@pytest.mark.parametrize("live", [True, False])
@pytest.mark.each(
    ("fed", "off", "digests", "changed", "source"),
    [
        (WITHOUT, "pool add", DIGESTS, "relu: removed", GONE),
        (BESIDE, "pool add", DIGESTS, "abs: added", "abs (added), upstream of pool:output.0"),
        (OTHERWISE, "add", DIGESTS, "add: connections changed", "add:output.0"),
        (FED, "pool add", DIGESTS, "the model's graph changed: ", "pool:output.0"),
        (INSTEAD, "pool add", DIGESTS + "Sub_1 =Add QQQQ\n", "relu: removed; Sub_1: added", GONE),
        (WITHOUT, "pool add", CONV, "pool: attributes changed; relu: removed", GONE),
    ],
)
def test_what_changed_in_a_graph_is_named(
    *, live: bool, fed: dict[str, str], off: str, digests: str, changed: str, source: str
) -> None:
    result = judged(fed, off, digests, live=live)
    assert what_changed(result).startswith(changed)
    assert result.models is not None
    assert result.models.changed
    assert source_line(result).startswith(source)
    headline = full_lines(result)[0]
    assert " mismatch: pool:output.0" in headline or " mismatch: add:output.0" in headline


@pytest.mark.parametrize("live", [True, False])
@pytest.mark.each(
    ("fed", "off", "digests", "unaltered"),
    [
        (WITHOUT, "conv pool add", DIGESTS, True),
        (WITHOUT, "pool add", DIGESTS, False),
        (WITHOUT, "conv pool add", DIGESTS.replace("wwwwww", "vvvvvv"), False),
        (BESIDE, "relu abs pool add", DIGESTS, True),
        (BESIDE, "pool add", DIGESTS, False),
        (OTHERWISE, "pool add", DIGESTS, True),
        (OTHERWISE, "add", DIGESTS, False),
        (FED, "conv pool add", DIGESTS, False),  # a change that has no name
        (FED, "conv pool add", f"{DIGESTS}lost QQQQ\n", False),  # which no layer shows
    ],
)
def test_what_changed_in_a_graph_leads_unless_it_is_known_not_to_be_upstream(
    *, live: bool, fed: dict[str, str], off: str, digests: str, unaltered: bool
) -> None:
    result = judged(fed, off, digests, live=live)
    assert result.sources is not None
    assert result.sources.unaltered == unaltered
    assert full_lines(result)[0].startswith(f"npudump: {off.split(maxsplit=1)[0]}:output.0 max") == unaltered


@pytest.mark.each(
    ("lines", "changed"),
    [
        ("Relu_1 =Elu\n", "Relu_1 (Relu, now Elu): type changed"),
        ("Relu_1 =Elu QQQQ\n", "Relu_1 (Relu, now Elu): type changed"),
        ("Relu_1 QQQQ\n", "Relu_1: attributes changed"),
    ],
)
@pytest.mark.each("named", [True, False])
def test_another_type_is_told_from_other_attributes(lines: str, changed: str, *, named: bool) -> None:
    name = "Relu_1" if named else "act"
    fed = {"x": "", name: "x", "add": f"{name} x"}
    golden, edges = side(fed, "", "" if named else "act =Relu\n")
    lines = lines.replace("Relu_1", name) if "=" in lines or named else "act =Relu QQQQ\n"
    result = with_edges(golden, side(fed, f"{name} add", lines, 2)[0], edges)
    assert what_changed(result).startswith(changed.replace("Relu_1", name))
    assert ("type" in changed) is (";" not in what_changed(result))
    assert source_line(result).startswith(f"{name}:output.0; ")


def test_an_attribute_upstream_that_no_statistic_shows_is_the_source() -> None:
    golden, edges = side(FED, "", DIGESTS)
    run, _ = side(FED, "add", DIGESTS.replace("PPPP", "QQQQ"))
    run = replace(run, blocks={MODELS: run.blocks[MODELS].replace("1111", "2222", 1)})
    line = source_line(with_edges(golden, run, edges))
    assert line.startswith("pool (attributes changed), upstream of add:output.0; ")


def test_a_layer_that_the_marker_no_longer_names_is_not_said_to_be_removed() -> None:
    golden, _ = side(FED, "", DIGESTS)
    run, edges = side(WITHOUT, "pool add", DIGESTS, 2)
    for terms, known in ((Terms(layers=("x", "conv", "pool", "add")), edges), (Terms(), Edges())):
        result = judge_run(terms, golden, run, at_hand=lambda _table, known=known: (known, ()))  # type: ignore[misc]
        assert ("removed" in what_changed(result)) is not terms.layers


WITH_TYPES = DIGESTS.replace("conv ", "conv =Conv ") + "relu =Relu\nadd =Add\nabs =Abs\n"


def named(
    names: dict[str, str], off: str = "", digests: str = WITH_TYPES, fed: dict[str, str] = FED
) -> tuple[Any, ...]:
    """Return what :func:`side` takes of a graph with other names."""
    new = [" ".join(names.get(word, word) for word in text.split(" ")) for text in (*fed, *fed.values(), off)]
    lines = re.sub(r"(?m)^\w+", lambda found: names.get(found[0], found[0]), digests)
    return dict(zip(new[: len(fed)], new[len(fed) : -1], strict=True)), new[-1], lines


@pytest.mark.parametrize("live", [True, False])
@pytest.mark.each(
    ("run", "renamed", "failing"),
    [
        (named({"relu": "act"}), "relu -> act", 0),
        (named({"relu": "act", "conv": "c"}), "conv -> c, relu -> act", 0),
        (named({"relu": "act"}, "relu pool add"), "relu -> act", 3),  # their values are compared
        # Removed and added, as before: another type, weights or attributes, other inputs or readers.
        (named({"relu": "act"}, digests=WITH_TYPES.replace("=Relu", "=Elu")), "", 2),
        (named({"conv": "c"}, digests=WITH_TYPES.replace("wwwwww", "vvvvvv")), "", 2),
        (named({"relu": "act"}, digests=WITH_TYPES.replace("=Relu", "=Relu AAAA")), "", 2),
        (named({"relu": "act"}, fed={**FED, "relu": "x"}), "", 2),
        (named({"relu": "act"}, fed=OTHERWISE | {"pool": "conv"}), "", 2),
        (named({"x": "image"}), "", 2),  # of which no type is known
    ],
)
def test_a_layer_of_another_name_is_compared_and_fails(
    *, live: bool, run: tuple[Any, ...], renamed: str, failing: int
) -> None:
    golden, _ = side(FED, "", WITH_TYPES)
    record, edges = side(*run, 2)
    result = judge_run(Terms(), golden, record, at_hand=(lambda _table: (edges, ())) if live else None)
    assert result.status == "failed"
    assert result.comparison is not None
    assert len(result.comparison.failing) == failing
    assert [problem.rpartition(": ")[2] for problem in result.problems] == [renamed] * bool(renamed)
    if renamed:
        assert not what_changed(result).startswith("operator")


def test_layers_that_are_alike_are_not_told_to_be_renamed() -> None:
    fed = {"x": "", "a": "x", "b": "x"}
    golden, _ = side(fed, "", "a =Abs\nb =Abs\n")
    for names, count in (({"a": "c", "b": "d"}, 4), ({"a": "c"}, 0)):
        result = with_edges(golden, *side(*named(names, "", "a =Abs\nb =Abs\n", fed), 2))
        assert result.comparison is not None
        assert len(result.comparison.failing) == count


def test_a_type_that_a_name_implied_stays_under_another_name() -> None:
    fed = {"x": "", "Conv_1": "x", "Relu_2": "Conv_1", "add": "Relu_2"}
    golden, _ = side(fed, "", "Conv_1 AAAA wwwwww\nadd =Add BBBB\n")
    names = {"Conv_1": "Block/Conv1", "Relu_2": "Block/Act"}
    digests = "Block/Conv1 =Conv AAAA wwwwww\nBlock/Act =Relu\nadd =Add CCCC\n"
    result = with_edges(golden, *side(named(names, "", "", fed)[0], "add", digests, 2))
    assert what_changed(result).startswith("add: attributes changed; the model's graph changed")
    assert "Conv_1 -> Block/Conv1, Relu_2 -> Block/Act" in result.problems[0]


@pytest.mark.each(
    ("golden", "run", "fed"),
    [
        ("a b", "a b", ("m",)),
        ("a b a#step=1 b#step=1", "a b a#step=1 b#step=1", ("m",)),
        ("a b a#step=1 b#step=1", "a b", ()),
        ("a b", "a b a#load=1 b#load=1", ()),
        ("a#model=m b#model=n", "a b", ("m",)),
        ("a#model=m b#model=n", "a a#load=1", ()),
        ("a#capture=p", "a#capture=q", ("m",)),
        ("a#model=m b#model=n", "a#model=m b#model=n b#model=n,step=1", ("m",)),
    ],
)
@pytest.mark.parametrize("files", ["", "#m.onnx 1111111111111111 graph1=\n"])
def test_inputs_are_not_compared_where_a_model_ran_more_or_less_often(
    files: str, *, golden: str, run: str, fed: tuple[str, ...]
) -> None:
    sides = []
    for number, keys in enumerate((golden, run)):
        rows = ((f"{key}:output.0", "float32", (4,), {"max": 1.0}) for key in keys.split())
        blocks = {MODELS: files + fed_line("m", [bytes([number])])}
        sides.append(Record("t.py::t", {}, table_of(*rows), Path("t.yaml"), blocks=blocks))
    found = models_between(Terms(), *sides)
    assert (found.fed if found is not None else ()) == fed
    assert (found is None) is not bool(files or fed)


@pytest.mark.each(
    ("names", "told"),
    [
        ("qk: q + k", "out: weights changed"),
        ("{}", "out: weights changed (1 of 2 operators with weights); q, k: removed; qk: added"),
    ],
)
def test_operators_that_the_markers_map_joins_are_neither_removed_nor_added(
    tmp_path: Path, names: str, told: str
) -> None:
    (tmp_path / "names.yaml").write_text(names)
    weights = {"q": "1", "k": "2", "out": "3"}, {"qk": "4", "out": "5"}
    sides = []
    for number, some in enumerate(weights):
        lines = "".join(f"{name} - {digest * 6} {digest * 4}\n" for name, digest in some.items())
        rows = ((f"{name}:output.0", "float32", (4,), {"max": 1.0}) for name in some)
        blocks = {MODELS: f"#m.parameters {str(number) * 16} graph1\n{lines}"}
        sides.append(Record("t.py::t", {}, table_of(*rows), Path("t.yaml"), blocks=blocks))
    models = models_between(Terms(names=Correspondence.read(tmp_path / "names.yaml")), *sides)
    assert models is not None
    assert "; ".join(_model_changes(models, None, counts=True)) == told


@pytest.mark.each(
    ("digest", "fed", "changed"),
    [
        ("-" * 16, FED, ""),
        ("1" * 16, FED, "the model's graph changed: connections, types or versions of operators"),
        ("-" * 16, OTHERWISE, "add: connections changed"),
    ],
)
def test_a_golden_that_is_accepted_in_part_has_no_graph_of_one_model(
    digest: str, fed: dict[str, str], changed: str
) -> None:
    golden, _ = side(FED, "", DIGESTS)
    models = golden.blocks[MODELS].replace("1" * 16, digest)
    golden = replace(golden, blocks={**golden.blocks, MODELS: models})
    run, _ = side(fed, "pool", DIGESTS, 2)
    assert what_changed(judge_run(Terms(), golden, run)) == changed


@pytest.mark.each(
    ("given", "fed", "known"),
    [
        ((b"a", b"a"), "x", True),
        ((b"a", b""), "x", True),  # nothing else feeds it
        ((b"a", b"a"), "x -", True),
        ((b"a", b"b"), "x -", False),
        ((b"a", b""), "x -", False),  # of other executions
    ],
)
def test_inputs_that_are_not_dumped_are_known_where_the_model_was_given_the_same(
    *, given: tuple[bytes, bytes], fed: str, known: bool
) -> None:
    sides = [side({"x": "", "conv": "x"}, off, "")[0] for off in ("", "conv")]
    edges = f"x <\nconv < {fed}\n"
    blocks = [
        {EDGES: edges, MODELS: one.blocks[MODELS] + fed_line("m", [how]) * bool(how)}
        for one, how in zip(sides, given, strict=True)
    ]
    golden, run = (replace(one, blocks=block) for one, block in zip(sides, blocks, strict=True))
    text = "\n".join(full_lines(judge_run(Terms(), golden, run)))
    assert ("including those of the outputs that feed it" in text) is known
    assert ("not all of its inputs are known" in text) is not known


@pytest.mark.each(
    ("fail_on", "graph", "verdict"),
    [
        ("", "graph1cccccc", "passed"),
        ("change", "graph1aaaaaa", "passed"),
        ("change", "graph1", "passed"),
        ("change", "graph1cccccc", "failed"),
    ],
)
def test_outputs_that_change_places_fail_where_any_change_does(
    *, fail_on: str, graph: str, verdict: str
) -> None:
    golden, _ = side(FED, "", DIGESTS)
    blocks = [
        {MODELS: f"#m.onnx {n * 16} {word}=\n{DIGESTS}"} for n, word in (("1", "graph1aaaaaa"), ("2", graph))
    ]
    sides = [replace(golden, blocks=one) for one in blocks]
    result = judge_run(Terms(fail_on=fail_on), *sides)
    assert result.status == verdict
    assert bool(result.problems) is (verdict == "failed")


BRANCHES = "left - wwwwww\nright - vvvvvv\n"
ALIKE = f"{BRANCHES}{fed_line('m', [b'x'])}"
UNFED = "; not all of its inputs are known"


@pytest.mark.each(
    ("layers", "digests", "source"),
    [
        ("left tanh", ALIKE, "left:output.0; no tensor was compared before it; 1 mismatch downstream"),
        ("left tanh", BRANCHES, f"left:output.0; no tensor was compared before it{UNFED}; 1 mismatch"),
        ("tanh", ALIKE, f"tanh:output.0; no tensor was compared before it{UNFED}; "),  # which left feeds
    ],
)
def test_a_change_on_another_branch_than_the_layers_of_a_test_is_no_cause(
    layers: str, digests: str, source: str
) -> None:
    fed = dict.fromkeys(layers.split(), "")
    golden, _ = side(fed, "", digests)
    known = "left < -\ntanh < left\n" if "left" in fed else "tanh < -\n"
    golden = replace(golden, blocks={**golden.blocks, EDGES: known})
    run, _ = side(fed, layers, re.sub(r"[wv]{6}", "uuuuuu", digests))
    run = replace(run, blocks={MODELS: run.blocks[MODELS].replace("1111", "2222", 1)})
    graph = {"x": "", "left": "x", "tanh": "left", "right": "x", "end": "tanh right"}
    result = with_edges(golden, run, side(graph, "", "")[1])
    lines = full_lines(result)
    assert lines[0].startswith(
        f"npudump: left: weights changed; first mismatch: {layers.split(maxsplit=1)[0]}:output.0"
    )
    assert source_line(result).startswith(source)
    told = "model:      left, right: weights changed (2 of 2 operators with weights)"
    assert told in lines
    kept = judge_run(Terms(), golden, run)  # where nobody knows of other edges
    assert told in verdict_lines(kept, [lines[0].removeprefix("npudump: ")], verbose=False)
    whole = with_edges(golden, run, side({**graph, "tanh": "left right"}, "", "")[1])
    assert full_lines(whole)[0].startswith("npudump: left, right: weights changed (2 of 2 operators ")
