"""Names that a CI service's runner would take for commands."""

from __future__ import annotations

import pytest

from pytest_npudump.language.text import inert


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
