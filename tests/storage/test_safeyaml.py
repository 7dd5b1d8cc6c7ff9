from __future__ import annotations

import math
import tracemalloc
from pathlib import Path
from typing import Any

import pytest
import yaml

from pytest_npudump.errors import RequestError, said
from pytest_npudump.storage import safeyaml
from pytest_npudump.storage.safeyaml import YamlError, dump_mapping, load_mapping, plain_value, read_mapping

PLAIN = (
    "1:30 1:1:1.5 yes no on off y 010 08 0o17 0x1F 0b1 1_000 1e5 1e-3 .5 +.5 5. 1 -1 .inf +.inf .nan ~ "
    "null true << = 2001-01-01 # - ? !x &x *x %x @x `x` ' \" [ { |"
)
TEXTS = [
    *PLAIN.split(),
    *("", " a", "a ", "a: b", "a #b", "a\nb", "\n", "a\tb", "\x00", "\x1b", "\x7f", "\x85", "\xa0"),
    *("\u2028", "\u2029", "\ufeff", "a\ufeffb", "😀"),
]


@pytest.mark.each("text", TEXTS, ids=ascii)
def test_text_is_read_back_as_it_was_written_wherever_it_stands_by_readers_of_yaml_1_1_too(text: str) -> None:
    for data in ({"key": text}, {text: "value"}, {"key": [text]}, {"key": {text: text}}):
        assert load_mapping(dump_mapping(data)).data == data
    if text.isprintable():
        assert yaml.safe_load(dump_mapping({"key": text})) == {"key": text}


@pytest.mark.each("value", [0, -1, 2**64, 0.5, 1e16, 1e-5, 1e300, -0.0, float("inf"), True, None])
def test_other_plain_data_is_read_back_as_it_was_written(value: object) -> None:
    found = load_mapping(dump_mapping({"key": value})).data["key"]
    assert (type(found), repr(found)) == (type(value), repr(value))


@pytest.mark.parametrize("value", [10**5000, "\ud800", object()], ids=["large", "surrogate", "object"])
def test_what_yaml_cannot_hold_is_no_plain_data(value: object) -> None:
    with pytest.raises(YamlError, match="not plain data"):
        dump_mapping({"key": value})


@pytest.mark.each(
    ("text", "message"),
    [
        ("a: 1\nb: " + "9" * 5000, "line 2: a number of 5,000 characters"),
        ("a: 1\nb: 1e999", "line 2: '1e999' is beyond the range of float64"),
        ("a: 1\n1: b", "line 2: a key must be text, put '1' in quotes"),
        ("a: 1\n~: b", "line 2: a key must be text, put '~' in quotes"),
        ("a:\n  ? [b]\n  : c", "line 2: a key must be text, in the mapping of line 2"),
        ("a: 1\n<<: {b: 1}", r"line 2: merge keys \(<<\) are not accepted"),
        ("%YAML 1.1\n---\na: 010", "line 1: directives are not accepted"),
        ("%TAG ! tag:x,2024:\n---\na: 1", "line 1: directives are not accepted"),
        ("a: !!binary YQ==", "line 1: tags are not accepted"),
        ("a: !!timestamp 2001-01-01", "line 1: tags are not accepted"),
        ("a: é\nb: c\x85d", "line 2: the character U[+]0085, which readers of YAML disagree about"),
        ("a: 1\nb: c\u2028d", r"line 2: the character U[+]2028, .* or write \\u2028 in double quotes"),
        ("a: 1\n\ufeffb: 1", "line 2: the character U[+]FEFF"),
        ("a: 1\nb: \ud800", "line 2: not YAML: "),
        ('a: 1\nb: "\\ud800"', "line 2: not YAML: "),
        ("a: [" + "1," * 150_000 + "1]", "line 1: more than 100,000 values"),
        ("a: [" + "1,\n" * 120_000 + "1]", "line 1000[01]0?: more than 100,000 values|line 9999.: more than"),
        ("a: 1\n" + "#" * 5_000_000 + "\nb: 1", "line 3: more than 4,194,304 characters"),
        ("a: '" + "x" * 5_000_000 + "'", "line 1: more than 4,194,304 characters"),
    ],
)  # fmt: skip
def test_a_document_that_is_no_plain_data_is_refused_with_its_line(text: str, message: str) -> None:
    with pytest.raises(YamlError, match=message):
        load_mapping(text)


class ShallowLoader(yaml.SafeLoader):
    """A parser with a limit of its own, which it meets while it looks ahead for the colon of a key."""

    def fetch_flow_collection_start(self, token: Any) -> None:
        if self.flow_level > safeyaml._DEPTH + 1:
            raise yaml.scanner.ScannerError(None, None, "too deep for this parser", self.get_mark())
        super().fetch_flow_collection_start(token)


@pytest.mark.each("loader", [yaml.CSafeLoader, yaml.SafeLoader, ShallowLoader])
def test_our_own_limit_of_nesting_comes_before_those_of_any_parser(
    monkeypatch: pytest.MonkeyPatch, loader: type
) -> None:
    monkeypatch.setattr(safeyaml, "_LOADER", loader)
    beyond = 100_000 if loader is yaml.CSafeLoader else 5_000  # of C's stack, and of Python's
    for opening in ("[", "{b: ", "[a, ", "{b, c: ", "- ", "[{b: "):
        with pytest.raises(YamlError, match=r"^line 2: nested deeper than 32 levels$"):
            load_mapping("a:\n  " + opening * beyond)
    deepest = "[" * 32 + "]" * 32
    assert repr(load_mapping(f"a: {deepest}").data["a"]) == deepest
    with pytest.raises(YamlError, match=r"^line 1: nested deeper than 32 levels$"):
        load_mapping(f"a: [{deepest}]")
    with pytest.raises(YamlError, match=r"^line 2: not YAML: "):
        load_mapping("a: '" + "[" * 2_000 + "'\nb: ]")


def test_a_literal_block_may_be_larger_than_the_rest() -> None:
    block = "x" * 99 + "\n"
    document = load_mapping("a: 1\nb: |\n" + f"  {block}" * 50_000 + "c: 2\n")
    assert document.data == {"a": 1, "b": block * 50_000, "c": 2}
    assert document.lines == {"a": 1, "b": 2, "c": 50_003}


def test_bytes_that_are_no_utf_8_are_refused_with_their_line(tmp_path: Path) -> None:
    """A byte order mark before the text means nothing."""
    path = tmp_path / "a.yaml"
    for content, message in (
        (b"a: 1\nb: \xff\n", "line 2: byte 8 is not UTF-8"),
        ("a: 1".encode("utf-16"), "line 1: byte 0 is not UTF-8"),
    ):
        path.write_bytes(content)
        with pytest.raises(RequestError, match=f"a.yaml, {message}"):
            read_mapping(path, "it")
    path.write_bytes(b"\xef\xbb\xbfa: 1\n")
    assert read_mapping(path, "it").data == load_mapping("\ufeffa: 1\n").data == {"a": 1}


def test_a_file_too_large_is_not_read_whole(tmp_path: Path) -> None:
    path = tmp_path / "a.yaml"
    with path.open("wb") as file:
        file.truncate(1 << 30)
    tracemalloc.start()
    with pytest.raises(RequestError, match="more than 4,194,304 characters, which no file that is read here"):
        read_mapping(path, "it")
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 3 * safeyaml.SIZE


def test_a_message_is_written_as_text() -> None:
    message = said("{count} layers: {name}", count=2, name="a")
    found = load_mapping(dump_mapping({"reason": message, "all": [message]})).data
    assert found == {"reason": "2 layers: a", "all": ["2 layers: a"]}


WORDS = [
    (None, "~ null Null NULL"),
    (True, "true True TRUE"),
    (False, "false False FALSE"),
    (10, "10 +10 010 0xA 0xa 0o12"),
    (-10, "-10 -010"),
    (0.5, "0.5 .5 +.5 5e-1 5E-1 0.5e+0"),
    (5.0, "5. 5.e0 05.0"),
    (0.001, "1e-3 1.0e-3"),
    (100000.0, "1e5 1e+05"),
    (math.inf, ".inf .Inf .INF +.inf"),
    (-math.inf, "-.inf -.Inf -.INF"),
    (math.nan, ".nan .NaN .NAN"),
    (2**64, "18446744073709551616"),
]
OTHERS = (
    "1:30 1:1:1 -190:20:30 1:1:1.5 yes no on off Yes NO On OFF y n Y N tRUE nULL 1_000 1_0.5 0b11 -0x1F -0o7 "
    "0x 0o 0xg 0o8 0x_1 1e 1e+ e5 .e5 . - + -- +- .. 1.2.3 9.1.0 1L 1j ١٢ 2024-01-01 "
    "2001-12-14t21:59:43.10-05:00 << = inf nan Infinity .NAn +.nan a"
)


def test_words_have_the_values_of_the_core_schema_and_all_else_is_text() -> None:
    for value, texts in WORDS:
        assert {repr(plain_value(text)) for text in texts.split()} == {repr(value)}
    assert plain_value("") is None
    assert [plain_value(text) for text in OTHERS.split()] == OTHERS.split()
    sexagesimals = ":".join(["1"] * 500_000)
    assert plain_value(sexagesimals) is sexagesimals
    assert load_mapping(f"a: {sexagesimals}").data == {"a": sexagesimals}


def test_a_number_of_thousands_of_digits_or_beyond_float64_is_refused() -> None:
    for text in ("9" * 5000, "0x" + "f" * 5000, "0o" + "7" * 5000, "1" * 5000 + ".5"):
        with pytest.raises(ValueError, match=r"a number of 5,00\d characters, expected 64 at most"):
            plain_value(text)
    for text in ("1e999", "-1e999", "1e99999999"):
        with pytest.raises(ValueError, match=f"'{text}' is beyond the range of float64"):
            plain_value(text)
