"""``npudump compare`` of two folders of kept results: what produced them first, then test by test."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pytest_npudump.cli.common.output import complain, present, screen
from pytest_npudump.cli.common.tolerance_options import tolerances_of_file, typed_rules
from pytest_npudump.cli.compare_report import verdict_table
from pytest_npudump.compare.correspondence import Correspondence
from pytest_npudump.compare.judge import RUN, Terms, judge
from pytest_npudump.compare.tolerances.presets import AUTO
from pytest_npudump.errors import NpudumpError, RequestError, said
from pytest_npudump.language.translation import gettext as _, spoken
from pytest_npudump.record.record import UNTOLD
from pytest_npudump.report.layer_names import LayerNames
from pytest_npudump.report.origins import mismatches
from pytest_npudump.results.folder import SKIPPED, Entry, Results, ResultsFolder, results_in
from pytest_npudump.results.rejudge import Overrides, check_types, read_record, run_of

if TYPE_CHECKING:
    from pytest_npudump.compare.stats.verdict import Comparison
    from pytest_npudump.compare.tolerances.tolerance import Rule


_SHOWN = 20


def run(arguments: argparse.Namespace) -> int:
    """Compare, print what differs, and return 0, 1 or 2."""
    # options about tensors or dumps, of which kept results have none
    given = {
        "--inputs": arguments.inputs,
        "--suggest": arguments.suggest,
        "--plots": arguments.plots,
        "--latest": arguments.latest,
        "--bin": arguments.bin,
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
    folders = [ResultsFolder(results_in(path)) for path in (arguments.golden, arguments.actual)]
    first, second = ((folder, folder.read()) for folder in folders)
    terms = Overrides(Path.cwd(), preset=arguments.preset or "", tolerances=tolerances_of_file(arguments))
    names = Correspondence.read(arguments.map) if arguments.map else None
    pairs = [*pair_results(first, second, terms, typed_rules(arguments), names)]
    problems = [*first[1].problems, *second[1].problems]
    # facts in which the runs of all tests that were compared differ alike
    told = [pair.origins for pair in pairs if pair.comparison is not None]
    shared = {
        name: both
        for name, both in (told[0] if told else {}).items()
        if all(one.get(name) == both for one in told)
    }
    present(
        arguments,
        lambda: {
            "origins": {name: [*both] for name, both in shared.items()},
            "tests": [pair.to_json() for pair in pairs],
            "problems": problems,
        },
        lines(pairs, shared, verbose=arguments.verbose),
    )
    complain(problems)
    if problems or not pairs or any(pair.problems for pair in pairs):
        return 2
    return 1 if any(pair.comparison and pair.comparison.failing for pair in pairs) else 0


def lines(
    pairs: Sequence[ResultPair], shared: Mapping[str, tuple[str, str]], *, verbose: bool
) -> Iterator[str]:
    """Yield the report: differing origins, and each test to be looked at."""
    compared = [pair for pair in pairs if pair.comparison is not None]
    if compared:
        yield from _origin_lines(shared, "")
        if not any(pair.origins for pair in compared):
            yield _("origin: no known difference")
    for pair in pairs:
        yield from _test_lines(pair, shared, verbose=verbose)
    differing = sum(bool(pair.comparison and pair.comparison.failing) for pair in pairs)
    left = len(pairs) - len(compared)
    words = _("{compared} of {count} tests compared; with mismatches: {differing}").format(
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
    failing = comparison.mismatches
    if not (failing or pair.problems or own or comparison.changed or verbose):
        return
    counted = mismatches(comparison)
    changed = (
        _(", {changed} changed within tolerance").format(changed=comparison.changed)
        if comparison.changed
        else ""
    )
    yield f"{pair.test}: {counted}{changed}"
    yield from _origin_lines(own, "  ")
    yield from (f"  {spoken(problem)}" for problem in pair.problems)
    if comparison.numerics is not None and failing:
        yield "  " + _("preset {numerics}").format(numerics=comparison.numerics.describe())
    yield from ("  " + _("note: {note}").format(note=spoken(note)) for note in comparison.notes)
    shown = failing if verbose else failing[:_SHOWN]
    if shown:
        names = LayerNames.of(comparison, screen())
        rows = verdict_table(shown, names)
        yield from (*names.legend(), *rows)
    if len(failing) > len(shown):
        yield "  " + _("... and {left} more (-v lists all)").format(left=len(failing) - len(shown))


@dataclass(frozen=True, slots=True)
class ResultPair:
    """One test in two folders of results.

    Attributes:
        test: as a person would name it, with its rank where it has one.
        origins: facts of origin in which the two runs differ, as ``name: (first, second)``.
        comparison: of the second run's statistics with the first's; None where there is none.
        problems: why there is no comparison, or why it does not tell everything; in words.
    """

    test: str
    origins: Mapping[str, tuple[str, str]]
    comparison: Comparison | None = None
    problems: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """Plain JSON data."""
        numerics = self.comparison.numerics if self.comparison is not None else None
        return {
            "test": self.test,
            "origins": {name: [*both] for name, both in self.origins.items()},
            "numerics": numerics.to_json() if numerics else None,
            "problems": [*self.problems],
            "comparison": self.comparison.to_json() if self.comparison else None,
        }


def pair_results(
    first: tuple[ResultsFolder, Results],
    second: tuple[ResultsFolder, Results],
    overrides: Overrides,
    rules: Sequence[Rule] = (),
    names: Correspondence | None = None,
) -> Iterator[ResultPair]:
    """Yield each test that either folder holds, in the order of the first, but those skipped in both.

    Args:
        first: the folder that stands in the place of a golden, and what it holds.
        second: the folder that is compared with it.
        overrides: preset, rules and numerics in place of those that the tests had; without numerics, what the
            producers of the two runs say.
        rules: rules that go before all others.
        names: which layers are which; None where all are called alike.
    """
    # Goldens of other variants are other files of the same test.
    ours, theirs = ({entry.name: entry for entry in results.entries} for _, results in (first, second))
    for name in dict.fromkeys([*ours, *theirs]):
        one, other = ours.get(name), theirs.get(name)
        if one is None or other is None:
            there = first[0].path if other is None else second[0].path
            yield ResultPair(name, {}, problems=(f"only {there} has a result of it",))
        elif not one.data["outcome"] == other.data["outcome"] == SKIPPED:
            yield _pair(name, (first[0], one), (second[0], other), overrides, rules, names=names)


def _pair(
    name: str,
    one: tuple[ResultsFolder, Entry],
    other: tuple[ResultsFolder, Entry],
    overrides: Overrides,
    rules: Sequence[Rule],
    *,
    names: Correspondence | None,
) -> ResultPair:
    # Revision first, then the facts of each producer.
    ours, theirs = (
        {fact: str(data[fact]) for fact in ("revision", "runtime") if data[fact]}
        | {fact: str(value) for fact, value in data["producer"].items()}
        for data in (one[1].data, other[1].data)
    )
    pairs = {fact: (ours.get(fact, UNTOLD), theirs.get(fact, UNTOLD)) for fact in {**ours, **theirs}}
    origins = {fact: (here, there) for fact, (here, there) in pairs.items() if here != there}
    if lacking := [*_lacking(*one), *_lacking(*other)]:
        return ResultPair(name, origins, problems=tuple(lacking))
    try:
        tolerances = overrides.tolerances_of(other[1])
        before, now = read_record(*one), run_of(read_record(*other), other[1])
        check_types(other[1], tolerances, before, now)
        terms = Terms(tolerances.extended(rules), option=overrides.numerics or AUTO, against=RUN, names=names)
        comparison = judge(before, now, terms)
    except NpudumpError as error:
        return ResultPair(name, origins, problems=(str(error),))
    problems = [*_unread(*one), *_unread(*other)]
    if comparison.nothing_judged:
        problems.append("the two runs share no value that can be compared")
    return ResultPair(name, origins, comparison, tuple(problems))


def _lacking(folder: ResultsFolder, entry: Entry) -> Iterator[str]:
    if not entry.record_file:
        why = entry.data["incomplete"] or next(iter(entry.data["refusals"]), "") or entry.status
        yield f"{folder.path} has no statistics of it: {why}"


def _unread(folder: ResultsFolder, entry: Entry) -> Iterator[str]:
    for problem in (entry.data["snapshot"] or {}).get("problems", ()):
        yield said("{path}: {problem}", path=folder.path, problem=problem)
