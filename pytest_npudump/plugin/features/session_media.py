"""``--npudump-report`` and whatever else ``report/media.py`` offers: media of the session's marked tests."""

from __future__ import annotations

from contextlib import nullcontext
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from pytest_npudump.errors import MissingExtraError, NpudumpError, RequestError, said
from pytest_npudump.language import ENGLISH
from pytest_npudump.language.translation import gettext as _, speaking
from pytest_npudump.plugin.paths import has_place, kept_folder, results_path
from pytest_npudump.report.media import MEDIA, Medium

if TYPE_CHECKING:
    import pytest

    from pytest_npudump.plugin.reporter import Reporter
    from pytest_npudump.report.view import SessionView
    from pytest_npudump.settings import Settings


_PLACE = 4


class SessionMedia:
    """Writer of media at the end of the session, which reports their paths or problems.

    Raises:
        NpudumpError: one cannot be made, or there is no place for results.
    """

    def __init__(self, config: pytest.Config, settings: Settings) -> None:
        self._asked: list[tuple[Medium, str]] = []
        for medium in MEDIA:
            if medium.option is None or not medium.option.of(settings):
                continue
            flag, (package, extra) = medium.option.flag, medium.takes
            if package and find_spec(package) is None:
                raise MissingExtraError(flag, package, extra)
            if not settings.output and config.pluginmanager.is_blocked("cacheprovider"):
                raise RequestError(said("{flag} needs pytest's cache or --npudump-output", flag=flag))
            self._asked.append((medium, medium.option.name))

    def pytest_npudump_wanted(self) -> bool:
        """Ask for a look at the end of the session whatever ran."""
        return True

    def pytest_npudump_session_end(self, reporter: Reporter) -> None:
        """Write them, without marked tests too: an earlier session's would be taken for them."""
        name = "" if reporter.rank is None else f"rank{reporter.rank.number}"
        for medium, folder in self._asked:
            try:
                with nullcontext() if medium.spoken else speaking(ENGLISH):
                    view, why = _view(reporter)
                    written = medium.write(
                        view, kept_folder(reporter.config, reporter.settings) / folder, name
                    )
            except (OSError, NpudumpError) as error:
                reporter.say(_("no report: {error}").format(error=error), _PLACE)
                continue
            line = _("report: {path} has no tests: {unkept}") if why else _("report: {path}")
            for target in written:
                reporter.say(line.format(path=target, unkept=why), _PLACE)


feature = SessionMedia


def _view(reporter: Reporter) -> tuple[SessionView, str]:
    """Return the session's view for media, and why it is none of its tests though some ran.

    Raises:
        OSError: pytest's cache has no folder.
        NpudumpError: results cannot be read.
    """
    from pytest_npudump.report.view import SessionView  # noqa: PLC0415 - the same
    from pytest_npudump.results.folder import ResultsFolder  # noqa: PLC0415 - the same
    from pytest_npudump.results.rejudge import Overrides  # noqa: PLC0415 - the same
    from pytest_npudump.results.session_view import view_of_tests  # noqa: PLC0415 - the same

    config, problems = reporter.config, reporter.problems()
    keeper: Any = config.pluginmanager.get_plugin("npudump-keeper")
    kept = keeper.kept_tests(reporter) if keeper is not None else set()
    unkept = keeper.unkept_line(reporter) if keeper is not None and not kept else ""
    if not reporter.tests:
        return SessionView((), (_("No marked test ran in this session."), *problems)), ""
    if unkept or not has_place(config, reporter.settings):
        told = unkept or _("Results of this session were not saved.")
        return SessionView((), (told,)), unkept or _("results are not saved")
    folder = ResultsFolder(results_path(config, reporter.settings))
    return view_of_tests(folder, kept, Overrides(config.rootpath), problems), ""
