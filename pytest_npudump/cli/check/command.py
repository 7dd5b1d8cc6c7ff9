"""``npudump check``: kept results judged again, as the plugin judges a run."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pytest_npudump.cli.check import other_terms
from pytest_npudump.cli.check.other_terms import other_verdicts
from pytest_npudump.cli.check.unmatched_rules import idle_lines
from pytest_npudump.cli.common.output import emit, to_stderr, write_json
from pytest_npudump.language.text import first_of
from pytest_npudump.language.translation import gettext as _
from pytest_npudump.language.translation import ngettext, spoken
from pytest_npudump.regression.result import PASSED
from pytest_npudump.report.result_json import full_json
from pytest_npudump.report.summary import summary_line
from pytest_npudump.report.terminal import verdict_lines
from pytest_npudump.results.expected_tests import missing_tests, read_expected
from pytest_npudump.results.folder import ResultsFolder
from pytest_npudump.results.rejudge import BAD, GOOD, LEFT_OUT, UNJUDGED, rejudge, terms_at

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator, Sequence

    from pytest_npudump.results.entry import Entry
    from pytest_npudump.results.folder import Results
    from pytest_npudump.results.rejudge import Overrides, Rejudged

_EXPECT = "--expect"


def run(arguments: argparse.Namespace) -> int:
    """Judge, print what came of it, and return 0, 1 or 2."""
    expected = _expected(arguments.expect)
    folder = ResultsFolder(arguments.results)
    results = folder.read()
    terms = _terms(arguments, results.entries)
    judged = [rejudge(folder, entry, terms) for entry in results.entries]
    problems = [*results.problems, *_missing(expected, judged)]
    others = other_verdicts(arguments.what_if, folder, judged, terms)
    if arguments.json:
        data = {"tests": [*map(_as_json, judged)], "problems": problems}
        told = {"what_if": [one.to_json() for one in others]} if others else {}
        write_json(data | told, arguments.json)
    if arguments.json != "-":
        emit([*_lines(judged, verbose=arguments.verbose), *_earlier(results), _summary(judged)])
        emit(other_terms.lines(others))
    for problem in problems:
        to_stderr(f"npudump: {problem}")
    for line in (*idle_lines(judged), *other_terms.idle_lines_of(others)):
        to_stderr(f"npudump: {line}")
    words = {one.word for one in judged}
    if problems or UNJUDGED in words or not words & {GOOD, BAD}:
        return 2
    return 1 if BAD in words else 0


def _expected(given: str | None) -> int | tuple[str, ...]:
    return 0 if given is None else read_expected(given, Path.cwd(), _EXPECT)


def _missing(expected: int | tuple[str, ...], judged: Sequence[Rejudged]) -> list[str]:
    """Say which tests were not compared: one that is expected to fail may have been, in its run."""
    told = [
        (one.entry.test, {"status": PASSED if one.word in {GOOD, BAD} else one.entry.status})
        for one in judged
    ]
    return [missing] if expected and (missing := missing_tests(expected, told, _EXPECT)) else []


def _terms(arguments: argparse.Namespace, entries: Sequence[Entry]) -> Overrides:
    tolerances = None
    if arguments.tolerances:
        from pytest_npudump.compare.tolerances.rules import load_tolerances  # noqa: PLC0415 - yaml only where asked for

        tolerances = load_tolerances(arguments.tolerances)
    root = arguments.root or (Path.cwd() if arguments.golden_dir else None)
    places = terms_at(entries, root, arguments.golden_dir)
    return replace(places, preset=arguments.preset, tolerances=tolerances, numerics=arguments.numerics)


def _lines(judged: Sequence[Rejudged], *, verbose: bool) -> Iterator[str]:
    for one in judged:
        if one.word == GOOD and not one.why:
            continue
        result = None if one.is_doubtful else one.result
        yield f"{one.entry.test}: {_(one.word if result is None else result.status)}"
        if one.why:
            yield f"  {spoken(one.why)}"
        if result is not None and one.word != LEFT_OUT:
            yield from (f"  {line}" for line in verdict_lines(result, verbose=verbose))


def _summary(judged: Sequence[Rejudged]) -> str:
    counted = [one for one in judged if one.word != LEFT_OUT]
    left = len(judged) - len(counted)
    return summary_line([one.told() for one in counted]) + (
        _("; {left} left out").format(left=left) if left else ""
    )


def _earlier(results: Results) -> Iterator[str]:
    """Say which results the last session has not made: their tests may be gone, or have changed since."""
    before = [one for one in results.entries if results.session not in {"", one.data["session"]}]
    if not before:
        return
    oldest = min(before, key=lambda entry: str(entry.data["time"]))
    first = first_of([f"{oldest.test} ({oldest.data['time']})", *before[1:]], 1)
    yield ngettext(
        "npudump: {count} of {total} results is of an earlier session: {first}; {way_out}",
        "npudump: {count} of {total} results are of earlier sessions: {first}; {way_out}",
        len(before),
    ).format(
        count=len(before),
        total=len(results.entries),
        first=first,
        way_out=_("remove the folder and run all tests where it should be of one"),
    )


def _as_json(one: Rejudged) -> dict[str, Any]:
    told = {"test": one.entry.test, "verdict": one.word, "why": one.why or None, "was": one.entry.status}
    return told | ({} if one.result is None else full_json(one.result))
