"""Messages carry their template and values: through errors, processes and files, to who reads them."""

from __future__ import annotations

import json
import pickle
from copy import deepcopy
from pathlib import Path
from string import Formatter

import pytest
from hypothesis import given, settings, strategies as st

from pytest_npudump.errors import FormatError, NpudumpError, Said, joined, mapped, said
from pytest_npudump.language.text import inert
from pytest_npudump.language.translation import carried, restored, speaking, spoken

INNER = said("did not end within {timeout:g} seconds and was ended", timeout=30.0)
OUTER = said("nothing was recorded: {problem}", problem=said("the test's process {why}", why=INNER))
CHINESE = "未记录：用例的进程未在 30 秒内结束，已被终止"


def chinese(text: str) -> str:
    with speaking("zh"):
        return spoken(text)


def test_a_message_is_its_english_text_and_its_values_are_spoken_too() -> None:
    assert OUTER == "nothing was recorded: the test's process did not end within 30 seconds and was ended"
    assert spoken(OUTER) is OUTER
    assert chinese(OUTER) == CHINESE


@given(st.text(), st.integers(), st.floats(), st.sampled_from(["{a!r} {b:+d} {c:.3g}", "{{{a}}}{c}", "{a}"]))
@settings(max_examples=50)
def test_a_template_and_the_values_as_they_stand_in_it_make_the_text(
    a: str, b: int, c: float, template: str
) -> None:
    text = said(template, a=a, b=b, c=c)
    assert text == template.format(a=a, b=b, c=c)
    assert isinstance(text, Said)
    plain, parts = text.parts()
    assert plain.format(**parts) == text
    assert all(not (form or conversion) for _, _, form, conversion in Formatter().parse(plain))


@pytest.mark.each(
    "carry",
    [
        str,
        lambda text: str(NpudumpError(text)),
        lambda text: pickle.loads(pickle.dumps(NpudumpError(text))).args[0],  # noqa: S301 - ours
        lambda text: pickle.loads(pickle.dumps(text)),  # noqa: S301 - ours
        deepcopy,
        lambda text: restored(json.loads(json.dumps(carried({"a": [{"b": text}]}))))["a"][0]["b"],
        lambda text: restored(carried({"a": ({"b": text},)}))["a"][0]["b"],
        lambda text: mapped(text, lambda one: one.replace("x", "")),
        inert,
    ],
)
def test_what_a_message_goes_through_brings_it_back(carry: object) -> None:
    assert callable(carry)
    assert (str(carry(OUTER)), chinese(carry(OUTER))) == (OUTER, CHINESE)


def test_texts_that_are_joined_or_added_are_spoken_each() -> None:
    assert joined("; ", ["a", "b"]) == "a; b"
    assert not isinstance(joined("; ", ["a", "b"]), Said)
    assert joined("; ", ["{x}", INNER]) == "{x}; did not end within 30 seconds and was ended"
    assert chinese(joined("; ", ["{x}", INNER])) == "{x}; 未在 30 秒内结束，已被终止"
    assert chinese("a " + INNER + " b") == "a 未在 30 秒内结束，已被终止 b"


def test_what_a_function_changes_beside_the_values_is_plain() -> None:
    assert mapped(said("{a} b", a="b"), lambda text: text.replace("b", "c")) == "c c"
    assert inert(said("{a}", a="\x1b")) == "\\x1b"
    assert mapped("ab", str.upper) == "AB"


def test_an_error_with_a_place_says_what_it_was_given() -> None:
    error = pickle.loads(pickle.dumps(FormatError(Path("a b.csv"), INNER, offset=7)))  # noqa: S301 - ours
    assert str(error) == "a b.csv, byte 7: did not end within 30 seconds and was ended"
    assert chinese(str(error)) == "a b.csv，字节 7: 未在 30 秒内结束，已被终止"


@pytest.mark.each(
    "messages",
    [
        *(7, [7], [["{a}"]], [["{a}", {}]], [["b", {"a": []}]]),
        *([[wrong, {"a": "b"}]] for wrong in ("{a", "{a:>999999999}", "{a.__class__}")),
    ],
)
def test_what_a_file_has_in_place_of_messages_leaves_its_texts(messages: object) -> None:
    assert restored({"text": "b", "messages": messages}) == {"text": "b"}
    data = {"a": ["b", 1, None, {"c": 0.5}], "d": ("e",)}
    assert restored(carried(data)) == carried(data) == data


def test_no_name_and_no_other_text_is_taken_for_a_message_and_any_value_can_be_pickled() -> None:
    text = said("ended by {stop}", stop="did not end within 30 seconds and was ended")
    assert chinese(text) == "被 did not end within 30 seconds and was ended 结束"
    assert chinese("ended by 3") == "ended by 3"
    text = said("ended by {stop}", stop=lambda: 0)
    again = pickle.loads(pickle.dumps(text))  # noqa: S301 - ours
    assert again == text
    assert chinese(again).startswith("被 <function")


def test_a_word_in_a_message_leaves_data_that_reads_like_it() -> None:
    data = {"why": said("of the {side} tensor", side=said("golden")), "folder": "golden"}
    again = restored(json.loads(json.dumps(carried(data))))
    assert isinstance(again["why"], Said)
    assert Path("a") / again["folder"] == Path("a/golden")
