"""Operators of a real model alone: the one with a fault is convicted, and no healthy one is.

The model is PP-OCR's angle classifier. In float32 the emulator dumps it; the float16 tensors are
onnxruntime's, rounded after each operator.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from pytest_npudump.dump.dtypes import BY_NAME
from pytest_npudump.dump.reader import read_dump
from pytest_npudump.dump.records import sanitise
from pytest_npudump.emulator.dumps.recorder import DumpSettings
from pytest_npudump.emulator.faults import Distortion, Faults
from pytest_npudump.emulator.onnx_model import distorted_model, load
from pytest_npudump.explain import operator_alone
from pytest_npudump.explain.dumped_operators import ModelBench
from pytest_npudump.explain.matches import NameMap
from pytest_npudump.explain.operator_alone import Search
from pytest_npudump.explain.reference_model import ReferenceModel
from pytest_npudump.explain.rounding import rounded_model
from pytest_npudump.graph.model_files import read_onnx
from pytest_npudump.onnxmodels.tensor_types import from_array
from pytest_npudump.record.edges import Edges
from tests.explain.conftest import make_record
from tests.onnxmodels.models import onnx_file, onnx_model

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from pytest_npudump.dump.records import TensorKey, TensorRecord
    from pytest_npudump.explain.operator_alone import JudgedOperator


CONV, ADD = "net/Conv@20", "net/Add@12"


@pytest.fixture(scope="module")
def reference(classifier: Path) -> ReferenceModel:
    return ReferenceModel.read(classifier)


def dumped(model: Path, folder: Path, *faults: Distortion, mode: str = "output") -> tuple[TensorRecord, ...]:
    """What the emulator dumps of the model's outputs, with these faults in it."""
    settings = DumpSettings(f"{folder}/", mode, 0, (), all_models=True)
    loaded = load(model, settings, faults=Faults([*faults]))
    clock = iter(range(1795239189932086, 1795239189942086)).__next__
    loaded.run([from_array(BY_NAME["float32"], np.load(model.with_suffix(".npz"))["x"])], clock)
    return read_dump(folder).records


def outputs(records: Sequence[TensorRecord]) -> list[TensorKey]:
    return [record.key for record in records if record.op_type != "Data"]


@pytest.fixture(scope="module")
def classified(
    classifier: Path, tmp_path_factory: pytest.TempPathFactory
) -> Callable[..., tuple[TensorRecord, ...]]:
    """Return what the emulator dumps of the classifier with these faults in it, each dumped once."""
    known: dict[tuple[Distortion, ...], tuple[TensorRecord, ...]] = {}

    def dump(*faults: Distortion) -> tuple[TensorRecord, ...]:
        if faults not in known:
            known[faults] = dumped(classifier, tmp_path_factory.mktemp("dump"), *faults)
        return known[faults]

    return dump


def layers_of(records: Sequence[TensorRecord]) -> set[str]:
    return {record.key.layer for record in records}


def judged(
    reference: ReferenceModel, records: Sequence[TensorRecord], *, plain: bool = True, every: int = 1
) -> dict[str, JudgedOperator]:
    """Operators of a dump alone, by name as the model has it; those with a fault and every third or so."""
    bench = ModelBench(reference, NameMap(), plain=plain)
    suspects = [
        key
        for at, key in enumerate(outputs(records))
        if not at % every or sanitise(key.layer) in map(sanitise, (CONV, ADD))
    ]
    found = bench.isolate(suspects, records, layers_of(records))
    return {one.key.layer: one for one in found if one.key in suspects and one.key.slot == 0}


def verdicts(found: dict[str, JudgedOperator]) -> Counter[str]:
    return Counter(one.alone.verdict for one in found.values())


def test_operators_with_a_fault_are_convicted_and_all_others_acquitted(
    reference: ReferenceModel, classified: Any
) -> None:
    faults = Distortion("classifier", CONV, 1.0001, 0.0), Distortion("classifier", ADD, 1.0, 0.01)
    found = judged(reference, classified(*faults), every=3)
    convicted = {name: one.alone.apart for name, one in found.items() if one.alone.verdict == "convicted"}
    assert set(convicted) == {CONV, ADD}
    assert convicted[CONV] == pytest.approx(1e-4, rel=1e-2)
    assert verdicts(found)["acquitted"] == len(found) - 2 > 84


def test_upstream_of_operators_that_pass_on_what_came_in_the_one_with_the_fault_is_found(
    reference: ReferenceModel, classified: Any
) -> None:
    records = classified(Distortion("classifier", CONV, 1.0001, 0.0))
    keys = outputs(records)
    at, bench = [key.layer for key in keys].index(CONV), ModelBench(reference, NameMap(), plain=True)
    found = bench.isolate([keys[at + 6]], records, layers_of(records))
    assert found[0].key == keys[at + 6]
    assert [one.key.layer for one in found if one.alone.verdict == "convicted"] == [CONV]
    assert found[-1].key.layer == CONV
    assert len(found) < 16
    few = [record for record in records if record.key in keys[at + 1 : at + 4]]
    found = bench.isolate([few[-1].key], few, set())  # only what the dump has the inputs of is judged
    assert [one.alone.verdict for one in found] == ["acquitted"] * len(found)
    assert {one.key.layer for one in found} < layers_of(few)


def test_upstream_of_an_operator_whose_weights_changed_no_cause_is_looked_for(
    reference: ReferenceModel, classified: Any
) -> None:
    records = classified(
        Distortion("classifier", CONV, 1.0001, 0.0), Distortion("classifier", ADD, 1.0, 0.01)
    )
    keys = outputs(records)
    at, bench = [key.layer for key in keys].index(CONV), ModelBench(reference, NameMap(), plain=True)
    suspect, behind = keys[at + 6], next(key for key in keys if key.layer == ADD)
    found = bench.isolate(
        [suspect], records, layers_of(records), explained=[suspect], others=[behind], search=Search(1 << 30)
    )
    assert {one.key: one.alone.verdict for one in found} == {suspect: "acquitted", behind: "convicted"}


def test_a_fault_behind_a_source_is_judged_too_within_bounds(
    reference: ReferenceModel, classified: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    records = classified(Distortion("classifier", CONV, 1.01, 0.0), Distortion("classifier", ADD, 1.01, 0.0))
    keys, bench = outputs(records), ModelBench(reference, NameMap(), own=True, plain=True)
    first, second = sorted((CONV, ADD), key=[key.layer for key in keys].index)
    (source,) = (key for key in keys if key.layer == first)
    for search, most, found, ended in (
        (None, 512, {first, second}, ""),
        (Search(1 << 30), 512, {first, second}, ""),
        (Search(1 << 30), 0, {first}, "not recomputed: 40 (limit 0)"),
        (Search(0), 512, {first}, "npudump_dump_limit was reached"),
        (Search(1 << 30, -1), 512, {first}, "the time limit of -1 s was reached"),
    ):
        monkeypatch.setattr(operator_alone, "_OTHERS", most)
        after = [key for key in keys[keys.index(source) :] if key.layer != first][:40]
        judged = bench.isolate([source], records, layers_of(records), others=after, search=search)
        convicted = {one.key.layer: one for one in judged if one.alone.verdict == "convicted"}
        assert {*convicted} == found
        assert ended in str(search or "")
        assert bool(str(search or "")) is bool(ended)
        assert all(
            str(one.pattern).startswith("every element: multiplied by 1.01") for one in convicted.values()
        )
    assert not any(one.alone.verdict == "unknown" for one in judged)


def test_an_overwritten_input_looks_like_a_wrong_kernel_where_only_outputs_were_dumped(
    tmp_path: Path,
) -> None:
    plain = chain(tmp_path / "plain.onnx")
    fault = Distortion("plain", "Relu_3", 1.1, 0.0)
    before = dumped(plain, tmp_path / "before", mode="all")
    read = dumped(
        plain, tmp_path / "read", fault, mode="all"
    )  # what the next one reads is not what was put out
    records = [
        late if late.key.layer == "MatMul_4" else early for early, late in zip(before, read, strict=True)
    ]
    for mode, verdict, inputs in (("all", "acquitted", "weights"), ("output", "convicted", "upstream")):
        seen = [one for one in records if mode == "all" or one.key.io == "output"]
        (key,) = (one.key for one in seen if one.key.layer == "MatMul_4" and one.key.io == "output")
        bench = ModelBench(ReferenceModel.read(plain), NameMap(), own=True, plain=True)
        (one,) = (one for one in bench.isolate([key], seen, layers_of(seen)) if one.key == key)
        assert (one.alone.verdict, one.inputs) == (verdict, inputs)


def test_upstream_an_approximation_that_the_golden_may_have_too_convicts_no_operator(
    reference: ReferenceModel, classified: Any
) -> None:
    for factor, changed, plain, verdict in (
        (1.001, False, False, "unknown"),
        (1.001, True, False, "convicted"),
        (1.1, False, False, "convicted"),
        (1.001, False, True, "convicted"),
    ):
        records = classified(Distortion("classifier", ADD, factor, 0.0))
        keys = outputs(records)
        at = [key.layer for key in keys].index(ADD)
        known = [str(keys[at].sanitised)] if changed else []
        bench = ModelBench(reference, NameMap(), plain=plain)
        found = bench.isolate([keys[at + 2]], records, layers_of(records), known)
        (one,) = (one for one in found if one.key == keys[at])
        assert (one.upstream, one.alone.verdict) == (True, verdict), (factor, changed, plain)
        assert one.alone.apart == pytest.approx(factor - 1, rel=1e-2)


def float16(
    reference: ReferenceModel, source: Path, folder: Path, *faults: Distortion
) -> tuple[TensorRecord, ...]:
    """Outputs of the model rounded to float16 after each operator, as npy files of a converted dump."""
    folder.mkdir()
    file = folder.with_suffix(".onnx")
    onnx.save(distorted_model(source, faults), str(file))
    rounded = rounded_model(ReferenceModel.read(file), {}, "float16")
    picture = np.load(source.with_suffix(".npz"))["x"].astype(np.float16)
    np.save(folder / "Data.x.1.3.1795239189932000.output.0.npy", picture)
    sizes = {name: 1 for node in reference.nodes for name in node.operator.outputs}
    found = dict(rounded.run({"x": picture.astype(np.float32)}, sizes))
    for node in reference.nodes:
        operator = node.operator
        for slot, name in enumerate(operator.outputs):
            array = found[name]
            assert array is not None
            kept = array.astype(np.float16) if array.dtype.kind == "f" else array
            label = f"{operator.op_type}.{operator.name.replace('/', '_')}.{operator.task}.3"
            np.save(folder / f"{label}.{1795239189932086 + operator.task}.output.{slot}.npy", kept)
    return read_dump(folder).records


def test_in_float16_healthy_operators_are_acquitted_and_faults_are_convicted_where_they_are(
    reference: ReferenceModel, classifier: Path, tmp_path: Path
) -> None:
    faults = Distortion("classifier", CONV, 1.05, 0.0), Distortion("classifier", ADD, 1.0, 0.1)
    records = float16(reference, classifier, tmp_path / "faulty", *faults)
    found = judged(reference, records, plain=False, every=3)
    convicted = {name for name, one in found.items() if one.alone.verdict == "convicted"}
    assert convicted == {sanitise(name) for name in (CONV, ADD)}
    assert verdicts(found)["acquitted"] == len(found) - 2 > 84


def small(path: Path, *nodes: onnx.NodeProto) -> Path:
    np.savez(path.with_suffix(".npz"), x=np.arange(6, dtype=np.float32).reshape(2, 3) / 7)
    return onnx_file(path, nodes, {"x": [2, 3]}, {"y": None})


def test_random_operators_and_those_whose_inputs_are_missing_are_unknown(tmp_path: Path) -> None:
    model = small(
        tmp_path / "small.onnx",
        helper.make_node("RandomNormalLike", ["x"], ["r"], name="random"),
        helper.make_node("Relu", ["r"], ["y"], name="relu"),
    )
    records = [r for r in dumped(model, tmp_path / "dump") if r.op_type != "Data"]
    found = judged(ReferenceModel.read(model), records)
    assert found["random"].alone.why == "RandomNormalLike draws random numbers"
    assert found["relu"].alone.verdict == "acquitted"
    relu = [r for r in records if r.op_type == "Relu"]
    alone = judged(ReferenceModel.read(model), relu)["relu"].alone
    assert (alone.verdict, alone.why) == ("unknown", "it reads 'r', which the second run has not dumped")


def with_graphs(path: Path) -> Path:
    """Write a Scan, a Loop and an If, which read weights and tensors of the graph around them."""
    value, node, rng = helper.make_tensor_value_info, helper.make_node, np.random.default_rng(3)
    numbers, truth = TensorProto.FLOAT, TensorProto.BOOL
    at, going = value("at", TensorProto.INT64, []), value("going", truth, [])
    summed = helper.make_graph(
        [node("MatMul", ["state", "w"], ["turned"]), node("Add", ["turned", "row"], ["next"])],
        "summed",
        [value("state", numbers, [3]), value("row", numbers, [3])],
        [value("next", numbers, [3])],
    )
    repeated = helper.make_graph(
        [node("Identity", ["going"], ["on"]), node("Sub", ["one", "early"], ["less"])],
        "repeated",
        [at, going, value("one", numbers, [3])],
        [value("on", truth, []), value("less", numbers, [3])],
    )
    branches = {
        f"{name}_branch": helper.make_graph(
            [node(op_type, ["looped", "early"], [name])], name, [], [value(name, numbers, [3])]
        )
        for name, op_type in (("then", "Mul"), ("else", "Add"))
    }
    nodes = [
        node("ReduceMax", ["x"], ["early"], name="early", axes=[0], keepdims=0),
        node("Scan", ["zero", "x"], ["scanned"], name="scan", body=summed, num_scan_inputs=1),
        node("Loop", ["times", "", "scanned"], ["looped"], name="loop", body=repeated),
        node("ReduceSum", ["looped"], ["sum"], name="sum", keepdims=0),
        node("Greater", ["sum", "none"], ["large"], name="large"),
        node("If", ["large"], ["y"], name="if", **branches),
    ]
    weights = {"w": rng.normal(size=(3, 3)).astype(np.float32), "zero": np.zeros(3, np.float32)}
    weights |= {"times": np.array(3), "none": np.array(0, np.float32)}
    np.savez(path.with_suffix(".npz"), x=rng.normal(size=(4, 3)).astype(np.float32))
    return onnx_file(path, nodes, {"x": [4, 3]}, {"y": None}, weights)


GRAPHS = ("scan", "loop", "if")


@pytest.mark.each("wrong", [(), *((name,) for name in GRAPHS), ("scan", "if"), ("early", *GRAPHS)])
def test_operators_with_graphs_inside_are_recomputed_where_these_round_as_on_the_cpu(
    tmp_path: Path, wrong: tuple[str, ...]
) -> None:
    model = with_graphs(tmp_path / "small.onnx")
    faults = (Distortion("small", name, 1.001, 0.0) for name in wrong)
    records = dumped(model, tmp_path / "dump", *faults)
    found = judged(ReferenceModel.read(model), records)
    assert {name for name, one in found.items() if one.alone.verdict == "convicted"} == {*wrong}
    assert set(verdicts(found)) <= {"convicted", "acquitted"}
    reasons = {
        name: one.alone.why for name, one in judged(ReferenceModel.read(model), records, plain=False).items()
    }
    assert {name for name, why in reasons.items() if "may round otherwise" in why} == {*GRAPHS}


def test_what_a_graph_inside_an_operator_reads_has_to_be_dumped(tmp_path: Path) -> None:
    model = with_graphs(tmp_path / "small.onnx")
    records = [r for r in dumped(model, tmp_path / "dump") if r.key.layer != "early"]
    found = judged(ReferenceModel.read(model), records)
    lacking = "it reads 'early', which the second run has not dumped"
    assert {name: found[name].alone.why for name in GRAPHS} == {"scan": "", "loop": lacking, "if": lacking}


def test_a_body_that_draws_random_numbers_is_unknown(tmp_path: Path) -> None:
    value, node = helper.make_tensor_value_info, helper.make_node
    drawn = helper.make_graph([node("RandomNormalLike", ["x"], ["r"])], "drawn", [], [value("r", 1, [2, 3])])
    nodes = [
        node("ReduceSum", ["x"], ["sum"], name="sum", keepdims=0),
        node("Greater", ["sum", "none"], ["large"], name="large"),
        node("If", ["large"], ["y"], name="if", then_branch=drawn, else_branch=drawn),
    ]
    np.savez(tmp_path / "small.npz", x=np.ones((2, 3), np.float32))
    weights = {"none": np.array(0, np.float32)}
    model = onnx_file(tmp_path / "small.onnx", nodes, {"x": [2, 3]}, {"y": None}, weights)
    found = judged(ReferenceModel.read(model), dumped(model, tmp_path / "dump"))
    assert found["if"].alone.why == "RandomNormalLike draws random numbers"


def test_an_operator_that_may_be_fused_with_the_next_is_not_convicted(tmp_path: Path) -> None:
    model = small(
        tmp_path / "small.onnx",
        helper.make_node("Neg", ["x"], ["a"], name="neg"),
        helper.make_node("Relu", ["a"], ["y"], name="relu"),
    )
    records = [
        r
        for r in dumped(model, tmp_path / "dump", Distortion("small", "neg", 2.0, 0.0))
        if r.op_type != "Relu"
    ]
    read = ReferenceModel.read(model)
    assert judged(read, records)["neg"].alone.verdict == "convicted"  # by the emulator, which fuses nothing
    alone = judged(read, records, plain=False)["neg"].alone
    assert alone.verdict == "unknown"
    assert alone.why == "relu, which alone follows it, was not dumped and may be fused into it"
    assert alone.apart == pytest.approx(1)


def test_a_mask_is_a_constant_that_makes_no_noise(tmp_path: Path) -> None:
    mask = onnx.numpy_helper.from_array(np.arange(6).reshape(2, 3) % 2 > 0)
    fill = onnx.numpy_helper.from_array(np.float32(-1e9))
    model = small(
        tmp_path / "small.onnx",
        helper.make_node("Constant", [], ["mask"], value=mask),
        helper.make_node("Constant", [], ["fill"], value=fill),
        helper.make_node("Where", ["mask", "x", "fill"], ["a"], name="where"),
        helper.make_node("LogSoftmax", ["a"], ["y"], name="log", axis=0),
    )
    records = dumped(model, tmp_path / "dump", Distortion("small", "log", 1.001, 0.0))
    assert judged(ReferenceModel.read(model), records)["log"].alone.verdict == "convicted"


def test_operators_that_read_and_write_two_integers_a_byte_are_recomputed(tmp_path: Path) -> None:
    nodes = [
        helper.make_node("Cast", ["x"], ["a"], name="to", to=TensorProto.INT4),
        helper.make_node("DequantizeLinear", ["a", "scale", "zero"], ["y"], name="from"),
    ]
    zero = helper.make_tensor("zero", TensorProto.INT4, [], [-3])
    for shape in ((7, 3), (4, 4)):
        model = tmp_path / str(shape[0]) / "small.onnx"
        proto = onnx_model(nodes, {"x": shape}, {"y": shape}, {"scale": np.array(0.5, np.float32)}, opset=21)
        proto.graph.initializer.append(zero)
        model.parent.mkdir()
        onnx.save(proto, str(model))
        np.savez(
            model.with_suffix(".npz"), x=np.random.default_rng(1).integers(-8, 8, shape).astype(np.float32)
        )
        for factor, verdict in ((1.0, "acquitted"), (1.25, "convicted")):
            fault = Distortion("small", "from", factor, 0.0)
            found = judged(
                ReferenceModel.read(model), dumped(model, tmp_path / f"{factor}-{shape[0]}", fault)
            )
            assert {name: one.alone.verdict for name, one in found.items()} == {
                "to": "acquitted",
                "from": verdict,
            }


def test_what_the_model_does_not_have_is_unknown(reference: ReferenceModel) -> None:
    record = make_record("elsewhere:output.0", np.ones(3, np.float32))
    (found,) = judged(reference, [record]).values()
    assert (found.alone.verdict, found.op_type) == ("unknown", "")
    assert found.to_json()["relative_l2"] is None


def chain(path: Path, *, first: Sequence[str] = ()) -> Path:
    """Write four products with rectifiers, none of which has a name, behind operators of types ``first``."""
    rng = np.random.default_rng(0)
    weights = {f"w{at}": rng.normal(size=(8, 8)).astype(np.float32) for at in range(4)}
    nodes, read = [], "x"
    for at, op_type in enumerate(first):
        nodes.append(helper.make_node(op_type, [read], [f"f{at}"]))
        read = f"f{at}"
    for at in range(4):
        nodes.append(helper.make_node("MatMul", [read, f"w{at}"], [f"a{at}"]))
        nodes.append(helper.make_node("Relu", [f"a{at}"], [f"b{at}"]))
        read = f"b{at}"
    np.savez(path.with_suffix(".npz"), x=rng.normal(size=(4, 8)).astype(np.float32))
    return onnx_file(path, nodes, {"x": [4, 8]}, {read: [4, 8]}, weights, name="chain")


def test_operators_without_a_name_are_not_taken_for_those_that_have_their_number(tmp_path: Path) -> None:
    device, plain = chain(tmp_path / "device.onnx", first=["Neg", "Exp"]), chain(tmp_path / "plain.onnx")
    for name, model, convicted in (("same", plain, {"MatMul_4"}), ("other", device, set[str]())):
        fault = Distortion(model.stem, "MatMul_4", 1.01, 0.0)
        records = dumped(model, tmp_path / name, fault)
        bench = ModelBench(ReferenceModel.read(plain), NameMap(), plain=True, edges=read_onnx(model))
        found = bench.isolate(outputs(records), records, layers_of(records))
        assert {one.key.layer for one in found if one.alone.verdict == "convicted"} == convicted
    assert {one.key.layer: one.alone.why for one in found}["MatMul_6"].startswith("it has no name of its own")


def test_what_fed_an_operator_is_unknown_where_nothing_tells(tmp_path: Path) -> None:
    plain = chain(tmp_path / "plain.onnx")
    records = dumped(plain, tmp_path / "dump", Distortion("plain", "Relu_3", 1.01, 0.0))
    for edges, judged in ((Edges(), 0), (read_onnx(plain), 8), (None, 8)):
        bench = ModelBench(ReferenceModel.read(plain), NameMap(), plain=True, edges=edges)
        found = bench.isolate(outputs(records), records, layers_of(records))
        assert sum(one.alone.verdict != "unknown" for one in found) == judged
