"""Why a session does not pass, whatever its tests say."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from pytest_npudump.language.excerpt import first_of
from pytest_npudump.language.translation import gettext as _

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence


def gap_line(expected: int | tuple[str, ...], results: Sequence[tuple[str, Mapping[str, Any]]]) -> str:
    """Return which of the expected tests were not compared; "" where nothing is expected, or missing.

    Args:
        expected: as ``read_expected`` returns it.
        results: of the session's marked tests, each with its node id.
    """
    if not expected:
        return ""
    from pytest_npudump.results.expected_tests import missing_tests  # noqa: PLC0415 - only where asked for

    missing = missing_tests(expected, results)
    return _("{missing}: the run does not pass").format(missing=missing) if missing else ""


def ended_line(test: str) -> str:
    """Return that the session was ended in a test, which was not compared; "" where there is no such test."""
    if not test:
        return ""
    return _("the session ended in {test}, which was not compared: the run does not pass").format(test=test)


def session_problems(told: Iterable[str], crashed: Sequence[str], session: pytest.Session) -> list[str]:
    """Return what there is, where a worker died, and the exit code of a session that did not come to its end.

    Args:
        told: problems, or "".
        crashed: names of tests in which a worker of xdist died: of these there is no result.
        session: which has ended.
    """
    problems = [*filter(None, told)]
    if crashed:
        problems.append(f"a worker died in {first_of(crashed)}: nothing is known of that test")
    if session.exitstatus not in {pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED}:
        problems.append(f"pytest ended with exit code {int(session.exitstatus)}")
    return problems
