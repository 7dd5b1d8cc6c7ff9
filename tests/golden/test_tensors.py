from __future__ import annotations

import json
import struct
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from safetensors import safe_open
from safetensors.numpy import load_file, save_file

from pytest_npudump.errors import GoldenError
from pytest_npudump.golden.tensors import TensorFile, read_metadata, save_tensors
from tests.golden.tensor_files import load_tensors

KEY = "net/conv.1:output.0"
NUMPY = ["float64", "float32", "float16", "int64", "int32", "int16", "int8"]
NUMPY += ["uint64", "uint32", "uint16", "uint8", "bool", "complex64", "complex128"]
SMALL = ["bfloat16", "float8_e4m3fn", "float8_e5m2", "float8_e8m0fnu", "float4_e2m1fn", "int4", "uint2"]


def array(dtype: str, shape: Any = (3, 5)) -> Any:
    kind = np.dtype(getattr(ml_dtypes, dtype, dtype))
    values = np.random.default_rng(0).integers(0, 2, size=(*shape, kind.itemsize), dtype=np.uint8)
    return values.view(kind).reshape(shape)


@pytest.mark.each("dtype", NUMPY + SMALL)
def test_every_type_comes_back_bit_for_bit(tmp_path: Path, dtype: str) -> None:
    """As safetensors itself reads it, if it knows the type."""
    path, given = tmp_path / "a.safetensors", array(dtype)
    save_tensors(path, {KEY: (given, dtype), "b:output.0": (array("float32", (7,)), "float32")})
    back = load_tensors(path)[KEY]
    assert (back.dtype, back.shape, back.tobytes()) == (given.dtype, (3, 5), given.tobytes())
    if dtype in NUMPY and not dtype.startswith("complex"):
        np.testing.assert_array_equal(load_file(path)[KEY], given)
    if name := {"bfloat16": "BF16", "float8_e4m3fn": "F8_E4M3"}.get(dtype):
        with safe_open(path, framework="numpy") as file:
            told = file.get_slice(KEY)
            assert (told.get_dtype(), told.get_shape()) == (name, [3, 5])


def test_what_safetensors_wrote_is_read(tmp_path: Path) -> None:
    path = tmp_path / "a.safetensors"
    save_file({"a": array("float32"), "b": array("int8")}, path)
    back = load_tensors(path)
    np.testing.assert_array_equal(back["a"], array("float32"))
    np.testing.assert_array_equal(back["b"], array("int8"))


def test_arrays_of_odd_shapes_strides_and_orders_come_back_by_value_read_only(tmp_path: Path) -> None:
    path = tmp_path / "a.safetensors"
    save_tensors(path, {})
    assert load_tensors(path) == {}
    strided = np.arange(24, dtype=">i4").reshape(4, 6)[::2, ::-3]
    shapes: list[Any] = [(), (0,), (2, 0, 3), (1,)]
    for given in (strided, *(np.zeros(shape, np.float16) for shape in shapes), array("float32")):
        save_tensors(path, {KEY: (given, given.dtype.name)})
        back = load_tensors(path)[KEY]
        np.testing.assert_array_equal(back, given)
        assert back.shape == given.shape
    assert (back.flags.writeable, back.flags.aligned) == (False, True)


def test_metadata_and_device_types_are_kept(tmp_path: Path) -> None:
    path = tmp_path / "a.safetensors"
    save_tensors(path, {KEY: (array("float32"), "hifloat8")}, {"test": "t"})
    with safe_open(path, framework="numpy") as file:
        assert file.metadata()["test"] == "t"
        assert json.loads(file.metadata()["npudump.dtypes"]) == {KEY: "hifloat8"}


def write(path: Path, header: Any, data: Any = b"") -> None:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + data)


def entry(dtype: str = "U8", shape: Any = (8,), end: Any = 8) -> Any:
    return {"dtype": dtype, "shape": list(shape), "data_offsets": [0, end]}


def kept(value: Any) -> Any:
    return {"a": entry(), "__metadata__": {"npudump.bytes": json.dumps(value)}}


@pytest.mark.each(
    "header",
    [
        b"not json",
        {"a": entry(end=2**60)},
        {"a": entry(dtype="F32")},
        {"a": entry(dtype="X9")},
        {"a": entry(dtype="C64", shape=(1,))},
        {"a": entry(), "__metadata__": {"npudump.bytes": "{"}},
        {"a": entry(), "__metadata__": {"npudump.bytes": "[" * 100_000}},
        kept([]),
        kept({"a": ["object", [1]]}),
        kept({"a": ["O", [1]]}),
        kept({"a": ["float32", [3]]}),
        kept({"a": ["float32", [-1, -2]]}),
        kept({"a": ["float32", "x"]}),
        kept({"a": [None, [8]]}),
        kept({"a": ["finfo", [8]]}),
        kept({"a": ["__doc__", [8]]}),
    ],
)
def test_a_file_that_makes_no_sense_is_refused(tmp_path: Path, header: Any) -> None:
    path = tmp_path / "a.safetensors"
    write(path, header, bytes(8))
    with pytest.raises(GoldenError, match=r"a\.safetensors.*restore (it|the file) from version control"):
        load_tensors(path)


def test_a_missing_cut_or_damaged_file_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "a"
    for content in (None, b"", b"\x01", struct.pack("<Q", 2**63), b"\xff" * 100):
        if content is not None:
            path.write_bytes(content)
        with pytest.raises(GoldenError, match="not a file of golden tensors"):
            load_tensors(path)
    save_tensors(path, {KEY: (array("float32"), "float32")})
    whole = path.read_bytes()
    for length in range(len(whole)):
        path.write_bytes(whole[:length])
        with pytest.raises(GoldenError):
            load_tensors(path)


def test_tensors_of_one_content_are_written_once(tmp_path: Path) -> None:
    path, one = tmp_path / "a.safetensors", array("float32", (100, 100))
    alike = {"a": (one, "float32"), "b": (one.copy(), "float32"), "c": (array("bfloat16"), "bfloat16")}
    save_tensors(path, {**alike, "d": (array("bfloat16"), "bfloat16")})
    assert path.stat().st_size < 2 * one.nbytes
    with safe_open(path, framework="numpy") as file:
        assert sorted(file.keys()) == ["a", "c"]
    back = load_tensors(path)
    assert {key: found.tobytes() for key, found in back.items()} == {
        "a": one.tobytes(),
        "b": one.tobytes(),
        "c": array("bfloat16").tobytes(),
        "d": array("bfloat16").tobytes(),
    }
    assert TensorFile.read(path).tensor("b").tobytes() == one.tobytes()


@pytest.mark.each(
    ("other", "name"),
    [
        (array("float32").reshape(5, 3), "float32"),
        (array("float32").view(np.int32), "int32"),
        (array("float32"), "float32x"),
        (np.where(np.arange(15).reshape(3, 5) == 14, -1, array("float32")), "float32"),
    ],
    ids=["shape", "dtype", "device type", "last element"],
)
def test_tensors_that_differ_in_anything_are_written_both(tmp_path: Path, other: Any, name: str) -> None:
    path = tmp_path / "a.safetensors"
    save_tensors(path, {"a": (array("float32"), "float32"), "b": (other, name)})
    back = load_tensors(path)
    assert sorted(load_file(path)) == ["a", "b"]
    assert back["b"].tobytes() == other.tobytes()
    assert back["b"].shape == other.shape


def test_zeros_of_different_sign_are_different(tmp_path: Path) -> None:
    path, zeros = tmp_path / "a.safetensors", np.zeros(4, np.float32)
    save_tensors(path, {"a": (zeros, "float32"), "b": (-zeros, "float32")})
    assert np.signbit(load_tensors(path)["b"]).all()
    assert not np.signbit(load_tensors(path)["a"]).any()


@pytest.mark.each("same", ['{"b": "gone"}', '{"a": "a"}', '{"b": 3}', '{"b": ["a"]}', "[]", "{"])
def test_copies_that_do_not_go_with_the_tensors_are_refused(tmp_path: Path, same: str) -> None:
    path = tmp_path / "a.safetensors"
    save_file({"a": array("float32")}, path, {"npudump.same": same})
    with pytest.raises(GoldenError, match=r"npudump\.same"):
        load_tensors(path)


def test_a_tensor_is_mapped_alone_and_let_go(tmp_path: Path) -> None:
    path = tmp_path / "a.safetensors"
    save_tensors(path, {f"layer{i}": (array("float32", (1 << 18,)) + i, "float32") for i in range(4)})

    def mapped() -> int:
        with open("/proc/self/maps") as maps:  # noqa: PTH123 - a file of the kernel's
            ranges = [line.split()[0].split("-") for line in maps if str(path) in line]
        return sum(int(end, 16) - int(begin, 16) for begin, end in ranges)

    file = TensorFile.read(path)
    assert mapped() == 0
    tensor = file.tensor("layer2")
    assert tensor.nbytes <= mapped() <= tensor.nbytes + 8192
    del tensor
    assert mapped() == 0


def test_a_file_that_git_lfs_has_not_fetched_is_told_in_its_own_words(tmp_path: Path) -> None:
    pointer = f"version https://git-lfs.github.com/spec/v1\noid sha256:{'4d' * 32}\nsize 12345\n"
    (tmp_path / "a").write_text(pointer)
    for read in (load_tensors, TensorFile.read, read_metadata):
        with pytest.raises(GoldenError, match=r"a: Git LFS has not fetched this file .*: run 'git lfs pull'"):
            read(tmp_path / "a")


def test_a_byte_that_changed_is_told_with_its_tensor(tmp_path: Path) -> None:
    path = tmp_path / "a.safetensors"
    values = {"a:output.0": array("float32"), "b:output.0": array("int8"), "c:output.0": array("float32")}
    save_tensors(path, {key: (value, value.dtype.name) for key, value in values.items()})
    written = path.read_bytes()
    begin = 8 + struct.unpack("<Q", written[:8])[0]
    for at in range(begin, len(written)):
        path.write_bytes(written[:at] + bytes([written[at] ^ 1]) + written[at + 1 :])
        damaged = "b:output.0" if at >= begin + 60 else "a:output.0"
        for key, value in values.items():
            if key == damaged or (damaged[0] == "a" and key[0] == "c"):
                with pytest.raises(GoldenError, match=f"bytes of tensor {key} are not those"):
                    TensorFile.read(path).tensor(key)
            else:
                np.testing.assert_array_equal(TensorFile.read(path).tensor(key), value)


def test_a_tensor_without_its_digest_is_refused_where_others_have_one(tmp_path: Path) -> None:
    path = tmp_path / "a.safetensors"
    save_tensors(path, {KEY: (array("float32"), "float32")})
    name = f'\\"{KEY}\\"'.encode()
    path.write_bytes(path.read_bytes().replace(name, name.replace(b"conv.1", b"conv.2"), 1))
    with pytest.raises(GoldenError, match="not those that were recorded"):
        load_tensors(path)
