"""The records of a dump file while its bytes arrive: what ``files.container`` reads of a whole one.

Where a record has more than one reading (see ``placements`` of ``files.container``), only the end of the file
tells which is right: until then all of them are followed.
"""

from __future__ import annotations

import math
import struct
from typing import TYPE_CHECKING

import numpy as np

from pytest_npudump.dump.arrays.decode import why_opaque
from pytest_npudump.dump.bytes.rawfile import RawFile
from pytest_npudump.dump.callback.tensor_stream import TensorResult, TensorStream
from pytest_npudump.dump.files.container.container_tensors import data_bytes, placements
from pytest_npudump.dump.files.container.reader import misfit, read_head
from pytest_npudump.errors import FormatError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pytest_npudump.dump.files.container.container_tensors import (
        ContainerRecord,
        ContainerTensor,
        Placement,
        RecordHead,
    )

HEADER_LIMIT = 64 << 20
"""Longest header that is kept in memory; those of CANN have some hundred bytes a tensor."""

_LENGTH = struct.Struct("<Q")
_SNIFFED = 16
"""Bytes that tell the two containers apart."""


class _Arrived(RawFile):
    """The part of a file that begins at ``base`` and has arrived, as if nothing were to follow."""

    __slots__ = ("_base", "_data")

    def __init__(self, path: Path, base: int, data: bytes | bytearray = b"") -> None:
        super().__init__(path, -1, base + len(data))
        self._base = base
        self._data = data

    def read(self, offset: int, nbytes: int, what: str) -> bytes:
        self.check(offset, nbytes, what)
        return bytes(memoryview(self._data)[offset - self._base : offset - self._base + nbytes])


class RecordReading:
    """One record, read in one of the possible ways.

    Attributes:
        record: with the payloads that this reading gives its tensors.
        end: offset behind its last byte.
        following: what comes behind it.
    """

    def __init__(self, head: RecordHead, way: Placement, path: Path) -> None:
        self.record: ContainerRecord = head.placed(way, path)
        self.end = way.end(head.start)
        self.following = ContainerStream(path, self.end) if head.repeatable else None
        self._ends = way.ends(head.start)
        self._at, self._index = head.start, 0
        self._streams = [_stream(tensor) for tensor in self.record.tensors]
        self._results: dict[tuple[int, str, int], TensorResult] = {}
        self._finish_tensors()

    def feed(self, data: np.ndarray) -> np.ndarray:
        """Take the next bytes and return those that are behind the record."""
        while data.size and self._index < len(self._streams):
            taken = data[: self._ends[self._index] - self._at]
            stream = self._streams[self._index]
            if stream is not None:
                stream.feed(taken)
            self._at += taken.size
            data = data[taken.size :]
            self._finish_tensors()
        return data

    def _finish_tensors(self) -> None:
        while self._index < len(self._streams) and self._at == self._ends[self._index]:
            tensor, stream = self.record.tensors[self._index], self._streams[self._index]
            if stream is not None and tensor.payload is not None:
                self._results[tensor.payload.offset, tensor.io, tensor.slot] = stream.result()
            self._streams[self._index] = None
            self._index += 1

    def result(self, offset: int, io: str, slot: int) -> TensorResult | None:
        """Return a tensor's statistics, by the offset of its payload; None where it has too few bytes."""
        return self._results.get((offset, io, slot))


def _stream(tensor: ContainerTensor) -> TensorStream | None:
    """Return what computes a tensor's statistics; None where it has no bytes, or no values."""
    needed = data_bytes(tensor.dtype, tensor.shape)
    if tensor.payload is None or tensor.shape is None or needed is None or why_opaque(tensor.dtype):
        return None
    if needed > tensor.payload.nbytes:
        return None
    return TensorStream(tensor.dtype, math.prod(tensor.shape), tensor.size)


class _Record:
    """One record: its header until it is complete, then its readings."""

    def __init__(self, path: Path, offset: int) -> None:
        self._path, self._offset = path, offset
        self._bytes = bytearray()
        self._error: FormatError | None = None
        self.head: RecordHead | None = None
        self.readings: list[RecordReading] = []

    @property
    def certain(self) -> bool:
        """Whether the bytes behind the record are known to begin another one."""
        return self.head is not None and self.head.repeatable and len(self.readings) == 1

    def feed(self, data: np.ndarray) -> np.ndarray:
        """Take the next bytes; where it is certain which they are, return those behind the record."""
        if self.head is None:
            if self._error is not None:
                return data[:0]
            data = self._feed_header(data)
        if self.certain:
            return self.readings[0].feed(data)
        for reading in self.readings:
            rest = reading.feed(data)
            if rest.size and reading.following is not None:
                reading.following.feed(rest)
        return data[:0]

    def _feed_header(self, data: np.ndarray) -> np.ndarray:
        while data.size and self.head is None and self._error is None:
            taken = data[: self._needed() - len(self._bytes)]
            self._bytes += taken.tobytes()
            data = data[taken.size :]
            if len(self._bytes) >= self._needed():
                data = self._begin(data)
        return data

    def _needed(self) -> int:
        least = _SNIFFED if self._offset == 0 else _LENGTH.size
        if len(self._bytes) < least:
            return least
        (length,) = _LENGTH.unpack_from(self._bytes)
        return max(_LENGTH.size + length, least) if length <= HEADER_LIMIT else len(self._bytes)

    def _begin(self, data: np.ndarray) -> np.ndarray:
        """Read the header, and return what has arrived behind it."""
        (length,) = _LENGTH.unpack_from(self._bytes)
        if HEADER_LIMIT < length < 1 << 31:
            reason = (
                f"a header of {length} bytes; a stream may have one of {HEADER_LIMIT}: take transport='files'"
            )
            self._error = FormatError(self._path, reason, offset=self._offset)
            return data
        try:
            self._read_header()
        except FormatError as error:
            self._error = error
            self._bytes.clear()
            return data
        assert self.head is not None  # noqa: S101 - _read_header() has set it
        early = np.frombuffer(bytes(self._bytes[self.head.start - self._offset :]), np.uint8)
        self._bytes.clear()
        return np.concatenate([early, data]) if early.size else data

    def _read_header(self) -> None:
        self.head = read_head(_Arrived(self._path, self._offset, self._bytes), self._offset)
        ways = placements(self.head.record.tensors)
        self.readings = [RecordReading(self.head, way, self._path) for way in ways]

    def flush(self) -> None:
        """Take the header as it is: a file of less than 16 bytes has arrived."""
        if self.head is None and self._error is None and self._offset == 0 and len(self._bytes) < _SNIFFED:
            try:
                read_head(_Arrived(self._path, 0, self._bytes), 0)
            except FormatError:
                return
            self._begin(np.empty(0, np.uint8))

    def require_head(self) -> RecordHead:
        """Return the header.

        Raises:
            FormatError: it is damaged or has not arrived.
        """
        if self._error is not None:
            raise self._error
        return self.head or read_head(_Arrived(self._path, self._offset, self._bytes), self._offset)


class ContainerStream:
    """The records of a file, or of what lies behind byte ``base`` of it."""

    def __init__(self, path: Path, base: int = 0) -> None:
        self._path = path
        self._records = [_Record(path, base)]

    def feed(self, data: np.ndarray) -> None:
        """Take the next bytes, contiguous uint8 of shape (n,); they may be overwritten afterwards."""
        while data.size:
            record = self._records[-1]
            data = record.feed(data)
            if data.size:
                self._records.append(_Record(self._path, record.readings[0].end))

    def flush(self) -> None:
        """Take what has arrived for the whole file; more may follow where another record is appended."""
        self._records[-1].flush()

    @property
    def begins(self) -> bool:
        """Whether a record begins here."""
        return self._records[0].head is not None

    def readings(self, size: int) -> Iterator[RecordReading]:
        """Yield the records of a file that has ended behind ``size`` bytes, all of which have arrived.

        Raises:
            FormatError: the file is truncated, has bytes that belong to no record, or is no dump.
        """
        for record, behind in zip(self._records, [*self._records[1:], None], strict=True):
            head = record.require_head()
            if behind is None:
                yield from self._last(record, head, size)
            elif behind.head is None:
                raise misfit(_Arrived(self._path, size), head)
            else:
                yield record.readings[0]

    def _last(self, record: _Record, head: RecordHead, size: int) -> Iterator[RecordReading]:
        for reading in record.readings:
            if reading.end == size:
                yield reading
                return
        for reading in record.readings:
            if reading.following is not None and reading.following.begins:
                yield reading
                yield from reading.following.readings(size)
                return
        raise misfit(_Arrived(self._path, size), head)
