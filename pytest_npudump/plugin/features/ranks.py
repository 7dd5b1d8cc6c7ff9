"""Distributed runs: this process is one of several ranks, which run the same and report differences."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pytest_npudump.errors import ConfigError, said
from pytest_npudump.plugin.item_case import EXCHANGE
from pytest_npudump.plugin.marker import Identity
from pytest_npudump.plugin.reporter import CHILD, Reporter
from pytest_npudump.ranks.agreement import compare_notes, printed, stand_aside
from pytest_npudump.ranks.rank import Exchange, current_rank

if TYPE_CHECKING:
    import pytest

    from pytest_npudump.settings import Settings


def feature(config: pytest.Config, settings: Settings) -> Ranks:
    """Return the exchange with the other ranks of a distributed run.

    Raises:
        ConfigError: the ranks cannot meet, or are to calibrate.
    """
    rank = current_rank()
    assert rank is not None  # noqa: S101 - else this feature is not wanted
    child: Any = config.pluginmanager.get_plugin(CHILD)
    exchange = Exchange(rank, child.task.meeting_place if child is not None else None)
    if settings.calibrate:
        raise ConfigError(
            said(
                "--npudump-update-golden=calibrate needs one process, and this one is {rank}: calibrate "
                "with one rank, or give the layers a rule",
                rank=rank,
            )
        )
    config.stash[EXCHANGE] = exchange
    return Ranks(exchange)


class Ranks:
    """One rank's part: nobody waits for it in vain."""

    def __init__(self, exchange: Exchange) -> None:
        self._exchange = exchange

    def pytest_npudump_left(self, item: pytest.Item) -> None:
        """Decide the open questions of a test."""
        stand_aside(self._exchange, str(Identity.of(item)))

    def pytest_npudump_summary(self, reporter: Reporter, terminalreporter: Any) -> None:
        """Print the ranks that differ, on rank 0."""
        if not reporter.tests:
            return
        failures = dict.fromkeys((str(result["test"]) for result in reporter.results), "")
        for test in reporter.tests.values():
            if test.failed:
                words = test.result.get("first") or test.result.get("operator") or test.result["status"]
                failures[str(test.result["test"])] = str(words)
        for line in compare_notes(self._exchange, failures):
            reporter.write(terminalreporter, f"npudump: {line}")
        terminalreporter.flush()
        printed(self._exchange)
