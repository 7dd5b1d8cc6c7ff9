"""Many statistics CSV of single operators at once, in columns.

Nearly all files of a dump are plain: one header, and rows as its first layout has them. Their cells are cut
and converted a column at a time. Whatever is odd about a file, it is left to
:mod:`pytest_npudump.dump.files.operator_csv.reader`, which knows what it means or says what is wrong: both
read the same from any file.
"""

from __future__ import annotations

import sys
from array import array
from collections import defaultdict
from itertools import chain, islice, repeat
from math import prod
from operator import lt
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pytest_npudump.dump.bytes.textfile import read_small
from pytest_npudump.dump.columns import Column, TensorColumns
from pytest_npudump.dump.files.operator_csv.reader import (
    CHUNK_TENSORS,
    HEADER_START,
    IO,
    NO_STATISTICS,
    Header,
    parse_operator_csv,
    read_header,
)
from pytest_npudump.dump.files.stats_cells import (
    DIGESTS,
    DIGITS,
    NO_VALUE,
    STATISTICS,
    VALUES,
    extreme_parser,
    parse_count,
    parse_digest,
    parse_dtype,
    parse_float,
    parse_shape,
)
from pytest_npudump.dump.parts import unique_parts
from pytest_npudump.dump.values.host_values import doubtful
from pytest_npudump.errors import FormatError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from pytest_npudump.dump.parts import TensorPart

_Bodies = dict[int, bytes]
"""All lines of files behind the first, by the number of the file."""

_START = HEADER_START.encode()
_SIZE, _DTYPE, _FORMAT, _SHAPE = range(2, 6)
_EXTREMES = frozenset({"max", "min"})
_MEANS = frozenset({"avg", "l2norm"})


class _OddError(Exception):
    """A file is not as nearly all are."""


def read_stats_columns(directory: str, names: Sequence[str]) -> tuple[TensorColumns, list[FormatError]]:
    """Read statistics CSV of one directory.

    Args:
        directory: where they are.
        names: what they are called.

    Returns:
        Their tensors, and the problems of those that could not be read, in the order of ``names``.
    """
    alike: defaultdict[bytes, _Bodies] = defaultdict(dict)
    odd: dict[int, bytes] = {}
    problems: dict[int, FormatError] = {}
    before = str(Path(directory, "_")).removesuffix("_")
    for at, name in enumerate(names):
        try:
            data = read_small(before + name)
        except FormatError as error:
            problems[at] = error
            continue
        head = data[: data.find(b"\n") + 1]
        body = data[len(head) :]
        if (
            head.startswith(_START)
            and body.endswith(b"\n")
            and body.isascii()
            and body.count(b"\n") <= CHUNK_TENSORS
        ):
            alike[head][at] = body
        else:
            odd[at] = data
    pieces = []
    for head, bodies in alike.items():
        columns, left = _plain(head, bodies)
        pieces += columns
        odd |= {at: head + bodies[at] for at in left}
    parts: dict[int, tuple[TensorPart, ...]] = {}
    for at, data in odd.items():
        path = Path(directory, names[at])
        try:
            parts[at] = unique_parts(parse_operator_csv(data, path), path)
        except FormatError as error:
            problems[at] = error
    if parts:
        pieces.append(TensorColumns.of(parts, DIGITS))
    whole = TensorColumns.of({}, DIGITS)
    for piece in pieces:
        whole.append(piece, 0)
    return whole, [problems[at] for at in sorted(problems)]


def _plain(head: bytes, bodies: _Bodies) -> tuple[list[TensorColumns], Iterable[int]]:
    """Read the plain ones among files with one header line; return the numbers of the others as well."""
    try:
        header = read_header(head[:-1].decode("ascii"))
        cells = _cells(header, bodies)
        left = _doubtful(cells, bodies)
        plain = {at: body for at, body in bodies.items() if at not in left} if left else bodies
        if left and plain:
            cells = _cells(header, plain)
        return ([_columns(header, cells, plain)] if plain else []), left
    except (_OddError, ValueError):
        return [], bodies


def _cells(header: Header, bodies: _Bodies) -> list[Sequence[str]]:
    """The columns of files of which each row is as wide as the first layout of the header.

    Raises:
        _OddError: some row is not.
    """
    text = b"".join(bodies.values())[:-1].decode("ascii")
    width = len(header.layouts[0].columns)
    if "\r" in text or {line.count(",") for line in text.split("\n")} != {width - 1}:
        raise _OddError
    cells = text.replace("\n", ",").split(",")
    return [cells[at::width] for at in range(width)]


def _doubtful(cells: Sequence[Sequence[str]], bodies: _Bodies) -> frozenset[int]:
    """Numbers of the files with a type whose values CANN's host converter may have garbled."""
    found = frozenset(text for text in frozenset(cells[_DTYPE]) if doubtful(parse_dtype(text)))
    rows = zip(_rows(bodies), cells[_DTYPE], strict=True) if found else ()
    return frozenset(at for at, text in rows if text in found)


def _rows(bodies: _Bodies) -> Iterator[int]:
    """Yield the number of the file for each row."""
    return chain.from_iterable(repeat(at, body.count(b"\n")) for at, body in bodies.items())


def _columns(header: Header, cells: Sequence[Sequence[str]], bodies: _Bodies) -> TensorColumns:
    """Read files of which each row is of the first layout of the header.

    Raises:
        _OddError, ValueError: one is not, or a cell is not what its column is to hold.
    """
    layout = header.layouts[0]
    file = array("q", _rows(bodies))
    io, slot = _each(IO.get, cells[0]), _each(parse_count, cells[1])
    dtype, shape = _each(parse_dtype, cells[_DTYPE]), _each(parse_shape, cells[_SHAPE])
    if None in io or None in slot:
        raise _OddError
    _refuse_repeated(list(zip(file, io, slot, strict=True)))
    if layout.count >= 0:
        _check_counts(cells[layout.count], shape)
    texts = dict(zip(layout.columns, cells, strict=True))
    told, note = _said(texts, len(file), header.unread)
    return TensorColumns(
        file,
        io,
        slot,
        dtype,
        shape,
        _each(_format, cells[_FORMAT]),
        _each(parse_count, cells[_SIZE]),
        note,
        _digests(texts, len(file)),
        told,
        tuple(_statistic(name, texts.get(name), dtype) for name in STATISTICS),
        DIGITS,
    )


def _each(parse: Callable[[str], Any], texts: Sequence[str]) -> list[Any]:
    """Parse cells that are of a few words."""
    found = {text: parse(text) for text in frozenset(texts)}
    return list(map(found.__getitem__, texts))


def _format(text: str) -> str:
    return "" if text in NO_VALUE else sys.intern(text)


def _refuse_repeated(tensors: Sequence[tuple[int, str, int]]) -> None:
    if all(map(lt, tensors, islice(tensors, 1, None))):
        return  # as they are written: inputs before outputs, by slot
    if len(frozenset(tensors)) < len(tensors):
        raise _OddError


def _check_counts(counts: Sequence[str], shapes: Sequence[tuple[int, ...] | None]) -> None:
    """Refuse rows whose count shows that they are of another layout; see ``operator_csv``."""
    for count, shape in frozenset(zip(counts, shapes, strict=True)):
        if shape is not None and count != str(prod(shape)):
            raise _OddError


def _digests(texts: Mapping[str, Sequence[str]], length: int) -> list[str]:
    if texts.keys().isdisjoint(DIGESTS):
        return [""] * length
    columns = (texts.get(name, [""] * length) for name in DIGESTS)
    return [parse_digest(row) for row in zip(*columns, strict=True)]


def _said(texts: Mapping[str, Sequence[str]], length: int, unread: str) -> tuple[list[bool], list[str]]:
    """Whether each tensor has any statistics, and what its note says."""
    told, note = [True] * length, [unread] * length
    if "max" in texts and NO_VALUE.isdisjoint(texts["max"]):
        return told, note
    bare = f"{NO_STATISTICS}; {unread}" if unread else NO_STATISTICS
    values = [texts[name] for name in STATISTICS if name in texts]
    others = [texts[name] for name in VALUES if name in texts and name != "count"]
    for row in range(length):
        told[row] = any(column[row] not in NO_VALUE for column in values)
        if all(column[row] in NO_VALUE for column in others):
            note[row] = bare
    return told, note


def _statistic(name: str, texts: Sequence[str] | None, dtypes: Sequence[str]) -> Column | None:
    if texts is None or NO_VALUE.issuperset(texts):
        return None
    if name in _EXTREMES:
        parsers = {dtype: extreme_parser(dtype) for dtype in frozenset(dtypes)}
        if any(parser is not parse_float for parser in parsers.values()):
            return [parsers[dtype](text) for text, dtype in zip(texts, dtypes, strict=True)]
    elif name not in _MEANS:
        return _each(parse_count, texts)
    return _floats(texts)


def _floats(texts: Sequence[str]) -> Column:
    if "_" not in "".join(texts):
        try:
            return array("d", map(float, texts))
        except ValueError:
            pass
    return list(map(parse_float, texts))
