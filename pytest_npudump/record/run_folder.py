"""Folder of one test's runs: the one place with the layout of its files.

    report.txt, report.json   what came of the test, where it failed
    run1/acl.json             the configuration of a run; acl-NAME.json that of a capture in it
    run1/dump                 what it dumped; dump-NAME that of a capture, exampleN of a check of an operator;
                              dump.tar where a session has kept it as one file
    run2/calls                calls of torch that a second run kept, as their operators were wrong

Whoever keeps or reproduces a run finds it by these names, in the process of the test or a week
later; what was deleted meanwhile is told as that.
"""

from __future__ import annotations

import json
import re
import shutil
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from pytest_npudump.dump.reader import read_dump
from pytest_npudump.errors import ConfigError, RequestError
from pytest_npudump.storage.archive import unpacked
from pytest_npudump.storage.regular_file import read_regular

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pytest_npudump.dump.records import TensorKey, TensorRecord


REPORT = "report"
"""The name of both files of a report, but for their suffixes."""
_DUMP, _OF_CAPTURE = "dump", "dump-"


@dataclass(frozen=True, slots=True)
class RunFolder:
    """The folder of one test's runs, which need not exist.

    Attributes:
        path: where it lies.
    """

    path: Path

    def make(self) -> None:
        """Make the folder, private to the user.

        Raises:
            ConfigError: it cannot be made.
        """
        try:
            self.path.mkdir(parents=True, mode=0o700, exist_ok=True)
        except OSError as error:
            raise ConfigError(
                f"{self.path}: the folder for the test's dumps cannot be made: {error.strerror}; choose "
                "another with --npudump-output"
            ) from error

    def delete(self) -> None:
        """Delete all that the runs have left."""
        shutil.rmtree(self.path, ignore_errors=True)

    def run(self, number: int) -> Path:
        """Return the folder of one run; 1 is the first."""
        return self.path / f"run{number}"


def read_report(file: Path) -> Any:
    """Read the data of a ``report.json``.

    Raises:
        OSError: it is not there.
        ValueError: it is no JSON.
    """
    try:
        return json.loads(read_regular(file))
    except RecursionError as error:
        raise ValueError(str(error)) from error


def dump_folder(run: Path, capture: str = "") -> Path:
    """Return the folder of a run's dump, or of a capture's in it."""
    return run / (f"{_OF_CAPTURE}{capture}" if capture else _DUMP)


def capture_of(name: str) -> str:
    """Return the capture whose dump a folder of this name holds; "" for what ran outside of any."""
    return name.removeprefix(_OF_CAPTURE) if name.startswith(_OF_CAPTURE) else ""


def dump_folders(run: Path) -> Iterator[tuple[str, Path]]:
    """Yield the folders of a run's dumps, each with the capture it is of."""
    for folder in sorted(path for path in run.iterdir() if path.is_dir()):
        yield capture_of(folder.name), folder


def is_dump(folder: Path) -> bool:
    """Whether a folder below those of tests is a dump of a run, which may be kept as one file."""
    return bool(re.fullmatch(r"run\d+", folder.parent.name)) and f"{folder.name}-".startswith(_OF_CAPTURE)


def read_tensors(run: Path, key: TensorKey, test: str) -> tuple[list[TensorRecord], TensorKey]:
    """Read the tensors of a second run beside a failing one, and the latter's key there.

    Raises:
        RequestError: the dump is not there any more.
    """
    folder = dump_folder(run, key.capture)
    if not unpacked(folder).is_dir():
        raise RequestError(
            f"{folder}: the second run's dump is not there any more: run {test} again, with "
            f"--npudump-output=DIR -o npudump_keep_dumps=failed"
        )
    return [*read_dump(folder, stats=False).records], replace(key, capture="")
