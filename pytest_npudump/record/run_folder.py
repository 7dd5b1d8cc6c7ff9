"""The folder of one test's runs: the one place that knows where in it what a run leaves lies.

    report.txt, report.json   what came of the test, where it failed
    other-memory.stats        statistics of a run in which memory held other values
    run1/acl.json             the configuration of a run; acl-NAME.json that of a capture in it
    run1/dump                 what it dumped; dump-NAME that of a capture, exampleN of a check of an operator
    run2/context              what explaining a failure by the run takes besides its dump
    run2/calls                calls of torch that a second run kept, as their operators were wrong

Whoever explains, keeps or reproduces a run finds it by these names, in the process of the test or a week
later; what was deleted meanwhile is told as that.
"""

from __future__ import annotations

import json
import shutil
from dataclasses import dataclass, replace
from importlib.metadata import version
from io import BytesIO
from pickle import Unpickler, UnpicklingError
from typing import TYPE_CHECKING, Any

from pytest_npudump.dump.reader import read_dump
from pytest_npudump.errors import ConfigError, RequestError
from pytest_npudump.storage.atomic import dump_bytes, load_bytes
from pytest_npudump.storage.regular_file import read_regular

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pytest_npudump.dump.records import TensorKey, TensorRecord
    from pytest_npudump.dump.table import StatsTable


REPORT = "report"
"""The name of both files of a report, but for their suffixes."""
_DUMP, _OF_CAPTURE = "dump", "dump-"
_CONTEXT, _HEAD = "context", "pytest-npudump"
_AGAIN = "run the test again"


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
        """Return the folder of one run: 1 is the first, 0 one in other memory."""
        return self.path / f"run{number}"

    def last_run(self) -> Path:
        """Return the folder of the last run that was made to explain a failure.

        Raises:
            RequestError: there is none, or not any more.
        """
        runs = sorted(self.path.glob(f"run[0-9]*/{_CONTEXT}"), key=lambda file: int(file.parent.name[3:]))
        if not runs:
            raise RequestError(
                f"{self.path}: no second run is there that a failure could be explained by, or not any more: "
                f"{_AGAIN}"
            )
        return runs[-1].parent

    def keep_probe(self, table: StatsTable) -> None:
        """Keep the statistics of a run in other memory for the run that is recorded."""
        (self.path / "other-memory.stats").write_bytes(dump_bytes(table))

    def read_probe(self) -> StatsTable | None:
        """Return what :meth:`keep_probe` kept; None where no such run came to its end."""
        path = self.path / "other-memory.stats"
        return load_bytes(path.read_bytes()) if path.exists() else None


def read_report(file: Path) -> Any:
    """Return what a ``report.json`` says.

    Raises:
        OSError: it is not there.
        ValueError: it is no JSON.
    """
    try:
        return json.loads(read_regular(file))
    except RecursionError as error:
        raise ValueError(str(error)) from error


def dump_folder(run: Path, capture: str = "") -> Path:
    """Return where a run's dump lies, or that of a capture in it."""
    return run / (f"{_OF_CAPTURE}{capture}" if capture else _DUMP)


def capture_of(name: str) -> str:
    """Return the capture whose dump a folder of this name holds; "" for what ran outside of any."""
    return name.removeprefix(_OF_CAPTURE) if name.startswith(_OF_CAPTURE) else ""


def dump_folders(run: Path) -> Iterator[tuple[str, Path]]:
    """Yield the folders of a run's dumps, each with the capture it is of."""
    for folder in sorted(path for path in run.iterdir() if path.is_dir()):
        yield capture_of(folder.name), folder


def calls_folder(run: Path) -> Path:
    """Return where a second run's calls lie."""
    return run / "calls"


_VALUES = frozenset(
    {"builtins.complex", "builtins.frozenset", "builtins.set", "builtins.slice", "collections.OrderedDict"}
    | {"copyreg._reconstructor", "pathlib.PosixPath", "pathlib._local.PosixPath"}
    | {"numpy.dtype", "numpy.ndarray"}
)
"""What names may stand in a context besides classes of this package, and numpy's own functions for arrays."""
_OF_ARRAYS = frozenset({"_reconstruct", "scalar", "_frombuffer"})
_MAKERS = frozenset({"_format_error", "_read_only", "_said"})
"""This package's own functions that make values: of an error, a read-only mapping and a message."""


class _ValuesUnpickler(Unpickler):
    """Reads nothing but values: a folder may come from elsewhere."""

    def find_class(self, module: str, name: str) -> Any:
        array = module == "ml_dtypes" or (module.startswith("numpy.") and name in _OF_ARRAYS)
        own = module.partition(".")[0] == __package__.partition(".")[0]
        if not own and not array and f"{module}.{name}" not in _VALUES:
            raise UnpicklingError(f"it names {module}.{name}, which is no plain value")
        found = super().find_class(module, name)
        if own and name not in _MAKERS and not (isinstance(found, type) and found.__module__ == module):
            raise UnpicklingError(f"it names {module}.{name}, which is no plain value")
        return found


def keep_context(run: Path, context: object) -> None:
    """Keep what explaining takes besides a run's dump, for this version to read.

    Raises:
        OSError: it cannot be written.
    """
    (run / _CONTEXT).write_bytes(f"{_HEAD} {version('pytest-npudump')}\n".encode() + dump_bytes(context))


def read_context(run: Path) -> Any:
    """Return what :func:`keep_context` kept.

    Raises:
        RequestError: it is not there any more, or of another version.
    """
    file = run / _CONTEXT
    try:
        head, _, content = read_regular(file).partition(b"\n")
        if head.decode() != f"{_HEAD} {version('pytest-npudump')}":
            raise RequestError(f"{file}: was written by another version of pytest-npudump: {_AGAIN}")
        return _ValuesUnpickler(BytesIO(content)).load()
    except (OSError, UnpicklingError, EOFError, UnicodeDecodeError) as error:
        raise RequestError(f"{file}: cannot be read: {error}: {_AGAIN}") from error


def refuse_deleted(folder: Path, test: str) -> None:
    """Refuse to explain anything by a dump that was deleted.

    Raises:
        RequestError: it was.
    """
    if not folder.is_dir():
        raise RequestError(
            f"{folder}: the second run's dump is not there any more: run {test} again, with "
            f"--npudump-output=DIR -o npudump_keep_dumps=failed"
        )


def read_tensors(run: Path, key: TensorKey, test: str) -> tuple[list[TensorRecord], TensorKey]:
    """Return what a second run dumped where a failing tensor is, and the tensor's key there.

    Raises:
        RequestError: the dump is not there any more.
    """
    folder = dump_folder(run, key.capture)
    refuse_deleted(folder, test)
    return [*read_dump(folder, stats=False).records], replace(key, capture="")
