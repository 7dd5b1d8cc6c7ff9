from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

import pytest

from pytest_npudump.dump.arrays.decode import load
from pytest_npudump.dump.files.container import read_container
from pytest_npudump.errors import FormatError

_MAGIC = 0x5A5A5A5A


def _tlv(kind: int, value: float) -> Any:
    return struct.pack("<II", kind, len(value)) + value


def _shape(kind: int, *dims: int) -> Any:
    return _tlv(kind, struct.pack(f"<{len(dims)}q", *dims))


def _input(dtype: int, size: int, nested: bytes, address: int = 1) -> Any:
    return struct.pack("<iiiQQQI", dtype, 2, 0, address, 0, size, len(nested)) + nested


def _output(dtype: int, size: int, nested: bytes, address: int = 1) -> Any:
    return struct.pack("<iiiiiiQQQI", dtype, 2, 0, 0, dtype, 2, address, 0, size, len(nested)) + nested


def _file(tmp_path: Path, *parts: Any, payload: bytes = b"") -> Any:
    body = b"".join(_tlv(kind, struct.pack("<I", len(items)) + b"".join(items)) for kind, items in parts)
    path = tmp_path / "op"
    path.write_bytes(struct.pack("<QII", 8 + len(body), _MAGIC, 0) + body + payload)
    return path


def test_trap_5_and_10_inputs_and_outputs_with_types_of_ge_behind_the_magic(tmp_path: Path) -> None:
    first = _input(0, 8, _shape(0, 2) + _shape(1, 1, 2))
    second = _output(3, 4, _shape(0) + _tlv(2, b"orig"))
    path = _file(tmp_path, (4, [first]), (5, [second]), payload=struct.pack("<ffi", 1.5, -2, 7))
    (record,) = read_container(path)
    one, two = record.tensors
    assert (record.kind, record.version, record.op_name) == ("tlv", "0", "")
    assert (one.io, one.dtype, one.shape, one.original_shape) == ("input", "float32", (2,), (1, 2))
    assert load(one.payload, one.dtype, one.shape).tolist() == [1.5, -2]
    assert (two.io, two.dtype, two.shape, two.original_name) == ("output", "int32", (), "orig")
    assert load(two.payload, two.dtype, two.shape).item() == 7


def test_outputs_alone_and_an_unknown_type(tmp_path: Path) -> None:
    path = _file(tmp_path, (5, [_output(5, 2, _shape(0, 2))]), payload=b"ab")
    (tensor,) = read_container(path)[0].tensors
    assert (tensor.dtype, tensor.payload.nbytes) == ("ge:5", 2)


def test_a_null_tensor_without_bytes(tmp_path: Path) -> None:
    items = [_input(4, 2, _shape(0, 2), address=0), _input(4, 2, _shape(0, 2))]
    one, two = read_container(_file(tmp_path, (4, items), payload=b"cd"))[0].tensors
    assert one.payload is None
    assert load(two.payload, two.dtype, two.shape).tolist() == [99, 100]


@pytest.mark.each(
    ("parts", "payload", "message"),
    [
        ([(9, [])], b"", "TLV type 9, expected 4"),
        ([(4, []), (4, [])], b"", "each once"),
        ([(4, [_input(0, 8, _shape(0, 2))])], b"1234567", "input 0 needs 8 bytes, but the file has 7"),
        ([(4, [_input(0, 4, _shape(0, 1))])], b"12345", "1 bytes behind the last tensor"),
        ([(4, [_input(0, 0, _tlv(0, b"123"))])], b"", "a shape of 3 bytes, expected a multiple of 8"),
        ([(4, [_input(0, 0, b"")[:-1]])], b"", "a tensor needs 40 bytes"),
    ],
)
def test_damage_is_named(tmp_path: Path, parts: Any, payload: bytes, message: str) -> None:
    with pytest.raises(FormatError, match=message):
        read_container(_file(tmp_path, *parts, payload=payload))


def test_a_count_and_lengths_beyond_the_header_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "op"
    for body in (struct.pack("<III", 4, 4, 2**32 - 1), struct.pack("<II", 4, 2**32 - 1)):
        path.write_bytes(struct.pack("<QII", 8 + len(body), _MAGIC, 0) + body)
        with pytest.raises(FormatError, match=r"needs"):
            read_container(path)
    path.write_bytes(struct.pack("<QII", 2**63, _MAGIC, 0))
    with pytest.raises(FormatError, match="the header needs"):
        read_container(path)


def test_an_impossible_dimension_costs_only_the_shape(tmp_path: Path) -> None:
    path = _file(tmp_path, (4, [_input(4, 2, _shape(0, -1))]), payload=b"ab")
    (tensor,) = read_container(path)[0].tensors
    assert tensor.shape is None
    assert "-1" in tensor.note
