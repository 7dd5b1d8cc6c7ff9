"""The lines of a golden file's table: one tensor each, cells parted by one space.

A first output goes by its operator's name alone (:func:`short`). ``-`` is unknown. Floats are in the shortest
form that round-trips, without ``.0``; whether a number is an integer follows from the tensor's dtype. Five
columns stand at the end only where they say something: ``count`` where an element count is not the shape's
product, ``digits`` where rows differ in precision, ``digest`` where the producer computed hashes, such as
``md5:5d41...`` or ``md5:5d41...,sha1:aaf4...``, ``noise``, see :mod:`pytest_npudump.record.noise`, and
``sums``, see :mod:`pytest_npudump.dump.stats.compact_projections`. Beside ``sums`` the counts of NaN and
infinities stand only where one is not 0. Behind projections, in either form, ``@17=...`` tells where an
output's rows are largest, and its projections by factors; ``@x`` and 16 digits, before these, is a checksum.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, replace
from hashlib import blake2b
from itertools import combinations, repeat
from sys import intern
from typing import TYPE_CHECKING, Any

import numpy as np

from pytest_npudump.dump.dtypes import is_exact
from pytest_npudump.dump.records import ARGMAX, parted_digest, with_peaks
from pytest_npudump.dump.stats import compact_projections as compact
from pytest_npudump.dump.stats.signs import DIGITS, PROJECTIONS
from pytest_npudump.dump.table import (
    EXACT_LIMIT,
    MEASURED,
    STATISTICS,
    StatsTable,
    is_integral,
    shape_count,
    shape_of,
    shape_text,
)
from pytest_npudump.record.noise import CELL, EXPECTED_CELL

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

    from numpy.typing import NDArray


COLUMNS = ("tensor", "dtype", "shape", "max", "min", "avg", "l2norm", "nan", "-inf", "+inf")
_COUNTS = COLUMNS[-3:]
_OPTIONAL = ("count", "digits", "digest", "noise", "sums")
_CHOSEN = [one for length in range(len(_OPTIONAL) + 1) for one in combinations(_OPTIONAL, length)]
_OF_OUTPUTS = (*COLUMNS, "sums")
LAYOUTS = frozenset(
    [(*COLUMNS, *one) for one in _CHOSEN] + [(*COLUMNS[:-3], *one) for one in _CHOSEN if "sums" in one]
)
_MIN_DIGITS = 6
"""C++ streams print six significant digits unless told otherwise; no producer prints fewer."""

_MAX_DIGITS = 17
EXPECTED_DIGITS = f"expected {_MIN_DIGITS} to {_MAX_DIGITS}"
_ABSENT = "-"
_NUMBERS = COLUMNS.index("max")
_QUALIFIER = r"(?:(?:capture|model)=[^\s,#]+|(?:rank|device|load|step|turn)=[0-9]{1,18})"
_KEY = re.compile(rf"[^\s#\x00-\x1f\x7f-\x9f]+(?:#{_QUALIFIER}(?:,{_QUALIFIER})*)?:[a-z_]+\.[0-9]{{1,9}}")
_DTYPE = re.compile(r"[!-~]+")
_SHAPE = re.compile(r"[?-]|-?[0-9]{1,19}(?:x-?[0-9]{1,19}){0,63}")
_COUNT = re.compile(r"-|[0-9]{1,19}")
_PRODUCT = re.compile(r"-|[0-9]{1,1280}")
_DIGEST = re.compile(r"-|[a-z0-9]+:[A-Za-z0-9]+(?:,[a-z0-9]+:[A-Za-z0-9]+)*")
_INTEGER = re.compile(r"-?[0-9]+")
_PEAKS = re.compile(rf"@([0-9a-fx]+(?:[~=]{compact.TEXT})?|[~=]{compact.TEXT})")
_SUMS = re.compile(rf"-|{compact.TEXT}(?:{_PEAKS.pattern})?")


_FIRST = ":output.0"
"""End of a key that lines leave out, unless the rest looks as if it had an end."""


def short(key: str) -> str:
    """Return how a line of a golden names a tensor."""
    name = key.removesuffix(_FIRST)
    return key if ":" in name else name


def whole(name: str) -> str:
    """Return the key of a tensor that a line of a golden names; earlier versions wrote all of it."""
    return name if ":" in name else f"{name}{_FIRST}"


class RowError(ValueError):
    """A line that is no row of the table.

    Attributes:
        row: index of the line in the table, from 0.
        reason: what is wrong with it.
    """

    def __init__(self, row: int, reason: str) -> None:
        super().__init__(f"row {row}: {reason}")
        self.row = row
        self.reason = reason


def common_digits(table: StatsTable) -> int | None:
    """Significant digits that all rows carry (0: full precision), or None where they differ."""
    digits = table.digits
    if not digits.size:
        return 0
    return int(digits[0]) if (digits == digits[0]).all() else None


def printable_digits(digits: int) -> bool:
    """Return whether ``digits`` is a precision that producers have; 0 is full precision.

    The comparison allows half a unit of the last digit: one digit would let half of a value's size pass.
    """
    return digits == 0 or _MIN_DIGITS <= digits <= _MAX_DIGITS


def columns_for(table: StatsTable) -> tuple[str, ...]:
    """Return the columns that hold all of the table."""
    implied = _counts_of(table.shapes)
    count = () if implied == table.counts else ("count",)
    digits = ("digits",) if common_digits(table) is None else ()
    optional = (("digest", any(hashes_of(table))), ("noise", table.noise), ("sums", table.summed))
    told = [name for name, cells in optional if cells]
    counts = STATISTICS.index("nan")
    plain = table.summed and table.known[:, counts:].all() and not table.values[:, counts:].any()
    return (*(COLUMNS[: -len(_COUNTS)] if plain else COLUMNS), *count, *digits, *told)


def render_rows(table: StatsTable, columns: Sequence[str]) -> Iterable[str]:
    """One line for each tensor, without line ends.

    Raises:
        RowError: a key, dtype, shape or number of digits would not be read back as it is.
    """
    _check_heads(table.keys, table.dtypes, table.shapes)
    hashes = [digest.replace(" ", ",") or _ABSENT for digest in hashes_of(table)]
    _check(_DIGEST, hashes, "digest, expected such as md5:5d41")
    _check(CELL, table.noise, EXPECTED_CELL)
    for row, digits in enumerate(table.digits.tolist()):
        if not printable_digits(digits):
            raise RowError(row, f"{table.keys[row]} carries {digits} digits, {EXPECTED_DIGITS}")
    values: list[list[float | int]] = table.values.tolist()
    known = table.known.tolist()
    for (row, column), exact in table.wide.items():
        values[row][column] = exact
    with_count, with_digits = "count" in columns, "digits" in columns
    if "nan" not in columns:
        values, known = ([row[: -len(_COUNTS)] for row in rows] for rows in (values, known))
    summed = _sums_text(table) if "sums" in columns else []
    names = map(short, table.keys)
    for row, head in enumerate(zip(names, table.dtypes, table.shapes, strict=True)):
        cells = [
            repr(v).removesuffix(".0") if k else _ABSENT for v, k in zip(values[row], known[row], strict=True)
        ]
        if with_count:
            cells.append(_ABSENT if table.counts[row] is None else str(table.counts[row]))
        if with_digits:
            cells.append(str(table.digits[row]))
        if "digest" in columns:
            cells.append(hashes[row])
        if table.noise:
            cells.append(table.noise[row])
        if summed:
            cells.append(summed[row])
        yield " ".join((*head, *cells))


def _sums_text(table: StatsTable) -> list[str]:
    """Return the cells of the column of sums; none of projections that are printed in full."""
    if not table.summed or table.projections is None or table.projected is None:
        return [_ABSENT] * len(table)
    cells = zip(table.projected.tolist(), compact.texts(table.projections), _peaks(table), strict=True)
    return [f"{text}{peaks}" if projected else _ABSENT for projected, text, peaks in cells]


def hashes_of(table: StatsTable) -> list[str]:
    """Return the hashes of each tensor, without where its rows are largest."""
    return [digest.partition(ARGMAX)[0].rstrip() for digest in table.digests]


def _peaks(table: StatsTable) -> list[str]:
    parts = (digest.partition(f"{ARGMAX}:")[2] for digest in table.digests)
    return [f"@{part}" if part else "" for part in parts] or [""] * len(table)


def _with_peaks(table: StatsTable, peaks: Mapping[int, str]) -> StatsTable:
    if not peaks:
        return table
    digests = [*table.digests] or [""] * len(table)
    for row, text in peaks.items():
        digests[row] = with_peaks(digests[row], text)
    return replace(table, digests=tuple(digests))


def _read_sums(cells: list[str]) -> dict[str, Any]:
    if not cells:
        return {}
    _check(_SUMS, cells, "sum, expected 26 characters of base64")
    known = _known(cells)
    found = np.full((len(cells), PROJECTIONS), np.nan)
    found[known] = compact.sums_of([cell.partition("@")[0] for cell in cells if cell != _ABSENT])
    return {"projections": found, "projected": known, "summed": True}


def parse_rows(block: str, columns: Sequence[str], digits: int) -> StatsTable:
    """Read the table's lines.

    Args:
        block: the lines, each ending in a newline.
        columns: their names, one of :data:`LAYOUTS`.
        digits: significant digits the values carry where no column says it; 0 for full precision.

    Raises:
        RowError: a line has another number of cells, a cell is malformed, or a tensor occurs twice.
    """
    cells = dict(zip(columns, _split(block, len(columns)), strict=True))
    keys = tuple(map(whole, cells["tensor"]))
    dtypes, shapes = (tuple(map(intern, cells[name])) for name in ("dtype", "shape"))
    _check_heads(keys, dtypes, shapes)
    noise = tuple(map(intern, cells.get("noise", ())))
    _check(CELL, noise, EXPECTED_CELL)
    values = np.empty((len(keys), len(STATISTICS)))
    known = np.empty(values.shape, dtype=np.bool_)
    for column, name in enumerate(COLUMNS[_NUMBERS:]):
        if name not in cells:
            known[:, column], values[:, column] = True, 0
            continue
        read = _read_floats if column < MEASURED else _read_counts
        known[:, column], values[:, column] = read(cells[name], name)
    table = StatsTable(
        keys=keys,
        op_types=("",) * len(keys),
        dtypes=dtypes,
        shapes=shapes,
        counts=_optional_counts(cells["count"], "count") if "count" in cells else _counts_of(shapes),
        values=values,
        known=known,
        digits=_read_digits(cells.get("digits"), digits, len(keys)),
        wide=_wide(values, dtypes, [cells.get(name, []) for name in COLUMNS[_NUMBERS:]]),
        digests=_read_digests(cells.get("digest", [])),
        noise=noise,
        **_read_sums(cells.get("sums", [])),
    )
    told = enumerate(cells.get("sums", []))
    return _with_peaks(table, {row: cell.partition("@")[2] for row, cell in told if "@" in cell})


def render_outputs(table: StatsTable) -> str:
    """Return the block with rows of tensors, with statistics as printed."""
    return "".join(f"{line}\n" for line in render_rows(table, _OF_OUTPUTS))


def parse_outputs(block: str) -> StatsTable:
    """Read the rows of such a block.

    Raises:
        RowError: as :func:`parse_rows`.
    """
    return parse_rows(block, _OF_OUTPUTS, _MIN_DIGITS)


def _split(block: str, width: int) -> list[list[str]]:
    if not block:
        return [[] for _ in range(width)]
    lines = block.removesuffix("\n").split("\n")
    if set(map(str.count, lines, repeat(" "))) == {width - 1}:
        # Cells of all lines in one go: a line with as many spaces as it needs has as many cells as it needs.
        flat = " ".join(lines).split(" ")
        return [flat[column::width] for column in range(width)]
    parted = [line.split() for line in lines]
    for row, cells in enumerate(parted):
        if len(cells) != width:
            raise RowError(row, f"{len(cells)} cells, expected {width}: {lines[row][:120]!r}")
    return [[row[column] for row in parted] for column in range(width)]


def _check_heads(keys: Sequence[str], dtypes: Sequence[str], shapes: Sequence[str]) -> None:
    _check(_KEY, keys, "tensor key, expected layer:io.slot")
    _check(_DTYPE, dtypes, "dtype")
    _check(_SHAPE, shapes, "shape, expected such as 1x8x24x96")
    first: dict[str, int] = {}
    for row, key in enumerate(keys if len(set(keys)) < len(keys) else ()):
        if first.setdefault(key, row) != row:
            raise RowError(row, f"the tensor {key} stands here a second time, remove one of the two lines")


def _check(pattern: re.Pattern[str], cells: Sequence[str], what: str) -> None:
    if bad := {cell for cell in set(cells) if not pattern.fullmatch(cell)}:
        row = next(index for index, cell in enumerate(cells) if cell in bad)
        raise RowError(row, f"{cells[row][:120]!r} is not a {what}")


def _read_floats(cells: list[str], name: str) -> tuple[NDArray[np.bool_], NDArray[np.float64]]:
    known, joined = _known(cells), " ".join(cells)
    texts = cells if known.all() else ["nan" if cell == _ABSENT else cell for cell in cells]
    try:
        values = np.fromiter(map(float, texts), np.float64, len(cells))
        plain = "_" not in joined and joined.isascii() and not np.isinf(values).any()
    except ValueError:
        plain = False
    if not plain:
        values = np.array([_float(text, row, f"in column {name}") for row, text in enumerate(texts)])
    return known, values


def _float(text: str, row: int, where: str) -> float:
    """Read a number, but none that ``float()`` takes besides: ``1_000`` and digits of other scripts."""
    try:
        value = float("" if "_" in text or not text.isascii() else text)
    except ValueError:
        raise RowError(row, f"{text[:120]!r} {where} is not a number") from None
    if math.isinf(value) and not text.endswith("inf"):
        raise RowError(row, f"{text[:120]!r} {where} is beyond the range of float64")
    return value


def _read_digests(cells: list[str]) -> tuple[str, ...]:
    _check(_DIGEST, cells, "digest, expected such as md5:5d41")
    return tuple(["" if cell == _ABSENT else cell.replace(",", " ").lower() for cell in cells])


def _read_counts(cells: list[str], name: str) -> tuple[NDArray[np.bool_], NDArray[np.float64]]:
    _check(_COUNT, cells, f"count in column {name}")
    if set(cells) <= {"0"}:
        return np.ones(len(cells), np.bool_), np.zeros(len(cells))
    texts = ["nan" if cell == _ABSENT else cell for cell in cells]
    return _known(cells), np.fromiter(map(float, texts), np.float64, len(cells))


def _known(cells: list[str]) -> NDArray[np.bool_]:
    if (unknown := cells.count(_ABSENT)) in {0, len(cells)}:
        return np.full(len(cells), unknown == 0 and bool(cells), dtype=np.bool_)
    return np.fromiter(map(_ABSENT.__ne__, cells), np.bool_, len(cells))


def _optional_counts(cells: list[str], name: str) -> tuple[int | None, ...]:
    _check(_PRODUCT, cells, f"count in column {name}")
    return tuple([None if cell == _ABSENT else int(cell) for cell in cells])


def _counts_of(shapes: Sequence[str]) -> tuple[int | None, ...]:
    counts = {shape: shape_count(shape) for shape in set(shapes)}
    return tuple([counts[shape] for shape in shapes])


def _read_digits(cells: list[str] | None, common: int, rows: int) -> NDArray[np.int8]:
    if cells is None:
        return np.full(rows, common, dtype=np.int8)
    digits = _optional_counts(cells, "digits")
    for row, value in enumerate(digits):
        if value is None or not printable_digits(value):
            raise RowError(row, f"{cells[row]!r} in column digits, {EXPECTED_DIGITS} or 0 for all of them")
    return np.array(digits, dtype=np.int8)


def _wide(
    values: NDArray[np.float64], dtypes: Sequence[str], columns: Sequence[list[str]]
) -> dict[tuple[int, int], int]:
    wide = {}
    large = np.abs(values) >= EXACT_LIMIT
    for row, column in np.argwhere(large).tolist() if large.any() else ():
        if is_integral(dtypes[row], column) and _INTEGER.fullmatch(columns[column][row]):
            wide[row, column] = int(columns[column][row])
    return wide


def common_columns(tables: Collection[StatsTable]) -> tuple[str, ...]:
    """Return the columns that hold all of the tables."""
    used = {column for table in tables for column in columns_for(table)}
    if len({common_digits(table) for table in tables if len(table)}) > 1:
        used.add("digits")
    return next(layout for layout in sorted(LAYOUTS, key=len) if used <= set(layout))


def by_name(block: str) -> dict[str, str]:
    """Return the lines of a block, each by what stands before its first space."""
    return {line.partition(" ")[0]: line for line in block.splitlines()}


def lines_by_key(table: StatsTable, columns: Sequence[str]) -> dict[str, str]:
    """Return each tensor's line by its key.

    Raises:
        RowError: a row cannot be written.
    """
    absent = ("",) * len(table) if "digest" in columns else ()
    noise = ("-",) * len(table) if "noise" in columns else ()
    full = replace(table, digests=table.digests or absent, noise=table.noise or noise)
    return dict(zip(table.keys, render_rows(full, columns), strict=True))


def differing_keys(before: StatsTable, now: StatsTable, *, summed_by_both: bool) -> list[str]:
    """Return the keys of the tensors whose lines are not those of before.

    Args:
        before: the earlier table.
        now: whose tensors they are.
        summed_by_both: whether projections that one of the two does not have, and checksums that the earlier
            one has not, are no difference.
    """
    if summed_by_both:
        known = {
            key for key, digest in zip(before.keys, before.digests, strict=False) if parted_digest(digest)[0]
        }
        pairs = zip(now.keys, now.digests, strict=False)
        told = (digest if key in known else parted_digest(digest)[1] for key, digest in pairs)
        now = replace(now, digests=tuple(told))
    columns = common_columns([before, now])
    lines = lines_by_key(before, columns)
    sums, summed = (by_name(render_projections(table)) for table in (before, now))
    return [
        key
        for key, line in lines_by_key(now, columns).items()
        if lines.get(key) != line
        or (sums.get(key) != summed.get(key) and (not summed_by_both or (key in sums and key in summed)))
    ]


def same_lines(one: StatsTable, other: StatsTable) -> bool:
    """Return whether two tables would be the same lines of a file."""
    columns = columns_for(one)
    if columns != columns_for(other):
        return False
    return [*render_rows(one, columns)] == [*render_rows(other, columns)]


_SIGN = " # "
_LINE_END = re.compile(rf"{_SIGN}([^\n]*)$", re.MULTILINE)
STAMP = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}(?: [0-9a-f]{7,64})?")
"""The day, and the commit that was checked out, where there was one."""


def without_stamps(block: str) -> tuple[str, dict[str, str]]:
    """Return the lines of a table without their stamps, and these by the tensors' keys.

    Raises:
        RowError: what stands behind the cells of a line is no stamp.
    """
    if _SIGN not in block:
        return block, {}
    found: dict[str, str] = {}

    def keep(match: re.Match[str]) -> str:
        first = block.rfind("\n", 0, match.start()) + 1
        if not STAMP.fullmatch(match[1]):
            reason = f"{match[1][:120]!r} is no day and commit, expected such as # 2026-11-23 1f3a5c7e9b2d"
            raise RowError(block.count("\n", 0, first), reason)
        found[whole(block[first : match.start()].partition(" ")[0])] = match[1]
        return ""

    return _LINE_END.sub(keep, block), found


def stamped_lines(lines: Iterable[str], keys: Sequence[str], stamps: Mapping[str, str]) -> Iterator[str]:
    """Yield the lines of a table with their stamps.

    Args:
        lines: without.
        keys: the tensors, in their order.
        stamps: by key; those of other tensors are not written.

    Raises:
        RowError: a stamp would not be read back as it is.
    """
    for row, (key, line) in enumerate(zip(keys, lines, strict=True)):
        stamp = stamps.get(key, "")
        if stamp and not STAMP.fullmatch(stamp):
            raise RowError(row, f"{stamp!r} is no day and commit")
        yield f"{line}{_SIGN}{stamp}" if stamp else line


def render_projections(table: StatsTable) -> str:
    """The block's lines, each ending in a newline; "" where no tensor has projections."""
    if table.projections is None or table.projected is None or table.summed:
        return ""
    sums, peaks = table.projections.tolist(), _peaks(table)
    told = np.flatnonzero(table.projected).tolist()
    exact = [is_exact(dtype) for dtype in table.dtypes]
    lines = ((table.keys[at], *(_text(one, exact=exact[at]) for one in sums[at]), peaks[at]) for at in told)
    return "".join(f"{' '.join(filter(None, line))}\n" for line in lines)


def _text(value: float, *, exact: bool) -> str:
    value += 0.0  # no -0
    if exact and math.isfinite(value) and value.is_integer():
        return str(int(value))
    return repr(value).removesuffix(".0") if exact else f"{value:.{DIGITS}g}"


def with_projections(table: StatsTable, block: str) -> StatsTable:
    """A table without projections, with those of a block's lines; an empty block leaves it as it is.

    Raises:
        RowError: a line is malformed, or of a tensor that the table lacks or that stands there twice.
    """
    if not block:
        return table
    if table.summed:
        raise RowError(0, "projections stand in the column 'sums' already, remove this block or that column")
    rows = {key: row for row, key in enumerate(table.keys)}
    found: dict[int, list[float]] = {}
    peaks: dict[int, str] = {}
    for number, line in enumerate(block.splitlines()):
        key, *cells = line.split()
        told = _PEAKS.fullmatch(cells[-1]) if cells else None
        cells = cells[:-1] if told is not None else cells
        if len(cells) != PROJECTIONS:
            raise RowError(number, f"{len(cells)} projections, expected {PROJECTIONS}: {line[:120]!r}")
        row = rows.get(key)
        if row is None or row in found:
            why = "a second time" if row is not None else "here, and no line among the tensors"
            raise RowError(number, f"the tensor {key} has projections {why}, remove this line")
        found[row] = [_float(cell, number, "among the projections") for cell in cells]
        if told is not None:
            peaks[row] = told[1]
    return _with_peaks(table.with_projections(found), peaks)


EXPECTED = "key dtype shape sha256:DIGEST bytes row"
_LINE = re.compile(
    r"(?P<key>\S+) (?P<dtype>[a-z][a-z0-9_]*) (?P<shape>-|[0-9]{1,19}(?:x[0-9]{1,19}){0,63}) "
    r"sha256:(?P<digest>[0-9a-f]{64}) (?P<size>[0-9]{1,19}) (?P<row>[0-9a-f]{8})"
)
_ROW_BYTES = 4


@dataclass(frozen=True, slots=True)
class Pointer:
    """Pointer to a golden tensor in a store.

    Attributes:
        key: the tensor's, as the golden's table spells it.
        dtype: numpy's or ml_dtypes' name of the type that its bytes are of, little-endian.
        shape: of the array.
        digest: SHA-256 of its bytes, in hexadecimal.
        size: how many bytes these are.
        row: hash of the statistics that it was recorded with.
    """

    key: str
    dtype: str
    shape: tuple[int, ...]
    digest: str
    size: int
    row: str

    def line(self) -> str:
        """Return the line of the block, with its newline."""
        shape = shape_text(self.shape)
        return f"{self.key} {self.dtype} {shape} sha256:{self.digest} {self.size} {self.row}\n"


def read_pointers(block: str) -> dict[str, Pointer]:
    """Return the pointers of a block's lines by key.

    Raises:
        RowError: a line is none, is of a tensor that stands there twice, or is cut; names the line.
    """
    found: dict[str, Pointer] = {}
    lines = block.splitlines()
    for number, line in enumerate(lines):
        told = _LINE.fullmatch(line)
        if told is None:
            raise RowError(number, f"{line[:120]!r} is no stored tensor, expected: {EXPECTED}")
        shape = shape_of(told["shape"]) or ()
        size = int(told["size"])
        if math.prod(shape) and size % math.prod(shape):
            raise RowError(number, f"{size} bytes are no tensor of shape {told['shape']}: {line[:120]!r}")
        pointer = Pointer(told["key"], told["dtype"], shape, told["digest"], size, told["row"])
        if pointer.key in found:
            raise RowError(
                number, f"the stored tensor {pointer.key} stands here a second time, remove one line"
            )
        found[pointer.key] = pointer
    if block and not block.endswith("\n"):
        raise RowError(len(lines) - 1, "the file ends within this line")
    return found


def row_hash(table: StatsTable, row: int) -> str:
    """Return the hash of one row's statistics."""
    return blake2b(f"{table.keys[row]} {table.statistics(row)}".encode(), digest_size=_ROW_BYTES).hexdigest()
