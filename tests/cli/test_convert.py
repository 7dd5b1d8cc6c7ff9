from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from pytest_npudump.cli import convert as command, main
from tests.cli.conftest import dump_file

Run = Callable[..., Any]
DATA = Path(__file__).parents[1] / "data"
TENSORS = DATA / "trees" / "acl-tensor"
FORMATS = DATA / "dump" / "formats"
DTYPES = DATA / "dump" / "dtypes"


def test_what_has_no_data_is_nothing_to_convert_and_beside_others_a_note(run: Run, tmp_path: Path) -> None:
    tree = DATA / "trees" / "acl-stats"
    for kind in ("npy", "safetensors"):
        done = run("convert", tree, "-o", tmp_path / "out", "--to", kind)
        assert (done.code, done.out) == (2, "")
        told = f"nothing to convert: {tree} is a dump of statistics: none of its tensors (54) has data"
        assert done.err.startswith(f"npudump: {told}")
        assert "dump_data tensor" in done.err
        assert not (tmp_path / "out").exists()
    # A tensor that lay at a null address: its size is told, and there are no bytes.
    dump_file(tmp_path / "dump", "a", np.zeros(0, np.int8), shape=(16,), size=16, address=0)
    done = run("convert", tmp_path / "dump", "-o", tmp_path / "out")
    assert (done.code, done.out) == (2, "")
    assert "has no tensor with data (1 in all)" in done.err
    assert "address" in done.err
    dump_file(tmp_path / "dump", "b", np.arange(3.0), number=2)
    done = run("convert", tmp_path / "dump", "-o", tmp_path / "out")
    assert (done.code, done.err) == (0, "")
    assert done.out.startswith("1 tensor (24 B) written")
    assert "; 1 of the dump without data" in done.out


def _written(out: Path) -> dict[str, np.ndarray]:
    return {str(path.relative_to(out)): np.load(path) for path in sorted(out.rglob("*.npy"))}


def test_a_tree_becomes_npy_files_in_its_own_directories(run: Run, tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "out").symlink_to(tmp_path / "real")  # which is followed
    done = run("convert", TENSORS, "-o", tmp_path / "out")
    assert done.code == 0
    assert "4 tensors (412 B) written to" in done.out
    for name, array in _written(tmp_path / "real").items():
        source, io, slot = name.removesuffix(".npy").rsplit(".", 2)
        data = (TENSORS / source).read_bytes()
        last = io == "output"
        assert slot == "0"
        expected = data[-array.nbytes :] if last else data[: len(data) - 4][-array.nbytes :]
        assert array.tobytes() == expected
    assert len(_written(tmp_path / "real")) == 4


@pytest.mark.each(
    ("name", "layout", "shape"),
    [
        ("nc1hwc0_NCHW", "ND", (2, 30, 4, 5)),
        ("nc1hwc0_NHWC", "NHWC", (2, 4, 5, 30)),
        ("fz_NCHW", "NCHW", None),
        ("nz2_ND", "ND", None),
        ("nz3_ND", "ND", None),
        ("nd5_NCDHW", "ND", None),
    ],
)
def test_device_layouts_come_out_as_canns_own_converter_has_them(
    run: Run, tmp_path: Path, name: str, layout: str, shape: tuple[int, ...] | None
) -> None:
    assert run("convert", FORMATS / name, "-o", tmp_path, "--layout", layout).code == 0
    (array,) = _written(tmp_path).values()
    expected = np.load(FORMATS / f"{name}.npy")
    if shape is not None:
        expected = expected[tuple(slice(extent) for extent in shape)]
        assert array.shape == shape
    assert array.dtype == expected.dtype
    np.testing.assert_array_equal(array, expected)


def test_what_cannot_be_converted_is_named_after_converting_the_rest(run: Run, tmp_path: Path) -> None:
    done = run("convert", FORMATS, "-o", tmp_path)
    assert done.code == 2
    assert "8 tensors" in done.out
    assert done.err.count("npudump: not converted: ") == 1
    assert str(FORMATS / "nc1hwc0_NHWC") in done.err
    assert "--layout" in done.err
    assert len(_written(tmp_path)) == 8


def test_raw_keeps_the_devices_layout_and_bits_even_of_types_without_values(run: Run, tmp_path: Path) -> None:
    values = np.linspace(-3, 3, 2 * 16).astype(ml_dtypes.bfloat16).reshape(1, 2, 1, 1, 16)
    codes = np.arange(24, dtype=np.uint8)
    for array, bits, code, told in (
        (values, values.view(np.uint16), 0, {"layout": "NC1HWC0", "original": (1, 20, 1, 1)}),
        (codes, codes, 2, {"dtype": "qint8"}),
    ):
        path = dump_file(tmp_path / f"dump{code}", "a", array, **told)
        assert run("convert", path, "-o", tmp_path / "host").code == code
        assert run("convert", path, "-o", tmp_path / f"out{code}", "--raw").code == 0
        (found,) = _written(tmp_path / f"out{code}").values()
        np.testing.assert_array_equal(found, bits)


@pytest.mark.each("name", ["bfloat16", "float8_e5m2", "float8_e4m3fn"])
def test_types_numpy_lacks_become_float32_without_loss(run: Run, tmp_path: Path, name: str) -> None:
    values = np.arange(256, dtype=np.uint8).astype(f"u{np.dtype(getattr(ml_dtypes, name)).itemsize}")
    values = (values * np.asarray(257 if values.itemsize == 2 else 1, values.dtype)).view(name)
    path = dump_file(tmp_path / "dump", "a", values, dtype=name)
    assert run("convert", path, "-o", tmp_path / "out").code == 0
    (array,) = _written(tmp_path / "out").values()
    assert array.dtype == np.float32
    np.testing.assert_array_equal(array, values.astype(np.float32))


@pytest.mark.each("count", [5, 1 << 20, (1 << 20) + 3])
def test_packed_types_are_unpacked_piece_by_piece(run: Run, tmp_path: Path, count: int) -> None:
    packed = np.random.default_rng(0).integers(0, 256, (count + 1) // 2, dtype=np.uint8)
    path = dump_file(tmp_path / "dump", "a", packed, dtype="int4", shape=(count,))
    assert run("convert", path, "-o", tmp_path / "out").code == 0
    (array,) = _written(tmp_path / "out").values()
    nibbles = np.stack([packed & 15, packed >> 4], axis=1).reshape(-1)[:count].astype(np.int8)
    np.testing.assert_array_equal(array, np.where(nibbles > 7, nibbles - 16, nibbles))


def test_packed_types_are_converted_to_the_layout_that_is_asked_for(run: Run, tmp_path: Path) -> None:
    values = np.random.default_rng(0).integers(0, 8, 32, np.uint8)
    packed = values[::2] | values[1::2] << 4
    path = dump_file(tmp_path / "dump", "a", packed, dtype="int4", shape=(1, 2, 4, 4), layout="NCHW")
    assert run("convert", path, "-o", tmp_path / "out", "--layout", "NHWC").code == 0
    (array,) = _written(tmp_path / "out").values()
    np.testing.assert_array_equal(array, values.reshape(1, 2, 4, 4).transpose(0, 2, 3, 1))


def test_safetensors_keeps_types_and_keys(run: Run, tmp_path: Path) -> None:
    bf16 = np.linspace(-3, 3, 64).astype(ml_dtypes.bfloat16)
    halves = np.linspace(-1, 1, 64).astype(np.float16).reshape(8, 8)
    path = dump_file(tmp_path / "dump", "net/a", bf16, halves)
    done = run("convert", path, "-o", tmp_path / "out", "--to", "safetensors")
    assert done.code == 0
    assert "2 tensors" in done.out
    found = load_file(tmp_path / "out" / f"{path.name}.safetensors")
    np.testing.assert_array_equal(found["net/a:output.0"].view(np.uint16), bf16.view(np.uint16))
    np.testing.assert_array_equal(found["net/a:output.1"], halves)


def test_mindspores_bfloat16_becomes_readable_and_a_dump_is_not_written_over(
    run: Run, tmp_path: Path
) -> None:
    sample, tree = DATA / "trees" / "mindspore-dtypes", tmp_path / "tree"
    shutil.copytree(sample, tree)
    assert run("convert", tree, "-o", tmp_path / "out").code == 0
    written = _written(tmp_path / "out")
    assert set(written) == {str(path.relative_to(sample)) for path in sample.rglob("*.npy")}
    wide = [array for name, array in written.items() if ".BFloat16." in name]
    assert wide
    assert all(array.dtype == np.float32 for array in wide)
    done = run("convert", tree, "-o", tree)
    assert (done.code, "is a file of the dump itself" in done.err) == (2, True)
    assert all(
        path.read_bytes() == (sample / path.relative_to(tree)).read_bytes() for path in tree.rglob("*.npy")
    )
    (tmp_path / "file").write_text("")
    done = run("convert", TENSORS, "-o", tmp_path / "file")
    assert (done.code, "cannot be written" in done.err) == (2, True)


def test_unreadable_files_are_named_and_the_rest_is_converted(run: Run, tmp_path: Path) -> None:
    shutil.copytree(TENSORS, tmp_path / "tree")
    path = next((tmp_path / "tree").rglob("MatMul*"))
    path.write_bytes(path.read_bytes()[:-1])
    done = run("convert", tmp_path / "tree", "-o", tmp_path / "out")
    assert done.code == 2
    assert str(path) in done.err
    assert "2 tensors" in done.out
    assert not list((tmp_path / "out").rglob("*.tmp"))


def test_executions_of_one_file_get_files_of_their_own(run: Run, tmp_path: Path) -> None:
    one, other = np.arange(4, dtype=np.float32), np.arange(4, 8, dtype=np.float32)
    path = dump_file(tmp_path / "dump", "a", one)
    path.write_bytes(path.read_bytes() + dump_file(tmp_path / "more", "a", other).read_bytes())
    assert run("convert", tmp_path / "dump", "-o", tmp_path / "out").code == 0
    found = sorted(array.tolist() for array in _written(tmp_path / "out").values())
    assert found == [array.tolist() for array in (one, other)]


def test_real_files_of_every_type_convert_or_say_why(run: Run, tmp_path: Path) -> None:
    for path in sorted(path for path in DTYPES.iterdir() if not path.suffix):
        done = run("convert", path, "-o", tmp_path / path.name)
        assert done.code in {0, 2}
        assert (done.code == 2) == ("not converted" in done.err)
        assert run("convert", path, "-o", tmp_path / path.name, "--raw").code == 0


@pytest.mark.each("options", [(), ("--raw",)])
def test_a_tensor_larger_than_the_buffer_is_copied_whole(
    run: Run, tmp_path: Path, options: tuple[str, ...]
) -> None:
    values = np.random.default_rng(4).standard_normal(700_001)
    path = dump_file(tmp_path / "dump", "a", np.zeros(3, np.int8), values, dtype="float64")
    done = run("convert", path, "-o", tmp_path / "out", *options)
    written = _written(tmp_path / "out")
    (array,) = [array for name, array in written.items() if "output.1" in str(name)]
    assert done.code == 2
    np.testing.assert_array_equal(array, values)


def test_a_file_that_becomes_shorter_is_named_and_leaves_nothing_behind(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = dump_file(tmp_path / "dump", "a", np.arange(4096, dtype=np.float32))

    def shorten(array: np.ndarray, _record: object, _layout: str) -> np.ndarray:
        os.truncate(path, path.stat().st_size - 100)
        return array

    monkeypatch.setattr(command, "host_values", shorten)
    done = run("convert", path, "-o", tmp_path / "out")
    assert done.code == 2
    assert "npudump: not converted: " in done.err
    assert f"{path}, byte 46: the tensor needs 16384 bytes, but the file has 16284" in done.err
    assert _written(tmp_path / "out") == {}
    assert list((tmp_path / "out").rglob("*.tmp")) == []


@pytest.mark.each("executor", ["serial", "threads:2", "processes:1"])
def test_progress_is_told_in_files(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, executor: str
) -> None:
    steps: list[tuple[int, int]] = []

    @contextmanager
    def progress(_: str) -> Iterator[Callable[[int, int], None]]:
        yield lambda done, total: steps.append((done, total))

    monkeypatch.setattr(command, "progress", progress)
    root = dump_file(tmp_path / "dump", "a", np.zeros(64, np.uint8), np.zeros(64, np.uint8)).parent
    dump_file(root, "b", np.zeros(64, np.uint8), dtype="resource", shape=(8,), number=2)
    assert run("convert", root, "-o", tmp_path / "out", "--executor", executor).code == 2
    assert steps == sorted(steps)
    assert steps[-1] == (3, 3)


@pytest.mark.each("kind", ["long", "hashed", "mindspore"])
def test_names_too_long_for_a_file_are_refused_and_kept_inside_of_safetensors(
    run: Run, tmp_path: Path, kind: str
) -> None:
    values = np.arange(6, dtype=np.float32)
    layers = {"long": "n" * 225, "hashed": "n" * 260, "mindspore": "n" * 260}
    whole = f"Add.{layers[kind]}.1.3.1795228705872229"
    folder = tmp_path / "dump"
    dump_file(folder, "short", values)
    if kind == "mindspore":
        whole += ".output.0.DefaultFormat.Float32.npy"
        np.save(folder / "454306933.npy", values)
        (folder / "mapping.csv").write_text(f"454306933.npy,{whole}\n")
    elif kind == "hashed":
        dump_file(tmp_path / "x", "", values).rename(folder / "17930809586720357421")
        (folder / "mapping.csv").write_text(f"17930809586720357421,{whole}\n")
    else:
        dump_file(tmp_path / "x", "", values).rename(folder / whole)
    done = run("convert", folder, "-o", tmp_path / "out")
    assert done.code == 2
    assert "is too long for a file's name: --to safetensors keeps names inside of the file" in done.err
    assert [name[:10] for name in _written(tmp_path / "out")] == ["Type.short"]
    assert run("convert", folder, "-o", tmp_path / "safe", "--to", "safetensors").code == 0
    names = [path.name for path in (tmp_path / "safe").iterdir()]
    assert max(len(name.encode()) for name in names) <= 255
    assert len(names) == 2
    told = run("ls", tmp_path / "safe", "--json", "-").json["tensors"]
    assert {one["layer"] for one in told} == {layers[kind], "short"}


OUTSIDE = ["/{root}/outside", "../outside", "../../outside", "a/../../outside", "sub/outside", "a\0b", ".."]


@pytest.mark.each("long", OUTSIDE)
@pytest.mark.each("kind", ["npy", "safetensors"])
def test_a_mapping_takes_nothing_out_of_the_output(run: Run, tmp_path: Path, long: str, kind: str) -> None:
    path = dump_file(tmp_path / "dump", "a", np.arange(4.0))
    path.rename(path.with_name("1234567"))
    path.with_name("mapping.csv").write_text(f"1234567,{long.format(root=tmp_path)}\n")
    before = sorted(tmp_path.parent.rglob("*"))
    done = run("convert", tmp_path / "dump", "-o", tmp_path / "out" / "deep", "--to", kind)
    assert done.code == 2
    assert "mapping.csv, byte 0: line 1: '1234567' and " in done.err
    made = {*tmp_path.parent.rglob("*")} - {*before}
    assert made == {*tmp_path.glob("out"), *tmp_path.glob("out/**/*")}
    assert run("ls", "--stats", tmp_path / "dump").code == 2


@pytest.mark.parametrize("kind", ["npy", "safetensors"])
def test_links_in_the_output_lead_nowhere_else(run: Run, tmp_path: Path, kind: str) -> None:
    for folder in ("dump/in", "dump/by-link", "out", "elsewhere"):
        (tmp_path / folder).mkdir(parents=True)
    dump_file(tmp_path / "dump" / "by-link", "a", np.arange(4.0))
    path = dump_file(tmp_path / "dump" / "in", "b", np.arange(4.0))
    (tmp_path / "out" / "by-link").symlink_to(tmp_path / "elsewhere")
    name = path.name + (".output.0.npy" if kind == "npy" else ".safetensors")
    precious = tmp_path / "precious"
    precious.write_text("kept")
    (tmp_path / "out" / "in").mkdir()
    (tmp_path / "out" / "in" / name).symlink_to(precious)
    done = run("convert", tmp_path / "dump", "-o", tmp_path / "out", "--to", kind)
    assert done.code == 2
    assert f"is in {tmp_path / 'elsewhere'}, by a symbolic link" in done.err
    assert (precious.read_text(), [*(tmp_path / "elsewhere").iterdir()]) == ("kept", [])
    written = tmp_path / "out" / "in" / name
    assert not written.is_symlink()
    assert [left.name for left in written.parent.iterdir()] == [name]


def test_tensors_of_one_file_keep_their_names(run: Run, tmp_path: Path) -> None:
    tensors = {"a/b.weight": np.ones(3, np.float32), "a_b_weight": np.zeros((2, 2), np.int32), "c": np.eye(2)}
    np.savez(tmp_path / "all.npz", **tensors)
    save_file(tensors, tmp_path / "all.safetensors")
    for source in ("all.npz", "all.safetensors"):
        assert run("convert", tmp_path / source, "-o", tmp_path / "out").code == 0
        written = _written(tmp_path / "out")
        names = {
            f"{source}.{name}.npy" for name in ("a_b_weight.output.0", "a_b_weight.output.0.1", "c.output.0")
        }
        assert written.keys() == names
        assert written[f"{source}.c.output.0.npy"].tobytes() == tensors["c"].tobytes()
        shutil.rmtree(tmp_path / "out")


def test_two_tensors_never_become_one_file(run: Run, tmp_path: Path) -> None:
    name = "Relu.a.1.2.1795228705872229.output.0.ND{}.npy"
    shorts = {"111.npy": name.format(""), "222.npy": name.format(""), "333.npy": name.format(".1")}
    (tmp_path / "dump").mkdir()
    for value, short in enumerate(shorts):
        np.save(tmp_path / "dump" / short, np.full(3, value, np.float32))
    lines = "".join(f"{short},{long}\n" for short, long in shorts.items())
    (tmp_path / "dump" / "mapping.csv").write_text(lines)
    done = run("convert", tmp_path / "dump", "-o", tmp_path / "out")
    assert done.code == 2
    assert "is what another tensor of the dump becomes" in done.err
    values = [float(array[0]) for array in _written(tmp_path / "out").values()]
    assert len(values) == len(set(values)) == 2


def test_control_characters_in_names_are_encoded(run: Run, tmp_path: Path) -> None:
    path = dump_file(tmp_path / "dump" / "a\x1b[31m", "a", np.arange(4.0))
    path.rename(path.with_name(path.name.replace("a", "a\n\x9b", 1)))
    assert run("convert", tmp_path / "dump", "-o", tmp_path / "out").code == 0
    (written,) = (tmp_path / "out").rglob("*.npy")
    assert written.parent.name == "a%1b[31m"
    assert "a%0a%9b" in written.name


@pytest.mark.e2e
@pytest.mark.parametrize("kind", ["npy", "safetensors"])
def test_a_full_disk_leaves_what_was_converted_before(tmp_path: Path, kind: str) -> None:
    path = dump_file(tmp_path / "dump", "a", np.arange(1 << 16, dtype=np.float32))
    out = tmp_path / "out"
    words = ["convert", str(path), "-o", str(out), "--to", kind]
    assert main(words) == 0
    (written,) = out.iterdir()
    before = written.read_bytes()
    command = [sys.executable, "-c", LIMITED, *words]
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert f"{written}: cannot be written: File too large" in done.stderr
    assert ([*out.iterdir()], written.read_bytes()) == ([written], before)


LIMITED = """
import resource, sys
from pytest_npudump.cli import main
sys.dont_write_bytecode = True  # what is cut off would be read by the next process
resource.setrlimit(resource.RLIMIT_FSIZE, (65536, 65536))
sys.exit(main(sys.argv[1:]))
"""
