"""Annotations of GitHub Actions, read as its runner reads a log."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from pytest_npudump.report.ci import MOST, error_commands

if TYPE_CHECKING:
    from pytest_npudump.report.ci import Judged

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


def test_no_name_ends_a_command_or_begins_one(hostile: Judged) -> None:
    (line,) = error_commands([hostile])
    assert len(line.splitlines()) == 1
    name, properties, data = read(line)
    assert name == "error"
    assert properties == {"file": "test_it.py", "line": "7", "title": "npudump: failed"}
    assert data.startswith("npudump: ")
    assert data.count("\n") <= 1


def test_good_tests_have_none_and_the_first_failing_ones_have(hostile: Judged, good: Judged) -> None:
    assert error_commands([good]) == []
    assert len(error_commands([hostile] * 25)) == MOST
