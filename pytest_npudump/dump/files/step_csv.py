"""``statistic.csv``: the statistics of a whole step in one file, by MindSpore (all versions) and msprobe.

The columns from ``Max Value`` on are what was chosen, under names that changed from version to version. Those
of torch modules end with ``Digits``, which the statistics of a row have: 0 for full precision.
MindSpore from 2.3 on ends each row, but not the header, with a comma.
"""

from __future__ import annotations

import csv
from dataclasses import dataclass
from functools import lru_cache
from operator import itemgetter
from typing import TYPE_CHECKING

from pytest_npudump.dump.columns import Execution, TensorPart
from pytest_npudump.dump.files.operator_csv import (
    DIGESTS,
    NO_VALUE,
    STATISTICS,
    column,
    doubtful,
    parse_count,
    parse_digest,
    parse_dtype,
    parse_shape,
    parse_stats,
    repaired,
    unread,
)
from pytest_npudump.dump.unguarded import replace
from pytest_npudump.errors import FormatError
from pytest_npudump.storage.regular_file import read_small

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from pytest_npudump.dump.files.formats import Job
    from pytest_npudump.dump.names import Place


_REQUIRED = ("op_type", "op_name", "task", "stream", "time", "io", "slot", "size", "dtype", "shape")
_FORMAT = "format"
_DIGITS = "Digits"
_HEADER_START = "Op Type"
_EXPECTED = "expected an operator's name, a time stamp, input or output, and a slot"
_IO = frozenset({"input", "output"})


@dataclass(frozen=True, slots=True)
class _Header:
    """How to read the rows below one header.

    Attributes:
        required, values, digests: pick the cells of ``_REQUIRED``, ``STATISTICS`` and ``DIGESTS`` from a row
            to which an empty cell was added for columns that the file has not.
        hashed: whether the file has any of ``DIGESTS``.
        layout: index of the layout's cell in such a row.
        digits: index of the cell with the digits of the row's statistics, which our own files have.
        by_host: the file was merged from CANN's own, which the host converter may have garbled.
        note: names the columns that are not read.
    """

    required: Callable[[Sequence[str]], tuple[str, ...]]
    values: Callable[[Sequence[str]], tuple[str, ...]]
    digests: Callable[[Sequence[str]], tuple[str, ...]]
    hashed: bool
    layout: int
    digits: int
    by_host: bool
    note: str


def read_step_csv(path: Path, place: Place) -> list[Execution]:
    """Read a merged statistics file: ``Stats`` carries 6 significant digits, integers are exact.

    Args:
        path: the file.
        place: what its directories say.

    Returns:
        An execution of one tensor for each row.

    Raises:
        FormatError: the file cannot be read or is cut short, the header lacks a column, or a row does not
            have the cells the header asks for. It names the byte at which the line begins.
    """
    data = read_small(path)
    if not data.endswith(b"\n"):
        reason = "the last line has no line feed: the file was cut short" if data else "the file is empty"
        raise FormatError(path, f"{reason}; collect the dump again", offset=data.rfind(b"\n") + 1)
    reader = csv.reader(data.decode("utf-8", "surrogateescape").split("\n")[:-1], strict=True)
    rows: list[Execution] = []
    header: _Header | None = None
    columns = width = 0
    try:
        for line, cells in enumerate(reader, 1):
            if reader.line_num != line:
                raise ValueError("a quoted cell goes on in the next line")  # noqa: TRY301 - gets its place below
            if cells[:1] == [_HEADER_START]:
                header, columns, width = _header(tuple(cells)), len(cells), 0
                continue
            if header is None:
                raise ValueError(f"expected a header that begins with {_HEADER_START},Op Name,Task ID")  # noqa: TRY301 - the same
            if len(cells) != width or width != columns:
                # A row has the header's cells, or, in all rows alike, an empty one behind them.
                width = width or len(cells)
                fits = width == columns or (width == columns + 1 and cells[-1:] == [""])
                if len(cells) != width or not fits:
                    raise ValueError(  # noqa: TRY301 - the same
                        f"{len(cells)} cells, expected {columns} as in the header, or one more that is "
                        "empty; all rows of a file end alike"
                    )
            rows.append(_row(cells, header, path, place))
        if not rows:
            raise ValueError("a header and no row: the file was cut short, collect the dump again")  # noqa: TRY301 - the same
    except (ValueError, OverflowError, csv.Error) as error:  # the second: an infinity in an integer's place
        number = max(reader.line_num, 1)
        offset = sum(len(line) + 1 for line in data.split(b"\n")[: number - 1])
        raise FormatError(path, f"line {number}: {error}", offset=offset) from None
    return rows


@lru_cache(maxsize=64)
def _header(titles: tuple[str, ...]) -> _Header:
    names = [column(title) for title in titles if title != _DIGITS]
    missing = [name for name in _REQUIRED if name not in names]
    known = [name for name in names if name not in {None, "ignored"}]
    if missing or len(set(known)) < len(known):
        raise ValueError(
            f"the header lacks the columns {', '.join(missing)}" if missing else "a column stands twice"
        )
    return _Header(
        itemgetter(*(names.index(name) for name in _REQUIRED)),
        itemgetter(*(names.index(name) if name in names else -1 for name in STATISTICS)),
        itemgetter(*(names.index(name) if name in names else -1 for name in DIGESTS)),
        any(name in names for name in DIGESTS),
        names.index(_FORMAT) if _FORMAT in names else -1,
        titles.index(_DIGITS) if titles[-1] == _DIGITS else -1,
        "Input/Output" in titles,
        unread([title for title in titles if title != _DIGITS]),
    )


def _row(cells: list[str], header: _Header, path: Path, place: Place) -> Execution:
    cells.append("")
    op_type, op_name, task, stream, time, io, slot, size, dtype_text, shape = header.required(cells)
    io, index, dtype, extents, layout, nbytes = _tensor(
        io, slot, dtype_text, shape, cells[header.layout], size
    )
    stats = parse_stats(header.values(cells), dtype)
    digest = parse_digest(header.digests(cells)) if header.hashed else ""
    why = ""
    if stats is not None and header.digits >= 0:
        stats = replace(stats, digits=parse_count(cells[header.digits]) or None)
    if stats is None and not digest:
        why = "the producer gave no statistics for this tensor"
    elif stats is not None and header.by_host and doubtful(dtype):
        stats, why = repaired(stats, dtype)
    note = f"{why}; {header.note}" if why and header.note else why or header.note
    # Every row has a time of its own, which the memory of parse_count would only be filled with.
    stamp = int(time) if time.isdigit() and time.isascii() else parse_count(time)
    if not op_name or stamp is None:
        raise ValueError(_EXPECTED)
    part = (
        TensorPart(io, index, dtype, extents, layout, nbytes, stats, note, digest=digest)
        if digest
        else TensorPart(io, index, dtype, extents, layout, nbytes, stats, note)
    )
    return Execution(
        place,
        path,
        op_type,
        op_name,
        header.digits >= 0,  # our own files have raw names
        stamp,
        parse_count(task),
        parse_count(stream),
        (part,),
        None,
        True,  # noqa: FBT003 - the same
    )


@lru_cache(maxsize=4096)
def _tensor(  # noqa: PLR0917 - a cache takes positional arguments in half the time
    io: str, slot: str, dtype: str, shape: str, layout: str, size: str
) -> tuple[str, int, str, tuple[int, ...] | None, str, int | None]:
    """What these cells say, in the order of ``TensorPart``: many rows have the same."""
    index, io = parse_count(slot), io.lower()
    if index is None or io not in _IO:
        raise ValueError(_EXPECTED)
    layout = "" if layout in NO_VALUE else layout
    return io, index, parse_dtype(dtype), parse_shape(shape), layout, parse_count(size)


def read_file(
    job: Job, _table: tuple[TensorPart, ...], **_: bool
) -> tuple[list[Execution], list[FormatError]]:
    """Return an execution for each row of a ``statistic.csv``.

    Raises:
        FormatError: the file is damaged.
    """
    return read_step_csv(job.file.path, job.file.place), []
