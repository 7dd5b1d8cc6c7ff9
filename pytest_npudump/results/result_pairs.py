"""Two folders of kept results, test by test: what produced each, and how their statistics differ."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pytest_npudump.compare.judge import RUN, Terms, judge
from pytest_npudump.compare.tolerances.presets import AUTO, UNKNOWN
from pytest_npudump.errors import NpudumpError, said
from pytest_npudump.results.entry import SKIPPED
from pytest_npudump.results.rejudge import check_types, read_record, run_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from pytest_npudump.compare.stats.verdict import Comparison
    from pytest_npudump.compare.tolerances.tolerance import Rule
    from pytest_npudump.results.entry import Entry
    from pytest_npudump.results.folder import Results, ResultsFolder
    from pytest_npudump.results.rejudge import Overrides


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
) -> Iterator[ResultPair]:
    """Yield each test that either folder holds, in the order of the first, but those skipped in both.

    Args:
        first: the folder that stands in the place of a golden, and what it holds.
        second: the folder that is compared with it.
        overrides: preset, rules and numerics in place of those that the tests had; without numerics, what the
            producers of the two runs say.
        rules: rules that go before all others.
    """
    # Goldens of other variants are other files of the same test.
    ours, theirs = ({name_of(entry): entry for entry in results.entries} for _, results in (first, second))
    for name in dict.fromkeys([*ours, *theirs]):
        one, other = ours.get(name), theirs.get(name)
        if one is None or other is None:
            there = first[0].path if other is None else second[0].path
            yield ResultPair(name, {}, problems=(f"only {there} has a result of it",))
        elif not one.data["outcome"] == other.data["outcome"] == SKIPPED:
            yield _pair(name, (first[0], one), (second[0], other), overrides, rules)


def shared_origins(pairs: Iterable[ResultPair]) -> dict[str, tuple[str, str]]:
    """Return the facts in which the runs of all tests that were compared differ alike."""
    compared = [pair.origins for pair in pairs if pair.comparison is not None]
    if not compared:
        return {}
    return {
        name: both
        for name, both in compared[0].items()
        if all(origins.get(name) == both for origins in compared)
    }


def name_of(entry: Entry) -> str:
    """Return the name of a test, with the rank that ran it where there are several."""
    rank = entry.data["rank"]
    return entry.test if rank is None else f"{entry.test} (rank {rank})"


def _pair(
    name: str,
    one: tuple[ResultsFolder, Entry],
    other: tuple[ResultsFolder, Entry],
    overrides: Overrides,
    rules: Sequence[Rule],
) -> ResultPair:
    # Revision first, then the facts of each producer.
    ours, theirs = (
        {fact: str(data[fact]) for fact in ("revision", "runtime") if data[fact]}
        | {fact: str(value) for fact, value in data["producer"].items()}
        for data in (one[1].data, other[1].data)
    )
    pairs = {fact: (ours.get(fact, UNKNOWN), theirs.get(fact, UNKNOWN)) for fact in {**ours, **theirs}}
    origins = {fact: (here, there) for fact, (here, there) in pairs.items() if here != there}
    lacking = [*_lacking(*one), *_lacking(*other)]
    if lacking:
        return ResultPair(name, origins, problems=tuple(lacking))
    try:
        tolerances = overrides.judging(other[1]).tolerances
        before, now = read_record(*one), run_of(read_record(*other), other[1])
        check_types(other[1], tolerances, before, now)
    except NpudumpError as error:
        return ResultPair(name, origins, problems=(str(error),))
    terms = Terms(tolerances.extended(rules), option=overrides.numerics or AUTO, against=RUN)
    comparison = judge(before, now, terms)
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
