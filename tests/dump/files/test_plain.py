"""Tensors in files of their own: torch and numpy judge what is read; no code of a file runs."""

from __future__ import annotations

import contextlib
import os
import pickle
import shutil
import struct
import zipfile
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pytest_npudump.cli import main
from pytest_npudump.dump.arrays.decode import load
from pytest_npudump.dump.files.plain import raw_bin
from pytest_npudump.dump.files.pt import read_pt
from pytest_npudump.dump.reader import read_dump
from pytest_npudump.dump.records import TensorRecord
from pytest_npudump.errors import FormatError, RequestError

SAMPLES = Path(__file__).parents[2] / "data" / "tools" / "plain"


def keys(folder: Path) -> list[str]:
    dump = read_dump(folder)
    assert not dump.problems, dump.problems
    return [str(record.key) for record in dump.records]


def put(folder: Path, name: str, sample: str = "value.pt") -> None:
    (folder / name).parent.mkdir(parents=True, exist_ok=True)
    shutil.copy(SAMPLES / sample, folder / name)


def test_names_of_tools_are_layers_steps_ranks_and_devices(tmp_path: Path) -> None:
    names: dict[str, tuple[list[str], str, list[str]]] = {
        "sglang": (
            [
                f"name={name}___rank={rank}___dump_index={index}___step={step}.pt"
                for index, (step, name) in enumerate((step, name) for step in (4, 5) for name in "ba")
                for rank in (0, 1)
            ],
            "value.pt",
            [
                *("b#rank=0:output.0", "b#rank=1:output.0", "a#rank=0:output.0", "a#rank=1:output.0"),
                *("b#rank=0,step=1:output.0", "b#rank=1,step=1:output.0"),
                *("a#rank=0,step=1:output.0", "a#rank=1,step=1:output.0"),
            ],
        ),
        "older": (
            ["sglang_dump_1/forward_pass_id=2___rank=0___name=q___dump_index=1___layer_id=7.pt"],
            "value.pt",
            ["q.layer_id=7:output.0"],
        ),
        "hooks": (
            [f"TP{rank}_PP0_Rank{rank}_pid9{rank}/Pass0000{step}.pt" for rank in (0, 1) for step in (1, 2)],
            "value.pt",
            [f"value#rank={rank}{step}:output.0" for step in ("", ",step=1") for rank in (0, 1)],
        ),
        "graph": (
            [f"logits_device_{device}{again}.pt" for device in (0, 1) for again in ("", "_1")],
            "value.pt",
            [f"logits#device={device}{again}:output.0" for again in ("", ",turn=1") for device in (0, 1)],
        ),
        "atb": (
            [
                f"data/0_77/1/2_Mlp/0_Linear/{where}/{name}.bin"
                for where, name in (("before", "intensor1"), ("after", "outtensor0"))
            ],
            "outtensor0.bin",
            ["2_Mlp/0_Linear:input.1", "2_Mlp/0_Linear:output.0"],
        ),
        "several": (
            ["a.safetensors", "b.safetensors"],
            "weights.safetensors",
            [f"{name}#model={file}:output.0" for name in "wb" for file in "ab"],
        ),
    }
    for tool, (files, sample, expected) in names.items():
        for name in files:
            put(tmp_path / tool, name, sample)
        assert sorted(keys(tmp_path / tool)) == sorted(expected), tool
    assert keys(tmp_path / "sglang") == names["sglang"][2], "in the order of the calls"


def test_what_sglang_wrote_is_what_its_ranks_held() -> None:
    """As make.py has it: the dumper writes two steps, the hooks a pass as the next one begins."""
    whole = np.arange(24.0).reshape(3, 8) - 11
    expected = {}
    for step, rank in product(range(2), range(2)):
        turn = f"#rank={rank}{',step=1' if step else ''}:output.0"
        expected[f"attn_out.layer_id=0{turn}"] = np.split(whole + step, 2, 1)[rank]
        expected[f"mlp_out.layer_id=0{turn}"] = whole + step
    read = read_dump(SAMPLES.parent / "sglang-tp2")
    assert {str(one.key): values_of(one) for one in read.records} == {
        key: array.tolist() for key, array in expected.items()
    }
    hooks = {str(one.key): np.array(values_of(one)) for one in read_dump(SAMPLES.parent / "hooks").records}
    assert len(hooks) == 2 * (3 * 2 + 2)
    for step, rank in product(range(3), range(2)):
        turn = f"#rank={rank}{f',step={step}' if step else ''}:output.0"
        assert hooks[f"model.0{turn}"] == pytest.approx(np.tanh(whole + step), rel=1e-6)


def values_of(record: TensorRecord) -> Any:
    assert record.payload is not None
    return load(record.payload, record.dtype, record.shape).astype(np.float64).tolist()


def test_our_own_safetensors_are_read_by_their_keys(tmp_path: Path) -> None:
    tree = SAMPLES.parents[1] / "trees" / "acl-tensor"
    assert main(["convert", str(tree), "--to", "safetensors", "-o", str(tmp_path)]) == 0
    converted = {str(record.key): record for record in read_dump(tmp_path).records}
    raw = {str(record.key): record for record in read_dump(tree).records}
    assert converted.keys() == raw.keys()


def test_plain_files_beside_a_dump_stay_what_they_were(tmp_path: Path) -> None:
    shutil.copytree(SAMPLES.parents[1] / "trees" / "acl-tensor", tmp_path / "dump")
    put(tmp_path / "dump", "notes.pt")
    np.save(tmp_path / "dump" / "odd.npy", np.ones(3))
    dump = read_dump(tmp_path / "dump")
    (problem,) = dump.problems
    assert "odd.npy: it may hold a tensor, and its name does not tell which" in str(problem)
    assert any("notes.pt" in note for note in dump.notes)


def test_two_files_are_compared_whatever_they_are_called(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    values = np.arange(12, dtype=np.float32).reshape(3, 4)
    np.save(tmp_path / "gpu.npy", np.asfortranarray(values))
    np.save(tmp_path / "npu.npy", values)
    assert main(["compare", str(tmp_path / "gpu.npy"), str(tmp_path / "npu.npy")]) == 0
    values[1, 2] += 0.5
    np.save(tmp_path / "npu.npy", values)
    assert main(["compare", str(tmp_path / "gpu.npy"), str(tmp_path / "npu.npy")]) == 1
    assert "one element of 12, at [1, 2]: 6.5, expected 6" in capsys.readouterr().out
    np.savez(tmp_path / "npu.npz", x=values)
    assert main(["compare", str(tmp_path / "gpu.npy"), str(tmp_path / "npu.npz")]) == 1


def test_files_without_header_need_type_and_shape(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for side, values in (("a", [1, 2, 3, 4]), ("b", [1, 2, 3, 5])):
        (tmp_path / side / "deep").mkdir(parents=True)
        np.array(values, np.float16).tofile(tmp_path / side / "deep" / "x.bin")
    one, other = (str(tmp_path / side) for side in "ab")
    for path in (one, f"{one}/deep/x.bin"):
        assert main(["compare", path, path]) == 2
        assert "x.bin, byte 0: no header of ATB; of files of elements alone give npudump --bin" in (
            capsys.readouterr().err
        )
    assert main(["compare", one, one, "--bin", "float16:2,2"]) == 0
    assert main(["compare", one, other, "--bin", "float16:2x2"]) == 1
    capsys.readouterr()
    for said, words in (
        ("float32:2x2", "float32 of shape 2x2 takes 16 bytes, the file has 8"),
        ("float16:-2", "is no type and shape"),
        ("what:2", "is no type and shape"),
    ):
        assert main(["ls", one, "--bin", said]) == 2
        assert words in capsys.readouterr().err
    assert main(["ls", one, "--stats", "--bin", "bf16:4"]) == 0
    assert "bfloat16" in capsys.readouterr().out


def test_no_tensor_in_a_bin_file_or_beside_one_is_left_out_silently(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Each file that this command leaves out makes it fail, with its name."""
    for side in "ab":
        put(tmp_path / side, "same.pt")
        (tmp_path / side / "x.bin").write_bytes(side.encode() * 8)
        (tmp_path / side / "notes.txt").write_text(side)
    one, other = (str(tmp_path / side) for side in "ab")
    for options, left_out in (([], "x.bin"), (["--bin", "int8:8"], "same.pt")):
        assert main(["compare", one, other, *options]) == 2
        told = capsys.readouterr()
        assert [line.split(": ")[2].partition(",")[0] for line in told.err.splitlines()] == [
            f"{side}/{left_out}" for side in (one, other)
        ], told.err
    for side in "ab":
        (tmp_path / side / "x.bin").unlink()
    assert main(["compare", one, other]) == 0
    assert capsys.readouterr().out.count("note: skipped 1 file not of a dump: notes.txt") == 1


def test_fuzzed_bin_files_are_read_as_numpy_reads_them_or_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    draw = np.random.default_rng(5)
    path = tmp_path / "x.bin"
    kinds = ("f2", "f4", "f8", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "c8", "c16")
    for _ in range(400):
        dtype = np.dtype(draw.choice(kinds))
        shape = tuple(map(int, draw.integers(0, 5, draw.integers(0, 4))))
        count = int(np.prod(shape, dtype=int)) * dtype.itemsize
        size = max(0, count + int(draw.choice([0, 0, -1, 1, -dtype.itemsize, dtype.itemsize, 4096])))
        path.write_bytes(draw.bytes(size))
        said = f"{dtype.name}:{draw.choice(['x', ',']).join(map(str, shape))}"
        if size != count:
            with pytest.raises(FormatError, match=f"takes {count} bytes, the file has {size}"):
                raw_bin(path, said)
            continue
        found = raw_bin(path, said)
        assert found.payload is not None
        read = load(found.payload, found.dtype, found.shape)
        assert (read.dtype, read.shape, read.tobytes()) == (dtype, shape, path.read_bytes()), said
    hostile = ("", ":", "x", "string:1", "\n:\n")
    sizes = ("1xx2", "1,2,", "-1", "1e3", " 1", "²", "9" * 5000, "\u0663", "1:2")
    for said in (*hostile, *(f"float16:{size}" for size in sizes), "float16\0:1"):
        with pytest.raises((RequestError, FormatError)):
            raw_bin(path, said)
    path.write_bytes(b"")
    for said in ("float16:999999999999999999x999999999999999999x0", f"float16:{'1x' * 70}0"):
        for command in (["ls", "--stats"], ["compare", str(path)]):
            assert main([*command, str(path), "--bin", said]) == 2, said
            assert "larger than numpy makes them" in capsys.readouterr().err
    path.unlink()
    os.mkfifo(path)
    with pytest.raises(FormatError):
        raw_bin(path, "int8:1")


@pytest.mark.parametrize("command", ["compare", "ls", "convert"])
def test_many_unreadable_files_take_few_lines(
    command: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for side in ("a", "b"):
        put(tmp_path / side, "same.pt")
        for at in range(100):
            (tmp_path / side / f"x{at}.npy").write_bytes(b"?")
    one, other = (str(tmp_path / side) for side in "ab")
    more = {"compare": [other], "ls": [], "convert": ["-o", str(tmp_path / "out")]}[command]
    for left in (one, None):  # and with nothing else to read
        assert main([command, one, *more]) == 2
        told = capsys.readouterr().err.splitlines()
        count = 200 if command == "compare" and left else 100
        assert len(told) == 21
        assert told[-1].endswith(f"... and {count - 20} more"), told[-1]
        (tmp_path / "a" / "same.pt").unlink(missing_ok=True)


class Evil:
    """What a pickle would run."""

    def __init__(self, *call: Any) -> None:
        self.call = call

    def __reduce__(self) -> Any:
        return self.call


def saved(folder: Path, pickled: bytes, *, more: dict[str, bytes] | None = None) -> Path:
    path = folder / "x.pt"
    members = {"x/data.pkl": pickled, "x/byteorder": b"little", "x/data/0": bytes(24), **(more or {})}
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    return path


STORAGE = b"(X\7\0\0\0storagectorch\nFloatStorage\nX\1\0\0\0" + b"0X\3\0\0\0cpuK\6tQ"
TENSOR = b"ctorch._utils\n_rebuild_tensor_v2\n(" + STORAGE + b"K%b%b%b\x89}tR"


def tensor(offset: bytes = b"\0", size: bytes = b"K\2K\3\x86", stride: bytes = b"K\3K\1\x86") -> bytes:
    return b"\x80\2" + TENSOR % (offset, size, stride) + b"."


def test_nothing_of_a_pickle_runs_and_each_lie_is_refused(tmp_path: Path) -> None:
    marker = tmp_path / "ran"
    loop = b"\x80\2]q\0h\0a."
    laughs = b"\x80\2]q\0" + b"".join(b"]q%c(" % (at + 1) + b"h%c" % at * 9 + b"e" for at in range(20)) + b"."
    deep = b"\x80\2" + b"]" * 5000 + b"a" * 4999 + b"."
    cases: dict[str, tuple[bytes, str]] = {
        "system": (pickle.dumps(Evil(os.system, (f"touch {marker}",)), 2), "is not run"),
        "eval": (pickle.dumps(Evil(eval, (f"open({str(marker)!r}, 'w')",)), 4), "is not run"),
        "state": (pickle.dumps(np.random.default_rng(0), 2), "is neither a tensor nor a plain value"),
        "set": (pickle.dumps({1, 2}, 4), "opcode b'\\x8f'"),
        "loop": (loop, "a structure without end"),
        "laughs": (laughs, "a structure without end"),
        "deep": (deep, "a structure without end"),
        "unfinished": (tensor()[:-1], "the pickle"),
        "no stack": (b"\x80\2a.", "the pickle cannot be read"),
        "memo": (b"\x80\2h\7.", "the pickle cannot be read"),
        "beyond": (tensor(b"\7"), "needs 24 bytes, its storage has 0"),
        "larger": (tensor(size=b"K\3K\3\x86"), "needs 36 bytes, its storage has 24"),
        "negative": (tensor(size=b"K\2J\xff\xff\xff\xff\x86"), "shape (2, -1)"),
        "axes": (tensor(stride=b"K\1\x85"), "shorter"),
        "repeated": (tensor(stride=b"K\0K\1\x86"), "elements of a tensor overlap"),
        "huge": (tensor(size=b"\x8a\7" + b"\xff" * 6 + b"\x7f\x85", stride=b"K\0\x85"), "overlap"),
    }
    for name, (content, words) in cases.items():
        path = saved(tmp_path, content)
        with pytest.raises(FormatError) as refused:
            read_pt(path)
        assert words in str(refused.value), (name, str(refused.value))
        assert not marker.exists(), name
    (found,) = read_pt(saved(tmp_path, tensor()))
    assert (found.dtype, found.shape, found.payload.nbytes) == ("float32", (2, 3), 24)


def test_zips_that_torch_does_not_write_are_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    big = saved(tmp_path, tensor(), more={"x/byteorder": b"big"})
    with pytest.raises(FormatError, match="byte order b'big'"):
        read_pt(big)
    with pytest.raises(FormatError, match=r"2 members data\.pkl"):
        read_pt(saved(tmp_path, tensor(), more={"y/data.pkl": b"."}))
    with zipfile.ZipFile(tmp_path / "c.pt", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("x/data.pkl", tensor() * 9)
    with pytest.raises(FormatError, match=r"x/data\.pkl is compressed"):
        read_pt(tmp_path / "c.pt")
    (tmp_path / "old.pt").write_bytes(pickle.dumps(0x1950A86A20F9469CFC6C, 2))
    with pytest.raises(FormatError, match=r"a pickle of torch before 1\.6"):
        read_pt(tmp_path / "old.pt")
    np.savez_compressed(tmp_path / "z.npz", x=np.zeros(9))
    assert main(["ls", str(tmp_path / "z.npz")]) == 2
    np.savez(tmp_path / "x.npz", a=np.zeros(9), x=np.arange(9.0))
    octets = bytearray((tmp_path / "x.npz").read_bytes())
    octets[octets.index(np.arange(9.0).tobytes()) + 8] ^= 1  # far below any tolerance
    (tmp_path / "y.npz").write_bytes(octets)
    assert main(["compare", str(tmp_path / "x.npz"), str(tmp_path / "y.npz")]) == 2
    assert "x.npy: the checksum is another one" in capsys.readouterr().err
    good = saved(tmp_path, tensor(), more={"x/other": b"12345678"})
    good.write_bytes(good.read_bytes().replace(b"12345678", b"12345679"))
    with pytest.raises(FormatError, match="x/other: the checksum is another one"):
        read_pt(good)


def test_safetensors_that_lie_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for header, words in (
        (b'{"w":{"dtype":"F32","shape":[2],"data_offsets":[0,9]}}', "bytes 0 to 9"),
        (b'{"w":{"dtype":"F32","shape":[-2],"data_offsets":[0,8]}}', "shape (-2,)"),
        (b'{"w":{"dtype":"F8_E4M3FNUZ","shape":[8],"data_offsets":[0,8]}}', "w: dtype F8_E4M3FNUZ is"),
        (b'{"w":{"dtype":["F32"],"shape":[2],"data_offsets":[0,8]}}', "the header is none of safetensors"),
        (b'{"w":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}}', "do not take the 8 bytes"),
        (b'{"w":7}', "the header is none of safetensors"),
        (b"[1]", "the header is none of safetensors"),
        (b"{", "the header is none of safetensors"),
    ):
        path = tmp_path / "x.safetensors"
        path.write_bytes(struct.pack("<Q", len(header)) + header + bytes(8))
        assert main(["ls", str(path)]) == 2, header
        told = capsys.readouterr().err
        assert f"{path}, byte 8: " in told
        assert words in told, told


TORCH_TYPES = (
    *("float16", "bfloat16", "float32", "float64", "float8_e4m3fn", "float8_e5m2", "bool", "complex64"),
    *("uint8", "int8", "int16", "int32", "int64", "uint16", "uint32", "uint64", "complex128"),
)


def test_torch_itself_reads_the_same(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    torch.manual_seed(1)
    made = {}
    for name in TORCH_TYPES:
        values = (torch.randn(3, 4, 5) * 3).to(getattr(torch, name))
        made[name] = values
        made[f"{name}_view"] = values.transpose(0, 2)[1:, ::2]
        made[f"{name}_part"] = values[1]
    torch.save({"all": made, "list": [*made.values()]}, tmp_path / "x.pt")
    records = {str(record.key): record for record in read_dump(tmp_path).records}
    assert len(records) == 2 * len(made)
    for name, values in made.items():
        record = records[f"all.{name}:output.0"]
        assert record.payload is not None
        ours = load(record.payload, record.dtype, record.shape)
        assert ours.shape == tuple(values.shape), name
        raw = values.contiguous().view(torch.uint8).numpy().tobytes() if values.numel() else b""
        assert np.ascontiguousarray(ours).tobytes() == raw, name
        assert_statistics(record, ours)


def assert_statistics(record: TensorRecord, values: Any) -> None:
    assert record.stats is not None, record.key
    if record.dtype.startswith("complex"):
        return
    wide = values.astype(np.float64)
    assert (record.stats.max, record.stats.min) == (wide.max(), wide.min()), record.key
    assert record.stats.avg == pytest.approx(wide.mean(), abs=1e-6)
    assert record.stats.zero == int((wide == 0).sum())


@pytest.mark.filterwarnings("ignore")  # torch means to drop these types
def test_a_quantised_tensor_is_named_as_not_read_beside_the_others(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its bytes say nothing without its scale."""
    torch = pytest.importorskip("torch")
    x, scales = torch.arange(12.0).reshape(3, 4), torch.tensor([1.0, 0.5, 2.0])
    made = {
        "all": torch.quantize_per_tensor(x, 1.0, 0, torch.qint8),
        "each": torch.quantize_per_channel(x, scales, torch.zeros(3), 0, torch.quint8),
        "x": x,
    }
    torch.save(made, tmp_path / "x.pt")
    dump = read_dump(tmp_path)
    assert {one.key.layer: (one.dtype, one.shape, one.payload is None) for one in dump.records} == {
        "all": ("qint8", (3, 4), True),
        "each": ("quint8", (3, 4), True),
        "x": ("float32", (3, 4), False),
    }
    assert main(["compare", str(tmp_path), str(tmp_path)]) == 2
    told = capsys.readouterr()
    assert "1 of them element by element" in told.out
    for name in ("all", "each"):
        assert f"{name}:output.0: a quantised tensor" in told.err


def test_a_view_whose_elements_are_not_its_storage_is_refused(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    x = torch.complex(torch.ones(2), torch.ones(2))
    views = {"conj": x.conj(), "neg": x.conj().imag}
    for name, view in views.items():
        torch.save({name: view}, tmp_path / "x.pt")
        with pytest.raises(FormatError, match="pending"):
            read_pt(tmp_path / "x.pt")
        torch.save(view.resolve_conj().resolve_neg(), tmp_path / "x.pt")
        assert len(read_pt(tmp_path / "x.pt")) == 1


def test_a_backslash_anywhere_in_a_pickle_is_read_as_it_is_or_refused(tmp_path: Path) -> None:
    with zipfile.ZipFile(SAMPLES / "value.pt") as archive:
        pickled = archive.read("value/data.pkl")
    for at in range(len(pickled)):
        with contextlib.suppress(FormatError):
            read_pt(saved(tmp_path, pickled[:at] + b"\\" + pickled[at + 1 :]))
