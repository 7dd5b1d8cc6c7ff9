"""Edges of an om file, which holds its graph as the protobuf message ``ModelDef`` of ``ge_ir.proto``.

A file header of 256 bytes (magic ``IMOD``), a table of partitions, and the partitions. The table: their
number, then for each its type, its offset behind the table and its size, all of 64 bits. The partition of
type 0 is the ``ModelDef``. Fields that are read: ``ModelDef.graph`` 7, ``GraphDef.op`` 6, and of
``OpDef`` name 1, type 2, input 5. Nothing else is decoded: an om has gigabytes of weights.
"""

from __future__ import annotations

import mmap
import struct
from typing import TYPE_CHECKING

from pytest_npudump.errors import FormatError
from pytest_npudump.graph.ge_graph import ge_edges
from pytest_npudump.storage.regular_file import open_regular

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pytest_npudump.graph.edges import Edges

_MAGIC = b"IMOD"
_HEADER = 256
_WORD = 8
_MODEL_DEF = 0
_MOST = 64
_GRAPH, _OPERATOR = 7, 6
_NAME, _TYPE, _INPUT = 1, 2, 5
_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5


def read_om(path: Path) -> Edges:
    """Return the edges of an om file.

    Raises:
        FormatError: it is no om, or of a layout that is not known.
    """
    try:
        with open_regular(path) as file:
            if file.seek(0, 2) < _HEADER + _WORD:
                raise FormatError(path, f"too short for an om, expected {_HEADER} bytes of header and more")
            with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
                return ge_edges(_graphs(data, path), path.name)
    except OSError as error:
        raise FormatError(path, f"cannot be read: {error.strerror}") from error


def _graphs(data: mmap.mmap, path: Path) -> list[list[tuple[str, str, tuple[str, ...]]]]:
    start, end = _model_def(data, path)
    return [
        [_operator(data, *op, path) for number, op in _fields(data, *graph, path) if number == _OPERATOR]
        for number, graph in _fields(data, start, end, path)
        if number == _GRAPH
    ]


def _model_def(data: mmap.mmap, path: Path) -> tuple[int, int]:
    if data[:4] != _MAGIC:
        raise FormatError(path, f"begins with {data[:4]!r}, expected {_MAGIC!r}", offset=0)
    (count,) = struct.unpack_from("<Q", data, _HEADER)
    behind = _HEADER + _WORD * (1 + 3 * count)
    if 0 < count <= _MOST and behind <= len(data):
        numbers = struct.unpack_from(f"<{3 * count}Q", data, _HEADER + _WORD)
        for kind, offset, size in zip(numbers[::3], numbers[1::3], numbers[2::3], strict=True):
            if kind == _MODEL_DEF and 0 < size <= len(data) - behind - offset:
                return behind + offset, behind + offset + size
    raise FormatError(path, "its table of partitions names no graph, or lies outside of it", offset=_HEADER)


def _operator(data: mmap.mmap, start: int, end: int, path: Path) -> tuple[str, str, tuple[str, ...]]:
    texts: dict[int, list[str]] = {_NAME: [], _TYPE: [], _INPUT: []}
    for number, (first, last) in _fields(data, start, end, path):
        if number in texts:
            texts[number].append(data[first:last].decode("utf-8", "surrogateescape"))
    name, op_type = (texts[number][0] if texts[number] else "" for number in (_NAME, _TYPE))
    return name, op_type, tuple(texts[_INPUT])


def _fields(data: mmap.mmap, at: int, end: int, path: Path) -> Iterator[tuple[int, tuple[int, int]]]:
    """Yield number and place of the fields of a message that have a length; others are passed over."""
    while at < end:
        tag, at = _varint(data, at, end, path)
        kind = tag & 7
        if kind == _VARINT:
            _, at = _varint(data, at, end, path)
        elif kind == _BYTES:
            size, at = _varint(data, at, end, path)
            if size > end - at:
                raise FormatError(path, f"a field of {size} bytes reaches beyond its message", offset=at)
            yield tag >> 3, (at, at + size)
            at += size
        elif kind in {_FIXED32, _FIXED64} and (at := at + (4 if kind == _FIXED32 else 8)) <= end:
            continue
        else:
            raise FormatError(path, f"no protobuf message: wire type {kind}", offset=at)


def _varint(data: mmap.mmap, at: int, end: int, path: Path) -> tuple[int, int]:
    value = 0
    for shift in range(0, 70, 7):
        if at >= end:
            break
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:  # noqa: PLR2004 - the last of a varint
            return value, at
    raise FormatError(path, "a number that does not end", offset=at)
