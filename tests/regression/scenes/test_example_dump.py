"""Dumps of CANN's own code against what an operator returned: the same, another's, or none."""

from __future__ import annotations

import shutil
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

from pytest_npudump.dump.arrays.decode import load
from pytest_npudump.dump.dtypes import BY_NAME
from pytest_npudump.dump.reader import read_dump
from pytest_npudump.emulator.dumps.writer import Slot, TaskFile, write
from pytest_npudump.onnxmodels.tensor_types import from_array
from pytest_npudump.regression.scenes.check_op import _holds, problem_of_dump

DATA = Path(__file__).parents[2] / "data"
TREE = DATA / "trees" / "acl-tensor"
FORMATS = DATA / "dump" / "formats"
SAMPLES = sorted(path.stem for path in FORMATS.glob("*.npy"))


def outputs_of(op_type: str) -> list[np.ndarray]:
    records = [
        record
        for record in read_dump(TREE, stats=False).records
        if record.op_type == op_type and record.key.io == "output"
    ]
    return [load(one.payload, one.dtype, one.shape).copy() for one in records if one.payload is not None]


def test_what_cann_has_dumped_of_an_operator_is_what_it_returned() -> None:
    assert problem_of_dump(TREE, "Softmax", outputs_of("Softmax")) == ""


def test_one_bit_apart_is_something_else() -> None:
    (output, *_) = outputs_of("Softmax")
    output.view(np.uint16)[0, 0] ^= 1
    problem = problem_of_dump(TREE, "Softmax", [output])
    assert problem.startswith(
        "output 0 is not what was dumped: float16 [1, 2] was returned, and the dump has "
    )


@pytest.mark.parametrize(
    "change", [lambda x: x.reshape(2, 1), lambda x: x.astype(np.float32), lambda x: x[:, :1]]
)
def test_other_shapes_and_types_are_something_else(change: object) -> None:
    (output, *_) = outputs_of("Softmax")
    assert "is not what was dumped" in problem_of_dump(TREE, "Softmax", [change(output)])  # type: ignore[operator]


def test_a_part_of_what_was_dumped_is_something_else(tmp_path: Path) -> None:
    values = np.arange(8, dtype=np.float32)
    slot = Slot(from_array(BY_NAME["float32"], values), 512)
    write(str(tmp_path / "20261121051811" / "0"), TaskFile("Add", "Add", 1, 2, (), (slot,)), 1795239189932086)
    assert problem_of_dump(tmp_path, "Add", [values]) == ""
    assert "is not what was dumped" in problem_of_dump(tmp_path, "Add", [values[:4]])


def test_another_operator_in_its_place_is_named() -> None:
    problem = problem_of_dump(TREE, "Gelu", outputs_of("Softmax"))
    assert problem.startswith("it was not dumped: the dump of this example holds ")
    assert "Softmax (net/Softmax@0)" in problem
    assert problem.endswith("and no Gelu")


def test_an_empty_directory_shows_that_nothing_ran(tmp_path: Path) -> None:
    assert "the dump of this example is empty" in problem_of_dump(tmp_path, "Gelu", outputs_of("Softmax"))


def test_a_damaged_file_is_no_dump(tmp_path: Path) -> None:
    tree = shutil.copytree(TREE, tmp_path / "tree")
    softmax = next(path for path in tree.rglob("Softmax*") if path.is_file())
    softmax.write_bytes(softmax.read_bytes()[:40])
    assert problem_of_dump(tree, "Softmax", outputs_of("Softmax")).startswith("its dump cannot be read: ")


@pytest.mark.parametrize("sample", SAMPLES)
def test_an_output_in_a_layout_of_the_device_is_told(sample: str) -> None:
    expected = np.load(FORMATS / f"{sample}.npy")
    held = [
        record
        for record in read_dump(FORMATS, stats=False).records
        if record.path.is_relative_to(FORMATS / sample) and _holds(record, expected)
    ]
    assert held


@pytest.mark.parametrize("operator", ["Add", "aclnnAdd"])
@pytest.mark.parametrize(
    ("op_type", "name"),
    [("aclnnAdd_7_L2", "aclnnAdd"), ("aclnnAdd_7_L0", "Add"), ("Add", "Add"), ("Add", "net/a")],
)
def test_an_operator_is_known_by_its_type_its_kernel_and_its_api(
    tmp_path: Path, operator: str, op_type: str, name: str
) -> None:
    values = np.arange(3).astype(ml_dtypes.bfloat16)
    slot = Slot(from_array(BY_NAME["bfloat16"], values), 512)
    folder = tmp_path / "20261121051811" / "0"
    write(str(folder), TaskFile(op_type, name, 1, 2, (), (slot,)), 1795239189932086)
    assert problem_of_dump(tmp_path, operator, [values]) == ""
    assert "it was not dumped" in problem_of_dump(tmp_path, "Mul", [values])
