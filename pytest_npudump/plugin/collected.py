"""Collection written to a file: a plugin for ``npudump golden status``.

It is loaded with ``-p``, into a pytest that collects and runs nothing, and leaves nothing behind: asking for
a temporary folder would make pytest delete those of earlier runs, and with them the dumps that it kept. It
has no asserts, and pytest need not mind if it is there already: PYTEST_DONT_REWRITE.
"""

from __future__ import annotations

import json
from argparse import SUPPRESS
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from pytest_npudump.plugin._compat import has_no_case
from pytest_npudump.plugin.hooks import SETTINGS
from pytest_npudump.plugin.marker import Identity, request_of
from pytest_npudump.plugin.marks import is_marked
from pytest_npudump.plugin.paths import Paths, golden_root
from pytest_npudump.scene import SCENES
from pytest_npudump.storage.atomic import write_whole

if TYPE_CHECKING:
    from collections.abc import Generator


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the command's own option, which is not in ``--help``."""
    parser.addoption("--npudump-owners-to", metavar="FILE", help=SUPPRESS)


def pytest_configure(config: pytest.Config) -> None:
    """Take part in the collection."""
    config.pluginmanager.register(_Owners(config), "npudump-collected")


class _Owners:
    """Owners of golden files; deselected tests own theirs as others do."""

    def __init__(self, config: pytest.Config) -> None:
        self._config = config
        self._problems: list[tuple[str, str]] = []
        self._passed: set[str] = set()
        self._skipped: set[str] = set()
        self._items: list[pytest.Item] = []

    @pytest.hookimpl(tryfirst=True)
    def pytest_collection(self) -> None:
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
        if report.failed:
            self._problems.append((report.nodeid, report.longreprtext))
        file = report.nodeid.partition("::")[0]
        if report.skipped:
            self._skipped.add(file)
        elif report.passed and report.nodeid == file:
            self._passed.add(file)

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> Generator[None]:
        self._items = [*items]
        return (yield)

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        settings = self._config.stash[SETTINGS]
        paths = Paths(self._config, settings)
        selected = set(session.items)
        items = [item for item in (*session.items, *self._items) if item not in selected or is_marked(item)]
        found: dict[str, Any] = {
            "goldens": {str(paths.golden(item)): str(Identity.of(item)) for item in items},
            "files": sorted(self._passed - self._skipped),
            "unclear": [str(Identity.of(item)).partition("[")[0] for item in items if has_no_case(item)],
            "root": str(golden_root(self._config, settings)),
            "without": [
                str(paths.golden(item))
                for item in items
                if is_marked(item) and not SCENES[request_of(item).scene].statistics
            ],
            "tolerances": str(self._config.rootpath / settings.tolerances) if settings.tolerances else "",
        }
        found |= {"problems": self._problems, "rootdir": str(self._config.rootpath)}
        write_whole(Path(self._config.getoption("npudump_owners_to")), [json.dumps(found).encode()])
