"""Isolation: a run of a marked test in a process of its own, a child pytest.

``parent`` is the runs as their parent sees them, ``child`` one from within, ``task`` what the one tells the
other. A child is a program of its own, or forked from a fork server (``server``) that has touched no device.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_npudump.errors import NpudumpError
from pytest_npudump.plugin import _compat
from pytest_npudump.plugin.features import ISOLATION, ISOLATION_SECONDS
from pytest_npudump.plugin.marker import request_of
from pytest_npudump.scene import SCENES

if TYPE_CHECKING:
    import pytest

    from pytest_npudump.plugin.runner import Runner
    from pytest_npudump.request import DumpRequest
    from pytest_npudump.settings import Settings


class Isolation:
    """Isolation of tests in processes of their own: by the marker, else by scene or runtime."""

    def __init__(self, _config: pytest.Config, settings: Settings) -> None:
        chosen: str = ISOLATION.of(settings)
        self._always = chosen != "auto"
        self._timeout = ISOLATION_SECONDS if chosen in {"auto", "process"} else float(chosen)

    def pytest_npudump_run(
        self, runner: Runner, item: pytest.Item, nextitem: pytest.Item | None
    ) -> list[pytest.TestReport] | None:
        """Run the test if it is such a one."""
        if not self._isolates(runner, item):
            return None
        from pytest_npudump.plugin.features.isolation.parent import run_isolated  # noqa: PLC0415 - with such a test

        return run_isolated(runner, item, nextitem, self._timeout)

    def _isolates(self, runner: Runner, item: pytest.Item) -> bool:
        from pytest_npudump.plugin.item_case import BAD, only_setup  # noqa: PLC0415 - the same

        if BAD in item.stash or only_setup(item) or _compat.may_be_skipped(item):
            return False
        try:
            choice = runner.runtime.chosen
        except NpudumpError:  # the test's setup will say it
            return False
        request = request_of(item)
        needs = request.isolation is None and not request.modules and choice.isolates(request.scene)
        return self.is_asked(request) or needs

    def is_asked(self, request: DumpRequest) -> bool:
        """Return whether a test is isolated whatever the runtime is."""
        if request.isolation is not None:
            return request.isolation == "process"
        return self._always or request.timeout is not None or SCENES[request.scene].own_process


feature = Isolation
