"""What charts show: tensors, strips, the graph around a source, elements of a report, and files of these."""

from __future__ import annotations

import base64
import io
import json
import math
import re
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import numpy as np
import pytest
from hypothesis import given, strategies as st
from PIL import Image

from pytest_npudump.compare.stats.tables import compare_tables
from pytest_npudump.compare.tensors.picture import draw, draw_alone
from pytest_npudump.compare.tolerances.tolerance import Rule, Tolerances
from pytest_npudump.dump.records import Stats, TensorKey, TensorRecord
from pytest_npudump.dump.table import StatsTable
from pytest_npudump.record.edges import Edges, Port
from pytest_npudump.report.charts import (
    NOT_A_NUMBER,
    SAME,
    axes_words,
    cell_colour,
    graph_svg,
    map_uri,
    write_figures,
)
from pytest_npudump.report.layer_names import LayerNames
from pytest_npudump.report.view import (
    ABREAST,
    CHANGED,
    HIGHEST,
    IDENTICAL,
    LOWEST,
    OUTSIDE,
    SOURCE,
    STATES,
    UNJUDGED,
    UNPAIRED,
    Neighbourhood,
    TensorView,
    magnitude,
    neighbourhoods,
    picture_from,
    read_elements,
    strip_columns,
    tensor_views,
)

LOOSE = Tolerances("exact", (Rule(rtol=0.0, atol=0.5, source="test"),))


def table(**maxima: float | None) -> StatsTable:
    def record(layer: str, maximum: float | None) -> TensorRecord:
        key = TensorKey(layer, "output", 0)
        if maximum is None:
            return TensorRecord(key, "Add", "float32", (4,), Path("f"))
        shown: dict[str, Any] = {"count": 4, "max": maximum, "min": -1.0, "avg": 0.25, "l2norm": None}
        stats = Stats(**shown, nan=0, neg_inf=0, pos_inf=0, digits=0)
        return TensorRecord(key, "Add", "float32", (4,), Path("f"), stats=stats)

    return StatsTable.from_records(record(*pair) for pair in maxima.items())


def test_each_way_to_come_out_is_told_from_the_others() -> None:
    golden = table(same=1.0, within=1.0, first=1.0, later=1.0, gone=1.0, unknown=None)
    actual = table(same=1.0, within=1.25, first=9.0, later=8.0, unknown=None, new=1.0)
    comparison = compare_tables(golden, actual, LOOSE)
    views = tensor_views(comparison, LOOSE, {TensorKey("first", "output", 0)})
    assert {view.key.layer: view.state for view in views} == {
        "same": IDENTICAL,
        "within": CHANGED,
        "first": SOURCE,
        "later": OUTSIDE,
        "gone": UNPAIRED,
        "unknown": UNJUDGED,
        "new": UNPAIRED,
    }
    first = next(view for view in views if view.state == SOURCE)
    assert (first.golden[0], first.actual[0], first.decided, first.share) == (1.0, 9.0, "max", 16.0)


def test_heights_are_decades_around_the_tolerance() -> None:
    found = [magnitude(share) for share in (0.0, 1.0, 1000.0, math.inf, math.nan, 1e-9)]
    assert found == [LOWEST, 0.0, pytest.approx(3.0), HIGHEST, 0.0, LOWEST]


@given(st.lists(st.tuples(st.sampled_from(STATES), st.floats(0, 1e9)), max_size=300), st.integers(1, 50))
def test_a_strip_covers_every_tensor_once_and_shows_every_column_at_its_worst(
    given_tensors: list[tuple[str, float]], most: int
) -> None:
    key = TensorKey("a", "output", 0)
    tensors = [TensorView(key, "", state, share, "", "", "", (), ()) for state, share in given_tensors]
    columns = strip_columns(tensors, most)
    covered = [at for column in columns for at in range(column.first, column.last + 1)]
    assert covered == [*range(len(tensors))]
    assert len(columns) == min(most, len(tensors))
    for column in columns:
        states = [tensors[at].state for at in range(column.first, column.last + 1)]
        assert column.state == min(states, key=STATES.index)


def around(feeds: dict[str, list[str]], source: str, wrong: set[str]) -> tuple[Neighbourhood, ...]:
    """Return the picture of a chain in which some layers differ."""
    golden = table(**dict.fromkeys(feeds, 1.0))
    actual = table(**{layer: 2.0 if layer in wrong else 1.0 for layer in feeds})
    comparison = compare_tables(golden, actual, Tolerances())
    keys = [TensorKey(source, "output", 0)]
    views = tensor_views(comparison, Tolerances(), frozenset(keys))
    edges = Edges({name: tuple(map(Port, fed)) for name, fed in feeds.items()}, "test")
    return neighbourhoods(comparison, edges, views, keys)


CHAIN = {"a": [], "b": ["a"], "c": ["b"], "d": ["c"], "e": ["d"], "f": ["e"], "g": ["f"], "h": ["g"]}


def test_two_operators_before_and_three_behind_are_shown_in_columns() -> None:
    (found,) = around(CHAIN, "d", {"d", "e", "f"})
    names = [one.name for one in found.operators]
    columns = {one.name: one.column for one in found.operators}
    assert columns == {"b": -2, "c": -1, "d": 0, "e": 1, "f": 2, "g": 3}
    assert {(names[one], names[other]) for one, other in found.arrows} == {*pairwise("bcdefg")}
    assert {one.name: one.state for one in found.operators}["d"] == "source"


def test_of_many_consumers_the_worst_are_shown_and_the_others_counted() -> None:
    feeds = {"a": [], **{f"b{at}": ["a"] for at in range(9)}}
    (found,) = around(feeds, "a", {"a", "b7", "b8"})
    behind = [one.name for one in found.operators if one.column == 1]
    assert behind[:2] == ["b7", "b8"]
    assert len(behind) == ABREAST
    assert found.left_out == 9 - ABREAST
    assert around({}, "a", set()) == ()  # where no edge is known there is no picture


@pytest.mark.each("state", STATES)
def test_type_and_state_fit_a_box(state: str) -> None:
    (found,) = around({"a": [], "b": ["a"]}, "b", {"b"})
    operators = [replace(one, op_type="BatchNormalization", state=state) for one in found.operators]
    drawn = graph_svg(replace(found, operators=tuple(operators)), LayerNames())
    assert all(10 < len(words) <= 23 for words in re.findall('class="type"[^>]*>([^<]*)', drawn))


def test_the_drawing_names_each_operator_once_and_escapes_it() -> None:
    name = "<b>&'\u202e"
    (found,) = around({"a": [], name: ["a"]}, name, {name})
    drawn = graph_svg(found, LayerNames())
    assert "<b>" not in drawn
    assert "\u202e" not in drawn
    assert drawn.count('class="operator') == 2


@pytest.fixture
def picture() -> dict[str, Any]:
    golden = np.arange(12.0).reshape(3, 4)
    found = draw(golden, golden + 1, rtol=0, atol=0.5)
    assert found is not None
    return json.loads(json.dumps(found.to_json()))  # type: ignore[no-any-return]


def report(folder: Path, **finding: Any) -> Path:
    usual = {"key": "a:output.0", "reproduced": True, "elements": None, "pattern": None, "note": None}
    data = {"test": "t", "escalation": {"problem": None, "findings": [{**usual, "path": None, **finding}]}}
    path = folder / "report.json"
    path.write_text(json.dumps(data), encoding="utf-8")
    return path


def test_a_picture_survives_the_file(tmp_path: Path, picture: dict[str, Any]) -> None:
    found, problem = read_elements(report(tmp_path, picture=picture), "t")
    assert problem == ""
    assert found[0].picture is not None
    assert json.loads(json.dumps(found[0].picture.to_json())) == picture
    (bare,), _ = read_elements(report(tmp_path), "t")
    assert bare.picture is None


def test_a_damaged_report_and_one_of_another_test_are_told_and_no_fault(tmp_path: Path) -> None:
    path = report(tmp_path)
    found, problem = read_elements(path, "other")
    assert (found, "is of another test" in problem) == ((), True)
    for text in ("", "[]", "{", '{"test": "t", "escalation": {"findings": [{}]}}'):
        path.write_text(text, encoding="utf-8")
        found, problem = read_elements(path, "t")
        assert (found, str(path) in problem) == ((), True), text


def test_a_picture_that_is_none_is_refused(picture: dict[str, Any]) -> None:
    damages: list[dict[str, Any]] = [{"cells": "AA=="}, {"cells": "?"}, {"rows": 2**40}, {"errors": [1]}]
    for damage in (*damages, {"golden": ["x"] * 64}, {"rows": -1}):
        with pytest.raises((ValueError, TypeError, KeyError)):
            picture_from(picture | damage)


def test_a_pixel_is_a_cell_in_the_colour_of_its_error() -> None:
    golden = np.ones((3, 4))
    actual = golden.copy()
    actual[0, 1], actual[2, 3] = 1.5, np.nan
    picture = draw(golden, actual, rtol=0.0, atol=1e-3)
    assert picture is not None
    head, _, data = map_uri(picture).partition(",")
    assert head == "data:image/png;base64"
    with Image.open(io.BytesIO(base64.b64decode(data))) as image:
        pixels = np.asarray(image.convert("RGB"))
    assert pixels.shape == (3, 4, 3)
    assert tuple(pixels[2, 3]) == NOT_A_NUMBER
    assert tuple(pixels[1, 1]) == SAME
    assert tuple(pixels[0, 1]) == cell_colour(picture.cells[1]) not in {SAME, NOT_A_NUMBER}


def test_larger_errors_are_lighter() -> None:
    light = [
        sum(w * c for w, c in zip((0.2126, 0.7152, 0.0722), cell_colour(n), strict=True))
        for n in range(1, 255)
    ]
    assert all(after > before - 1 for before, after in pairwise(light))  # channels are whole numbers
    assert light[-1] - light[0] > 150


def test_a_tensor_alone_has_no_map_and_axes_are_named_by_how_they_run() -> None:
    alone = draw_alone(np.ones(3))
    assert alone is not None
    assert map_uri(alone) == ""
    picture = draw(np.ones((2, 3, 4, 5)), np.ones((2, 3, 4, 5)), rtol=0, atol=0)
    assert picture is not None
    assert axes_words(picture, 4) == ("axes 0-1", "axes 2-3")


TITLE = "a & <script>层"


def tensor(at: int) -> TensorView:
    state, share = (SOURCE, 100.0) if at == 3 else (IDENTICAL, 0.0)
    key = TensorKey(f"layer{at}<", "output", 0)
    return TensorView(key, "Conv", state, share, "", "6x9", (), ())


def texts(path: Path) -> list[str]:
    return ["".join(one.itertext()) for one in ET.parse(path).iter() if one.tag.endswith("}text")]  # noqa: S314 - ours


def test_a_run_and_its_tensors_are_drawn_with_names_as_text(tmp_path: Path) -> None:
    golden = np.random.default_rng(1).normal(size=(6, 9))
    picture = draw(golden, golden + 0.5, rtol=0, atol=1e-3)
    assert picture is not None
    tensors = [tensor(at) for at in range(9)]
    run, elements = write_figures(tmp_path / "new", TITLE, tensors, {3: picture})
    assert (run.name, elements.name) == ("run.svg", "tensor-1.svg")
    assert {TITLE, "1 source", "8 identical as printed"} <= set(texts(run))
    assert {"layer3<:output.0", "where the errors are: axis 0 down, axis 1 across"} <= set(texts(elements))
    written = [path.read_bytes() for path in (run, elements)]
    again = write_figures(tmp_path / "again", TITLE, tensors, {3: picture})
    assert [path.read_bytes() for path in again] == written


def test_a_run_of_no_tensor_is_drawn(tmp_path: Path) -> None:
    [run] = write_figures(tmp_path, "empty", [], {})
    assert texts(run) == ["empty"]
