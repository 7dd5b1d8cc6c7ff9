"""Operators against references of their own: what is asked, and what the dump of an example has to hold."""

from __future__ import annotations

import json
import math
import shutil
from dataclasses import asdict
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from pytest_npudump.compare.ulps import OutputFault
from pytest_npudump.dump.arrays.decode import load
from pytest_npudump.dump.dtypes import BY_NAME
from pytest_npudump.dump.reader import read_dump
from pytest_npudump.emulator.dumps.writer import Slot, TaskFile, write
from pytest_npudump.errors import RequestError
from pytest_npudump.onnxmodels.tensor_types import from_array
from pytest_npudump.regression.attempt import GivenTensor, WrongOperator
from pytest_npudump.regression.scenes.check_op import Question, _holds, answer_of, arrays_of, problem_of_dump

HALF = np.array([1, -2, 65504], np.float16)
TORCH = """
import ml_dtypes, numpy, torch
from pytest_npudump.regression.scenes.check_op import arrays_of

given = [torch.tensor([1.5, -0.0]).to(torch.bfloat16), torch.ones(2, requires_grad=True), torch.tensor(True)]
one, two, three = arrays_of(given, "reference")
assert one.dtype == ml_dtypes.bfloat16 and one.tobytes() == numpy.array([1.5, -0.0], one.dtype).tobytes()
assert two.dtype == numpy.float32 and two.tolist() == [1.0, 1.0]
assert three.dtype == bool and three.shape == ()
"""


def answer(reference: Any, *inputs: np.ndarray, **how: Any) -> Any:
    found = answer_of(Question("Op", inputs, reference, **how))
    return tuple(SimpleNamespace(values=values, dtype=dtype) for values, dtype in found)


def test_floats_are_widened_and_integers_stay() -> None:
    seen: list[np.dtype[Any]] = []

    def reference(*given: np.ndarray) -> np.ndarray:
        seen.extend(array.dtype for array in given)
        return given[0]

    whole = np.array([1], np.int8)
    (found,) = answer(reference, HALF, whole, HALF.astype(ml_dtypes.bfloat16))
    assert seen == [np.float64, np.int8, np.float64]
    assert (found.dtype, found.values.dtype) == (np.float16, np.float64)
    seen.clear()
    answer(reference, HALF, whole, widen=False)
    assert seen == [np.float16, np.int8]


def test_a_reference_that_writes_into_its_inputs_changes_nothing() -> None:
    def reference(x: np.ndarray) -> np.ndarray:
        x[...] = 0
        return x

    for widen in (True, False):
        answer(reference, HALF, widen=widen)
        answer(reference, np.array([7]), widen=widen)
    assert HALF.tolist() == [1, -2, 65504]


def test_outputs_have_the_type_of_the_first_input_of_floats_or_of_the_reference() -> None:
    less, total = answer(lambda _, x, y: (x < y, x + y), np.array([3]), HALF, HALF.astype(np.float32))
    assert (less.dtype, total.dtype) == (np.bool_, np.float16)
    (alone,) = answer(lambda n: n / 2, np.array([3]))
    assert alone.dtype == np.float64
    (named,) = answer(lambda x: x, HALF, dtypes=["float32"])
    assert named.dtype == np.float32


def test_integers_beyond_the_type_are_no_answer_and_warnings_at_extreme_values_no_errors() -> None:
    (found,) = answer(lambda x: x / 0 * np.inf, HALF, widen=False)
    assert np.isinf(found.values).all()
    (found,) = answer(lambda _: np.array([127]), HALF, dtypes=[np.int8])
    assert found.values.dtype == np.int8
    with pytest.raises(RequestError, match="int64 with values that int8 does not hold"):
        answer(lambda _: np.array([128]), HALF, dtypes=[np.int8])
    with pytest.raises(RequestError, match="float64 with values that int8 does not hold"):
        answer(lambda x: x * np.nan, HALF, dtypes=[np.int8])


@pytest.mark.each("found", [None, "text", object(), 1j, [None]])
def test_what_is_no_array_is_refused(found: Any) -> None:
    with pytest.raises(RequestError, match=r"the reference gave .* expected arrays"):
        arrays_of(found, "reference")


@pytest.mark.e2e
def test_tensors_of_the_real_torch_become_arrays(warm_torch: Any) -> None:
    assert warm_torch.run("-c", TORCH) == (0, "", "")


DATA = Path(__file__).parents[2] / "data"
TREE = DATA / "trees" / "acl-tensor"
FORMATS = DATA / "dump" / "formats"
SAMPLES = sorted(path.stem for path in FORMATS.glob("*.npy"))


def outputs_of(op_type: str) -> list[np.ndarray]:
    records = (one for one in read_dump(TREE, stats=False).records if one.op_type == op_type)
    payloads = ((one, one.payload) for one in records if one.key.io == "output")
    return [load(payload, one.dtype, one.shape).copy() for one, payload in payloads if payload is not None]


def test_what_cann_has_dumped_of_an_operator_is_what_it_returned(tmp_path: Path) -> None:
    assert problem_of_dump(TREE, "Softmax", outputs_of("Softmax")) == ""
    (output, *_) = outputs_of("Softmax")
    for other in (output.reshape(2, 1), output.astype(np.float32), output[:, :1]):
        assert "is not what was dumped" in problem_of_dump(TREE, "Softmax", [other])
    output.view(np.uint16)[0, 0] ^= 1  # one bit apart
    told = "output 0 is not what was dumped: float16 [1, 2] was returned, and the dump has "
    assert problem_of_dump(TREE, "Softmax", [output]).startswith(told)
    problem = problem_of_dump(TREE, "Gelu", outputs_of("Softmax"))
    assert problem.startswith("it was not dumped: the dump of this example holds ")
    assert "Softmax (net/Softmax@0)" in problem
    assert problem.endswith("and no Gelu")
    assert "the dump of this example is empty" in problem_of_dump(tmp_path, "Gelu", outputs_of("Softmax"))


def test_a_part_of_what_was_dumped_is_something_else(tmp_path: Path) -> None:
    values = np.arange(8, dtype=np.float32)
    slot = Slot(from_array(BY_NAME["float32"], values), 512)
    write(str(tmp_path / "20261121051811" / "0"), TaskFile("Add", "Add", 1, 2, (), (slot,)), 1795239189932086)
    assert problem_of_dump(tmp_path, "Add", [values]) == ""
    assert "is not what was dumped" in problem_of_dump(tmp_path, "Add", [values[:4]])


def test_a_damaged_file_is_no_dump(tmp_path: Path) -> None:
    tree = shutil.copytree(TREE, tmp_path / "tree")
    softmax = next(path for path in tree.rglob("Softmax*") if path.is_file())
    softmax.write_bytes(softmax.read_bytes()[:40])
    assert problem_of_dump(tree, "Softmax", outputs_of("Softmax")).startswith("its dump cannot be read: ")


@pytest.mark.each("sample", SAMPLES)
def test_an_output_in_a_layout_of_the_device_is_told(sample: str) -> None:
    expected = np.load(FORMATS / f"{sample}.npy")
    held = [
        record
        for record in read_dump(FORMATS, stats=False).records
        if record.path.is_relative_to(FORMATS / sample) and _holds(record, expected)
    ]
    assert held


@pytest.mark.each("operator", ["Add", "aclnnAdd"])
@pytest.mark.each(
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


INFINITE = OutputFault("infinity", 1, 2, (0,), math.inf, 1.0, None, 1)


@pytest.mark.each(
    ("given", "told"),
    [
        ({}, {"output": None, "dtype": "", "shape": None, "fault": None, "problem": ""}),
        ({"problem": "no output"}, {"problem": "no output", "fault": None}),
        ({"output": 1, "dtype": "float16", "shape": (2, 3)}, {"output": 1, "shape": [2, 3]}),
        ({"fault": INFINITE}, {"fault": {**asdict(INFINITE), "index": [0], "got": "inf"}}),
    ],
)
def test_a_wrong_operator_is_plain_data(given: dict[str, Any], told: dict[str, Any]) -> None:
    inputs = GivenTensor("float16", (2,), math.inf), GivenTensor("int8", (), 3), GivenTensor("float16", (2,))
    found = json.loads(json.dumps(WrongOperator("Op", 2, inputs, Path("dump"), **given).to_json()))
    assert {name: found[name] for name in told} == told
    assert (found["operator"], found["example"], found["dump"]) == ("Op", 2, "dump")
    assert [one["there"] for one in found["inputs"]] == ["inf", 3, None]
