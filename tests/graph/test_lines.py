"""Edges as the lines of a golden file."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_npudump.dump.records import sanitise
from pytest_npudump.errors import GoldenError
from pytest_npudump.graph import lines
from pytest_npudump.graph.edges import SEVERAL, UNKNOWN, Edges, Port

GOLDEN = Path("test_ocr.yaml")
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
conv < x:output.0 -
split < conv:output.0
add < * ? split:output.1
"""


def test_lines_are_in_the_order_of_the_layers() -> None:
    assert lines.render(EDGES, ["x", "conv", "split", "add"]) == TEXT


def test_lines_are_read_back() -> None:
    assert lines.parse(TEXT, GOLDEN) == Edges(EDGES.feeds, GOLDEN.name)


def test_layers_of_which_nothing_is_known_have_no_line() -> None:
    assert lines.render(EDGES, ["other", "x"]) == "x <\n"
    assert lines.render(Edges(), ["x"]) == ""


@given(st.lists(st.text(min_size=1, max_size=8), min_size=2, max_size=2, unique=True))
def test_any_name_is_read_back_or_left_out(names: list[str]) -> None:
    first, second = names
    edges = Edges({sanitise(first): (), sanitise(second): (Port(first, 2),)}, "")
    text = lines.render(edges, names)
    assert all(line.isprintable() for line in text.splitlines())
    found = lines.parse(text, GOLDEN).feeds
    assert found.items() <= edges.restricted(names).feeds.items()
    if first.isascii() and second.isascii() and sanitise(first) != sanitise(second):
        assert len(found) == 2


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("conv x:output.0\n", "is no edge"),
        ("< x:output.0\n", "is no edge"),
        ("\n", "is no edge"),
        ("conv#turn=1 < x:output.0\n", "is no edge"),
        ("conv < x\n", "is not a tensor's key"),
        ("conv < x:input.0\n", "is no output of a layer"),
        ("conv < x#step=1:output.0\n", "is no output of a layer"),
        ("conv < x#colour=1:output.0\n", "unknown qualifier"),
        ("conv <\nconv <\n", "stands in two lines"),
        ("a/b <\na_b <\n", "stands in two lines"),
    ],
)
def test_a_damaged_line_is_an_error_with_the_way_out(text: str, reason: str) -> None:
    with pytest.raises(GoldenError, match=reason) as caught:
        lines.parse(text, GOLDEN)
    assert "test_ocr.yaml: edges: " in str(caught.value)
    assert "--npudump-update-golden" in str(caught.value)
