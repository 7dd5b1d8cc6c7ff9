"""Tensors of types that have to be unpacked, a piece at a time: memory does not grow with them."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from pytest_npudump.dump.arrays.decode import VIEWED, decode, too_short, why_opaque
from pytest_npudump.dump.arrays.layouts import host_values, lies_in
from pytest_npudump.dump.bytes.chunks import c_order_chunks, pieces_of
from pytest_npudump.dump.bytes.rawfile import raw_bytes
from pytest_npudump.dump.values.dtypes import BY_NAME

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pytest_npudump.dump.arrays.layouts import JoinedTensor
    from pytest_npudump.dump.records import Payload, TensorRecord

_BYTE = 8
_CODES: dict[int, np.dtype[Any]] = {8: np.dtype(np.uint8), 32: np.dtype(np.uint32)}
"""What elements of so many bits are moved as."""


class PackedTensor:
    """The values that ``load`` would give for a raw payload of such a type, of which only pieces are held.

    Attributes:
        name: of the type in the dump.
        shape, size: of the tensor.
        dtype: numpy type of the values.

    Raises:
        DecodeError: the payload is smaller than the shape.
        FormatError: the file cannot be read.
    """

    def __init__(self, payload: Payload, name: str, shape: tuple[int, ...]) -> None:
        self.shape = shape
        self.size = math.prod(shape)
        self._payload, self.name, self._bits = payload, name, BY_NAME[name].bits
        if self._nbytes(self.size) > payload.nbytes:
            raise too_short(payload, name, self.size, payload.nbytes)
        self.dtype = decode(np.empty(0, np.uint8), name, 0).dtype

    def _nbytes(self, count: int) -> int:
        return (count * self._bits + _BYTE - 1) // _BYTE

    def pieces(self, limit: int) -> Iterator[np.ndarray]:
        """All values in C order, in pieces of shape (n,), n at most ``limit``, which is a multiple of 8."""
        for octets, count in self.octets(limit):
            yield decode(octets, self.name, count)

    def octets(self, limit: int) -> Iterator[tuple[np.ndarray, int]]:
        """The bytes of each of these pieces, uint8 of one axis, and how many values they hold."""
        octets = raw_bytes(self._payload)[: self._nbytes(self.size)]
        left = self.size
        for piece in c_order_chunks(octets, limit * self._bits // _BYTE, flat=True):
            yield piece, min(limit, left)
            left -= limit


class CodedTensor:
    """The values of a tensor whose elements take whole bytes and have to be decoded, in a host layout.

    Attributes:
        name: of the type in the dump.
        shape, size: of the tensor on the host.
        dtype: numpy type of the values.
    """

    def __init__(self, codes: np.ndarray | JoinedTensor, name: str) -> None:
        self.shape, self.size = codes.shape, codes.size
        self._codes, self.name = codes, name
        self.dtype = decode(np.empty(0, np.uint8), name, 0).dtype

    def pieces(self, limit: int) -> Iterator[np.ndarray]:
        """All values in C order, cut as :func:`c_order_chunks` cuts an array of this shape."""
        for octets, count in self.octets(limit):
            yield decode(octets, self.name, count)

    def octets(self, limit: int) -> Iterator[tuple[np.ndarray, int]]:
        """The bytes of each of these pieces, uint8 of one axis, and how many values they hold."""
        for part in pieces_of(self._codes, limit):
            yield part.view(np.uint8), part.size


def coded_tensor(record: TensorRecord, layout: str) -> CodedTensor | None:
    """The tensor of a record in the host layout called ``layout``, if it is of such a type.

    Raises:
        DecodeError: the payload is smaller than the shape.
        FormatError: the file cannot be read.
        LayoutError: the layout cannot be converted, or the shapes do not fit it.
    """
    payload, shape, name = record.payload, record.shape, record.dtype
    if payload is None or shape is None or payload.kind != "raw" or name in VIEWED or name == "bool":
        return None
    if why_opaque(name) or BY_NAME[name].bits not in _CODES:
        return None
    codes = _CODES[BY_NAME[name].bits]
    count, octets = math.prod(shape), raw_bytes(payload)
    if count * codes.itemsize > octets.size:
        raise too_short(payload, name, count, octets.size)
    array = octets[: count * codes.itemsize].view(codes).reshape(shape)
    return CodedTensor(host_values(array, record, layout), name)


def packed_tensor(record: TensorRecord, layout: str) -> PackedTensor | None:
    """The tensor of a record, if it is of such a type and lies in the host layout called ``layout`` already.

    Raises:
        DecodeError: the payload is smaller than the shape.
        FormatError: the file cannot be read.
    """
    payload, shape, name = record.payload, record.shape, record.dtype
    if payload is None or shape is None or payload.kind != "raw":
        return None
    if name in VIEWED or name == "bool" or why_opaque(name) or not lies_in(record, layout):
        return None
    return PackedTensor(payload, name, shape)
