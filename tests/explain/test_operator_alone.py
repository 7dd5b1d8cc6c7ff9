"""Verdicts on one operator alone, against numpy in float64, and on what lies upstream of it."""

from __future__ import annotations

import math
from dataclasses import replace
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from onnx import TensorProto, helper

from pytest_npudump.compare.tolerances.presets import ROUNDED_ALONE
from pytest_npudump.dump.records import TensorKey
from pytest_npudump.explain.dumped_operators import DumpedOperator
from pytest_npudump.explain.operator_alone import (
    ACQUITTED,
    CERTAIN,
    CONVICTED,
    HEALTHY,
    LIKELY,
    MARGIN,
    MATCH,
    POSSIBLE,
    UNKNOWN,
    Alone,
    JudgedOperator,
    _pattern,
    judge_alone,
    judged_upstream,
    nearest_first,
)
from pytest_npudump.explain.reference_model import Node, ReferenceModel
from pytest_npudump.onnxmodels.graph import Operator
from tests.onnxmodels.models import onnx_file

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    Array = np.ndarray[Any, np.dtype[Any]]


RNG = np.random.default_rng(5)
LEFT, RIGHT = RNG.normal(size=(64, 300)), RNG.normal(size=(300, 48))
EXACT = LEFT @ RIGHT
WIDE = EXACT.astype(np.float32)


class Computed(DumpedOperator):
    """Operator whose results are known: with weights as written, of the device's type, and moved inputs."""

    _products = 0

    def _session(self, dtype: str) -> Any:
        return dtype

    def _run(self, session: Any, seed: int | None = None, *, sizes: bool = False) -> dict[str, Array]:
        assert not sizes
        written, of_type, moved = self.model
        return {"y": moved if seed is not None else of_type if session else written}


def judged(
    op_type: str,
    dtype: str,
    output: Array,
    readings: Sequence[Array],
    moved: Array | None = None,
    *,
    plain: bool = False,
    finite: bool = True,
    changes: tuple[float, float] | None = None,
) -> Alone:
    results: Any = readings[0], readings[-1], readings[0] if moved is None else moved
    node = Node(Operator("y", op_type, (), ("y",), 1), ())
    feeds = {"x": np.array([1.0 if finite else np.nan])}
    told = None if changes is None else lambda *_: changes
    return judge_alone(Computed(results, node, "y", feeds, output, dtype, "name", plain), told)


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
def test_another_order_of_summation_convicts_nobody(dtype: str) -> None:
    kind = {"bfloat16": ml_dtypes.bfloat16}.get(dtype, dtype)
    left, right = LEFT.astype(kind).astype(np.float32), RIGHT.astype(kind).astype(np.float32)
    backwards = sum(np.outer(left[:, k], right[k]) for k in reversed(range(300)))
    device = np.asarray(backwards, np.float32).astype(kind)
    found = judged("MatMul", dtype, device, [left @ right])
    assert found.verdict == ACQUITTED
    assert found.apart <= HEALTHY[dtype].usual * MARGIN


@pytest.mark.parametrize(("dtype", "unit"), [("float16", 2.0**-10), ("bfloat16", 2.0**-7)])
def test_a_large_element_on_the_brink_may_be_rounded_to_either_side(dtype: str, unit: float) -> None:
    kind = {"bfloat16": ml_dtypes.bfloat16}.get(dtype, dtype)
    wide = np.array([1 + unit / 2 * (1 - 1e-6), 1e-3, np.nan, np.inf], np.float32)
    for first, verdict in ((1 + unit, ACQUITTED), (1.0, ACQUITTED), (1 + 2 * unit, CONVICTED)):
        device = np.array([first, 1e-3, np.nan, np.inf], kind)
        assert judged("MatMul", dtype, device, [wide], plain=True).verdict == verdict
    lost = np.array([np.nan, 1e-3, np.nan, np.inf], kind)
    assert judged("MatMul", dtype, lost, [wide], plain=True).verdict == CONVICTED


@settings(max_examples=30)
@given(st.floats(1e-5, 0.5))
def test_what_is_off_by_a_factor_is_measured_and_convicted(size: float) -> None:
    found = judged("Softmax", "float32", (EXACT * (1 + size)).astype(np.float32), [WIDE])
    assert found.verdict == CONVICTED
    assert found.apart == pytest.approx(size, rel=2e-2)
    assert found.allowed == MARGIN * HEALTHY["float32"].usual


@pytest.mark.each(
    ("op_type", "dtype", "size", "plain", "verdict"),
    [
        ("MatMul", "float32", 5e-4, False, UNKNOWN),
        ("MatMul", "float32", 5e-4, True, CONVICTED),
        ("Softmax", "float32", 5e-4, False, CONVICTED),
        ("MatMul", "float32", 1e-2, False, CONVICTED),
        ("ReduceMean", "float16", 5e-3, False, UNKNOWN),
        ("ReduceMean", "float16", 5e-3, True, CONVICTED),
        ("ReduceMean", "float16", 5e-2, False, CONVICTED),
        ("ReduceMean", "bfloat16", 1e-2, False, CONVICTED),
    ],
)
def test_between_float32_and_what_a_device_may_use_instead_nothing_is_claimed(
    op_type: str, dtype: str, size: float, *, plain: bool, verdict: str
) -> None:
    kind = {"bfloat16": ml_dtypes.bfloat16}.get(dtype, dtype)
    noise = 1 + size * np.sign(RNG.normal(size=EXACT.shape))
    found = judged(op_type, dtype, (EXACT * noise).astype(kind), [WIDE], plain=plain)
    assert found.verdict == verdict
    assert bool(found.why) is (verdict == UNKNOWN)


LOGITS = RNG.normal(size=(3, 40)).astype(np.float32)


@pytest.mark.each("dtype", ["float32", "float16", "bfloat16"])
@pytest.mark.each("mask", [-1e9, -65504.0, float(np.finfo(np.float32).min)])
@pytest.mark.each(
    ("op_type", "wrong", "verdict"),
    [
        ("Where", LOGITS, ACQUITTED),
        ("Where", np.roll(LOGITS, 4, axis=1), CONVICTED),
        ("Where", LOGITS / 2, CONVICTED),
        ("Where", LOGITS + 5 * np.eye(3, 40, 1, dtype=np.float32), CONVICTED),
        ("Add", LOGITS, ACQUITTED),
        ("Add", np.roll(LOGITS, 4, axis=1), CONVICTED),
        ("Add", LOGITS / 2, CONVICTED),
    ],
)
def test_a_mask_hides_no_error_of_the_elements_beside_it(
    op_type: str, wrong: Array, verdict: str, mask: float, dtype: str
) -> None:
    kind = {"bfloat16": ml_dtypes.bfloat16}.get(dtype, dtype)
    hidden = np.broadcast_to(np.arange(40) % 4 == 0, LOGITS.shape)
    with np.errstate(over="ignore"):
        given, found = (
            np.where(hidden, mask, one.astype(kind).astype(np.float32)) for one in (LOGITS, wrong)
        )
        assert judged(op_type, dtype, found.astype(kind), [given.astype(np.float32)]).verdict == verdict


def test_an_operator_that_only_selects_gives_equal_elements() -> None:
    wide = np.where(np.arange(48) % 2, 1e4, 1e-3) * np.ones_like(WIDE)
    wrong = wide.astype(np.float32)
    wrong[0, 0] *= 1.5
    assert judged("Mul", "float32", wrong, [wide]).verdict == ACQUITTED
    found = judged("Concat", "float32", wrong, [wide])
    assert (found.verdict, found.why) == (CONVICTED, "1 of 3072 values differ from the recomputed ones")
    assert judged("Concat", "float32", wide.astype(np.float32), [wide]).verdict == ACQUITTED
    wrong[0, 1] *= 1.0002  # which another order of sums may make of it
    found = judged("Concat", "float32", wrong, [wide])
    told = JudgedOperator(TensorKey("n", "output", 0), "Concat", "m.onnx", own=True, alone=found)
    assert (found.apart < 1e-4, found.allowed, told.certainty) == (True, 0, CERTAIN)


@pytest.mark.each(
    ("op_type", "size", "changed", "expected_changed", "verdict"),
    [
        ("Tanh", 4e-6, 4e-6, 0.0, CONVICTED),  # healthy ones may be as far off, but none moves by as much
        ("Tanh", 4e-6, 4e-6, 9e-7, CONVICTED),
        ("Tanh", 4e-6, 4e-6, 3e-6, UNKNOWN),  # what its inputs give is not the golden either
        ("Tanh", 4e-6, 4e-6, math.inf, UNKNOWN),  # the golden says nothing of who is wrong
        ("Tanh", 3e-7, 5e-7, 0.0, UNKNOWN),  # as another order of sums
        ("Tanh", 4e-6, 1e-4, 1e-4, ACQUITTED),  # nearly all of the change came in with its inputs
        ("Tanh", 4e-6, 0.0, math.inf, ACQUITTED),  # it did not change
        ("Tanh", 1e-5, 1e-5, 1e-5, CONVICTED),
        ("MatMul", 5e-4, 5e-4, 0.0, CONVICTED),  # HF32 would have been the golden's, too
        ("MatMul", 5e-4, 5e-4, math.inf, UNKNOWN),
    ],
)
def test_a_change_within_what_healthy_operators_are_off_is_judged_by_the_golden(
    op_type: str, size: float, changed: float, expected_changed: float, verdict: str
) -> None:
    off = (EXACT * (1 + size)).astype(np.float32)
    found = judged(op_type, "float32", off, [WIDE], changes=(changed, expected_changed))
    assert found.verdict == verdict
    assert found.apart == pytest.approx(size, rel=0.1)
    if verdict == CONVICTED and expected_changed < changed:
        assert found.allowed == ROUNDED_ALONE["float32"]
        told = JudgedOperator(TensorKey("n", "output", 0), op_type, "m.onnx", own=True, alone=found)
        assert told.certainty == (POSSIBLE if op_type == "Tanh" else CERTAIN)
        assert found.why.endswith("; the golden matches")
    if verdict == UNKNOWN:
        assert found.why.startswith("limit " if op_type == "MatMul" else "its statistics changed by")


@pytest.mark.each(
    ("alone", "inputs", "certainty"),
    [
        (Alone(CONVICTED, 1.0, 1e-5), "dumped", CERTAIN),
        (Alone(CONVICTED, why="3 of 4 values differ"), "dumped", CERTAIN),
        (Alone(CONVICTED, 1.0, 1e-5), "upstream", LIKELY),
        (Alone(CONVICTED, 1e-4, 1e-5), "dumped", POSSIBLE),
        (Alone(CONVICTED, 1e-4, 1e-5), "upstream", POSSIBLE),
        (Alone(ACQUITTED, 0.0, 1e-5), "dumped", MATCH),
        (Alone(UNKNOWN, why="no model"), "", UNKNOWN),
    ],
)
def test_a_verdict_says_how_far_it_is_certain(alone: Alone, inputs: str, certainty: str) -> None:
    key = TensorKey("n", "output", 0)
    told = JudgedOperator(key, "Conv", "m.onnx", own=True, alone=alone, inputs=inputs)
    assert told.to_json()["certainty"] == told.certainty == certainty


def test_a_sum_that_cancels_may_be_as_far_off_as_its_inputs_make_it() -> None:
    values = RNG.normal(size=(8, 4096)).astype(np.float32)
    values -= values.mean(axis=1, keepdims=True)
    exact = values.astype(np.float64).sum(axis=1)
    wide = values.sum(axis=1)
    moved = (values * (1 + np.finfo(np.float32).eps * RNG.uniform(-1, 1, values.shape))).astype(np.float32)
    off = np.linalg.norm(exact - wide) / np.linalg.norm(wide)
    found = judged("ReduceSum", "float32", exact.astype(np.float32), [wide], moved.sum(axis=1), plain=True)
    assert (found.verdict, found.apart) == (ACQUITTED, pytest.approx(off, rel=1e-3))
    assert found.allowed > 4e-5
    assert judged("ReduceSum", "float32", exact.astype(np.float32), [wide]).verdict == CONVICTED


def test_what_float16_cannot_hold_may_be_infinite_or_its_largest_number() -> None:
    expected = np.array([7e4, -7e4, 1.0], np.float32)
    for device in ([np.inf, -np.inf, 1.0], [65504, -65504, 1.0]):
        assert judged("Mul", "float16", np.array(device, np.float16), [expected]).verdict == ACQUITTED
    swapped = np.array([-np.inf, np.inf, 1.0], np.float16)
    assert judged("Mul", "float16", swapped, [expected]).verdict == CONVICTED


def test_nan_where_the_inputs_give_numbers_convicts_unless_they_hold_nan_themselves() -> None:
    device = WIDE.copy()
    device[3, 4] = np.nan
    found = judged("Relu", "float32", device, [WIDE])
    assert (found.verdict, math.isinf(found.apart)) == (CONVICTED, True)
    assert judged("Relu", "float32", device, [WIDE], finite=False).verdict == UNKNOWN
    assert judged("Relu", "float32", device, [device]).verdict == ACQUITTED


def test_the_nearest_way_to_hold_the_weights_counts() -> None:
    halves = (LEFT @ RIGHT.astype(np.float16).astype(np.float64)).astype(np.float32)
    device = halves.astype(np.float16)
    assert judged("MatMul", "float16", device, [WIDE, halves]).verdict == ACQUITTED
    assert judged("MatMul", "float16", device, [WIDE], plain=True).verdict == CONVICTED


@pytest.mark.each(
    ("op_type", "wrong", "verdict"),
    [
        ("Shape", 0, ACQUITTED),
        ("Shape", 1, CONVICTED),
        ("ArgMax", 5, UNKNOWN),
        ("QuantizeLinear", 1, UNKNOWN),
        ("QuantizeLinear", 2, CONVICTED),
    ],
)
def test_integers_are_exact_but_for_ties_and_rounding(op_type: str, wrong: int, verdict: str) -> None:
    expected = np.arange(12, dtype=np.int64)
    device = expected.copy()
    device[7] += wrong
    alone = judged(op_type, "int32", device.astype(np.int32), [expected])
    assert alone.verdict == verdict
    assert "equal" not in alone.why  # no more is known of the values that were taken


@pytest.mark.each(
    ("given", "to", "off", "verdict"),
    [
        (np.array([2.5, 7], np.float32), TensorProto.INT32, 1, UNKNOWN),
        (np.array([1e18, 7], np.float64), TensorProto.INT64, 64, CONVICTED),
        (np.array([3, 7], np.int32), TensorProto.INT64, 1, CONVICTED),
        (np.array([True, False]), TensorProto.INT64, 1, CONVICTED),
    ],
)
def test_only_casts_of_floats_round_and_by_one_at_most(
    given: Any, to: int, off: int, verdict: str, tmp_path: Path
) -> None:
    node = helper.make_node("Cast", ["x"], ["y"], name="n", to=to)
    kind = helper.np_dtype_to_tensor_dtype(given.dtype)
    path = onnx_file(tmp_path / "m.onnx", [node], {"x": (kind, [2])}, {"y": (to, [2])}, {})
    model = ReferenceModel.read(path)
    dtype = helper.tensor_dtype_to_np_dtype(to)
    device = given.astype(dtype) + np.array([off, 0], dtype)
    operator = DumpedOperator(model, model.nodes[0], "y", {"x": given}, device, dtype.name, "")
    assert judge_alone(operator).verdict == verdict


LARGEST = np.array([[1, 3, 3, 2], [5, 5, 0, 1]], np.float32)


@pytest.mark.each(
    ("op_type", "attributes", "device", "verdict"),
    [
        ("ArgMax", {"axis": 1}, [[1], [0]], ACQUITTED),
        ("ArgMax", {"axis": 1}, [[2], [1]], ACQUITTED),
        ("ArgMax", {"axis": 1}, [[3], [1]], CONVICTED),
        ("ArgMax", {"axis": 1}, [[1], [4]], CONVICTED),
        ("ArgMax", {"axis": -1, "keepdims": 0}, [2, 0], ACQUITTED),
        ("ArgMin", {}, [[0, 0, 1, 1]], ACQUITTED),
        ("ArgMin", {}, [[0, 0, 1, 0]], CONVICTED),
        ("TopK", {}, [[2, 1], [1, 0]], ACQUITTED),
        ("TopK", {}, [[2, 3], [1, 0]], CONVICTED),
        ("TopK", {}, [[2, 2], [1, 0]], CONVICTED),
        ("TopK", {"axis": 0}, [[1, 1, 0, 0], [0, 0, 1, 1]], ACQUITTED),
    ],
)
def test_indices_are_right_where_their_values_are_as_large(
    op_type: str, attributes: dict[str, int], device: list[list[int]], verdict: str, tmp_path: Path
) -> None:
    several, output = op_type == "TopK", np.array(device)
    names = ["x", "k"] if several else ["x"]
    node = helper.make_node(op_type, names, ["values", "y"] if several else ["y"], name="n", **attributes)
    shapes: dict[str, Any] = {"y": (7, list(output.shape))}
    weights = {"k": np.array([2], np.int64)} if several else {}
    path = onnx_file(tmp_path / "m.onnx", [node], {"x": [2, 4]}, shapes, weights)
    model = ReferenceModel.read(path)
    operator = DumpedOperator(
        model, model.nodes[0], "y", {"x": LARGEST}, output.astype(np.int32), "int32", ""
    )
    found = judge_alone(operator)
    assert found.verdict == verdict
    tied = verdict == ACQUITTED and not np.array_equal(output, operator.expected())
    assert (found.why == "takes the other of equal values") == tied


def test_values_of_a_top_k_are_not_taken_for_indices(tmp_path: Path) -> None:
    node = helper.make_node("TopK", ["x", "k"], ["values", "y"], name="n")
    shapes: dict[str, Any] = {"values": (7, [1, 2]), "y": (7, [1, 2])}
    weights = {"k": np.array([2], np.int64)}
    model = ReferenceModel.read(onnx_file(tmp_path / "m.onnx", [node], {"x": (7, [1, 3])}, shapes, weights))
    data, wrong = np.array([[2, 2, 1]]), np.array([[0, 1]])
    operator = DumpedOperator(model, model.nodes[0], "values", {"x": data}, wrong, "int64", "")
    assert judge_alone(operator).verdict == CONVICTED


POWERS = (RNG.random((6, 200)) ** 12 * np.logspace(0, -9, 6)[:, None]).astype(np.float32)
FILTERS = RNG.random((200, 40)).astype(np.float32)


def _in_order(left: Array, right: Array, kind: Any = np.float32) -> Array:
    """Add one product after the other."""
    total = np.zeros((len(left), right.shape[1]), kind)
    for column, row in zip(left.T.astype(kind), right.astype(kind), strict=True):
        total = (total + np.outer(column, row)).astype(kind)
    return total


def _hf32(array: Array) -> Array:
    return (array.view(np.uint32) & np.uint32(0xFFFFE000)).view(np.float32)


@pytest.mark.each("op_type", ["MatMul", "Gemm", "Conv"])
@pytest.mark.each(
    ("left", "device", "plain", "verdict"),
    [
        (POWERS, lambda x: x @ FILTERS, True, ACQUITTED),
        (POWERS, lambda x: _in_order(x, FILTERS), True, ACQUITTED),
        (POWERS, lambda x: _in_order(x[:, ::-1], FILTERS[::-1]), True, ACQUITTED),
        (POWERS, lambda x: _hf32(x) @ _hf32(FILTERS), False, UNKNOWN),
        (POWERS, lambda x: np.where(x @ FILTERS < 1e-8, 0, x @ FILTERS), True, CONVICTED),
        (POWERS, lambda x: np.where(x @ FILTERS < 1e-8, 0, x @ FILTERS), False, CONVICTED),
        (POWERS, lambda x: (x @ FILTERS) * np.where(x @ FILTERS < 1e-8, 1.02, 1), True, CONVICTED),
        # Sums that cancel are small, and no more exact than what they are of.
        (LEFT[:6, :200], lambda x: _in_order(x, FILTERS - 0.5), True, ACQUITTED),
        (
            LEFT[:6, :200],
            lambda x: np.where(abs(x @ (FILTERS - 0.5)) < 1e-6, 0, x @ (FILTERS - 0.5)),
            True,
            ACQUITTED,
        ),
    ],
)
def test_an_error_of_small_elements_is_seen_where_no_order_of_sums_explains_it(
    op_type: str, left: Array, device: Any, verdict: str, tmp_path: Path, *, plain: bool
) -> None:
    """A device may compute convolutions by transforms, whose errors are those of large elements beside."""
    x = left.astype(np.float32)
    weights = FILTERS if left is POWERS else FILTERS - np.float32(0.5)
    output, shape = device(x).astype(np.float32), [6, 200]
    if op_type == "Conv":
        weights, x, shape = weights.T.copy()[:, :, None], x[:, :, None], [6, 200, 1]
        output = output[:, :, None]
    node = helper.make_node(
        op_type, ["x", "w"], ["y"], name="n", **({"alpha": 1.0} if op_type == "Gemm" else {})
    )
    path = onnx_file(tmp_path / "m.onnx", [node], {"x": shape}, {"y": list(output.shape)}, {"w": weights})
    model = ReferenceModel.read(path)
    operator = DumpedOperator(model, model.nodes[0], "y", {"x": x}, output, "float32", "", plain)
    wanted = ACQUITTED if op_type == "Conv" and not plain and verdict == CONVICTED else verdict
    found = judge_alone(operator)
    assert found.verdict == wanted
    assert ("than rounding explains" in found.why) == (wanted == CONVICTED)
    known = plain or op_type != "Conv"
    assert found.bounded == (wanted == ACQUITTED and known and bool(found.apart))


SMALL = np.maximum(POWERS, np.float32(1e-9))


@pytest.mark.each(
    ("op_type", "array", "held", "factor", "verdict"),
    [
        *((op_type, SMALL, 3.0, 1.01, CONVICTED) for op_type in ("Mul", "Div", "Pow")),
        ("Add", SMALL, 1e-12, 1.01, CONVICTED),
        ("Sqrt", SMALL**2, None, 1.01, CONVICTED),
        *((op_type, SMALL + 1, -0.5, 1 + 2.0**-22, ACQUITTED) for op_type in ("Mul", "Div", "Pow")),
        ("Add", 1 + SMALL, -1.0, 1.01, ACQUITTED),  # no more exact than its terms
        ("Sub", SMALL, 1e-12, 1.01, ACQUITTED),
    ],
)
def test_an_error_of_a_small_element_that_is_rounded_by_itself_is_seen(
    op_type: str, array: Array, held: float | None, factor: float, *, verdict: str, tmp_path: Path
) -> None:
    x = array.astype(np.float32)
    weights = {} if held is None else {"w": np.array([held], np.float32)}
    node = helper.make_node(op_type, ["x", *weights], ["y"], name="n")
    path = onnx_file(tmp_path / "m.onnx", [node], {"x": list(x.shape)}, {"y": list(x.shape)}, weights)
    model = ReferenceModel.read(path)
    operator = DumpedOperator(model, model.nodes[0], "y", {"x": x}, x, "float32", "", plain=True)
    output = operator.expected().copy()
    output.flat[np.where(output, np.abs(output), np.inf).argmin()] *= np.float32(factor)
    assert judge_alone(replace(operator, output=output)).verdict == verdict


def test_a_product_of_inputs_below_normal_numbers_may_be_zero(tmp_path: Path) -> None:
    """Hardware may take such inputs as 0, whatever they are multiplied by."""
    x = LEFT[:6, :64].astype(np.float32)
    x[0] *= np.float32(1e-39)
    weights = 1000 * FILTERS[:64]
    path = onnx_file(
        tmp_path / "m.onnx",
        [helper.make_node("MatMul", ["x", "w"], ["y"], name="n")],
        {"x": [6, 64]},
        {"y": [6, 200]},
        {"w": weights.astype(np.float32)},
    )
    model = ReferenceModel.read(path)
    output = np.where(np.arange(6)[:, None] == 0, 0, x @ weights).astype(np.float32)
    for plain in (True, False):
        operator = DumpedOperator(model, model.nodes[0], "y", {"x": x}, output, "float32", "", plain)
        assert judge_alone(operator).verdict != CONVICTED


def test_other_shapes_and_types_that_were_not_measured_are_said_to_be_unknown() -> None:
    turned = judged("Transpose", "float32", WIDE.T, [WIDE])
    assert (turned.verdict, turned.why) == (UNKNOWN, "its shape is [48, 64], recomputed [64, 48]")
    eight = judged("Relu", "float8_e4m3fn", WIDE, [WIDE])
    assert (eight.verdict, eight.why) == (
        UNKNOWN,
        "the error limit of a healthy operator is unknown for float8_e4m3fn",
    )


@pytest.mark.each(
    ("op_type", "plain", "verdict"),
    [
        *((kind, plain, CONVICTED) for kind in ("Slice", "Squeeze", "Gather") for plain in (True, False)),
        *((kind, plain, UNKNOWN) for kind in ("NonMaxSuppression", "Unique") for plain in (True, False)),
        ("NonZero", True, CONVICTED),
        ("NonZero", False, UNKNOWN),  # a device's buffer may be the largest one
    ],
)
def test_other_numbers_of_elements_convict_operators_whose_inputs_decide_them(
    op_type: str, verdict: str, *, plain: bool
) -> None:
    for output in (WIDE[:0], WIDE[1:]):
        alone = judged(op_type, "float32", output, [WIDE], plain=plain)
        assert alone == Alone(verdict, why=alone.why)
        assert alone.why == f"its shape is {[*output.shape]}, recomputed [64, 48]"


FED = {"f": ("d", "e"), "e": ("c",), "d": ("b",), "c": ("a",), "b": ("a",), "a": (), "other": ("a",)}


def upstream_judged(suspects: str, guilty: str = "", most: int = 9) -> list[str]:
    return [
        *judged_upstream(
            suspects.split(),
            FED.__getitem__,
            lambda place: CONVICTED if place in guilty.split() else ACQUITTED,
            most,
        )
    ]


def test_the_search_upstream_goes_to_what_is_nearest_and_ends_with_the_first_that_is_convicted() -> None:
    assert [*nearest_first("f", FED.__getitem__)] == ["d", "e", "b", "c", "a"]
    assert upstream_judged("f", "b") == ["f", "d", "e", "b"]
    assert upstream_judged("f", "f") == ["f"]
    assert upstream_judged("f a", "a") == ["f", "a"], "one that a convicted one feeds is not searched again"
    assert upstream_judged("other f", "b") == ["other", "f", "a", "d", "e", "b"]
    assert upstream_judged("f", most=3) == ["f", "d", "e", "b"]
    assert upstream_judged("f") == ["f", "d", "e", "b", "c", "a"]
    assert judged_upstream(["x"], lambda _: ("x", "y"), lambda _: ACQUITTED, 9) == ("x", "y"), "a circle"
    ended: dict[str, str] = {}
    judged_upstream(["f"], FED.__getitem__, lambda _: UNKNOWN, 1, ended=ended.__setitem__)
    assert ended == {"e": "limit 1"}, "none was recomputed"


@pytest.mark.each("dtype", ["float16", "bfloat16"])
def test_inputs_recomputed_in_32_bits_are_recognised_in_16(dtype: str) -> None:
    scores = RNG.normal(size=(16, 16)).astype(dtype)
    expected = scores.copy()
    expected[:, 11:] = -1e4
    feeds = {"scores": scores.astype(np.float32), "mask": np.zeros((1, 16), np.float32)}
    operator: Any = SimpleNamespace(dtype=dtype, output=scores, feeds=feeds, expected=lambda: expected)
    told = "the last 5 of 16 columns: the values of its input scores (100 % of the difference)"
    assert str(_pattern(operator)) == told


@pytest.mark.each(
    ("dtype", "wrong", "told"),
    [
        ("int64", {40: 900}, "one element of 64, at [40]: 1799, expected 899 (100 % of the difference)"),
        ("int64", dict.fromkeys((3, 20, 37, 54), 1),
         "4 of 64 elements: worst at [3]: 993, expected 992 (100 % of the difference)"),
        ("float32", dict.fromkeys((3, 20, 37, 54), 1),
         "4 of 64 elements: worst at [3]: 993, expected 992 (100 % of the difference)"),
        ("float32", {3: 1, 20: np.nan},
         "2 of 64 elements: worst at [20]: NaN, expected 949 (100 % of the difference)"),
        ("float32", {3: 1} | dict.fromkeys(range(0, 64, 2), 1e-3),
         "one element of 64, at [3]: 993, expected 992 (99.9 % of the difference)"),
        ("float32", dict.fromkeys((3, 4, 7, 20, 21, 37, 45, 52, 54), 1), "None"),  # whose error is known
        ("float32", dict.fromkeys(range(64), 3.5e-3) | {3: 1e-2}, "None"),  # most of it is the others'
    ],
)  # fmt: skip
def test_a_few_elements_and_integers_that_are_wrong_have_a_place(
    dtype: str, wrong: dict[int, int], told: str
) -> None:
    expected = (np.arange(64) * 997 % 1999 % 1000).astype(dtype)
    output = expected.copy()
    for place, off in wrong.items():
        output[place] += off
    operator: Any = SimpleNamespace(dtype=dtype, output=output, feeds={}, expected=lambda: expected)
    assert str(_pattern(operator)) == told


@pytest.mark.each("dtype", ["float32", "float16", "bfloat16"])
@pytest.mark.each("axis", [0, 1, 2])
@pytest.mark.each("moved", ["two", "all", "none"])
def test_lines_in_another_order_are_seen_in_spite_of_rounding(dtype: str, axis: int, moved: str) -> None:
    expected = RNG.normal(size=(12, 20, 28)).astype(np.float32)
    order = np.arange(expected.shape[axis])
    order = RNG.permutation(order) if moved == "all" else order
    order[[2, 7]] = order[[7, 2]] if moved == "two" else order[[2, 7]]
    noise = HEALTHY["float32"].usual * RNG.normal(size=expected.shape)
    output = (np.take(expected, order, axis) + noise).astype(dtype)
    operator: Any = SimpleNamespace(dtype=dtype, output=output, feeds={}, expected=lambda: expected)
    changed = np.count_nonzero(order != np.arange(order.size))
    told = {"two": "2 and 7 have changed places", "all": f": {changed} are at the place of another"}
    found = str(_pattern(operator))
    assert told[moved] in found if moved in told else "place" not in found
