"""Terminal output of marked tests besides that of ``reporter`` in every session.

Progress while a large dump is read, failures in another language than English, and the notes of tests that
passed.
"""

from __future__ import annotations

import os
import re
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from itertools import takewhile
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Any

import pytest

from pytest_npudump.errors import said
from pytest_npudump.language import ENGLISH, chosen
from pytest_npudump.language.text import cut, hung, inert, terminal_columns, width
from pytest_npudump.language.translation import gettext as _, is_english, ngettext, speaking, spoken
from pytest_npudump.plugin._compat import shown_test, summary_columns
from pytest_npudump.regression.result import GOOD, Result, is_not_dumped, recorded_with_tensors
from pytest_npudump.report.verdicts import plain

if TYPE_CHECKING:
    from pytest_npudump.report.files import ReportFiles


def fitted(reporter: Any, line: str) -> list[str]:
    """Return a line as pytest's terminal is to show it: several where that is narrow, one in a log.

    One without an absolute path is as wide as ``COLUMNS`` says there, too.
    """
    fits = getattr(reporter, "isatty", False)
    if not fits and "COLUMNS" in os.environ:  # names of layers begin as paths do
        fits = not any(Path("/", top).exists() for top in re.findall(r" /([^\s/]+)", line))
    return hung(inert(line), terminal_columns() if fits else None)


PATIENCE = 2.0
"""Seconds that work may take before the line appears."""
SILENCE = 60.0
"""Seconds between two lines where there is no terminal, and before the first."""


def progress_of(config: pytest.Config) -> Progress | None:
    """Return the progress, where pytest prints; None in a process that prints nothing."""
    reporter: Any = config.pluginmanager.get_plugin("terminalreporter")
    if reporter is None or reporter.verbosity < -1 or hasattr(config, "workerinput"):
        return None
    return Progress(reporter, str(config.getini("npudump_lang")))


def announce_run(item: pytest.Item, number: int, before: Sequence[pytest.TestReport]) -> None:
    """Announce that a test runs again, where it is likely to take long.

    Args:
        item: the test.
        number: of the run that begins, the first being 1.
        before: the reports of the run before, which took as long as this one will.
    """
    if (shown := progress_of(item.config)) is not None:
        what = said("run {number} of {test}", number=number, test=item.nodeid)
        shown.announce(what, sum(report.duration for report in before))


class Progress:
    """Progress of one test, shown once it has taken long."""

    def __init__(self, reporter: Any, language: str) -> None:
        self._reporter = reporter
        self._language = language
        self._what = ""
        self._next = 0.0
        self._shown = False

    def __call__(self, what: str, done: int, total: int) -> None:
        """Take note that ``done`` of ``total`` steps of ``what`` are done; 0 of them: it begins."""
        now = monotonic()
        if what != self._what:
            self._what = what
            self._next = now + (PATIENCE if self._reporter.isatty else SILENCE)
        if now >= self._next:
            self._show(said("npudump: {what}, {done} of {total}", what=what, done=done, total=total))
            self._next = now if self._reporter.isatty else now + SILENCE
        if done == total:
            self.end()

    def announce(self, what: str, seconds: float) -> None:
        """Announce work without steps that is likely to take long, as earlier work of ``seconds`` did."""
        if seconds >= (PATIENCE if self._reporter.isatty else SILENCE):
            self._show(said("npudump: {what}", what=what))
            self.end()

    def end(self) -> None:
        """Leave the line to what pytest prints next."""
        if self._shown:
            self._reporter.line("")
        self._what, self._shown = "", False

    def _show(self, text: str) -> None:
        with speaking(self._language):
            text = spoken(text)
        if not self._reporter.isatty:
            self._reporter.ensure_newline()
            self._reporter.write_line(text)
            return
        if not self._shown:
            self._reporter.ensure_newline()
            self._shown = True
        self._reporter.rewrite(cut(text, terminal_columns() - 1), erase=True)


def spoken_failure(
    result: Result, details: ReportFiles, english: str, language: str, **asked: bool
) -> dict[str, Any]:
    """Return the terminal's text in place of a failure in English; nothing where that is the language.

    Args:
        result: of the test.
        details: the files of its report.
        english: the text that the test's report has.
        language: one of :data:`~pytest_npudump.language.translation.LANGUAGES`.
        asked: as for :func:`~pytest_npudump.report.terminal.failure_lines`.
    """
    if chosen(language) == ENGLISH:
        return {}
    from pytest_npudump.report.terminal import failure_lines  # noqa: PLC0415 - for failures

    with speaking(language):
        text, short = failure_lines(result, details, **asked)
    return {"spoken": {"lines": len(english.splitlines()), "text": text, "short": short}}


class _Failure:
    """A failure as pytest's terminal prints it.

    Attributes:
        message: the same as a text.
        reprcrash: where it is, and its first line, for the short summary and ``--tb=line``.
    """

    def __init__(self, lines: list[str], crash: Any) -> None:
        self._lines = lines
        self.message = "\n".join(lines)
        self.reprcrash = crash

    def __str__(self) -> str:
        return self.message

    def toterminal(self, writer: Any) -> None:
        for line in self._lines:
            writer.line(line)


SPOKEN = "npudump_spoken"
"""Attribute of a report that has no result, with its failure in another language, a line each."""


def attach_spoken(report: pytest.CollectReport | pytest.TestReport, text: str, language: str) -> None:
    """Attach to a report its failure in another language, where one is wanted.

    Args:
        report: of a phase, or of a collection that was refused.
        text: of the failure.
        language: one of :data:`~pytest_npudump.language.translation.LANGUAGES`.
    """
    with speaking(language):
        if not is_english() and (told := str.__str__(spoken(text))) != text:
            vars(report)[SPOKEN] = told.splitlines()


class Speaker:
    """Translation of our failures, attached in the process that raised them."""

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


def speak(report: pytest.CollectReport | pytest.TestReport, lines: list[str], reporter: Any) -> None:
    """Replace the failure of a report, once every other reader of the report has had it.

    Args:
        report: of a failure.
        lines: what is shown; none for the report's own, or what is attached to it in another language, as
            wide as the terminal is.
        reporter: pytest's own.
    """
    known = report.longreprtext.splitlines()
    plain_lines = vars(report).get(SPOKEN) or known
    lines = lines or [one for line in plain_lines for one in fitted(reporter, line)]
    if lines == known:
        return
    crash = getattr(report.longrepr, "reprcrash", None)
    if crash is not None:
        crash = type(crash)(crash.path, crash.lineno, "\n".join(lines))
    failure: Any = "\n".join(lines) if crash is None else _Failure(lines, crash)
    report.longrepr = failure


_OURS = "npudump: "
"""Begins a failure; below it hangs what follows in a narrow terminal."""


def cause_in_summary(report: pytest.CollectReport | pytest.TestReport, reporter: Any) -> None:
    """Have the line of pytest's short summary begin with the cause, as long as there is room for.

    In colours pytest takes its ``FAILED`` and the test to have no width: there it is cut here, to the end of
    the line of the terminal that a longer test ends in. Else pytest shows no cause behind a longer test.

    Args:
        report: of a failure that is ours.
        reporter: pytest's own.
    """
    failure: Any = report.longrepr
    crash = getattr(failure, "reprcrash", None)
    told = str(failure if crash is None else crash.message)
    first, *others = told.removeprefix("Failed: ").removeprefix(_OURS).splitlines()
    for line in takewhile(lambda line: line.startswith(" " * len(_OURS)), others):
        blank = "" if _JOINED.search(first[-1:] + line.strip()[:1]) else " "
        first += blank + line.strip()
    columns, coloured = summary_columns(reporter)
    of_ci = {"CI", "BUILD_NUMBER"} & os.environ.keys()  # as pytest decides
    if not of_ci and reporter.verbosity < _WHOLE and reporter.config.option.tbstyle != "line":
        room = columns - width(f"FAILED {shown_test(reporter.config, report)} - ")
        named = bool(vars(report).get("npudump", {}).get("first"))
        first = _shortened(first, room % columns if coloured else room, named=named)
    if crash is None:
        report.longrepr = _Failure(str(failure).splitlines(), _Failure([first], None))  # type: ignore[assignment]
    else:
        crash.message = first


def _shortened(cause: str, room: int, *, named: bool) -> str:
    """Return a cause in its room: one that names a layer without what fits not, any other cut."""
    forms = [cause]
    if named:
        name, *behind = _NAMED.split(_CLAUSE.split(cause)[0], maxsplit=1)
        what = "".join([*behind[:1], *(_PHRASE.split(words)[0] for words in behind[1:])])
        forms += ["".join((name, *behind)), name + what]
        while (shorter := _UPSTREAM.sub("", name)) != name:
            name = shorter
            forms.append(name + what)
    shortest = forms[-1]
    forms += [cut(shortest, most) for most in range(len(shortest), _LEAST - 1, -1)]  # some signs are two wide
    return next((one for one in forms if width(one) <= room), forms[-1])


_CLAUSE, _NAMED, _PHRASE = re.compile(r"; |；"), re.compile(r"(: |：)"), re.compile(r", |，| \(|（")
"""What separates sentences of a cause, its layer and what is wrong there, and what is said of that."""
_UPSTREAM = re.compile(r"(?:^|(?<=, )|(?<=，))[^\s#/，]*/(?=[^\s/])")
"""The first part of a layer's name, where there are others."""
_WHOLE, _LEAST = 2, 4
"""The verbosity of whole lines in pytest's short summary, and the characters of a cause that is cut."""
_JOINED = re.compile(r"[^\x00-\x7f]{2}|[^\x00-\x7f\w]")
"""What a line of Chinese may be broken between without a blank: two letters of it, or a sign and anything."""
_NOTES = 5
"""Notes shown without ``-v``."""
NAMES = 2
"""Tests that a note names without ``-v``."""
WIDTH = 300
"""Characters of a note, and of a test's name, without ``-v``."""


def note_lines(results: Iterable[Mapping[str, Any]], *, verbose: bool) -> Iterator[str]:
    """Yield the notes of passed tests, each once with its tests: some and how many more, or everything."""
    found: dict[str, list[str]] = {}
    for result in results:
        for text in result.get("notes", ()) if result["status"] in GOOD else ():
            if not is_not_dumped(text):  # which are counted
                found.setdefault(text, []).append(str(result["test"]))
    ordered = sorted(found.items(), key=lambda one: one[0] == recorded_with_tensors())  # which is no fault
    shown = ordered if verbose else ordered[:_NOTES]
    for text, tests in shown:
        names = tests if verbose else [cut(test, WIDTH) for test in tests[:NAMES]]
        left = len(tests) - len(names)
        more = _(" and {left} more").format(left=left) if left else ""
        whose = names[0]
        if len(tests) > 1:
            words = _("{count} tests ({names}{more})")
            whose = words.format(count=len(tests), names=", ".join(names), more=more)
        told = text if verbose else cut(text, WIDTH)
        yield plain(said("{word}: {whose}: {text}", word=_("note"), whose=whose, text=told))
    if left := len(found) - len(shown):
        words = ngettext("{left} more note (-v lists all)", "{left} more notes (-v lists all)", left)
        yield words.format(left=left)
