"""Which call gave a dumped tensor, and whether the CPU gives it too."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import ml_dtypes
import numpy as np
import pytest

from pytest_npudump.dump.records import Payload, TensorKey, TensorRecord
from pytest_npudump.explain.called_operators import CallBench, CalledOperator
from pytest_npudump.explain.operator_alone import judge_alone
from pytest_npudump.runtime.aten import KeptRun, NotRecomputedError, Reading, digest_of, may_run

if TYPE_CHECKING:
    from pathlib import Path

    from pytest_npudump.explain.operator_alone import JudgedOperator
    from pytest_npudump.runtime.aten import Reading

    Array = np.ndarray[Any, np.dtype[Any]]
    from collections.abc import Callable


ONE = np.linspace(1, 2, 6, dtype=np.float32).reshape(2, 3)


@dataclass
class Doubling:
    """A call that doubles, on the CPU."""

    given: Array
    gave: Array
    name: str = "aten.mul.Tensor"
    why_not: str = ""
    results: tuple[tuple[int, str], ...] = field(init=False)

    def __post_init__(self) -> None:
        self.results = ((0, digest_of(self.gave)),)

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


def isolated(record: TensorRecord, records: list[TensorRecord], *calls: Doubling) -> JudgedOperator:
    found: Any = calls
    (one,) = CallBench(KeptRun(found)).isolate([record.key], records)
    return one


def test_the_call_that_gave_the_bytes_is_judged(record: Any) -> None:
    right, wrong = record(ONE * 2), record(ONE * np.float32(2.01), 1)
    calls = Doubling(ONE, ONE * 2), Doubling(ONE, ONE * np.float32(2.01))
    found = isolated(right, [right, wrong], *calls)
    assert (found.alone.verdict, found.call) == ("acquitted", "aten.mul.Tensor")
    data = found.to_json()
    assert (data["call"], data["model"], data["verdict"]) == ("aten.mul.Tensor", None, "acquitted")
    assert isolated(wrong, [right, wrong], *calls).alone.verdict == "convicted"
    kernel = record(ONE * 2, layer="aclnnMul>Mul")  # of a call, which is the call
    assert isolated(kernel, [kernel], Doubling(ONE, ONE * 2)).alone.verdict == "acquitted"


def test_values_of_every_type_are_told_by_their_bytes(record: Any) -> None:
    for dtype in (np.float16, ml_dtypes.bfloat16, np.int64, np.bool_):
        array = (ONE > 1.5).astype(dtype)
        one = record(array)
        assert isolated(one, [one], Doubling(ONE, array)).call == "aten.mul.Tensor"


def test_calls_that_gave_the_same_are_paired_in_order(record: Any) -> None:
    first, second = record(ONE * 2), record(ONE * 2, 1)
    calls: Any = Doubling(ONE, ONE * 2), Doubling(ONE * np.float32(1.5), ONE * 2)
    assert isolated(first, [first, second], *calls).alone.verdict == "acquitted"
    assert isolated(second, [first, second], *calls).alone.verdict == "convicted"


def test_where_no_call_is_known_for_certain_it_says_why(record: Any) -> None:
    one, second = record(ONE * 2), record(ONE * 2, 1)
    random, half = "aten.mul.Tensor draws random numbers", Doubling(ONE * np.float32(1.5), ONE * 2)
    several = (
        "aclnnMul: 2 dumped tensors with these values, but 1 call of torch: which call gave which "
        "is not certain"
    )
    for records, call, why, named in (
        (
            [one],
            Doubling(ONE * 3, ONE * 2, "aten.add.Tensor"),
            "no call of torch that is known to run aclnnMul gave these values",
            "",
        ),
        ([one], Doubling(ONE, ONE * 2, why_not=random), random, "aten.mul.Tensor"),
        ([], Doubling(ONE, ONE * 2), "the second run has no such tensor", ""),
        ([one, second], half, several, ""),
    ):
        found = isolated(one, records, call)
        assert (found.alone.verdict, found.alone.why, found.call) == ("unknown", why, named)


RNG = np.random.default_rng(5)
X = RNG.normal(size=(16, 33)).astype(np.float32)
WIDE = {"float32": np.float32, "float64": np.float64}


@dataclass
class NumpyCall:
    """A call of one argument."""

    compute: Callable[[Array], Array]
    given: Array
    name: str = "aten.exp.default"

    @property
    def operator(self) -> str:
        return self.name.split(".")[1]

    def recomputed(self, reading: Reading) -> list[Array | None]:
        given = self.given
        if reading.flushed:
            smallest = float(ml_dtypes.finfo(given.dtype).smallest_normal)
            given = np.where(np.abs(given.astype("f8")) < smallest, 0, given).astype(given.dtype)
        given = given.astype(WIDE[reading.dtype]) if reading.dtype and given.dtype.kind != "i" else given
        if reading.moved:
            given = given * given.dtype.type(1 + 2**-23)
        with np.errstate(all="ignore"):
            return [np.asarray(self.compute(given))]

    def floats(self) -> list[Array]:
        return [] if self.given.dtype.kind == "i" else [self.given]


def judged(call: Any, output: Array, dtype: str = "float32", **known: Any) -> Any:
    return judge_alone(CalledOperator(call, 0, dtype, output, **known))


def test_what_the_cpu_gives_too_is_acquitted_and_a_thousandth_off_convicted() -> None:
    call = NumpyCall(np.exp, X)
    for wide in ("float32", "float64"):
        assert judged(call, np.exp(X), wide=wide).verdict == "acquitted"
        found = judged(call, np.exp(X) * np.float32(1.001), wide=wide)
        assert found.verdict == "convicted"
        assert found.apart == pytest.approx(1e-3, rel=0.05)
    assert judged(call, np.exp(X)[None]).verdict == "acquitted"  # axes of one element do not count


def test_other_types_and_shapes_and_what_the_cpu_cannot_compute_are_unknown() -> None:
    call = NumpyCall(np.exp, X)
    assert "is unknown for float64" in judged(call, np.exp(X), "float64").why
    assert "its shape is [3], recomputed [16, 33]" in judged(call, np.ones(3, np.float32)).why

    def refuse(_: Array) -> Array:
        raise NotRecomputedError("no such kernel")

    found = judged(NumpyCall(refuse, X), X)
    assert (found.verdict, found.why) == ("unknown", "no such kernel")
    assert math.isnan(found.apart)


def test_one_nan_more_is_convicted_unless_the_arguments_hold_some() -> None:
    output = np.exp(X)
    output[3, 3] = np.nan
    assert judged(NumpyCall(np.exp, X), output).verdict == "convicted"
    given = X.copy()
    given[0, 0] = np.inf
    assert judged(NumpyCall(np.exp, given), output).verdict == "unknown"


def test_what_rounding_or_a_step_of_the_inputs_turns_round_is_not_convicted() -> None:
    given = np.concatenate([X + np.float32(1e4), -(X + np.float32(1e4))], 1)
    call = NumpyCall(lambda x: x.sum(1), given, "aten.sum.dim_IntList")
    output = given[:, ::-1].sum(1)
    assert judged(call, output + np.float32(1e-3)).verdict != "convicted"
    call = NumpyCall(np.sin, X * np.float32(1e20), "aten.sin.default")
    assert "1 ULP of its inputs" in judged(call, np.zeros_like(X)).why
    call = NumpyCall(lambda x: x * 0, X, "aten.native_layer_norm.default")
    assert judged(call, np.zeros_like(X)).verdict == "acquitted"
    assert "nothing but zeros" in judged(call, np.full_like(X, 1e-9)).why
    call = NumpyCall(lambda x: x.astype(np.int8), X * np.float32(1e5), "aten._to_copy.default")
    assert judged(call, np.full(X.shape, 127, np.int8), "int8").verdict == "unknown"  # which is undefined


def test_hf32_operands_excuse_a_matrix_unit_where_they_are_allowed() -> None:
    call = NumpyCall(lambda x: x @ x.T, X, "aten.mm.default")
    output = X @ X.T * np.float32(1.001)
    assert judged(call, output).verdict == "unknown"
    assert judged(call, output, plain=True).verdict == "convicted"


def test_a_number_that_the_type_cannot_hold_may_be_infinite_its_largest_or_zero() -> None:
    given = np.array([1.0, 300.0, 65504.0], np.float16)
    call = NumpyCall(np.square, given, "aten.square.default")
    for largest in (np.inf, 65504.0):
        assert judged(call, np.array([1, largest, largest], np.float16), "float16").verdict == "acquitted"
    assert judged(call, np.array([1, 0, 0], np.float16), "float16").verdict == "convicted"
    given = X * np.float32(2**-130)  # below normal numbers
    call = NumpyCall(lambda x: x * x.dtype.type(1.5), given, "aten.mul.Tensor")
    assert judged(call, np.zeros_like(X)).verdict == "acquitted"
    assert judged(call, given * np.float32(1.5)).verdict == "acquitted"


def test_rounding_inside_of_a_kernel_is_not_convicted_in_bfloat16() -> None:
    given = X.astype(ml_dtypes.bfloat16)
    call = NumpyCall(np.exp, given)
    output = np.exp(given.astype(np.float32))
    assert judged(call, output.astype(given.dtype), "bfloat16").verdict == "acquitted"
    assert judged(call, (output * 1.005).astype(given.dtype), "bfloat16").verdict == "unknown"
    assert judged(call, (output * 1.05).astype(given.dtype), "bfloat16").verdict == "convicted"


@pytest.mark.parametrize(
    ("name", "verdict"),
    [
        ("aten.lt.Scalar", "convicted"),
        ("aten.argmax.default", "unknown"),
        ("aten.remainder.Scalar", "unknown"),
    ],
)
def test_whole_numbers_are_exact_but_for_ties_and_jumps(name: str, verdict: str) -> None:
    call = NumpyCall(lambda x: (x < 0).astype(np.int64), X, name)
    output = (X < 0).astype(np.int64)
    assert judged(call, output, "int64").verdict == "acquitted"
    output[0, 0] ^= 1
    assert judged(call, output, "int64").verdict == verdict
    assert "equal" not in judged(call, output, "int64").why


@pytest.fixture(scope="module")
def found(on_real_torch: Callable[[str], Any]) -> Any:
    return on_real_torch("aten/operator_table.py")


def test_a_fault_of_a_thousandth_is_convicted_in_float32_and_no_healthy_operator(found: Any) -> None:
    """Those that jump where a quotient is almost an integer are left out: any fault may be theirs."""
    assert len(found["operators"]) >= 60
    for dtype in ("float32", "float16", "bfloat16"):
        counts = {k: v for k, v in found["healthy"].items() if k.startswith(f"torch.{dtype} ")}
        assert sum(counts.values()) > 4000
        assert counts[f"torch.{dtype} acquitted"] > 0.9 * sum(counts.values())
    assert len(found["convicted"]) < 0.005 * sum(found["healthy"].values()), found["convicted"]
    jumps = ("remainder", "floor_divide", "fmod", "Tensor_mode")
    missed = [one for one in found["missed"] if not any(jump in one[1] for jump in jumps)]
    assert len(missed) <= 0.01 * sum(found["faulty"].values()), missed
    assert found["faulty"]["convicted"] > 250
