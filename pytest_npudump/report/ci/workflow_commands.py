"""Annotations of GitHub Actions: lines of a log that its runner shows beside the marker of a failing test.

https://docs.github.com/actions/reference/workflows-and-actions/workflow-commands
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_npudump.language.excerpt import cut
from pytest_npudump.report.ci.judged import sources_of
from pytest_npudump.report.verdicts import plain

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pytest_npudump.report.ci.judged import Judged

MOST = 10
"""Annotations of one kind that GitHub shows of a step."""
_WIDTH = 1000


def error_commands(tests: Sequence[Judged], problems: Sequence[str] = ()) -> list[str]:
    """Return a command for each problem of the session, and for each of the first failing tests."""
    told = [f"::error title=npudump::{_data([problem])}" for problem in problems[:MOST]]
    failing = [test for test in tests if not test.good]
    return [*told, *map(_command, failing[: MOST - len(told)])]


def _command(test: Judged) -> str:
    title = f"npudump: {test.status}"
    what = str(test.result.get("headline") or f"{test.test}: {test.status}")
    source = sources_of(test.result)
    lines = [what, f"source: {source}"] if source and source not in what else [what]
    place = f"file={_property(test.file)},line={test.line},title={_property(title)}"
    return f"::error {place}::{_data(lines)}"


def _data(lines: Sequence[str]) -> str:
    """Return text that ends neither the line nor the command, as the runner's own toolkit escapes it."""
    return "%0A".join(plain(cut(line, _WIDTH)).replace("%", "%25") for line in lines)


def _property(text: str) -> str:
    return _data([text]).replace(":", "%3A").replace(",", "%2C")
