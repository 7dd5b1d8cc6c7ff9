"""A dump file taken apart by field numbers only: nothing of the package is used."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from pathlib import Path

Fields = list[tuple[int, int | bytes]]


def varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            return value, at


def fields(data: bytes) -> Fields:
    found: Fields = []
    at = 0
    while at < len(data):
        tag, at = varint(data, at)
        if tag & 7 == 0:
            value, at = varint(data, at)
            found.append((tag >> 3, value))
        else:
            assert tag & 7 == 2
            size, at = varint(data, at)
            found.append((tag >> 3, data[at : at + size]))
            at += size
    return found


@dataclass(frozen=True)
class WireTensor:
    dtype: int
    format: int
    shape: tuple[int, ...]
    size: int
    original_shape: tuple[int, ...]
    address: int
    offset: int
    data: bytes


@dataclass(frozen=True)
class WireDump:
    version: str
    time: int
    op_name: str
    inputs: tuple[WireTensor, ...]
    outputs: tuple[WireTensor, ...]
    header: bytes


def _dims(data: bytes) -> tuple[int, ...]:
    values = fields(data)
    if not values:
        return ()
    packed, dims, at = values[0][1], [], 0
    assert isinstance(packed, bytes)
    while at < len(packed):
        dim, at = varint(packed, at)
        dims.append(dim)
    return tuple(dims)


_INPUT = {"size": 5, "original_shape": 6, "address": 8, "offset": 9}
_OUTPUT = {"size": 6, "original_shape": 7, "address": 9, "offset": 11}


def _tensor(data: bytes, numbers: dict[str, int], payload: bytes, at: int) -> tuple[WireTensor, int]:
    values = dict(fields(data))
    size = values.get(numbers["size"], 0)
    stored = size if values.get(numbers["address"]) else 0
    tensor = WireTensor(
        dtype=values.get(1, 0),
        format=values.get(2, 0),
        shape=_dims(values[3]),
        size=size,
        original_shape=_dims(values[numbers["original_shape"]]),
        address=values.get(numbers["address"], 0),
        offset=values.get(numbers["offset"], 0),
        data=payload[at : at + stored],
    )
    return tensor, at + stored


def read(path: Path) -> WireDump:
    raw = path.read_bytes()
    (length,) = struct.unpack_from("<Q", raw)
    header, payload = raw[8 : 8 + length], raw[8 + length :]
    top = fields(header)
    sides: dict[int, list[WireTensor]] = {4: [], 3: []}
    at = 0
    for number, numbers in ((4, _INPUT), (3, _OUTPUT)):
        for found, value in top:
            if found == number:
                assert isinstance(value, bytes)
                tensor, at = _tensor(value, numbers, payload, at)
                sides[number].append(tensor)
    assert at == len(payload)
    names = dict(top)
    return WireDump(
        version=names[1].decode(),
        time=names[2],
        op_name=names[6].decode(),
        inputs=tuple(sides[4]),
        outputs=tuple(sides[3]),
        header=header,
    )
