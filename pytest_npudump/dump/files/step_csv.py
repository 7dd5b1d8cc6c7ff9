"""``statistic.csv``: the statistics of a whole step in one file, by MindSpore (all versions) and msprobe.

The columns from ``Max Value`` on are what was chosen, under names that changed from version to version. Those
of torch modules end with ``Digits``, which the statistics of a row have, 0 for full precision, and with
``Projections`` in short, or ``-``.
MindSpore from 2.3 on ends each row, but not the header, with a comma.
"""

from __future__ import annotations

import csv
import re
from array import array
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

from pytest_npudump.dump.columns import UNTOLD, Execution, FileColumns, TensorColumns, TensorPart
from pytest_npudump.dump.files.operator_csv import IGNORED, column, each, parse_count, tensor_columns, unread
from pytest_npudump.dump.records import CHECKSUM, with_peaks
from pytest_npudump.dump.stats.compact_projections import TEXT, CompactSums, sums_of
from pytest_npudump.errors import FormatError
from pytest_npudump.storage.regular_file import read_small

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from pytest_npudump.dump.files.formats import Job
    from pytest_npudump.dump.names import Place


_REQUIRED = ("op_type", "op_name", "task", "stream", "time", "io", "slot", "size", "dtype", "shape")
_DIGITS, _PROJECTIONS = "Digits", "Projections"
_SUMS = re.compile(rf"{TEXT}(?:@{CHECKSUM}[0-9a-f]{{16}})?")
_HEADER_START = "Op Type"
_EXPECTED = "expected an operator's name, a time stamp, input or output, and a slot"
_IO = frozenset({"input", "output"})
_TOGETHER = 1024
"""Rows that are read at a time, so that the next ones find their memory in a processor's cache."""
_MISSING = "the producer gave no statistics for this tensor"


@dataclass(frozen=True, slots=True)
class _Header:
    """Layout of the rows below one header.

    Attributes:
        width: cells of it.
        cells: which cell of a row each known column is.
        digits: the cell with the digits of the row's statistics, which our own files have, or -1.
        projections: the cell with projections, the same.
        by_host: the file was merged from CANN's own, which the host converter may have garbled.
        note: names the columns that are not read.
    """

    width: int
    cells: Mapping[str, int]
    digits: int
    projections: int
    by_host: bool
    note: str


def read_step_csv(path: Path, place: Place, files: FileColumns, tensors: TensorColumns) -> None:
    """Add the rows of a merged statistics file: ``Stats`` carries 6 significant digits, integers are exact.

    Args:
        path: the file.
        place: what its directories say.
        files: takes the rows, each as a file of its own.
        tensors: takes the tensor of each.

    Raises:
        FormatError: the file cannot be read or is cut short, the header lacks a column, or a row does not
            have the cells the header asks for. It names the byte at which the line begins.
    """
    data = read_small(path)
    if not data.endswith(b"\n"):
        reason = "the last line has no line feed: the file was cut short" if data else "the file is empty"
        raise FormatError(path, f"{reason}; collect the dump again", offset=data.rfind(b"\n") + 1)
    read = _read(path, data)
    files.places.append(place)
    for more, found in read:
        numbers = range(len(files.name), len(files.name) + len(found))
        tensors.append(found, numbers.start)
        files.folder += [len(files.places) - 1] * len(found)
        files.name += [path] * len(found)
        for name in ("op_type", "layer", "task", "stream", "time"):
            getattr(files, name).extend(getattr(more, name))
        files.single.update(numbers)
        files.raw.update(map(numbers.__getitem__, more.raw))


def _read(path: Path, data: bytes) -> list[tuple[FileColumns, TensorColumns]]:
    """Read some rows at a time; what does not go together is halved until the odd line is by itself.

    Raises:
        FormatError: a line is no row below a header.
    """
    lines = data.decode("utf-8", "surrogateescape").split("\n")[:-1]
    pieces = [range(at, min(at + _TOGETHER, len(lines))) for at in range(1, len(lines), _TOGETHER)]
    pieces = [*reversed(pieces), range(1)]
    header: _Header | None = None
    found = []
    width = 0
    while pieces:
        piece = pieces.pop()
        try:
            rows = list(csv.reader(lines[piece.start : piece.stop], strict=True))
            own = len(rows[0])
            if len(piece) == 1 and rows[0][:1] == [_HEADER_START]:
                header, width = _header(tuple(rows[0])), 0
                continue
            if header is None:
                raise ValueError(f"expected a header that begins with {_HEADER_START},Op Name,Task ID")  # noqa: TRY301 - gets its place below
            # A row has the header's cells, or, in all rows alike, an empty one behind them.
            spare = own == header.width + 1 and all(row[-1:] == [""] for row in rows)
            if own != (width or own) or not (own == header.width or spare):
                raise ValueError(  # noqa: TRY301 - the same
                    f"{own} cells, expected {header.width} as in the header, or one more that is "
                    "empty; all rows of a file end alike"
                )
            if len(rows) < len(piece):
                raise ValueError  # noqa: TRY301 - a quoted cell goes on
            found.append(_columns(header, rows))
            width = own
        except (ValueError, OverflowError, csv.Error) as error:  # the second: an infinite integer
            if len(piece) > 1:
                middle = len(piece) // 2
                pieces += piece[middle:], piece[:middle]
                continue
            offset = sum(len(line) + 1 for line in data.split(b"\n")[: piece.start])
            reason = "a quoted cell goes on in the next line" if "end of data" in str(error) else error
            raise FormatError(path, f"line {piece.stop}: {reason}", offset=offset) from None
    if not found:
        reason = "a header and no row: the file was cut short, collect the dump again"
        raise FormatError(path, f"line {len(lines)}: {reason}", offset=data.rfind(b"\n", 0, -1) + 1)
    return found


@lru_cache(maxsize=64)
def _header(titles: tuple[str, ...]) -> _Header:
    ours = (_DIGITS, _PROJECTIONS), (_DIGITS,)
    own = next((one for one in ours if titles[-len(one) :] == one), ())
    names = [column(title) for title in titles if title not in own]
    missing = [name for name in _REQUIRED if name not in names]
    known = [name for name in names if name not in {None, IGNORED}]
    if missing or len(set(known)) < len(known):
        raise ValueError(
            f"the header lacks the columns {', '.join(missing)}" if missing else "a column stands twice"
        )
    return _Header(
        len(titles),
        {name: at for at, name in enumerate(names) if name not in {None, IGNORED}},
        titles.index(_DIGITS) if _DIGITS in own else -1,
        titles.index(_PROJECTIONS) if _PROJECTIONS in own else -1,
        "Input/Output" in titles,
        unread([title for title in titles if title not in own]),
    )


def _columns(header: _Header, rows: Sequence[Sequence[str]]) -> tuple[FileColumns, TensorColumns]:
    """Read rows below one header; files have no place and no name yet."""
    cells = list(zip(*rows, strict=True))
    texts = {name: cells[at] for name, at in header.cells.items()}
    tensors = tensor_columns(
        texts, array("q", range(len(rows))), _MISSING, header.note, bool if header.by_host else None
    )
    tensors.io, tensors.slot = each(str.lower, texts["io"]), each(parse_count, texts["slot"])
    stamps = "".join(texts["time"])
    if not (
        _IO.issuperset(tensors.io)
        and all(texts["op_name"])
        and None not in tensors.slot
        and all(texts["time"])
        and ((stamps.isascii() and stamps.isdigit()) or None not in each(parse_count, texts["time"]))
    ):
        raise ValueError(_EXPECTED)
    files = FileColumns(op_type=list(texts["op_type"]), layer=list(texts["op_name"]))
    files.time = list(map(int, texts["time"]))
    files.task, files.stream = each(parse_count, texts["task"]), each(parse_count, texts["stream"])
    if header.digits >= 0:
        digits = each(parse_count, cells[header.digits])
        tensors.digits = [
            told if told == UNTOLD else full or 0 for told, full in zip(tensors.digits, digits, strict=True)
        ]
        files.raw.update(range(len(rows)))  # our own files have raw names
    if header.projections >= 0:
        told = {row: text for row, text in enumerate(cells[header.projections]) if text != "-"}
        if not all(map(_SUMS.fullmatch, told.values())):
            raise ValueError("a cell is no projections in short, expected 26 characters of base64 or -")
        parted = {row: text.partition("@") for row, text in told.items()}
        sums = map(CompactSums, sums_of([text for text, *_ in parted.values()]).tolist() if told else ())
        tensors.projections = dict(zip(told, sums, strict=True))
        for row, (*_, checksum) in parted.items():
            tensors.digest[row] = with_peaks(tensors.digest[row], checksum)
    return files, tensors


def read_file(
    job: Job, _table: tuple[TensorPart, ...], **_: bool
) -> tuple[list[Execution], list[FormatError]]:
    """Return an execution for each row of a ``statistic.csv``.

    Raises:
        FormatError: the file is damaged.
    """
    files, tensors = FileColumns(), TensorColumns()
    read_step_csv(job.file.path, job.file.place, files, tensors)
    return files.executions(tensors), []
