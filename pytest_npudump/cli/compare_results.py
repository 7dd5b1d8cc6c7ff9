"""``npudump compare`` of two folders of kept results: what produced them first, then test by test."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from pytest_npudump.cli.common.output import complain, present
from pytest_npudump.cli.common.tolerance_options import tolerances_of_file, typed_rules
from pytest_npudump.cli.compare_report import verdict_table
from pytest_npudump.errors import RequestError
from pytest_npudump.language.translation import gettext as _
from pytest_npudump.language.translation import spoken
from pytest_npudump.results.entry import results_in
from pytest_npudump.results.folder import ResultsFolder
from pytest_npudump.results.rejudge import Overrides
from pytest_npudump.results.result_pairs import pair_results, shared_origins

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator, Mapping, Sequence

    from pytest_npudump.results.result_pairs import ResultPair


_SHOWN = 20


def run(arguments: argparse.Namespace) -> int:
    """Compare, print what differs, and return 0, 1 or 2."""
    _refuse_others(arguments)
    folders = [ResultsFolder(results_in(path)) for path in (arguments.golden, arguments.actual)]
    first, second = ((folder, folder.read()) for folder in folders)
    terms = Overrides(
        Path.cwd(),
        preset=arguments.preset or "",
        tolerances=tolerances_of_file(arguments),
    )
    pairs = [*pair_results(first, second, terms, typed_rules(arguments))]
    problems = [*first[1].problems, *second[1].problems]
    origins = {name: [*both] for name, both in shared_origins(pairs).items()}
    present(
        arguments,
        lambda: {"origins": origins, "tests": [pair.to_json() for pair in pairs], "problems": problems},
        lines(pairs, verbose=arguments.verbose),
    )
    complain(problems)
    if problems or not pairs or any(pair.problems for pair in pairs):
        return 2
    return 1 if any(pair.comparison and pair.comparison.failing for pair in pairs) else 0


def lines(pairs: Sequence[ResultPair], *, verbose: bool) -> Iterator[str]:
    """Yield the report: what differs in the origin of all tests, and each test that is to be looked at."""
    shared = shared_origins(pairs)
    compared = [pair for pair in pairs if pair.comparison is not None]
    if compared:
        yield from _origin_lines(shared, "")
        if not any(pair.origins for pair in compared):
            yield _("origin: nothing that is known of the two differs")
    for pair in pairs:
        yield from _test_lines(pair, shared, verbose=verbose)
    differing = sum(bool(pair.comparison and pair.comparison.failing) for pair in pairs)
    left = len(pairs) - len(compared)
    words = _("{compared} of {count} tests compared, {differing} differ").format(
        compared=len(compared), count=len(pairs), differing=differing
    )
    yield words + (_("; {left} could not be compared").format(left=left) if left else "")


def _origin_lines(origins: Mapping[str, tuple[str, str]], indent: str) -> Iterator[str]:
    for name, (one, other) in origins.items():
        yield indent + _("origin: {name} {one} -> {other}").format(name=name, one=one, other=other)


def _test_lines(pair: ResultPair, shared: Mapping[str, tuple[str, str]], *, verbose: bool) -> Iterator[str]:
    comparison = pair.comparison
    own = {name: both for name, both in pair.origins.items() if shared.get(name) != both}
    if comparison is None:
        yield _("{test}: not compared").format(test=pair.test)
        yield from (f"  {spoken(problem)}" for problem in pair.problems)
        return
    failing = comparison.failing
    if not (failing or pair.problems or own or comparison.changed or verbose):
        return
    counted = _("{count} of {expected} tensors differ").format(
        count=len(failing), expected=comparison.expected
    )
    changed = (
        _(", {changed} changed within tolerance").format(changed=comparison.changed)
        if comparison.changed
        else ""
    )
    yield f"{pair.test}: {counted}{changed}"
    yield from _origin_lines(own, "  ")
    yield from (f"  {spoken(problem)}" for problem in pair.problems)
    if comparison.numerics is not None and failing:
        yield "  " + _("bounds {numerics}").format(numerics=comparison.numerics.describe())
    yield from ("  " + _("note: {note}").format(note=spoken(note)) for note in comparison.notes)
    shown = failing if verbose else failing[:_SHOWN]
    if shown:
        yield from verdict_table(shown)
    if len(failing) > len(shown):
        yield "  " + _("... and {left} more (-v lists all)").format(left=len(failing) - len(shown))


def _refuse_others(arguments: argparse.Namespace) -> None:
    """Refuse options that are about tensors or dumps, of which kept results have none."""
    given = {
        "--what-if": arguments.what_if,
        "--inputs": arguments.inputs,
        "--map": arguments.map,
        "--suggest": arguments.suggest,
        "--plots": arguments.plots,
        "--latest": arguments.latest,
        "--producer": arguments.producer,
        "--layout": arguments.layout != "ND",
    }
    for flag, value in given.items():
        if value:
            raise RequestError(
                _("{flag} needs tensors; saved results contain only statistics: remove {flag}").format(
                    flag=flag
                )
            )
