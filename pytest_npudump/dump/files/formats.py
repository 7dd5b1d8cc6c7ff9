"""File formats of a dump: how the files of each are recognised, and the modules that read them.

A format is a row of :data:`FORMATS` and a module with a ``read_file`` (see :class:`Reader`), which is
imported when its first file is read: it may need numpy and protobuf.

Files that no format of ours fits may be of one that another package offers under the entry-point group
``pytest_npudump.formats``; its value is an object with the methods of :class:`FileFormat`::

    [project.entry-points."pytest_npudump.formats"]
    my_format = "my_package.format:FORMAT"

``pytest_npudump.testing.FormatConformance`` says whether it does what the protocol wants. Names and first
bytes that are a format's of ours stay ours: nobody changes what a dump of CANN says.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from importlib import import_module
from typing import TYPE_CHECKING, Final, Literal, NamedTuple, Protocol, runtime_checkable

from pytest_npudump.dump.names import MSPROBE, DumpFile, DumpName, is_short_name
from pytest_npudump.errors import DumpError, FormatError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from pytest_npudump.dump.columns import Execution, TensorPart
    from pytest_npudump.dump.records import TensorRecord


START_BYTES = 12
"""Size of the part of a file that identifies its format."""

TLV_MAGIC = b"\x5a\x5a\x5a\x5a"
"""Bytes 8 to 11 of a TLV container."""

_PROTOBUF_START = b"\x0a\x03"
_PLAIN = frozenset({".pt", ".pth", ".npy", ".npz", ".safetensors", ".bin"})


class Job(NamedTuple):
    """A dump file to read.

    Attributes:
        file: the file.
        csv: the statistics CSV of the same execution, where both exist.
        more: files with other tensors of the same execution.
    """

    file: DumpFile
    csv: DumpFile | None = None
    more: tuple[DumpFile, ...] = ()


class Reader(Protocol):
    """Reader of a format's files: ``read_file`` of its module."""

    def __call__(
        self, job: Job, table: tuple[TensorPart, ...], /, *, stats: bool, acl: bool, projections: bool
    ) -> tuple[list[Execution], list[FormatError]]:
        """Return the executions that a file holds, and the problems of single tensors.

        Args:
            job: the file.
            table: rows of the statistics CSV beside it.
            stats: compute the statistics of tensors that have bytes and no row in ``table``.
            acl: compute them as CANN's device-side writer does.
            projections: compute these with them, of all tensors that have bytes.

        Raises:
            FormatError: the file is damaged; nothing of it is returned.
        """


@dataclass(frozen=True, slots=True)
class Format:
    """A file format.

    Attributes:
        name: which ``DumpFile.format`` has for its files, and that of the module that reads them.
        file_name: what each file of this format is called; "" where they have names of their own.
        named: whether a file is of this format, by the ``kind`` and the ``suffix`` of its ``DumpName``.
        begins: whether a file that no format knows by its name is of this one, by its path and its first 12
            bytes, or all of a smaller one.
        alone: whether a file that no format takes is of this one, where a folder holds no other dump.
        needs_name: what ``begins`` tells cannot be read, as only the name says which operator's it is.
        part: the attribute of ``Tree`` that takes its files.
        instead: where they hold no tensor of the model, what such a file is, and what reads it.
        misnamed: the suffix of its files, and what to say of one whose name is of no format.
        together: whether its reader takes ``waiting``, by which statistics of many are computed
            at once.
    """

    name: str
    file_name: str = ""
    named: Callable[[str, str], bool] = lambda _kind, _suffix: False
    begins: Callable[[Path, bytes], bool] = lambda _path, _start: False
    alone: Callable[[Path, bytes], bool] = lambda _path, _start: False
    needs_name: bool = False
    part: Literal["files", "statistics", "overflow", "cores"] = "files"
    instead: str = ""
    misnamed: tuple[str, str] | None = None
    together: bool = False

    @property
    def read(self) -> Reader:
        """Reader of its files."""
        reader: Reader = import_module(f"{__package__}.{self.name}").read_file
        return reader


FORMATS = (
    Format("step_csv", file_name="statistic.csv", part="statistics"),
    Format("msprobe", file_name=MSPROBE),
    Format(
        "operator_csv",
        named=lambda kind, suffix: suffix == ".csv" and kind != "opdebug",
        begins=lambda _path, start: start.startswith(b"Input/Output"),
        needs_name=True,
        misnamed=(
            ".csv",
            (
                "it may hold statistics, and its name does not tell of what: expected "
                "{type}.{name}.{task}.{stream}.{time}.csv or statistic.csv; rename it, or take it out of the "
                "dump"
            ),
        ),
    ),
    Format(
        "npy",
        named=lambda _kind, suffix: suffix == ".npy",
        misnamed=(
            ".npy",
            (
                "it may hold a tensor, and its name does not tell which: expected a name of MindSpore or of "
                "TorchAir, or that of a dump file and .output.0.npy; rename it, or take it out of the dump"
            ),
        ),
    ),
    Format(
        "overflow",
        named=lambda kind, _suffix: kind == "opdebug",
        part="overflow",
        instead="an overflow record, which holds no tensor: npudump ls {path}",
    ),
    Format(
        "core",
        named=lambda kind, _suffix: kind == "core",
        part="cores",
        instead="the core of a kernel that failed, which holds no tensor of the model: msdebug opens it",
    ),
    Format(
        "container",
        named=lambda kind, suffix: not suffix and kind != "opdebug",
        begins=lambda _path, start: start[8:] == TLV_MAGIC or start[8:10] == _PROTOBUF_START,
        together=True,
    ),
    Format(
        "entry_point",
        begins=lambda path, start: not is_short_name(path) and format_of(path, start) is not None,
    ),
    Format(
        "plain",
        alone=lambda path, _start: path.suffix in _PLAIN,
    ),
)
"""The first that takes a file has it, so those of other packages come last."""

BY_NAME = {format_.name: format_ for format_ in FORMATS}
_BY_FILE_NAME = {format_.file_name: format_ for format_ in FORMATS if format_.file_name}


def format_of_name(file_name: str, name: DumpName | None) -> Format | None:
    """Return the format of a file by what it is called, and what the grammars of names make of that."""
    return _BY_FILE_NAME.get(file_name) if name is None else _format_of_kind(name.kind, name.suffix)


@lru_cache(maxsize=64)
def _format_of_kind(kind: str, suffix: str) -> Format | None:
    return next((format_ for format_ in FORMATS if format_.named(kind, suffix)), None)


def format_of_content(path: Path, start: bytes) -> Format | None:
    """Return the format of a file that none knows by its name.

    Args:
        path: the file.
        start: its first 12 bytes, or all of a smaller one.

    Raises:
        DumpError: two formats of other packages claim it.
    """
    return next((format_ for format_ in FORMATS if format_.begins(path, start)), None)


def plain_format(path: Path, start: bytes | None) -> Format | None:
    """Return the format of a file that no other takes, where it lies in no dump of another kind.

    Args:
        path: the file.
        start: its first 12 bytes, or all of a smaller one; None if they cannot be read.
    """
    return None if start is None else next((one for one in FORMATS if one.alone(path, start)), None)


def start_of(path: Path) -> bytes | None:
    """Return the first 12 bytes of a file, which ``Format.begins`` takes; None if it cannot be read."""
    try:
        with path.open("rb") as file:
            return file.read(START_BYTES)
    except OSError:
        return None


GROUP: Final = "pytest_npudump.formats"


@runtime_checkable
class FileFormat(Protocol):
    """A kind of file that holds tensors, or statistics of some."""

    def claims(self, path: Path, start: bytes) -> bool:
        """Return whether a file is of this format, by its name and its first 12 bytes or fewer."""

    def read(self, path: Path) -> Sequence[TensorRecord]:
        """Return the tensors of a file, in the order in which they were computed.

        Of each ``key`` only ``layer``, ``io`` and ``slot`` count. Tensors of one layer that follow each other
        are one execution of it, until one of them comes again. Statistics of tensors with a ``payload`` are
        computed by the caller where ``stats`` is None.

        Raises:
            FormatError: the file is damaged, cut off or too large for what it says; nothing of such a file
                is returned.
        """


@lru_cache(maxsize=1)
def offered() -> tuple[FileFormat, ...]:
    """Return the formats that other packages offer.

    Raises:
        DumpError: one cannot be imported, or lacks a method.
    """
    from importlib.metadata import entry_points  # noqa: PLC0415 - 20 ms that only unknown files need

    formats = []
    for found in entry_points(group=GROUP):
        try:
            format_ = found.load()
        except Exception as error:
            words = f"{type(error).__name__}: {error}"
            raise DumpError(f"entry point {found.name} of {GROUP}: cannot be imported: {words}") from error
        if isinstance(format_, type) or not isinstance(format_, FileFormat):
            raise DumpError(f"entry point {found.name} of {GROUP}: expected an object with claims and read")
        formats.append(format_)
    return tuple(formats)


def format_of(path: Path, start: bytes) -> FileFormat | None:
    """Return the format that claims a file; None where none does.

    Args:
        path: the file.
        start: its first 12 bytes, or all of a smaller one.

    Raises:
        DumpError: two formats claim it.
    """
    found = [format_ for format_ in offered() if _claims(format_, path, start)]
    if len(found) > 1:
        names = ", ".join(type(format_).__name__ for format_ in found)
        raise DumpError(f"{path}: {len(found)} formats of other packages claim it ({names}); uninstall one")
    return found[0] if found else None


def _claims(format_: FileFormat, path: Path, start: bytes) -> bool:
    try:
        return bool(format_.claims(path, start))
    except Exception as error:
        words = f"{type(error).__name__}: {error}"
        raise DumpError(
            f"{path}: {type(format_).__name__}.claims() of another package fails: {words}"
        ) from error
