"""A session's results as the services that run tests show them: JUnit, summaries, annotations, code quality.

What they show may come from a model's file: names are kept from being taken for a service's own syntax.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any

from pytest_npudump.language.text import cut
from pytest_npudump.regression.result import GOOD
from pytest_npudump.report.result_json import small
from pytest_npudump.report.summary import remarks, summary_line
from pytest_npudump.report.verdicts import plain

_COUNTS = (
    ("fail", "out of tolerance"),
    ("missing", "missing"),
    ("extra", "extra"),
    ("changed", "changed within tolerance"),
)


@dataclass(frozen=True, slots=True)
class JudgedTest:
    """Test as its last report has it.

    Attributes:
        result: as :func:`pytest_npudump.report.result_json.result_json` makes it.
        failed: whether pytest counts the test as failed.
        file: the test's file, relative to the root of the repository where it lies in one, with ``/``.
        line: of the marker, from 1.
    """

    result: Mapping[str, Any]
    failed: bool
    file: str
    line: int

    @property
    def test(self) -> str:
        """The test as a user types it."""
        return str(self.result.get("test", ""))

    @property
    def status(self) -> str:
        """Status of the test."""
        return str(self.result["status"])

    @property
    def good(self) -> bool:
        """Return whether it passed its comparison, and the test with it."""
        return not self.failed and self.status in GOOD


def sources_of(result: Mapping[str, Any]) -> str:
    """Return the sources, or else the first that fails; "" where none does."""
    sources = result.get("sources")
    if not sources or not sources["first"]:
        return str(result.get("first") or result.get("operator") or "")
    names = []
    for source in sources["first"]:
        least = "at least " * (1 < source["explains"] < result.get("fail", 0))  # not all edges need be known
        change = f"{source['altered']}, upstream of " if source.get("altered") else ""
        count = f" ({least}{source['explains'] - 1} downstream)" * (source["explains"] > 1)
        names.append(f"{change}{source['key']}{count}")
    left = sources["in_all"] - len(names)
    return ", ".join(names) + (f" and {left} more" if left > 0 else "")


def counts_of(result: Mapping[str, Any]) -> str:
    """Return ``6 of 6 compared, 1 out of tolerance``; "" where nothing was compared."""
    if "expected" not in result:
        return ""
    told = [f"{result[name]} {words}" for name, words in _COUNTS if result.get(name)]
    return ", ".join([f"{result['compared']} of {result['expected']} compared", *told])


_FAILING, _GOOD, _WIDTH = 50, 200, 500
"""Rows of either table, and characters of a cell: GitHub refuses a summary of more than 1 MiB."""
_NONE = "npudump: no marked test has run"
_HARMLESS = re.compile(r"[^`|\\<>\x00-\x1f\x7f-\x9f\u2028\u2029]+\Z")


def markdown_summary(
    tests: Sequence[JudgedTest], problems: Sequence[str] = (), *, approval: str = "", root: Path | None = None
) -> str:
    """Return the summary of a session, whose names no reader of Markdown or HTML takes for markup.

    Args:
        tests: in the order in which they ran.
        problems: why the session does not pass, whatever they say.
        approval: the option by which the run writes goldens; "" for one that compares.
        root: what paths are relative to, as far as they lie below it: on another machine they do not.
    """
    line = summary_line([test.result for test in tests], approval=approval) if tests else _NONE
    failing, good = [test for test in tests if not test.good], [test for test in tests if test.good]
    sign = "❌ " if failing or problems else "✅ " if tests else ""
    parts = [f"### {sign}{_text(line)}"]
    told = [*problems, *remarks([test.result for test in tests])]
    parts += ["\n".join(f"- {code(words)}" for words in told)] if told else []
    if failing:
        header = ("test", "status", "source", "first change", "tensors")
        rows = [
            (one.test, one.status, sources_of(one.result), one.result.get("first_change") or "", counts)
            for one in failing[:_FAILING]
            for counts in (counts_of(one.result),)
        ]
        parts.append(_table(header, rows, len(failing) - _FAILING))
        parts += [_details(test, root) for test in failing[:_FAILING]]
    if good:
        passed = [(one.test, one.status, counts_of(one.result)) for one in good[:_GOOD]]
        body = _table(("test", "status", "tensors"), passed, len(good) - _GOOD)
        parts.append(_folded(f"{len(good)} passed", body))
    return "\n\n".join(parts) + "\n"


def _table(header: Sequence[str], rows: Iterable[Sequence[str]], left: int) -> str:
    lines = [f"| {' | '.join(header)} |", f"|{' --- |' * len(header)}"]
    lines += [f"| {' | '.join(map(code, row))} |" for row in rows]
    return "\n".join([*lines, *([f"\nand {left} more"] if left > 0 else [])])


def _details(test: JudgedTest, root: Path | None) -> str:
    result = test.result
    told = [str(result["headline"])] if result.get("headline") else []
    told += [f"report: {_report(Path(result['details']), root)}"] if result.get("details") else []
    told += [str(result["way_out"])] if result.get("way_out") else []
    told += [f"note: {note}" for note in result.get("notes", [])[:5]]
    return _folded(_text(test.test), "\n".join(f"- {code(line)}" for line in told)) if told else ""


def _report(details: Path, root: Path | None) -> Path:
    return details.relative_to(root) if root is not None and details.is_relative_to(root) else details


def _folded(title: str, body: str) -> str:
    return f"<details><summary>{title}</summary>\n\n{body}\n\n</details>"


def code(text: str) -> str:
    """Return text as code, in a table too: in backticks where nothing can end them, else as entities."""
    text = cut(plain(text), _WIDTH)
    if not text.strip():
        return ""
    return f"`{text}`" if _HARMLESS.match(text) else f"<code>{_text(text)}</code>"


def _text(text: str) -> str:
    """Return text of which each sign that could be markup, a link or a mention is an entity."""
    return "".join(
        sign if sign.isalnum() or sign in " -,()%" else f"&#{ord(sign)};" for sign in cut(plain(text), _WIDTH)
    )


MOST = 10
"""Annotations of one kind that GitHub shows of a step."""
_ANNOTATION = 1000


def error_commands(tests: Sequence[JudgedTest], problems: Sequence[str] = ()) -> list[str]:
    """Return a command for each problem of the session, and for each of the first failing tests."""
    told = [f"::error title=npudump::{_data([problem])}" for problem in problems[:MOST]]
    failing = [test for test in tests if not test.good]
    return [*told, *map(_command, failing[: MOST - len(told)])]


def _command(test: JudgedTest) -> str:
    title = f"npudump: {test.status}"
    what = str(test.result.get("headline") or f"{test.test}: {test.status}")
    source = sources_of(test.result)
    lines = [what, f"source: {source}"] if source and source not in what else [what]
    place = f"file={_property(test.file)},line={test.line},title={_property(title)}"
    return f"::error {place}::{_data(lines)}"


def _data(lines: Sequence[str]) -> str:
    """Return text that ends neither the line nor the command, as the runner's own toolkit escapes it."""
    return "%0A".join(plain(cut(line, _ANNOTATION)).replace("%", "%25") for line in lines)


def _property(text: str) -> str:
    return _data([text]).replace(":", "%3A").replace(",", "%2C")


_CHECK = "pytest-npudump"
_DESCRIPTION = 1000


def code_quality(tests: Sequence[JudgedTest], before: bytes = b"") -> bytes:
    """Return the report of a job of several sessions, sorted by place.

    Args:
        tests: of this session.
        before: the report that earlier sessions of the job left: what it says of other files is kept, and
            anything that is no such report is replaced.
    """
    files = {test.file for test in tests}
    kept = [entry for entry in _entries(before) if entry["location"]["path"] not in files]
    entries = kept + [_entry(test) for test in tests if not test.good]
    entries.sort(key=lambda entry: (entry["location"]["path"], entry["location"]["lines"]["begin"]))
    return json.dumps(entries, indent=1).encode() + b"\n"


def _entry(test: JudgedTest) -> dict[str, Any]:
    source = sources_of(test.result)
    what = str(test.result.get("headline") or f"npudump: {test.status}")
    # Without numbers: the same fault in the next run is the same entry to GitLab.
    name = "\n".join((test.test, test.status, str(test.result.get("first") or "")))
    return {
        "description": plain(
            cut(f"{test.test}: {what}" + (f"; source: {source}" if source else ""), _DESCRIPTION)
        ),
        "check_name": _CHECK,
        "fingerprint": sha256(name.encode("utf-8", "surrogatepass")).hexdigest(),
        "severity": "major",
        "location": {"path": test.file, "lines": {"begin": test.line}},
    }


def _entries(text: bytes) -> list[dict[str, Any]]:
    try:
        entries = json.loads(text or b"[]")
        ours = [entry for entry in entries if entry["check_name"] == _CHECK]
        return [entry for entry in ours if entry["location"]["path"] and entry["location"]["lines"]["begin"]]
    except (ValueError, TypeError, KeyError, RecursionError):
        return []


WHOLE = "npudump"
"""The property that holds a result as JSON."""
_MOST = 300


def junit_properties(result: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return a test's properties: :data:`WHOLE`, whose texts are bounded, and those with a value.

    There are at most 8 of these, each of at most 300 characters.
    """
    shown = {
        "status": result["status"],
        "source": sources_of(result),
        "first_change": result.get("first_change"),
        "tensors": counts_of(result),
        "bounds": result.get("bounds"),
        "golden": result.get("golden"),
        "report": result.get("details"),
        "artifact": result.get("artifact"),
    }
    told = [(f"{WHOLE}.{name}", cut(plain(str(value)), _MOST)) for name, value in shown.items() if value]
    return [(WHOLE, json.dumps(small(result), separators=(",", ":"))), *told]


def is_ours(name: str) -> bool:
    """Return whether a property is one of :func:`junit_properties`."""
    return name == WHOLE or name.startswith(f"{WHOLE}.")
