"""The tests that are to be compared, and those of them that were not: what has gone must not pass a gate."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from pytest_npudump.errors import RequestError, said
from pytest_npudump.language.text import first_of, typed
from pytest_npudump.language.translation import gettext as _, ngettext
from pytest_npudump.regression.result import FAILED, PASSED

COMPARED = frozenset({PASSED, FAILED})
"""Statuses of a compared test: one that was recorded was not."""
_OTHER_LINE = re.compile(r"npudump: |(no tests|\d+(/\d+)? tests?) (collected|ran)\b|=+ .* =+$")
"""Lines of ``pytest --collect-only -q`` besides the names of the tests."""
_WARNINGS, _WARNINGS_END = re.compile(r"=+ warnings\b.*=+$"), "-- Docs: "
_COLOUR = re.compile(r"\x1b\[[0-9;]*m")
_MOST = 1 << 24
"""Bytes of a list; 100,000 names have less than half of it."""


def read_expected(given: str, root: Path, option: str = "npudump_expect") -> int | tuple[str, ...]:
    """Read the number, or the names, of marked tests to be compared.

    Args:
        given: a number, or a file with one test a line as a user types it on pytest's command line: what
            ``pytest --collect-only -q -m npu_dump`` prints is one. Empty lines and those that begin with
            ``#`` do not count.
        root: the folder that the file is relative to.
        option: that it was given with.

    Raises:
        RequestError: it is neither.
    """
    if given.isdecimal() and int(given):
        return int(given)
    if given.isdecimal() or not given.strip():
        raise RequestError(f"{option} is {given!r}, expected a number of tests, 1 or more, or a file")
    path = root / given
    try:
        with path.open("rb") as file:
            text = file.read(_MOST).decode("utf-8")
    except (OSError, ValueError) as error:
        typed_file = typed(given)
        raise RequestError(
            said(
                "{option} is {given!r}: neither a number of tests nor a file that can be read as a "
                "list of tests ({error}); make one with: pytest --collect-only -q -m npu_dump > "
                "{path}",
                option=option,
                given=given,
                error=str(error),
                path=typed_file,
            )
        ) from None
    tests = []
    for number, line in _lines(text):
        if line.startswith("::"):
            raise RequestError(
                f"{option}: {path}, line {number} is {line[:80]!r}, as pytest calls any test outside of "
                "its rootdir: write the file before it, such as ../tests/test_model.py::test"
            )
        if "::" in line:
            tests.append(line)
        elif not _OTHER_LINE.match(line):
            raise RequestError(
                f"{option}: {path}, line {number} is {line[:80]!r}, expected a test such as "
                "test_model.py::test_classifier; where pytest's own options have -v, pytest "
                "--collect-only takes -qq"
            )
    if not tests:
        raise RequestError(said("{option}: {path} names no test", option=option, path=path))
    return tuple(dict.fromkeys(tests))


def _lines(text: str) -> Iterator[tuple[int, str]]:
    """Yield the lines with content and their numbers, without pytest's warnings."""
    in_warnings = False
    for number, line in enumerate(map(str.strip, _COLOUR.sub("", text).splitlines()), 1):
        if in_warnings:
            in_warnings = not line.startswith(_WARNINGS_END)
        elif _WARNINGS.match(line):
            in_warnings = True
        elif line and not line.startswith("#"):
            yield number, line


def missing_tests(
    expected: int | Collection[str],
    results: Sequence[tuple[str, Mapping[str, Any]]],
    option: str = "npudump_expect",
) -> str:
    """Describe tests that were not compared; "" where none is missing.

    Args:
        expected: as :func:`read_expected` returns it.
        results: of marked tests, each with its node id. Those that share a golden, as the repetitions of a
            test do, count as one; of those that share a name each has to be compared.
        option: that it was given with.
    """
    judged = [(node, result) for node, result in results if result["status"] in COMPARED]
    if isinstance(expected, int):
        count = len({result.get("golden") or node for node, result in judged})
        if count >= expected:
            return ""
        return ngettext(
            "{option}={expected}: {count} marked test was compared",
            "{option}={expected}: {count} marked tests were compared",
            count,
        ).format(option=option, expected=expected, count=count)
    others = [(node, result) for node, result in results if result["status"] not in COMPARED]
    compared, not_compared = (
        {name for node, result in some for name in (node, str(result.get("test", node)))}
        for some in (judged, others)
    )
    missing = [test for test in expected if test not in compared - not_compared]
    if not missing:
        return ""
    return _("{option}: {count} of {expected} tests were not compared: {missing}").format(
        option=option, count=len(missing), expected=len(expected), missing=first_of(missing)
    )
