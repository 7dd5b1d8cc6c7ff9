"""Text for people: cut, laid out by the columns that it takes, and never a command of a CI service."""

from __future__ import annotations

import json

import pytest
from hypothesis import example, given, settings, strategies as st

from pytest_npudump.errors import said
from pytest_npudump.language.text import byte_size, cut, first_of, hung, inert, padded, width, wrapped
from pytest_npudump.language.translation import carried, carrying, restored, speaking, spoken
from pytest_npudump.report.layer_names import LayerNames

TEXT = st.text("ab /-中文，。（）：", max_size=60)


@pytest.mark.each(
    ("names", "most", "separator", "expected"),
    [
        (["a", "b"], None, ", ", "a, b"),
        (["a", "b", "c"], 2, ", ", "a, b and 1 more"),
        (iter(range(5)), 1, ", ", "0 and 4 more"),
        (["a, b", "c", "d"], 2, "; ", "a, b; c and 1 more"),
    ],
)
def test_a_long_list_says_how_many_it_leaves_out(
    names: list[object], most: int | None, separator: str, expected: str
) -> None:
    assert first_of(names, most, separator) == expected


def test_a_list_that_was_kept_is_spoken_with_its_commas_and_names() -> None:
    with carrying():
        names = [said("{name} ({before}, now {now})", name="b", before="Relu", now="LeakyRelu"), "c", "d"]
        (kept,) = restored(json.loads(json.dumps(carried({"": first_of(["a", *names], 3)})))).values()
    assert kept == "a, b (Relu, now LeakyRelu), c and 1 more"
    with speaking("zh"):
        assert spoken(kept) == "a，b（原为 Relu，现为 LeakyRelu），c 等，另有 1 个"


@pytest.mark.each(
    ("nbytes", "text"),
    [(0, "0 B"), (1023, "1023 B"), (1024, "1.0 KiB"), (4 << 20, "4.0 MiB"), (3 << 40, "3.0 TiB")],
)
def test_sizes_are_written_in_binary_units_and_a_long_line_ends_in_dots(nbytes: int, text: str) -> None:
    assert byte_size(nbytes) == text
    assert [cut(line, 6) for line in ("", "abcdef", "abcdefg")] == ["", "abcdef", "abc..."]


@pytest.mark.each(
    ("text", "expected"),
    [
        ("conv", "conv"),
        ("aten::add of a::b", "aten::add of a::b"),
        ("# 1, ## 2, C# [x]", "# 1, ## 2, C# [x]"),
        ("::error::x", r"\x3a:error::x"),
        ("a\n \t\u3000::error::x\n\n::debug::y", "a\n \t\u3000\\x3a:error::x\n\n\\x3a:debug::y"),
        ("layer ##[add-mask]a fails", r"layer #\x23[add-mask]a fails"),
        ("###[error]", r"##\x23[error]"),
        ("##vso[task.setvariable]", r"#\x23vso[task.setvariable]"),
    ],
)
def test_what_would_be_a_command_has_an_escape_and_all_else_stays(text: str, expected: str) -> None:
    assert inert(text) == expected
    assert inert(expected) == expected


@pytest.mark.each(("text", "columns"), [("", 0), ("abc", 3), ("层", 2), ("a层，", 5)])
def test_a_letter_of_chinese_takes_two_columns(text: str, columns: int) -> None:
    assert width(text) == columns
    assert padded(text, 8) == text + " " * (8 - columns)


@pytest.mark.each(
    ("text", "columns", "lines"),
    [
        ("输入（文件）。", 6, ["输入", "（文", "件）。"]),
        ("退出码 0；dump 为空", 9, ["退出码", "0；dump", "为空"]),
        ("看 --npudump-output 吧", 8, ["看", "--npudump-output", "吧"]),
        ("no file /tmp/a/b.yaml at all", 9, ["no file /tmp/a/b.yaml", "at all"]),
        ("in t.py::T::test[a b-c]: no file", 12, ["in", "t.py::T::test[a b-c]:", "no file"]),
        ("用例 t.py::test[a b]：不匹配", 9, ["用例", "t.py::test[a b]：", "不匹配"]),
    ],
)
def test_words_stay_whole_with_the_signs_that_belong_to_them(
    text: str, columns: int, lines: list[str]
) -> None:
    assert wrapped(text, columns) == lines


def test_chinese_has_no_blank_where_a_line_is_broken() -> None:
    text = "统计数据均在容差内" * 9
    assert "".join(line.strip() for line in hung(f"源头：{text}", 40)) == f"源头：{text}"
    assert (
        "".join(line.strip() for line in LayerNames((), 60).lines(f"源头:       {text}"))
        == f"源头:       {text}"
    )


@settings(max_examples=50)
@example("a /。。", 4)  # a longer path stays in its line
@given(TEXT, st.integers(4, 30))
def test_lines_are_no_wider_than_asked_and_lose_nothing_but_blanks(text: str, columns: int) -> None:
    lines = wrapped(text, columns)
    assert "".join("".join(lines).split()) == "".join(text.split())
    for line in lines:
        last = line.split()[-1] if line else ""
        longer = last[:1] == "/" and width(last) > columns
        assert width(line) <= columns or len(line.split()) == 1 or longer
        assert line == line.strip()
