"""Applications written for pyACL, unchanged, in a process whose `acl` is the emulator."""

from __future__ import annotations

import json
from collections.abc import Callable
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest

SCRIPT = Path(__file__).parent.parent / "data" / "emulator" / "classify.py"
START = (
    "import sys, runpy; from pytest_npudump.emulator.install import install; install(); "
    "sys.argv = sys.argv[1:]; runpy.run_path(sys.argv[0], run_name='__main__')"
)


@pytest.fixture
def run_application(warm: Any) -> Callable[..., tuple[int, str, str]]:
    return lambda *words: warm.run("-c", START, str(SCRIPT), *map(str, words))


@pytest.fixture
def converted(classifier: Path, tmp_path: Path) -> Path:
    """The classifier for one input shape, as ATC's --input_shape makes it."""
    model = onnx.load(str(classifier))
    for dim, size in zip(model.graph.input[0].type.tensor_type.shape.dim, (1, 3, 48, 192), strict=True):
        dim.dim_value = size
    model.graph.output[0].type.tensor_type.shape.dim[0].dim_value = 1
    onnx.save(model, str(tmp_path / "model.onnx"))
    return tmp_path / "model.onnx"


@pytest.fixture
def image(tmp_path: Path) -> Path:
    pixels = np.random.default_rng(7).standard_normal((1, 3, 48, 192), dtype=np.float32)
    np.save(tmp_path / "image.npy", pixels)
    return tmp_path / "image.npy"


def test_application_gives_onnxruntime_s_result_bit_for_bit_and_a_dump_configured_in_acl_init(
    converted: Path, image: Path, tmp_path: Path, run_application: Any
) -> None:
    config = tmp_path / "acl.json"
    dump = {"dump_path": str(tmp_path), "dump_list": [{"model_name": "model"}], "dump_data": "stats"}
    config.write_text(json.dumps({"dump": dump}))
    words = converted.with_suffix(".om"), image, tmp_path / "result.npy"
    code, _, errors = run_application(*words)
    assert code == 0, errors
    expected = onnxruntime.InferenceSession(str(converted)).run(None, {"x": np.load(image)})[0]
    result = np.load(tmp_path / "result.npy")
    assert (result.shape, result.tobytes()) == (expected.shape, expected.tobytes())
    assert run_application(*words, config)[0] == 0
    # 258 operators, and the input once.
    assert len(list(tmp_path.glob("2*/0/model/1/0/*.csv"))) == 259


def test_missing_model_is_said_to_be_missing(tmp_path: Path, image: Path, run_application: Any) -> None:
    code, _, errors = run_application(tmp_path / "nothing.om", image, tmp_path / "result.npy")
    assert code == 1
    assert "145002" in errors
    assert "nothing.om" in errors


def test_dynamic_shapes_are_told_with_tensor_descriptions(
    started: Any, classifier: Path, run_model: Any
) -> None:
    model_id, ret = started.mdl.load_from_file(str(classifier))
    assert ret == 0
    session = onnxruntime.InferenceSession(str(classifier))
    for batch in (1, 3):
        pixels = np.random.default_rng(batch).standard_normal((batch, 3, 48, 192), dtype=np.float32)
        expected = session.run(None, {"x": pixels})[0]
        (result,) = run_model(model_id, pixels)
        assert result.shape == expected.shape
        assert result.tobytes() == expected.tobytes()


def test_every_tensor_of_a_dump_is_onnxruntime_s(
    set_dump: Any, started: Any, classifier: Path, run_model: Any, wire: Any
) -> None:
    root = set_dump(dump_mode="all")
    model_id, _ = started.mdl.load_from_file(str(classifier))
    pixels = np.random.default_rng(2).standard_normal((1, 3, 48, 192), dtype=np.float32)
    first, second = run_model(model_id, pixels), run_model(model_id, pixels)
    assert first[0].tobytes() == second[0].tobytes()

    model = onnx.load(str(classifier))
    nodes = [node for node in model.graph.node if node.op_type != "Constant"]
    names = [name for node in nodes for name in node.output]
    known = {value.name for value in model.graph.output}
    model.graph.output.extend(onnx.ValueInfoProto(name=name) for name in names if name not in known)
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession(model.SerializeToString(), options)
    truth = dict(zip(names, session.run(names, {"x": pixels}), strict=True)) | {"x": pixels}

    dumps: list[dict[str, Any]] = [{}, {}]
    for path in root.glob(f"*/0/*/{model_id}/*/*"):
        dump = wire.read(path)
        assert path.name.startswith(f"{path.name.split('.')[0]}.{dump.op_name}.")
        assert path.name.endswith(f".{dump.time}")
        dumps[int(path.parent.name)][dump.op_name] = dump
    assert [len(each) for each in dumps] == [len(nodes) + 1] * 2
    compared = 0
    for node, each in product(nodes, dumps):
        dump = each[node.name]
        inputs = [name for name in node.input if name in truth]
        for name, tensor in zip([*inputs, *node.output], [*dump.inputs, *dump.outputs], strict=True):
            assert tensor.shape == tensor.original_shape == truth[name].shape
            assert tensor.data == truth[name].tobytes(), (node.name, name)
            compared += 1
    assert compared > 1000
    assert dumps[0]["x"].outputs[0].data == pixels.tobytes()
