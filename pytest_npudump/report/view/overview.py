"""A session and its tests, as pages show them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pytest_npudump.report.view.elements import ElementsView
    from pytest_npudump.report.view.neighbourhood import Neighbourhood
    from pytest_npudump.report.view.tensor_views import TensorView

GOOD, BAD, OPEN, LEFT_OUT = "good", "bad", "open", "left out"
"""What a test means: it passed, it failed, nothing can be said, or it was skipped or is expected to fail."""


@dataclass(frozen=True, slots=True)
class TestView:
    """One test.

    Attributes:
        name: its node id, and whose part of it where ranks judge by themselves.
        word: :data:`GOOD`, :data:`BAD`, :data:`OPEN` or :data:`LEFT_OUT`.
        status: in the plugin's words.
        runtime: what ran the model.
        headline: a failure in one line; "" for none.
        ways_out: what to do next; commands among it.
        text: the failure as a terminal shows it, in full.
        counts: numbers of tensors by what came of them.
        tensors: in order of execution; none where nothing was compared.
        sources: keys of failing tensors that no other explains.
        neighbourhoods: the graph around these.
        elements: what the second run showed, one a tensor.
        producers: facts of origin, as (name, of the golden, of this run); None where a side tells none.
        notes: what a reader should know.
        golden: the golden file.
        preset: of tolerances, and which bounds.
        when: it was judged, ISO 8601.
    """

    __test__ = False

    name: str
    word: str
    status: str
    runtime: str
    headline: str = ""
    ways_out: tuple[str, ...] = ()
    text: tuple[str, ...] = ()
    counts: Mapping[str, int] = field(default_factory=dict)
    tensors: tuple[TensorView, ...] = ()
    sources: tuple[str, ...] = ()
    neighbourhoods: tuple[Neighbourhood, ...] = ()
    elements: tuple[ElementsView, ...] = ()
    producers: tuple[tuple[str, str | None, str | None], ...] = ()
    notes: tuple[str, ...] = ()
    golden: str = ""
    preset: str = ""
    when: str = ""


@dataclass(frozen=True, slots=True)
class SessionView:
    """A session.

    Attributes:
        tests: in the order in which they ended; what failed comes first.
        problems: what could not be read; tests may be missing because of it.
        version: of this package.
    """

    tests: tuple[TestView, ...]
    problems: tuple[str, ...] = ()
    version: str = ""

    def count(self, word: str) -> int:
        """Number of tests with that word."""
        return sum(test.word == word for test in self.tests)
