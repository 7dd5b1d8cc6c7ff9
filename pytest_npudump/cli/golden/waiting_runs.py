"""The runs that the verbs of ``npudump golden`` are about: those that wait for a decision, or some."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_npudump.cli.common.output import to_stderr
from pytest_npudump.language.excerpt import first_of
from pytest_npudump.language.translation import gettext as _
from pytest_npudump.request import KnownNames
from pytest_npudump.results.acceptance import Pending, pending_of
from pytest_npudump.results.entry import LINES, ResultsError
from pytest_npudump.results.folder import ResultsFolder
from pytest_npudump.results.rejudge import terms_at

if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence

    from pytest_npudump.results.folder import Results

_CACHED = Path(".pytest_cache/d/npudump/results")
"""Where pytest's cache has them, unless ``cache_dir`` says otherwise."""


@dataclass(frozen=True, slots=True)
class WaitingRuns:
    """What a folder of results holds for a decision.

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
        """Whether all results can be read; says on standard error what cannot."""
        for problem in self.results.problems:
            to_stderr(f"npudump: {problem}")
        return not self.results.problems


def read_waiting(arguments: argparse.Namespace) -> WaitingRuns:
    """Return what the arguments name.

    Raises:
        ResultsError: there are no results, or an argument names no waiting run.
    """
    folder = ResultsFolder(arguments.results or _cached(Path.cwd()))
    results = folder.read()
    pending = pending_of(folder, results, terms_at(results.entries, arguments.root, arguments.golden_dir))
    tests = KnownNames((entry.test for entry in results.entries), choices=False)
    return WaitingRuns(folder, results, _chosen(pending, arguments.tests, tests))


def _cached(start: Path) -> Path:
    for folder in (start, *start.parents):
        if (folder / _CACHED / LINES).is_file():
            return folder / _CACHED
    raise ResultsError(
        _(
            "{start}: neither here nor in a folder above are results in {cached}: run the tests, or "
            "name the folder of results with --results"
        ).format(start=start, cached=_CACHED)
    )


def _chosen(pending: Sequence[Pending], names: Sequence[str], tests: KnownNames) -> tuple[Pending, ...]:
    """Return the runs of tests, of files, of classes, or of globs of one; ``tests`` are all that were run."""
    if not names:
        return tuple(pending)
    chosen: set[str] = set()
    for name in names:
        within = (f"{name}::", f"{name}[")
        meant = tests.called(name) or tests.meant([name]).union(
            one.entry.test for one in pending if one.entry.test.startswith(within)
        )
        chosen |= meant
        if not any(one.entry.test in meant for one in pending):
            known = first_of(one.entry.test for one in pending) or "none"
            raise ResultsError(
                _("{name}: names no run that waits for a decision; these do: {known}").format(
                    name=name, known=known
                )
            )
    return tuple(one for one in pending if one.entry.test in chosen)
