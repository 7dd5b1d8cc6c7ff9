"""Collection written to a file: a plugin for ``npudump config show`` and ``golden status``.

It is loaded with ``-p``, into a pytest that collects and runs nothing, and leaves nothing behind: asking for
a temporary folder would make pytest delete those of earlier runs, and with them the dumps that it kept. It
has no asserts, and pytest need not mind if it is there already: PYTEST_DONT_REWRITE.
"""

from __future__ import annotations

import json
from argparse import SUPPRESS
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from pytest_npudump.config.acl_json import dump_section
from pytest_npudump.golden.variants import as_recorded
from pytest_npudump.plugin._compat import has_no_case
from pytest_npudump.plugin.hooks import SETTINGS
from pytest_npudump.plugin.marker import Identity, request_of
from pytest_npudump.plugin.marks import is_marked
from pytest_npudump.plugin.paths import Paths, golden_root
from pytest_npudump.record.run_folder import RunFolder, dump_folder
from pytest_npudump.request import RunRequest
from pytest_npudump.scene import SCENES
from pytest_npudump.storage.atomic import write_whole

if TYPE_CHECKING:
    from collections.abc import Generator

    from pytest_npudump.settings import Settings


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the command's own options, which are not in ``--help``: files, and the temporary folders' root."""
    parser.addoption("--npudump-describe-to", metavar="FILE", help=SUPPRESS)
    parser.addoption("--npudump-describe-temporary", metavar="FOLDER", help=SUPPRESS)
    parser.addoption("--npudump-owners-to", metavar="FILE", help=SUPPRESS)


def pytest_configure(config: pytest.Config) -> None:
    """Take part in the collection."""
    kind = _Owners if config.getoption("npudump_owners_to") else _Requests
    config.pluginmanager.register(kind(config), "npudump-collected")


class _Collected:
    def __init__(self, config: pytest.Config) -> None:
        self._config = config
        self._problems: list[tuple[str, str]] = []

    @pytest.hookimpl(tryfirst=True)
    def pytest_collection(self) -> None:
        if SETTINGS not in self._config.stash:
            raise pytest.UsageError(
                "this needs the plugin npudump, and addopts or PYTEST_ADDOPTS switch it off (-p no:npudump)"
            )
        self._settings = self._config.stash[SETTINGS]

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.failed:
            self._problems.append((report.nodeid, report.longreprtext))

    def _write(self, option: str, found: dict[str, Any]) -> None:
        found |= {"problems": self._problems, "rootdir": str(self._config.rootpath)}
        write_whole(Path(self._config.getoption(option)), [json.dumps(found).encode()])


class _Requests(_Collected):
    """Requests of the collected tests."""

    def __init__(self, config: pytest.Config) -> None:
        super().__init__(config)
        self._deselected: list[str] = []

    def pytest_deselected(self, items: list[pytest.Item]) -> None:
        self._deselected += [item.nodeid for item in items]

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        found = {
            "tests": [self._described(item) for item in session.items if is_marked(item)],
            "unmarked": [item.nodeid for item in session.items if not is_marked(item)],
            "deselected": self._deselected,
            "runtime": self._settings.runtime,
        }
        self._write("npudump_describe_to", found)

    def _described(self, item: pytest.Item) -> dict[str, Any]:
        paths, variant = Paths(self._config, self._settings), self._settings.golden_variant
        special = paths.golden(item, variant) if variant else None
        golden = special if special is not None and special.exists() else paths.golden(item)
        request, runtime = as_recorded(request_of(item), golden), self._settings.runtime
        isolation: Any = self._config.pluginmanager.get_plugin("npudump-isolation")
        run = RunRequest(request, self._dump_path(item, self._settings))
        found = {
            "nodeid": item.nodeid,
            "globs": [] if request.exact_layers else list(request.layers),
            "isolated": isolation is not None and isolation.is_asked(request),
        }
        if runtime == "mindspore" and SCENES[request.scene].data_dump is not None:
            from pytest_npudump.config import data_dump  # noqa: PLC0415 - 40 ms that only MindSpore needs

            described = data_dump.data_dump_settings(run, version=data_dump.rules_version())
            return {**found, "data_dump": described}
        if runtime == "mindspore":
            run = replace(run, dump_data=request.dump_data or "tensor")
        return {**found, "dump": dump_section(run)}

    def _dump_path(self, item: pytest.Item, settings: Settings) -> Path:
        base = None
        if not settings.output:
            given = self._config.getoption("basetemp")
            root = self._config.getoption("npudump_describe_temporary")
            base = (Path(given).absolute() if given else Path(root, "pytest-N")) / "npudump"
        folder = Paths(self._config, settings).dumps(str(Identity.of(item)), base=base)
        return dump_folder(RunFolder(folder).run(1))


class _Owners(_Collected):
    """Owners of golden files; deselected tests own theirs as others do."""

    def __init__(self, config: pytest.Config) -> None:
        super().__init__(config)
        self._passed: set[str] = set()
        self._skipped: set[str] = set()
        self._items: list[pytest.Item] = []

    @pytest.hookimpl(tryfirst=True)
    def pytest_collection(self) -> None:
        super().pytest_collection()
        if self._config.getoption("lf", default=False):
            raise pytest.UsageError(
                "addopts or PYTEST_ADDOPTS have --lf, which hides tests: take it out for this"
            )
        if any("::" in argument for argument in self._config.args):
            raise pytest.UsageError(
                "addopts or PYTEST_ADDOPTS name single tests, which hides the others: take them out for this"
            )

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        super().pytest_collectreport(report)
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
        settings = self._settings
        paths = Paths(self._config, settings)
        selected = set(session.items)
        items = [item for item in (*session.items, *self._items) if item not in selected or is_marked(item)]
        found = {
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
        self._write("npudump_owners_to", found)
