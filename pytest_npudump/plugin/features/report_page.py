"""``--npudump-report``: a page of the session's marked tests, for a browser."""

from __future__ import annotations

from importlib.util import find_spec
from typing import TYPE_CHECKING

from pytest_npudump.errors import MissingExtraError, NpudumpError
from pytest_npudump.plugin.features import REPORT
from pytest_npudump.plugin.features.keeper import IN_PLACE_OF_A_CACHE, has_place, results_path
from pytest_npudump.plugin.reporter import reports_here

if TYPE_CHECKING:
    import pytest

    from pytest_npudump.plugin.features.keeper import Keeper
    from pytest_npudump.plugin.reporter import Reporter
    from pytest_npudump.settings import Settings

_PLACE = 4


def feature(config: pytest.Config, settings: Settings) -> ReportPage | None:
    """Return what writes the page; the results that it is of need a place.

    Raises:
        MissingExtraError: no page can be made.
    """
    if find_spec("jinja2") is None:
        raise MissingExtraError("--npudump-report", "jinja2", "report")
    folder = REPORT.of(settings)
    config.stash[IN_PLACE_OF_A_CACHE] = f"{folder}/results"
    return ReportPage(folder) if reports_here(config) else None


class ReportPage:
    """Writes the page once the session has ended, and says where it is or why it is not complete."""

    def __init__(self, folder: str) -> None:
        self._folder = folder

    def pytest_npudump_wanted(self) -> bool:
        """Say that the end of the session is looked at whatever ran."""
        return True

    def pytest_npudump_session_end(self, reporter: Reporter) -> None:
        """Write the page, without marked tests too: an earlier session's would be taken for it."""
        from pytest_npudump.language.translation import gettext as _  # noqa: PLC0415 - where asked for
        from pytest_npudump.report.view import SessionView  # noqa: PLC0415 - the same
        from pytest_npudump.results.folder import ResultsFolder  # noqa: PLC0415 - the same
        from pytest_npudump.results.rejudge import Overrides  # noqa: PLC0415 - the same
        from pytest_npudump.results.session_page import INDEX, page_of_tests, write_page  # noqa: PLC0415 - the same

        config, problems = reporter.config, reporter.problems()
        keeper: Keeper | None = config.pluginmanager.get_plugin("npudump-keeper")
        kept = keeper.kept_tests(reporter) if keeper is not None else set()
        unkept = keeper.unkept_line(reporter) if keeper is not None and not kept else ""
        name = INDEX if reporter.rank is None else f"rank{reporter.rank.number}.html"
        target = config.rootpath / self._folder / name
        line = _("report: {target}")
        try:
            if not reporter.tests:
                write_page(SessionView((), (_("No marked test ran in this session."), *problems)), target)
            elif unkept or not has_place(config, reporter.settings):
                write_page(SessionView((), (unkept or _("Results of this session were not kept."),)), target)
                line = _("report: {target} has no tests: {unkept}")
            else:
                folder = ResultsFolder(results_path(config, reporter.settings))
                page_of_tests(folder, kept, Overrides(config.rootpath), target, problems)
        except (OSError, NpudumpError) as error:
            reporter.say(_("no report: {error}").format(error=error), _PLACE)
        else:
            why = unkept or _("results are not kept")
            reporter.say(line.format(target=target, unkept=why), _PLACE)
