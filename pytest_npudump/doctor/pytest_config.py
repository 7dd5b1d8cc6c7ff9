"""What pytest's configuration file and variables say of a folder's tests, without pytest itself."""

from __future__ import annotations

import argparse
import importlib
import shlex
import sys
from importlib import metadata
from typing import TYPE_CHECKING, Any

from pytest_npudump.errors import ConfigError
from pytest_npudump.language.translation import said
from pytest_npudump.storage.regular_file import read_regular, with_argument_files

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

_OWN_FILES = ("pytest.ini", ".pytest.ini")
_TABLES_OF_TOML = {"pytest.toml": (("pytest",),), ".pytest.toml": (("pytest",),)}
_TABLES_OF_PYPROJECT = (("tool", "pytest", "ini_options"),)
_FIRST_WITH_TOML = 9


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
        said(
            "{file}: pytest's configuration cannot be read: {words}; mend it, or name --dump-dir outside",
            file=file,
            words=words,
        )
    )


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
