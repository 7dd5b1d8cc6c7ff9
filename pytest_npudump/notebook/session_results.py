"""The HTML that results in a notebook are made of."""

from __future__ import annotations

from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_npudump.report.charts import STYLE, strip_svg
from pytest_npudump.report.verdicts import plain
from pytest_npudump.report.view import BAD, GOOD, LEFT_OUT
from pytest_npudump.results.folder import ResultsFolder
from pytest_npudump.results.rejudge import terms_at
from pytest_npudump.results.session_view import session_view

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from os import PathLike

    from pytest_npudump.report.view import SessionView, TestView


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
        """What came of each test, by its name: its status, as the session's last line has it."""
        return {test.name: test.status for test in self._view.tests}

    @property
    def ok(self) -> bool:
        """Whether a test was compared, and each passed that was not skipped or expected to fail."""
        words = {test.word for test in self._view.tests}
        return words - {LEFT_OUT} == {GOOD} and not self.problems

    def __repr__(self) -> str:
        """One line: how many tests are good, and the first that is not."""
        return f"<SessionResults: {self._headline()}>"

    def _headline(self) -> str:
        counted = [test for test in self._view.tests if test.word != LEFT_OUT]
        text = f"{self._view.count(GOOD)} of {len(counted)} tests good"
        first = next((test for test in counted if test.word != GOOD), None)
        return (
            text if first is None else f"{text}; {plain(first.name)}: {plain(first.headline or first.status)}"
        )

    def _repr_html_(self) -> str:
        """Return what a notebook shows: a line, a table of the tests, and strips of failing ones."""
        tests = self._view.tests
        parts = [f"<p><b>{escape(self._headline())}</b></p>"]
        if tests:
            parts.append(table(("status", "test", "sources", ""), [*map(_row, tests[:_ROWS])]))
        if len(tests) > _ROWS:
            parts.append(f"<p>... and {len(tests) - _ROWS} more</p>")
        for test in [test for test in tests if test.word == BAD and test.tensors][:_STRIPS]:
            label = f"{len(test.tensors)} tensors in order of execution"
            parts.append(f"<p>{escape(plain(test.name))}</p>{strip_svg(test.tensors, label)}")
        parts += (f"<p>{escape(plain(problem))}</p>" for problem in self.problems)
        return framed(parts)


def _row(test: TestView) -> tuple[str, ...]:
    return test.status, test.name, ", ".join(test.sources[:3]), test.headline


def read_results(folder: str | PathLike[str], *, root: str | PathLike[str] | None = None) -> SessionResults:
    """Read what a session kept; tensors are judged by the goldens as they are now.

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
