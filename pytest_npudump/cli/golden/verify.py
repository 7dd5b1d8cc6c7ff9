"""``npudump golden verify``: whether golden files can be read and belong together, for a pre-commit hook."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from pytest_npudump.cli.common.output import emit, write_json
from pytest_npudump.cli.common.pytest_folder import golden_folder
from pytest_npudump.errors import RequestError
from pytest_npudump.golden.census import faults, files_below
from pytest_npudump.language.translation import gettext as _
from pytest_npudump.language.translation import spoken

if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence


def run(arguments: argparse.Namespace) -> int:
    """Say what is wrong; 1 where anything is.

    Raises:
        RequestError: there is nothing to look at.
    """
    files = golden_files(named_or_usual(arguments.paths))
    found = [*faults(dict.fromkeys(files))]
    if arguments.json:
        write_json([{"path": str(fault.path), "reason": fault.reason} for fault in found], arguments.json)
    if arguments.json != "-":
        bad = len({fault.path for fault in found})
        emit(
            [
                *(spoken(fault.reason) for fault in found),
                _("{left} of {count} files are sound").format(left=len(files) - bad, count=len(files)),
            ]
        )
    return 1 if found else 0


def named_or_usual(paths: Sequence[Path]) -> Sequence[Path]:
    """Return what a command line names, or the folder of the goldens where it names nothing.

    Raises:
        ConfigError: pytest's configuration, which may name the folder, cannot be read.
    """
    return paths or [golden_folder(Path.cwd())]


def golden_files(paths: Sequence[Path]) -> list[Path]:
    """Return the goldens and tensors that are named, or lie below folders that are.

    Raises:
        RequestError: something is not there, or a folder holds none.
    """
    return [file for path in paths for file in _files(path)]


def _files(path: Path) -> Sequence[Path]:
    if not path.is_dir():
        if path.exists():
            return [path]
        raise RequestError(
            _("{path}: no such file or folder: name the folder of the goldens, or golden files").format(
                path=path
            )
        )
    if found := files_below(path):
        return found
    raise RequestError(_("{path}: holds no golden file: name the folder of the goldens").format(path=path))
