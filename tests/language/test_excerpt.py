"""Long lists and long lines in messages."""

from __future__ import annotations

import pytest

from pytest_npudump.language.text import byte_size, cut, first_of


@pytest.mark.each(
    ("names", "most", "expected"),
    [
        ([], 2, ""),
        (["a", "b"], 2, "a, b"),
        (["a", "b", "c"], 2, "a, b and 1 more"),
        (iter(range(5)), 1, "0 and 4 more"),
        (["a", "b", "c"], None, "a, b, c"),
    ],
)
def test_a_long_list_says_how_many_it_leaves_out(
    names: list[object], most: int | None, expected: str
) -> None:
    assert first_of(names, most) == expected


def test_what_holds_commas_is_separated_by_other_signs() -> None:
    assert first_of(["a, b", "c", "d"], 2, "; ") == "a, b; c and 1 more"


@pytest.mark.parametrize(("text", "expected"), [("", ""), ("abcdef", "abcdef"), ("abcdefg", "abc...")])
def test_a_long_line_ends_in_dots_at_its_width(text: str, expected: str) -> None:
    assert cut(text, 6) == expected


@pytest.mark.each(
    ("nbytes", "text"),
    [(0, "0 B"), (1023, "1023 B"), (1024, "1.0 KiB"), (4 << 20, "4.0 MiB"), (3 << 40, "3.0 TiB")],
)
def test_sizes_are_written_in_binary_units(nbytes: int, text: str) -> None:
    assert byte_size(nbytes) == text
