"""``npudump check``: kept results judged again, as the plugin judges a run."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pytest_npudump.cli.common.output import complain, present
from pytest_npudump.cli.common.project import last_results
from pytest_npudump.cli.common.tolerance_options import tolerances_of_file
from pytest_npudump.compare.tolerances.presets import AUTO
from pytest_npudump.compare.tolerances.tolerance import DEFAULT, Tolerances
from pytest_npudump.language.text import first_of
from pytest_npudump.language.translation import gettext as _, ngettext, spoken
from pytest_npudump.regression.result import FAILED, NOT_COMPARED, PASSED, idle_everywhere
from pytest_npudump.report.result_json import full_json
from pytest_npudump.report.summary import PAGE, remarks, summary_line
from pytest_npudump.report.terminal import verdict_lines
from pytest_npudump.results.expected_tests import missing_tests, read_expected
from pytest_npudump.results.rejudge import (
    BAD,
    GOOD,
    LEFT_OUT,
    UNJUDGED,
    Rejudged,
    other_goldens,
    rejudge,
    terms_at,
)

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator, Sequence

    from pytest_npudump.results.folder import Results


_EXPECT = "--expect"


def run(arguments: argparse.Namespace) -> int:
    """Judge, print what came of it, and return 0, 1 or 2."""
    expected = 0 if arguments.expect is None else read_expected(arguments.expect, Path.cwd(), _EXPECT)
    Tolerances(arguments.preset or DEFAULT)  # a wrong one is told once
    folder = last_results(arguments.results)
    results = folder.read()
    root = arguments.root or (Path.cwd() if arguments.golden_dir else None)
    terms = replace(
        terms_at(results.entries, root, arguments.golden_dir),
        preset=arguments.preset,
        tolerances=tolerances_of_file(arguments),
        numerics=AUTO if arguments.preset == DEFAULT else "",
    )
    judged = [rejudge(folder, entry, terms) for entry in results.entries]
    counted = [one.told() for one in judged if one.word != LEFT_OUT]
    left = len(judged) - len(counted)
    # One that is expected to fail may have been compared, in its run.
    compared = [(one.entry.test, PASSED if one.word in {GOOD, BAD} else one.entry.status) for one in judged]
    missing = missing_tests(expected, [(test, {"status": word}) for test, word in compared], _EXPECT)
    problems = [*results.problems, *([missing] if expected and missing else [])]
    present(
        arguments,
        lambda: {"tests": [*map(_as_json, judged)], "problems": problems},
        [
            *_lines(judged, verbose=arguments.verbose, as_it_was=not terms.changed),
            *_earlier(results),
            *(f"npudump: {words}" for words in other_goldens(judged)),
            *(f"npudump: {words}" for words in remarks(counted)),
            summary_line(counted, page=PAGE) + (_("; {left} left out").format(left=left) if left else ""),
        ],
    )
    # rules of files that decide about no tensor of any of the judged tests
    outcomes = [one.result for one in judged if one.result is not None]
    idle = idle_everywhere([one.idle_rules for one in outcomes if one.comparison is not None])
    words_of_rule = _("the rule {rule} matches no tensor of these tests")
    complain([*problems, *(words_of_rule.format(rule=rule) for rule in idle)])
    words = {one.word for one in judged}
    if problems or UNJUDGED in words or not words & {GOOD, BAD}:
        return 2
    return 1 if BAD in words else 0


def _lines(judged: Sequence[Rejudged], *, verbose: bool, as_it_was: bool) -> Iterator[str]:
    for one in judged:
        if one.word == GOOD and not one.why:
            continue
        result = None if one.is_doubtful else one.result
        word = one.word if result is None else result.status
        text = _({GOOD: PASSED, BAD: FAILED, UNJUDGED: NOT_COMPARED}.get(word, word))
        yield _("{value}: {text}").format(value=one.entry.test, text=text)
        if one.why:
            yield f"  {spoken(one.why)}"
        if result is not None and one.word != LEFT_OUT:
            told = one.failure if as_it_was else ("", *one.failure[1:])  # the first may name tolerances
            yield from (f"  {line}" for line in verdict_lines(result, told, verbose=verbose, margin=2))
            if not one.failure and (one.entry.data.get("failure") or {}).get("why"):
                yield "  " + _("evidence:   the run's is left out, as its golden has changed since")


def _earlier(results: Results) -> Iterator[str]:
    """List results that the last session has not made: their tests may be gone, or have changed since."""
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
        way_out=_("for results of one session, remove the folder and run all tests"),
    )


def _as_json(one: Rejudged) -> dict[str, Any]:
    told = {"test": one.entry.test, "verdict": one.word, "why": one.why or None, "was": one.entry.status}
    return told | ({} if one.result is None else full_json(one.result))
