"""What the tests of a collection ask for, written to a file: a pytest plugin, for ``npudump config show``.

It is loaded with ``-p``, into a pytest that collects and runs nothing, and leaves nothing behind: asking for
a temporary folder would make pytest delete those of earlier runs, and with them the dumps that it kept.
"""

from __future__ import annotations

import json
from argparse import SUPPRESS
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from pytest_npudump.config.acl_json import dump_section
from pytest_npudump.plugin.marker.item import Identity, request_of
from pytest_npudump.plugin.marker.marks import is_marked
from pytest_npudump.plugin.paths import Paths
from pytest_npudump.request import RunRequest
from pytest_npudump.scene import SCENES
from pytest_npudump.storage.atomic import write_whole

if TYPE_CHECKING:
    from pytest_npudump.request import DumpRequest
    from pytest_npudump.settings import Settings


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the command's own options, which are not in ``--help``: a file, and the temporary folders' root."""
    parser.addoption("--npudump-describe-to", metavar="FILE", help=SUPPRESS)
    parser.addoption("--npudump-describe-temporary", metavar="FOLDER", help=SUPPRESS)


def pytest_configure(config: pytest.Config) -> None:
    """Take part in the collection."""
    config.pluginmanager.register(_Describer(config), "npudump-describer")


def _is_isolated(request: DumpRequest, settings: Settings) -> bool:
    """Whether the test runs in processes of its own whatever the runtime is."""
    if request.isolation is not None:
        return request.isolation == "process"
    own = SCENES[request.scene].own_process
    return own or request.timeout is not None or settings.isolation == "process"


class _Describer:
    def __init__(self, config: pytest.Config) -> None:
        self._config = config
        self._problems: list[tuple[str, str]] = []
        self._deselected: list[str] = []

    @pytest.hookimpl(tryfirst=True)
    def pytest_collection(self) -> None:
        from pytest_npudump.plugin.hooks import SETTINGS  # noqa: PLC0415 - pytest imports that module as a plugin

        if SETTINGS not in self._config.stash:
            raise pytest.UsageError(
                "this needs the plugin npudump, and addopts or PYTEST_ADDOPTS switch it off (-p no:npudump)"
            )

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.failed:
            self._problems.append((report.nodeid, report.longreprtext))

    def pytest_deselected(self, items: list[pytest.Item]) -> None:
        self._deselected += [item.nodeid for item in items]

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        found = {
            "tests": [self._described(item) for item in session.items if is_marked(item)],
            "unmarked": [item.nodeid for item in session.items if not is_marked(item)],
            "deselected": self._deselected,
            "problems": self._problems,
            "rootdir": str(self._config.rootpath),
            "runtime": self._settings.runtime,
        }
        write_whole(Path(self._config.getoption("npudump_describe_to")), [json.dumps(found).encode()])

    def _described(self, item: pytest.Item) -> dict[str, Any]:
        request = request_of(item)
        settings = self._settings
        run = RunRequest(request, self._dump_path(item, settings))
        found = {
            "nodeid": item.nodeid,
            "globs": [] if request.exact_layers else list(request.layers),
            "isolated": _is_isolated(request, self._settings),
        }
        if settings.runtime == "mindspore" and SCENES[request.scene].data_dump is not None:
            from pytest_npudump.config import data_dump  # noqa: PLC0415 - 40 ms that only MindSpore needs

            described = data_dump.data_dump_settings(run, version=data_dump.rules_version())
            return {**found, "data_dump": described}
        if settings.runtime == "mindspore":
            run = replace(run, dump_data=request.dump_data or "tensor")
        return {**found, "dump": dump_section(run)}

    @property
    def _settings(self) -> Settings:
        from pytest_npudump.plugin.hooks import SETTINGS  # noqa: PLC0415 - pytest imports that module as a plugin

        return self._config.stash[SETTINGS]

    def _dump_path(self, item: pytest.Item, settings: Settings) -> Path:
        if not settings.dump_dir:
            given = self._config.getoption("basetemp")
            root = self._config.getoption("npudump_describe_temporary")
            base = Path(given).absolute() if given else Path(root, "pytest-N")
            settings = settings._replace(dump_dir=str(base / "npudump"))
        folder = Paths(self._config, settings).dumps(str(Identity.of(item)))
        from pytest_npudump.record.run_folder import RunFolder, dump_folder  # noqa: PLC0415 - seldom needed

        return dump_folder(RunFolder(folder).run(1))
