"""Features that only some sessions need, each a plugin object; one goes with its file and its rows below.

A feature is a module of this folder with ``feature(config, settings)``, which returns its plugin object:
its class, or a function. The object has hooks of pytest, and those of :class:`HookPoints`.
Its options and its condition stand here, since every session has them and few import the feature: what an
option is set to is ``OPTION.of(settings)``. Nothing else of the plugin knows a feature, but for
``plugin/collection.py``, which asks ``isolation``, and ``session_media``, which asks ``keeper``.
"""

from __future__ import annotations

import os
from importlib import import_module
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest

from pytest_npudump.plugin import _compat
from pytest_npudump.plugin.reporter import CHILD, reports_here
from pytest_npudump.report.media import MEDIA
from pytest_npudump.settings import Option, Settings, parse_seconds, parse_size

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from pytest_npudump.plugin.reporter import Reporter
    from pytest_npudump.plugin.runner import Runner
    from pytest_npudump.regression.result import Result
    from pytest_npudump.regression.session import CaseSession
    from pytest_npudump.request import DumpRequest
    from pytest_npudump.runtime.base import Runtime


ISOLATION_SECONDS = 1800.0


def _isolation(text: str, flag: str) -> str:
    if text not in {"auto", "process"}:
        parse_seconds(text, flag)
    return text


DEVICES = Option(
    "devices",
    default="",
    help="device ids, or auto (all healthy devices): each process uses a device of its own, locked while a "
    "test runs; default: LOCAL_RANK, else 0, without a lock",
    metavar="auto|IDS",
)
ISOLATION = Option(
    "isolation",
    default="auto",
    help="child processes: one for each marked test whose marker, scene or runtime needs it (auto, the "
    "default), or for each (process, or a number: its time limit in seconds; default "
    f"{ISOLATION_SECONDS:g})",
    metavar="auto|process|SECONDS",
    parse=_isolation,
)
EXPECT = Option(
    "expect",
    default="",
    help="number of marked tests, or a file with one test per line as printed by pytest --collect-only -q: "
    "the run fails if fewer, or not all of these, were compared",
    metavar="N|FILE",
)
OUTPUT_LIMIT = Option(
    "output-limit",
    default="none",
    help="maximum size of the output folder; beyond it the largest dump files are removed, and reported; "
    "none: no limit",
    metavar="SIZE",
    parse=lambda text, flag: None if text == "none" else parse_size(text, flag),
)
TENSOR_CACHE_LIMIT = Option(
    "tensor-cache-limit",
    default="10GiB",
    help="maximum size of cached golden tensors; the least recently used are removed first, none of the "
    "last five minutes",
    metavar="SIZE",
    parse=parse_size,
)
OF_MEDIA = tuple(medium.option for medium in MEDIA if medium.option is not None)


class Feature(NamedTuple):
    """A feature's row.

    Attributes:
        options: its options of pytest.
        wanted: whether it takes part in a session, by configuration and settings.
        early: from the start on; else once there is a marked test, or the first result of one.
        reports: only in the process that reports.
    """

    options: tuple[Option, ...] = ()
    wanted: Callable[[pytest.Config, Settings], object] = lambda *_: True
    early: bool = False
    reports: bool = False


def _is_expected(config: pytest.Config, settings: Settings) -> bool:
    """Return whether a test is expected, if only by an empty text: a variable of a job may not be set."""
    return bool(EXPECT.of(settings)) or EXPECT.dest in _compat.overrides(config)


def _is_shown(config: pytest.Config, settings: Settings) -> bool:
    """Return whether tests run, and there is an output folder, or a service that shows their summary."""
    service = "true" in {os.environ.get("GITHUB_ACTIONS"), os.environ.get("GITLAB_CI")}
    return bool(service or settings.output) and not config.option.collectonly


def _is_checked(config: pytest.Config, settings: Settings) -> bool:
    """Return whether tests run, and goldens or rules may be about none of them."""
    return bool(settings.fail_on == "stale" or settings.tolerances) and not config.option.collectonly


def _is_rank(_config: pytest.Config, _settings: Settings) -> bool:
    """Return whether this process is one of several ranks."""
    from pytest_npudump.ranks.rank import current_rank  # noqa: PLC0415 - behind the first marked test

    return current_rank() is not None


FEATURES = {
    "devices": Feature((DEVICES,), lambda _, settings: DEVICES.of(settings), early=True),
    "isolation": Feature((ISOLATION,), lambda config, _: not config.pluginmanager.has_plugin(CHILD)),
    "keeper": Feature((TENSOR_CACHE_LIMIT,)),
    "expectation": Feature((EXPECT,), _is_expected, early=True, reports=True),
    "session_media": Feature(
        OF_MEDIA, lambda _, settings: any(one.of(settings) for one in OF_MEDIA), early=True, reports=True
    ),
    "artifacts": Feature((OUTPUT_LIMIT,), _is_shown, early=True, reports=True),
    "stale_goldens": Feature(wanted=_is_checked, early=True, reports=True),
    "ranks": Feature(wanted=_is_rank),
    "memory_folder": Feature(wanted=lambda _, it: not it.output and it.keep_dumps != "all"),
    "repetitions": Feature(wanted=lambda _, settings: settings.approves),
}
"""Their hooks run in this order."""


def name_of(feature: str) -> str:
    """Return the name that a feature's plugin object is registered by."""
    return f"npudump-{feature}"


def feature_options() -> list[Option]:
    """Return the options of all features."""
    return [option for row in FEATURES.values() for option in row.options]


def register_features(config: pytest.Config, settings: Settings, *, early: bool) -> None:
    """Register the plugin objects of a moment, the last first: pluggy calls what was registered last.

    Raises:
        NpudumpError: what an option asks for cannot be.
    """
    for name, row in reversed(FEATURES.items()):
        here = not row.reports or reports_here(config)
        if row.early is early and here and row.wanted(config, settings):
            plugin = import_module(f"{__name__}.{name}").feature(config, settings)
            config.pluginmanager.register(plugin, name_of(name))


class HookPoints:
    """Hooks for features, besides pytest's own."""

    @pytest.hookspec(firstresult=True)
    def pytest_npudump_settings(self, runner: Runner, item: pytest.Item) -> Settings | None:
        """Return the settings that a test runs under, where they are not those of the session."""

    @pytest.hookspec(firstresult=True)
    def pytest_npudump_dumps_base(self, base: Path, request: DumpRequest | None) -> Path | None:
        """Return the folder below which a test dumps; ``request`` is that of a test on the emulator."""

    @pytest.hookspec(firstresult=True)
    def pytest_npudump_past_sources(self, request: DumpRequest, golden: Path) -> tuple[str, ...] | None:
        """Return the layers in which an earlier run of a test began to differ from its golden."""

    @pytest.hookspec(firstresult=True)
    def pytest_npudump_session(
        self, runner: Runner, item: pytest.Item, runtime: Runtime, settings: Settings
    ) -> CaseSession | None:
        """Return the record of a test that is about to run in this process."""

    @pytest.hookspec(firstresult=True)
    def pytest_npudump_run(
        self, runner: Runner, item: pytest.Item, nextitem: pytest.Item | None
    ) -> list[pytest.TestReport] | None:
        """Run a marked test, and return the reports that count."""

    def pytest_npudump_child_options(self, item: pytest.Item, options: dict[str, Any]) -> None:
        """Change the options of a pytest that runs one test for this one."""

    def pytest_npudump_judged(self, item: pytest.Item, test: CaseSession, result: Result) -> None:
        """A test's body has come to a result, which its report will have."""

    def pytest_npudump_ended(
        self, runner: Runner, item: pytest.Item, reports: Sequence[pytest.TestReport]
    ) -> None:
        """All of a test has ended; its reports are not logged yet."""

    def pytest_npudump_left(self, item: pytest.Item) -> None:
        """A test will not run again, whether it ended or the session did."""

    @pytest.hookspec(firstresult=True)
    def pytest_npudump_wanted(self) -> bool | None:
        """Return True to have the session's end reported though no marked test ran."""

    def pytest_npudump_check(self, reporter: Reporter) -> None:
        """Fail the session for a problem of its own, whatever its tests' results are."""

    def pytest_npudump_session_end(self, reporter: Reporter) -> None:
        """Write the session's files; whether it passes is known."""

    def pytest_npudump_summary(self, reporter: Reporter, terminalreporter: Any) -> None:
        """Print below the session's line."""
