"""The file formats of a dump, a folder each; every reader raises ``FormatError`` with the file and the byte.

Tensors: ``container`` and ``npy``. Statistics: ``operator_csv`` of one operator (ACL dump), ``step_csv`` of
a step (``statistic.csv``). No tensors of the model: ``overflow`` records and ``core`` files. What other
packages read: ``offered``, by ``registry``. Beside the formats: ``mapping`` of long names,
``stats_cells`` of both tables, ``part_stats`` of files that tell none.

Each folder has its ``FORMAT`` (see ``format``), which tells its files, and imports what reads them
when one is read.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

from pytest_npudump.dump.files import container, core, npy, offered, operator_csv, overflow, step_csv

if TYPE_CHECKING:
    from pathlib import Path

    from pytest_npudump.dump.files.format import Format
    from pytest_npudump.dump.names import DumpName

FORMATS: tuple[Format, ...] = (
    step_csv.FORMAT,
    operator_csv.FORMAT,
    npy.FORMAT,
    overflow.FORMAT,
    core.FORMAT,
    container.FORMAT,
    offered.FORMAT,
)
"""The first that takes a file has it, so those of other packages come last."""

BY_NAME = {format_.name: format_ for format_ in FORMATS}
_BY_FILE_NAME = {format_.file_name: format_ for format_ in FORMATS if format_.file_name}


def format_of_name(file_name: str, name: DumpName | None) -> Format | None:
    """Return the format of a file by what it is called, and what the grammars of names make of that."""
    if name is None:
        return _BY_FILE_NAME.get(file_name)
    return _format_of_kind(name.kind, name.suffix)


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
