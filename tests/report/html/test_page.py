"""The page of a session, as a parser of HTML reads it."""

from __future__ import annotations

import base64
import json
import re
import sys
import zlib
from dataclasses import replace
from html.parser import HTMLParser
from typing import TYPE_CHECKING, Any

import pytest

from pytest_npudump.dump.records import TensorKey
from pytest_npudump.errors import MissingExtraError
from pytest_npudump.report.html.page import page
from pytest_npudump.report.view import CHANGED, IDENTICAL, OUTSIDE, STATES, SessionView

if TYPE_CHECKING:
    from collections.abc import Callable

VOID = {"meta", "img", "br", "input", "link", "wbr"}


class Read(HTMLParser):
    """Elements of a page, with attributes and text."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.texts: list[str] = []
        self.open: list[str] = []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if "script" not in self.open and "style" not in self.open:
            self.texts.append(data)

    def all(self, name: str) -> list[dict[str, str | None]]:
        return [attributes for tag, attributes in self.elements if tag == name]


def payloads(text: str) -> list[dict[str, Any]]:
    packed = re.findall(r'<script type="application/octet-stream">([^<]*)</script>', text)
    return [json.loads(zlib.decompress(base64.b64decode(one))) for one in packed]


def test_is_well_formed_and_has_one_script_one_style_and_no_address_elsewhere(session: SessionView) -> None:
    text = page(session)
    read = Read(text)
    assert read.open == []
    assert len(read.all("script")) == 1 + len(session.tests)
    assert len(read.all("style")) == 1
    given = (one.get(name) for _, one in read.elements for name in ("src", "href", "xlink:href"))
    assert all(address.startswith(("data:image/png;base64,", "#")) for address in given if address)
    assert re.findall(r"(?:https?:)?//[\w.]+\.\w+", text) == []
    (policy,) = [one["content"] for one in read.all("meta") if one.get("http-equiv")]
    assert policy is not None
    assert policy.startswith("default-src 'none'")
    assert re.search(r"script-src 'sha256-[\w+/]{43}='$", policy)
    # Facts in which golden and run differ are marked.
    assert len([one for one in read.all("tr") if one.get("class") == "differs"]) == 1


def test_no_name_becomes_an_element_an_attribute_or_a_script(session: SessionView) -> None:
    read = Read(page(session))
    assert not any(name.startswith("on") for _, attributes in read.elements for name in attributes)
    assert [one["src"][:10] for one in read.all("img") if one["src"]] == ["data:image"]
    text = "".join(read.texts)
    assert "</script><script>document.title='owned'</script>" in text
    assert "{{ 7 * 7 }}" in text
    assert "\u202e" not in text
    assert "safe\\u202etxt.exe" in text


def test_the_table_has_every_tensor_in_order_and_both_sides_of_what_differs(session: SessionView) -> None:
    data, _ = payloads(page(session))
    tensors = session.tests[0].tensors
    assert len(data["key"]) == len(tensors)
    assert [STATES[state] for state in data["state"]] == [one.state for one in tensors]
    assert data["share"][9] == -1
    assert data["statistics"]["10"][0][0] == "1.5"
    row = [data["words"][at] for at in (data["decided"][10], *data["pair"][20:22], data["allowed"][10])]
    assert row == ["max", "1.5", "11.5", "± 1e-05"]
    assert set(data["statistics"]) == {str(at) for at, one in enumerate(tensors) if one.state != IDENTICAL}


def test_ten_thousand_layers_take_less_than_two_megabytes_and_the_source_keeps_its_mark(
    large: Callable[[str], SessionView],
) -> None:
    """However many layers share a column of pixels with it."""
    for state in (CHANGED, IDENTICAL, OUTSIDE):
        text = page(large(state))
        assert len(text.encode()) < 2_000_000
        assert len(payloads(text)[0]["key"]) == 10_000
    (flag,) = [one for one in Read(text).all("path") if one.get("class") == "flag"]
    assert flag["data-at"] == "5000"


def test_each_fact_of_a_run_has_one_row(session: SessionView) -> None:
    failed = replace(session.tests[0], producers=(("runtime", "acl", "acl"), ("cann", "8.0", "8.1")))
    for one in (session.tests[0], failed):
        assert Read(page(replace(session, tests=(one,)))).texts.count("runtime") == 1


def test_a_session_without_tests_says_so_and_without_jinja2_the_extra_is_named(
    session: SessionView, monkeypatch: pytest.MonkeyPatch
) -> None:
    read = Read(page(SessionView((), ("No marked test ran in this session.",))))
    assert "No marked test ran in this session." in read.texts
    monkeypatch.setitem(sys.modules, "jinja2", None)
    with pytest.raises(MissingExtraError, match=r"pytest-npudump\[report\]"):
        page(session)


def test_the_first_screen_says_where_how_much_why_and_what_next(session: SessionView) -> None:
    failed = session.tests[0]
    told = replace(failed, why=("its kernel did it",), hand_over="npudump repro dumps/one -o DIR")
    text = page(SessionView((told,)))
    answers = text[text.index('class="answers"') : text.index('class="strip-frame"')]
    for words in ("its kernel did it", "npudump repro dumps/one -o DIR", "#test-0-elements"):
        assert words in answers
    assert "Why" not in page(SessionView((replace(failed, why=()),)))


def test_headings_have_the_end_of_long_names_and_say_once_what_they_begin_with(session: SessionView) -> None:
    failed = session.tests[0]
    begin = "F0::If_0_then_branch_of_the_network/"
    key = TensorKey(f"{begin}encoder/1/reparam_conv/Conv", "output", 0)
    tensors = [
        replace(one, key=replace(one.key, layer=f"{begin}{at}")) for at, one in enumerate(failed.tensors)
    ]
    tensors[9] = replace(tensors[9], key=key)
    around = replace(failed.neighbourhoods[0], source=key.layer)
    told = replace(
        failed,
        headline=f"{key}: weights changed",
        tensors=tuple(tensors),
        neighbourhoods=(around,),
        elements=(replace(failed.elements[0], key=str(key)),),
    )
    text = page(SessionView((told,))).replace("<wbr>", "")
    assert '<p class="headline">.../encoder/1/reparam_conv/Conv:output.0: weights changed</p>' in text
    hidden = r'<(script|style|svg).*?</\1>|title="[^"]*"|data-key="[^"]*"|<pre>.*?</pre>'
    shown = re.sub(hidden, "", text, flags=re.DOTALL)
    assert shown.count("names that start with .../ begin with") == shown.count(begin) == 1
    assert shown.count(".../encoder/1/reparam_conv/Conv") == 4


def test_the_first_tests_that_fail_are_open(session: SessionView) -> None:
    failed, passed = session.tests
    read = Read(page(SessionView((*[failed] * 4, passed))))
    tests = [one for one in read.all("details") if one["class"] == "test"]
    assert ["open" in one for one in tests] == [True, True, True, False, False]
    (alone,) = (one for one in Read(page(SessionView((passed,)))).all("details") if one["class"] == "test")
    assert "open" not in alone


def test_a_command_is_there_to_be_copied_and_other_words_are_not(session: SessionView) -> None:
    ways = (
        "to accept:  in the marker, tolerances=[...]",
        "to accept:  pytest --npudump-update-golden a.py",
        "to accept on the device: pytest --npudump-update-golden b.py",
    )
    text = page(SessionView((replace(session.tests[0], ways_out=ways),)))
    assert "<code>pytest --npudump-update-golden a.py</code>" in text
    assert "to accept on the device: <code>pytest --npudump-update-golden b.py</code>" in text
    assert "<code>in the marker" not in text
