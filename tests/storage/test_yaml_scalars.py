from __future__ import annotations

import math

import pytest

from pytest_npudump.storage.safeyaml import plain_value

VALUES = [
    (None, ["", "~", "null", "Null", "NULL"]),
    (True, ["true", "True", "TRUE"]),
    (False, ["false", "False", "FALSE"]),
    (10, ["10", "+10", "010", "0xA", "0xa", "0o12"]),
    (-10, ["-10", "-010"]),
    (0.5, ["0.5", ".5", "+.5", "5e-1", "5E-1", "0.5e+0"]),
    (5.0, ["5.", "5.e0", "05.0"]),
    (0.001, ["1e-3", "1.0e-3"]),
    (100000.0, ["1e5", "1e+05"]),
    (math.inf, [".inf", ".Inf", ".INF", "+.inf"]),
    (-math.inf, ["-.inf", "-.Inf", "-.INF"]),
    (2**64, ["18446744073709551616"]),
]
TEXTS = [
    *("1:30", "1:1:1", "-190:20:30", "1:1:1.5"),
    *("yes", "no", "on", "off", "Yes", "NO", "On", "OFF", "y", "n", "Y", "N", "tRUE", "nULL"),
    *("1_000", "1_0.5", "0b11", "-0x1F", "-0o7", "0x", "0o", "0xg", "0o8", "0x_1"),
    *("1e", "1e+", "e5", ".e5", ".", "-", "+", "--", "+-", "..", "1.2.3", "9.1.0", "1L", "1j", "١٢"),
    *("2024-01-01", "2001-12-14t21:59:43.10-05:00"),
    *("<<", "=", "inf", "nan", "Infinity", ".NAn", "+.nan", "a"),
]


@pytest.mark.each(("value", "texts"), VALUES, ids=repr)
def test_words_have_the_values_of_the_core_schema(value: object, texts: list[str]) -> None:
    assert [(type(plain_value(text)), plain_value(text)) for text in texts] == [(type(value), value)] * len(
        texts
    )


def test_nan_is_a_number() -> None:
    assert all(math.isnan(float(str(plain_value(text)))) for text in (".nan", ".NaN", ".NAN"))


@pytest.mark.each("text", TEXTS)
def test_everything_else_is_text(text: str) -> None:
    assert plain_value(text) == text


@pytest.mark.each("text", ["9" * 5000, "0x" + "f" * 5000, "0o" + "7" * 5000, "1" * 5000 + ".5"])
def test_a_number_of_thousands_of_digits_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"a number of 5,00\d characters, expected 64 at most"):
        plain_value(text)


@pytest.mark.parametrize("text", ["1e999", "-1e999", "1e99999999"])
def test_a_number_beyond_float64_is_not_read_as_infinite(text: str) -> None:
    with pytest.raises(ValueError, match=f"'{text}' is beyond the range of float64"):
        plain_value(text)


def test_sexagesimals_of_a_megabyte_are_text_at_once() -> None:
    text = ":".join(["1"] * 500_000)
    assert plain_value(text) is text
