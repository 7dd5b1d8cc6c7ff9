from __future__ import annotations

import contextlib
import json
from typing import Any

import pytest
from hypothesis import given, strategies as st

from pytest_npudump.config.json_file import StrictJsonError, json_refusal, parse

# What nlohmann::json 3.11 does with each, by its documentation and RFC 8259.
TAKEN = [
    (b"{}", {}),
    (b"\xef\xbb\xbf[1]", [1]),
    (b' \t\r\n"a" \n', "a"),
    (b'{"a": 1, "a": 2}', {"a": 2}),
    (b'{"a": 1}\x00 anything', {"a": 1}),
    (b'{"a": 1} \x00{', {"a": 1}),
    (b'{"a": 1}\x00\xff', {"a": 1}),
    (b'"\\ud83d\\ude00"', "\U0001f600"),
    (b'"\\\\ud800"', "\\ud800"),
    (b"18446744073709551615", 18446744073709551615),
    (b"-9223372036854775808", -9223372036854775808),
    (b'"\x7f"', "\x7f"),
    (b"1E2", 100.0),
]
REFUSED = [
    b"",
    b" ",
    b"{",
    b"{} {}",
    b"{'a': 1}",
    b'{"a": 1,}',
    b"[1,]",
    b"// c\n{}",
    b"/* c */ {}",
    b"NaN",
    b"[Infinity]",
    b"[-Infinity]",
    b"01",
    b"+1",
    b"1.",
    b".5",
    b"0x1",
    b"1e999",
    b"1" * 400,
    b"True",
    b'"\x01"',
    b'"\n"',
    b'"\\x41"',
    b'"\\u12"',
    b'"\\ud800"',
    b'["\\udc00"]',
    b'{"\\ud800": 1}',
    b'{"a": [["\\ud800"]], "a": 1}',
    b'"\xff"',
    b'"\xed\xa0\x80"',
    b'"\xc0\x80"',
    b"{} \xff",
    b'{"a": "\x00"}',
    b'{"a": 1\x00}',
    b"\xef\xbb{}",
    b"\xff\xfe{\x00}\x00",
    b"\x00{}",
    b"\xc2\xa0{}",
    b"\x0c{}",
]


@pytest.mark.each(("text", "value"), TAKEN)
def test_takes(text: bytes, value: Any) -> None:
    assert parse(text) == value


@pytest.mark.each("text", REFUSED)
def test_refuses(text: bytes) -> None:
    with pytest.raises(StrictJsonError):
        parse(text)


@pytest.mark.each(
    ("text", "value", "kind"),
    [
        (b"18446744073709551616", 2.0**64, float),
        (b"-9223372036854775809", -(2.0**63), float),
        (b"-0", 0, float),
    ],
)
def test_numbers_keep_the_kind_that_nlohmann_gives_them(text: bytes, value: Any, kind: type) -> None:
    assert parse(text) == value
    assert type(parse(text)) is kind


def test_nesting_that_python_cannot_follow_is_an_error_of_its_own() -> None:
    for text in (b"[" * 200_000 + b"]" * 200_000, b"[" * 200_000, b'{"a":' * 200_000):
        with pytest.raises(StrictJsonError, match="nested more deeply than Python follows") as caught:
            parse(text)
        refusal = json_refusal(caught.value, "write less")
        assert str(refusal) == f"{caught.value}; write less"
    assert parse(b"[" * 50 + b"]" * 50)


def test_the_error_names_the_byte_and_the_line() -> None:
    with pytest.raises(StrictJsonError) as caught:
        parse('\ufeff{"é": 1,\n "b" 2}'.encode())
    assert caught.value.offset == 18
    assert "line 2, column 6" in str(caught.value)


def test_what_follows_the_value_is_ignored_where_only_the_value_is_read() -> None:
    for rest in (b" x", b"{", b"\x00", b" \xff", b"\xed\xa0\x80"):
        assert parse(b'{"a": 1}' + rest, whole=False) == {"a": 1}


def test_invalid_utf_8_within_the_value_is_named_though_only_the_value_is_read() -> None:
    with pytest.raises(StrictJsonError, match="invalid UTF-8") as caught:
        parse(b'{"a": "\xff"}', whole=False)
    assert caught.value.offset == 7


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.text()
    | st.floats(allow_nan=False, width=32),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner, max_size=4),
    max_leaves=12,
)


def has_surrogate(value: Any) -> bool:
    return any(0xD800 <= ord(c) <= 0xDFFF for c in json.dumps(value, ensure_ascii=False))


@given(value=JSON, ensure_ascii=st.booleans())
def test_reads_what_the_standard_library_writes(value: Any, *, ensure_ascii: bool) -> None:
    if any(text in json.dumps(value) for text in ("Infinity", "NaN")):
        return
    if has_surrogate(value):
        with pytest.raises(StrictJsonError):
            parse(json.dumps(value).encode())
    else:
        assert parse(json.dumps(value, ensure_ascii=ensure_ascii).encode()) == value


@given(st.binary(max_size=40))
def test_bytes_never_raise_anything_else(text: bytes) -> None:
    with contextlib.suppress(StrictJsonError):
        parse(text)
