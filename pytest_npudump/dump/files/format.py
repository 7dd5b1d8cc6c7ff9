"""What a file format is to the rest of the reader: how its files are told, and what reads them."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING, Literal, NamedTuple, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pytest_npudump.dump.execution import Execution
    from pytest_npudump.dump.parts import TensorPart
    from pytest_npudump.dump.places import DumpFile
    from pytest_npudump.errors import FormatError

START_BYTES = 12
"""How much of a file's content its format is told by."""


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
    """What reads the files of a format: ``read_file`` of the module ``executions`` in its folder."""

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
        name: which ``DumpFile.format`` has for its files, and that of its folder.
        file_name: what each file of this format is called; "" where they have names of their own.
        named: whether a file is of this format, by the ``kind`` and the ``suffix`` of its ``DumpName``.
        begins: whether a file that no format knows by its name is of this one, by its path and its first 12
            bytes, or all of a smaller one.
        needs_name: what ``begins`` tells cannot be read, as only the name says which operator's it is.
        part: the attribute of ``Tree`` that takes its files.
        instead: where they hold no tensor of the model, what such a file is, and what reads it.
        misnamed: the suffix of its files, and what to say of one whose name is of no format.
    """

    name: str
    file_name: str = ""
    named: Callable[[str, str], bool] = lambda _kind, _suffix: False
    begins: Callable[[Path, bytes], bool] = lambda _path, _start: False
    needs_name: bool = False
    part: Literal["files", "statistics", "overflow", "cores"] = "files"
    instead: str = ""
    misnamed: tuple[str, str] | None = None

    @property
    def read(self) -> Reader:
        """What reads its files, imported when the first is read: it may need numpy and protobuf."""
        return _reader(self.name)


@cache
def _reader(name: str) -> Reader:
    reader: Reader = import_module(f"{__package__}.{name}.executions").read_file
    return reader


def start_of(path: Path) -> bytes | None:
    """Return the first 12 bytes of a file, which ``Format.begins`` takes; None if it cannot be read."""
    try:
        with path.open("rb") as file:
            return file.read(START_BYTES)
    except OSError:
        return None
