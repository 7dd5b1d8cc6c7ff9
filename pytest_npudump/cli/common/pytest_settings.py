"""What a pytest that is started in a folder would be told of some of our options, without pytest."""

from __future__ import annotations

import argparse
import os
from typing import TYPE_CHECKING, Any

from pytest_npudump.doctor.pytest_config import locate, parse_options, words_of
from pytest_npudump.language.translation import gettext as _

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

_USUAL = "golden"


def pytest_settings(folder: Path, names: Sequence[str]) -> tuple[Path, Mapping[str, str]]:
    """Return pytest's rootdir, and the values of keys: of the ini file, of its addopts and of the variable.

    Args:
        folder: a pytest that starts here would run the tests.
        names: of ini keys, each of which is an option, too; "" is the value of those that nobody names.

    Raises:
        ConfigError: pytest's configuration cannot be read.
    """
    file, ini = locate(folder.absolute())
    root = file.parent if file is not None else folder.absolute()
    told = {name: str(ini.get(name, "")) for name in names}
    told |= _given(names, ini.get("addopts", ""), root, _("addopts of {file}").format(file=file))
    told |= _given(names, os.environ.get("PYTEST_ADDOPTS", ""), root, "PYTEST_ADDOPTS")
    return root, told


def golden_folder(folder: Path) -> Path:
    """Return the folder of the goldens, relative to ``folder`` where it lies in it.

    Args:
        folder: a pytest that starts here would run the tests.

    Raises:
        ConfigError: pytest's configuration cannot be read.
    """
    root, told = pytest_settings(folder, ["npudump_golden_dir"])
    found = root / (told["npudump_golden_dir"] or _USUAL)
    own = folder.absolute()
    return found.relative_to(own) if found.is_relative_to(own) else found


def _given(names: Sequence[str], words: Any, folder: Path, origin: str) -> Mapping[str, str]:
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False, exit_on_error=False)
    for name in names:
        parser.add_argument(f"--{name.replace('_', '-')}", dest=name)
    found = vars(parse_options(parser, words_of(words, origin), folder, origin))
    return {name: value for name, value in found.items() if value is not None}
