"""The summary in Markdown, read by a parser of Markdown."""

from __future__ import annotations

from html.parser import HTMLParser
from typing import TYPE_CHECKING

from hypothesis import given
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from pytest_npudump.report.ci import Judged, code, markdown_summary

if TYPE_CHECKING:
    from collections.abc import Sequence

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


def page_of(tests: Sequence[Judged]) -> _Page:
    """Return the page that GitHub's Markdown (CommonMark, tables, raw HTML) makes of a summary."""
    page = _Page()
    page.feed(MarkdownIt("commonmark").enable("table").render(markdown_summary(tests)))
    return page


def test_no_name_becomes_markup(hostile: Judged, good: Judged) -> None:
    page = page_of([hostile, good])
    assert set(page.tags) <= ALLOWED
    assert page.tags.count("table") == 2
    assert page.tags.count("tr") == 4
    assert page.tags.count("td") == 5 + 3
    assert page.tags.count("details") == 2


def test_a_name_is_read_as_it_is(good: Judged) -> None:
    name = "a|b\\|c `d` <e> *f* _g_"
    page = page_of([Judged({**good.result, "test": name}, failed=False, file="t.py", line=1)])
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


def test_summary_of_thousands_stays_below_what_github_takes(good: Judged) -> None:
    bad = Judged({**good.result, "status": "failed", "headline": "x" * 10_000}, failed=True, file="t", line=1)
    text = markdown_summary([bad] * 3000 + [good] * 3000)
    assert len(text.encode()) < 1 << 20
    assert "and 2950 more" in text
    assert "and 2800 more" in text


def test_passing_session_is_told_as_such(good: Judged) -> None:
    first = markdown_summary([good]).splitlines()[0]
    assert first.startswith("### ✅ npudump")
    assert "1 of 1 tests good" in first


def test_run_that_approves_says_so(good: Judged) -> None:
    page = page_of([good])
    assert "approves" not in "".join(page.text)
    assert "this run approves" in markdown_summary([good], approval="--npudump-update-golden")
