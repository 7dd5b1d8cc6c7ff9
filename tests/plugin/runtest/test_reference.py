"""A marker with ``reference``: the layers are compared with onnxruntime's, beside or instead of a golden."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import xml.etree.ElementTree as ET
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

from pytest_npudump.demo import change_weights, find_model

if TYPE_CHECKING:
    from collections.abc import Sequence

    from conftest import Project


DUMPS = "--npudump-dump-dir=dumps"
REFERENCE = "reference='reference.onnx'"
OTHERS_INPUTS = """
    import acl
    from pathlib import Path
    from pytest_npudump.runtime.pyacl.model import PyAclModel
    image = np.linspace(-1, 1, 64, dtype=np.float32).reshape(1, 1, 8, 8)
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
    return (
        [*project.path.joinpath("golden").rglob("*.yaml")] if project.path.joinpath("golden").exists() else []
    )


def result_of(project: Project, *options: str) -> dict[str, Any]:
    """The result of the one test as JUnit has it."""
    project.run("--junitxml=junit.xml", *options)
    properties = ET.parse(project.path / "junit.xml").getroot().iter("property")  # noqa: S314 - written by pytest
    (found,) = [found for found in properties if found.attrib["name"] == "npudump"]
    value: dict[str, Any] = json.loads(found.attrib["value"])
    return value


def test_unchanged_model_passes_without_a_golden_and_says_so(converted: Project) -> None:
    converted.marked(REFERENCE)
    result = converted.run(DUMPS)
    result.assert_outcomes(passed=1)
    result.stdout.fnmatch_lines(
        [
            "npudump: note: *there is no golden test_small.yaml: the layers were compared with the *",
            "npudump: 1 of 1 tests good, 4 of 4 layers compared with a reference (emulator)",
        ]
    )
    assert golden_files(converted) == []


def test_changed_weight_fails_first_at_its_layer_and_is_explained_element_by_element(
    converted: Project,
) -> None:
    converted.marked(REFERENCE)
    converted.model(change=0.01)
    result = converted.run(DUMPS)
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(
        [
            "npudump: against the reference reference.onnx: block/conv.2 (Conv output.0) differs: *",
            "reference:  2 of 5 tensors fail against reference.onnx; 4 of 4 layers have a counterpart",
            "*output 0 of block/conv.2 is the first mismatch*",
            "  layer         type     tensor    statistic *reference *actual *allowed *off by",
            "  block/conv.2  Conv     output.0 *",
            "  head/softmax  Softmax  output.0 *",
            "*rule: rtol=5e-06 * (preset same)",
            "second run: the failure reproduced (5 layers dumped as tensors)",
            "alone:      block/conv.2:output.0 is CONVICTED: *",
            "*block/conv.2:output.0: against the reference tensor: max abs 0.29*",
            "*worst at *: reference *, actual *",
            "to accept: *'against': 'reference', 'layer': 'block/conv.2'*",
        ]
    )
    result.stdout.no_fnmatch_line("*to approve*")
    result.stdout.no_fnmatch_line("*to create*")
    finding = converted.report()["escalation"]["findings"][0]  # type: ignore[index]
    assert finding["reference"]["max_abs"] == pytest.approx(changed_by(converted), rel=1e-5)


def changed_by(project: Project) -> float:
    """How far the second Conv of the two models is apart, in numpy and float64."""
    found = []
    for name in ("reference.onnx", "small.onnx"):
        weights = {
            tensor.name: numpy_helper.to_array(tensor).astype(np.float64)
            for tensor in onnx.load(str(project.path / name)).graph.initializer
        }
        image = np.linspace(-1, 1, 64, dtype=np.float32).reshape(1, 8, 8).astype(np.float64)
        hidden = np.maximum(convolve(image, weights["w1"]), 0)
        found.append(convolve(hidden, weights["w2"]))
    return float(np.abs(found[1] - found[0]).max())


def convolve(image: np.ndarray[Any, Any], weights: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    windows = np.lib.stride_tricks.sliding_window_view(image, weights.shape[2:], axis=(1, 2))
    return np.einsum("chwij,ocij->ohw", windows, weights)


def test_golden_and_reference_must_both_hold(converted: Project) -> None:
    converted.marked(REFERENCE)
    converted.record()
    converted.run(DUMPS).assert_outcomes(passed=1)
    converted.model(change=0.01)
    result = converted.run(DUMPS)
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(
        [
            "npudump: block/conv.2 *",
            "golden: *2 of 5 tensors*",
            "reference:  2 of *",
            "to accept: *",
            "to approve: *",
        ]
    )
    text = result.stdout.str()
    assert len(text[text.index("npudump: block/conv.2") : text.index("to approve")].splitlines()) < 30


def test_reference_alone_may_fail_while_the_golden_holds(converted: Project) -> None:
    converted.marked()
    converted.model(change=0.01)
    converted.record()
    converted.marked(REFERENCE)
    result = converted.run(DUMPS)
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["npudump: against the reference *"])
    result.stdout.no_fnmatch_line("*to approve*")


def test_golden_alone_may_fail_while_the_reference_holds(converted: Project) -> None:
    converted.marked(REFERENCE)
    converted.record()
    converted.model(change=0.01)
    converted.path.joinpath("reference.onnx").write_bytes(converted.path.joinpath("small.onnx").read_bytes())
    result = converted.run(DUMPS)
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["npudump: block/conv.2 *", "to approve: *"])
    result.stdout.no_fnmatch_line("reference:  *")


def test_update_approves_nothing_that_differs_from_the_reference(converted: Project) -> None:
    converted.marked(REFERENCE)
    converted.model(change=0.01)
    result = converted.run("--npudump-update-golden", DUMPS)
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(
        ["npudump: nothing was recorded: the layers are not shown to agree with the reference *"]
    )
    assert golden_files(converted) == []
    converted.model()
    converted.run("--npudump-update-golden").assert_outcomes(passed=1)
    assert len(golden_files(converted)) == 1


def test_update_with_golden_tensors_records_what_agrees(converted: Project) -> None:
    converted.marked(f"{REFERENCE}, golden_tensors=['block/conv.2']")
    converted.record()
    assert converted.golden.with_suffix(".safetensors").exists()
    converted.model(change=0.01)
    before = converted.golden.read_bytes()
    converted.run("--npudump-update-golden", DUMPS).assert_outcomes(failed=1)
    assert converted.golden.read_bytes() == before


@pytest.mark.parametrize("data", ["stats", "tensor"])
def test_every_step_is_compared_on_its_own_inputs(converted: Project, data: str) -> None:
    body = """
    image = np.linspace(-1, 1, 64, dtype=np.float32).reshape(1, 1, 8, 8)
    with npu_dump.load_model("small.onnx") as model:
        for factor in (1, 2, 3):
            model.run(image * np.float32(factor))
"""
    converted.marked(f"{REFERENCE}, dump_data={data!r}, dump_mode='all'", body=body)
    result = result_of(converted)
    assert result["reference"]["good"]
    assert result["reference"]["compared"] == 4
    converted.marked(f"{REFERENCE}, dump_data={data!r}, dump_step='1-2'", body=body)
    assert result_of(converted)["reference"]["good"]


def test_inputs_that_nobody_told_fail_the_test(converted: Project) -> None:
    converted.marked(REFERENCE, body=OTHERS_INPUTS)
    result = converted.run(DUMPS)
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(
        ["npudump: the inputs of the model are not known: *npu_dump.reference_inputs(*"]
    )


def test_inputs_may_be_told_by_the_test(converted: Project) -> None:
    told = f"{OTHERS_INPUTS}    npu_dump.reference_inputs({{'image': image}})\n"
    converted.marked(REFERENCE, body=told)
    converted.run(DUMPS).assert_outcomes(passed=1)
    converted.marked(REFERENCE, body=told.replace("{'image': image}", "{'image': image * 2}"))
    result = converted.run(DUMPS)
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*output 0 of image is the first mismatch: it is an input of the graph*"])


def test_inputs_are_taken_from_a_dump_of_tensors(converted: Project) -> None:
    converted.marked(f"{REFERENCE}, dump_data='tensor'", body=OTHERS_INPUTS)
    converted.run(DUMPS).assert_outcomes(passed=1)
    converted.model(change=0.01)
    result = converted.run(DUMPS)
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*block/conv.2:output.0: against the reference tensor: *"])


EXTERNAL = """
import sys
START = (
    "import sys, runpy; from pytest_npudump.emulator.install import install; install(); "
    "sys.argv = sys.argv[1:]; runpy.run_path(sys.argv[0], run_name='__main__')"
)
COMMAND = [sys.executable, "-c", START, "classify.py", "small.om", "image.npy", "result.npy", "acl.json"]

@pytest.mark.npu_dump(reference='reference.onnx')
def test_small(npu_dump):
    npu_dump.run(COMMAND, acl_json="acl.json", models=["small.onnx"])
"""


def test_program_of_its_own_process_is_compared_on_the_inputs_the_test_tells(converted: Project) -> None:
    shutil.copy(Path(__file__).parents[2] / "data" / "emulator" / "classify.py", converted.path)
    np.save(converted.path / "image.npy", np.linspace(-1, 1, 64, dtype=np.float32).reshape(1, 1, 8, 8))
    converted.test_file(EXTERNAL)
    result = converted.run(DUMPS)
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["npudump: the inputs of the model are not known: *"])
    told = '    npu_dump.reference_inputs({"image": np.load("image.npy")})\n'
    converted.test_file(EXTERNAL + told)
    converted.run(DUMPS).assert_outcomes(passed=1)
    converted.model(change=0.01)
    result = converted.run(DUMPS)
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*block/conv.2:output.0: against the reference tensor: max abs 0.29*"])


def test_reference_inputs_without_a_reference_are_an_error(project: Project) -> None:
    project.marked(body="    npu_dump.reference_inputs({'image': [1.0]})\n")
    result = project.run()
    result.stdout.fnmatch_lines(["*the marker names no reference: add reference='model.onnx'*"])


def test_captures_have_inputs_of_their_own(converted: Project) -> None:
    converted.marked(
        REFERENCE,
        body="""
    image = np.linspace(-1, 1, 64, dtype=np.float32).reshape(1, 1, 8, 8)
    for name, factor in (("one", 1), ("two", 2)):
        with npu_dump.capture(name), npu_dump.load_model("small.onnx") as model:
            model.run(image * np.float32(factor))
""",
    )
    assert result_of(converted)["reference"]["good"]


@pytest.mark.e2e
def test_test_in_a_process_of_its_own_is_compared_too(converted: Project) -> None:
    converted.marked(f"{REFERENCE}, isolation='process'")
    converted.run(DUMPS).assert_outcomes(passed=1)
    converted.model(change=0.01)
    result = converted.run(DUMPS)
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(
        ["npudump: against the reference *", "*against the reference tensor: max abs 0.29*"]
    )


FUSED = {"block/conv.1": "block/conv.1block/relu.1"}


def fuse(project: Project, name: str) -> None:
    """Make the model on the device run Conv and Relu as one operator called ``name``, as GE would."""
    model = onnx.load(str(project.path / "small.onnx"))
    conv, relu = model.graph.node[:2]
    body = [
        helper.make_node("Conv", ["i", "w"], ["t"]),
        helper.make_node("Relu", ["t"], ["o"]),
    ]
    opset = [helper.make_opsetid("", 17)]
    model.functions.append(helper.make_function("ge", "FusedConv", ["i", "w"], ["o"], body, opset))
    model.opset_import.append(helper.make_opsetid("ge", 1))
    fused = helper.make_node("FusedConv", [*conv.input], [*relu.output], name=name, domain="ge")
    rest = list(model.graph.node)[2:]
    del model.graph.node[:]
    model.graph.node.extend([fused, *rest])
    onnx.save(model, str(project.path / "small.onnx"))


def test_fused_operator_of_joined_names_is_compared_with_the_last_one(converted: Project) -> None:
    converted.marked(f"{REFERENCE}, dump_data='tensor'")
    fuse(converted, "block/conv.1block/relu.1")
    found = result_of(converted)["reference"]
    assert found["good"]
    assert (found["compared"], found["layers"]) == (3, 3)


def test_fused_operator_that_kept_one_name_fails_with_the_hint_and_passes_with_a_map(
    converted: Project,
) -> None:
    converted.marked(REFERENCE)
    fuse(converted, "block/conv.1")
    result = converted.run(DUMPS)
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*say so in the reference_map: block/conv.1: block/relu.1"])
    converted.path.joinpath("map.yaml").write_text("block/conv.1: block/relu.1\n")
    converted.marked(f"{REFERENCE}, reference_map='map.yaml'")
    converted.run(DUMPS).assert_outcomes(passed=1)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "block/conv.1: block/relu.2\n",
            "*map.yaml, line 1: the reference has no node or tensor*did you mean*",
        ),
        (
            "gone*: block/relu.1\n",
            "*map.yaml, line 1: no layer of the dump is called 'gone?'; correct or remove*",
        ),
        ("- a\n", "*map.yaml, line 1: expected a mapping at the top level*"),
    ],
)
def test_map_that_says_nothing_true_fails_the_test(converted: Project, text: str, message: str) -> None:
    converted.path.joinpath("map.yaml").write_text(text)
    converted.marked(f"{REFERENCE}, reference_map='map.yaml'")
    result = converted.run(DUMPS)
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines([message])


def test_layers_without_a_counterpart_are_counted(converted: Project) -> None:
    rename(converted.path / "small.onnx", {"head/softmax": "trans_TransData_1"})
    converted.marked(REFERENCE)
    result = converted.run(DUMPS)
    result.assert_outcomes(passed=1)
    result.stdout.fnmatch_lines(
        [
            "npudump: note: *1 of 4 operators have no influence on anything compared*(first: head/softmax)*",
            "npudump: note: *reference reference.onnx: 3 of 4 layers compared; no counterpart for Softmax 1",
            "npudump: 1 of 1 tests good, 3 of 4 layers compared with a reference (emulator)",
        ]
    )


def test_layer_of_the_marker_without_a_counterpart_fails_the_test(converted: Project) -> None:
    rename(converted.path / "small.onnx", {"head/softmax": "other"})
    converted.marked(f"['block/conv.1', 'other'], {REFERENCE}")
    result = converted.run(DUMPS)
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(
        ["npudump: layer 'other', named in the marker, has no counterpart in reference.onnx: *"]
    )


def test_model_without_any_counterpart_fails_the_test(converted: Project) -> None:
    names = ("block/conv.1", "block/relu.1", "block/conv.2", "head/softmax")
    rename(converted.path / "small.onnx", {name: f"other{n}" for n, name in enumerate(names)})
    converted.marked(f"'other*', {REFERENCE}")
    result = converted.run(DUMPS)
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(
        ["npudump: no layer of the dump has a counterpart in reference.onnx: *reference_map=*"]
    )


@pytest.mark.parametrize(
    ("marker", "message"),
    [
        (
            "reference='gone.onnx'",
            "reference: there is no file *gone.onnx; name an ONNX model, relative to *",
        ),
        (
            f"{REFERENCE}, reference_map='gone.yaml'",
            "reference_map: there is no file *gone.yaml; name a YAML *",
        ),
        ("graph='gone.om'", "graph: there is no file *gone.om; name a file of the model's graph, *"),
    ],
)
def test_missing_file_is_an_error_at_collection(converted: Project, marker: str, message: str) -> None:
    converted.marked(marker)
    result = converted.run(DUMPS)
    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines([f"npu_dump: test_small.py::test_small: {message}"])


def test_test_that_is_skipped_without_its_reference_is_collected(project: Project) -> None:
    source = """
        from pathlib import Path

        @pytest.mark.skipif(not Path("reference.onnx").exists(), reason="fetch it first")
        @pytest.mark.npu_dump(reference="gone.onnx")
        def test_small(npu_dump):
            pass
    """
    project.test_file(source)
    project.run(DUMPS).assert_outcomes(skipped=1)
    project.path.joinpath("reference.onnx").touch()
    project.run(DUMPS).assert_outcomes(errors=1)


def test_missing_onnxruntime_is_one_line_that_names_the_extra(
    converted: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    from pytest_npudump.errors import MissingExtraError
    from pytest_npudump.explain.reference_model import ReferenceModel
    from pytest_npudump.onnxmodels import sessions

    def missing() -> None:
        raise MissingExtraError("the emulator", "onnxruntime", "emulator") from ModuleNotFoundError(
            "No module named 'onnxruntime'", name="onnxruntime"
        )

    monkeypatch.setattr(sessions, "onnxruntime", missing)
    with pytest.raises(MissingExtraError) as raised:
        ReferenceModel.read(converted.path / "reference.onnx")
    assert str(raised.value) == (
        "reference= needs the package 'onnxruntime', which is not installed: "
        "pip install 'pytest-npudump[emulator]'"
    )


def test_nan_that_the_reference_does_not_have_fails_whatever_the_tolerance(converted: Project) -> None:
    converted.marked(f"{REFERENCE}, rtol=1e6, atol=1e6")
    converted.model(nan=True)
    result = converted.run(DUMPS)
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["npudump: against the reference reference.onnx: block/conv.2 *"])


def test_dump_that_tells_no_value_fails_the_test(converted: Project) -> None:
    converted.marked(f"{REFERENCE}, dump_stats=['Nan']")
    result = converted.run(DUMPS)
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["npudump: no value was compared with reference.onnx: *"])
    converted.marked(f"{REFERENCE}, dump_stats=['Max', 'L2norm']")
    converted.run(DUMPS).assert_outcomes(passed=1)
    converted.model(change=0.01)
    converted.run(DUMPS).assert_outcomes(failed=1)


CLASSIFIER = """
    picture = np.random.default_rng(3).normal(size=(1, 3, 48, 192)).astype(np.float32)
    with npu_dump.load_model("classifier.onnx") as model:
        model.run(picture)
"""


def test_real_model_is_compared_layer_by_layer_and_a_changed_weight_found_at_its_layer(
    converted: Project,
) -> None:
    for name in ("classifier.onnx", "original.onnx"):
        converted.path.joinpath(name).write_bytes(find_model().read_bytes())
    converted.marked("reference='original.onnx'", body=CLASSIFIER)
    found = result_of(converted)["reference"]
    assert (found["good"], found["compared"], found["layers"]) == (True, 258, 258)
    change_weights(converted.path / "classifier.onnx", "Conv@21", 0.01)
    found = result_of(converted, DUMPS)["reference"]
    assert not found["good"]
    assert found["first"] == "Conv@21:output.0"


def test_real_model_in_half_precision_agrees_with_the_reference_in_float32(converted: Project) -> None:
    for name in ("classifier.onnx", "original.onnx"):
        converted.path.joinpath(name).write_bytes(find_model().read_bytes())
    halve(converted.path / "classifier.onnx")
    body = CLASSIFIER.replace("model.run(picture)", "model.run(picture.astype(np.float16))")
    converted.marked("reference='original.onnx'", body=body)
    found = result_of(converted)["reference"]
    assert (found["good"], found["compared"], found["layers"]) == (True, 258, 258)
    change_weights(converted.path / "classifier.onnx", "Conv@21", 0.1)
    found = result_of(converted, DUMPS)["reference"]
    assert found["first"] == "Conv@21:output.0"


REFUSED = """
    image = np.linspace(-1, 1, 64, dtype=np.float32).reshape(1, 1, 8, 8)
    with npu_dump.load_model("small.onnx") as model:
        for wrong in (image.astype(np.float64), image[0]):
            with pytest.raises(Exception, match="takes float32 of shape"):
                model.run(wrong)
        with pytest.raises(Exception, match="has 1 inputs"):
            model.run()
        model.run(image)
        model.run(image * np.float32(2))
"""


def test_run_that_is_refused_on_the_host_shifts_no_inputs(converted: Project) -> None:
    converted.marked(REFERENCE, body=REFUSED)
    converted.run(DUMPS).assert_outcomes(passed=1)


RENAMED = {
    "block/conv.1": "fused_1",
    "block/relu.1": "fused_2",
    "block/conv.2": "fused_3",
    "head/softmax": "fused_4",
}


@pytest.mark.parametrize("dump", ["dump_mode='output'", "dump_mode='all'", "dump_data='tensor'"])
def test_input_that_agrees_with_itself_is_no_agreement(converted: Project, dump: str) -> None:
    converted.model(change=0.5)
    rename(converted.path / "small.onnx", RENAMED)
    converted.marked(f"{REFERENCE}, {dump}")
    for options in ((DUMPS,), ("--npudump-update-golden",)):
        result = converted.run(*options)
        result.assert_outcomes(failed=1)
        result.stdout.fnmatch_lines(
            ["*nothing that an operator computes was compared: *no other tensor*the dump has 'fused_1', *"]
        )
    assert golden_files(converted) == []


TWO_MODELS = """
    image = np.linspace(-1, 1, 64, dtype=np.float32).reshape(1, 1, 8, 8)
    for path in ("other.onnx", "small.onnx", "small.onnx"):
        with npu_dump.load_model(path) as model:
            model.run(image * np.float32(2))
            model.run(image)
"""


def test_other_models_of_a_test_are_told_apart_by_their_layers(converted: Project) -> None:
    other = converted.path / "other.onnx"
    other.write_bytes(converted.path.joinpath("small.onnx").read_bytes())
    names = ("block/conv.1", "block/relu.1", "block/conv.2", "head/softmax")
    rename(other, {name: f"x{n}" for n, name in enumerate(names)})
    converted.marked(REFERENCE, body=TWO_MODELS)
    result = converted.run(DUMPS)
    result.assert_outcomes(passed=1)
    result.stdout.fnmatch_lines(["*4 of 8 layers compared; no counterpart for Conv 2, Relu 1, Softmax 1"])
    converted.model(change=0.01)
    found = result_of(converted, DUMPS)["reference"]
    assert found["failed"] == 8
    assert found["first"] == "block/conv.2#model=small:output.0"


@pytest.mark.parametrize("marker", ["dump_mode='input'", "layers='block/*'", "layers=['block/conv.2']"])
def test_part_of_a_model_is_compared_on_the_whole_models_inputs(converted: Project, marker: str) -> None:
    converted.marked(f"{REFERENCE}, {marker}")
    found = result_of(converted)["reference"]
    assert found["good"]
    converted.model(change=0.01)
    assert not result_of(converted, DUMPS)["reference"]["good"]


def test_unknown_inputs_fail_a_test_whose_golden_holds(converted: Project) -> None:
    converted.marked(body=OTHERS_INPUTS)
    converted.record()
    converted.marked(REFERENCE, body=OTHERS_INPUTS)
    result = converted.run(DUMPS)
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["npudump: the inputs of the model are not known: *"])
    result.stdout.no_fnmatch_line("*to approve*")


def test_update_with_unknown_inputs_records_nothing(converted: Project) -> None:
    converted.marked(REFERENCE, body=OTHERS_INPUTS)
    result = converted.run("--npudump-update-golden", DUMPS)
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(
        ["npudump: nothing was recorded: *", "also: the inputs of the model are not known*"]
    )
    assert golden_files(converted) == []


def test_tolerance_of_the_marker_counts(converted: Project) -> None:
    converted.model(change=0.01)
    converted.marked(f"{REFERENCE}, rtol=0.5")
    converted.run(DUMPS).assert_outcomes(passed=1)
    rule = "{'layer': '*', 'rtol': 0.5, 'atol': 0, 'reason': 'a test', 'against': 'reference'}"
    converted.marked(f"{REFERENCE}, tolerances=[{rule}]")
    converted.run(DUMPS).assert_outcomes(passed=1)
    converted.marked(f"{REFERENCE}, tolerances=[{rule.replace('*', 'gone')}]")
    result = converted.run(DUMPS)
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*tolerance rule * of the marker matches nothing that was compared with *"])


def test_a_rule_for_projections_which_no_reference_has_matches_nothing(converted: Project) -> None:
    rule = "{'statistic': 'projections', 'rtol': 0, 'atol': 0, 'against': 'reference'}"
    converted.marked(f"{REFERENCE}, tolerances=[{rule}]")
    result = converted.run(DUMPS)
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*statistic=projections* of the marker matches nothing that was compared *"])


@pytest.mark.parametrize(
    ("marker", "message"),
    [
        (f"{REFERENCE}, scene='op'", "*reference: not with scene='op'*"),
        ("reference_map='map.yaml'", "*reference_map: needs reference*"),
        (f"{REFERENCE}, scene='overflow'", "*reference: not with scene='overflow'*"),
        (
            "tolerances=[{'rtol': 0.5, 'atol': 0, 'reason': 'r', 'against': 'reference'}]",
            "*a rule with against='reference' needs reference*",
        ),
    ],
)
def test_arguments_that_make_no_sense_are_errors_at_collection(
    project: Project, marker: str, message: str
) -> None:
    project.marked(marker)
    result = project.run()
    assert result.ret != 0
    result.stdout.fnmatch_lines([message])


def test_half_precision_on_the_device_agrees_with_the_reference_in_float32(converted: Project) -> None:
    halve(converted.path / "small.onnx")
    body = converted.body.replace("model.run(image)", "model.run(image.astype(np.float16))")
    for data in ("stats", "tensor"):
        converted.marked(f"{REFERENCE}, dump_data={data!r}", body=body)
        found = result_of(converted)
        assert found["reference"]["good"], found
        assert found["reference"]["compared"] == 4
    converted.model(change=0.1)
    halve(converted.path / "small.onnx")
    result = converted.run(DUMPS)
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["npudump: against the reference reference.onnx: block/conv.2 *"])


def halve(path: Path) -> None:
    """Convert an ONNX file to float16, as ATC does."""
    model = onnx.load(str(path))
    constants = [
        attribute.t for node in model.graph.node for attribute in node.attribute if attribute.HasField("t")
    ]
    for tensor in (*model.graph.initializer, *constants):
        if tensor.data_type != onnx.TensorProto.FLOAT:
            continue
        tensor.CopyFrom(
            numpy_helper.from_array(numpy_helper.to_array(tensor).astype(np.float16), tensor.name)
        )
    for node in model.graph.node:
        for attribute in node.attribute:
            if node.op_type == "Cast" and attribute.i == onnx.TensorProto.FLOAT:
                attribute.i = onnx.TensorProto.FLOAT16
    del model.graph.value_info[:]
    for value in (*model.graph.input, *model.graph.output):
        value.type.tensor_type.elem_type = onnx.TensorProto.FLOAT16
    onnx.save(model, str(path))


def test_result_reaches_the_report_files_and_junit(converted: Project) -> None:
    converted.marked(REFERENCE)
    converted.model(change=0.01)
    found = result_of(converted, DUMPS)
    assert found["first"] == "block/conv.2:output.0"
    assert found["reference"] == {
        "model": str(converted.path / "reference.onnx"),
        "good": False,
        "layers": 4,
        "compared": 4,
        "failed": 2,
        "unjudged": 0,
        "first": "block/conv.2:output.0",
    }
    report: dict[str, Any] = converted.report()
    assert report["reference"]["comparison"]["summary"]["failed"] == 2
    assert len(report["reference"]["comparison"]["verdicts"]) == 5


def test_failure_of_a_large_model_against_both_fills_no_more_than_thirty_lines(project: Project) -> None:
    for name, scale in (("reference.onnx", 1.0), ("small.onnx", 1.5)):
        nodes = [
            helper.make_node("Mul", ["x" if not i else f"t{i}", "s"], [f"t{i + 1}"], name=f"n{i}")
            for i in range(80)
        ]
        graph = helper.make_graph(
            nodes,
            "long",
            [helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, [4])],
            [helper.make_tensor_value_info("t80", onnx.TensorProto.FLOAT, [4])],
            [numpy_helper.from_array(np.array([scale], np.float32), "s")],
        )
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
        onnx.save(model, str(project.path / name))
    body = """
    with npu_dump.load_model("small.onnx") as model:
        model.run(np.arange(4, dtype=np.float32))
"""
    small = project.path.joinpath("small.onnx").read_bytes()
    project.path.joinpath("small.onnx").write_bytes(project.path.joinpath("reference.onnx").read_bytes())
    project.marked(REFERENCE, body=body)
    project.record()
    project.path.joinpath("small.onnx").write_bytes(small)
    for option, most in (("--npudump-preset=default", 30), ("--npudump-dump-limit=40B", 30)):
        text = project.run(DUMPS, option).stdout.str()
        failure = text[text.index("npudump: n0 ") : text.index("npudump: 0 of 1")].splitlines()
        assert "reference:  80 of 81 tensors fail" in text
        assert len(failure) <= most, failure


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
    graph = helper.make_graph(
        nodes,
        "net",
        [helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, image)],
        [helper.make_tensor_value_info(read, onnx.TensorProto.FLOAT, None)],
        [numpy_helper.from_array(np.asarray(array), name) for name, array in weights.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.save(model, str(path))


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
        project.run(f"--npudump-dump-dir=dumps{fault}").assert_outcomes(failed=8)
        for name, op_type in scenes:
            [path] = project.path.glob(f"dumps{fault}/test_small_py_test_{name}_{op_type}-*/report.json")
            isolated = json.loads(path.read_text())["escalation"]["isolated"]
            judged = {one["layer"]: one["verdict"] for one in isolated}
            wrong = {layer for layer, verdict in judged.items() if verdict == "convicted"}
            known = {"one", "act", "two"} - {given.get(name, "")}
            known &= {"one"} if name == "cast" else known  # the casts' rounding makes it the source
            assert wrong == {fault} & known, (fault, name, op_type, judged)
            if fault == "" and name in given:
                assert judged == {given[name]: "unknown"}, (name, op_type, isolated)


@pytest.mark.e2e
def test_nothing_heavy_is_imported_for_tests_without_a_reference(project: Project) -> None:
    project.test_file(
        """
        import sys

        def test_plain():
            heavy = ("numpy", "onnx", "onnxruntime", "yaml", "pytest_npudump.explain.reference_model")
            assert not [name for name in heavy if name in sys.modules]
        """.replace("import numpy as np", ""),
        name="test_plain.py",
    )
    path = project.path / "test_plain.py"
    path.write_text(path.read_text().replace("import numpy as np\n", ""))
    command = [
        sys.executable,
        "-m",
        "pytest",
        "--npudump-runtime=emulator",
    ]  # not forked: nothing is imported yet
    done = subprocess.run(command, cwd=project.path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout
