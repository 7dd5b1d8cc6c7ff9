"""File formats that other packages read, for files of a dump that no format of ours fits.

Another package offers one under the entry-point group ``pytest_npudump.formats``; its value is an object with
the methods of :class:`FileFormat`::

    [project.entry-points."pytest_npudump.formats"]
    my_format = "my_package.format:FORMAT"

``pytest_npudump.testing.FormatConformance`` says whether it does what the protocol wants. Names and first
bytes that are a format's of ours stay ours: nobody changes what a dump of CANN says.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Final, Protocol, runtime_checkable

from pytest_npudump.errors import DumpError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from pytest_npudump.dump.records import TensorRecord

GROUP: Final = "pytest_npudump.formats"


@runtime_checkable
class FileFormat(Protocol):
    """A kind of file that holds tensors, or statistics of some."""

    def claims(self, path: Path, start: bytes) -> bool:
        """Whether a file is of this format, by its name and its first 12 bytes, or all of a smaller one."""

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
