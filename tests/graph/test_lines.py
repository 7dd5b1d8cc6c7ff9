"""Edges as the lines of a golden file."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from pytest_npudump.dump.records import sanitise
from pytest_npudump.graph.edges import SEVERAL, UNKNOWN, Edges, Port, edges_of_lines, lines_of

GOLDEN = "test_ocr.yaml"
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
    assert lines_of(EDGES, ["x", "conv", "split", "add"]) == TEXT


def test_lines_are_read_back() -> None:
    assert edges_of_lines(TEXT, GOLDEN) == Edges(EDGES.feeds, GOLDEN)


def test_layers_of_which_nothing_is_known_have_no_line() -> None:
    assert lines_of(EDGES, ["other", "x"]) == "x <\n"
    assert lines_of(Edges(), ["x"]) == ""


@given(st.lists(st.text(min_size=1, max_size=8), min_size=2, max_size=2, unique=True))
def test_any_name_is_read_back_or_left_out(names: list[str]) -> None:
    first, second = names
    edges = Edges({sanitise(first): (), sanitise(second): (Port(first, 2),)}, "")
    text = lines_of(edges, names)
    assert all(line.isprintable() for line in text.splitlines())
    found = edges_of_lines(text, GOLDEN).feeds
    assert found.items() <= edges.restricted(names).feeds.items()
    if first.isascii() and second.isascii() and sanitise(first) != sanitise(second):
        assert len(found) == 2


def test_raw_names_that_file_names_cannot_tell_apart_know_nothing() -> None:
    assert edges_of_lines("a/b < x:output.0\na.b <\n", GOLDEN).feeds == {"a_b": (UNKNOWN,)}
