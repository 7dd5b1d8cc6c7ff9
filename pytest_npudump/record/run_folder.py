"""Folder of one test's runs: the one place with the layout of its files.

    report.txt, report.json   what came of the test, where it failed
    other-memory.stats        statistics of a run in which memory held other values
    run1/acl.json             the configuration of a run; acl-NAME.json that of a capture in it
    run1/dump                 what it dumped; dump-NAME that of a capture, exampleN of a check of an operator;
                              dump.tar where a session has kept it as one file
    run2/context              what explaining a failure by the run takes besides its dump
    run2/calls                calls of torch that a second run kept, as their operators were wrong

Whoever explains, keeps or reproduces a run finds it by these names, in the process of the test or a week
later; what was deleted meanwhile is told as that.
"""

from __future__ import annotations

import json
import re
import shutil
from dataclasses import dataclass, replace
from enum import Enum
from functools import cache
from hashlib import blake2b
from importlib.metadata import version
from io import BytesIO
from pickle import Unpickler, UnpicklingError
from typing import TYPE_CHECKING, Any, TypeVar

from pytest_npudump.dump.reader import read_dump
from pytest_npudump.errors import ConfigError, NpudumpError, RequestError
from pytest_npudump.storage.atomic import dump_bytes
from pytest_npudump.storage.packed import unpacked
from pytest_npudump.storage.regular_file import read_regular

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pytest_npudump.dump.records import TensorKey, TensorRecord
    from pytest_npudump.dump.table import StatsTable


_T = TypeVar("_T")

REPORT = "report"
"""The name of both files of a report, but for their suffixes."""
_DUMP, _OF_CAPTURE, _PROBE = "dump", "dump-", "other-memory.stats"
CONTEXT = "context"
"""The file beside a dump without which the dump explains nothing."""
_HEAD, _FORMAT = "pytest-npudump", 2
"""Head of kept files; the number goes up with every change of their classes' content."""
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
        found = (file.parent for file in self.path.glob(f"run[0-9]*/{CONTEXT}"))
        runs = {int(run.name[3:]): run for run in found if re.fullmatch("run[0-9]{1,9}", run.name)}
        if not runs:
            raise RequestError(
                f"{self.path}: no second run is there that a failure could be explained by, or not any more: "
                f"{_AGAIN}"
            )
        return runs[max(runs)]

    def keep_probe(self, table: StatsTable) -> None:
        """Keep the statistics of a run in other memory for the run that is recorded."""
        _keep(self.path / _PROBE, table)

    def read_probe(self) -> StatsTable | None:
        """Read the table of :meth:`keep_probe`; None where no such run came to its end.

        Raises:
            RequestError: it is damaged.
        """
        from pytest_npudump.dump.table import StatsTable  # noqa: PLC0415 - numpy, which most commands do without

        path = self.path / _PROBE
        return _read(path, StatsTable) if path.exists() else None


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


def calls_folder(run: Path) -> Path:
    """Return the folder of a second run's calls."""
    return run / "calls"


_OTHERS = frozenset(
    {f"builtins.{name}" for name in ("complex", "frozenset", "set", "slice", "bytearray")}
    | {"collections.OrderedDict", "pathlib.PosixPath", "pathlib._local.PosixPath"}
    | {"array.array", "array._array_reconstructor", "numpy.dtype", "numpy.ndarray"}
    | {f"numpy.{core}.numeric._frombuffer" for core in ("_core", "core")}
    | {f"numpy.{core}.multiarray.{name}" for core in ("_core", "core") for name in ("_reconstruct", "scalar")}
    | {f"ml_dtypes.{name}" for name in ("bfloat16", "int1", "int2", "int4", "uint1", "uint2", "uint4")}
    | {f"ml_dtypes.float8_{name}" for name in ("e3m4", "e4m3", "e4m3b11fnuz", "e4m3fn", "e4m3fnuz")}
    | {f"ml_dtypes.float8_{name}" for name in ("e5m2", "e5m2fnuz", "e8m0fnu")}
    | {f"ml_dtypes.float{name}" for name in ("4_e2m1fn", "6_e2m3fn", "6_e3m2fn")}
)
"""Names of other packages allowed in a kept file: values, types of arrays, and makers of arrays."""
_MAKERS = frozenset(
    {"pytest_npudump.errors._format_error", "pytest_npudump.errors._said"}
    | {"pytest_npudump.storage.atomic._read_only", "pytest_npudump.compare.tolerances.tolerance.Tolerances"}
    | {"pytest_npudump.dump.columns.TensorTable"}
)
"""Makers of values here besides classes that only hold them; the code of these touches no file."""
_ROOMS = frozenset(
    {"compare", "dump", "errors", "explain", "golden", "graph", "onnxmodels", "record", "regression"}
    | {"request", "runtime.aten"}
)
"""Rooms of the other classes of values: importing a module has to do nothing else."""


class _ValuesUnpickler(Unpickler):
    """Reads nothing but values: a folder may come from elsewhere, and pickle calls what a file names."""

    def find_class(self, module: str, name: str) -> Any:
        full, parts = f"{module}.{name}", module.split(".")
        own = parts[0] == "pytest_npudump" and (_ROOMS & {*parts[1:2], ".".join(parts[1:3])})
        # Pickle looks up "a.b" in a module step by step, so that a dotted name gets anywhere from anything.
        if "." not in name and (own or full in _OTHERS | _MAKERS):
            found = super().find_class(module, name)
            if full in _OTHERS | _MAKERS or (isinstance(found, type) and _holds_values(found, module)):
                return found
        raise UnpicklingError(f"it names {full}, which is no plain value")


def _holds_values(kind: type, module: str) -> bool:
    """Return whether a class of a module has no other behaviour when an object is made than to hold it."""
    if kind.__module__ != module:
        return False
    if "__dataclass_params__" in vars(kind):
        generated = vars(kind)["__init__"].__code__.co_filename == "<string>"  # else its own code would run
        return generated and not hasattr(kind, "__post_init__")
    return issubclass(kind, (Enum, NpudumpError)) or (issubclass(kind, tuple) and hasattr(kind, "_fields"))


def _head(content: bytes) -> str:
    """Return the line before a file's content: its version, and the digest that shows damage."""
    digest = blake2b(content, digest_size=16).hexdigest()
    return f"{_HEAD} {_version()} format {_FORMAT} {digest}"


@cache
def _version() -> str:
    return version("pytest-npudump")


def _keep(file: Path, kept: object) -> None:
    content = dump_bytes(kept)
    file.write_bytes(f"{_head(content)}\n".encode() + content)


def _read(file: Path, kind: type[_T]) -> _T:
    try:
        head, _, content = read_regular(file).partition(b"\n")
        wanted = _head(content).encode()
        kept = _ValuesUnpickler(BytesIO(content)).load() if head == wanted else None
    except Exception as error:  # whatever the bytes make of it
        reason = str(error) or type(error).__name__
        raise RequestError(f"{file}: cannot be read: {reason}: {_AGAIN}") from error
    if type(kept) is kind:
        return kept
    if head.rpartition(b" ")[0] != wanted.rpartition(b" ")[0]:
        raise RequestError(f"{file}: was written by another version of pytest-npudump: {_AGAIN}")
    reason = f"it holds no {kind.__name__}" if head == wanted else "it is damaged"
    raise RequestError(f"{file}: cannot be read: {reason}: {_AGAIN}")


def keep_context(run: Path, context: object) -> None:
    """Keep the context of an explanation besides a run's dump, for this version to read.

    Raises:
        OSError: it cannot be written.
    """
    _keep(run / CONTEXT, context)


def read_context(run: Path, kind: type[_T]) -> _T:
    """Read the context of :func:`keep_context`.

    Args:
        run: the folder of the run.
        kind: what it is.

    Raises:
        RequestError: it is not there any more, damaged, of another version, or of another kind.
    """
    return _read(run / CONTEXT, kind)


def refuse_deleted(folder: Path, test: str) -> None:
    """Refuse to explain anything by a dump that was deleted.

    Raises:
        RequestError: it was.
    """
    if not unpacked(folder).is_dir():
        raise RequestError(
            f"{folder}: the second run's dump is not there any more: run {test} again, with "
            f"--npudump-output=DIR -o npudump_keep_dumps=failed"
        )


def read_tensors(run: Path, key: TensorKey, test: str) -> tuple[list[TensorRecord], TensorKey]:
    """Read the tensors of a second run beside a failing one, and the latter's key there.

    Raises:
        RequestError: the dump is not there any more.
    """
    folder = dump_folder(run, key.capture)
    refuse_deleted(folder, test)
    return [*read_dump(folder, stats=False).records], replace(key, capture="")
