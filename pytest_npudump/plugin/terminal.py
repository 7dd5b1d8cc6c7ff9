"""Terminal output of marked tests besides that of ``reporter`` in every session.

Progress while a large dump is read, failures in another language than English, and the notes of tests that
passed, with which of them are new.
"""

from __future__ import annotations

import os
import re
from collections.abc import Generator, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from itertools import takewhile
from pathlib import Path
from time import monotonic
from typing import Any

import pytest

from pytest_npudump.errors import said
from pytest_npudump.language import ENGLISH, chosen
from pytest_npudump.language.text import cut, hung, inert, terminal_columns
from pytest_npudump.language.translation import gettext as _, is_english, ngettext, speaking, spoken
from pytest_npudump.regression.result import GOOD, Result, is_not_dumped
from pytest_npudump.report.files import ReportFiles
from pytest_npudump.report.verdicts import plain, shown


def fitted(reporter: Any, line: str, *, note: bool = False) -> list[str]:
    """Return a line as pytest's terminal is to show it: several where that is narrow, one in a log.

    A ``note`` without an absolute path is as wide as ``COLUMNS`` says there, too.
    """
    wide = note and "COLUMNS" in os.environ and " /" not in line
    return hung(inert(line), terminal_columns() if wide or getattr(reporter, "isatty", False) else None)


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
        self._reporter.rewrite(text, erase=True)


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
        """Return all lines."""
        return self.message

    def toterminal(self, writer: Any) -> None:
        """Write all lines."""
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


def cause_in_summary(report: pytest.CollectReport | pytest.TestReport) -> None:
    """Have the line of pytest's short summary begin with the cause, in one line however many that takes.

    Args:
        report: of a failure that is ours.
    """
    failure: Any = report.longrepr
    crash = getattr(failure, "reprcrash", None)
    told = str(failure if crash is None else crash.message)
    first, *others = told.removeprefix("Failed: ").removeprefix(_OURS).splitlines()
    for line in takewhile(lambda line: line.startswith(" " * len(_OURS)), others):
        blank = "" if _JOINED.search(first[-1:] + line.strip()[:1]) else " "
        first += blank + line.strip()
    if crash is None:
        report.longrepr = _Failure(str(failure).splitlines(), _Failure([first], None))  # type: ignore[assignment]
    else:
        crash.message = first


_JOINED = re.compile(r"[^\x00-\x7f]{2}|[^\x00-\x7f\w]")
"""What a line of Chinese may be broken between without a blank: two letters of it, or a sign and anything."""
_NOTES = 5
"""Notes shown without ``-v``."""
NAMES = 2
"""Tests that a note names without ``-v``."""
WIDTH = 300
"""Characters of a note, and of a test's name, without ``-v``."""
_KEY = "npudump/notes"


@dataclass(frozen=True, slots=True)
class Note:
    """A note, with all tests of a session that have it.

    Attributes:
        text: in words.
        tests: node ids; those that did not have the note in their last run come first.
        new: whether a test has it that did not have it in its last run; None where no last run is known.
        passed: whether one of the tests passed; the text of a failure has its own notes.
    """

    text: str
    tests: tuple[str, ...]
    new: bool | None
    passed: bool


@dataclass(slots=True)
class _Tests:
    new: dict[str, None] = field(default_factory=dict)
    standing: dict[str, None] = field(default_factory=dict)
    passed: bool = False


def collect_notes(
    results: Iterable[Mapping[str, Any]], before: Mapping[str, Sequence[str]] | None
) -> tuple[Note, ...]:
    """Return the notes of a session: new ones first, then in the order of the tests.

    Args:
        results: of its tests, as :func:`pytest_npudump.report.result_json.result_json` makes them.
        before: what :func:`digests` said of each test's last run; None where nothing is known.
    """
    found: dict[str, _Tests] = {}
    for result in results:
        last = set((before or {}).get(result["test"], ()))
        for text in result.get("notes", ()):
            tests = found.setdefault(text, _Tests())
            (tests.standing if _digest(text) in last else tests.new)[result["test"]] = None
            tests.passed |= result["status"] in GOOD
    notes = [
        Note(text, (*tests.new, *tests.standing), None if before is None else bool(tests.new), tests.passed)
        for text, tests in found.items()
    ]
    return tuple(sorted(notes, key=lambda note: not note.new))


def digests(
    results: Iterable[Mapping[str, Any]], before: Mapping[str, Sequence[str]]
) -> dict[str, list[str]]:
    """Digest the notes, so that the next session knows which are new; tests not compared keep theirs."""
    now: dict[str, dict[str, None]] = {}
    for result in results:
        if "notes" in result:
            now.setdefault(result["test"], {}).update(dict.fromkeys(map(_digest, result["notes"])))
    kept = {test: list(known) for test, known in before.items()} | {test: [*new] for test, new in now.items()}
    return {test: known for test, known in kept.items() if known}


def _digest(text: str) -> str:
    return blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).hexdigest()


def news(config: pytest.Config, results: Sequence[Mapping[str, Any]], rank: str = "") -> tuple[Note, ...]:
    """Return the notes of a session, and remember them in pytest's cache, which has those of earlier ones."""
    cache = getattr(config, "cache", None)
    key = f"{_KEY}-{rank}" if rank else _KEY
    known = cache.get(key, None) if cache is not None else None
    users_own = not isinstance(known, dict) or not all(isinstance(texts, list) for texts in known.values())
    before: dict[str, list[str]] | None = None if users_own else known
    found = collect_notes(results, before)
    if cache is not None:
        cache.set(key, digests(results, before or {}))
    return found


def write_notes(directory: Path, prefix: str, notes: Sequence[Note]) -> ReportFiles:
    """Write ``notes.txt`` and ``notes.json``; without notes remove those of an earlier session.

    Args:
        directory: the folder of the session's dumps.
        prefix: of the files' names, which keeps the ranks of a distributed run apart.
        notes: of all tests.
    """
    files = ReportFiles.named(directory, f"{prefix}notes")
    if not notes:
        return files.remove()
    content = [{"note": n.text, "new": n.new, "tests": list(n.tests)} for n in notes]
    lines = []
    for note in notes:
        word = _("new note") if note.new else _("note")
        lines.append(plain(said("{value}: {text}", value=word, text=note.text)))
        lines += [f"    {plain(test)}" for test in note.tests]
    return files.write("the notes", lines, {"notes": content})


def note_lines(notes: Sequence[Note], files: ReportFiles, *, verbose: bool) -> list[str]:
    """Return the terminal's notes of passed tests: some and where the rest is, or everything."""
    telling = [note for note in notes if note.passed and not is_not_dumped(note.text)]  # which are counted
    chosen = telling if verbose else telling[:_NOTES]
    lines = [plain(_line(note, verbose=verbose)) for note in chosen]
    if files.problem:
        return [*lines, files.problem]
    left = len(telling) - len(chosen)
    if left:
        new = sum(bool(note.new) for note in telling[_NOTES:])
        words = ngettext("1 more note", "{left} more notes", left).format(left=left)
        lines.append(
            _("{words}{how_new}: all {count} are in {text}").format(
                words=words,
                how_new=_(" ({new} of them new)").format(new=new) if new else "",
                count=len(notes),
                text=shown(files.text),
            )
        )
    elif (
        lines
        and not verbose
        and any(
            len(note.tests) > NAMES or any(len(text) > WIDTH for text in (note.text, *note.tests))
            for note in chosen
        )
    ):
        lines.append(_("all notes with all of their tests are in {text}").format(text=shown(files.text)))
    return lines


def _line(note: Note, *, verbose: bool) -> str:
    word = _("new note") if note.new else _("note")
    names = note.tests if verbose else [cut(test, WIDTH) for test in note.tests[:NAMES]]
    text = note.text if verbose else cut(note.text, WIDTH)
    return said("{word}: {whose}: {text}", word=word, whose=_whose(names, note.tests), text=text)


def _whose(names: Sequence[str], tests: Sequence[str]) -> str:
    if len(tests) == 1:
        return names[0]
    more = _(" and {left} more").format(left=len(tests) - len(names)) if len(tests) > len(names) else ""
    return _("{count} tests ({names}{more})").format(count=len(tests), names=", ".join(names), more=more)
