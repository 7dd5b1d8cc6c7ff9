from __future__ import annotations

import io
import itertools
import os
import struct
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from elftools.elf.elffile import ELFFile
from google.protobuf.internal import api_implementation
from hypothesis import HealthCheck, given, settings, strategies as st

from pytest_npudump.dump.arrays.decode import load
from pytest_npudump.dump.dtypes import BY_PROTO
from pytest_npudump.dump.filebytes import raw_bytes
from pytest_npudump.dump.files.container import dump_data_class, read_container
from pytest_npudump.dump.files.core import core_damage
from pytest_npudump.dump.reader import read_dump
from pytest_npudump.errors import FormatError

DATA = Path(__file__).parents[2] / "data" / "dump"


def _bytes(payload: bytes = b"", version: str = "2.0", **fields: Any) -> Any:
    header = dump_data_class()(version=version, **fields).SerializeToString()
    return struct.pack("<Q", len(header)) + header + payload


def _write(tmp_path: Path, data: bytes) -> Any:
    path = tmp_path / "Op.name.1.2.3"
    path.write_bytes(data)
    return path


def _tensor(
    size: int, *, address: int = 1, dims: list[int] | None = None, dtype: int = 4, **more: Any
) -> Any:
    dims = [size] if dims is None else dims
    return {
        "data_type": dtype,
        "format": 2,
        "shape": {"dim": dims},
        "original_shape": {"dim": dims},
        "size": size,
        "address": address,
        **more,
    }


def test_trap_3_and_4_inputs_outputs_and_empty_shapes_of_a_real_file() -> None:
    (record,) = read_container(DATA / "containers" / "mixed-op")
    assert record.op_name == "net/block 1/mat\\mul.x"
    assert record.dump_time == 1795228705872229
    assert (record.version, record.kind) == ("2.0", "protobuf")
    found = [(t.io, t.slot, t.dtype, t.shape, t.size, bool(t.payload)) for t in record.tensors]
    assert found == [
        ("input", 0, "float32", (3, 4), 48, True),
        ("input", 1, "float16", (1, 2, 4, 4, 16), 1024, True),
        ("input", 2, "uint64", (3,), 24, False),
        ("output", 0, "bfloat16", (4,), 8, True),
        ("output", 1, "int64", (), 24, True),
        ("workspace", 0, "undefined", None, 32, True),
    ]
    assert record.tensors[2].note == "no data: the tensor's address was null"
    assert record.tensors[3].original_name == "orig/x"
    assert record.tensors[1].original_shape == (1, 30, 4, 4)


def test_trap_1_and_2_payloads_come_inputs_first_although_one_tensor_has_none() -> None:
    (record,) = read_container(DATA / "containers" / "mixed-op")
    first = record.tensors[0]
    assert load(first.payload, first.dtype, first.shape).tolist() == np.arange(12.0).reshape(3, 4).tolist()
    ends = [(t.payload.offset, t.size) for t in record.tensors if t.payload]
    assert all(a + size == b for (a, size), (b, _) in itertools.pairwise(ends))
    assert sum(ends[-1]) == (DATA / "containers" / "mixed-op").stat().st_size


def test_trap_6_a_file_of_the_exception_writer_has_more_than_the_layout_in_its_raw_format() -> None:
    (record,) = read_container(DATA / "containers" / "exception")
    assert record.dfx_message == "hello\n"
    conv = record.tensors[1]
    assert (conv.format, conv.sub_format) == ("NC1HWC0", 7)
    assert conv.original_shape is None


@pytest.mark.each(
    "path", sorted(p for p in (DATA / "dtypes").iterdir() if not p.suffix), ids=lambda p: p.name
)
def test_trap_5_every_type_is_named_by_the_number_of_the_header(path: Path) -> None:
    (record,) = read_container(path)
    (tensor,) = record.tensors
    assert tensor.dtype == BY_PROTO[int(path.name.split("_")[0])].name
    assert raw_bytes(tensor.payload).tolist() == list(range(240))


def _exception(size: int) -> Any:
    return {"data_type": 4, "shape": {"dim": [size]}, "size": size, "input_type": 2}


MAGIC = b"\x5a" * 4
NULL = [_tensor(2), _tensor(2, address=0), _tensor(2)]
REGION = {"size": 2, "input_type": 1}


@pytest.mark.each(
    ("payload", "fields", "expected"),
    [
        # trap 7: the offset, which loses its upper half, is not used
        (
            b"aabbcc",
            {"output": [_tensor(2, offset=0), _tensor(2, offset=1), _tensor(2, offset=2**64 - 1)]},
            "output 0 aa, output 1 bb, output 2 cc",
        ),
        (MAGIC, {"output": [_tensor(4)]}, "output 0 ZZZZ"),  # trap 10: it begins as the other container does
        # trap 8: a size beyond what the shape needs is skipped
        (b"abXXcd", {"input": [_tensor(4, dims=[2]), _tensor(2)]}, "input 0 ab, input 1 cd"),
        # trap 2: null addresses are skipped only where the sizes do not add up
        (b"aabbcc", {"input": NULL}, "input 0 aa, input 1 bb, input 2 cc"),
        (b"aacc", {"input": NULL}, "input 0 aa, input 1 -, input 2 cc"),
        # argument buffers of an exception dump come last
        (
            b"iioowwaa",
            {
                "op_name": "net/op",
                "input": [REGION, _exception(2)],
                "output": [_tensor(2, address=0)],
                "space": [{"size": 2}],
            },
            "input 1 ii, output 0 oo, workspace 0 ww, input 0 aa",
        ),
        # a brief one has its inputs first whatever they look like (dump_args.cpp: SetTensorBuffer,
        # SetWorkspaces); an input without dimensions has no shape either
        (b"aaww", {"input": [REGION], "space": [{"size": 2}]}, "input 0 aa, workspace 0 ww"),
        # trap 9: tensors of 4 GiB are cut
        (b"aaabb", {"input": [_exception((1 << 32) + 3), _exception(2)]}, "input 0 -, input 1 bb"),
    ],
)
def test_bytes_are_those_of_their_tensors(
    tmp_path: Path, payload: bytes, fields: dict[str, Any], expected: str
) -> None:
    (record,) = read_container(_write(tmp_path, _bytes(payload, **fields)))
    assert record.kind == "protobuf"
    found = [
        f"{t.io} {t.slot} {raw_bytes(t.payload).tobytes().decode() if t.payload else '-'}"
        for t in record.tensors
    ]
    assert ", ".join(found) == expected
    assert all(("no data: " in t.note) is (t.payload is None) for t in record.tensors)
    assert all(("modulo 2**32" in t.note) is (t.size >= 1 << 32) for t in record.tensors)


def test_a_truncated_exception_dump_does_not_pass_for_one_of_null_tensors(tmp_path: Path) -> None:
    tensor = {"data_type": 4, "shape": {"dim": [8]}, "size": 8, "arg_index": 1, "input_type": 2}
    with pytest.raises(FormatError, match="input 0 needs 8 bytes, but the file has 0"):
        read_container(_write(tmp_path, _bytes(input=[tensor])))


def test_a_scalar_of_the_exception_writer_has_no_shape_in_the_header(tmp_path: Path) -> None:
    scalar = {"data_type": 1, "format": 2, "size": 32, "arg_index": 1, "input_type": 2}
    region = {"size": 4, "input_type": 1}
    data = _bytes(np.full(9, 1.5, "<f4").tobytes(), input=[scalar, region])
    one, other = read_container(_write(tmp_path, data))[0].tensors
    assert (one.shape, load(one.payload, one.dtype, ()).item()) == ((), 1.5)
    assert (other.dtype, other.shape) == ("undefined", None)


def test_a_dump_of_an_exception_callback_has_no_version(tmp_path: Path) -> None:
    tensor = {"data_type": 4, "format": 2, "shape": {"dim": [2]}, "size": 2, "input_type": 2}
    (record,) = read_container(_write(tmp_path, _bytes(b"ab", version="", input=[tensor], dfx_message="m")))
    assert (record.version, record.dfx_message, len(record.tensors)) == ("", "m", 1)
    with pytest.raises(FormatError, match="not another record"):
        read_container(_write(tmp_path, _bytes(b"abc", version="", input=[tensor])))
    with pytest.raises(FormatError, match="no version"):
        read_container(_write(tmp_path, _bytes(version="", dfx_message="m")))
    with pytest.raises(FormatError, match="no version"):
        read_container(_write(tmp_path, _bytes(b"ab", version="", dump_time=5, input=[tensor])))


def test_trap_9_records_written_behind_each_other_are_all_read(tmp_path: Path) -> None:
    one = _bytes(b"abc", dump_time=1, output=[_tensor(3), _tensor(9, address=0)])
    two = _bytes(b"xyz", dump_time=2, output=[_tensor(3)])
    records = read_container(_write(tmp_path, one + two + one))
    assert [r.dump_time for r in records] == [1, 2, 1]
    assert raw_bytes(records[1].tensors[0].payload).tobytes() == b"xyz"
    assert raw_bytes(records[2].tensors[0].payload).tobytes() == b"abc"


def test_trap_30_unknown_numbers_are_kept_and_cost_no_other_tensor(tmp_path: Path) -> None:
    """A dimension that is impossible or larger than the size is noted, and the bytes stay."""
    strange = _tensor(3, dtype=99, dims=[2])
    strange["format"] = 77
    data = _bytes(b"abcd", input=[strange, _tensor(1)])
    one, two = read_container(_write(tmp_path, data))[0].tensors
    assert (one.dtype, one.format, one.payload.nbytes) == ("proto:99", "format:77", 3)
    assert load(two.payload, two.dtype, two.shape).tolist() == [ord("d")]
    large, beyond = 1 << 40, 2**64 - 1
    data = _bytes(b"abcd", input=[_tensor(2, dims=[beyond]), _tensor(2, dims=[large])])
    one, two = read_container(_write(tmp_path, data))[0].tensors
    assert (one.shape, str(beyond) in one.note, one.payload.nbytes) == (None, True, 2)
    assert two.note == f"size is 2 bytes, the shape needs {large}"


def test_a_tensor_behind_four_gigabytes(tmp_path: Path) -> None:
    large = (1 << 32) + 4096
    path = _write(tmp_path, _bytes(input=[_tensor(large), _tensor(2)]))
    start = path.stat().st_size
    with path.open("r+b") as file:
        file.seek(start + large)
        file.write(b"zz")
    one, two = read_container(path)[0].tensors
    assert one.payload.nbytes == large
    assert raw_bytes(two.payload).tobytes() == b"zz"


_GOOD = _bytes(b"abcd", input=[_tensor(4)])


@pytest.mark.each(
    ("data", "message"),
    [
        (b"", "byte 0: the header's length needs 8 bytes, but the file has 0"),
        (_GOOD[:7], "byte 0: the header's length needs 8 bytes, but the file has 7"),
        (_GOOD[:20], "byte 8: the header needs"),
        (_GOOD[:-1], "input 0 needs 4 bytes, but the file has 3"),
        (_GOOD + b"rest", "4 bytes behind the last tensor are not another record"),
        (_GOOD + _GOOD[:-2], "behind the last tensor|needs 4 bytes"),
        (b"\0" * 64, "header length 0, expected 1 to 2147483647"),
        (b"\xff" * 64, "expected 1 to 2147483647"),
        (struct.pack("<Q", 2**31 - 1) + b"x", "byte 8: the header needs 2147483647 bytes"),
        (struct.pack("<Q", 4) + b"\xff\xff\xff\xff", "byte 8: the header is no DumpData message"),
        (struct.pack("<Q", 2) + b"\x10\x01", "byte 8: the header has no version"),
        (_bytes(input=[_tensor(2**64 - 1)]), "input 0 needs 18446744073709551615 bytes"),
    ],
)
def test_a_damaged_file_is_refused_by_name_and_byte(tmp_path: Path, data: bytes, message: str) -> None:
    path = _write(tmp_path, data)
    with pytest.raises(FormatError, match=message) as caught:
        read_container(path)
    assert str(path) in str(caught.value)


def test_what_is_no_regular_file_is_refused_without_waiting_for_it(tmp_path: Path) -> None:
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    for path in (fifo, tmp_path, tmp_path / "missing"):
        with pytest.raises(FormatError):
            read_container(path)


@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(place=st.integers(0, 250), value=st.integers(0, 255), cut=st.integers(0, 400))
def test_damage_raises_nothing_but_a_format_error(tmp_path: Path, place: int, value: int, cut: int) -> None:
    data = bytearray((DATA / "containers" / "mixed-op").read_bytes())
    data[place] = value
    path = _write(tmp_path, bytes(data[: len(data) - cut]))
    try:
        records = read_container(path)
    except FormatError:
        return
    for tensor in records[0].tensors:
        if tensor.payload:
            assert tensor.payload.offset + tensor.payload.nbytes <= len(data)


def test_no_shape_is_that_of_a_scalar_only_where_the_bytes_are_of_one_element(tmp_path: Path) -> None:
    for size, shape in ((4, ()), (32, ()), (512, ()), (400, None), (4096, None)):
        message = dump_data_class()(version="2.0", dump_time=1)
        message.output.add(data_type=1, size=size)
        header = message.SerializeToString()
        data = struct.pack("<Q", len(header)) + header + bytes(size)
        (tensor,) = read_container(_write(tmp_path, data))[0].tensors
        assert tensor.shape == shape, size
        assert tensor.payload is not None


_PEAK = """
import pathlib, sys
from pytest_npudump.dump.files.container import read_container

def peak() -> int:
    return int(pathlib.Path("/proc/self/status").read_text().split("VmHWM:")[1].split()[0])

before = peak()
(record,) = read_container(pathlib.Path(sys.argv[1]))
print(len(record.dfx_message), (peak() - before) * 1024)
"""


@pytest.mark.skipif(
    not Path("/proc/self/status").exists() or api_implementation.Type() != "upb",
    reason="the peak of a process's memory is told by Linux alone; other protobufs copy more",
)
def test_a_long_header_is_not_held_more_than_twice(tmp_path: Path) -> None:
    length = 48 << 20
    path = _write(tmp_path, _bytes(dump_time=5, op_name="a", dfx_message="x" * length))
    done = subprocess.run([sys.executable, "-c", _PEAK, path], capture_output=True, text=True, check=True)
    read, grown = map(int, done.stdout.split())
    assert read == length
    assert grown < 2.3 * length


_HEADER = bytes.fromhex("0a03322e301a20080110fbffffffffffffffff011a003a040a02000158ffffffffffffffffff01")


def test_the_bytes_of_a_header_survive_reading_and_writing() -> None:
    """An empty shape is present and a missing one is not; numbers that no table has are kept."""
    for cls in (dump_data_class(), dump_data_class("bytes")):
        header = cls.FromString(_HEADER)
        assert header.SerializeToString() == _HEADER
        output = header.output[0]
        assert (output.format, output.offset) == (-5, 2**64 - 1)
        assert list(output.original_shape.dim) == [0, 1]
        assert (output.HasField("shape"), output.HasField("original_op")) == (True, False)
    message = dump_data_class()()
    message.input.add(data_type=4711, format=83887875)
    (again,) = dump_data_class().FromString(message.SerializeToString()).input
    assert (again.data_type, again.format) == (4711, 83887875)
    cut = dump_data_class("bytes").FromString(b"\x32\x02\xe4\xb8")  # within a character
    assert cut.op_name == b"\xe4\xb8"


def test_the_default_descriptor_pool_is_left_alone() -> None:
    from google.protobuf import descriptor_pool

    dump_data_class()
    try:
        descriptor_pool.Default().FindMessageTypeByName("toolkit.dumpdata.DumpData")
    except KeyError:
        return
    raise AssertionError


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


NAME = "te_mul_1__kernel0.47.3.20260910085237489.core"


def core(*sections: tuple[str, bytes]) -> bytes:
    """An ELF file as dump_ELF.cpp lays it out: data, then the section table, aligned to 16."""
    named = [("", b""), *sections, (".shstrtab", b"")]
    names = b"".join(name.encode() + b"\0" for name, _ in named)
    named[-1] = (".shstrtab", names)
    body, table, at = b"", b"", 0
    for name, data in named:
        kind = 3 if name == ".shstrtab" else 0x30000000 if name else 0
        table += struct.pack("<IIQQQQIIQQ", at, kind, 0, 0, 64 + len(body), len(data), 0, 0, 0, 0)
        body += data
        at += len(name) + 1
    body += b"\0" * (-len(body) % 16)
    ident = b"\x7fELF\2\1\1".ljust(16, b"\0")
    count = len(named)
    head = struct.pack(
        "<HHIQQQIHHHHHH", 4, 0x1029, 1, 0, 0, 64 + len(body), 0, 64, 0, 0, 64, count, count - 1
    )
    return ident + head + body + table


def sample() -> bytes:
    return core((".ascend.devtbl", b"\0" * 40), (".ascend.global", b"abcdefgh"), (".ascend.global", b""))


def test_the_core_put_together_here_is_one_for_an_elf_reader() -> None:
    elf = ELFFile(io.BytesIO(sample()))
    assert elf["e_type"] == "ET_CORE"
    assert ".ascend.global" in [section.name for section in elf.iter_sections()]


@pytest.mark.each("size", [0, 3, 63, 64, 200, -1])
def test_a_core_cut_short_is_an_error_of_the_file(tmp_path: Path, size: int) -> None:
    path = tmp_path / NAME
    path.write_bytes(sample()[:size])
    assert "truncated" in str(core_damage(path))


def test_a_damaged_byte_never_ends_in_another_error(tmp_path: Path) -> None:
    path = tmp_path / NAME
    for at in range(len(sample())):
        data = bytearray(sample())
        data[at] ^= 0xFF
        path.write_bytes(data)
        error = core_damage(path)  # most bytes may change without harm
        assert error is None or error.path == str(path)


def test_a_core_in_a_dump_is_told_and_is_no_unreadable_file(tmp_path: Path) -> None:
    folder = tmp_path / "extra-info" / "data-dump" / "0"
    folder.mkdir(parents=True)
    (folder / NAME).write_bytes(sample())
    (folder / "te_mul_1.o").write_bytes(b"\x7fELF")
    (folder / "te_mul_1.json").write_text("{}")
    dump = read_dump(tmp_path)
    assert dump.problems == ()
    assert dump.records == ()
    assert f"1 core of failed kernels, for msdebug: {folder / NAME}" in dump.notes


@pytest.mark.each("content", [b"\x7fELF" + bytes(100), sample()[:-1], b""])
def test_a_damaged_core_in_a_dump_is_an_unreadable_file(tmp_path: Path, content: bytes) -> None:
    (tmp_path / NAME).write_bytes(content)
    (problem,) = read_dump(tmp_path).problems
    assert problem.path == str(tmp_path / NAME)
