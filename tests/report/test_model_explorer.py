"""Node data of Model Explorer, in the form that its own classes write."""

from __future__ import annotations

import json
import math
from typing import TYPE_CHECKING

import pytest

from pytest_npudump.dump.records import TensorKey
from pytest_npudump.report.model_explorer import node_data, write
from pytest_npudump.report.view import (
    BAD,
    CHANGED,
    IDENTICAL,
    OUTSIDE,
    SOURCE,
    SessionView,
    TensorView,
    TestView,
)

if TYPE_CHECKING:
    from pathlib import Path

FIELDS = {"results", "name"}
RESULT_FIELDS = {"value", "bgColor", "textColor"}
"""Of ``GraphNodeData`` and ``NodeDataResult`` in ai-edge-model-explorer 0.1.33's ``node_data_builder``."""


def tensor(layer: str, state: str, share: float, slot: int = 0) -> TensorView:
    return TensorView(TensorKey(layer, "output", slot), "Conv", state, share, "float32", "4", (), ())


TENSORS = (
    tensor("a", IDENTICAL, 0.0),
    tensor("b", CHANGED, 0.5),
    tensor("b", SOURCE, math.inf, 1),
    tensor("c", OUTSIDE, 7.0),
)


def test_each_layer_has_the_error_and_colour_of_its_worst_tensor() -> None:
    data = node_data("test", TENSORS)
    assert {layer: one["value"] for layer, one in data["results"].items()} == {"a": 0.0, "b": 1e6, "c": 7.0}
    assert len({one["bgColor"] for one in data["results"].values()}) == 3
    assert set(data) == FIELDS  # those that the viewer reads, and no others
    assert all(set(one) == RESULT_FIELDS for one in data["results"].values())


def test_the_viewers_own_classes_write_the_same() -> None:
    builder = pytest.importorskip("model_explorer.node_data_builder", reason="ai-edge-model-explorer: 60 MB")
    data = node_data("test", TENSORS)
    results = {name: builder.NodeDataResult(**one) for name, one in data["results"].items()}
    theirs = json.loads(builder.GraphNodeData(results=results, name="test").to_json_string())
    assert data.items() <= theirs.items()


def test_tests_of_one_name_in_two_folders_have_a_file_each(tmp_path: Path) -> None:
    tests = [TestView(f"{folder}/test_a.py::b[../x]", BAD, "failed", "", tensors=TENSORS) for folder in "ab"]
    written = write(SessionView(tuple(tests)), tmp_path / "new")
    assert len(set(written)) == 2
    assert all(path.parent == tmp_path / "new" for path in written)
    assert [json.loads(path.read_text("utf-8"))["name"] for path in written] == [one.name for one in tests]
