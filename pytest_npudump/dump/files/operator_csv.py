"""Statistics CSV: cells of any of them, under all names of their columns and with every "no value" mark.

CANN's host-side statistics converter garbles some maxima and minima. It prints them as floats for FLOAT,
FLOAT16, BF16, HIFLOAT8, FLOAT8_E5M2 and FLOAT8_E4M3FN, in full for INT64, and for every other type as the
lower 32 bits, signed (``adx_dump_record.cpp``). With the default choice of statistics its files look like the
device's own, which are right, so that some garbled values show only by being impossible.

Statistics CSV of single operators, as CANN's device and host and msprobe write it: many files at once.

Nearly all files of a dump are plain: one header, and rows as its first layout has them. Such files are
joined, and their cells converted a column at a time. What does not go together is halved until the odd file
is by itself; its rows are columns of one cell each.

Rows cannot be read by the header alone. CANN's host converter (``adx_dump_record.cpp``) writes, for a
choice of statistics other than the default one, ``Count`` directly after ``Shape``, but

* leaves the cell out for a tensor whose statistics failed,
* and, once the process has written a file with the default choice, puts it before ``Nan Count`` instead
  (the header then has both), or leaves it out if NaN was not chosen.

So the cells are counted, and what was taken for ``Count`` is checked: there it is the product of the shape.
"""

from __future__ import annotations

import sys
from array import array
from collections import defaultdict
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from itertools import chain, islice, repeat
from math import prod
from operator import lt
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pytest_npudump.dump.columns import UNTOLD, Column, Execution, TensorColumns, TensorPart, named_execution
from pytest_npudump.dump.dtypes import ALL, dtype_name
from pytest_npudump.dump.records import Stats
from pytest_npudump.errors import FormatError
from pytest_npudump.storage.regular_file import read_small

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from pytest_npudump.dump.files.formats import Job
    from pytest_npudump.dump.names import DumpFile


DIGITS = 6
"""Significant decimal digits of a float in these files: C++ streams with their defaults."""

NO_VALUE = frozenset({"", "NA", "-", "UNKNOW", "null"})
"""Device-side writer, host converter, both (type, format, shape), host converter, MindSpore."""

IGNORED = "ignored"
"""Columns that are known and have no place in a record."""

_COLUMNS = {
    "input/output": "io",
    "io": "io",
    "index": "slot",
    "slot": "slot",
    "data size": "size",
    "data type": "dtype",
    "format": "format",
    "shape": "shape",
    "max value": "max",
    "min value": "min",
    "avg value": "avg",
    "count": "count",
    "nan count": "nan",
    "negative inf count": "neg_inf",
    "positive inf count": "pos_inf",
    "zero count": "zero",
    "l2norm": "l2norm",
    "l2norm value": "l2norm",
    "l2 value": "l2norm",
    "op type": "op_type",
    "op name": "op_name",
    "task id": "task",
    "stream id": "stream",
    "timestamp": "time",
    # MindSpore's names for the numbers of elements below and above zero: neither counts zeros.
    "negative zero count": IGNORED,
    "positive zero count": IGNORED,
    "md5": "md5",
    "md5 value": "md5",
    "sha1": "sha1",
}
STATISTICS = ("count", "max", "min", "avg", "l2norm", "nan", "neg_inf", "pos_inf", "zero")
"""Columns that hold a statistic, in the order of the fields of ``Stats``."""

DIGESTS = ("md5", "sha1")
"""Columns that hold a hash of the tensor's bytes, in the order in which a digest names them."""

NOT_READ = "were not read"
"""Part of a record's note about columns that have no place in it."""

VALUES = STATISTICS + DIGESTS
"""Columns that say something of a tensor's values."""


def column(title: str) -> str | None:
    """Return the column of a header's ``title``: a field's name, ``ignored``, or None if unknown."""
    return _COLUMNS.get(title.strip().lower())


def unread(titles: Sequence[str]) -> str:
    """Name the columns among ``titles`` that are not read; "" for none."""
    unknown = ", ".join(title for title in titles if column(title) is None)
    ignored = ", ".join(title for title in titles if column(title) == IGNORED)
    return "; ".join(
        f"{what} {NOT_READ}: {listed}"
        for what, listed in (("unknown columns", unknown), ("columns", ignored))
        if listed
    )


@lru_cache(maxsize=4096)
def parse_dtype(text: str) -> str:
    """Return this package's name of the type that a producer calls ``text``.

    Raises:
        ValueError: there is no name; producers write ``-`` or ``UNKNOW`` for a type they do not know.
    """
    name = dtype_name(text)
    if not name:
        raise ValueError(f"{text!r} is no data type")
    return name


def parse_shape(text: str) -> tuple[int, ...] | None:
    """Return the shape of ``3x4``, ``(3,4)``, ``()`` or ``-`` (a scalar); None for ``NA`` (over 25 dims).

    Raises:
        ValueError: ``text`` is none of these.
    """
    if text in {"-", ""}:
        return ()
    if text in NO_VALUE:
        return None
    if text.startswith("(") and text.endswith(")"):
        inner = text[1:-1].rstrip(",")
        return tuple(_dimension(part) for part in inner.split(",")) if inner.strip() else ()
    return tuple(_dimension(part) for part in text.split("x"))


def _dimension(text: str) -> int:
    stripped = text.strip()
    if not (stripped.isdigit() and stripped.isascii()):
        raise ValueError(f"{text!r} is no dimension of a shape")
    return int(stripped)


@lru_cache(maxsize=4096)
def parse_count(text: str) -> int | None:
    """Return a number of elements or bytes, or None where the cell has no value.

    Raises:
        ValueError: ``text`` is not a decimal number without a sign.
    """
    if text in NO_VALUE:
        return None
    if text.isdigit() and text.isascii():
        return int(text)
    raise ValueError(f"{text[:40]!r} is no count")


def parse_float(text: str) -> float | None:
    """Return a float (``nan``, ``-nan``, ``inf``, ``NaN`` ... included), or None where there is no value.

    Raises:
        ValueError: ``text`` is not a number.
    """
    try:
        found = float(text)
    except ValueError:
        if text in NO_VALUE:
            return None
        raise ValueError(f"{text[:40]!r} is no number") from None
    if "_" in text or not text.isascii():
        raise ValueError(f"{text[:40]!r} is no number")
    return found


def parse_integer(text: str) -> float | int | None:
    """Return an extreme of an integer tensor: an int where the text is one, else as :func:`parse_float`.

    Raises:
        ValueError: as :func:`parse_float`.
    """
    return int(text) if text.removeprefix("-").isdigit() and text.isascii() else parse_float(text)


_PARSERS = {found.name: parse_float for found in ALL if not found.exact}


def parse_digest(cells: Sequence[str]) -> str:
    """Return the hashes in ``cells``, one for each of ``DIGESTS``, as ``TensorRecord.digest`` has them.

    Raises:
        ValueError: a cell is no word of printable ASCII characters.
    """
    if NO_VALUE.issuperset(cells):
        return ""
    parts = []
    for name, cell in zip(DIGESTS, cells, strict=True):
        text = cell.strip()
        if text in NO_VALUE:
            continue
        if not (text.isascii() and text.isalnum()):
            raise ValueError(f"{text[:40]!r} is no {name} of a tensor, expected hexadecimal digits")
        parts.append(f"{name}:{text.lower()}")
    return " ".join(parts)


_INTACT = frozenset(
    {"float32", "float16", "bfloat16", "hifloat8", "float8_e5m2", "float8_e4m3fn"}
    | {"int64", "int32", "int16", "int8"}
)
_NARROW_UNSIGNED = frozenset({"uint8", "uint16", "bool"})
_HOST_MARKS = ("Shape,Count", "l2norm", ",NA,", "UNKNOW", "DT_BF16", "DT_HIFLOAT", "DT_FLOAT8", "DT_INT4")
_ROUNDING = 1e-5

GARBLED = "max and min are unknown"
"""Beginning of the note on values that the host converter garbled."""


def doubtful(dtype: str) -> bool:
    """Return whether the host converter may garble the extremes of a tensor of this type."""
    return dtype not in _INTACT


def written_by_host(text: str) -> bool:
    """Return whether a statistics CSV has words or columns that only the host converter writes."""
    return any(mark in text for mark in _HOST_MARKS)


def repaired(stats: Stats, dtype: str, *, by_host: Callable[[], bool] = bool) -> tuple[Stats, str]:
    """Return ``stats`` with extremes restored or set to None where they cannot be true, and a note.

    ``by_host`` tells whether the host converter is known to have written the file.
    """
    extremes = [value for value in (stats.max, stats.min) if value is not None]
    if not extremes:
        return stats, ""
    negative = any(value < 0 for value in extremes)
    if dtype == "uint32":
        if not negative:
            return stats, ""
        # A value of 32 bits that was printed as signed is known modulo 2^32, which is exact.
        high, low = (None if one is None else int(one) % 2**32 for one in (stats.max, stats.min))
        return replace(stats, max=high, min=low), "max and min were printed as signed 32-bit numbers"
    if dtype in _NARROW_UNSIGNED:
        suspect = negative
    else:
        suspect = by_host() or (negative and dtype == "uint64") or not _ordered(stats)
    if not suspect:
        return stats, ""
    return replace(stats, max=None, min=None), (
        f"{GARBLED}: CANN's host converter keeps only 32 bits of them for {dtype}"
    )


def _ordered(stats: Stats) -> bool:
    """Return whether min <= avg <= max as far as these are known and no NaN, within the printed digits."""
    if stats.max is None or stats.min is None or stats.avg is None:
        return True
    slack = _ROUNDING * max(abs(stats.max), abs(stats.min))
    return not (stats.min > stats.max or stats.avg > stats.max + slack or stats.avg < stats.min - slack)


_Bodies = dict[int, bytes]
"""All lines of files behind the first, by the number of the file."""

_IO = {"Input": "input", "Output": "output", "input": "input", "output": "output"}
_REQUIRED = ("io", "slot", "size", "dtype", "format", "shape")
_BASE = len(_REQUIRED)
_SLOT, _DTYPE, _SHAPE = (_REQUIRED.index(name) for name in ("slot", "dtype", "shape"))
_HEADER_START = "Input/Output,Index"
_START = _HEADER_START.encode()
_EXTREMES, _MEANS = ("max", "min"), ("avg", "l2norm")
_CHUNK_TENSORS = 10
"""Rows that CANN's host converter writes at a time."""

NO_STATISTICS = "the producer gave no statistics for this tensor (data type, null address or zero size)"


@dataclass(frozen=True, slots=True)
class Layout:
    """Layout of a row: the fields' cells.

    Attributes:
        columns: the columns of a row.
        count: the cell that must equal the product of the shape, or -1.
        failed: only a row whose statistics failed looks like this.
    """

    columns: tuple[str, ...]
    count: int = -1
    failed: bool = False

    def values(self, cells: Sequence[str]) -> tuple[str, ...]:
        """Return the cell of each of ``VALUES``, "" where there is none."""
        return tuple(cells[self.columns.index(name)] if name in self.columns else "" for name in VALUES)


@dataclass(frozen=True, slots=True)
class Header:
    """The layouts a row under one header may have.

    Attributes:
        layouts: those of any row.
        late: those of a row that a whole chunk of rows precedes, in addition.
        unread: names the columns that are not read.
    """

    layouts: tuple[Layout, ...]
    late: tuple[Layout, ...]
    unread: str


def read_operator_csv(directory: str, names: Sequence[str]) -> tuple[TensorColumns, list[FormatError]]:
    """Read statistics CSV: ``Stats`` carries 6 significant digits, integers are exact.

    Args:
        directory: where they are.
        names: what they are called.

    Returns:
        Their tensors, and the problems of those that could not be read, in the order of ``names``. A problem
        names the byte at which the line begins.
    """
    files: _Bodies = {}
    problems: dict[int, FormatError] = {}
    before = str(Path(directory, "_")).removesuffix("_")
    for at, name in enumerate(names):
        try:
            files[at] = read_small(before + name)
        except FormatError as error:  # noqa: PERF203 - each file by itself
            problems[at] = error
    tensors, unreadable = parse_operator_csv(files, lambda at: Path(directory, names[at]))
    problems |= unreadable
    return tensors, [problems[at] for at in sorted(problems)]


def parse_operator_csv(
    files: Mapping[int, bytes], path: Callable[[int], Path]
) -> tuple[TensorColumns, dict[int, FormatError]]:
    """Parse the bytes of files by number, as :func:`read_operator_csv` does; ``path`` is for messages."""
    alike: defaultdict[bytes, _Bodies] = defaultdict(dict)
    odd: _Bodies = {}
    for at, data in files.items():
        head = data[: data.find(b"\n") + 1]
        body = data[len(head) :]
        plain = head.startswith(_START) and body.endswith(b"\n") and _START not in body
        if plain and body.isascii() and b"\r" not in body:
            alike[head][at] = body
        else:
            odd[at] = data
    whole = TensorColumns()
    for head, bodies in alike.items():
        for piece in _joined(head, bodies, odd):
            whole.append(piece, 0)
    problems = {}
    for at, data in odd.items():
        try:
            for piece in _rows(at, data, path(at)):
                whole.append(piece, 0)
        except FormatError as error:  # noqa: PERF203 - the same
            problems[at] = error
    return whole, problems


def _joined(head: bytes, bodies: _Bodies, odd: _Bodies) -> list[TensorColumns]:
    """Read files with one header line; those that are not plain are put among the ``odd`` ones."""
    try:
        return [_plain(_header(head[:-1].decode("ascii")), head, bodies)]
    except (ValueError, OverflowError):
        if len(bodies) == 1:
            odd.update((at, head + body) for at, body in bodies.items())
            return []
        items = list(bodies.items())
        middle = len(items) // 2
        return [*_joined(head, dict(items[:middle]), odd), *_joined(head, dict(items[middle:]), odd)]


def _plain(header: Header, head: bytes, bodies: _Bodies) -> TensorColumns:
    """Read files of which each row is of the first layout of the header.

    Raises:
        ValueError, OverflowError: one is not, or a cell is not what its column is to hold.
    """
    counts = [body.count(b"\n") for body in bodies.values()]
    text = b"".join(bodies.values())[:-1].decode("ascii")
    layout = header.layouts[0]
    width = len(layout.columns)
    widths = {line.count(",") + 1 for line in text.split("\n")}
    if widths != {width} or (header.late and max(counts) > _CHUNK_TENSORS):
        raise ValueError  # a row may be of another layout
    cells = text.replace("\n", ",").split(",")
    files = array("q", chain.from_iterable(map(repeat, bodies, counts)))
    columns = [cells[at::width] for at in range(width)]
    return _columns(header, layout, columns, files, lambda at: written_by_host((head + bodies[at]).decode()))


def _rows(at: int, data: bytes, path: Path) -> list[TensorColumns]:
    """Read one file row by row, whatever its rows are like.

    Raises:
        FormatError: it is cut short, the header is unknown, a tensor stands in it twice, or a row's cells
            cannot be assigned to columns without doubt.
    """
    data = data[:-1] if data.endswith(b"\n\0") else data  # CANN hands its text to a callback with a NUL
    if not data.endswith(b"\n"):
        reason = "the last line has no line feed: the file was cut short" if data else "the file is empty"
        raise FormatError(path, f"{reason}; collect the dump again", offset=data.rfind(b"\n") + 1)
    try:
        text = data.replace(b"\r\n", b"\n").decode("ascii")
    except UnicodeDecodeError as error:
        raise FormatError(path, "expected ASCII text", offset=error.start) from None
    number = header_at = 0
    rows: list[TensorColumns] = []
    try:
        if not text.startswith(_HEADER_START):
            raise ValueError(f"expected a header that begins with {_HEADER_START}")  # noqa: TRY301 - gets its place below
        for number, line in enumerate(text.split("\n")[:-1]):
            if line.startswith(_HEADER_START):
                header, header_at = _header(line), number
                continue
            cells = line.split(",")
            layout = _layout_of(cells, header, number - header_at - 1)
            columns = [(cell,) for cell in cells]
            rows.append(_columns(header, layout, columns, array("q", [at]), lambda _: written_by_host(text)))
        if not rows:
            raise ValueError("a header and no row: the file was cut short")  # noqa: TRY301 - the same
    except (ValueError, OverflowError) as error:  # the second: an infinity in an integer's place
        offset = sum(len(line) + 1 for line in data.split(b"\n")[:number])
        raise FormatError(path, f"line {number + 1}: {error}", offset=offset) from None
    if len({(row.io[0], row.slot[0]) for row in rows}) < len(rows):
        raise FormatError(path, "a tensor stands in it twice; it holds rows of two runs, or is damaged")
    return rows


@lru_cache(maxsize=256)
def _header(line: str) -> Header:
    """Parse a header into the layouts of its rows.

    Raises:
        ValueError: it lacks one of the first six columns, or has another twice.
    """
    titles = line.split(",")
    columns = tuple(column(title) or "unknown" for title in titles)
    if columns[:_BASE] != _REQUIRED:
        raise ValueError(
            f"expected a header that begins with {_HEADER_START},Data Size,Data Type,Format,Shape, "
            f"not {line[:120]!r}"
        )
    layouts: tuple[Layout, ...]
    late: tuple[Layout, ...] = ()
    without = columns[:_BASE] + columns[_BASE + 1 :]
    if columns[_BASE : _BASE + 1] != ("count",):
        layouts = (Layout(columns),)
    elif "count" in without:
        layouts = (Layout(without, without.index("count")),)
    elif "nan" not in without:
        layouts = (Layout(columns, _BASE), Layout(without))
    else:
        at = without.index("nan")
        layouts = (Layout(columns, _BASE), Layout(without, failed=True))
        late = (Layout((*without[:at], "count", *without[at:]), at),)
    for layout in layouts:
        named = [name for name in layout.columns if name not in {"unknown", IGNORED}]
        if len(set(named)) < len(named):
            raise ValueError(f"a column stands twice in the header {line[:240]!r}")
    return Header(layouts, late, unread(titles))


def _layout_of(cells: Sequence[str], header: Header, before: int) -> Layout:
    """Return the layout of the row that has ``before`` rows between itself and its header.

    Raises:
        ValueError: none fits, or two that read it differently.
    """
    if len(cells) < _BASE:
        raise ValueError(f"{len(cells)} cells, expected {len(header.layouts[0].columns)}")
    shape = parse_shape(cells[_SHAPE])
    parse_dtype(cells[_DTYPE])
    layouts = header.layouts if before < _CHUNK_TENSORS else header.layouts + header.late
    fitting = [layout for layout in layouts if len(layout.columns) == len(cells)]
    if not fitting:
        expected = " or ".join(str(len(layout.columns)) for layout in layouts)
        raise ValueError(f"{len(cells)} cells under this header, expected {expected}")
    readings = {
        layout.values(cells): layout
        for layout in fitting
        if not (layout.failed and not NO_VALUE.issuperset(cells[_BASE:]))
        and (layout.count < 0 or shape is None or cells[layout.count] == str(prod(shape)))
    }
    if len(readings) != 1:
        which = "two readings agree" if readings else "no reading agrees"
        raise ValueError(f"the cells cannot be assigned to columns without doubt: {which} with the shape")
    return readings.popitem()[1]


def _columns(
    header: Header,
    layout: Layout,
    cells: Sequence[Sequence[str]],
    files: array[int],
    by_host: Callable[[int], bool],
) -> TensorColumns:
    """Read rows of one layout.

    Args:
        header: what they stand below.
        layout: which of ``cells`` is which column.
        cells: of n rows.
        files: the numbers of their files.
        by_host: whether CANN's host converter wrote a file.

    Raises:
        ValueError, OverflowError: a row is of another layout, or a cell is not what its column is to hold.
    """
    texts = dict(zip(layout.columns, cells, strict=True))
    found = tensor_columns(texts, files, NO_STATISTICS, header.unread, by_host)
    if layout.count >= 0:
        for count, extents in frozenset(zip(cells[layout.count], found.shape, strict=True)):
            if extents is not None and count != str(prod(extents)):
                raise ValueError  # another layout
    found.io, found.slot = each(_IO.get, cells[0]), each(parse_count, cells[_SLOT])
    if None in found.io or None in found.slot:
        io, slot = cells[0][0], cells[_SLOT][0]
        raise ValueError(f"expected Input or Output and an index, not {io[:40]!r} and {slot[:40]!r}")
    tensors = list(zip(files, found.io, found.slot, strict=True))
    in_order = all(map(lt, tensors, islice(tensors, 1, None)))  # as they are written: inputs first, by slot
    if not in_order and len(frozenset(tensors)) < len(files):
        raise ValueError  # a file has one twice
    return found


def tensor_columns(
    texts: Mapping[str, Sequence[str]],
    files: array[int],
    missing: str,
    unread: str,
    by_host: Callable[[int], bool] | None,
) -> TensorColumns:
    """Read rows of any statistics CSV but for their directions and slots.

    Args:
        texts: the cells of n rows, by column.
        files: the numbers of their files.
        missing: what to note of a row without statistics.
        unread: what to note of each row; "" for nothing.
        by_host: whether CANN's host converter wrote a file; None where it can have written none.

    Raises:
        ValueError, OverflowError: a cell is not what its column is to hold.
    """
    length = len(files)
    shape, dtype = each(parse_shape, texts["shape"]), each(parse_dtype, texts["dtype"])
    stats = [_statistic(name, texts.get(name), dtype) for name in STATISTICS]
    digest = [""] * length
    if not texts.keys().isdisjoint(DIGESTS):
        hashes = (texts.get(name, [""] * length) for name in DIGESTS)
        digest = [parse_digest(row) for row in zip(*hashes, strict=True)]
    digits, note = [DIGITS] * length, [""] * length
    if "max" not in texts or not NO_VALUE.isdisjoint(texts["max"]):
        values = [texts[name] for name in STATISTICS if name in texts]
        others = [texts[name] for name in VALUES if name in texts and name != "count"]
        for row in range(length):
            if all(column[row] in NO_VALUE for column in values):
                digits[row] = UNTOLD
            if all(column[row] in NO_VALUE for column in others):
                note[row] = missing
    garbled = frozenset(filter(doubtful, frozenset(dtype) if by_host else ()))
    for row in (
        [at for at, name in enumerate(dtype) if name in garbled and digits[at] != UNTOLD] if garbled else ()
    ):
        high, low, avg = (None if column is None else column[row] for column in stats[1:4])
        extremes = Stats(max=high, min=low, avg=avg)
        found, why = repaired(extremes, dtype[row], by_host=partial(by_host or bool, files[row]))
        note[row] = note[row] or why
        if found is not extremes:
            for at, value in ((1, found.max), (2, found.min)):
                extreme = list(stats[at] or repeat(None, length))
                extreme[row] = value
                stats[at] = extreme
    if unread:
        note = [f"{text}; {unread}" if text else unread for text in note]
    formats = [""] * length
    if "format" in texts:
        formats = each(lambda text: "" if text in NO_VALUE else sys.intern(text), texts["format"])
    size = each(parse_count, texts["size"])
    return TensorColumns(files, [], [], dtype, shape, formats, size, note, digest, digits, tuple(stats))


class _Parsed(dict[str, Any]):
    """Values of cells, each of which is parsed once."""

    def __init__(self, parse: Callable[[str], Any]) -> None:
        self._parse = parse

    def __missing__(self, text: str) -> Any:
        found = self[text] = self._parse(text)
        return found


def each(parse: Callable[[str], Any], texts: Sequence[str]) -> list[Any]:
    """Parse cells that are of a few words."""
    return list(map(_Parsed(parse).__getitem__, texts))


def _statistic(name: str, texts: Sequence[str] | None, dtypes: Sequence[str]) -> Column | None:
    if texts is None or NO_VALUE.issuperset(texts):
        return None
    if name in _EXTREMES:
        parsers = {dtype: _PARSERS.get(dtype, parse_integer) for dtype in frozenset(dtypes)}
        if any(parser is not parse_float for parser in parsers.values()):
            return [parsers[dtype](text) for text, dtype in zip(texts, dtypes, strict=True)]
    elif name not in _MEANS:
        return each(parse_count, texts)
    joined = "".join(texts)
    if joined.isascii() and "_" not in joined:  # which float() reads as digits, and C++ does not
        try:
            return array("d", [*map(float, texts)])  # of a list it knows the length
        except ValueError:
            pass
    return list(map(parse_float, texts))


def read_file(
    job: Job, _table: tuple[TensorPart, ...], **_: bool
) -> tuple[list[Execution], list[FormatError]]:
    """Return the execution that a file holds the statistics of."""
    return read_files([job.file])


def read_files(files: Sequence[DumpFile]) -> tuple[list[Execution], list[FormatError]]:
    """Return the executions that files hold the statistics of, and what is wrong with the others."""
    tensors, problems = read_operator_csv("", [str(file.path) for file in files])
    parts = tensors.parts()
    named = [(file, file.name, parts.get(at)) for at, file in enumerate(files)]
    found = [named_execution(file, name, tuple(held)) for file, name, held in named if name and held]
    return found, problems
