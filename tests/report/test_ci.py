"""What services that run tests read: JUnit, Markdown by its parser, annotations as a runner, GitLab's own."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from html.parser import HTMLParser
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, strategies as st
from markdown_it import MarkdownIt

from pytest_npudump.dump.records import TensorKey
from pytest_npudump.graph.sources import Source, Sources
from pytest_npudump.report.ci import (
    MOST,
    WHOLE,
    JudgedTest,
    code,
    code_quality,
    counts_of,
    error_commands,
    is_ours,
    junit_properties,
    markdown_summary,
    sources_of,
)
from pytest_npudump.report.origins import small_sources
from tests.report.conftest import each_hostile, judged

if TYPE_CHECKING:
    from collections.abc import Sequence


FIRST = [{"key": f"Conv@{n}:output.0", "explains": 9 - n} for n in range(3)]
IF = {"key": "If_0:output.0", "explains": 1}
ALTERED = {"key": "Mul@0:output.0", "explains": 3, "altered": "Clip@0"}
THREE = "Conv@0:output.0 (8 downstream), Conv@1:output.0 (7 downstream), Conv@2:output.0 (6 downstream)"


@pytest.mark.each(
    ("in_all", "first", "more", "told"),
    [
        (5, FIRST, {"status": "failed", "first": "x"}, f"{THREE} and 2 more"),
        (1, FIRST[:1], {"first": "x", "fail": 9}, "Conv@0:output.0 (8 downstream)"),
        (1, FIRST[:1], {"first": "x", "fail": 10}, "Conv@0:output.0 (at least 8 downstream)"),
        (1, [IF], {"fail": 2}, "If_0:output.0"),
        (1, [ALTERED], {"fail": 3}, "Clip@0, upstream of Mul@0:output.0 (2 downstream)"),
        (0, [], {"first": "a"}, "a"),
    ],
)
def test_sources_name_what_each_explains_and_how_many_more_there_are(
    in_all: int, first: list[Any], more: dict[str, Any], told: str
) -> None:
    assert sources_of({**more, "sources": {"in_all": in_all, "first": first}}) == told


def test_outputs_of_one_operator_are_one_source_and_without_any_the_first_difference_is_named() -> None:
    keys = [TensorKey("If_0", "output", slot) for slot in (0, 1)]
    sources = Sources(tuple(Source(key, "If", 2 + key.slot) for key in keys), 4, (), "net.onnx")
    told = small_sources(sources)
    assert sources_of({"fail": 3, "sources": told}) == "If_0:output.0 (2 downstream)"
    assert told["in_all"] == 1
    assert sources_of({"first": "a:output.0"}) == "a:output.0"
    assert sources_of({"first": None, "operator": "MatMul"}) == "MatMul"
    assert sources_of({}) == ""


def test_counts_name_only_what_there_is() -> None:
    result = {"expected": 9, "compared": 8, "fail": 2, "missing": 1, "extra": 0, "changed": 3}
    assert counts_of(result) == "8 of 9 compared, 2 out of tolerance, 1 missing, 3 changed within tolerance"
    assert counts_of({"status": "error"}) == ""


def test_a_good_comparison_in_a_test_that_failed_otherwise_is_not_good() -> None:
    assert JudgedTest({"status": "passed"}, failed=False, file="t.py", line=1).good
    assert not JudgedTest({"status": "passed"}, failed=True, file="t.py", line=1).good
    assert not JudgedTest({"status": "golden missing"}, failed=False, file="t.py", line=1).good


@each_hostile
def test_properties_are_plain_and_bounded(hostile: JudgedTest) -> None:
    result = {**hostile.result, "golden": "g" * 5000, "notes": ["n" * 5000] * 99, "bounds": "same"}
    result |= {
        "artifact": "tests/a",
        "first": "f" * 5000,
        "sources": {"in_all": 1, "first": [{"key": "k" * 5000, "explains": 1}]},
    }
    properties = dict(junit_properties(result))
    whole = properties.pop(WHOLE)
    assert json.loads(whole)["notes_in_all"] == 99
    assert len(whole) < 10_000
    assert set(properties) == {
        f"npudump.{name}"
        for name in ("status", "source", "first_change", "tensors", "bounds", "golden", "report", "artifact")
    }
    assert all(len(value) <= 300 for value in properties.values())
    assert properties["npudump.tensors"] == "3 of 3 compared, 1 out of tolerance"


def test_what_is_not_known_has_no_property_and_properties_of_others_are_not_ours(good: JudgedTest) -> None:
    assert [name for name, _ in junit_properties(good.result)] == [WHOLE, "npudump.status", "npudump.tensors"]
    assert [is_ours(name) for name in ("npudump", "npudump.status", "npudumper")] == [True, True, False]


ALLOWED = frozenset(
    {"h3", "table", "thead", "tbody", "tr", "th", "td", "code", "p", "ul", "li", "details", "summary"}
)


class _Page(HTMLParser):
    """The tags of a page, and its text."""

    def __init__(self) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.text: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        assert not attrs, f"<{tag}> has attributes {attrs}"

    def handle_data(self, data: str) -> None:
        self.text.append(data)

    def handle_comment(self, data: str) -> None:
        raise AssertionError(f"a comment hides {data!r}")


def page_of(tests: Sequence[JudgedTest]) -> _Page:
    """Return the page that GitHub's Markdown (CommonMark, tables, raw HTML) makes of a summary."""
    page = _Page()
    page.feed(MarkdownIt("commonmark").enable("table").render(markdown_summary(tests)))
    return page


@each_hostile
def test_no_name_becomes_markup(hostile: JudgedTest, good: JudgedTest) -> None:
    page = page_of([hostile, good])
    assert set(page.tags) <= ALLOWED
    assert page.tags.count("table") == 2
    assert page.tags.count("tr") == 4
    assert page.tags.count("td") == 5 + 3
    assert page.tags.count("details") == 2


def test_a_name_is_read_as_it_is(good: JudgedTest) -> None:
    name = "a|b\\|c `d` <e> *f* _g_"
    page = page_of([JudgedTest({**good.result, "test": name}, failed=False, file="t.py", line=1)])
    assert name in page.text or name in "".join(page.text)


@given(st.text(max_size=40))
def test_any_text_is_one_cell(text: str) -> None:
    html = (
        MarkdownIt("commonmark").enable("table").render(f"| a | b |\n| --- | --- |\n| {code(text)} | end |\n")
    )
    page = _Page()
    page.feed(html)
    assert page.tags.count("td") == 2
    assert set(page.tags) <= ALLOWED


def test_summary_of_thousands_stays_below_what_github_takes(good: JudgedTest) -> None:
    bad = replace(good, result={**good.result, "status": "failed", "headline": "x" * 10_000}, failed=True)
    text = markdown_summary([bad] * 3000 + [good] * 3000)
    assert len(text.encode()) < 1 << 20
    assert "and 2950 more" in text
    assert "and 2800 more" in text
    words = "word " * 200  # a text that is cut ends in dots
    assert code(words).endswith("...`")
    bad = replace(bad, result={"status": "failed", "test": words})
    assert "...`" in markdown_summary([bad])


def test_passing_session_is_told_as_such_and_run_that_approves_says_so(good: JudgedTest) -> None:
    text = markdown_summary([good])
    first = text.splitlines()[0]
    assert first.startswith("### ✅ npudump")
    assert "1 of 1 tests passed" in first
    assert "<summary>1 passed</summary>" in text
    assert "approves" not in "".join(page_of([good]).text)
    assert "this run updates goldens" in markdown_summary([good], approval="--npudump-update-golden")


_COMMAND = re.compile(r"::(?P<name>[a-z-]+) (?P<properties>[^\r\n]*?)::(?P<data>[^\r\n]*)\Z")


def read(line: str) -> tuple[str, dict[str, str], str]:
    """Return a command as actions/runner does: split first, then %0A, %0D, %3A, %2C and at last %25."""
    match = _COMMAND.match(line)
    assert match, line
    pairs = dict(pair.split("=", 1) for pair in match["properties"].split(","))
    unescape = [("%0D", "\r"), ("%0A", "\n"), ("%3A", ":"), ("%2C", ","), ("%25", "%")]
    for escaped, sign in unescape:
        pairs = {name: value.replace(escaped, sign) for name, value in pairs.items()}
    data = match["data"]
    for escaped, sign in [("%0D", "\r"), ("%0A", "\n"), ("%25", "%")]:
        data = data.replace(escaped, sign)
    return match["name"], pairs, data


@each_hostile
def test_no_name_ends_a_command_or_begins_one(hostile: JudgedTest) -> None:
    (line,) = error_commands([hostile])
    assert len(line.splitlines()) == 1
    name, properties, data = read(line)
    assert name == "error"
    assert properties == {"file": "test_it.py", "line": "7", "title": "npudump: failed"}
    assert data.startswith("npudump: ")
    assert data.count("\n") <= 1


def test_good_tests_have_none_and_the_first_failing_ones_have(good: JudgedTest) -> None:
    assert error_commands([good]) == []
    assert len(error_commands([judged("a")] * 25)) == MOST
    assert json.loads(code_quality([good])) == []


@each_hostile
def test_an_entry_has_what_gitlab_asks_for(hostile: JudgedTest) -> None:
    (entry,) = json.loads(code_quality([hostile]))
    assert {"description", "check_name", "fingerprint", "severity", "location"} <= entry.keys()
    assert entry["severity"] in {"info", "minor", "major", "critical", "blocker"}
    assert entry["location"] == {"path": "test_it.py", "lines": {"begin": 7}}
    assert entry["description"].isprintable()


@each_hostile
def test_the_same_fault_has_the_same_fingerprint_whatever_its_numbers(hostile: JudgedTest) -> None:
    again = replace(hostile, result={**hostile.result, "headline": "npudump: max is 3 instead of 1"})
    (one,), (two,) = json.loads(code_quality([hostile])), json.loads(code_quality([again]))
    assert one["fingerprint"] == two["fingerprint"]
    assert one["description"] != two["description"]


@each_hostile
def test_sessions_of_other_files_are_kept_and_those_of_the_same_replaced(
    hostile: JudgedTest, good: JudgedTest
) -> None:
    other = replace(hostile, file="test_other.py")
    both = code_quality([hostile], code_quality([other]))
    assert [entry["location"]["path"] for entry in json.loads(both)] == ["test_it.py", "test_other.py"]
    assert [entry["location"]["path"] for entry in json.loads(code_quality([good], both))] == [
        "test_other.py"
    ]


@each_hostile
@pytest.mark.each(
    "before", [b"", b"{", b"null", b"{}", b"[1]", b'[{"check_name": "other"}]', b"\xff", b"[" * 9999]
)
def test_what_is_no_report_of_ours_is_replaced(before: bytes, hostile: JudgedTest) -> None:
    assert len(json.loads(code_quality([hostile], before))) == 1
