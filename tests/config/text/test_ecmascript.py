from __future__ import annotations

import pytest

from pytest_npudump.config.text.ecmascript import syntax_problem

# Verdicts of std::regex, libstdc++ of GCC 12, on the same expressions.
COMPILED = [
    "",
    ".*fc1.*",
    "Default/.*-op[0-9]+",
    "a**",
    "a+*?",
    "[]",
    "[^]",
    "]",
    "}",
    "a{2}",
    "a{2,}",
    "a{2,5}?",
    "(a)\\1",
    "a||b",
    "()",
    "(?:)",
    "(?=a)b",
    "^$",
    "\\bfc\\B",
    "\\q",
    "\\cA",
    "\\x41",
    "\\u0041",
    "[a-]",
    "[-a]",
    "[\\w-]",
    "[\\-\\]]",
    "[[:alpha:]_]",
    "[[:ALPHA:]]",
    "[[]",
    "[--a]",
    "[a\\b]",
    "\\0",
    "é+",
    "[[.a.]]",
    "[[.space.]-~]",
    "[[=zero=]]",
    "[[:w:]]",
    "(a(b)c)\\2",
]
REFUSED = [
    "*",
    "+a",
    "?",
    "{2}",
    "a|*",
    "(*)",
    "^*",
    "\\b+",
    "(?=a)*",
    "(?<=a)",
    "(?P<n>a)",
    "(?i)a",
    "(",
    "(a",
    "a)",
    "a{",
    "a{,2}",
    "a{2",
    "a{3,1}",
    "a{x}",
    "[",
    "[a",
    "[z-a]",
    "[\\w-a]",
    "[a-\\d]",
    "[[:foo:]]",
    "[[:alpha",
    "[\\B]",
    "[\\1]",
    "\\1",
    "(a\\1)",
    "\\",
    "\\x4",
    "\\u004",
    "\\c",
    "(?",
    "[[.",
    "[[.0.]]",
    "[[.SPACE.]]",
    "[a-[.z.]]",
    "[[.z.]-a]",
    "[[=a=]-z]",
    "a{99999999999}",
]


@pytest.mark.parametrize("expression", COMPILED)
def test_takes_what_libstdcxx_compiles(expression: str) -> None:
    assert syntax_problem(expression) == ""


@pytest.mark.parametrize("expression", REFUSED)
def test_refuses_what_libstdcxx_throws_at(expression: str) -> None:
    assert syntax_problem(expression)
