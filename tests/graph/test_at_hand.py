"""Edges of the models of a run, from the files beside them."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from pytest_npudump.graph.edges import UNKNOWN, Port
from pytest_npudump.graph.model_files import _READERS, edges_at_hand
from pytest_npudump.request import GRAPH_SUFFIXES
from tests.graph.test_mindspore_ir import IR

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pytest_npudump.dump.table import StatsTable

BASE: dict[str, Any] = {"count": 4, "max": 2.0, "min": -1.0, "avg": 0.5}


def model(folder: Path, name: str, *operators: tuple[str, list[str]]) -> Path:
    """An om that cannot be read, beside ATC's JSON of it."""
    listed = [{"name": layer, "type": "Relu", "input": inputs} for layer, inputs in operators]
    (folder / f"{name}.json").write_text(json.dumps({"graph": [{"op": listed}]}))
    return folder / f"{name}.om"


def test_layers_of_two_models_are_fed_as_both_say(
    tmp_path: Path, make_table: Callable[..., StatsTable]
) -> None:
    table = make_table(
        *[
            (f"{layer}#model={name}:output.0", "float32", (4,), BASE)
            for name in ("cls", "det")
            for layer in ("conv", "relu")
        ]
    )
    one = model(tmp_path, "cls", ("conv", []), ("relu", ["conv:0"]))
    edges, notes = edges_at_hand([one], tmp_path, table)
    assert (edges.feeds, notes) == ({"conv": (UNKNOWN,), "relu": (UNKNOWN,)}, ())  # det's may be others
    two = model(tmp_path, "det", ("conv", []), ("relu", ["conv:0"]))
    edges, notes = edges_at_hand([one, two], tmp_path, table)
    assert (edges.feeds, notes) == ({"conv": (), "relu": (Port("conv"),)}, ())


def test_layers_of_two_graphs_of_mindspore_are_told_apart(
    tmp_path: Path, make_table: Callable[..., StatsTable]
) -> None:
    folder = tmp_path / "rank_0" / "graphs"
    folder.mkdir(parents=True)
    (folder / "ms_output_trace_code_graph_0.ir").write_text(IR)
    relu = "Default_relu-ReLU_ReLU-op0"
    rows = [(f"{relu}#model={name}:output.0", "float32", (4,), BASE) for name in ("0", "1")]
    known = edges_at_hand([], tmp_path, make_table(*rows[:1]))[0].feeds[relu]
    assert known == (Port("Default/fc-Dense/BiasAdd-op0"),)
    assert edges_at_hand([], tmp_path, make_table(*rows))[0].feeds[relu] == (UNKNOWN,)


def test_a_named_graph_goes_before_what_the_models_tell(
    tmp_path: Path, make_table: Callable[..., StatsTable]
) -> None:
    table = make_table(*[(f"{layer}:output.0", "float32", (4,), BASE) for layer in ("conv", "relu", "add")])
    ran = model(tmp_path, "ran", ("conv", []), ("relu", ["conv:0"]), ("add", ["relu:0"]))
    named = model(tmp_path, "named", ("conv", []), ("relu", []), ("add", ["conv:0"])).with_suffix(".json")
    edges, notes = edges_at_hand([ran], tmp_path, table, named)
    assert (edges.feeds, notes) == ({"conv": (), "relu": (), "add": (Port("conv"),)}, ())
    assert edges_at_hand([], tmp_path, table, named)[0].feeds == edges.feeds


def test_a_named_graph_completes_what_the_models_do_not_know(
    tmp_path: Path, make_table: Callable[..., StatsTable]
) -> None:
    table = make_table(*[(f"{layer}:output.0", "float32", (4,), BASE) for layer in ("conv", "relu")])
    ran = model(tmp_path, "ran", ("conv", []))
    named = model(tmp_path, "named", ("relu", ["conv:0"])).with_suffix(".json")
    assert edges_at_hand([ran], tmp_path, table, named)[0].feeds == {"conv": (), "relu": (Port("conv"),)}


def test_a_named_graph_of_other_layers_or_none_at_all_is_said(
    tmp_path: Path, make_table: Callable[..., StatsTable]
) -> None:
    table = make_table(("conv:output.0", "float32", (4,), BASE))
    ran = model(tmp_path, "ran", ("conv", []))
    other = model(tmp_path, "other", ("elsewhere", [])).with_suffix(".json")
    edges, notes = edges_at_hand([ran], tmp_path, table, other)
    assert edges.feeds == {"conv": ()}
    assert notes == ("other.json, named by graph=, holds no layer of this dump: which graph ran?",)
    other.write_text("no JSON", "utf-8")
    edges, (note,) = edges_at_hand([ran], tmp_path, table, other)
    assert edges.feeds == {"conv": ()}
    assert note.startswith("which tensor feeds which is not known from a file: ")


def test_every_kind_of_file_that_a_marker_may_name_has_a_reader() -> None:
    assert {suffix for suffix, _ in _READERS} == {*GRAPH_SUFFIXES}


@pytest.mark.parametrize("root", ["", "dump"])
def test_graphs_of_torchair_lie_beside_the_dump_or_in_the_folder_of_several(
    tmp_path: Path, make_table: Callable[..., StatsTable], root: str
) -> None:
    table = make_table(*[(f"{layer}:output.0", "float32", (4,), BASE) for layer in ("MatMul_1", "Relu_2")])
    (tmp_path / "torchair").mkdir()
    graph = tmp_path / "torchair" / "dynamo_optimized_graph_1_rank_0_pid_1_ts_2.txt"
    graph.write_text('op {\n  name: "MatMul_1"\n}\nop {\n  name: "Relu_2"\n  input: "MatMul_1:0"\n}\n')
    edges, notes = edges_at_hand([], tmp_path / root, table)
    assert (edges.feeds, notes) == ({"MatMul_1": (), "Relu_2": (Port("MatMul_1"),)}, ())
    graph.write_text("op {")
    edges, (note,) = edges_at_hand([], tmp_path / root, table)
    assert not edges.feeds
    assert "it is cut off" in note
