"""Folders of npy files that ``npudump convert`` or CANN's ``msaccucmp`` made of a dump."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

import numpy as np
import pytest

from pytest_npudump.dump.files.container import dump_data_class
from pytest_npudump.dump.names import parse_converted
from pytest_npudump.dump.reader import read_dump
from pytest_npudump.dump.tree.find import find_files

if TYPE_CHECKING:
    from pathlib import Path

    from pytest_npudump.dump.records import Dump

STAMP = 1795228705872229
ADD = f"Add.net_add.3.5.{STAMP}"
PLACE = "20260101010101/0/net/1/0"


def save(root: Path, path: str, values: object = (1.0, 2.0)) -> None:
    target = root / path
    target.parent.mkdir(parents=True, exist_ok=True)
    np.save(target, np.asarray(values, np.float32))


def container(root: Path, path: str, *times: int) -> None:
    """Write a dump file of an operator with two inputs and an output, a record for each of ``times``."""
    target = root / path
    target.parent.mkdir(parents=True, exist_ok=True)
    content = b""
    for time in times:
        message = dump_data_class()(version="2.0", dump_time=time, op_name="net/add")
        for tensor in (message.output.add(), message.input.add(), message.input.add()):
            tensor.data_type, tensor.format, tensor.size, tensor.address = 1, 2, 8, 4096
            tensor.shape.dim.append(2)
        header = message.SerializeToString()
        content += struct.pack("<Q", len(header)) + header + np.arange(6, dtype="<f4").tobytes()
    target.write_bytes(content)


def keys(dump: Dump) -> list[str]:
    assert not dump.problems
    return [str(record.key.sanitised) for record in dump.records]


@pytest.mark.each(
    ("name", "op_name", "io", "slot", "part"),
    [
        (f"{ADD}.output.0.npy", "net_add", "output", 0, None),
        (f"{ADD}.input.12.npy", "net_add", "input", 12, None),
        (f"{ADD}.workspace.1.npy", "net_add", "workspace", 1, None),
        (f"{ADD}.output.0.2x3.npy", "net_add", "output", 0, None),
        (f"{ADD}.output.0.6.npy", "net_add", "output", 0, 6),
        (f"{ADD}.4.1.2.0.output.0.npy", "net_add", "output", 0, None),
        (f"Add.net/x.0.4.3.{STAMP}.output.1.npy", "net/x", "output", 1, None),
        ("Add.net_add.3.20261120080910123.input.0.npy", "net_add", "input", 0, None),
    ],
)
def test_names_of_converted_tensors_tell_dump_file_and_tensor(
    name: str, op_name: str, io: str, slot: int, part: int | None
) -> None:
    found = parse_converted(name)
    assert found is not None
    assert (found.op_type, found.op_name, found.io, found.slot, found.part) == (
        "Add",
        op_name,
        io,
        slot,
        part,
    )


@pytest.mark.each(
    "name",
    [
        ADD,
        f"{ADD}.npy",
        f"{ADD}.output.npy",
        f"{ADD}.output.0.bin",
        f"{ADD}.csv.output.0.npy",
        f"{ADD}.output.0.2x.npy",
        f"{ADD}.output.0.npy.output.0.npy",
        f"Opdebug.Node_OpDebug.3.5.{STAMP}.output.0.npy",
        "x.output.0.npy",
        "k.2.3.20261120080910123.core.output.0.npy",
    ],
)
def test_other_names_are_none_of_converted_tensors(name: str) -> None:
    assert parse_converted(name) is None


@pytest.mark.parametrize(
    ("path", "slots"),
    [
        (f"{PLACE}/{ADD}", ("input.0", "input.1", "output.0")),
        (f"{PLACE}/{ADD}", ("input.0.2", "input.1.2", "output.0.1x2")),
        ("extra-info/data-dump/0/Add.net_add.3.20261120080910123", ("input.0", "input.1", "output.0")),
        ("20260101010101/0/Add.net/add.0.4.3.1795228705872229", ("input.0", "input.1", "output.0")),
    ],
)
def test_converted_tensors_have_the_keys_of_the_dump(
    tmp_path: Path, path: str, slots: tuple[str, ...]
) -> None:
    container(tmp_path / "dump", path, STAMP)
    for number, slot in enumerate(slots):
        save(tmp_path / "made", f"{path}.{slot}.npy", [number, 2 * number])
    made = read_dump(tmp_path / "made")
    assert keys(made) == keys(read_dump(tmp_path / "dump"))
    assert [record.stats and record.stats.max for record in made.records] == [0.0, 2.0, 4.0]
    assert [record.path.name for record in made.records] == [
        f"{path.rpartition('/')[2]}.{s}.npy" for s in slots
    ]
    assert [record.payload is not None for record in made.records] == [True] * 3


def test_slices_of_an_operator_are_told_apart_as_in_the_dump(tmp_path: Path) -> None:
    for thread in range(2):
        path = f"{PLACE}/{ADD}.4.1.{thread}.0"
        container(tmp_path / "dump", path, STAMP)
        for slot in ("input.0", "input.1", "output.0"):
            save(tmp_path / "made", f"{path}.{slot}.npy")
    assert keys(read_dump(tmp_path / "made")) == keys(read_dump(tmp_path / "dump"))


def test_further_records_of_a_dump_file_are_turns_as_in_the_dump(tmp_path: Path) -> None:
    container(tmp_path / "dump", f"{PLACE}/{ADD}", STAMP, STAMP + 7, STAMP + 9)
    for slot in ("input.0", "input.1", "output.0"):
        for number, suffix in enumerate(("", ".1", ".2")):
            save(tmp_path / "made", f"{PLACE}/{ADD}.{slot}{suffix}.npy", number)
    made = read_dump(tmp_path / "made")
    assert sorted(keys(made)) == sorted(keys(read_dump(tmp_path / "dump")))
    values = {str(record.key): record.stats and record.stats.max for record in made.records}
    assert values["net_add#turn=2:output.0"] == 2.0


def test_two_files_of_one_tensor_are_a_problem(tmp_path: Path) -> None:
    save(tmp_path, f"{ADD}.output.0.npy")
    save(tmp_path, f"{ADD}.output.0.1x2.npy", [[1.0, 2.0]])
    dump = read_dump(tmp_path)
    (problem,) = dump.problems
    assert "output 0 is in another file too" in str(problem)
    assert len(dump.records) == 1


def test_a_converted_tensor_that_cannot_be_read_costs_no_other(tmp_path: Path) -> None:
    save(tmp_path, f"{ADD}.input.0.npy")
    save(tmp_path, f"{ADD}.output.0.npy")
    cut = tmp_path / f"{ADD}.input.0.npy"
    cut.write_bytes(cut.read_bytes()[:-1])
    dump = read_dump(tmp_path)
    assert [str(problem.path) for problem in dump.problems] == [str(cut)]
    assert [str(record.key) for record in dump.records] == ["net_add:output.0"]


@pytest.mark.parametrize("folder", ["", "npy/"])
def test_what_was_converted_into_the_dump_itself_is_not_read_again(tmp_path: Path, folder: str) -> None:
    container(tmp_path, f"{PLACE}/{ADD}", STAMP)
    save(tmp_path, f"{folder}{PLACE}/{ADD}.output.0.npy")
    dump = read_dump(tmp_path)
    assert len(dump.records) == 3
    assert not dump.problems
    (note,) = dump.notes
    assert f"not read: {folder}{PLACE}/{ADD}.output.0.npy" in note


def test_msaccucmp_s_own_mapping_tells_the_names_of_converted_tensors(tmp_path: Path) -> None:
    long = f"Add.{'n' * 280}.3.5.{STAMP}.output.0.npy"
    save(tmp_path, "0f2ab1de-7d3c-3f5e-9f4b-0a1b2c3d4e5f.npy")
    (tmp_path / "mapping.csv").write_text(f"0f2ab1de-7d3c-3f5e-9f4b-0a1b2c3d4e5f.npy,{long}\n")
    assert keys(read_dump(tmp_path)) == [f"{'n' * 280}:output.0"]
    assert not find_files(tmp_path).other


@pytest.mark.parametrize("suffix", [".npy", ".ND.npy"])
def test_a_table_of_statistics_is_no_dump_that_a_tensor_was_converted_from(
    tmp_path: Path, suffix: str
) -> None:
    save(tmp_path, f"{ADD}.output.0{suffix}")
    (tmp_path / f"{ADD}.csv").write_text(
        "Input/Output,Index,Data Size,Data Type,Format,Shape,Max Value,Min Value,Avg Value,Count,Nan Count,"
        "Negative Inf Count,Positive Inf Count\nOutput,0,8,DT_FLOAT,ND,2,2,1,1.5,2,0,0,0\n"
        "Input,0,8,DT_FLOAT,ND,2,4,3,3.5,2,0,0,0\n"
    )
    dump = read_dump(tmp_path)
    assert not dump.problems
    held = {(record.key.io, record.payload is not None) for record in dump.records}
    assert {("output", True), ("input", False)} <= held
    assert all(record.stats is not None for record in dump.records)


def test_tensors_converted_beside_a_file_of_any_name_are_copies_of_it(tmp_path: Path) -> None:
    container(tmp_path, "mydump", STAMP)
    save(tmp_path, "mydump.output.0.npy")
    dump = read_dump(tmp_path)
    assert not dump.problems
    assert [record.path.name for record in dump.records] == ["mydump"] * 3
