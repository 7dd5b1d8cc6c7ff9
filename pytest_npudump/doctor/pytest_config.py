"""Settings of pytest for a folder's tests, read without it: where it dumps, whether it loads this plugin."""

from __future__ import annotations

import argparse
import getpass
import importlib
import os
import re
import shlex
import sys
import tempfile
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pytest_npudump.errors import ConfigError, said
from pytest_npudump.storage.regular_file import read_regular, with_argument_files

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_OWN_FILES = ("pytest.ini", ".pytest.ini")
_TABLES_OF_TOML = {"pytest.toml": (("pytest",),), ".pytest.toml": (("pytest",),)}
_TABLES_OF_PYPROJECT = (("tool", "pytest", "ini_options"),)
_FIRST_WITH_TOML = 9
_DISTRIBUTION = "pytest-npudump"
_NO_AUTOLOAD = "PYTEST_DISABLE_PLUGIN_AUTOLOAD"
_NO_AUTOLOAD_OPTION = "--disable-plugin-autoload"
_INI_KEY = "npudump_dump_dir"


def locate(folder: Path, major: int | None = None) -> tuple[Path | None, Mapping[str, Any]]:
    """Return the configuration file of a pytest started in ``folder``, and pytest's part of it.

    Args:
        folder: absolute; the file is the first that pytest finds in it and above it.
        major: version of pytest, which reads TOML files of its own since 9; the installed one's by default.

    Raises:
        ConfigError: the file cannot be read.
    """
    if major is None:
        major = int(metadata.version("pytest").split(".")[0])
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
    import iniconfig  # noqa: PLC0415 - pytest's own reader, only where there is such a file

    try:
        text = read_regular(file).decode()
        if file.suffix != ".toml":
            name = "tool:pytest" if file.name == "setup.cfg" else "pytest"
            sections = iniconfig.IniConfig(str(file), data=text)
            found = dict(sections[name].items()) if name in sections else None
            return {} if found is None and file.name in _OWN_FILES else found
        # Both have the same functions; before Python 3.11 pytest itself needs tomli.
        root = importlib.import_module("tomllib" if sys.version_info >= (3, 11) else "tomli").loads(text)
    except (OSError, ValueError, iniconfig.ParseError) as error:
        unreadable = said(
            "{file}: pytest's configuration cannot be read: {words}; mend it, or name --dump-dir outside",
            file=file,
            words=" ".join(str(error).split()),
        )
        raise ConfigError(unreadable) from error
    tables = _TABLES_OF_TOML.get(file.name, _TABLES_OF_PYPROJECT)
    if file.name == "pyproject.toml" and major >= _FIRST_WITH_TOML:
        tables = (*tables, ("tool", "pytest"))
    for keys in tables:
        table: Any = root
        for key in keys:
            table = table.get(key) if isinstance(table, dict) else None
        if isinstance(table, dict):
            return table
    return {} if file.name in _TABLES_OF_TOML else None


def words_of(given: str | Sequence[str], origin: str) -> list[str]:
    """Return options as words.

    Args:
        given: a line, or a list of words.
        origin: where they stand, for errors.

    Raises:
        ConfigError: the line has a quote that does not end.
    """
    try:
        return shlex.split(given) if isinstance(given, str) else list(map(str, given))
    except ValueError as error:
        raise ConfigError(
            said("{origin}: {given!r} cannot be read: {error}", origin=origin, given=given, error=error)
        ) from error


def parse_options(
    parser: argparse.ArgumentParser, words: Sequence[str], folder: Path, origin: str
) -> argparse.Namespace:
    """Parse what ``parser`` knows of options, those in files that ``@FILE`` among them names included.

    Args:
        parser: made with ``exit_on_error=False``.
        words: the options.
        folder: where pytest is started, which the names of such files are relative to.
        origin: where the options stand, for errors.

    Raises:
        ConfigError: an option is without its value, or a file cannot be read.
    """
    try:
        options, _ = parser.parse_known_args([*with_argument_files(words, folder)])
    except (OSError, argparse.ArgumentError) as error:
        raise ConfigError(
            said(
                "{origin}: {words!r} cannot be read: {error}",
                origin=origin,
                words=" ".join(words),
                error=error,
            )
        ) from error
    return options


def default_place(environ: Mapping[str, str] | None = None) -> Path:
    """Return the folder where pytest makes the temporary folders of this user's runs."""
    root = (os.environ if environ is None else environ).get("PYTEST_DEBUG_TEMPROOT")
    try:
        user = getpass.getuser()
    except (KeyError, OSError, ImportError):
        user = "unknown"  # what pytest does for a user id without a name
    return Path(root or tempfile.gettempdir()).resolve() / f"pytest-of-{user}"


@dataclass(frozen=True, slots=True)
class DumpPlace:
    """Where tests dump.

    Attributes:
        path: the folder.
        origin: what says so: an option or key and its file; ``""`` for pytest's default.
    """

    path: Path
    origin: str = ""


def dump_place(folder: Path, environ: Mapping[str, str], *, pytest_major: int | None = None) -> DumpPlace:
    """Return where tests dump that are started in ``folder`` without options.

    In pytest's order: ``--npudump-dump-dir`` in ``PYTEST_ADDOPTS`` before that in ``addopts``, then the ini
    key ``npudump_dump_dir``, then ``--basetemp`` likewise.

    Args:
        folder: absolute; the configuration file is the first that pytest finds in it and above it.
        environ: the environment.
        pytest_major: version of pytest, which reads TOML files of its own since 9; the installed one's.

    Raises:
        ConfigError: the configuration file, or ``PYTEST_ADDOPTS``, cannot be read.
    """
    file, ini = locate(folder, pytest_major)
    given = _options(ini.get("addopts", ""), folder, said("addopts of {file}", file=file))
    given |= _options(environ.get("PYTEST_ADDOPTS", ""), folder, "PYTEST_ADDOPTS")
    if given.get("dump_dir"):
        value, origin = given["dump_dir"]
        return DumpPlace(
            folder / value, said("{option} in {origin}", option="--npudump-dump-dir", origin=origin)
        )
    value, origin = given.get(_INI_KEY, (str(ini.get(_INI_KEY, "")), str(file)))
    if value:
        return DumpPlace(folder / value, said("{option} in {origin}", option=_INI_KEY, origin=origin))
    if given.get("basetemp"):
        value, origin = given["basetemp"]
        return DumpPlace(
            folder / value / "npudump", said("{option} in {origin}", option="--basetemp", origin=origin)
        )
    return DumpPlace(default_place(environ))


def _options(given: str | list[str], folder: Path, origin: str) -> dict[str, tuple[str, str]]:
    """Return the values of the options, and of the key where ``-o`` overrides it, each with its origin."""
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False, exit_on_error=False)
    parser.add_argument("--npudump-dump-dir", dest="dump_dir")
    parser.add_argument("--basetemp")
    parser.add_argument("-o", "--override-ini", dest="overrides", action="append", default=[])
    options = parse_options(parser, words_of(given, origin), folder, origin)
    overrides = dict(text.split("=", 1) for text in options.overrides if "=" in text)
    found = {"dump_dir": options.dump_dir, "basetemp": options.basetemp, _INI_KEY: overrides.get(_INI_KEY)}
    return {name: (value, origin) for name, value in found.items() if value is not None}


def loading(folder: Path, environ: Mapping[str, str]) -> tuple[Path | None, str, str]:
    """Return pytest's configuration file, its requirement of this plugin, and what switches the plugin off.

    The file is None where there is none; "" where nothing requires the plugin, or switches it off.

    Args:
        folder: absolute; the file is the first that is found in it and above it.
        environ: the environment.
    """
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
        if "no:npudump" in plugins:
            blocked = said("{option} in {origin}", option="-p no:npudump", origin=origin)
    if not blocked and unloaded and not wanted & {"npudump", "pytest_npudump.plugin"}:
        blocked = said("{unloaded}, and no option -p npudump", unloaded=unloaded)
    return file, required(ini.get("required_plugins", "")), blocked


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
