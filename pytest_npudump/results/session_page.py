"""The page of kept results as a file."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_npudump.report.html.page import page
from pytest_npudump.results.entry import ResultsError
from pytest_npudump.results.session_view import session_view
from pytest_npudump.storage.atomic import write_whole

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence
    from pathlib import Path

    from pytest_npudump.report.view import SessionView
    from pytest_npudump.results.folder import ResultsFolder
    from pytest_npudump.results.rejudge import Overrides

INDEX = "index.html"


def write_page(view: SessionView, target: Path) -> None:
    """Write the page of a session, whole or not at all; folders that lack are made.

    Args:
        view: the session.
        target: the file.

    Raises:
        MissingExtraError: jinja2 is not installed.
        ResultsError: it cannot be written.
    """
    text = page(view)
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        write_whole(target, [text.encode("utf-8", "backslashreplace")])
    except OSError as error:
        raise ResultsError(f"{target}: the report cannot be written: {error.strerror or error}") from error


def page_of_tests(
    folder: ResultsFolder,
    tests: Collection[str],
    terms: Overrides,
    target: Path,
    problems: Sequence[str] = (),
) -> None:
    """Write the page of the tests of one session, of all that a folder holds.

    Args:
        folder: of results.
        tests: names of those of the session.
        terms: where goldens lie.
        target: the file.
        problems: why the session does not pass, whatever these say.

    Raises:
        MissingExtraError: jinja2 is not installed.
        ResultsError: results cannot be read, or the page cannot be written.
    """
    results = folder.read()
    entries = [entry for entry in results.entries if entry.test in tests]
    write_page(session_view(folder, entries, terms, (*problems, *results.problems)), target)
