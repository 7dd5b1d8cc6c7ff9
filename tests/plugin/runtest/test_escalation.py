"""The second run: tensors of just the failing layers, and what they show."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import numpy_helper

from pytest_npudump.dump.files.container import read_container

if TYPE_CHECKING:
    from pathlib import Path

    from conftest import Project

DUMPS = "--npudump-dump-dir=dumps"


def tensor_files(project: Project) -> dict[str, Path]:
    """Files of the second run's dump by the raw name in their headers."""
    files = [path for path in project.path.glob("dumps/*/run2/dump/**/*") if path.is_file()]
    return {read_container(path)[0].op_name: path for path in files}


def test_the_failing_layers_and_what_is_upstream_of_their_source_are_dumped_under_raw_names(
    project: Project,
) -> None:
    project.marked()
    project.record()
    project.model(change=0.01)
    project.run(DUMPS)
    assert set(tensor_files(project)) == {
        "block/conv.2",
        "head/softmax",
        "block/relu.1",
        "block/conv.1",
        "image",
    }
    config = next(project.path.glob("dumps/*/run2/acl.json")).read_text()
    assert '"dump_data": "tensor"' in config
    assert '"block/conv.2"' in config


def test_dumped_tensor_is_what_onnxruntime_computes(project: Project) -> None:
    project.marked()
    project.record()
    project.model(change=0.01)
    project.run(DUMPS)
    (record,) = read_container(tensor_files(project)["head/softmax"])
    payload = record.tensors[-1].payload
    assert payload is not None
    dumped = np.frombuffer(payload.path.read_bytes()[payload.offset :][: payload.nbytes], np.float32)
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession(str(project.path / "small.onnx"), options)
    image = np.linspace(-1, 1, 64, dtype=np.float32).reshape(1, 1, 8, 8)
    (expected,) = session.run(None, {"image": image})
    np.testing.assert_array_equal(dumped.reshape(expected.shape), expected)


def test_failure_that_does_not_reproduce_still_fails(project: Project) -> None:
    project.marked(
        body="""
    import pathlib
    flag = pathlib.Path("second")
    scale = 1 if flag.exists() or not pathlib.Path("wrong").exists() else 2
    if pathlib.Path("wrong").exists():
        flag.touch()
    image = np.linspace(-1, 1, 64, dtype=np.float32).reshape(1, 1, 8, 8) * np.float32(scale)
    with npu_dump.load_model("small.onnx") as model:
        model.run(image)
"""
    )
    project.record()
    project.path.joinpath("wrong").touch()
    result = project.run(DUMPS)
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["second run: NOT REPRODUCED in *", "*first and second run disagree: *"])
    assert project.report()["escalation"]["reproduced"] is False


FLAKY = """
    import pathlib
    from pytest_npudump.emulator import faults

    faults.end()
    runs = pathlib.Path("runs")
    if runs.exists():
        number = len(runs.read_text())
        runs.write_text("." * (number + 1))
        for layer, factors in {factors}.items():
            if factors[number] != 1:
                faults.distort("small", layer, factor=factors[number])
    image = np.linspace(-1, 1, 64, dtype=np.float32).reshape(1, 1, 8, 8)
    with npu_dump.load_model("small.onnx") as model:
        model.run(image)
"""


def test_no_operator_is_judged_by_a_second_run_that_is_healthy(project: Project) -> None:
    """Factors by which operators are wrong in the two runs, the second one's line, and who is convicted."""
    conv, head = "block/conv.2", "head/softmax"
    cases = [
        ({conv: (1.01, 1)}, "NOT REPRODUCED in 2 of 2 tensors: 2 identical to the golden as printed (*", []),
        ({conv: (1.01, 1.000005)}, "NOT REPRODUCED in 2 of 2 *: * within tolerance of the golden *", []),
        ({conv: (1.00003, 1.000015)}, "NOT REPRODUCED in 1 of 1 *: 1 within tolerance of the golden *", []),
        ({conv: (1.01, 1.02)}, "NOT REPRODUCED in 2 of 2 tensors: 2 out of tolerance with *", [conv]),
        ({conv: (1.01, 1), head: (1, 1.02)}, "NOT REPRODUCED in 2 of 2 *: 1 identical *, 1 out of *", []),
        ({conv: (1.01, 1.01)}, "the failure reproduced (*", [conv]),
    ]
    for factors, words, convicted in cases:
        project.path.joinpath("runs").unlink(missing_ok=True)
        shutil.rmtree(project.path / "dumps", ignore_errors=True)
        project.marked(body=FLAKY.replace("{factors}", repr(factors)))
        project.record()
        project.path.joinpath("runs").touch()
        result = project.run(DUMPS)
        result.stdout.fnmatch_lines([f"second run: {words}"])
        judged = project.report()["escalation"]["isolated"]
        assert [one["layer"] for one in judged if one["verdict"] == "convicted"] == convicted, factors
        assert bool(judged) == bool(convicted), (factors, judged)


def test_runs_that_print_the_same_reproduce_a_failure(project: Project) -> None:
    """A half of 16 bits may lie half way between two texts of six digits."""

    def scaled(factor: float) -> None:
        kind, value = onnx.TensorProto.FLOAT16, onnx.helper.make_tensor_value_info
        node = onnx.helper.make_node("Mul", ["image", "factor"], ["out"], "mul")
        weight = numpy_helper.from_array(np.array([factor], np.float16), "factor")
        ports = [value("image", kind, [4])], [value("out", kind, [4])]
        graph = onnx.helper.make_graph([node], "small", *ports, [weight])
        opset = [onnx.helper.make_opsetid("", 17)]
        model = onnx.helper.make_model(graph, opset_imports=opset, ir_version=8)
        onnx.save(model, project.path / "small.onnx")

    scaled(1.01)
    body = """
    with npu_dump.load_model("small.onnx") as model:
        model.run(np.array([-1.921875, 0.1, 1.2, 1.5], np.float16))
"""
    project.marked("preset='exact'", body=body)
    project.record()
    scaled(1.0)
    result = project.run(DUMPS)
    result.stdout.fnmatch_lines(["*max is 1.5 instead of 1.51465", "second run: the failure reproduced *"])
    result.stdout.fnmatch_lines(["bounds:     of the preset exact, whatever the numerics"])
    result.stdout.no_fnmatch_line("*disagree*")


def test_golden_tensors_are_compared_element_by_element(project: Project) -> None:
    project.marked("golden_tensors=['block/conv.2']")
    project.record()
    assert project.golden.with_suffix(".safetensors").exists()
    project.model(change=0.01)
    result = project.run(DUMPS)
    result.stdout.fnmatch_lines(["*block/conv.2:output.0: against the golden tensor: max abs *cosine 0.99*"])
    finding = project.report()["escalation"]["findings"][0]
    image = np.linspace(-1, 1, 64, dtype=np.float32).reshape(1, 1, 8, 8)
    outputs = []
    for change in (0.0, 0.01):
        project.model(change=change)
        outputs.append(second_conv(project, image))
    difference = np.abs(outputs[1].astype(np.float64) - outputs[0])
    assert finding["elements"]["max_abs"] == pytest.approx(difference.max(), rel=1e-6)
    assert tuple(finding["elements"]["worst"][0]["index"]) == np.unravel_index(
        difference.argmax(), difference.shape
    )


def second_conv(project: Project, image: np.ndarray) -> np.ndarray:
    """Output of the second Conv, computed by onnxruntime alone."""
    import onnx

    model = onnx.load(str(project.path / "small.onnx"))
    model.graph.output.append(onnx.helper.make_tensor_value_info("c", onnx.TensorProto.FLOAT, None))
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession(model.SerializeToString(), options)
    (output,) = session.run(["c"], {"image": image})
    return np.asarray(output)


def test_second_run_whose_body_fails_leaves_the_verdict_standing(project: Project) -> None:
    project.marked(
        body="""
    import pathlib
    image = np.linspace(-1, 1, 64, dtype=np.float32).reshape(1, 1, 8, 8)
    with npu_dump.load_model("small.onnx") as model:
        model.run(image)
    if pathlib.Path("wrong").exists():
        assert npu_dump.config["dump"]["dump_data"] == "stats"
"""
    )
    project.record()
    project.model(change=0.01)
    project.path.joinpath("wrong").touch()
    result = project.run(DUMPS)
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(
        [
            "npudump: block/conv.2 *",
            "second run: body of the second run: AssertionError*",
        ]
    )


def test_dumps_of_passing_tests_are_removed_and_kept_on_demand(project: Project) -> None:
    project.marked()
    project.record()
    project.run(DUMPS)
    assert not list(project.path.glob("dumps/*/*"))
    project.run(DUMPS, "--npudump-keep-dumps=all")
    (directory,) = project.path.glob("dumps/*/run1/dump")
    assert any(directory.rglob("*.csv"))
    assert directory.stat().st_mode & 0o077 == 0
    assert directory.parent.parent.stat().st_mode & 0o077 == 0


def test_graph_input_that_differs_is_dumped_with_its_consumer(project: Project) -> None:
    project.marked(
        body="""
    import pathlib
    image = np.linspace(-1, 1, 64, dtype=np.float32).reshape(1, 1, 8, 8)
    if pathlib.Path("wrong").exists():
        image[0, 0, 0, 0] = -5
    with npu_dump.load_model("small.onnx") as model:
        model.run(image)
"""
    )
    project.record()
    project.path.joinpath("wrong").touch()
    result = project.run(DUMPS)
    result.stdout.fnmatch_lines(
        ["npudump: image (Data output.0) differs*", "second run: the failure reproduced*"]
    )
    findings = project.report()["escalation"]["findings"]
    assert findings[0]["key"] == "image:output.0"
    assert findings[0]["reproduced"] is True


def test_bfloat16_without_statistics_is_recorded_with_its_tensors(project: Project) -> None:
    project.path.joinpath("bf16.py").write_text(
        "from onnx import TensorProto as T, helper as h, save\n"
        "nodes = [h.make_node('Cast', ['x'], ['b'], name='to_bf16', to=T.BFLOAT16),\n"
        "         h.make_node('Cast', ['b'], ['y'], name='back', to=T.FLOAT)]\n"
        "value = lambda name: h.make_tensor_value_info(name, T.FLOAT, [4])\n"
        "graph = h.make_graph(nodes, 'g', [value('x')], [value('y')])\n"
        "save(h.make_model(graph, opset_imports=[h.make_opsetid('', 17)], ir_version=8), 'bf16.onnx')\n"
    )
    assert project.pytester.runpython(project.path / "bf16.py").ret == 0
    project.marked(
        "golden_tensors=['to_bf16']",
        body="""
    with npu_dump.load_model("bf16.onnx") as model:
        model.run(np.arange(4, dtype=np.float32))
""",
    )
    project.record()
    assert project.golden.with_suffix(".safetensors").exists()
    result = project.run()
    result.assert_outcomes(passed=1)
    result.stdout.fnmatch_lines(["npudump: *1 tensor without *statistics*"])


def test_a_pattern_inside_a_tensor_is_told_in_text_and_json(project: Project) -> None:
    project.marked("golden_tensors=['*'], reference='reference.onnx'")
    project.path.joinpath("reference.onnx").write_bytes(project.path.joinpath("small.onnx").read_bytes())
    project.record()
    model = onnx.load(str(project.path / "small.onnx"))
    weights = next(tensor for tensor in model.graph.initializer if len(tensor.dims) == 4)
    array = numpy_helper.to_array(weights).copy()
    array[-1] = 0
    weights.CopyFrom(numpy_helper.from_array(array, weights.name))
    onnx.save(model, str(project.path / "small.onnx"))
    result = project.run(DUMPS)
    result.stdout.fnmatch_lines(
        ["*:output.0: pattern: * along axis 1: 0 instead of values (explains * of the difference)"]
    )
    findings = project.report()["escalation"]["findings"]
    assert findings[0]["pattern"]["kind"] == "stuck"
    assert findings[0]["reference_pattern"]["where"].startswith("channel")
