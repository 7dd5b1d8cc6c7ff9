"""What this plugin keeps of a pytest item while its test runs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from pytest_npudump.plugin.reported import ITEM_OF_REPORT

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pytest_npudump.regression.session import CaseSession
    from pytest_npudump.results.kept import Kept

ITEM = pytest.StashKey[str]()
"""What tells the item from all others of the session, whatever node id they share."""
TEST: pytest.StashKey[CaseSession] = pytest.StashKey()
"""The record of the test's runs."""
OURS = pytest.StashKey[bool]()
"""Whether this plugin runs the test's protocol."""
ENDED = pytest.StashKey[bool]()
"""Whether a report of the call is the test's own: its body has ended, and no fixture is being torn down."""
RESULT = pytest.StashKey[dict[str, Any]]()
"""What the test came to, for its report."""

PARTS = pytest.StashKey[list[pytest.TestReport]]()
"""The reports of subtests in the run under way."""
EARLIER_PARTS = pytest.StashKey[list[pytest.TestReport]]()
"""The reports of subtests in a run that this plugin repeats: some come as its fixtures are torn down."""
REPORTS = pytest.StashKey[dict[str, pytest.TestReport]]()
"""The reports of the run under way, by phase: of a phase that is repeated the last one."""
KEPT: pytest.StashKey[Kept | None] = pytest.StashKey()
"""What is kept of the test beside its golden; None where nothing was judged."""
BAD = pytest.StashKey[str]()
"""The failure that the test has come to, as text: it stands, whoever runs the test's phases again."""


def number_items(session: pytest.Session, marked: Iterable[pytest.Item]) -> None:
    """Give each marked item what tells it from all others: its place in the session, and the worker."""
    worker: Any = getattr(session.config, "workerinput", {})
    places = {item: number for number, item in enumerate(session.items)}
    for item in marked:
        item.stash[ITEM] = f"{worker.get('workerid', '')}#{places[item]}"


def tell_item(item: pytest.Item, report: pytest.TestReport) -> None:
    """Have a report of a marked item say which one it is of."""
    if ITEM in item.stash:
        vars(report)[ITEM_OF_REPORT] = item.stash[ITEM]


def only_setup(item: pytest.Item) -> bool:
    """Whether the session sets fixtures up and runs no test."""
    return bool(item.config.getoption("setuponly", default=False))


def will_run_again(item: pytest.Item) -> bool:
    """Whether this plugin runs the test's protocol and is going to run the test once more."""
    test = item.stash.get(TEST, None)
    wanted = test is not None and test.state.wants_second_run
    return item.stash.get(OURS, False) and wanted and may_run_again(item)


def may_run_again(item: pytest.Item) -> bool:
    """Whether a second run is allowed: not for tests that may fail, nor in a session about to stop."""
    stopping = item.session.shouldfail or item.session.shouldstop
    return not stopping and item.get_closest_marker("xfail") is None
