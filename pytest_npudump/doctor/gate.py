"""Whether pytest insists on this plugin: without it a marked test that takes no fixture passes unseen."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_npudump.doctor.finding import ABSENT, OK, PROBLEM, WARNING, Finding
from pytest_npudump.doctor.pytest_config import loading

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pytest_npudump.doctor.system import System

AREA = "pytest"
_NAME = "required_plugins"
_UNSEEN = "where the plugin is not loaded, marked tests that take no fixture pass without a comparison"
_REMEDY = "add required_plugins = pytest-npudump to pytest's configuration file"


def check_gate(system: System, folder: Path) -> Iterator[Finding]:
    """Look whether pytest, started in a folder, loads the plugin and refuses to run without it.

    Args:
        system: the machine.
        folder: absolute; pytest's configuration file is the first that is found in it and above it.
    """
    found = loading(folder, system.environ)
    if found.blocked:
        text = f"pytest does not load the plugin: {found.blocked}"
        yield Finding(AREA, "plugin", PROBLEM, text, "take that out")
    if found.required:
        yield Finding(AREA, _NAME, OK, f"{found.required} in {found.file}")
    elif found.file is None:
        yield Finding(AREA, _NAME, ABSENT, f"no configuration file of pytest here: {_UNSEEN}", _REMEDY)
    else:
        yield Finding(AREA, _NAME, WARNING, f"{found.file} does not name it: {_UNSEEN}", _REMEDY)
