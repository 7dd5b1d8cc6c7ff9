"""The page of a session, where ``--npudump-report`` asks for one: written at its end, whatever came of it."""

from __future__ import annotations

from importlib.util import find_spec
from typing import TYPE_CHECKING

from pytest_npudump.errors import MissingExtraError, NpudumpError
from pytest_npudump.language.translation import gettext as _
from pytest_npudump.plugin.paths import keeps_results, results_path

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence
    from pathlib import Path

    import pytest

    from pytest_npudump.settings import Settings


def check_report() -> None:
    """Raise MissingExtraError where no page can be made."""
    if find_spec("jinja2") is None:
        raise MissingExtraError("--npudump-report", "jinja2", "report")


def write_report(
    config: pytest.Config,
    settings: Settings,
    tests: Collection[str],
    unkept: str,
    problems: Sequence[str],
    *,
    rank: int | None,
) -> str:
    """Write the page, and return the line that says where it is, or why it is not complete.

    A session without marked tests has a page, too: one that an earlier session left would be taken for its.

    Args:
        config: pytest's.
        settings: the options.
        tests: names of the marked tests of the session.
        unkept: why not all results are kept; "" where they are.
        problems: why the session does not pass, whatever its tests say.
        rank: of a distributed run, each of which writes a page of its own.
    """
    from pytest_npudump.report.view import SessionView  # noqa: PLC0415 - only where asked for
    from pytest_npudump.results.folder import ResultsFolder  # noqa: PLC0415 - the same
    from pytest_npudump.results.rejudge import Overrides  # noqa: PLC0415 - the same
    from pytest_npudump.results.session_page import INDEX, page_of_tests, write_page  # noqa: PLC0415 - the same

    target: Path = config.rootpath / settings.report / (INDEX if rank is None else f"rank{rank}.html")
    try:
        if not tests:
            write_page(SessionView((), (_("No marked test ran in this session."), *problems)), target)
        elif unkept or not keeps_results(config, settings):
            write_page(SessionView((), (unkept or _("Results of this session were not kept."),)), target)
            return _("report: {target} has no tests: {unkept}").format(
                target=target, unkept=unkept or _("results are not kept")
            )
        else:
            folder = ResultsFolder(results_path(config, settings))
            page_of_tests(folder, tests, Overrides(config.rootpath), target, problems)
    except (OSError, NpudumpError) as error:
        return _("no report: {error}").format(error=error)
    return _("report: {target}").format(target=target)
