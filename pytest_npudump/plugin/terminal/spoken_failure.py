"""A failure in the language of who reads the terminal; what programs read of the same report is English."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from pytest_npudump.language.translation import ENGLISH, chosen, is_english, speaking, spoken
from pytest_npudump.report.terminal import failure_text, short_lines

if TYPE_CHECKING:
    from collections.abc import Generator, Mapping

    from pytest_npudump.regression.result import Result
    from pytest_npudump.report.files import ReportFiles


SPOKEN = "spoken"
"""Key of a test's result under which its failure in another language is."""


def spoken_failure(
    result: Result, details: ReportFiles, english: str, language: str, *, verbose: bool
) -> dict[str, Any]:
    """Return what the terminal is to show in place of a failure in English; nothing where that is spoken.

    Args:
        result: of the test.
        details: the files of its report.
        english: the text that the test's report has.
        language: one of :data:`~pytest_npudump.language.translation.LANGUAGES`.
        verbose: whether to tell everything.
    """
    if chosen(language) == ENGLISH:
        return {}
    with speaking(language):
        text = failure_text(result, details, verbose=verbose)
        short = short_lines(result)
    return {SPOKEN: {"lines": len(english.splitlines()), "text": text.splitlines(), "short": short}}


class _Failure:
    """A failure as pytest's terminal prints it.

    Attributes:
        reprcrash: where it is, and its first line, for the short summary.
    """

    def __init__(self, lines: list[str], crash: Any) -> None:
        self._lines = lines
        self.reprcrash = type(crash)(crash.path, crash.lineno, lines[0])

    def __str__(self) -> str:
        """Return all lines."""
        return "\n".join(self._lines)

    def toterminal(self, writer: Any) -> None:
        """Write all lines."""
        for line in self._lines:
            writer.line(line)


def speak(report: pytest.TestReport, spoken: Mapping[str, Any], *, short: bool) -> None:
    """Replace the failure of a report, once every other reader of the report has had it.

    Args:
        report: of the test's call.
        spoken: as :func:`spoken_failure` returned it.
        short: whether the report has only the first lines of its failure.
    """
    added = report.longreprtext.splitlines()[int(spoken["lines"]) :]
    _replace(report, [*spoken["short"]] if short else [*spoken["text"], *added])


_PLAIN = "npudump_spoken"
"""Attribute of a report that has no result, with its failure in another language, a line each."""


def attach_spoken(report: pytest.CollectReport | pytest.TestReport, text: str, language: str) -> None:
    """Attach to a report what its failure says in another language, where that is to be spoken.

    Args:
        report: of a phase, or of a collection that was refused.
        text: of the failure.
        language: one of :data:`~pytest_npudump.language.translation.LANGUAGES`.
    """
    with speaking(language):
        if not is_english() and (told := str.__str__(spoken(text))) != text:
            vars(report)[_PLAIN] = told.splitlines()


class Speaker:
    """Attaches to failures of ours what they say in another language, in the process that raised them."""

    def __init__(self, language: str) -> None:
        self._language = language

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_makereport(
        self, call: pytest.CallInfo[None]
    ) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        """Attach it where the failure was raised with a text that can be spoken."""
        report = yield
        error = call.excinfo.value if call.excinfo is not None else None
        if isinstance(error, pytest.fail.Exception) and error.msg:
            attach_spoken(report, error.msg, self._language)
        return report


def speak_plainly(report: pytest.CollectReport | pytest.TestReport) -> None:
    """Replace a failure that has no result by what is attached to it in another language."""
    lines: list[str] = vars(report).get(_PLAIN, [])
    if lines:
        _replace(report, lines)


def _replace(report: pytest.CollectReport | pytest.TestReport, lines: list[str]) -> None:
    crash = getattr(report.longrepr, "reprcrash", None)
    failure: Any = "\n".join(lines) if crash is None else _Failure(lines, crash)
    report.longrepr = failure
