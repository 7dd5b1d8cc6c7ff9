"""What other tolerances would have made of the same kept results, beside the verdicts that count."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from pytest_npudump.cli.check.unmatched_rules import idle_lines
from pytest_npudump.cli.compare import what_if
from pytest_npudump.cli.compare.what_if import Alternative, other_tolerances
from pytest_npudump.compare.tolerances.presets import PRESETS
from pytest_npudump.language.translation import gettext as _
from pytest_npudump.language.translation import spoken
from pytest_npudump.results.rejudge import BAD, GOOD, LEFT_OUT, UNJUDGED, rejudge
from pytest_npudump.results.result_pairs import name_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from pytest_npudump.results.folder import ResultsFolder
    from pytest_npudump.results.rejudge import Overrides, Rejudged


@dataclass(frozen=True, slots=True)
class OtherVerdicts:
    """The results under other tolerances.

    Attributes:
        tensors: those of all tests; each key is behind the name of its test.
        missed: tests that fail as judged, and would pass.
        caught: tests that pass as judged, and would fail.
        unjudged: why tests could not be judged by these tolerances, by test.
        idle: what is to be said of the file's rules that match no tensor of these tests.
    """

    tensors: Alternative
    missed: tuple[str, ...]
    caught: tuple[str, ...]
    unjudged: dict[str, str]
    idle: tuple[str, ...] = ()

    @classmethod
    def of(cls, name: str, judged: Sequence[Rejudged], others: Sequence[Rejudged]) -> OtherVerdicts:
        """Return what differs between two judgements of the same results, test by test.

        Args:
            name: of the other tolerances.
            judged: as it counts.
            others: by the other tolerances, in the same order.
        """
        counted = [pair for pair in zip(judged, others, strict=True) if pair[0].word != LEFT_OUT]
        found = list(filter(None, (_tensors(name, *pair) for pair in counted)))
        tensors = Alternative(
            name,
            sum(one.failing for one in found),
            tuple(key for one in found for key in one.missed),
            tuple(key for one in found for key in one.caught),
        )
        words = {name_of(one.entry): (one.word, other.word) for one, other in counted}
        return cls(
            tensors,
            tuple(test for test, both in words.items() if both == (BAD, GOOD)),
            tuple(test for test, both in words.items() if both == (GOOD, BAD)),
            {name_of(other.entry): other.why for _one, other in counted if other.word == UNJUDGED},
            () if name in PRESETS else tuple(idle_lines(others)),
        )

    def to_json(self) -> dict[str, Any]:
        """Plain JSON data."""
        tests = {"missed_tests": [*self.missed], "caught_tests": [*self.caught], "unjudged": self.unjudged}
        return self.tensors.to_json() | tests


def other_verdicts(
    names: Sequence[str], folder: ResultsFolder, judged: Sequence[Rejudged], terms: Overrides
) -> list[OtherVerdicts]:
    """Judge the results by each of the tolerances called ``names``: presets, or YAML files of rules.

    Args:
        names: as the command line gives them; each stands in the place of ``--preset`` or ``--tolerances``.
        folder: where the results lie.
        judged: the results as they count.
        terms: by which they were judged.

    Raises:
        RequestError: a name is neither of a preset nor of a file, or the file cannot be read.
    """
    tried = {name: _terms_of(name, terms) for name in names}
    return [
        OtherVerdicts.of(name, judged, [rejudge(folder, one.entry, other) for one in judged])
        for name, other in tried.items()
    ]


def lines(found: Sequence[OtherVerdicts]) -> Iterator[str]:
    """Yield a line for each, and one for each test that it leaves without a verdict."""
    for one in found:
        yield from what_if.lines([one.tensors])
        for test, why in one.unjudged.items():
            words = _("what if {name}: {test} cannot be judged: {why}")
            yield words.format(name=one.tensors.name, test=test, why=spoken(why))


def idle_lines_of(found: Iterable[OtherVerdicts]) -> Iterator[str]:
    """Yield a line for each rule that matches no tensor of these tests, with the file that has it."""
    for one in found:
        yield from (f"{what_if.given(one.tensors.name)}: {line}" for line in one.idle)


def _terms_of(name: str, terms: Overrides) -> Overrides:
    if name in PRESETS:
        return replace(terms, preset=name)
    return replace(terms, preset="", tolerances=other_tolerances(name))


def _tensors(name: str, one: Rejudged, other: Rejudged) -> Alternative | None:
    """Return what becomes of a test's tensors; None where these are not compared, whatever the tolerances."""
    if one.result is None or other.result is None:
        return None
    judged, tried = one.result.comparison, other.result.comparison
    if judged is None or tried is None:
        return None
    found = Alternative.of(name, judged, tried)
    test = name_of(one.entry)
    missed, caught = (tuple(f"{test} {key}" for key in keys) for keys in (found.missed, found.caught))
    return replace(found, missed=missed, caught=caught)
