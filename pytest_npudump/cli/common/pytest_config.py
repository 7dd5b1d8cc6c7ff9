"""pytest's configuration of a folder, read without it: where tests dump, goldens lie, and what is loaded."""

from __future__ import annotations

import argparse
import getpass
import importlib
import os
import re
import shlex
import sys
import tempfile
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pytest_npudump.errors import ConfigError, in_one_line
from pytest_npudump.storage.regular_file import read_regular, with_argument_files

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from pytest_npudump.golden.stored_tensors import TensorStore


_OWN_FILES = ("pytest.ini", ".pytest.ini")
_OWN_TOML = ("pytest.toml", ".pytest.toml")
_FIRST_WITH_TOML = 9
_DISTRIBUTION = "pytest-npudump"
_NO_AUTOLOAD = "PYTEST_DISABLE_PLUGIN_AUTOLOAD"
_NO_AUTOLOAD_OPTION = "--disable-plugin-autoload"
_GOLDENS = "golden"


def locate(folder: Path) -> tuple[Path | None, Mapping[str, Any]]:
    """Return the configuration file of a pytest started in ``folder``, and pytest's part of it.

    Args:
        folder: absolute; the file is the first that pytest finds in it and above it.

    Raises:
        ConfigError: the file cannot be read.
    """
    has_toml = int(metadata.version("pytest").split(".")[0]) >= _FIRST_WITH_TOML
    names = (*(_OWN_TOML if has_toml else ()), *_OWN_FILES, "pyproject.toml", "tox.ini", "setup.cfg")
    for file in (directory / name for directory in (folder, *folder.parents) for name in names):
        section = _section(file, has_toml=has_toml) if file.is_file() else None
        if section is not None:
            return file, section
    return None, {}


def _section(file: Path, *, has_toml: bool) -> Mapping[str, Any] | None:
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
        if file.name in _OWN_TOML:
            return dict(root.get("pytest", {}))
        tool = root.get("tool", {}).get("pytest", {})
        found = tool.get("ini_options", (tool or None) if has_toml else None)
        return None if found is None else dict(found)
    except (OSError, ValueError, TypeError, AttributeError, iniconfig.ParseError) as error:
        raise ConfigError(
            f"{file}: pytest's configuration cannot be read: {in_one_line(error)}; mend it, or name "
            f"--dump-dir outside"
        ) from error


class PytestConfig:
    """Options and keys of pytest as a run has them that is started in a folder without options.

    Attributes:
        folder: where pytest is started.
        file: its configuration file; None where there is none.
        root: its rootdir.
        ini: pytest's part of the file.
    """

    def __init__(self, folder: Path) -> None:
        """Read the configuration, of which ``PYTEST_ADDOPTS`` counts before ``addopts``.

        Args:
            folder: the file is the first that pytest finds in it and above it.

        Raises:
            ConfigError: the file, or a line of options, cannot be read.
        """
        self.folder = folder.absolute()
        self.file, self.ini = locate(self.folder)
        self.root = self.file.parent if self.file is not None else self.folder
        given = (
            (self.ini.get("addopts", ""), f"addopts of {self.file}"),
            (os.environ.get("PYTEST_ADDOPTS", ""), "PYTEST_ADDOPTS"),
        )
        self._given = [(_words(options, origin), origin) for options, origin in given]

    def values(self, *names: str, files: bool = True, **how: Any) -> Iterator[tuple[Any, str]]:
        """Yield the value of an option, and where it stands, for each line of options; the last one counts.

        Args:
            names: as it is typed.
            files: whether it counts in files of arguments, too, which ``@FILE`` among the options names.
            how: what else argparse is told of it.

        Raises:
            ConfigError: the option is without its value, or a file of arguments cannot be read.
        """
        for words, origin in self._given:
            parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False, exit_on_error=False)
            parser.add_argument(*names, dest="value", **how)
            told = words if files else [word for word in words if not word.startswith("@")]
            try:
                found = parser.parse_known_args([*with_argument_files(told, self.folder)])[0].value
            except (OSError, argparse.ArgumentError) as error:
                raise ConfigError(f"{origin}: {' '.join(told)!r} cannot be read: {error}") from error
            yield found, origin

    def option(self, flag: str) -> tuple[str, str] | None:
        """Return the value of an option, and where it stands; None where nothing gives it."""
        given = [(value, f"{flag} in {origin}") for value, origin in self.values(flag) if value is not None]
        return given[-1] if given else None

    def setting(self, name: str) -> tuple[str, str]:
        """Return the value of a key, or of its option, and where it stands; "" where none names it."""
        key, origin = str(self.ini.get(name, "")), str(self.file)
        for overrides, line in self.values("-o", "--override-ini", action="append", default=[]):
            for text in overrides:
                if text.startswith(f"{name}="):
                    key, origin = text.partition("=")[2], line
        return self.option(f"--{name.replace('_', '-')}") or (key, f"{name} in {origin}")


def _words(given: str | Sequence[str], origin: str) -> list[str]:
    try:
        return shlex.split(given) if isinstance(given, str) else list(map(str, given))
    except ValueError as error:
        raise ConfigError(f"{origin}: {given!r} cannot be read: {error}") from error


def golden_folder(folder: Path) -> Path:
    """Return the folder of the goldens, relative to ``folder`` where it lies in it.

    Raises:
        ConfigError: pytest's configuration cannot be read.
    """
    config = PytestConfig(folder)
    found = config.root / (config.setting("npudump_golden_dir")[0] or _GOLDENS)
    return found.relative_to(config.folder) if found.is_relative_to(config.folder) else found


def output_folder(folder: Path) -> Path | None:
    """Return the output folder that pytest's configuration names; None where it names none.

    Raises:
        ConfigError: pytest's configuration cannot be read.
    """
    config = PytestConfig(folder)
    named = config.setting("npudump_output")[0]
    return config.root / named if named else None


def tensor_place(folder: Path, url: str = "", cache: str = "") -> TensorStore:
    """Return the store of tensors.

    Args:
        folder: a pytest that starts here would run the tests.
        url: the store, whatever the configuration says; "" for that.
        cache: the folder of the cache, the same.

    Raises:
        ConfigError: pytest's configuration cannot be read.
    """
    from pytest_npudump.golden.stored_tensors import TensorStore  # noqa: PLC0415 - only where there is one

    config = PytestConfig(folder)
    told = config.setting("npudump_tensor_cache")[0]
    own = cache or (str(config.root / Path(told).expanduser()) if told else "")
    return TensorStore(url or config.setting("npudump_tensor_store")[0], own)


def default_place() -> Path:
    """Return the folder where pytest makes the temporary folders of this user's runs."""
    root = os.environ.get("PYTEST_DEBUG_TEMPROOT")
    try:
        user = getpass.getuser()
    except (KeyError, OSError, ImportError):
        user = "unknown"  # what pytest does for a user id without a name
    return Path(root or tempfile.gettempdir()).resolve() / f"pytest-of-{user}"


def dump_place(folder: Path) -> tuple[Path, str]:
    """Return the dump folder of tests that are started in ``folder`` without options, and what says so.

    In pytest's order: ``--npudump-output`` before the key ``npudump_output``, then ``--basetemp``; "" for
    pytest's default.

    Raises:
        ConfigError: the configuration file, or ``PYTEST_ADDOPTS``, cannot be read.
    """
    config = PytestConfig(folder)
    value, origin = config.setting("npudump_output")
    if value:
        return config.root / value / "dumps", origin
    value, origin = config.option("--basetemp") or ("", "")
    return (config.folder / value / "npudump", origin) if value else (default_place(), "")


def loading(folder: Path) -> tuple[Path | None, str, str]:
    """Return pytest's configuration file, its requirement of this plugin, and what switches the plugin off.

    The file is None where there is none; "" where nothing requires the plugin, or switches it off. pytest
    looks for ``-p`` before it opens the files of ``@FILE``, and heeds none that stands there.
    """
    config = PytestConfig(folder)
    unloaded = f"{_NO_AUTOLOAD} is set" if os.environ.get(_NO_AUTOLOAD) else ""
    for is_off, origin in config.values(_NO_AUTOLOAD_OPTION, action="store_true"):
        unloaded = f"{_NO_AUTOLOAD_OPTION} in {origin}" if is_off else unloaded
    wanted: set[str] = set()
    blocked = ""
    for plugins, origin in config.values("-p", action="append", default=[], files=False):
        wanted.update(plugins)
        blocked = f"-p no:npudump in {origin}" if "no:npudump" in plugins else blocked
    if not blocked and unloaded and not wanted & {"npudump", "pytest_npudump.plugin"}:
        blocked = f"{unloaded}, and no option -p npudump"
    return config.file, required(config.ini.get("required_plugins", "")), blocked


def required(given: str | list[str]) -> str:
    """Return the requirement of this plugin in a value of ``required_plugins``; "" without one."""
    names = shlex.split(given) if isinstance(given, str) else map(str, given)
    return next((name for name in names if re.match(rf"{_DISTRIBUTION}(?![\w.-])", name)), "")
