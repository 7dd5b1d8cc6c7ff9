"""Why a session does not pass, whatever its tests say."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from dataclasses import dataclass, field
from hashlib import blake2b
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

import pytest

from pytest_npudump.errors import MissingExtraError, NpudumpError
from pytest_npudump.language.text import cut, first_of, typed
from pytest_npudump.language.translation import gettext as _
from pytest_npudump.language.translation import ngettext
from pytest_npudump.plugin._compat import was_narrowed
from pytest_npudump.plugin.paths import keeps_results, results_path
from pytest_npudump.regression.result import GOOD
from pytest_npudump.report.files import ReportFiles
from pytest_npudump.report.verdicts import plain, shown
from pytest_npudump.settings import ci_variable

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence
    from pathlib import Path

    from pytest_npudump.results.entry import Entry
    from pytest_npudump.settings import Settings


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


_SHOWN = 3


def idle_rules(results: Iterable[Mapping[str, Any]]) -> tuple[str, ...]:
    """Return the rules that no compared test has a tensor for; none where no test was compared."""
    idle = [result.get("idle_rules", ()) for result in results if "compared" in result]
    return tuple(rule for rule in idle[0] if all(rule in others for others in idle)) if idle else ()


def idle_line(rules: tuple[str, ...], config: pytest.Config) -> tuple[str, bool]:
    """Say that rules are idle, and whether the session fails for it: only where it ran all tests.

    Args:
        rules: as :func:`idle_rules` has them, at least one.
        config: of the session.
    """
    words = ngettext(
        "{count} tolerance rule matches no tensor of these tests: {rules}",
        "{count} tolerance rules match no tensor of these tests: {rules}",
        len(rules),
    ).format(count=len(rules), rules=first_of(rules, _SHOWN))
    if was_narrowed(config):
        return words, False
    advice = _("correct the layer, op_type, dtype or statistic, or remove it; the run does not pass")
    return f"{words}; {advice}", True


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
    return f"{_('new note') if note.new else _('note')}: {note.text}"


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
        return f"{word}: {_whose(note.tests, note.tests)}: {note.text}"
    names = [cut(test, WIDTH) for test in note.tests[:NAMES]]
    return f"{word}: {_whose(names, note.tests)}: {cut(note.text, WIDTH)}"


def _whose(names: Sequence[str], tests: Sequence[str]) -> str:
    if len(tests) == 1:
        return names[0]
    more = _(" and {left} more").format(left=len(tests) - len(names)) if len(tests) > len(names) else ""
    return _("{count} tests ({names}{more})").format(count=len(tests), names=", ".join(names), more=more)


def _is_cut(note: Note) -> bool:
    return len(note.tests) > NAMES or any(len(text) > WIDTH for text in (note.text, *note.tests))


STALE = "stale"
"""The value of ``--npudump-fail-on`` with which goldens that no test has fail the session."""
_COMMAND = "import sys; from pytest_npudump.cli import main; sys.exit(main(['golden', 'stale']))"


def is_asked(config: pytest.Config, settings: Settings) -> bool:
    """Whether this process is to look: not a worker, nor the child of a test, nor one that only collects."""
    from pytest_npudump.plugin.isolation.task import CHILD  # noqa: PLC0415 - only where asked for

    part = hasattr(config, "workerinput") or config.pluginmanager.has_plugin(CHILD)
    return settings.fail_on == STALE and not part and not config.option.collectonly


def stale_lines(config: pytest.Config, settings: Settings) -> list[str]:
    """Return what is stale, or why that is not known, in lines; none where nothing is.

    Args:
        config: of the session.
        settings: its options.
    """
    options = [f"--npudump-golden-dir={settings.golden_dir}"]
    if config.inipath is not None:
        options += ["-c", str(config.inipath)]
    given = os.environ.get("PYTEST_ADDOPTS", "")
    environment = {**os.environ, "PYTEST_ADDOPTS": f"{given} {shlex.join(options)}".strip()}
    done = subprocess.run(  # noqa: S603 - this package, in this interpreter
        [sys.executable, "-c", _COMMAND],
        cwd=config.rootpath,
        env=environment,
        check=False,
        capture_output=True,
        text=True,
        errors="replace",
        stdin=subprocess.DEVNULL,
    )
    if not done.returncode:
        return []
    told = (done.stdout if done.returncode == 1 else done.stderr or done.stdout).splitlines()
    heading = "goldens are stale" if done.returncode == 1 else "whether goldens are stale is not known"
    return [f"--npudump-fail-on=stale: {heading}:", *(f"  {line}" for line in told)]


def open_runs_line(
    entries: Iterable[Entry],
    tests: Collection[str],
    rank: int | None,
    settings: Settings,
    *,
    folder: Path,
    config: pytest.Config,
) -> str:
    """Say how many runs wait for a decision, and the command for it; "" where none does.

    In CI pytest's cache goes with the machine, so that only a folder that was named is worth a word.

    Args:
        entries: what is kept.
        tests: names of the session's tests.
        rank: of this process; None for a process of its own.
        settings: of the session.
        folder: in which they are kept.
        config: pytest's.
    """
    own = (entry for entry in entries if entry.test in tests and entry.data["rank"] == rank)
    count = sum(entry.is_open for entry in own)
    if not count or (ci_variable() and not settings.results):
        return ""
    root, here = config.rootpath, config.invocation_params.dir
    below = here.is_relative_to(root)  # where the command finds the repository and pytest's cache by itself
    options = [] if below and not settings.results else ["--results", shown(folder, here)]
    options += [] if below else ["--root", shown(root, here)]
    command = typed("npudump", "golden", "review", *options)
    return ngettext(
        "{count} run waits for a decision: {command}",
        "{count} runs wait for a decision: {command}",
        count,
    ).format(count=count, command=command)


def check_report() -> None:
    """Raise MissingExtraError where no page can be made."""
    if find_spec("jinja2") is None:
        raise MissingExtraError("--npudump-report", "jinja2", "report")


def write_report(
    config: pytest.Config,
    settings: Settings,
    tests: Collection[str],
    unkept: str,
    problems: Sequence[str],
    *,
    rank: int | None,
) -> str:
    """Write the page, and return the line that says where it is, or why it is not complete.

    A session without marked tests has a page, too: one that an earlier session left would be taken for its.

    Args:
        config: pytest's.
        settings: the options.
        tests: names of the marked tests of the session.
        unkept: why not all results are kept; "" where they are.
        problems: why the session does not pass, whatever its tests say.
        rank: of a distributed run, each of which writes a page of its own.
    """
    from pytest_npudump.report.view import SessionView  # noqa: PLC0415 - only where asked for
    from pytest_npudump.results.folder import ResultsFolder  # noqa: PLC0415 - the same
    from pytest_npudump.results.rejudge import Overrides  # noqa: PLC0415 - the same
    from pytest_npudump.results.session_page import INDEX, page_of_tests, write_page  # noqa: PLC0415 - the same

    target: Path = config.rootpath / settings.report / (INDEX if rank is None else f"rank{rank}.html")
    try:
        if not tests:
            write_page(SessionView((), (_("No marked test ran in this session."), *problems)), target)
        elif unkept or not keeps_results(config, settings):
            write_page(SessionView((), (unkept or _("Results of this session were not kept."),)), target)
            return _("report: {target} has no tests: {unkept}").format(
                target=target, unkept=unkept or _("results are not kept")
            )
        else:
            folder = ResultsFolder(results_path(config, settings))
            page_of_tests(folder, tests, Overrides(config.rootpath), target, problems)
    except (OSError, NpudumpError) as error:
        return _("no report: {error}").format(error=error)
    return _("report: {target}").format(target=target)
