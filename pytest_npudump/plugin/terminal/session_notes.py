"""Notes of a session's tests: what is to be known of those that passed, and which of it is new."""

from __future__ import annotations

from dataclasses import dataclass, field
from hashlib import blake2b
from typing import TYPE_CHECKING, Any

from pytest_npudump.errors import said
from pytest_npudump.language.text import cut
from pytest_npudump.language.translation import gettext as _
from pytest_npudump.language.translation import ngettext
from pytest_npudump.regression.result import GOOD
from pytest_npudump.report.files import ReportFiles
from pytest_npudump.report.verdicts import plain, shown

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from pathlib import Path

    import pytest


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
    """Return what tells the next session which notes are new; tests that were not compared keep theirs."""
    now: dict[str, dict[str, None]] = {}
    for result in results:
        if "notes" in result:
            now.setdefault(result["test"], {}).update(dict.fromkeys(map(_digest, result["notes"])))
    kept = {test: list(known) for test, known in before.items()} | {test: [*new] for test, new in now.items()}
    return {test: known for test, known in kept.items() if known}


def _digest(text: str) -> str:
    return blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).hexdigest()


class Memory:
    """The notes of earlier sessions, in pytest's cache.

    Attributes:
        before: digests by test; None without a cache, or where no session with marked tests has used it.
    """

    def __init__(self, config: pytest.Config, rank: str = "") -> None:
        self._cache = config.cache if hasattr(config, "cache") else None
        self._key = f"{_KEY}-{rank}" if rank else _KEY
        known = self._cache.get(self._key, None) if self._cache is not None else None
        self.before: Mapping[str, Sequence[str]] | None = known if _is_memory(known) else None

    def keep(self, results: Sequence[Mapping[str, Any]]) -> None:
        """Remember the notes of the tests that ran; all others keep theirs."""
        if self._cache is not None:
            self._cache.set(self._key, digests(results, self.before or {}))


def _is_memory(known: object) -> bool:
    """Whether the cache holds what :func:`digests` returned: users may edit it."""
    return isinstance(known, dict) and all(isinstance(texts, list) for texts in known.values())


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
    lines = [line for note in notes for line in (plain(_text(note)), *_indented(note.tests))]
    return files.write("the notes", lines, {"notes": content})


def _indented(tests: Iterable[str]) -> list[str]:
    return [f"    {plain(test)}" for test in tests]


def _text(note: Note) -> str:
    return said("{word}: {text}", word=_("new note") if note.new else _("note"), text=note.text)


def note_lines(notes: Sequence[Note], files: ReportFiles, *, verbose: bool) -> list[str]:
    """Return what the terminal shows of tests that passed: some and where the rest is, or everything."""
    telling = [note for note in notes if note.passed]
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
    elif lines and not verbose and any(_is_cut(note) for note in chosen):
        lines.append(_("all notes with all of their tests are in {text}").format(text=shown(files.text)))
    return lines


def _line(note: Note, *, verbose: bool) -> str:
    word = _("new note") if note.new else _("note")
    if verbose:
        return said(
            "{word}: {whose}: {text}", word=word, whose=_whose(note.tests, note.tests), text=note.text
        )
    names = [cut(test, WIDTH) for test in note.tests[:NAMES]]
    return said(
        "{word}: {whose}: {text}", word=word, whose=_whose(names, note.tests), text=cut(note.text, WIDTH)
    )


def _whose(names: Sequence[str], tests: Sequence[str]) -> str:
    if len(tests) == 1:
        return names[0]
    more = _(" and {left} more").format(left=len(tests) - len(names)) if len(tests) > len(names) else ""
    return _("{count} tests ({names}{more})").format(count=len(tests), names=", ".join(names), more=more)


def _is_cut(note: Note) -> bool:
    return len(note.tests) > NAMES or any(len(text) > WIDTH for text in (note.text, *note.tests))
