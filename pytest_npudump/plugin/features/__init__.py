"""Features that only some sessions need, each a plugin object; one goes with its file and its line below.

A feature is a module of this folder. It has some of

* ``OPTIONS``: its options of pytest, where it is ``EARLY``; what one is set to is ``OPTION.of(settings)``,
* ``at_start(config, settings)``: return its plugin object where an option asks for it, else None,
* ``with_tests(config, settings)``: the same once there is a marked test, or the first result of one.

The object has hooks of pytest, and those of :class:`HookPoints`. Nothing else of the plugin knows a feature,
but for ``plugin/collected.py``, which asks ``isolation``.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from pytest_npudump.plugin.runner import Runner
    from pytest_npudump.plugin.terminal.reporter import Reporter
    from pytest_npudump.regression.result import Result
    from pytest_npudump.regression.session import CaseSession
    from pytest_npudump.request import DumpRequest
    from pytest_npudump.runtime.base import Runtime
    from pytest_npudump.settings import Option, Settings

EARLY, LATE = "at_start", "with_tests"
FEATURES = {
    "devices": EARLY,
    "isolation": EARLY,
    "keeper": EARLY,
    "expectation": EARLY,
    "artifacts": EARLY,
    "session_media": EARLY,
    "stale_goldens": EARLY,
    "tensor_cache": EARLY,
    "idle_rules": LATE,
    "ranks": LATE,
    "memory_folder": LATE,
    "repetitions": LATE,
}
"""When each is imported: ``EARLY`` by every session, for its options, ``LATE`` by one with marked tests.

Hooks run in this order.
"""


def name_of(feature: str) -> str:
    """Return the name that a feature's plugin object is registered by."""
    return f"npudump-{feature}"


def feature_options() -> Iterator[Option]:
    """Yield the options of all features."""
    for feature, moment in FEATURES.items():
        if moment == EARLY:
            yield from getattr(import_module(f"{__name__}.{feature}"), "OPTIONS", ())


def register_features(config: pytest.Config, settings: Settings, moment: str) -> None:
    """Register the plugin objects of a moment, the last first: pluggy calls what was registered last.

    Raises:
        NpudumpError: what an option asks for cannot be.
    """
    for feature, first in reversed(FEATURES.items()):
        if moment == LATE or first == EARLY:
            make = getattr(import_module(f"{__name__}.{feature}"), moment, None)
            if make is not None and (plugin := make(config, settings)) is not None:
                config.pluginmanager.register(plugin, name_of(feature))


class HookPoints:
    """Where features take part, besides pytest's own hooks."""

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
        """Whether the end of the session is looked at though no marked test ran."""

    def pytest_npudump_check(self, reporter: Reporter) -> None:
        """Fail the session where something is wrong with it, whatever its tests say."""

    def pytest_npudump_session_end(self, reporter: Reporter) -> None:
        """Write what the session leaves; whether it passes is known."""

    def pytest_npudump_summary(self, reporter: Reporter, terminalreporter: Any) -> None:
        """Print below the line that says what was compared."""
