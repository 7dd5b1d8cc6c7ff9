"""Whether pytest insists on this plugin: without it a marked test that takes no fixture passes unseen."""

from __future__ import annotations

import argparse
import re
import shlex
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pytest_npudump.doctor.finding import ABSENT, OK, PROBLEM, WARNING, Finding
from pytest_npudump.doctor.pytest_config import locate, parse_options, words_of
from pytest_npudump.language.translation import mark, said

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from pytest_npudump.doctor.system import System

AREA = mark("pytest")
_NAME = "required_plugins"
_DISTRIBUTION = "pytest-npudump"
_BLOCK = "no:npudump"
_NO_AUTOLOAD = "PYTEST_DISABLE_PLUGIN_AUTOLOAD"
_NO_AUTOLOAD_OPTION = "--disable-plugin-autoload"
_UNSEEN = said("where the plugin is not loaded, marked tests that take no fixture pass without a comparison")
_REMEDY = said("add required_plugins = pytest-npudump to pytest's configuration file")


@dataclass(frozen=True, slots=True)
class _Loading:
    """Whether pytest would load this plugin.

    Attributes:
        file: the configuration file; None where there is none.
        required: the requirement of this plugin in its ``required_plugins``; ``""`` without one.
        blocked: what switches the plugin off, in words; ``""`` where nothing does.
    """

    file: Path | None
    required: str = ""
    blocked: str = ""


def check_gate(system: System, folder: Path) -> Iterator[Finding]:
    """Look whether pytest, started in a folder, loads the plugin and refuses to run without it.

    Args:
        system: the machine.
        folder: absolute; pytest's configuration file is the first that is found in it and above it.
    """
    found = _loading(folder, system.environ)
    if found.blocked:
        text = said("pytest does not load the plugin: {blocked}", blocked=found.blocked)
        yield Finding(AREA, mark("plugin"), PROBLEM, text, said("take that out"))
    if found.required:
        yield Finding(AREA, _NAME, OK, said("{option} in {origin}", option=found.required, origin=found.file))
    elif found.file is None:
        yield Finding(
            AREA,
            _NAME,
            ABSENT,
            said("no configuration file of pytest here: {unseen}", unseen=_UNSEEN),
            _REMEDY,
        )
    else:
        yield Finding(
            AREA,
            _NAME,
            WARNING,
            said("{file} does not name it: {unseen}", file=found.file, unseen=_UNSEEN),
            _REMEDY,
        )


def _loading(folder: Path, environ: Mapping[str, str]) -> _Loading:
    file, ini = locate(folder)
    wanted: set[str] = set()
    blocked = ""
    unloaded = said("{name} is set", name=_NO_AUTOLOAD) if environ.get(_NO_AUTOLOAD) else ""
    for given, origin in (
        (ini.get("addopts", ""), said("addopts of {file}", file=file)),
        (environ.get("PYTEST_ADDOPTS", ""), "PYTEST_ADDOPTS"),
    ):
        plugins, autoload = _plugins(given, folder, origin)
        if not autoload:
            unloaded = said("{option} in {origin}", option=_NO_AUTOLOAD_OPTION, origin=origin)
        wanted.update(plugins)
        if _BLOCK in plugins:
            blocked = said("{option} in {origin}", option=f"-p {_BLOCK}", origin=origin)
    if not blocked and unloaded and not wanted & {"npudump", "pytest_npudump.plugin"}:
        blocked = said("{unloaded}, and no option -p npudump", unloaded=unloaded)
    return _Loading(file, required(ini.get("required_plugins", "")), blocked)


def required(given: str | list[str]) -> str:
    """Return the requirement of this plugin in a value of ``required_plugins``; "" without one."""
    names = shlex.split(given) if isinstance(given, str) else map(str, given)
    return next((name for name in names if re.match(rf"{_DISTRIBUTION}(?![\w.-])", name)), "")


def _plugins(given: str | list[str], folder: Path, origin: str) -> tuple[list[str], bool]:
    """Return the plugins that options name, and whether those that are installed are loaded unasked.

    pytest looks for ``-p`` before it opens the files of ``@FILE``, and heeds none that stands there.
    """
    named = argparse.ArgumentParser(add_help=False, allow_abbrev=False, exit_on_error=False)
    named.add_argument("-p", dest="plugins", action="append", default=[])
    switch = argparse.ArgumentParser(add_help=False, allow_abbrev=False, exit_on_error=False)
    switch.add_argument(_NO_AUTOLOAD_OPTION, dest="autoload", action="store_false")
    words = words_of(given, origin)
    plugins = parse_options(
        named, [word for word in words if not word.startswith("@")], folder, origin
    ).plugins
    return plugins, parse_options(switch, words, folder, origin).autoload
