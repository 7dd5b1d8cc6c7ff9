"""Which golden file is which test's, written to a file: a pytest plugin, for ``npudump golden stale``.

It is loaded with ``-p``, into a pytest that collects and runs nothing. Tests that something deselects own
their goldens as others do.
"""

from __future__ import annotations

import json
from argparse import SUPPRESS
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from pytest_npudump.plugin._compat import has_no_case
from pytest_npudump.plugin.marker.item import Identity, request_of
from pytest_npudump.plugin.marker.marks import is_marked
from pytest_npudump.plugin.paths import Paths, golden_root
from pytest_npudump.scene import SCENES
from pytest_npudump.storage.atomic import write_whole

if TYPE_CHECKING:
    from collections.abc import Generator


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the command's own option, which is not in ``--help``: a file."""
    parser.addoption("--npudump-owners-to", metavar="FILE", help=SUPPRESS)


def pytest_configure(config: pytest.Config) -> None:
    """Take part in the collection."""
    config.pluginmanager.register(_Owners(config), "npudump-golden-owners")


class _Owners:
    def __init__(self, config: pytest.Config) -> None:
        self._config = config
        self._problems: list[tuple[str, str]] = []
        self._passed: set[str] = set()
        self._skipped: set[str] = set()
        self._items: list[pytest.Item] = []

    @pytest.hookimpl(tryfirst=True)
    def pytest_collection(self) -> None:
        from pytest_npudump.plugin.hooks import SETTINGS  # noqa: PLC0415 - pytest imports that module as a plugin

        if SETTINGS not in self._config.stash:
            raise pytest.UsageError(
                "this needs the plugin npudump, and addopts or PYTEST_ADDOPTS switch it off (-p no:npudump)"
            )
        if self._config.getoption("lf", default=False):
            raise pytest.UsageError(
                "addopts or PYTEST_ADDOPTS have --lf, which hides tests: take it out for this"
            )
        if any("::" in argument for argument in self._config.args):
            raise pytest.UsageError(
                "addopts or PYTEST_ADDOPTS name single tests, which hides the others: take them out for this"
            )

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        file = report.nodeid.partition("::")[0]
        if report.failed:
            self._problems.append((report.nodeid, report.longreprtext))
        elif report.skipped:
            self._skipped.add(file)
        elif report.nodeid == file:
            self._passed.add(file)

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> Generator[None]:
        self._items = [*items]
        return (yield)

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        from pytest_npudump.plugin.hooks import SETTINGS  # noqa: PLC0415 - as above

        settings = self._config.stash[SETTINGS]
        paths = Paths(self._config, settings)
        selected = set(session.items)
        items = [item for item in (*session.items, *self._items) if item not in selected or is_marked(item)]
        found = {
            "goldens": {str(paths.golden(item)): str(Identity.of(item)) for item in items},
            "files": sorted(self._passed - self._skipped),
            "unclear": [name for name in map(_without_cases, items) if name],
            "problems": self._problems,
            "root": str(golden_root(self._config, settings)),
            "rootdir": str(self._config.rootpath),
            "without": [str(paths.golden(item)) for item in items if not _keeps_statistics(item)],
            "tolerances": str(self._config.rootpath / settings.tolerances) if settings.tolerances else "",
        }
        write_whole(Path(self._config.getoption("npudump_owners_to")), [json.dumps(found).encode()])


def _keeps_statistics(item: pytest.Item) -> bool:
    """Whether the test has a golden once it is recorded; one that was deselected is taken to."""
    return not is_marked(item) or SCENES[request_of(item).scene].statistics


def _without_cases(item: pytest.Item) -> str:
    """Return the test function, as a user types it, of which there is no case here; "" for others."""
    return str(Identity.of(item)).partition("[")[0] if has_no_case(item) else ""
