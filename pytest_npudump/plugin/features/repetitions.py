"""Repeated tests in an update: the first repetition records the golden, later ones are compared with it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from pytest_npudump.errors import said
from pytest_npudump.regression.result import RECORDED, UNCHANGED

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from pytest_npudump.plugin.runner import Runner
    from pytest_npudump.settings import Settings

_COMPARES = pytest.StashKey[bool]()
"""True if a repetition is compared with an earlier one's recording."""


class Repetitions:
    """Recordings of this session: later items of the same test are compared with them."""

    def __init__(self, _config: pytest.Config, settings: Settings) -> None:
        self._settings = settings
        self._recorded: dict[Path, pytest.Item] = {}

    def pytest_npudump_settings(self, runner: Runner, item: pytest.Item) -> Settings | None:
        """Let a later repetition record nothing."""
        if not self._settings.update_golden or self._recorded.get(self._golden(runner, item), item) is item:
            return None
        item.stash[_COMPARES] = True
        return self._settings._replace(update_golden="", calibrate=0)

    def pytest_npudump_child_options(self, item: pytest.Item, options: dict[str, Any]) -> None:
        """Let the process of a later repetition record nothing."""
        if item.stash.get(_COMPARES, False):
            options["npudump_update_golden"] = options["npudump_calibrate"] = None

    def pytest_npudump_ended(
        self, runner: Runner, item: pytest.Item, reports: Sequence[pytest.TestReport]
    ) -> None:
        """Remember the recording of a repetition; note the one that a later repetition was compared with."""
        if item.stash.get(_COMPARES, False):
            words = said(
                "an earlier repetition recorded the golden in this run, and this one is compared with it"
            )
            for report in reports:
                report.sections.append(("npudump", words))
        elif self._settings.update_golden:
            heard = {vars(report).get("npudump", {}).get("status") for report in reports}
            if heard & {RECORDED, UNCHANGED}:
                self._recorded[self._golden(runner, item)] = item

    def _golden(self, runner: Runner, item: pytest.Item) -> Path:
        return runner.paths.golden(item, self._settings.golden_variant)


feature = Repetitions
