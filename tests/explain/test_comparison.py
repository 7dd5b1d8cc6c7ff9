"""A whole dump against a reference: what is told, what is lost, what cannot be compared."""

from __future__ import annotations

import json
from dataclasses import replace
from itertools import product
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from onnx import TensorProto, helper

from pytest_npudump.dump.records import Stats
from pytest_npudump.explain.reference import Reference
from pytest_npudump.request import DumpRequest

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pytest_npudump.dump.records import TensorRecord
    from pytest_npudump.explain.reference import ReferenceResult

    Record = Callable[..., TensorRecord]
    Judged = Callable[..., ReferenceResult]

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


@pytest.fixture
def records(make_record: Record) -> list[TensorRecord]:
    """The two layers as numpy computes them in float64, six digits printed."""
    return [
        make_record(f"{name}:output.0", np.round(array, 6), dtype="float32") for name, array in LAYERS.items()
    ]


def told(record: TensorRecord, **stats: Any) -> TensorRecord:
    assert record.stats is not None
    return replace(record, stats=replace(record.stats, **stats))


def test_layers_are_what_numpy_computes(judged: Judged, records: list[TensorRecord]) -> None:
    result = judged(records)
    assert result.good, result
    assert (result.compared, result.layers) == (2, 2)


def test_each_statistic_that_differs_fails_and_nan_and_infinities_whatever_the_tolerance(
    judged: Judged, records: list[TensorRecord]
) -> None:
    for statistic, direction in product(("max", "min", "avg"), (-1, 1)):
        value = getattr(records[1].stats, statistic)
        off = direction * 2e-3 * float(np.abs(LAYERS["neg"]).max())
        result = judged([records[0], told(records[1], **{statistic: value + off})])
        assert result.comparison is not None
        assert [str(verdict.key) for verdict in result.comparison.failing] == ["neg:output.0"]
        assert [reason.statistic for reason in result.comparison.failing[0].reasons] == [statistic]
    for statistic in ("nan", "pos_inf", "neg_inf"):
        assert not judged([records[0], told(records[1], **{statistic: 1})], rtol=1e9, atol=1e9).good


def test_statistic_that_one_tensor_lost_fails(judged: Judged, records: list[TensorRecord]) -> None:
    result = judged([records[0], told(records[1], avg=None)])
    assert result.comparison is not None
    (verdict,) = result.comparison.failing
    assert verdict.reasons[0].rule == "the reference has a value, the dump has none"


def test_statistic_that_the_reader_found_garbled_is_left_out_and_said(
    judged: Judged, records: list[TensorRecord]
) -> None:
    odd = replace(told(records[1], max=None, min=None), note="max and min are unknown")
    result = judged([records[0], odd])
    assert result.good
    (note,) = result.notes
    assert "1 tensors were compared in part, such as neg:output.0: max and min are unknown" in note


def test_tensor_of_a_type_without_statistics_is_counted(judged: Judged, records: list[TensorRecord]) -> None:
    bare = replace(records[1], dtype="bfloat16", stats=Stats(count=6))
    result = judged([records[0], bare])
    assert result.good
    assert result.comparison is not None
    assert result.comparison.unjudged == 1
    assert "of 1 tensors the dump or the reference has no finite statistics" in result.notes[0]


def test_dump_of_nothing_but_such_tensors_is_no_agreement(
    judged: Judged, records: list[TensorRecord]
) -> None:
    bare = [replace(record, dtype="bfloat16", stats=Stats(count=6)) for record in records]
    result = judged(bare)
    assert not result.good
    assert result.problems[0].startswith("no value was compared with model.onnx")


def test_input_of_the_graph_is_no_layer_that_was_compared(
    judged: Judged, records: list[TensorRecord], make_record: Record
) -> None:
    given = make_record("x:output.0", X, op_type="Data")
    fed = make_record("exp:input.0", X)
    result = judged([given, fed, *records])
    assert result.good
    assert (result.compared, result.layers) == (2, 2)
    renamed = [
        replace(record, key=replace(record.key, layer=f"fused_{n}")) for n, record in enumerate(records)
    ]
    result = judged([given, fed, *renamed])
    assert (result.compared, result.layers) == (0, 2)
    (problem,) = result.problems
    assert problem.startswith("nothing that an operator computes was compared: only the graph's inputs")
    assert "the dump has 'exp', 'fused_0', 'fused_1', the model 'exp', 'neg'" in problem


def test_what_only_moves_the_inputs_is_no_agreement(judged: Judged, make_record: Record) -> None:
    nodes = (("turn", "Transpose", ["x"], ["t"]), ("neg", "Neg", ["t"], ["n"]))
    turned = make_record("turn:output.0", X.T)
    result = judged([turned], *nodes)
    assert "nothing that an operator computes was compared" in result.problems[0]
    assert judged([turned, make_record("neg:output.0", -X.T)], *nodes).good


def test_weight_that_is_moved_is_no_input(judged: Judged, make_record: Record) -> None:
    model = {"weights": {"w": X + 1}}
    nodes = (("turn", "Transpose", ["w"], ["t"]), ("mul", "MatMul", ["x", "t"], ["y"]))
    result = judged([make_record("turn:output.0", (X + 1).T)], *nodes, model=model)
    assert result.problems == ()
    assert not judged([make_record("turn:output.0", (X + 2).T)], *nodes, model=model).good


def test_values_of_the_inputs_do_not_stand_for_those_of_layers(
    judged: Judged, records: list[TensorRecord], make_record: Record
) -> None:
    bare = [replace(record, dtype="bfloat16", stats=Stats(count=6)) for record in records]
    result = judged([make_record("x:output.0", X, op_type="Data"), *bare])
    assert result.problems[0].startswith("no value was compared with model.onnx")
    assert "the 2 tensors that operators compute" in result.problems[0]


def test_input_slot_does_not_stand_for_the_output_of_its_layer(
    judged: Judged, records: list[TensorRecord], make_record: Record
) -> None:
    """The layer's input agrees; its output is one that the reference does not have."""
    fed = make_record("neg:input.0", LAYERS["exp"], dtype="float32")
    odd = make_record("neg:output.1", LAYERS["neg"], dtype="float32")
    result = judged([records[0], fed, odd], layers=("exp", "neg"))
    assert "layer 'neg', named in the marker, has no counterpart" in result.problems[0]
    assert (result.compared, result.layers) == (1, 2)
    assert judged([records[0], fed], layers=("exp", "neg")).good


def test_operators_that_cannot_show_are_told_unless_layers_were_chosen(
    judged: Judged, records: list[TensorRecord]
) -> None:
    first = (
        "1 of 2 operators have no influence on anything compared, so that a difference in them goes unseen"
    )
    (note,) = judged(records[:1]).notes
    assert first in note
    assert "(first: neg)" in note
    assert judged(records[1:]).notes == ()
    assert judged(records[:1], layers=("exp",)).notes == ()


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


def test_operator_that_only_a_branch_reads_is_seen_through_it(judged: Judged, make_record: Record) -> None:
    nodes = ("exp", "Exp", ["x"], ["a"]), ("choice", "If", ["yes"], ["b"])
    result = judged([make_record("choice:output.0", LAYERS["neg"], dtype="float32")], *nodes, model=CHOICE)
    assert result.good, result
    assert result.notes == ()


def test_operator_that_a_branch_reads_is_no_inner_part_of_a_fused_one(
    judged: Judged, make_record: Record
) -> None:
    nodes = (("exp", "Exp", ["x"], ["a"]), ("neg", "Neg", ["a"], ["b"]))
    fused = make_record("expneg:output.0", LAYERS["neg"], dtype="float32")
    assert judged([fused], *nodes).good
    branch, model = ("choice", "If", ["yes"], ["c"]), {**CHOICE, "outputs": ("b", "c")}
    assert (
        "no layer of the dump has a counterpart" in judged([fused], *nodes, branch, model=model).problems[0]
    )


def test_layer_that_ran_several_times_in_a_step_has_no_counterpart(
    judged: Judged, records: list[TensorRecord]
) -> None:
    again = replace(records[0], key=replace(records[0].key, turn=1))
    result = judged([*records, again])
    assert result.good
    assert (result.compared, result.layers) == (1, 2)
    assert "1 of 2 layers compared" in result.notes[0]


def test_layers_that_share_a_tensor_of_the_reference_are_told(
    judged: Judged, records: list[TensorRecord], tmp_path: Path
) -> None:
    tmp_path.joinpath("map.yaml").write_text("trans: exp\n")
    copied = replace(records[0], key=replace(records[0].key, layer="trans"))
    result = judged([*records, copied], reference_map="map.yaml")
    assert result.good
    assert any(
        "several layers were compared with one tensor of the reference: a (exp, trans)" in r
        for r in result.remarks
    )


def test_result_is_plain_json(judged: Judged, records: list[TensorRecord]) -> None:
    result = judged([records[0], told(records[1], max=float("nan"))])
    assert json.loads(json.dumps(result.to_json()))["first"] == "neg:output.0"
