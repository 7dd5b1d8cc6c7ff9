"""``--npudump-expect``: a session that compared fewer tests than it was to does not pass."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from pytest_npudump.errors import RequestError
from pytest_npudump.language.excerpt import first_of
from pytest_npudump.language.translation import gettext as _
from pytest_npudump.regression.outcome import DIED, NOT_COMPARED

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping
    from pathlib import Path

_OTHER_LINE = re.compile(r"npudump: |(no tests|\d+(/\d+)? tests?) (collected|ran)\b|=+ .* =+$")
"""What ``pytest --collect-only -q`` prints besides the names of the tests."""
_MOST = 1 << 24
"""Bytes of a list; 100,000 names have less than half of it."""


def read_expected(given: str, root: Path) -> int | tuple[str, ...]:
    """Return how many marked tests a session is to compare, or which.

    Args:
        given: a number, or a file with one test a line as a user types it on pytest's command line: what
            ``pytest --collect-only -q -m npu_dump`` prints is one. Empty lines and those that begin with
            ``#`` do not count.
        root: the folder that the file is relative to.

    Raises:
        RequestError: it is neither.
    """
    if given.isdecimal():
        if not int(given):
            raise RequestError("--npudump-expect is 0, expected a number of tests, 1 or more, or a file")
        return int(given)
    path = root / given
    try:
        with path.open("rb") as file:
            content = file.read(_MOST)
            text = content.decode("utf-8")
    except (OSError, ValueError) as error:
        raise RequestError(
            f"--npudump-expect is {given!r}: neither a number of tests nor a file that can be read as a list "
            f"of tests ({error}); make one with: pytest --collect-only -q -m npu_dump > {given}"
        ) from None
    tests = []
    for number, line in enumerate(map(str.strip, text.splitlines()), 1):
        if "::" in line and not line.startswith("#"):
            tests.append(line)
        elif line and not line.startswith("#") and not _OTHER_LINE.match(line):
            raise RequestError(
                f"--npudump-expect: {path}, line {number} is {line[:80]!r}, expected a test such as "
                f"test_model.py::test_classifier"
            )
    if not tests:
        raise RequestError(f"--npudump-expect: {path} names no test")
    return tuple(dict.fromkeys(tests))


def missing_tests(expected: int | Collection[str], results: Mapping[str, Mapping[str, Any]]) -> str:
    """Return what a session lacks, in words; "" where it lacks nothing.

    Args:
        expected: as :func:`read_expected` returns it.
        results: of the session's marked tests by node id.
    """
    judged = {
        node: result for node, result in results.items() if result["status"] not in {NOT_COMPARED, DIED}
    }
    if isinstance(expected, int):
        if len(judged) >= expected:
            return ""
        return _("--npudump-expect={expected}: {count} marked tests were compared").format(
            expected=expected, count=len(judged)
        )
    names = {*judged, *(str(result.get("test", "")) for result in judged.values())}
    missing = [test for test in expected if test not in names]
    if not missing:
        return ""
    return _("--npudump-expect: {count} of {expected} tests were not compared: {missing}").format(
        count=len(missing), expected=len(expected), missing=first_of(missing)
    )
