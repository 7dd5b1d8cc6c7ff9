"""Tensors of types that have to be unpacked, a piece at a time: memory does not grow with them."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING

from pytest_npudump.dump.decode import VIEWED, load, too_short, why_opaque
from pytest_npudump.dump.dtypes import BY_NAME
from pytest_npudump.dump.host import lies_in

if TYPE_CHECKING:
    from collections.abc import Iterator

    import numpy as np

    from pytest_npudump.dump.records import Payload, TensorRecord

_BYTE = 8


class PackedTensor:
    """The values that ``load`` would give for a raw payload of such a type, of which only pieces are held.

    Attributes:
        shape, size: of the tensor.
        dtype: numpy type of the values.

    Raises:
        DecodeError: the payload is smaller than the shape.
        FormatError: the file cannot be read.
    """

    def __init__(self, payload: Payload, name: str, shape: tuple[int, ...]) -> None:
        self.shape = shape
        self.size = math.prod(shape)
        self._payload, self._name, self._bits = payload, name, BY_NAME[name].bits
        if self._nbytes(self.size) > payload.nbytes:
            raise too_short(payload, name, self.size, payload.nbytes)
        self.dtype = load(payload, name, (0,)).dtype

    def _nbytes(self, count: int) -> int:
        return (count * self._bits + _BYTE - 1) // _BYTE

    def pieces(self, limit: int) -> Iterator[np.ndarray]:
        """All values in C order, in pieces of shape (n,), n at most ``limit``, which is a multiple of 8."""
        for start in range(0, self.size, limit):
            count = min(limit, self.size - start)
            offset = self._payload.offset + start * self._bits // _BYTE
            yield load(
                replace(self._payload, offset=offset, nbytes=self._nbytes(count)), self._name, (count,)
            )


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
