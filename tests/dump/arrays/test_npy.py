from __future__ import annotations

import io
import pickle
import struct
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from pytest_npudump.dump.arrays.decode import load, load_npy, read_npy_header
from pytest_npudump.dump.records import Payload
from pytest_npudump.errors import FormatError

DATA = Path(__file__).parents[2] / "data" / "dump" / "npy"


def _npy(
    header: str, data: bytes = b"", version: tuple[int, int] = (1, 0), *, length: int | None = None
) -> Any:
    text = header.encode("latin-1")
    form = "<H" if version[0] == 1 else "<I"
    return (
        b"\x93NUMPY"
        + bytes(version)
        + struct.pack(form, len(text) if length is None else length)
        + text
        + data
    )


def _write(tmp_path: Path, data: bytes) -> Any:
    path = tmp_path / "a.npy"
    path.write_bytes(data)
    return path


def test_bfloat16_of_mindspore_that_numpy_refuses() -> None:
    path = DATA / "bfloat16.npy"
    with pytest.raises(ValueError, match="<E2"):
        np.load(path)
    raw = path.read_bytes()
    header = read_npy_header(path)
    expected = (np.frombuffer(raw[header.offset :], "<u2").astype("<u4") << 16).view("<f4")
    values = load_npy(path)
    assert values.dtype == ml_dtypes.bfloat16
    assert values.astype(np.float32).reshape(-1).tolist() == expected.tolist()


def test_an_older_spelling_of_bfloat16(tmp_path: Path) -> None:
    path = _write(tmp_path, (DATA / "bfloat16.npy").read_bytes().replace(b"<E2", b"<T2"))
    assert load_npy(path).tobytes() == load_npy(DATA / "bfloat16.npy").tobytes()


def test_float32_of_mindspore_as_numpy_reads_it() -> None:
    path = DATA / "float32.npy"
    np.testing.assert_array_equal(load_npy(path), np.load(path))
    values = load(Payload(path, 128, path.stat().st_size - 128, "npy"), "float32", None)
    assert not values.flags.owndata


@pytest.mark.each("code", "?bBhHiIqQefdFD")
@pytest.mark.each("order", "<>")
@pytest.mark.each("fortran", [False, True])
def test_every_plain_type_in_both_byte_and_axis_orders(
    *, tmp_path: Path, code: str, order: str, fortran: bool
) -> None:
    array = np.arange(24).reshape(2, 3, 4).astype(np.dtype(code).newbyteorder(order))
    stream = io.BytesIO()
    np.save(stream, np.asfortranarray(array) if fortran else array)
    values = load_npy(_write(tmp_path, stream.getvalue()))
    assert values.dtype == array.dtype
    np.testing.assert_array_equal(values, array)


@pytest.mark.each("version", [(2, 0), (3, 0)])
def test_later_versions_and_empty_and_scalar_arrays(tmp_path: Path, version: tuple[int, int]) -> None:
    for array in (np.float64(3), np.zeros((0, 2)), np.arange(3)):
        stream = io.BytesIO()
        np.lib.format.write_array(stream, np.asarray(array), version=version)
        np.testing.assert_array_equal(load_npy(_write(tmp_path, stream.getvalue())), array)


_TEXT = "{'descr': '<f4', 'fortran_order': False, 'shape': (2,), }\n"


@pytest.mark.each(
    ("data", "message"),
    [
        (b"", "the magic needs 6 bytes"),
        (b"PK\3\4....", "this is no npy file"),
        (_npy(_TEXT, b"1234"), "the array needs 8 bytes, the file has 4"),
        (_npy(_TEXT, b"123456789"), "the array needs 8 bytes, the file has 9"),
        (_npy(_TEXT, version=(4, 0)), "npy version 4.0"),
        (_npy(_TEXT, length=60000), "the header needs 60000 bytes"),
        (_npy(_TEXT, version=(2, 0), length=2**31), "header of 2147483648 bytes"),
        (_npy("{'descr': '<f4'}"), "no dictionary"),
        (_npy("__import__('os')"), "no dictionary"),
        (_npy("(" * 9000), "no dictionary"),
        (_npy(_TEXT.replace("(2,)", "(-2,)")), "impossible shape"),
        (_npy(_TEXT.replace("(2,)", "(True,)")), "impossible shape"),
        (_npy(_TEXT.replace("(2,)", "(1 << 70,)")), "no dictionary"),
        (_npy(_TEXT.replace("(2,)", f"({2**62},)")), "the array needs"),
        (_npy(_TEXT.replace("<f4", "|O"), b"12345678"), "element type '|O'"),
        (_npy(_TEXT.replace("'<f4'", "[('a', '<f4')]")), "element type"),
        (_npy(_TEXT.replace("<f4", "<U2")), "element type"),
    ],
)
def test_what_is_no_plain_array_is_refused(tmp_path: Path, data: bytes, message: str) -> None:
    with pytest.raises(FormatError, match=message):
        load_npy(_write(tmp_path, data))


def test_a_pickle_is_never_run(tmp_path: Path) -> None:
    class Trap:
        def __reduce__(self) -> Any:
            return (Path.touch, (tmp_path / "run",))

    array = np.array([Trap()], object)
    stream = io.BytesIO()
    np.save(stream, array, allow_pickle=True)
    assert pickle.loads(stream.getvalue()[128:]) is not None  # noqa: S301 - the trap is armed
    (tmp_path / "run").unlink()
    with pytest.raises(FormatError, match="element type"):
        load_npy(_write(tmp_path, stream.getvalue()))
    assert not (tmp_path / "run").exists()
