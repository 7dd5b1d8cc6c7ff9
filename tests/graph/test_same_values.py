"""Edges that a run shows which dumped its inputs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from pytest_npudump.dump.records import TensorKey, TensorRecord
from pytest_npudump.dump.stats.tensor import tensor_stats
from pytest_npudump.dump.table import StatsTable
from pytest_npudump.graph.edges import UNKNOWN, Port, same_values
from pytest_npudump.graph.model_files import read_onnx
from pytest_npudump.onnxmodels import sessions

if TYPE_CHECKING:
    from pathlib import Path


A: dict[str, Any] = {"count": 4, "max": 2.5, "min": -1.0, "avg": 0.5, "nan": 0, "neg_inf": 0, "pos_inf": 0}
B = A | {"avg": 0.25}


def rows(*pairs: tuple[str, dict[str, Any]]) -> list[tuple[str, str, tuple[int, ...], dict[str, Any]]]:
    return [(key, "float32", (4,), stats) for key, stats in pairs]


def test_an_input_that_holds_what_one_output_held_came_from_there(make_table: Any) -> None:
    table = make_table(*rows(("a:output.0", A), ("b:output.1", B), ("c:input.0", B), ("c:input.1", A)))
    assert same_values(table).feeds == {"c": (Port("b", 1), Port("a"))}


@pytest.mark.each(
    "before",
    [
        [("a:output.0", A), ("b:output.0", A)],
        [("a:output.0", B)],
        [("a#step=1:output.0", A)],
        [],
    ],
    ids=["two", "none alike", "of another step", "none"],
)
def test_several_or_none_are_no_evidence(make_table: Any, before: list[tuple[str, dict[str, Any]]]) -> None:
    table = make_table(*rows(("z:output.0", B), *before, ("c:input.0", B), ("c:input.1", A)))
    assert same_values(table).feeds.get("c", (UNKNOWN, UNKNOWN))[1] == UNKNOWN


def test_elements_that_are_all_alike_or_unknown_are_no_evidence(make_table: Any) -> None:
    for stats in (A | {"max": 0.5, "min": 0.5}, A | {"avg": None}, A | {"max": float("nan")}):
        table = make_table(*rows(("a:output.0", stats), ("c:input.0", stats)))
        assert same_values(table).feeds == {}


def test_an_output_behind_an_input_did_not_feed_it(make_table: Any) -> None:
    assert same_values(make_table(*rows(("c:input.0", A), ("a:output.0", A)))).feeds == {}


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
