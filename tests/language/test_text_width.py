"""Text by the columns that it takes."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_npudump.language.text import padded, width, wrapped

TEXT = st.text("ab /-中文，。（）：", max_size=60)


@pytest.mark.each(("text", "columns"), [("", 0), ("abc", 3), ("层", 2), ("a层，", 5)])
def test_a_letter_of_chinese_takes_two_columns(text: str, columns: int) -> None:
    assert width(text) == columns
    assert padded(text, 8) == text + " " * (8 - columns)


def test_a_sign_stays_with_the_word_that_it_belongs_to() -> None:
    assert wrapped("输入（文件）。", 6) == ["输入", "（文", "件）。"]
    assert wrapped("退出码 0；dump 为空", 9) == ["退出码", "0；dump", "为空"]


def test_a_word_longer_than_a_line_stays_whole() -> None:
    assert wrapped("看 --npudump-dump-dir 吧", 8) == ["看", "--npudump-dump-dir", "吧"]


@given(TEXT, st.integers(4, 30))
def test_lines_are_no_wider_than_asked_and_lose_nothing_but_blanks(text: str, columns: int) -> None:
    lines = wrapped(text, columns)
    assert "".join("".join(lines).split()) == "".join(text.split())
    for line in lines:
        assert width(line) <= columns or len(line.split()) == 1
        assert line == line.strip()
