"""Where tests dump, and whether they can: CANN's rules for ``dump_path``, permissions, space."""

from __future__ import annotations

import argparse
import getpass
import os
import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_npudump.config.acl_keys import MAX_BYTES, PATH_CHARACTERS
from pytest_npudump.doctor.finding import OK, PROBLEM, WARNING, Finding
from pytest_npudump.doctor.pytest_config import locate, parse_options, words_of
from pytest_npudump.language.translation import mark, said

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from pytest_npudump.doctor.system import System

AREA = mark("dumping")
_INI_KEY = "npudump_dump_dir"
_BELOW = 200
"""Bytes that the folders of a test add to the place: its name, a digest, the run, a capture."""

_WANTED_BYTES = 1 << 30
_WANTED_FILES = 20_000
_ELSEWHERE = said("choose another folder with --npudump-dump-dir (and --dump-dir here), or --basetemp")


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


def check_place(system: System, place: Path, origin: str = "") -> Iterator[Finding]:
    """Judge a folder as CANN judges a ``dump_path`` below it, and write to it.

    Args:
        system: the machine.
        place: the folder, absolute.
        origin: what names it, for the table; ``""`` where that goes without saying.
    """
    yield _named(place, origin)
    existing = next(path for path in (place, *place.parents) if path.exists())
    yield _writable(system, place, existing)
    yield _space(system, existing)


def _named(place: Path, origin: str) -> Finding:
    name = os.fsencode(place)
    shown = said("{place} ({origin})", place=place, origin=origin) if origin else str(place)
    if not PATH_CHARACTERS.fullmatch(name):
        allowed = "letters, digits and -=[];\\,./!@#$%^&*()_+{}:?"
        text = said(
            "{shown}: GE dumps nothing into a path that has more than {allowed}", shown=shown, allowed=allowed
        )
        return Finding(AREA, mark("dump path"), PROBLEM, text, _ELSEWHERE)
    if len(name) > MAX_BYTES - _BELOW:
        text = said(
            "{shown}: {count} bytes, and CANN takes {most} for the whole path of a dump",
            shown=shown,
            count=len(name),
            most=MAX_BYTES,
        )
        return Finding(AREA, mark("dump path"), PROBLEM, text, _ELSEWHERE)
    return Finding(AREA, mark("dump path"), OK, shown)


def _writable(system: System, place: Path, existing: Path) -> Finding:
    if not existing.is_dir():
        return Finding(
            AREA, mark("write"), PROBLEM, said("{existing} is not a directory", existing=existing), _ELSEWHERE
        )
    if not system.access(existing, os.R_OK | os.W_OK | os.X_OK):
        text = said("{existing} may not be read and written by this user", existing=existing)
        return Finding(AREA, mark("write"), PROBLEM, text, _ELSEWHERE)
    try:
        _write(existing)
    except OSError as error:
        text = f"{existing}: {error.strerror or error}"
        return Finding(AREA, mark("write"), PROBLEM, text, _ELSEWHERE)
    made = "" if existing == place else said("; {name} will be made", name=place.name)
    return Finding(
        AREA,
        mark("write"),
        OK,
        said("a file could be written in {existing}{made}", existing=existing, made=made),
    )


def _write(directory: Path) -> None:
    folder = Path(tempfile.mkdtemp(prefix="npudump-doctor-", dir=directory))
    try:
        with (folder / "dump").open("wb") as file:
            file.write(bytes(4096))
            file.flush()
            os.fsync(file.fileno())
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _space(system: System, existing: Path) -> Finding:
    try:
        nbytes, files = system.free(existing)
    except OSError as error:
        return Finding(
            AREA, mark("space"), WARNING, said("not known: {error}", error=error), said("look with df")
        )
    text = said("{size:.1f} GiB free", size=nbytes / (1 << 30))
    if nbytes < _WANTED_BYTES:
        remedy = said("free some, or lower --npudump-dump-limit (1GiB: the tensors of one failing test)")
        return Finding(AREA, mark("space"), WARNING, text, remedy)
    if files is not None and files < _WANTED_FILES:
        remedy = said("free some (df -i): a dump has one file for each operator")
        return Finding(
            AREA,
            "space",
            WARNING,
            said("{text}, but only {files} more files", text=text, files=files),
            remedy,
        )
    return Finding(AREA, mark("space"), OK, text)
