"""A device in float16 against its ONNX model: a wrong kernel is told from a model that float16 does not suit.

The device is the model with a cast to float16 and back behind every operator, which the emulator runs as it
is written: an operator's own name is that of the cast, so that its output is dumped in float16.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper, shape_inference

from pytest_npudump.demo import MODEL
from tests.onnxmodels.models import onnx_model
from tests.plugin.conftest import Project

BODY = """
    image = np.load("image.npy")
    with npu_dump.load_model("device.onnx") as model:
        model.run(image)
"""
REFERENCE = "reference='reference.onnx'"
Change = Callable[[dict[str, np.ndarray]], None]


def on_device(source: Path, target: Path, change: Change | None = None) -> None:
    """Write the model as a device in float16 computes it, with weights that ``change`` may change."""
    model = onnx.load(str(source))
    inferred = shape_inference.infer_shapes(model).graph
    declared = (*inferred.value_info, *inferred.output)
    floats = {v.name for v in declared if v.type.tensor_type.elem_type == TensorProto.FLOAT}
    weights = {t.name: numpy_helper.to_array(t).copy() for t in model.graph.initializer}
    nodes = []
    for node in map(_copied, model.graph.node):
        output = node.output[0]
        if node.op_type == "Constant":
            weights[output] = numpy_helper.to_array(node.attribute[0].t).copy()
            continue
        nodes.append(node)
        if output in floats:
            name, node.name, node.output[0] = node.name, f"{node.name}/core", f"{output}:wide"
            half = f"{output}:half"
            nodes.append(
                helper.make_node("Cast", [node.output[0]], [half], name=name, to=TensorProto.FLOAT16)
            )
            nodes.append(helper.make_node("Cast", [half], [output], name=f"{name}/up", to=TensorProto.FLOAT))
    if change is not None:
        change(weights)
    del model.graph.node[:], model.graph.initializer[:]
    model.graph.node.extend(nodes)
    model.graph.initializer.extend(numpy_helper.from_array(_halved(a), name) for name, a in weights.items())
    onnx.save(model, str(target))


def _halved(array: np.ndarray) -> np.ndarray:
    return array.astype(np.float16).astype(np.float32) if array.dtype == np.float32 else array


def _copied(node: Any) -> Any:
    return onnx.NodeProto.FromString(node.SerializeToString())


def write_small(path: Path, *, big: float) -> None:
    """A convolution, and a number that is added and taken away again: all that float16 has of it is lost."""
    rng = np.random.default_rng(0)
    weights = {"w": (0.2 * rng.normal(size=(24, 3, 3, 3))).astype("f4"), "big": np.array(big, "f4")}
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["a"], name="conv", pads=[1, 1, 1, 1]),
        helper.make_node("Add", ["a", "big"], ["b"], name="shift"),
        helper.make_node("Sub", ["b", "big"], ["c"], name="back"),
        helper.make_node("Softmax", ["c"], ["y"], name="softmax", axis=1),
    ]
    onnx.save(onnx_model(nodes, {"x": [1, 3, 20, 20]}, {"y": [1, 24, 20, 20]}, weights), str(path))
    np.save(path.with_name("image.npy"), rng.normal(size=(1, 3, 20, 20)).astype("f4"))


def wrong_channel(weights: dict[str, np.ndarray]) -> None:
    weights["w"][3] *= 3


def run(project: Project, *options: str, marker: str = REFERENCE) -> pytest.RunResult:
    project.marked(marker, body=BODY)
    return project.run("--npudump-output=.", *options)


def blames(project: Project) -> list[dict[str, Any]]:
    found: Any = project.report()["reference"]
    return list(found["blames"])


@pytest.mark.parametrize("big", [1, 4000])
def test_a_wrong_kernel_is_the_devices_error_whatever_the_format_does(project: Project, big: float) -> None:
    write_small(project.path / "reference.onnx", big=big)
    on_device(project.path / "reference.onnx", project.path / "device.onnx", wrong_channel)
    result = run(project)
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(
        [
            "npudump: against the reference reference.onnx: conv:output.0 *",
            "*whose error: rounding does not explain it: conv:output.0: m?? error *, *x that on the CPU *",
            "*conv:output.0: channel 3 of 24: multiplied by [23]*",
        ]
    )
    assert (blames(project)[0]["key"], blames(project)[0]["whose"]) == ("conv:output.0", "device")


def test_an_ill_conditioned_model_is_the_formats_error(project: Project) -> None:
    write_small(project.path / "reference.onnx", big=4000)
    on_device(project.path / "reference.onnx", project.path / "device.onnx")
    result = run(project, "-v")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(
        [
            "npudump: against the reference reference.onnx: back:output.0 *",
            "*whose error: rounding can explain it: back:output.0: *",
            "note: *, puts 2 of its tensors 14 % or more off float32, first back:output.0 *ill-conditioned*",
        ]
    )
    assert {blame["whose"] for blame in blames(project)} == {"dtype"}


@pytest.mark.e2e
def test_the_same_of_a_real_model(project: Project) -> None:
    model = onnx.load(str(MODEL))
    for number, node in enumerate(model.graph.node):
        node.name = node.name or f"{node.op_type}@{number}"
    onnx.save(model, str(project.path / "reference.onnx"))
    image = np.random.default_rng(0).normal(size=(1, 3, 48, 192)).astype(np.float32)
    np.save(project.path / "image.npy", image)
    on_device(project.path / "reference.onnx", project.path / "device.onnx")
    run(project).assert_outcomes(passed=1)

    def wrong(weights: dict[str, np.ndarray]) -> None:
        weights[name] *= 1.01

    convolutions = [node for node in model.graph.node if node.op_type == "Conv"]
    name = convolutions[0].input[1]
    on_device(project.path / "reference.onnx", project.path / "device.onnx", wrong)
    own = convolutions[0].name
    flat = run(
        project, "--npudump-output=flat", "-onpudump_escalate=off", marker=f"{REFERENCE}, preset='om-net'"
    )
    flat.assert_outcomes(failed=1)
    flat.stdout.no_fnmatch_line(f"npudump: against the reference reference.onnx: {own} *")
    run(project).assert_outcomes(failed=1)
    assert (blames(project)[0]["key"], blames(project)[0]["whose"]) == (f"{own}:output.0", "device")
