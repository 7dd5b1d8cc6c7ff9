"""What pytest's configuration file and variables say of a folder's tests, without pytest itself."""

from __future__ import annotations

import argparse
import importlib
import os
import re
import shlex
import sys
from dataclasses import dataclass
from importlib import metadata
from typing import TYPE_CHECKING, Any

from pytest_npudump.doctor.place import default_place
from pytest_npudump.errors import ConfigError
from pytest_npudump.storage.regular_file import read_regular

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

_INI_KEY = "npudump_dump_dir"
_OWN_FILES = ("pytest.ini", ".pytest.ini")
_TABLES_OF_TOML = {"pytest.toml": (("pytest",),), ".pytest.toml": (("pytest",),)}
_TABLES_OF_PYPROJECT = (("tool", "pytest", "ini_options"),)
_FIRST_WITH_TOML = 9
_DISTRIBUTION = "pytest-npudump"
_BLOCK = "no:npudump"
_NO_AUTOLOAD = "PYTEST_DISABLE_PLUGIN_AUTOLOAD"
_NO_AUTOLOAD_OPTION = "--disable-plugin-autoload"


@dataclass(frozen=True, slots=True)
class DumpPlace:
    """Where tests dump.

    Attributes:
        path: the folder.
        origin: what says so: an option or key and its file; ``""`` for pytest's default.
    """

    path: Path
    origin: str = ""


def dump_place(
    folder: Path, environ: Mapping[str, str] | None = None, *, pytest_major: int | None = None
) -> DumpPlace:
    """Return where tests dump that are started in ``folder`` without options.

    In pytest's order: ``--npudump-dump-dir`` in ``PYTEST_ADDOPTS`` before that in ``addopts``, then the ini
    key ``npudump_dump_dir``, then ``--basetemp`` likewise.

    Args:
        folder: absolute; the configuration file is the first that pytest finds in it and above it.
        environ: the environment; the process's by default.
        pytest_major: version of pytest, which reads TOML files of its own since 9; the installed one's.

    Raises:
        ConfigError: the configuration file, or ``PYTEST_ADDOPTS``, cannot be read.
    """
    environment = os.environ if environ is None else environ
    major = int(metadata.version("pytest").split(".")[0]) if pytest_major is None else pytest_major
    file, ini = _located(folder, major)
    given = _options(ini.get("addopts", ""), f"addopts of {file}")
    given |= _options(environment.get("PYTEST_ADDOPTS", ""), "PYTEST_ADDOPTS")
    if given.get("dump_dir"):
        value, origin = given["dump_dir"]
        return DumpPlace(folder / value, f"--npudump-dump-dir in {origin}")
    value, origin = given.get(_INI_KEY, (str(ini.get(_INI_KEY, "")), str(file)))
    if value:
        return DumpPlace(folder / value, f"{_INI_KEY} in {origin}")
    if given.get("basetemp"):
        value, origin = given["basetemp"]
        return DumpPlace(folder / value / "npudump", f"--basetemp in {origin}")
    return DumpPlace(default_place(environment))


@dataclass(frozen=True, slots=True)
class Loading:
    """Whether pytest would load this plugin.

    Attributes:
        file: the configuration file; None where there is none.
        required: the requirement of this plugin in its ``required_plugins``; ``""`` without one.
        blocked: what switches the plugin off, in words; ``""`` where nothing does.
    """

    file: Path | None
    required: str = ""
    blocked: str = ""


def loading(
    folder: Path, environ: Mapping[str, str] | None = None, *, pytest_major: int | None = None
) -> Loading:
    """Return whether pytest, started in ``folder`` without options, loads this plugin and insists on it.

    Args:
        folder: absolute, as for :func:`dump_place`.
        environ: the environment; the process's by default.
        pytest_major: version of pytest; the installed one's by default.

    Raises:
        ConfigError: the configuration file, or ``PYTEST_ADDOPTS``, cannot be read.
    """
    environment = os.environ if environ is None else environ
    major = int(metadata.version("pytest").split(".")[0]) if pytest_major is None else pytest_major
    file, ini = _located(folder, major)
    wanted: set[str] = set()
    blocked = ""
    unloaded = f"{_NO_AUTOLOAD} is set" if environment.get(_NO_AUTOLOAD) else ""
    for given, origin in (
        (ini.get("addopts", ""), f"addopts of {file}"),
        (environment.get("PYTEST_ADDOPTS", ""), "PYTEST_ADDOPTS"),
    ):
        plugins, autoload = _plugins(given, origin)
        if not autoload:
            unloaded = f"{_NO_AUTOLOAD_OPTION} in {origin}"
        wanted.update(plugins)
        if _BLOCK in plugins:
            blocked = f"-p {_BLOCK} in {origin}"
    if not blocked and unloaded and not wanted & {"npudump", "pytest_npudump.plugin"}:
        blocked = f"{unloaded}, and no option -p npudump"
    return Loading(file, _required(ini.get("required_plugins", "")), blocked)


def _required(given: str | list[str]) -> str:
    names = shlex.split(given) if isinstance(given, str) else map(str, given)
    return next((name for name in names if re.match(rf"{_DISTRIBUTION}(?![\w.-])", name)), "")


def _plugins(given: str | list[str], origin: str) -> tuple[list[str], bool]:
    """Return the plugins that options name, and whether those that are installed are loaded unasked."""
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False, exit_on_error=False)
    parser.add_argument("-p", dest="plugins", action="append", default=[])
    parser.add_argument(_NO_AUTOLOAD_OPTION, dest="autoload", action="store_false")
    options = _parsed(parser, given, origin)
    return options.plugins, options.autoload


def _located(folder: Path, major: int) -> tuple[Path | None, Mapping[str, Any]]:
    toml = _TABLES_OF_TOML if major >= _FIRST_WITH_TOML else {}
    for directory in (folder, *folder.parents):
        for name in (*toml, *_OWN_FILES, "pyproject.toml", "tox.ini", "setup.cfg"):
            file = directory / name
            section = _section(file, major) if file.is_file() else None
            if section is not None:
                return file, section
    return None, {}


def _section(file: Path, major: int) -> Mapping[str, Any] | None:
    """Return pytest's part of a file; None where it has none, so that pytest goes on to the next."""
    if file.suffix == ".toml":
        root = _toml(file)
        tables = _TABLES_OF_TOML.get(file.name, _TABLES_OF_PYPROJECT)
        if file.name == "pyproject.toml" and major >= _FIRST_WITH_TOML:
            tables = (*tables, ("tool", "pytest"))
        found = (_table(root, keys) for keys in tables)
        section = next((table for table in found if table is not None), None)
        return {} if section is None and file.name in _TABLES_OF_TOML else section
    return _ini(file)


def _table(root: Mapping[str, Any], keys: tuple[str, ...]) -> Mapping[str, Any] | None:
    table: Any = root
    for key in keys:
        table = table.get(key) if isinstance(table, dict) else None
    return table if isinstance(table, dict) else None


def _toml(file: Path) -> Mapping[str, Any]:
    # Both have the same functions; before Python 3.11 pytest itself needs tomli.
    reader = importlib.import_module("tomllib" if sys.version_info >= (3, 11) else "tomli")
    try:
        root: Mapping[str, Any] = reader.loads(read_regular(file).decode())
    except (OSError, ValueError) as error:
        raise _unreadable(file, error) from error
    return root


def _ini(file: Path) -> Mapping[str, Any] | None:
    import iniconfig  # noqa: PLC0415 - pytest's own reader, only where there is such a file

    name = "tool:pytest" if file.name == "setup.cfg" else "pytest"
    try:
        sections = iniconfig.IniConfig(str(file), data=read_regular(file).decode())
    except (OSError, ValueError, iniconfig.ParseError) as error:
        raise _unreadable(file, error) from error
    if name in sections:
        return dict(sections[name].items())
    return {} if file.name in _OWN_FILES else None


def _unreadable(file: Path, error: Exception) -> ConfigError:
    words = " ".join(str(error).split())
    return ConfigError(
        f"{file}: pytest's configuration cannot be read: {words}; mend it, or name --dump-dir outside"
    )


def _options(given: str | list[str], origin: str) -> dict[str, tuple[str, str]]:
    """Return the values of the options, and of the key where ``-o`` overrides it, each with its origin."""
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False, exit_on_error=False)
    parser.add_argument("--npudump-dump-dir", dest="dump_dir")
    parser.add_argument("--basetemp")
    parser.add_argument("-o", "--override-ini", dest="overrides", action="append", default=[])
    options = _parsed(parser, given, origin)
    overrides = dict(text.split("=", 1) for text in options.overrides if "=" in text)
    found = {"dump_dir": options.dump_dir, "basetemp": options.basetemp, _INI_KEY: overrides.get(_INI_KEY)}
    return {name: (value, origin) for name, value in found.items() if value is not None}


def _parsed(parser: argparse.ArgumentParser, given: str | list[str], origin: str) -> argparse.Namespace:
    try:
        words = shlex.split(given) if isinstance(given, str) else list(map(str, given))
        options, _ = parser.parse_known_args(words)
    except (ValueError, argparse.ArgumentError) as error:
        raise ConfigError(f"{origin}: {given!r} cannot be read: {error}") from error
    return options
