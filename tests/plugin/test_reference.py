"""A marker with ``reference``: the layers are compared with onnxruntime's, beside or instead of a golden."""

from __future__ import annotations

import json
import shutil
import xml.etree.ElementTree as ET
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper

from pytest_npudump.errors import MissingExtraError
from pytest_npudump.explain.reference_model import ReferenceModel
from pytest_npudump.onnxmodels import sessions
from tests.onnxmodels.models import onnx_model
from tests.plugin.conftest import APPLICATION, BODY, LAYERS, Project, small_model

DUMPS = "--npudump-output=."
REFERENCE = "reference='reference.onnx'"
OTHERS_INPUTS = """
    import acl
    from pathlib import Path
    from pytest_npudump.runtime.pyacl.model import PyAclModel
    image = IMAGE
    acl.init()
    acl.rt.set_device(0)
    with PyAclModel.load(acl, Path("small.onnx"), on_run=lambda: None) as model:
        model.run(image)
"""


@pytest.fixture
def converted(project: Project) -> Project:
    """A project whose model is, so far, what the reference is."""
    project.path.joinpath("reference.onnx").write_bytes(project.path.joinpath("small.onnx").read_bytes())
    return project


def rename(path: Path, names: dict[str, str]) -> None:
    """Rename operators of an ONNX file, as GE does where it fuses them."""
    model = onnx.load(str(path))
    for node in model.graph.node:
        node.name = names.get(node.name, node.name)
    onnx.save(model, str(path))


def golden_files(project: Project) -> list[Path]:
    return [*project.path.joinpath("golden").rglob("*.yaml")]


def result_of(project: Project, *options: str) -> dict[str, Any]:
    """The result of the one test as JUnit has it."""
    project.run("--junitxml=junit.xml", *options)
    properties = ET.parse(project.path / "junit.xml").getroot().iter("property")  # noqa: S314 - written by pytest
    (found,) = [found for found in properties if found.attrib["name"] == "npudump"]
    value: dict[str, Any] = json.loads(found.attrib["value"])
    return value


def test_golden_and_reference_may_each_fail_alone_and_both(converted: Project) -> None:
    """What differs from both is not said to be accepted by an update."""
    converted.model(change=0.01)
    converted.recorded()
    converted.marked(REFERENCE)
    words = "npudump: block/conv.2:output.0: operator error or overwritten tensor, *"
    converted.run(DUMPS, failed=1, shows=words, hides="to accept:  pytest*")
    converted.golden.unlink()
    converted.model()
    converted.recorded(REFERENCE, change=0.01)
    shows = ["golden: *; mismatches: *", "to accept:  in the marker, *", "then:       pytest *"]
    converted.run(DUMPS, failed=1, shows=shows, hides="to accept:  pytest*")
    kept = "".join(path.read_text() for path in converted.path.joinpath("results").rglob("*.jsonl"))
    assert "its layers mismatch the reference" in kept
    converted.path.joinpath("reference.onnx").write_bytes(converted.path.joinpath("small.onnx").read_bytes())
    shows = ["npudump: *block/conv.2:output.0*", "to accept:  *"]
    converted.run(DUMPS, failed=1, shows=shows, hides="reference:  *")


def test_update_approves_nothing_that_differs_from_the_reference(converted: Project) -> None:
    converted.marked(REFERENCE)
    converted.model(change=0.01)
    words = "npudump: nothing was recorded: layers mismatch the reference *"
    converted.run("--npudump-update-golden", DUMPS, failed=1, shows=words)
    assert golden_files(converted) == []
    converted.model()
    converted.run("--npudump-update-golden", passed=1)
    assert len(golden_files(converted)) == 1


def test_steps_and_captures_are_compared_on_their_own_inputs(converted: Project) -> None:
    steps = """
    with npu_dump.load_model("small.onnx") as model:
        for factor in (1, 2, 3):
            model.run(IMAGE * np.float32(factor))
"""
    captures = """
    for name, factor in (("one", 1), ("two", 2)):
        with npu_dump.capture(name):
            run(npu_dump, IMAGE * np.float32(factor))
"""
    for body, more in (
        (steps, "acl_json={'dump_data': 'tensor', 'dump_mode': 'all'}"),
        (steps, "acl_json={'dump_step': '1-2'}"),
        (captures, ""),
    ):
        converted.marked(f"{REFERENCE}, {more}", body)
        found = result_of(converted)["reference"]
        assert (found["good"], found["compared"]) == (True, 4), more


def test_inputs_that_nobody_told_fail_the_test_and_may_be_told_or_dumped(converted: Project) -> None:
    unknown = "npudump: the inputs of the model are not known; *npu_dump.reference_inputs(*"
    converted.recorded(body=OTHERS_INPUTS)
    converted.marked(REFERENCE, body=OTHERS_INPUTS)
    converted.run(DUMPS, failed=1, shows=unknown, hides="to accept: *")
    converted.golden.unlink()
    shows = ["npudump: nothing was recorded: *", "also:       the inputs of the model are not known*"]
    converted.run("--npudump-update-golden", DUMPS, failed=1, shows=shows)
    assert golden_files(converted) == []
    told = f"{OTHERS_INPUTS}    npu_dump.reference_inputs({{'image': image}})\n"
    converted.marked(REFERENCE, body=told)
    converted.run(DUMPS, passed=1)
    converted.marked(REFERENCE, body=told.replace("{'image': image}", "{'image': image * 2}"))
    words = "first:      image:output.0; an input of the graph: not what the reference was fed"
    converted.run(DUMPS, failed=1, shows=words)
    converted.marked(f"{REFERENCE}, acl_json=dict(dump_data='tensor')", body=OTHERS_INPUTS)
    converted.run(DUMPS, passed=1)
    converted.marked(body="    npu_dump.reference_inputs({'image': [1.0]})\n")
    converted.run(shows="*the marker names no reference: add reference='model.onnx'*")


EXTERNAL = f"""{APPLICATION}
@pytest.mark.npu_dump(reference='reference.onnx')
def test_small(npu_dump):
    npu_dump.run([*COMMAND, "acl.json"], acl_json="acl.json", models=["small.onnx"])
"""


@pytest.mark.e2e
@pytest.mark.usefixtures("classify")
def test_program_of_its_own_process_is_compared_on_the_inputs_the_test_tells(converted: Project) -> None:
    converted.test_file(EXTERNAL)
    converted.run(DUMPS, failed=1, shows="npudump: the inputs of the model are not known; *")
    converted.test_file(EXTERNAL + '    npu_dump.reference_inputs({"image": np.load("image.npy")})\n')
    converted.model(change=0.01)
    words = "*block/conv.2:output.0: channel 0 of 2: other values (* of the difference)"
    converted.run(DUMPS, failed=1, shows=words)


def fuse(project: Project, name: str) -> None:
    """Make the model on the device run Conv and Relu as one operator called ``name``, as GE would."""
    model = onnx.load(str(project.path / "small.onnx"))
    conv, relu = model.graph.node[:2]
    body = [helper.make_node("Conv", ["i", "w"], ["t"]), helper.make_node("Relu", ["t"], ["o"])]
    opset = [helper.make_opsetid("", 17)]
    model.functions.append(helper.make_function("ge", "FusedConv", ["i", "w"], ["o"], body, opset))
    model.opset_import.append(helper.make_opsetid("ge", 1))
    fused = helper.make_node("FusedConv", [*conv.input], [*relu.output], name=name, domain="ge")
    rest = list(model.graph.node)[2:]
    del model.graph.node[:]
    model.graph.node.extend([fused, *rest])
    onnx.save(model, str(project.path / "small.onnx"))


def test_fused_operator_that_kept_one_name_fails_with_the_hint_and_passes_with_a_map(
    converted: Project,
) -> None:
    converted.marked(REFERENCE)
    fuse(converted, "block/conv.1")
    converted.run(DUMPS, failed=1, shows="*say so in the file of map=: block/conv.1: block/relu.1")
    converted.path.joinpath("map.yaml").write_text("block/conv.1: block/relu.1\n")
    converted.marked(f"{REFERENCE}, map='map.yaml'")
    converted.run(DUMPS, passed=1)


def test_layers_without_a_counterpart_are_counted_and_missed_where_the_marker_names_them(
    converted: Project,
) -> None:
    """An input that agrees with itself is no agreement."""
    small = converted.path / "small.onnx"
    rename(small, {"head/softmax": "trans_TransData_1"})
    converted.marked(REFERENCE)
    shows = [
        "npudump: note: *nothing compared depends on 1 of 4 operators (first: head/softmax)*",
        "npudump: note: *reference reference.onnx: 3 of 4 layers compared; no counterpart for Softmax 1",
        "npudump: 1 of 1 tests passed; 3 of 4 layers compared with a reference (emulator)",
    ]
    converted.run(DUMPS, passed=1, shows=shows)
    converted.marked(f"['block/conv.1', 'trans_TransData_1'], {REFERENCE}")
    words = "named in the marker, has no counterpart in reference.onnx: *"
    converted.run(DUMPS, failed=1, shows=f"npudump: layer 'trans_TransData_1', {words}")
    converted.model(change=0.5)
    rename(small, {name: f"fused_{number}" for number, name in enumerate(LAYERS, start=1)})
    converted.marked(REFERENCE)
    words = "*nothing that an operator computes was compared: *no other tensor*the dump has 'fused_1', *"
    for options in ((DUMPS,), ("--npudump-update-golden",)):
        converted.run(*options, failed=1, shows=words)
    assert golden_files(converted) == []


def test_test_that_is_skipped_without_its_reference_is_collected(project: Project) -> None:
    skip = 'skipif(not __import__("os").path.exists("reference.onnx"), reason="fetch it first")'
    marks = f'@pytest.mark.{skip}\n@pytest.mark.npu_dump(reference="gone.onnx")\n'
    project.test_file(f"{marks}def test_small(npu_dump):\n    pass\n")
    project.run(DUMPS, skipped=1)
    project.path.joinpath("reference.onnx").touch()
    project.run(DUMPS, errors=1)


def test_missing_onnxruntime_is_one_line_that_names_the_extra(converted: Project) -> None:
    def missing() -> None:
        cause = ModuleNotFoundError("No module named 'onnxruntime'", name="onnxruntime")
        raise MissingExtraError("the emulator", "onnxruntime", "emulator") from cause

    converted.patch.setattr(sessions, "onnxruntime", missing)
    with pytest.raises(MissingExtraError) as raised:
        ReferenceModel.read(converted.path / "reference.onnx")
    words = "reference= needs the package 'onnxruntime', which is not installed: pip install "
    assert str(raised.value) == f"{words}'pytest-npudump[emulator]'"


TWO_MODELS = """
    for path in ("other.onnx", "small.onnx", "small.onnx"):
        with npu_dump.load_model(path) as model:
            model.run(IMAGE * np.float32(2))
            model.run(IMAGE)
"""


def test_other_models_of_a_test_are_told_apart_by_their_layers(converted: Project) -> None:
    other = converted.path / "other.onnx"
    other.write_bytes(converted.path.joinpath("small.onnx").read_bytes())
    rename(other, {name: f"x{n}" for n, name in enumerate(LAYERS)})
    converted.marked(REFERENCE, body=TWO_MODELS)
    words = "*4 of 8 layers compared; no counterpart for Conv 2, Relu 1, Softmax 1"
    converted.run(DUMPS, passed=1, shows=words)
    converted.model(change=0.01)
    found = result_of(converted, DUMPS)["reference"]
    assert found["failed"] == 8
    assert found["first"] == "block/conv.2#model=small:output.0"


def test_part_of_a_model_is_compared_on_the_whole_models_inputs(converted: Project) -> None:
    for marker in ("acl_json={'dump_mode': 'input'}", "layers='block/*'", "layers=['block/conv.2']"):
        converted.marked(f"{REFERENCE}, {marker}")
        converted.model()
        assert result_of(converted)["reference"]["good"], marker
        converted.model(change=0.01)
        assert not result_of(converted, "-onpudump_escalate=off")["reference"]["good"], marker


def test_rules_against_the_reference_count_and_have_to_match(converted: Project) -> None:
    converted.model(change=0.01)
    rule = "{'layer': '*', 'rtol': 0.5, 'atol': 0, 'reason': 'a test', 'against': 'reference'}"
    converted.marked(f"{REFERENCE}, tolerances=[{rule}]")
    converted.run(DUMPS, passed=1)
    converted.marked(f"{REFERENCE}, tolerances=[{rule.replace('*', 'gone')}]")
    words = "*tolerance rule * of the marker matches nothing that was compared with *"
    converted.run(DUMPS, failed=1, shows=words)
    rule = "{'statistic': 'projections', 'rtol': 0, 'atol': 0, 'against': 'reference'}"
    converted.marked(f"{REFERENCE}, tolerances=[{rule}]")
    words = "*statistic=projections* of the marker matches nothing that was compared *"
    converted.run(DUMPS, failed=1, shows=words)


@pytest.mark.parametrize("fault", ["block/conv.1", "head/softmax", "weights"])
def test_the_way_out_of_a_failing_reference_works_as_it_is_typed(converted: Project, fault: str) -> None:
    """In one round, with and without tensors, from terminal or file; and there is nothing to review."""
    body = BODY
    if fault == "weights":
        path = converted.path / "reference.onnx"
        path.write_bytes(small_model(change=0.01))
    else:
        body = FAULTY.format(layer=fault) + BODY
    for dumped in ("", ", acl_json={'dump_data': 'tensor'}"):
        converted.marked(REFERENCE + dumped, body=body)
        shown = converted.run("--npudump-output=out", failed=1, hides="*pending review*").stdout.str()
        told = " ".join(shown.partition("to accept:  in the marker, ")[2].partition("\nnpudump: ")[0].split())
        if told.startswith("tolerances= with the "):
            [report] = converted.path.glob("out/dumps/*/report.txt")
            told = report.read_text().rpartition("to accept:  in the marker, ")[2]
        converted.marked(f"{REFERENCE}{dumped}, {told.partition('; list a fused')[0]}", body=body)
        converted.run(DUMPS, passed=1)
        shutil.rmtree(converted.path / "out")


FAULTY = """
    from pytest_npudump.emulator import faults
    faults.end()
    faults.distort("small", "{layer}", factor=1.01)
"""
QDQ = ("QuantizeLinear", ["scale", "zero"], {}), ("DequantizeLinear", ["scale", "zero"], {})
CASTS = ("Cast", [], {"to": onnx.TensorProto.FLOAT16}), ("Cast", [], {"to": onnx.TensorProto.FLOAT})
PREPARED = ("Sub", ["mean"], {}), ("Mul", ["twice"], {})
INSERTED = {"quantised": (0, QDQ), "cast": (0, CASTS), "prepared": (0, PREPARED), "within": (2, QDQ)}
"""By scene: before which operator the model of the device has others that the reference does not have."""


def with_inserted(
    path: Path, op_type: str, place: int, inserted: Sequence[tuple[str, list[str], Any]]
) -> None:
    """Write a product or convolution ``one``, a rectifier ``act`` and another one, ``two``."""
    rng = np.random.default_rng(3)
    kernel, image = ([], [4, 8]) if op_type == "MatMul" else ([3, 3], [1, 8, 8, 8])
    weights = {name: rng.normal(size=[8, 8, *kernel]).astype(np.float32) for name in ("w1", "w2")}
    weights |= {name: np.float32(value) for name, value in {"scale": 0.05, "mean": 0.1, "twice": 2}.items()}
    weights |= {"zero": np.int8(0)}
    nodes, read = [], "x"
    for at, (name, kind, constants) in enumerate(
        [("one", op_type, ["w1"]), ("act", "Relu", []), ("two", op_type, ["w2"])]
    ):
        for number, (other, others, how) in enumerate(inserted if at == place else ()):
            nodes.append(helper.make_node(other, [read, *others], [f"i{number}"], f"put/{number}", **how))
            read = f"i{number}"
        nodes.append(helper.make_node(kind, [read, *constants], [f"t/{name}"], name))
        read = f"t/{name}"
    arrays = {name: np.asarray(array) for name, array in weights.items()}
    onnx.save(onnx_model(nodes, {"x": image}, {read: None}, arrays, name="net"), str(path))


def test_operators_are_judged_by_what_the_device_fed_them_and_not_by_the_inputs_of_the_reference(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    scenes = [(name, op_type) for name in INSERTED for op_type in ("MatMul", "Conv")]
    source = "import os\nfrom pytest_npudump.emulator import faults\n"
    source += "EXACT = [{'against': 'reference', 'rtol': 0, 'atol': 0, 'reason': 'any change'}]\n"
    for name, op_type in scenes:
        net = f"{name}_{op_type}"
        with_inserted(project.path / f"{net}.onnx", op_type, *INSERTED[name])
        with_inserted(project.path / f"{net}.plain.onnx", op_type, 0, ())
        source += f"""
@pytest.mark.npu_dump(reference="{net}.plain.onnx", tolerances=EXACT)
def test_{net}(npu_dump):
    shape = {[4, 8] if op_type == "MatMul" else [1, 8, 8, 8]}
    faults.end()
    if os.environ["FAULT"]:
        faults.distort("{net}", os.environ["FAULT"], factor=1.01)
    with npu_dump.load_model("{net}.onnx") as model:
        model.run(np.random.default_rng(1).normal(size=shape).astype(np.float32))
"""
    project.test_file(source)
    given = {"quantised": "one", "prepared": "one", "within": "two"}
    for fault in ("", "one", "act", "two"):
        monkeypatch.setenv("FAULT", fault)
        project.run(f"--npudump-output=dumps{fault}").assert_outcomes(failed=8)
        for name, op_type in scenes:
            [path] = project.path.glob(
                f"dumps{fault}/dumps/test_small_py_test_{name}_{op_type}-*/report.json"
            )
            isolated = json.loads(path.read_text())["escalation"]["isolated"]
            judged = {one["layer"]: one["verdict"] for one in isolated}
            wrong = {layer for layer, verdict in judged.items() if verdict == "convicted"}
            known = {"one", "act", "two"} - {given.get(name, "")}
            assert wrong == {fault} & known, (fault, name, op_type, judged)
            if fault == "" and name in given:
                assert judged.pop(given[name]) == "unknown", (name, op_type, isolated)
                assert {*judged.values()} <= {"acquitted"}, (name, op_type, isolated)
