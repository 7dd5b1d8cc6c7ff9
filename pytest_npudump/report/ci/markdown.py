"""A session as GitHub's Markdown: failing tests in a table, what is known of each folded away below it."""

from __future__ import annotations

import re
from pathlib import PurePath
from typing import TYPE_CHECKING, Any

from pytest_npudump.report.ci.judged import counts_of, sources_of
from pytest_npudump.report.summary import summary_line
from pytest_npudump.report.verdicts import plain

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from pytest_npudump.report.ci.judged import Judged

_FAILING, _GOOD, _WIDTH = 50, 200, 500
"""Rows of either table, and characters of a cell: GitHub refuses a summary of more than 1 MiB."""
_NONE = "npudump: no marked test has run"
_HARMLESS = re.compile(r"[^`|\\<>\x00-\x1f\x7f-\x9f\u2028\u2029]+\Z")


def markdown_summary(
    tests: Sequence[Judged], problems: Sequence[str] = (), *, approval: str = "", artifacts: str | None = None
) -> str:
    """Return the summary of a session, whose names no reader of Markdown or HTML takes for markup.

    Args:
        tests: in the order in which they ran.
        problems: why the session does not pass, whatever they say.
        approval: the option by which the run writes goldens; "" for one that compares.
        artifacts: the session's folder of artifacts, as a reader of the summary finds it; None without one.
    """
    line = summary_line([test.result for test in tests], approval=approval) if tests else _NONE
    failing, good = [test for test in tests if not test.good], [test for test in tests if test.good]
    sign = "❌ " if failing or problems else "✅ " if tests else ""
    parts = [f"### {sign}{_text(line)}"]
    parts += ["\n".join(f"- {code(problem)}" for problem in problems)] if problems else []
    if failing:
        header = ("test", "status", "source", "first change", "tensors")
        parts.append(_table(header, map(_failing_row, failing[:_FAILING]), len(failing) - _FAILING))
        parts += [_details(test, artifacts) for test in failing[:_FAILING]]
    if good:
        rows = _table(("test", "status", "tensors"), map(_good_row, good[:_GOOD]), len(good) - _GOOD)
        parts.append(_folded(f"{len(good)} good", rows))
    return "\n\n".join(parts) + "\n"


def _failing_row(test: Judged) -> tuple[str, ...]:
    result = test.result
    first = result.get("first_change") or ""
    return test.test, test.status, sources_of(result), str(first), counts_of(result)


def _good_row(test: Judged) -> tuple[str, ...]:
    return test.test, test.status, counts_of(test.result)


def _table(header: Sequence[str], rows: Iterable[Sequence[str]], left: int) -> str:
    lines = [f"| {' | '.join(header)} |", f"|{' --- |' * len(header)}"]
    lines += [f"| {' | '.join(map(code, row))} |" for row in rows]
    return "\n".join([*lines, *([f"\nand {left} more"] if left > 0 else [])])


def _details(test: Judged, artifacts: str | None) -> str:
    result = test.result
    told = [str(result["headline"])] if result.get("headline") else []
    told += [f"report: {_report(result, artifacts)}"] if result.get("details") else []
    told += [str(result["way_out"])] if result.get("way_out") else []
    told += [f"note: {note}" for note in result.get("notes", [])[:5]]
    return _folded(_text(test.test), "\n".join(f"- {code(line)}" for line in told)) if told else ""


def _report(result: Mapping[str, Any], artifacts: str | None) -> PurePath:
    """Return where the report is found: behind a job only what was gathered is left."""
    details = PurePath(result["details"])
    if artifacts is None or not result.get("artifact"):
        return details
    return PurePath(artifacts, result["artifact"], details.name)


def _folded(title: str, body: str) -> str:
    return f"<details><summary>{title}</summary>\n\n{body}\n\n</details>"


def code(text: str) -> str:
    """Return text as code, in a table too: in backticks where nothing can end them, else as entities."""
    text = plain(text)[:_WIDTH]
    if not text.strip():
        return ""
    return f"`{text}`" if _HARMLESS.match(text) else f"<code>{_text(text)}</code>"


def _text(text: str) -> str:
    """Return text of which each sign that could be markup, a link or a mention is an entity."""
    return "".join(
        sign if sign.isalnum() or sign in " -,()%" else f"&#{ord(sign)};" for sign in plain(text)[:_WIDTH]
    )
