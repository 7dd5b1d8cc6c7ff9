"""Pending runs: ``npudump golden diff``, ``accept``, ``reject``, ``review``."""

from __future__ import annotations

import sys
import termios
from collections import Counter
from dataclasses import dataclass
from fnmatch import fnmatchcase
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pytest_npudump.cli.common.output import (
    INTERRUPTED,
    columns,
    complain,
    emit,
    end_output,
    present,
    screen,
    to_stderr,
)
from pytest_npudump.cli.common.project import is_called, last_parts, last_results
from pytest_npudump.cli.compare_report import verdict_table
from pytest_npudump.compare.stats.tables import describe_not_finite
from pytest_npudump.errors import NpudumpError, RequestError
from pytest_npudump.language import mark
from pytest_npudump.language.text import HANG, first_of, terminal_columns
from pytest_npudump.language.translation import gettext as _, spoken
from pytest_npudump.report.layer_names import LayerNames
from pytest_npudump.report.origins import mismatches, source_lines
from pytest_npudump.report.terminal import headline
from pytest_npudump.report.verdicts import shown, times
from pytest_npudump.results.acceptance import Pending, approve, pending_of, refuse_idle, reject
from pytest_npudump.results.folder import Results, ResultsError, ResultsFolder
from pytest_npudump.results.rejudge import terms_at
from pytest_npudump.settings import ci_variable

if TYPE_CHECKING:
    import argparse
    from collections.abc import Collection, Iterator, Sequence

    from pytest_npudump.compare.stats.verdict import Verdict
    from pytest_npudump.graph.sources import Sources


@dataclass(frozen=True, slots=True)
class WaitingRuns:
    """Pending runs of a results folder.

    Attributes:
        folder: where it lies.
        results: all that it holds.
        chosen: the runs that the command is about, the largest change first.
    """

    folder: ResultsFolder
    results: Results
    chosen: tuple[Pending, ...]

    @property
    def is_readable(self) -> bool:
        """Return whether all results can be read; report those that cannot on standard error."""
        complain(self.results.problems)
        return not self.results.problems


def read_waiting(arguments: argparse.Namespace) -> WaitingRuns:
    """Read the pending runs that the arguments name.

    Raises:
        ResultsError: there are no results, or an argument names no waiting run.
    """
    folder = last_results(arguments.results)
    results = folder.read()
    pending = pending_of(folder, results, terms_at(results.entries, arguments.root, arguments.golden_dir))
    tests = {entry.test for entry in results.entries}
    return WaitingRuns(folder, results, _chosen(pending, arguments.tests, tests))


def _chosen(pending: Sequence[Pending], names: Sequence[str], tests: Collection[str]) -> tuple[Pending, ...]:
    """Return the runs of tests, files or classes, or of globs of these or of the last parts of their names.

    The last parts alone will do where they are those of one run.

    Args:
        pending: the runs to choose from.
        names: what is chosen; nothing for all.
        tests: all that were run: one that was, and is not pending, is no glob of others.
    """
    if not names:
        return tuple(pending)
    chosen: set[str] = set()
    for name in names:
        meant = {name} if name in tests else {test for test in tests if _is_meant(test, name)}
        called = [one.entry.test for one in pending if not meant and is_called(one.entry.test, name)]
        meant.update(called if len(called) == 1 else ())
        chosen |= meant
        if not any(one.entry.test in meant for one in pending):
            if not pending:
                raise ResultsError(_("{name}: no run is pending review").format(name=name))
            known = first_of(one.entry.test for one in pending)
            raise ResultsError(
                _("{name} matches no pending run; pending: {known}").format(name=name, known=known)
            )
    return tuple(one for one in pending if one.entry.test in chosen)


def _is_meant(test: str, name: str) -> bool:
    """Return whether a test is in what a name says, or a glob matches its id or the last parts of that."""
    glob = name.replace("[", "[[]") if "*" in name or "?" in name else ""
    return test.startswith((f"{name}::", f"{name}[")) or any(
        fnmatchcase(part, glob) for part in last_parts(test)
    )


def waiting_lines(waiting: Sequence[Pending]) -> Iterator[str]:
    """Yield the pending runs below a heading; one line without any."""
    yield _("pending review:") if waiting else _("no run is pending review")
    for one in waiting:
        yield _("  {test}: {words}").format(test=one.entry.test, words=_in_short(one))
        if one.refusals:
            yield "    " + _("cannot be accepted: {refusal}").format(refusal=spoken(one.refusals[0]))


def _in_short(pending: Pending) -> str:
    """Summarise in one sentence how a run differs from its golden."""
    comparison = pending.comparison
    if comparison is None:
        return _("no golden file") if pending.golden is None else _("not compared")
    if comparison.first is None:
        return _differ(pending)
    first = LayerNames.of(comparison, screen()).text(str(comparison.first.key))
    return _("{differ}, first {first}").format(differ=_differ(pending), first=first)


def _differ(pending: Pending) -> str:
    """Count the mismatching tensors of a run, with the largest ratio to its tolerance."""
    comparison = pending.comparison
    assert comparison is not None  # noqa: S101 - looked at by the caller
    found = [mismatches(comparison)]
    if pending.largest:
        found.append(_("up to {times}x tolerance").format(times=times(pending.largest)))
    return _(", ").join(found)


def as_json(pending: Pending) -> dict[str, Any]:
    """Return a waiting run as plain JSON data."""
    comparison = pending.comparison
    return {
        "test": pending.entry.test,
        "status": pending.entry.status,
        "golden": str(pending.path),
        "has_golden": pending.golden is not None,
        "largest": pending.largest,
        "incomparable": pending.incomparable,
        "refusals": list(pending.refusals),
        "comparison": None if comparison is None else comparison.to_json()["summary"],
        "first": str(comparison.first.key) if comparison is not None and comparison.first else None,
    }


def diff(arguments: argparse.Namespace) -> int:
    """List the waiting runs, then show what differs in each; 1 where there are any."""
    waiting = read_waiting(arguments)
    _differ_in(waiting.chosen, arguments.layers)
    texts = [
        difference(one, LayerNames.of(one.comparison, screen()), arguments.layers) for one in waiting.chosen
    ]
    listed = chain(waiting_lines(waiting.chosen), *(chain([""], text) for text in texts))
    present(
        arguments,
        lambda: [
            as_json(one) | {"verdicts": [verdict.to_json() for verdict in _failing(one, arguments.layers)]}
            for one in waiting.chosen
        ],
        texts[0] if len(texts) == 1 else listed,  # of one run the list would say the same
    )
    if not waiting.is_readable:
        return 2
    return 1 if waiting.chosen else 0


def difference(pending: Pending, names: LayerNames, layers: Sequence[str] = ()) -> Iterator[str]:
    """Yield the mismatches of one run.

    Args:
        pending: the run.
        names: of its layers, for the terminal that rows are to fit.
        layers: names or globs of those that are shown; none for all.
    """
    failing = _failing(pending, layers)
    table = verdict_table(failing, names) if failing else []  # which gives names their room
    yield f"{pending.entry.test} ({shown(pending.path)})"
    cause = next(iter(_causes(pending)), "")
    yield from (f"  {line}" for line in names.lines(spoken(cause), 2)) if cause else ()
    for refusal in pending.refusals:
        yield "  " + _("cannot be accepted: {refusal}").format(refusal=spoken(refusal))
    result = pending.judged.result
    for problem in result.problems if result is not None else (pending.judged.why,):
        if problem != cause:
            yield f"  {spoken(problem)}"
    yield from (f"  {line}" for line in unreproduced(pending))
    for note in pending.lost:
        yield "  " + _("note: {note}").format(note=spoken(note))
    if pending.record is not None and (note := describe_not_finite(pending.record.table)):
        yield "  " + _("note: {note}").format(note=spoken(note))
    if pending.comparison is None:
        return
    yield f"  {_differ(pending)}"
    for line in source_lines(_sources(pending), brief=False):
        yield from (f"  {one}" for one in names.lines(line, 2))
    yield from (*names.legend(), *table)


def unreproduced(pending: Pending) -> list[str]:
    """Report that the second run of a test gave other values than the one that is pending."""
    data = pending.entry.data
    second = data.get("second_run") or {}  # earlier results lack it
    if data["reproduced"] is not False or second.get("fed"):  # which is refused, and why
        return []
    share = ""
    if second:
        share = _(" in {differing} of {tensors} tensors").format(
            differing=second.get("differing"), tensors=second.get("tensors")
        )
    words = _(
        "not reproduced: the second run gave other values{share}; make the test deterministic or give it "
        "wider tolerances before accepting"
    )
    return [words.format(share=share)]


def _failing(pending: Pending, layers: Sequence[str]) -> list[Verdict]:
    """Return the mismatches: sources first, then those downstream, each in the order of execution."""
    comparison = pending.comparison
    failing = comparison.mismatches if comparison is not None else ()
    named = pending.layers_named(layers)
    sources = _sources(pending)
    first = {str(source.key) for source in sources.independent} if sources is not None else set()
    wanted = [one for one in failing if one.key.layer in named]
    return sorted(wanted, key=lambda one: str(one.key) not in first)


def _sources(pending: Pending) -> Sources | None:
    result = pending.judged.result
    return result.sources if result is not None else None


def accept_all(arguments: argparse.Namespace) -> int:
    """Make the waiting runs goldens; 1 where nobody agrees to all of them, 2 where one was refused.

    Raises:
        ResultsError: a layer that is named differs in none of the runs: nothing is written.
    """
    refuse_in_ci(arguments)
    waiting = read_waiting(arguments)
    refuse_idle(waiting.chosen, arguments.layers)
    count = len(waiting.chosen)
    asks = count > 1 and not arguments.tests and _is_terminal()
    if asks and not _agrees(_("accept {count} runs? y: ").format(count=count)):
        emit([_("{accepted} of {count} accepted").format(accepted=0, count=count)])
        return 1
    good = [accept(waiting.folder, one, arguments.layers, arguments.reason) for one in waiting.chosen]
    emit(
        [
            _("{accepted} of {count} accepted").format(accepted=sum(good), count=len(good))
            if good
            else _("no run is pending review")
        ]
    )
    return 0 if waiting.is_readable and all(good) else 2


def refuse_in_ci(arguments: argparse.Namespace) -> None:
    """Refuse to accept in a gate.

    Raises:
        RequestError: a variable says that this is CI, and nothing says that this is on purpose.
    """
    variable = "" if arguments.allow_in_ci else ci_variable()
    if variable:
        raise RequestError(
            _(
                "accept is refused as the variable {variable} is set: a gate must not accept what it "
                "checks; accept on your own machine, with --results, or on purpose with --allow-in-ci"
            ).format(variable=variable)
        )


def accept(
    folder: ResultsFolder,
    pending: Pending,
    layers: Sequence[str],
    reason: str,
    known: Collection[str] = (),
) -> bool:
    """Accept one run, or some of its layers, and report it without ``known`` notes; False where refused."""
    before = [] if pending.refusals else unreproduced(pending)
    lost = () if layers else pending.lost
    before += [_("note: {note}").format(note=spoken(note)) for note in lost if note not in known]
    emit(f"{pending.entry.test}: {line}" for line in before if line not in known)
    try:
        entry, notes = approve(pending, layers, reason)
    except NpudumpError as error:
        complain([spoken(str(error))])
        return False
    emit([_("accepted: {test}: {path}").format(test=pending.entry.test, path=shown(pending.path))])
    told = {*known, *lost}
    emit("  " + _("note: {note}").format(note=spoken(note)) for note in notes if note not in told)
    try:
        folder.update([entry])
    except (OSError, NpudumpError) as error:  # the golden is written; the list finds that out by itself
        problem = _("npudump: {path}: the decision cannot be saved: {error}")
        to_stderr(problem.format(path=folder.path, error=error))
    return True


def reject_all(arguments: argparse.Namespace) -> int:
    """Take waiting runs off the list; 2 where results cannot be read."""
    waiting = read_waiting(arguments)
    if not waiting.is_readable:
        return 2
    waiting.folder.update(map(reject, waiting.chosen))
    emit(_("rejected: {test}").format(test=one.entry.test) for one in waiting.chosen)
    emit([_("{count} rejected").format(count=len(waiting.chosen))])
    return 0


_LINES = 15
"""Lines of what differs in a run, before the rest is asked for."""
_QUESTION = mark("a accept, r reject, s skip, l layers, w why, q quit, A/R/S all left: ")
_FOR_ALL = ("A", "R", "S")
"""Those that hold for all that follow: to quit is to skip these."""
_ACCEPTED, _REJECTED, _SKIPPED, _REFUSED, _INTERRUPTED = (
    mark("accepted"),
    mark("rejected"),
    mark("skipped"),
    mark("refused"),
    mark("interrupted"),
)


def review(arguments: argparse.Namespace) -> int:
    """Ask about each run; 1 where some wait still, 2 where one was refused, 130 after Ctrl-C."""
    refuse_in_ci(arguments)
    waiting = read_waiting(arguments)
    if not waiting.chosen:
        emit([_("no run is pending review")])
        return 0 if waiting.is_readable else 2
    decided: list[tuple[str, str, str]] = []
    try:
        _review(waiting, arguments.reason, decided)
        interrupted = False
    except KeyboardInterrupt:  # what was decided is written
        interrupted = True
        decided += [(one.entry.test, _SKIPPED, "") for one in waiting.chosen[len(decided) :]]
    rows = [(_(word), test, layers) for test, word, layers in decided]
    said_above = len(rows) == 1 and not rows[0][2]
    emit(["", *([] if said_above else columns(rows))])
    counts = Counter(word for _test, word, _layers in decided)
    told = _("{accepted} accepted, {rejected} rejected, {left} skipped").format(
        accepted=counts[_ACCEPTED], rejected=counts[_REJECTED], left=counts[_SKIPPED]
    )
    refused = counts[_REFUSED]
    told += _(", {refused} refused").format(refused=refused) if refused else ""
    if counts[_INTERRUPTED]:
        told += _(", 1 interrupted")
    emit([told])
    if interrupted:
        return INTERRUPTED
    if refused or not waiting.is_readable:
        return 2
    return 1 if counts[_SKIPPED] else 0


def _review(waiting: WaitingRuns, reason: str, decided: list[tuple[str, str, str]]) -> None:
    """Ask about each run in turn and do what is answered, at once.

    Args:
        waiting: the runs.
        reason: kept in the goldens.
        decided: gets of each test what became of it, and of which of its layers where not of all.
    """
    standing = ""
    asks = not reason and _is_terminal()
    for number, pending in enumerate(waiting.chosen, 1):
        asked = not standing
        if asked:
            emit(["", *_shown(pending, number, len(waiting.chosen))])
        decision, layers = "", tuple[str, ...]()
        while not decision:  # until layers are named that there are
            word, layers = (standing, ()) if standing else _answer(pending, len(waiting.chosen) - number + 1)
            standing = word if word in {*_FOR_ALL, "q"} else ""
            if asks and word in {"a", "A", "l"} and not pending.refusals:
                question, asks = _("reason, stored in the goldens (empty for none): "), False
                reason = _line(question, "").strip()
            try:
                decision = _carry_out(word, waiting, pending, layers, reason, asked=asked)
            except KeyboardInterrupt:
                decided.append((pending.entry.test, _INTERRUPTED, ""))
                raise
        some = ""
        failing = pending.comparison.failing if pending.comparison is not None else ()
        if layers and not {one.key.layer for one in failing} <= pending.layers_named(layers):
            some = _("only {layers}; the rest is pending").format(layers=", ".join(layers))
        decided.append((pending.entry.test, decision, some))


def _carry_out(
    word: str, waiting: WaitingRuns, pending: Pending, layers: Sequence[str], reason: str, *, asked: bool
) -> str:
    """Carry out a decision; return its result, or "" for a run still pending as layers of it were refused."""
    if word in {"r", "R"}:
        waiting.folder.update([reject(pending)])
        emit([_("rejected: {test}").format(test=pending.entry.test)])
        return _REJECTED
    if word not in {"a", "A", "l"}:
        return _SKIPPED
    known = (*pending.lost, *unreproduced(pending)) if asked else ()
    if accept(waiting.folder, pending, layers, reason, known):
        return _ACCEPTED
    return "" if layers else _REFUSED


def _answer(pending: Pending, left: int) -> tuple[str, tuple[str, ...]]:
    """Return the letter of a decision, and the layers it is about; the end of input skips the rest."""
    while True:
        words = _words(_line(_(_QUESTION)))
        if words == ["w"]:
            emit(_why(pending))
        elif words[:1] == ["l"]:
            asked = _("layers to accept (names or globs, separated by blanks): ")
            layers = words[1:] or _words(_line(asked, ""))
            if layers and _differ_in([pending], layers):
                return "l", tuple(layers)
        elif len(words) != 1 or words[0] not in ("a", "r", "s", *_FOR_ALL, "q"):
            emit([_("unknown answer; enter a, r, s, l, w, q, A, R or S")])
        elif not (left > 1 and words[0] in _FOR_ALL and _is_terminal()) or _agrees(
            _("{answer} for all {left}? y: ").format(answer=words[0], left=left)
        ):
            return words[0], ()


def _words(answer: str) -> list[str]:
    return answer.replace(",", " ").split()


def _differ_in(runs: Sequence[Pending], layers: Sequence[str]) -> bool:
    """Return whether any of the runs differs in each of the named layers; report it where none does."""
    try:
        refuse_idle(runs, layers)
    except ResultsError as error:
        complain([spoken(str(error))])
        return False
    return True


def _is_terminal() -> bool:
    return sys.stdin.isatty() and sys.stdout.isatty()


def _why(pending: Pending) -> Iterator[str]:
    """Yield what the run found of the cause, then all that differs where a part is on the screen."""
    names = LayerNames.of(pending.comparison, screen())
    rows = [*difference(pending, names)]  # which give names their room
    short = [*difference(pending, LayerNames.of(pending.comparison, terminal_columns()))]
    if rows != short or len(rows) > _LINES:  # than stand above
        yield from rows
    for line in _causes(pending)[1:]:  # behind what may be long
        yield from (f"  {one}" for one in names.lines(spoken(line), 2))
    if details := pending.entry.data["details"]:
        yield "  " + _("report:     {text}").format(text=shown(Path(str(details))))


def _causes(pending: Pending) -> list[str]:
    """Return the cause of a failure as the run found it, then what else it found; nothing where it passed."""
    (first, *why), result = pending.judged.failure or ("",), pending.judged.result
    judged = "" if result is None or result.good else headline(result).removeprefix("npudump: ")
    return [*filter(None, (first or judged, *why))]


def _agrees(question: str) -> bool:
    return _line(question, "").strip() == "y"


def _line(question: str, at_end: str = "q") -> str:
    """Return the line that answers; what was typed before the question was there answers nothing."""
    end_output()
    if _is_terminal():
        termios.tcflush(sys.stdin, termios.TCIFLUSH)
    try:
        return input(question)
    except EOFError:
        emit([""])
        return at_end


def _shown(pending: Pending, number: int, count: int) -> Iterator[str]:
    names = LayerNames.of(pending.comparison, terminal_columns())
    run, *lines = difference(pending, names)
    yield _("{number} of {count}: {run}").format(number=number, count=count, run=run)
    most = _LINES - any(line.startswith(HANG) for line in lines[_LINES : _LINES + 1])  # a name alone
    yield from lines[:most]
    if len(lines) > most:
        yield "  " + _("... and {left} more lines (w shows all)").format(left=len(lines) - most)
