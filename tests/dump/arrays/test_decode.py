from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from pytest_npudump.dump.arrays.decode import DecodeError, load
from pytest_npudump.dump.dtypes import ALL, DType
from pytest_npudump.dump.filebytes import raw_bytes
from pytest_npudump.dump.files.container import read_container
from pytest_npudump.dump.records import Payload
from pytest_npudump.errors import FormatError

DATA = Path(__file__).parents[2] / "data" / "dump"


def _payload(tmp_path: Path, data: bytes, *, before: bytes = b"") -> Any:
    path = tmp_path / "data"
    path.write_bytes(before + data)
    return Payload(path, len(before), len(data))


def _table(name: str) -> Any:
    lines = (DATA / "tables" / name).read_text().splitlines()[1:]
    return np.array([float(line.split()[1]) for line in lines])


def test_hifloat8_is_huaweis_own_table(tmp_path: Path) -> None:
    values = load(_payload(tmp_path, bytes(range(256))), "hifloat8", (256,))
    assert values.dtype == np.float32
    np.testing.assert_array_equal(values.astype(np.float64), _table("hifloat8.txt"))


def test_all_codes_of_fp8(tmp_path: Path) -> None:
    """Of e8m0 each is a power of two; trap 29: with those that msaccucmp gets wrong."""
    codes, found = bytes(range(256)), {}
    for name in ("float8_e5m2", "float8_e4m3fn", "float8_e8m0fnu"):
        values = load(_payload(tmp_path, codes), name, (256,))
        assert values.dtype == getattr(ml_dtypes, name)
        found[name] = values.astype(np.float64)
        expected = np.arange(256, dtype=np.uint8).view(values.dtype).astype(np.float64)
        np.testing.assert_array_equal(found[name], expected)
    assert found["float8_e8m0fnu"][:255].tolist() == [2.0 ** (code - 127) for code in range(255)]
    assert found["float8_e5m2"][0xFC] == -math.inf
    assert np.isnan(found["float8_e4m3fn"][[0x7F, 0xFF]]).all()
    assert load(_payload(tmp_path, b"\x08\x10"), "hifloat8", (2,)).tolist() == [1.0, 2.0]


def test_all_codes_of_float16_and_of_bfloat16_which_are_the_upper_half_of_float32(tmp_path: Path) -> None:
    codes = np.arange(65536, dtype="<u2")
    values = load(_payload(tmp_path, codes.tobytes()), "bfloat16", (256, 256))
    expected = (codes.astype("<u4") << 16).view("<f4").reshape(256, 256)
    bits = values.astype(np.float32)
    np.testing.assert_array_equal(np.isnan(bits), np.isnan(expected))
    np.testing.assert_array_equal(bits[~np.isnan(bits)], expected[~np.isnan(expected)])
    values = load(_payload(tmp_path, codes.tobytes(), before=b"x"), "float16", (65536,))
    np.testing.assert_array_equal(values, codes.view("<f2"))


def test_packed_integers_begin_in_the_low_bits_and_uint1_in_the_high_bit(tmp_path: Path) -> None:
    payload = _payload(tmp_path, b"\x1f\x80")
    assert load(payload, "int4", (4,)).tolist() == [-1, 1, 0, -8]
    assert load(payload, "int2", (8,)).tolist() == [-1, -1, 1, 0, 0, 0, 0, -2]
    assert load(payload, "uint2", (8,)).tolist() == [3, 3, 1, 0, 0, 0, 0, 2]
    assert load(payload, "uint1", (16,)).tolist() == np.unpackbits(np.array([0x1F, 0x80], np.uint8)).tolist()
    assert load(payload, "int4", (3,)).tolist() == [-1, 1, 0]


def test_float4_tables(tmp_path: Path) -> None:
    payload = _payload(tmp_path, bytes(low | high << 4 for high in range(16) for low in range(16)))
    places = [(code, place) for code in range(16) for place in (0, 1)]
    expected = np.arange(16, dtype=np.uint8).view(ml_dtypes.float4_e2m1fn).astype(np.float64)
    for name, table in (("float4_e2m1fn", expected), ("float4_e1m2fn", _table("float4_e1m2.txt"))):
        values = load(payload, name, (16, 16, 2))
        for code, place in places:
            index = (0, code, 0) if place == 0 else (code, 0, 1)
            assert values[index] == table[code]


def test_complex32_is_two_halves_and_a_signalling_nan_in_it_a_nan_without_a_warning(tmp_path: Path) -> None:
    values = load(_payload(tmp_path, np.array([1.5, -2, 0.25, 3], "<f2").tobytes()), "complex32", (2,))
    assert values.dtype == np.complex64
    assert values.tolist() == [1.5 - 2j, 0.25 + 3j]
    codes = np.array([0x7D00, 0x3C00, 0x3C00, 0xFD01], "<u2")
    (values,) = load(_payload(tmp_path, codes.tobytes()), "complex32", (2,))[None]
    assert np.isnan(values.view(np.float32)).tolist() == [True, False, False, True]


def test_a_bool_keeps_bytes_that_are_neither_0_nor_1(tmp_path: Path) -> None:
    assert load(_payload(tmp_path, b"\0\1\1"), "bool", (3,)).tolist() == [False, True, True]
    odd = load(_payload(tmp_path, b"\0\1\xef"), "bool", (3,))
    assert (odd.dtype, odd.tolist()) == (np.uint8, [0, 1, 239])


@pytest.mark.each("dtype", [d for d in ALL if d.kind != "opaque"], ids=lambda d: d.name)
def test_types_of_real_files_have_values_or_say_why_not(dtype: DType) -> None:
    matches = [
        p for p in (DATA / "dtypes").iterdir() if p.name.split("_")[0] == str(dtype.proto) and not p.suffix
    ]
    (tensor,) = read_container(matches[0])[0].tensors
    if dtype.name in {"float6_e3m2fn", "float6_e2m3fn", "hifloat4"}:
        with pytest.raises(DecodeError, match="does not document"):
            load(tensor.payload, tensor.dtype, tensor.shape)
    else:
        assert load(tensor.payload, tensor.dtype, tensor.shape).shape == tensor.shape
    assert raw_bytes(tensor.payload).tolist() == list(range(240))


@pytest.mark.each("name", [d.name for d in ALL if d.kind == "opaque"] + ["proto:99"])
def test_opaque_types_say_why(tmp_path: Path, name: str) -> None:
    payload = _payload(tmp_path, b"abcd")
    with pytest.raises(DecodeError, match="no values"):
        load(payload, name, None)
    assert raw_bytes(payload).tobytes() == b"abcd"


def test_what_numpy_can_view_is_not_copied(tmp_path: Path) -> None:
    values = load(_payload(tmp_path, np.arange(6, dtype="<f4").tobytes()), "float32", (2, 3))
    assert not values.flags.owndata
    assert not values.flags.writeable
    assert values.tolist() == [[0, 1, 2], [3, 4, 5]]


def test_a_scalar_and_an_empty_tensor(tmp_path: Path) -> None:
    assert load(_payload(tmp_path, np.float32(2).tobytes()), "float32", ()).shape == ()
    assert load(_payload(tmp_path, b""), "float16", (0, 3)).shape == (0, 3)
    assert load(_payload(tmp_path, b"1234"), "int16", None).shape == (2,)


def test_too_few_bytes_and_a_file_that_shrank(tmp_path: Path) -> None:
    payload = _payload(tmp_path, b"1234")
    with pytest.raises(DecodeError, match="2 elements of float32 need 8 bytes, the tensor has 4"):
        load(payload, "float32", (2,))
    with pytest.raises(DecodeError, match="need"):
        load(payload, "float32", (1 << 60,))
    payload.path.write_bytes(b"1")
    with pytest.raises(FormatError, match="needs 4 bytes"):
        load(payload, "float32", (1,))
