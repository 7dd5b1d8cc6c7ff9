"""Statistics CSV of one operator, as CANN's device and host and msprobe write it.

Rows cannot be read by the header alone. CANN's host converter (``adx_dump_record.cpp``) writes, for a
choice of statistics other than the default one, ``Count`` directly after ``Shape``, but

* leaves the cell out for a tensor whose statistics failed,
* and, once the process has written a file with the default choice, puts it before ``Nan Count`` instead
  (the header then has both), or leaves it out if NaN was not chosen.

So the cells are counted, and what was taken for ``Count`` is checked: there it is the product of the shape.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache
from math import prod
from operator import itemgetter
from typing import TYPE_CHECKING

from pytest_npudump.dump.bytes.textfile import read_small
from pytest_npudump.dump.files.stats_cells import (
    IGNORED,
    NO_VALUE,
    STATISTICS,
    VALUES,
    column,
    parse_count,
    parse_digest,
    parse_dtype,
    parse_shape,
    parse_stats,
    unread,
)
from pytest_npudump.dump.parts import TensorPart
from pytest_npudump.dump.values.host_values import doubtful, repaired
from pytest_npudump.errors import FormatError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

StatsRow = TensorPart
"""One row: a tensor with ``stats`` and without ``payload``."""

IO = {"Input": "input", "Output": "output", "input": "input", "output": "output"}
_REQUIRED = ("io", "slot", "size", "dtype", "format", "shape")
_BASE = len(_REQUIRED)
_COUNTED = len(STATISTICS)
HEADER_START = "Input/Output,Index"
CHUNK_TENSORS = 10
"""Rows that CANN's host converter writes at a time."""

NO_STATISTICS = "the producer gave no statistics for this tensor (data type, null address or zero size)"


@dataclass(frozen=True, slots=True)
class Layout:
    """Which cell holds what.

    Attributes:
        columns: the columns of a row.
        pick: picks the cells of ``VALUES`` from a row that has an empty cell behind its last.
        count: the cell that must equal the product of the shape, or -1.
        failed: only a row whose statistics failed looks like this.
    """

    columns: tuple[str, ...]
    pick: Callable[[Sequence[str]], tuple[str, ...]]
    count: int = -1
    failed: bool = False


@dataclass(frozen=True, slots=True)
class Header:
    """The layouts a row under one header may have.

    Attributes:
        layouts: those of any row.
        late: those of a row that a whole chunk of rows precedes, in addition.
        plain: the layout, where there is but one that leaves nothing to check.
        unread: names the columns that are not read.
    """

    layouts: tuple[Layout, ...]
    late: tuple[Layout, ...]
    plain: Layout | None
    unread: str


def read_operator_csv(path: Path) -> tuple[StatsRow, ...]:
    """Read one operator's statistics: ``Stats`` carries 6 significant digits, integers are exact.

    Raises:
        FormatError: the file cannot be read or is cut short, the header is unknown, or a row's cells cannot
            be assigned to columns without doubt. It names the byte at which the line begins.
    """
    return parse_operator_csv(read_small(path), path)


def parse_operator_csv(data: bytes, path: Path) -> tuple[StatsRow, ...]:
    """Parse the bytes of a file as :func:`read_operator_csv` does; ``path`` is for messages only."""
    text = _text(data, path)
    lines = text.split("\n")[:-1]
    number = 0
    try:
        if not lines or not lines[0].startswith(HEADER_START):
            raise ValueError(f"expected a header that begins with {HEADER_START}")  # noqa: TRY301 - gets its place below
        rows: list[StatsRow] = []
        header_at = 0
        for number, line in enumerate(lines):
            if line.startswith(HEADER_START):
                header, header_at = read_header(line), number
            else:
                rows.append(_row(line, header, number - header_at - 1, text))
        if not rows:
            raise ValueError("a header and no row: the file was cut short")  # noqa: TRY301 - the same
    except (ValueError, OverflowError) as error:  # the second: an infinity in an integer's place
        offset = sum(len(line) + 1 for line in data.split(b"\n")[:number])
        raise FormatError(path, f"line {number + 1}: {error}", offset=offset) from None
    return tuple(rows)


def _text(data: bytes, path: Path) -> str:
    body = data[:-1] if data.endswith(b"\n\0") else data  # CANN hands its text to a callback with a NUL
    if not body.endswith(b"\n"):
        reason = "the last line has no line feed: the file was cut short" if body else "the file is empty"
        raise FormatError(path, f"{reason}; collect the dump again", offset=body.rfind(b"\n") + 1)
    try:
        return body.replace(b"\r\n", b"\n").decode("ascii")
    except UnicodeDecodeError as error:
        raise FormatError(path, "expected ASCII text", offset=error.start) from None


@lru_cache(maxsize=256)
def read_header(line: str) -> Header:
    """Return how rows under a header are to be read.

    Raises:
        ValueError: it lacks one of the first six columns, or has another twice.
    """
    titles = line.split(",")
    columns = [column(title) or "unknown" for title in titles]
    if tuple(columns[:_BASE]) != _REQUIRED:
        raise ValueError(
            f"expected a header that begins with {HEADER_START},Data Size,Data Type,Format,Shape, "
            f"not {line[:120]!r}"
        )
    layouts, late = _layouts(columns)
    for layout in layouts:
        named = [name for name in layout.columns if name not in {"unknown", IGNORED}]
        if len(set(named)) < len(named):
            raise ValueError(f"a column stands twice in the header {line[:240]!r}")
    plain = layouts[0] if len(layouts) == 1 and layouts[0].count < 0 else None
    return Header(layouts, late, plain, unread(titles))


def _layouts(columns: list[str]) -> tuple[tuple[Layout, ...], tuple[Layout, ...]]:
    if columns[_BASE : _BASE + 1] != ["count"]:
        return (_layout(columns, checked=False),), ()
    without = columns[:_BASE] + columns[_BASE + 1 :]
    if "count" in without:
        return (_layout(without, checked=True),), ()
    usual = _layout(columns, checked=True)
    if "nan" not in without:
        return (usual, _layout(without, checked=False)), ()
    at = without.index("nan")
    moved = _layout([*without[:at], "count", *without[at:]], checked=True)
    return (usual, replace(_layout(without, checked=False), failed=True)), (moved,)


def _layout(columns: list[str], *, checked: bool) -> Layout:
    order = [columns.index(name) if name in columns else -1 for name in VALUES]
    return Layout(tuple(columns), itemgetter(*order), order[0] if checked else -1)


def _row(line: str, header: Header, before: int, text: str) -> StatsRow:
    """Read the row that has ``before`` rows between itself and its header."""
    cells = line.split(",")
    if len(cells) < _BASE:
        raise ValueError(f"{len(cells)} cells, expected {len(header.layouts[0].columns)}")
    io, slot, size, dtype_text, layout_name, shape_text = cells[:_BASE]
    shape = parse_shape(shape_text)
    dtype = parse_dtype(dtype_text)
    values = _assign(cells, header, before, shape)
    stats, digest = parse_stats(values[:_COUNTED], dtype), parse_digest(values[_COUNTED:])
    note = NO_STATISTICS if values[1] in NO_VALUE and NO_VALUE.issuperset(values[1:]) else ""
    if stats is not None and doubtful(dtype):
        stats, why = repaired(stats, dtype, text)
        note = note or why
    if header.unread:
        note = f"{note}; {header.unread}" if note else header.unread
    index = parse_count(slot)
    if io not in IO or index is None:
        raise ValueError(f"expected Input or Output and an index, not {io[:40]!r} and {slot[:40]!r}")
    layout_name = "" if layout_name in NO_VALUE else layout_name
    return TensorPart(IO[io], index, dtype, shape, layout_name, parse_count(size), stats, note, digest=digest)


def _assign(cells: list[str], header: Header, before: int, shape: tuple[int, ...] | None) -> tuple[str, ...]:
    """Return the cell of each of ``VALUES``, "" where there is none.

    Raises:
        ValueError: no layout fits the row, or two that read it differently.
    """
    if header.plain is not None and len(cells) == len(header.plain.columns):
        return header.plain.pick([*cells, ""])
    layouts = header.layouts if before < CHUNK_TENSORS else header.layouts + header.late
    fitting = [layout for layout in layouts if len(layout.columns) == len(cells)]
    if not fitting:
        expected = " or ".join(str(len(layout.columns)) for layout in layouts)
        raise ValueError(f"{len(cells)} cells under this header, expected {expected}")
    readings = {layout.pick([*cells, ""]) for layout in fitting if _consistent(layout, cells, shape)}
    if len(readings) != 1:
        which = "two readings agree" if readings else "no reading agrees"
        raise ValueError(f"the cells cannot be assigned to columns without doubt: {which} with the shape")
    return readings.pop()


def _consistent(layout: Layout, cells: list[str], shape: tuple[int, ...] | None) -> bool:
    if layout.failed and not all(cell in NO_VALUE for cell in cells[_BASE:]):
        return False
    return layout.count < 0 or shape is None or cells[layout.count] == str(prod(shape))
