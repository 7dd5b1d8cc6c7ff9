"""Dumps that msprobe's PrecisionDebugger wrote on a CPU: its own statistics and CRC-32 judge what is read."""

from __future__ import annotations

import json
import math
import shutil
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pytest_npudump.cli import main
from pytest_npudump.dump.arrays.decode import load
from pytest_npudump.dump.files.msprobe import call_of
from pytest_npudump.dump.reader import read_dump
from pytest_npudump.dump.records import Stats, TensorRecord
from pytest_npudump.errors import DumpError

SAMPLES = Path(__file__).parents[2] / "data" / "tools" / "msprobe"
DTYPE_STEP = {"float32": 2.0**-22, "bfloat16": 2.0**-7}


@pytest.mark.each(
    ("name", "call"),
    [
        ("Module.layers.0.mlp.Linear.forward.0", ("layers.0.mlp", "Linear", 0)),
        ("Module.block.fc.Linear.backward.3", ("block.fc.backward", "Linear", 3)),
        ("Module.block.fc.Linear.parameters_grad", ("block.fc.grad", "Linear", 0)),
        ("Cell.fc.Dense.forward.1", ("fc", "Dense", 1)),
        ("Functional.conv2d.12.forward", ("Functional.conv2d", "conv2d", 12)),
        ("Tensor.__mul__.0.backward", ("Tensor.__mul__.backward", "__mul__", 0)),
        ("whatever", ("whatever", "", 0)),
    ],
)
def test_a_call_is_a_layer_a_type_and_a_turn(name: str, call: tuple[str, str, int]) -> None:
    assert call_of(name) == call


def described(value: Any) -> list[dict[str, Any]]:
    """The descriptions of tensors anywhere in a value."""
    if isinstance(value, dict) and "dtype" in value:
        return [value]
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return [one for item in inner for one in described(item)]


@pytest.mark.each("sample", ["L0-tensor", "mix-statistics", "L1-md5", "mindspore-L0"])
def test_no_tensor_is_lost_and_all_are_as_told(sample: str) -> None:
    told = [
        one
        for path in sorted((SAMPLES / sample).rglob("dump.json"))
        for one in described(json.loads(path.read_text())["data"])
    ]
    records = read_dump(SAMPLES / sample).records
    assert len({str(record.key) for record in records}) == len(records) == len(told)

    def facts(dtype: str, shape: Any, stats: tuple[Any, ...], digest: str) -> str:
        return f"{dtype} {[*shape]} {stats} {digest}"

    read = [facts(r.dtype, r.shape, four(r.stats), r.digest) for r in records]
    want = [
        facts(
            one["dtype"].removeprefix("torch.").lower(),
            one["shape"],
            tuple(None if one[name] is None else one[name] + 0 for name in ("Max", "Min", "Mean", "Norm")),
            f"crc32:{one['md5']}" if "md5" in one else "",
        )
        for one in told
    ]
    assert sorted(read) == sorted(want)


def four(stats: Stats | None) -> tuple[Any, ...]:
    return (None,) * 4 if stats is None else (stats.max, stats.min, stats.avg, stats.l2norm)


def test_tensors_are_those_that_msprobe_saw() -> None:
    dump = read_dump(SAMPLES / "L0-tensor")
    assert not dump.problems
    assert not dump.notes
    for record in dump.records:
        assert record.payload is not None
        values = load(record.payload, record.dtype, record.shape)
        assert record.digest == f"crc32:{zlib.crc32(np.ascontiguousarray(values).tobytes()):08x}"
        assert record.stats is not None
        assert (record.stats.max, record.stats.min) == (values.max(), values.min())
        wide = values.astype(np.float64)
        expected = {"avg": wide.mean(), "l2norm": math.sqrt(float((wide * wide).sum()))}
        for name, value in expected.items():
            said = getattr(record.stats, name)
            bound = DTYPE_STEP.get(record.dtype, 0) * max(abs(value), float(np.abs(wide).max()))
            assert said is None or abs(said - value) <= bound, (record.key, name)


def test_keys_are_in_the_order_of_calls_and_parameters_before_them() -> None:
    keys = [str(record.key) for record in read_dump(SAMPLES / "L0-tensor").records]
    assert keys[:8] == [
        *("emb.weight:output.0", "emb:input.0", "emb:output.0"),
        *("block.norm.bias:output.0", "block.norm.weight:output.0", "block.norm:input.0"),
        *("block.norm:output.0", "block.fc.bias:output.0"),
    ]
    assert {"block:input.1", "block#turn=1:output.2", "block.fc.backward#turn=1:input.0"} < {*keys}
    assert {"block.fc.weight.grad:output.0", "head.backward:output.0"} < {*keys}
    turned = [str(record.key) for record in read_dump(SAMPLES / "mix-statistics").records]
    steps = ["step=1" in key for key in turned]
    assert steps == sorted(steps), "the first step comes first"


@pytest.fixture
def copied(tmp_path: Path) -> Callable[..., Path]:
    """Copy a sample, with a change of the text of each dump.json."""

    def copy(sample: str, name: str, change: Callable[[Any], object] = lambda _data: None) -> Path:
        folder = tmp_path / name
        shutil.copytree(SAMPLES / sample, folder)
        for path in folder.rglob("dump.json"):
            content = json.loads(path.read_text())
            change(content["data"])
            path.write_text(json.dumps(content))
        return folder

    return copy


def without_statistics(data: Any) -> None:
    for one in described(data):
        for name in ("Max", "Min", "Mean", "Norm"):
            del one[name]


def compare(one: Path, other: Path, capsys: pytest.CaptureFixture[str]) -> tuple[int, str]:
    code = main(["compare", str(one), str(other)])
    return code, "".join(capsys.readouterr())


def test_a_changed_statistic_fails_and_names_layer_and_line(
    copied: Callable[..., Path], capsys: pytest.CaptureFixture[str]
) -> None:
    def scale(data: Any) -> None:
        data["Module.block.fc.Linear.forward.1"]["output"][0]["Mean"] *= 1.001

    code, text = compare(SAMPLES / "mix-statistics", copied("mix-statistics", "b", scale), capsys)
    assert code == 1
    assert "first mismatch: block.fc#turn=1:output.0 avg" in text
    assert "note: block.fc#turn=1:output.0 is called at /home/user/net/make.py:" in text
    assert compare(SAMPLES / "mix-statistics", copied("mix-statistics", "c"), capsys)[0] == 0
    for stacks, words in (("{", "no JSON"), ('{"0": 1}', "no stacks of calls"), (None, "")):
        folder = copied("mix-statistics", f"d{words}", scale)
        for path in folder.rglob("stack.json"):
            path.unlink() if stacks is None else path.write_text(stacks)
        code, text = compare(SAMPLES / "mix-statistics", folder, capsys)
        assert (code, "is called at" in text) == (1, False)
        assert ("the source line of block.fc#turn=1:output.0 is not known" in text) == bool(words)
        assert words in text


def test_checksums_alone_are_equal_or_not(copied: Any, capsys: pytest.CaptureFixture[str]) -> None:
    def flip(data: Any) -> None:
        without_statistics(data)
        data["Functional.linear.1.forward"]["output"][0]["md5"] = "00000000"

    golden = copied("L1-md5", "a", without_statistics)
    code, text = compare(golden, copied("L1-md5", "b", without_statistics), capsys)
    assert code == 0
    assert "compared by hash alone: equal or not, not how close (tensors:" in text
    code, text = compare(golden, copied("L1-md5", "c", flip), capsys)
    assert code == 1
    assert "; mismatches: 1" in text
    assert "Functional.linear#turn=1:output.0 crc32: 00000000" in text


def test_a_lost_call_and_a_lost_checksum_fail(copied: Any, capsys: pytest.CaptureFixture[str]) -> None:
    lost = copied("L1-md5", "b", lambda data: data.pop("Torch.relu.1.forward"))
    code, text = compare(SAMPLES / "L1-md5", lost, capsys)
    assert code == 1
    assert "Torch.relu#turn=1:output.0 is missing: the golden has it" in text
    lost = copied("L1-md5", "c", lambda data: data["Torch.relu.1.forward"]["output"][0].pop("md5"))
    assert compare(SAMPLES / "L1-md5", lost, capsys)[0] == 1
    none = copied("L1-md5", "d", lambda data: [one.pop("md5") for one in described(data)])
    code, text = compare(SAMPLES / "L1-md5", none, capsys)
    assert code == 1
    assert "first mismatch: Tensor.__add__:input.0 crc32 -, expected " in text, "whole numbers, and any order"
    none = copied("L0-tensor", "e", lambda data: [one.pop("md5") for one in described(data)])
    assert compare(SAMPLES / "L0-tensor", none, capsys)[0] == 0, "all elements are compared"


NAME = "Module.block.fc.Linear.forward.0.output.0.pt"


def test_a_tensor_that_cannot_be_read_is_a_problem_with_its_file(
    copied: Callable[..., Path], capsys: pytest.CaptureFixture[str]
) -> None:
    folder = copied("L0-tensor", "dump")
    path = folder / "step0" / "proc7" / "dump_tensor_data" / NAME
    other = path.with_name("Module.emb.Embedding.forward.0.input.0.pt")
    for content, words in (
        (path.read_bytes()[:-40], "damaged or cut off"),
        (other.read_bytes(), "another run"),
        (b"", "the magic needs 2 bytes"),
        (None, "cannot be opened"),
    ):
        path.unlink() if content is None else path.write_bytes(content)
        (problem,) = read_dump(folder).problems
        assert words in str(problem)
        assert NAME in str(problem)
    assert compare(SAMPLES / "L0-tensor", folder, capsys)[0] == 2


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda one: one.update(shape=[2, -3]), "shape [2, -3]"),
        (lambda one: one.update(Max="1.5"), "'1.5' is no number"),
        (lambda one: one.update(data_name="../x.pt"), "no file beside"),
        (lambda one: one.update(md5=7), "md5 7"),
        (lambda one: one.update(dtype=1), "dtype 1"),
    ],
)
def test_a_description_that_is_none_is_refused_with_its_place(copied: Any, change: Any, words: str) -> None:
    def changed(data: Any) -> None:
        change(data["Torch.relu.1.forward"]["output"][0])

    folder = copied("L1-md5", "dump", changed)
    (problem,) = read_dump(folder).problems
    assert Path(problem.path).name == "dump.json"
    content = (folder / "step0" / "proc7" / "dump.json").read_text()
    assert problem.offset == content.index('"Torch.relu.1.forward"')
    assert words in problem.reason


def test_ranks_are_told_apart_and_two_runs_of_a_process_are_not_mixed(copied: Callable[..., Path]) -> None:
    folder = copied("L1-md5", "dump")
    (folder / "step0" / "proc7").rename(folder / "step0" / "rank0")
    shutil.copytree(folder / "step0" / "rank0", folder / "step0" / "rank1")
    assert {record.key.rank for record in read_dump(folder).records} == {0, 1}
    again = copied("L1-md5", "again")
    shutil.copytree(again / "step0" / "proc7", again / "step0" / "proc8")
    with pytest.raises(DumpError, match="two runs in one dump"):
        read_dump(again)


@pytest.mark.parametrize(
    ("damage", "code"),
    [(lambda path: path.write_text("{"), 2), (lambda path: shutil.rmtree(path.parent), 1)],
    ids=["damaged", "missing"],
)
def test_steps_keep_their_numbers_where_one_is_lost(
    copied: Callable[..., Path],
    damage: Callable[[Path], object],
    code: int,
    capsys: pytest.CaptureFixture[str],
) -> None:
    whole = copied("mix-statistics", "whole")
    shutil.copytree(whole / "step1", whole / "step2")
    lost = copied("mix-statistics", "lost")
    shutil.copytree(lost / "step1", lost / "step2")
    (path,) = (lost / "step0").rglob("dump.json")
    damage(path)
    keys = [[str(one.key) for one in read_dump(folder).records] for folder in (whole, lost)]
    assert keys[1] == [key for key in keys[0] if "#step=" in key]
    found, text = compare(whole, lost, capsys)
    assert found == code
    assert "step=" not in text.partition("first mismatch: ")[2].partition(" ")[0]
    assert " is missing: the golden has it" in text


def test_mindspores_arrays_are_read_beside_their_description(tmp_path: Path) -> None:
    """As msprobe's mindspore_processor.py writes it: bfloat16 is stored as float32."""
    values = np.array([[1.5, -2.0]], np.float32)
    (tmp_path / "dump_tensor_data").mkdir()
    np.save(tmp_path / "dump_tensor_data" / "Cell.fc.Dense.forward.0.output.0.npy", values)
    output = {
        "type": "mindspore.Tensor",
        "dtype": "BFloat16",
        "shape": [1, 2],
        "data_name": "Cell.fc.Dense.forward.0.output.0.npy",
    }
    call = {"input_args": [], "input_kwargs": {}, "output": [output]}
    data = {"task": "tensor", "framework": "mindspore", "data": {"Cell.fc.Dense.forward.0": call}}
    (tmp_path / "dump.json").write_text(json.dumps(data))
    (record,) = read_dump(tmp_path).records
    assert isinstance(record, TensorRecord)
    assert (str(record.key), record.op_type, record.dtype) == ("fc:output.0", "Dense", "bfloat16")
    assert record.payload is not None
    assert load(record.payload, record.dtype, record.shape).tolist() == values.tolist()
    assert record.stats is not None
    assert (record.stats.max, record.stats.min) == (1.5, -2.0)


def test_tensors_of_a_dict_have_their_slots_by_name(tmp_path: Path) -> None:
    def told(shape: int) -> dict[str, object]:
        return {"type": "torch.Tensor", "dtype": "torch.float32", "shape": [shape]}

    for names in ("ab", "ba"):
        given = {name: told(ord(name)) for name in names}
        call = {"input_args": [], "input_kwargs": given, "output": [given]}
        (tmp_path / names).mkdir()
        text = json.dumps({"task": "statistics", "data": {"Module.fc.Linear.forward.0": call}})
        (tmp_path / names / "dump.json").write_text(text)
        found = {str(record.key): record.shape for record in read_dump(tmp_path / names).records}
        assert found == {
            f"fc:{io}.{slot}": (97 + slot,) for io in ("input", "output") for slot in range(2)
        }, names


def test_convert_writes_the_tensors(tmp_path: Path) -> None:
    assert main(["convert", str(SAMPLES / "L0-tensor"), "-o", str(tmp_path)]) == 0
    found = {path.name: np.load(path) for path in tmp_path.rglob("*.npy")}
    records = read_dump(SAMPLES / "L0-tensor").records
    assert len(found) == len(records)
    name = f"{NAME}.output.0.npy"
    record = next(one for one in records if one.path.name == NAME)
    assert record.payload is not None
    assert found[name].tolist() == load(record.payload, record.dtype, record.shape).tolist()
