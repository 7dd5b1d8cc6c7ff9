"""A whole dump against a reference: what is told, what is lost, what cannot be compared."""

from __future__ import annotations

import json
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any

import ml_dtypes
import numpy as np
import pytest
from onnx import TensorProto, helper

from pytest_npudump.compare.stats.tables import compare_tables
from pytest_npudump.compare.tolerances.tolerance import Tolerances
from pytest_npudump.dump.records import Payload, Stats, TensorRecord
from pytest_npudump.dump.table import StatsTable
from pytest_npudump.explain.comparison import LAYOUT, OVERFLOW, PADDED, expect
from pytest_npudump.explain.reference import Reference
from pytest_npudump.request import DumpRequest
from tests.explain.conftest import make_record

if TYPE_CHECKING:
    from collections.abc import Callable

    from pytest_npudump.explain.comparison import ExpectedTensor
    from pytest_npudump.explain.reference import ReferenceResult

    Record = Callable[..., TensorRecord]
    Judged = Callable[..., ReferenceResult]
    Array = np.ndarray[Any, Any]


X = np.random.default_rng(4).normal(size=(2, 3)).astype(np.float32)
NODES = (("exp", "Exp", ["x"], ["a"]), ("neg", "Neg", ["a"], ["b"]))
LAYERS = {"exp": np.exp(X.astype(np.float64)), "neg": -np.exp(X.astype(np.float64))}


@pytest.fixture
def judged(write_model: Callable[..., Path]) -> Judged:
    """Judge records by a model, that of the two layers unless other nodes are named."""

    def judge(records: list[TensorRecord], *nodes: Any, model: Any = {}, **marker: Any) -> ReferenceResult:  # noqa: B006 - only read
        path = write_model(*(nodes or NODES), **model)
        request = DumpRequest(reference=path.name, **marker)
        reference = Reference.of(request, path.parent, None)
        assert reference is not None
        reference.inputs.give({"x": X}, "")
        return reference.judge(records, request)

    return judge


RECORDS = [
    make_record(f"{name}:output.0", np.round(array, 6), dtype="float32") for name, array in LAYERS.items()
]
"""The two layers as numpy computes them in float64, six digits printed."""
BARE = [replace(record, dtype="bfloat16", stats=Stats(count=6)) for record in RECORDS]
GIVEN = make_record("x:output.0", X, op_type="Data")


def told(record: TensorRecord, **stats: Any) -> TensorRecord:
    assert record.stats is not None
    return replace(record, stats=replace(record.stats, **stats))


def test_each_statistic_that_differs_fails_and_nan_and_infinities_whatever_the_tolerance(
    judged: Judged,
) -> None:
    for statistic, direction in product(("max", "min", "avg"), (-1, 1)):
        value = getattr(RECORDS[1].stats, statistic)
        off = direction * 2e-3 * float(np.abs(LAYERS["neg"]).max())
        result = judged([RECORDS[0], told(RECORDS[1], **{statistic: value + off})])
        assert result.comparison is not None
        assert [str(verdict.key) for verdict in result.comparison.failing] == ["neg:output.0"]
        assert [reason.statistic for reason in result.comparison.failing[0].reasons] == [statistic]
    for statistic in ("nan", "pos_inf", "neg_inf"):
        assert not judged([RECORDS[0], told(RECORDS[1], **{statistic: 1})], rtol=1e9, atol=1e9).good
    result = judged([RECORDS[0], told(RECORDS[1], max=float("nan"))])
    assert json.loads(json.dumps(result.to_json()))["first"] == "neg:output.0"


def test_statistic_that_one_tensor_lost_fails_and_one_that_the_reader_found_garbled_is_left_out(
    judged: Judged,
) -> None:
    result = judged([RECORDS[0], told(RECORDS[1], avg=None)])
    assert result.comparison is not None
    (verdict,) = result.comparison.failing
    assert verdict.reasons[0].rule == "the reference has a value, the dump has none"
    odd = replace(told(RECORDS[1], max=None, min=None), note="max and min are unknown")
    result = judged([RECORDS[0], odd])
    assert result.good
    (note,) = result.notes
    assert "compared in part: 1 tensor, such as neg:output.0: max and min are unknown" in note


def test_tensor_of_a_type_without_statistics_is_counted_and_nothing_but_such_is_no_agreement(
    judged: Judged,
) -> None:
    result = judged([RECORDS[0], BARE[1]])
    assert result.good
    assert result.comparison is not None
    assert result.comparison.unjudged == 1
    assert "no finite statistics on one side for 1 tensor" in result.notes[0]
    for records in (BARE, [GIVEN, *BARE]):  # values of the inputs do not stand for those of layers
        result = judged(records)
        assert not result.good
        assert result.problems[0].startswith("no value was compared with model.onnx")
    assert "the 2 tensors that operators compute" in result.problems[0]


def test_input_of_the_graph_is_no_layer_that_was_compared(judged: Judged) -> None:
    fed = make_record("exp:input.0", X)
    result = judged([GIVEN, fed, *RECORDS])
    assert result.good
    assert (result.compared, result.layers) == (2, 2)
    keys = [replace(record.key, layer=f"fused_{n}") for n, record in enumerate(RECORDS)]
    renamed = [replace(record, key=key) for record, key in zip(RECORDS, keys, strict=True)]
    result = judged([GIVEN, fed, *renamed])
    assert (result.compared, result.layers) == (0, 2)
    (problem,) = result.problems
    assert problem.startswith("nothing that an operator computes was compared: only the graph's inputs")
    assert "the dump has 'exp', 'fused_0', 'fused_1', the model 'exp', 'neg'" in problem


def test_what_only_moves_the_inputs_is_no_agreement_and_a_weight_is_none(judged: Judged) -> None:
    nodes = (("turn", "Transpose", ["x"], ["t"]), ("neg", "Neg", ["t"], ["n"]))
    turned = make_record("turn:output.0", X.T)
    result = judged([turned], *nodes)
    assert "nothing that an operator computes was compared" in result.problems[0]
    assert judged([turned, make_record("neg:output.0", -X.T)], *nodes).good
    model = {"weights": {"w": X + 1}}
    nodes = (("turn", "Transpose", ["w"], ["t"]), ("mul", "MatMul", ["x", "t"], ["y"]))
    result = judged([make_record("turn:output.0", (X + 1).T)], *nodes, model=model)
    assert result.problems == ()
    assert not judged([make_record("turn:output.0", (X + 2).T)], *nodes, model=model).good


def test_input_slot_does_not_stand_for_the_output_of_its_layer(judged: Judged) -> None:
    """The layer's input agrees; its output is one that the reference does not have."""
    fed = make_record("neg:input.0", LAYERS["exp"], dtype="float32")
    odd = make_record("neg:output.1", LAYERS["neg"], dtype="float32")
    result = judged([RECORDS[0], fed, odd], layers=("exp", "neg"))
    assert "layer 'neg', named in the marker, has no counterpart" in result.problems[0]
    assert (result.compared, result.layers) == (1, 2)
    assert judged([RECORDS[0], fed], layers=("exp", "neg")).good


def test_operators_that_cannot_show_are_told_unless_layers_were_chosen(judged: Judged) -> None:
    (note,) = judged(RECORDS[:1]).notes
    assert "nothing compared depends on 1 of 2 operators (first: neg), so that" in note
    assert judged(RECORDS[1:]).notes == ()
    assert judged(RECORDS[:1], layers=("exp",)).notes == ()


BRANCH = helper.make_graph(
    [helper.make_node("Neg", ["a"], ["n"])],
    "branch",
    [],
    [helper.make_tensor_value_info("n", TensorProto.FLOAT, (2, 3))],
)
CHOICE: dict[str, Any] = {
    "weights": {"yes": np.array([True]).reshape(())},
    "choice": {"then_branch": BRANCH, "else_branch": BRANCH},
}


def test_operator_that_a_branch_reads_is_seen_through_it_and_no_inner_part_of_a_fused_one(
    judged: Judged,
) -> None:
    nodes = ("exp", "Exp", ["x"], ["a"]), ("choice", "If", ["yes"], ["b"])
    result = judged([make_record("choice:output.0", LAYERS["neg"], dtype="float32")], *nodes, model=CHOICE)
    assert result.good, result
    assert result.notes == ()
    fused = make_record("expneg:output.0", LAYERS["neg"], dtype="float32")
    assert judged([fused], *NODES).good
    branch, model = ("choice", "If", ["yes"], ["c"]), {**CHOICE, "outputs": ("b", "c")}
    (problem,) = judged([fused], *NODES, branch, model=model).problems[:1]
    assert "no layer of the dump has a counterpart" in problem


def test_layers_that_ran_several_times_in_a_step_are_told_and_two_may_share_a_tensor_of_the_reference(
    judged: Judged, tmp_path: Path
) -> None:
    result = judged([*RECORDS, replace(RECORDS[0], key=replace(RECORDS[0].key, turn=1))])
    assert result.good
    assert (result.compared, result.layers) == (1, 2)
    assert "1 of 2 layers compared" in result.notes[0]
    tmp_path.joinpath("map.yaml").write_text("trans: exp\n")
    copied = replace(RECORDS[0], key=replace(RECORDS[0].key, layer="trans"))
    assert judged([*RECORDS, copied], reference_map="map.yaml").good


RNG = np.random.default_rng(11)
IMAGE = RNG.normal(size=(1, 5, 2, 3)).astype(np.float32)
KEY = "layer:output.0"


def reasons(found: ExpectedTensor) -> set[str]:
    """Statistics by which the two sides differ, under the preset for references."""
    comparison = compare_tables(
        StatsTable.from_records([found.golden]), StatsTable.from_records([found.actual]), Tolerances("om-net")
    )
    return {reason.statistic for verdict in comparison.failing for reason in verdict.reasons}


def stored(tmp_path: Path, array: Array) -> dict[str, Any]:
    """Fields of a record whose bytes are those of ``array``."""
    path = tmp_path / "tensor"
    path.write_bytes(array.tobytes())
    return {"payload": Payload(path, 0, array.nbytes), "shape": array.shape, "dtype": array.dtype.name}


def nc1hwc0(array: Array, padding: float = 0.0) -> Array:
    """Pack NCHW into blocks of 16 channels, as the device does, by plain indexing."""
    n, c, h, w = array.shape
    packed = np.full((n, -(-c // 16), h, w, 16), padding, array.dtype)
    for channel in range(c):
        packed[:, channel // 16, :, :, channel % 16] = array[:, channel]
    return packed


def test_shapes_that_are_one_tensor_agree_and_others_differ_even_if_statistics_agree() -> None:
    cases: tuple[tuple[tuple[int, ...] | None, str, bool], ...] = (
        ((1, 5, 2, 3), "", True),
        ((5, 2, 3), "", True),  # an axis of one left out
        ((5, 2, 3, 1), "ND", True),  # or moved
        ((1, 2, 3, 5), "NHWC", True),
        ((2, 3, 5, 1), "HWCN", True),
        (None, "", True),  # unknown
        ((1, 5, 3, 2), "", False),
        ((1, 2, 3, 5), "ND", False),
        ((1, 5, 2, 3), "NHWC", False),
        ((1, 30), "", False),
    )
    for shape, layout, alike in cases:
        fields = {"format": layout} if layout else {}
        found = reasons(expect(make_record(KEY, IMAGE, shape=shape, **fields), IMAGE))
        assert found == set() if alike else "shape" in found, (shape, layout)
    small = nc1hwc0(IMAGE[:, :, :1])[..., :4]  # with fewer elements
    assert "shape" in reasons(expect(make_record(KEY, small, format="NC1HWC0"), IMAGE))


def test_padding_in_statistics_is_no_difference_and_what_it_stands_before_is_found() -> None:
    def found(packed: Array) -> ExpectedTensor:
        return expect(make_record(KEY, packed, format="NC1HWC0"), IMAGE)

    for padding in (0.0, 7.5, -7.5):
        one = found(nc1hwc0(IMAGE, padding))
        assert (one.marks, reasons(one)) == ({PADDED}, set())
    assert reasons(found(nc1hwc0(IMAGE * np.float32(0.5)))) == {"max", "min"}
    broken = nc1hwc0(IMAGE)
    broken[0, 0, 0, 0, 0] = np.nan
    assert "nan" in reasons(found(broken))


@pytest.mark.parametrize("dtype", [np.float16, np.float32])
def test_elements_of_a_device_layout_are_compared_without_its_padding(tmp_path: Path, dtype: Any) -> None:
    packed = nc1hwc0(IMAGE.astype(dtype), padding=99.0)
    fields = {**stored(tmp_path, packed), "format": "NC1HWC0", "original_shape": IMAGE.shape}
    found = expect(make_record(KEY, None, **fields), IMAGE)
    assert reasons(found) == set()
    assert found.actual.shape == IMAGE.shape
    assert found.elements is not None
    assert found.elements.difference is not None
    error = np.abs(IMAGE.astype(dtype).astype(np.float64) - IMAGE)
    assert found.elements.difference.max_abs == pytest.approx(error.max(), rel=1e-6)
    assert found.elements.difference.count == IMAGE.size


def test_swapped_elements_show_although_statistics_agree_unless_no_layout_can_be_converted(
    tmp_path: Path,
) -> None:
    turned = np.ascontiguousarray(IMAGE[..., ::-1])
    found = expect(make_record(KEY, None, **stored(tmp_path, turned)), IMAGE)
    assert reasons(found) == set()
    assert found.elements is not None
    assert found.elements.difference is not None
    assert found.elements.difference.relative_l2 > 0.5
    fields = {**stored(tmp_path, IMAGE), "format": "NC1HWC2", "original_shape": IMAGE.shape}
    found = expect(make_record(KEY, IMAGE, **fields), IMAGE)
    assert LAYOUT in found.marks
    assert reasons(found) == set()


def test_width_of_a_type_is_no_difference_but_its_kind_is(tmp_path: Path) -> None:
    cases: tuple[tuple[Any, Any, bool], ...] = (
        (np.float16, np.float32, False),
        (np.float64, np.float32, False),
        (np.int32, np.int64, False),
        (np.uint8, np.bool_, False),
        (np.int32, np.float32, True),
        (np.float32, np.int64, True),
    )
    values = np.array([[0, 1, 1], [1, 0, 1]])
    for device, reference, differs in cases:
        by_stats = expect(make_record(KEY, values.astype(device)), values.astype(reference))
        assert ("dtype" in reasons(by_stats)) == differs
        record = make_record(KEY, None, **stored(tmp_path, values.astype(device)))
        by_elements = expect(record, values.astype(reference))
        assert ("dtype" in reasons(by_elements)) == differs
        assert (by_elements.elements is None) == differs
    wrong = expect(make_record(KEY, np.array([1, 2, 4], np.int32)), np.array([1, 2, 3]))
    assert reasons(wrong) == {"max", "avg"}


BIG = np.array([[1e5, 2.0], [-3.0, -2e6]], np.float32)


def test_values_beyond_16_bits_are_expected_to_be_infinite_or_the_largest(tmp_path: Path) -> None:
    lowest = np.finfo(np.float32).min
    mask = np.array([[lowest, 0.0]], np.float32)
    odd = np.array([[-lowest, 2.0], [0.0, 4.0]], np.float32)
    odd.view(np.uint32)[1, 0] = 0x7FA00000  # a signalling NaN gives no warning
    halves = [[np.inf, 2.0], [np.nan, 4.0]]
    with np.errstate(over="ignore"):
        cases = [
            (BIG, BIG.astype(np.float16)),
            (BIG, np.clip(BIG, -65504, 65504).astype(np.float16)),
            (mask, mask.astype(ml_dtypes.bfloat16)),
            *((odd, np.array(halves, dtype)) for dtype in (np.float16, ml_dtypes.bfloat16)),
        ]
    assert np.isinf(cases[2][1].astype(np.float32)).any()
    for reference, device in cases:
        narrow = device if reference is BIG else None  # of which statistics tell it, too
        for fields in ({}, stored(tmp_path, device)) if reference is BIG else (stored(tmp_path, device),):
            found = expect(make_record(KEY, narrow, **fields), reference)
            assert (found.marks, reasons(found)) == ({OVERFLOW}, set())


def test_an_infinity_or_an_overflow_that_one_side_does_not_have_is_a_difference() -> None:
    reference = np.array([[60000.0, 2.0], [-3.0, 4.0]], np.float32)
    found = expect(make_record(KEY, np.array([[np.inf, 2.0], [-3.0, 4.0]], np.float16)), reference)
    assert found.marks == frozenset()
    assert {"max", "pos_inf"} <= reasons(found)
    halves = np.array([[3.0, 2.0], [-3.0, 4.0]], np.float16)
    assert "max" in reasons(expect(make_record(KEY, halves), BIG))
    found = expect(make_record(KEY, BIG), BIG)
    assert (found.marks, reasons(found)) == (frozenset(), set()), "float32 does not overflow"


def test_statistics_are_compared_as_acl_computes_them_and_none_of_no_elements() -> None:
    nan = float("nan")
    for array, stats in (
        (np.array([np.nan, 1.0, 2.0]), Stats(3, nan, nan, nan, nan=1, pos_inf=0, neg_inf=0, digits=6)),
        (np.zeros((0, 4)), Stats(count=0, max=0.0, min=0.0, avg=0.0, digits=6)),
    ):
        record = make_record(KEY, None, dtype="float32", shape=array.shape, stats=stats)
        assert reasons(expect(record, array.astype(np.float32))) == set()
