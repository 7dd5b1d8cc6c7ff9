"""Public: two dumps compared, and a session's results, as what a notebook shows in charts and tables."""

from __future__ import annotations

from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pytest_npudump.cli.common.work import open_workers
from pytest_npudump.cli.compare import compare_sides, read_dump_side, read_golden_side, terms_of
from pytest_npudump.cli.compare_report import as_json
from pytest_npudump.compare.tolerances.rules import load_tolerances, undecided
from pytest_npudump.compare.tolerances.tolerance import Tolerances
from pytest_npudump.errors import DumpError
from pytest_npudump.report.charts import STYLE, WORDS, strip_svg
from pytest_npudump.report.verdicts import COLUMNS, plain, row, sentence
from pytest_npudump.report.view import (
    BAD,
    GOOD,
    LEFT_OUT,
    STATES,
    SessionView,
    TensorView,
    counted_once,
    tensor_views,
)
from pytest_npudump.results.folder import ResultsFolder
from pytest_npudump.results.rejudge import terms_at
from pytest_npudump.results.session_view import session_view

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from os import PathLike

    from pytest_npudump.compare.stats.verdict import Comparison

__all__ = ["DumpComparison", "SessionResults", "compare_dumps", "read_results"]


def framed(parts: Iterable[str]) -> str:
    """Return parts as one element with what their charts are drawn by."""
    style = f".npudump svg {{ max-width: 960px; width: 100%; }}\n{STYLE}"
    return f'<div class="npudump"><style>{style}</style>{"".join(parts)}</div>'


def table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return rows as a table; what cells hold stays text."""
    heads = "".join(f"<th>{escape(name)}</th>" for name in header)
    body = "".join(f"<tr>{cells(row)}</tr>" for row in rows)
    return f"<table><thead><tr>{heads}</tr></thead><tbody>{body}</tbody></table>"


def cells(row: Sequence[str]) -> str:
    """Return the cells of a row."""
    return "".join(f"<td>{escape(plain(cell))}</td>" for cell in row)


_ROWS, _STRIPS = 50, 5
"""Tests that a notebook has a row of, and failing ones that it draws."""


@dataclass(frozen=True, slots=True, eq=False)
class SessionResults:
    """The results of a session, as a page of them shows them.

    Attributes:
        folder: where they lie.
        problems: what of them could not be read; tests may be missing because of it.
    """

    folder: Path
    problems: tuple[str, ...]
    _view: SessionView

    @property
    def tests(self) -> dict[str, str]:
        """Status of each test by name, as the session's last line has it."""
        return {test.name: test.status for test in self._view.tests}

    @property
    def ok(self) -> bool:
        """Return whether a test was compared, and each passed that was not skipped or expected to fail."""
        words = {test.word for test in self._view.tests}
        return words - {LEFT_OUT} == {GOOD} and not self.problems

    def __repr__(self) -> str:
        """One line: how many tests are good, and the first that is not."""
        return f"<SessionResults: {self._headline()}>"

    def _headline(self) -> str:
        counted = [test for test in self._view.tests if test.word != LEFT_OUT]
        text = f"{self._view.count(GOOD)} of {len(counted)} tests passed"
        first = next((test for test in counted if test.word != GOOD), None)
        return (
            text if first is None else f"{text}; {plain(first.name)}: {plain(first.headline or first.status)}"
        )

    def _repr_html_(self) -> str:
        """Return HTML for a notebook: a line, a table of the tests, and strips of failing ones."""
        tests = self._view.tests
        parts = [f"<p><b>{escape(self._headline())}</b></p>"]
        if tests:
            rows = ((one.status, one.name, ", ".join(one.sources[:3]), one.headline) for one in tests[:_ROWS])
            parts.append(table(("status", "test", "sources", ""), rows))
        if len(tests) > _ROWS:
            parts.append(f"<p>... and {len(tests) - _ROWS} more</p>")
        for test in [test for test in tests if test.word == BAD and test.tensors][:_STRIPS]:
            label = "tensors in order of execution"
            parts.append(f"<p>{escape(plain(test.name))}</p>{strip_svg(test.tensors, label)}")
        parts += (f"<p>{escape(plain(problem))}</p>" for problem in self.problems)
        return framed(parts)


def read_results(folder: str | PathLike[str], *, root: str | PathLike[str] | None = None) -> SessionResults:
    """Read the results saved with ``--npudump-output``; tensors are judged by the present goldens.

    Args:
        folder: of the results.
        root: the repository, as pytest's rootdir; where a test of the results lies if none is named.

    Raises:
        ResultsError: there are none.
    """
    path = Path(folder)
    source = ResultsFolder(path)
    results = source.read()
    terms = terms_at(results.entries, None if root is None else Path(root), None)
    view = session_view(source, results.entries, terms, results.problems)
    return SessionResults(path, results.problems, view)


_TENSORS = 20
"""Failing tensors that a notebook shows."""


@dataclass(frozen=True, slots=True, eq=False)
class DumpComparison:
    """A golden file or a dump, and a dump that was judged against it.

    Attributes:
        golden, actual: what was compared.
        data: verdicts and numbers, as ``npudump compare --json`` has them.
        notes: what a reader should know.
        tensors: what charts show of the tensors, in order of execution.
    """

    golden: Path
    actual: Path
    data: dict[str, Any]
    notes: tuple[str, ...]
    tensors: tuple[TensorView, ...]
    _comparison: Comparison

    @property
    def ok(self) -> bool:
        """Return whether the tensors are the golden's and match, and values were compared."""
        return self._comparison.ok and not self._comparison.nothing_judged

    def __repr__(self) -> str:
        """Return one line: the number of matching tensors, and the first mismatch."""
        return f"<DumpComparison: {self._headline()}>"

    def _headline(self) -> str:
        comparison = self._comparison
        text = f"{comparison.passed} of {comparison.expected} tensors match"
        if comparison.nothing_judged:
            text += ", and no value was compared"
        return f"{text}; {plain(sentence(comparison.first))}" if comparison.first is not None else text

    def _repr_html_(self) -> str:
        """Return HTML for a notebook: a line, the strip, and a table of the first mismatches."""
        failing = self._comparison.mismatches
        strip = strip_svg(self.tensors, "tensors in order of execution")
        legend = " &middot; ".join(
            f"{count} {escape(WORDS[state])}"
            for state in STATES
            if (count := sum(one.state == state for one in self.tensors))
        )
        parts = [f"<p><b>{escape(self._headline())}</b></p>", strip, f"<p>{legend}</p>"]
        if failing:
            parts.append(table(COLUMNS, [row(verdict) for verdict in failing[:_TENSORS]]))
        if len(failing) > _TENSORS:
            parts.append(f"<p>... and {len(failing) - _TENSORS} more</p>")
        parts += (f"<p>note: {escape(plain(note))}</p>" for note in self.notes)
        return framed(parts)


def compare_dumps(
    golden: str | PathLike[str],
    actual: str | PathLike[str],
    *,
    preset: str = "",
    numerics: str = "same",
    tolerances: str | PathLike[str] | None = None,
    producer: Mapping[str, str] | None = None,
) -> DumpComparison:
    """Compare two dumps, or a golden file and a dump, as ``npudump compare`` does without options.

    Args:
        golden: a golden file, or a dump.
        actual: a dump's directory, or one file of a dump.
        preset: of tolerances; that of ``tolerances`` or the default one where none is named.
        numerics: which bounds the preset ``default`` stands for: ``same``, ``other`` or ``hf32``.
        tolerances: a YAML file of rules; none for the preset alone.
        producer: what is known of the run, ``{"soc": "Ascend910B3"}``, for rules that name a producer.

    Raises:
        DumpError: a side cannot be read, wholly or in part: what is left would not be the comparison.
        NpudumpError: there is no such preset, or the rules cannot be read.
    """
    base = load_tolerances(Path(tolerances)) if tolerances is not None else Tolerances()
    chosen = Tolerances(preset or base.preset, base.rules).under(numerics)
    facts = producer or {}
    judged_by = chosen.for_run(facts)
    one, other = Path(golden), Path(actual)
    with open_workers("threads") as workers:
        sides = read_golden_side(one, workers, latest=False), read_dump_side(other, workers, latest=False)
        result = compare_sides(*sides, terms_of(sides[0], judged_by, "ND"), workers)
    if result.problems:
        raise DumpError("; ".join(map(str, result.problems)))
    comparison = result.comparison
    first = [comparison.first.key] if comparison.first is not None else []
    views = counted_once(tensor_views(comparison, comparison.tolerances, first), comparison)
    left_out = (
        f"rule {rule.describe()} is left out: nothing tells {', '.join(untold)} of this run; producer= does"
        for rule, untold in undecided(chosen.rules, facts)
    )
    notes = (*result.notes, *left_out, *comparison.notes)
    return DumpComparison(one, other, as_json(result), notes, views, comparison)
