"""Which call gave a dumped tensor: its name and bytes say so, and else nothing is said."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import ml_dtypes
import numpy as np
import pytest

from pytest_npudump.dump.records import Payload, TensorKey, TensorRecord
from pytest_npudump.reference.called_operators import CallBench
from pytest_npudump.runtime.aten.aclnn_names import may_run
from pytest_npudump.runtime.aten.call_copies import Given, Kept, digest_of
from pytest_npudump.runtime.aten.recompute import NotRecomputedError

if TYPE_CHECKING:
    from pathlib import Path

    from pytest_npudump.reference.operator_alone import Isolated
    from pytest_npudump.runtime.aten.recompute import Reading

    Array = np.ndarray[Any, np.dtype[Any]]

ONE = np.linspace(1, 2, 6, dtype=np.float32).reshape(2, 3)


@dataclass
class Doubling:
    """A call that doubles, on the CPU."""

    given: Array
    gave: Array
    name: str = "aten.mul.Tensor"
    why_not: str = ""
    results: tuple[Given, ...] = field(init=False)

    def __post_init__(self) -> None:
        self.results = (Given(0, digest_of(self.gave)),)

    @property
    def operator(self) -> str:
        return self.name.split(".")[1]

    def may_run(self, api: str) -> bool:
        return may_run(self.operator, api)

    def recomputed(self, reading: Reading) -> list[Array | None]:
        if self.why_not:
            raise NotRecomputedError(self.why_not)
        return [self.given.astype(reading.dtype or "float32") * (2 + 2**-22 * reading.moved)]

    def floats(self) -> list[Array]:
        return [self.given]


@pytest.fixture
def record(tmp_path: Path) -> Any:
    def make(array: Array, turn: int = 0, layer: str = "aclnnMul") -> TensorRecord:
        path = tmp_path / f"{layer}.{turn}"
        path.write_bytes(array.tobytes())
        key = TensorKey(layer, "output", 0, turn)
        payload = Payload(path, 0, array.nbytes)
        return TensorRecord(key, f"{layer}_L2", array.dtype.name, array.shape, path, "ND", payload=payload)

    return make


def isolated(record: TensorRecord, records: list[TensorRecord], *calls: Doubling) -> Isolated:
    found: Any = calls
    (one,) = CallBench(Kept(found)).isolate([record.key], records)
    return one


def test_the_call_that_gave_the_bytes_is_judged(record: Any) -> None:
    right, wrong = record(ONE * 2), record(ONE * np.float32(2.01), 1)
    calls = Doubling(ONE, ONE * 2), Doubling(ONE, ONE * np.float32(2.01))
    found = isolated(right, [right, wrong], *calls)
    assert (found.alone.verdict, found.call) == ("acquitted", "aten.mul.Tensor")
    assert isolated(wrong, [right, wrong], *calls).alone.verdict == "convicted"


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16, np.int64, np.bool_])
def test_values_of_every_type_are_told_by_their_bytes(record: Any, dtype: Any) -> None:
    array = (ONE > 1.5).astype(dtype)
    one = record(array)
    assert isolated(one, [one], Doubling(ONE, array)).call == "aten.mul.Tensor"


def test_each_output_judged_is_told(record: Any) -> None:
    one, told = record(ONE * 2), []
    calls: Any = (Doubling(ONE, ONE * 2),)
    CallBench(Kept(calls)).isolate([one.key], [one], lambda *steps: told.append(steps))
    assert told == [(1, 1)]


def test_calls_that_gave_the_same_are_paired_in_order(record: Any) -> None:
    first, second = record(ONE * 2), record(ONE * 2, 1)
    calls = Doubling(ONE, ONE * 2), Doubling(ONE * np.float32(1.5), ONE * 2)
    assert isolated(first, [first, second], *calls).alone.verdict == "acquitted"
    assert isolated(second, [first, second], *calls).alone.verdict == "convicted"


def test_more_tensors_than_calls_are_not_certain(record: Any) -> None:
    first, second = record(ONE * 2), record(ONE * 2, 1)
    found = isolated(first, [first, second], Doubling(ONE * np.float32(1.5), ONE * 2))
    assert found.alone.verdict == "unknown"
    assert found.alone.why == (
        "2 dumped tensors of aclnnMul have these values, and 1 calls of torch gave them: which one gave it "
        "is not certain"
    )


def test_a_call_of_another_name_is_not_taken_for_it(record: Any) -> None:
    one = record(ONE * 2)
    found = isolated(one, [one], Doubling(ONE * 3, ONE * 2, "aten.add.Tensor"))
    assert found.alone.why == "no call of torch that is known to run aclnnMul gave these values"
    assert found.call == ""


def test_a_kernel_of_a_call_is_the_call(record: Any) -> None:
    one = record(ONE * 2, layer="aclnnMul>Mul")
    assert isolated(one, [one], Doubling(ONE, ONE * 2)).alone.verdict == "acquitted"


def test_a_call_that_was_not_kept_says_why(record: Any) -> None:
    one = record(ONE * 2)
    found = isolated(one, [one], Doubling(ONE, ONE * 2, why_not="aten.mul.Tensor draws random numbers"))
    assert (found.alone.verdict, found.alone.why) == ("unknown", "aten.mul.Tensor draws random numbers")


def test_a_tensor_that_the_second_run_has_not_is_unknown(record: Any) -> None:
    found = isolated(record(ONE), [], Doubling(ONE, ONE * 2))
    assert found.alone.why == "the second run has no such tensor"


def test_as_data_it_has_a_call_and_no_model(record: Any) -> None:
    one = record(ONE * 2)
    data = isolated(one, [one], Doubling(ONE, ONE * 2)).to_json()
    assert (data["call"], data["model"], data["verdict"]) == ("aten.mul.Tensor", None, "acquitted")
