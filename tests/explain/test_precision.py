"""A 16-bit model as a reference has the digits of float32: its layers equal numpy's in float64."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from pytest_npudump.errors import RequestError
from pytest_npudump.explain.reference_model import ReferenceModel

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


RNG = np.random.default_rng(5)
X = RNG.normal(size=(2, 3)).astype(np.float32)
W = RNG.normal(size=(3, 4)).astype(np.float16)


def outputs(path: Path, feeds: dict[str, np.ndarray[Any, Any]], *names: str) -> dict[str, Any]:
    return dict(ReferenceModel.read(path).run(feeds, dict.fromkeys(names, 4)))


def test_layers_of_a_half_precision_model_are_computed_in_float32(write_model: Callable[..., Path]) -> None:
    path = write_model(
        ("cast", "Cast", ["x"], ["h"]),
        ("mul", "MatMul", ["h", "w"], ["m"]),
        ("exp", "Exp", ["m"], ["e"]),
        shape=(2, 3),
        weights={"w": W},
        dtype=TensorProto.FLOAT16,
        cast={"to": TensorProto.FLOAT16},
    )
    found = outputs(path, {"x": X.astype(np.float16)}, "h", "m", "e")
    exact = X.astype(np.float16).astype(np.float64) @ W.astype(np.float64)
    assert {name: array.dtype for name, array in found.items()} == dict.fromkeys("hme", np.dtype(np.float32))
    np.testing.assert_allclose(found["m"], exact, rtol=1e-6, atol=1e-7)
    np.testing.assert_allclose(found["e"], np.exp(exact), rtol=2e-6)
    assert np.abs(np.exp(exact) / np.exp(exact).astype(np.float16) - 1).max() > 1e-4


def test_arrays_feed_a_half_precision_model_as_they_are_and_bfloat16_is_raised_too(
    write_model: Callable[..., Path],
) -> None:
    path = write_model(("id", "Identity", ["x"], ["y"]), dtype=TensorProto.FLOAT16)
    np.testing.assert_array_equal(outputs(path, {"x": X}, "y")["y"], X)
    path = write_model(("add", "Add", ["x", "x"], ["y"]), dtype=TensorProto.BFLOAT16)
    np.testing.assert_array_equal(outputs(path, {"x": X}, "y")["y"], X + X)
    weights = np.array([0x7D00, 0x3C00], np.uint16).view(np.float16)  # a signalling NaN, without a warning
    path = write_model(("id", "Identity", ["w"], ["y"]), weights={"w": weights}, dtype=TensorProto.FLOAT16)
    np.testing.assert_array_equal(outputs(path, {"x": X}, "y")["y"], [np.nan, 1])
    path = write_model(("id", "Identity", ["x"], ["y"]), shape=(2,))
    for code, expected in ((0x7FF4 << 48, np.nan), (0x7E37E43C8800759C, np.inf)):  # the same, and 1e300
        array = np.array([code, 0], np.uint64).view(np.float64)
        np.testing.assert_array_equal(outputs(path, {"x": array}, "y")["y"], [expected, 0])


def test_constants_and_branches_are_replaced_too(write_model: Callable[..., Path]) -> None:
    def branch(scale: float) -> onnx.GraphProto:
        constant = helper.make_node(
            "Constant", [], ["k"], value=numpy_helper.from_array(np.array([scale], np.float16), "k")
        )
        return helper.make_graph(
            [constant, helper.make_node("Mul", ["x", "k"], ["r"])],
            "branch",
            [],
            [helper.make_tensor_value_info("r", TensorProto.FLOAT16, None)],
        )

    path = write_model(
        ("yes", "ConstantOfShape", ["shape"], ["one"]),
        ("if", "If", ["one"], ["y"]),
        weights={"shape": np.array([], np.int64)},
        dtype=TensorProto.FLOAT16,
        **{
            "yes": {"value": numpy_helper.from_array(np.array([True]), "t")},
            "if": {"then_branch": branch(0.1), "else_branch": branch(9.0)},
        },
    )
    expected = X.astype(np.float64) * np.float64(np.float16(0.1))
    np.testing.assert_allclose(outputs(path, {"x": X}, "y")["y"], expected, rtol=1e-6)


def test_weights_in_another_file_are_replaced_too(write_model: Callable[..., Path]) -> None:
    path = write_model(("mul", "MatMul", ["x", "w"], ["m"]), weights={"w": W}, dtype=TensorProto.FLOAT16)
    onnx.save(
        onnx.load(str(path)),
        str(path),
        save_as_external_data=True,
        location="weights.bin",
        size_threshold=0,
    )
    assert path.with_name("weights.bin").exists()
    np.testing.assert_allclose(
        outputs(path, {"x": X}, "m")["m"], X.astype(np.float64) @ W.astype(np.float64), rtol=1e-6, atol=1e-7
    )
    path.with_name("weights.bin").unlink()
    with pytest.raises(Exception, match="the weight 'w' cannot be read"):
        ReferenceModel.read(path)


def test_model_too_large_for_float32_is_computed_as_it_is_and_said_to_be(
    write_model: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert not ReferenceModel.read(write_model(("id", "Identity", ["x"], ["y"]))).raised
    path = write_model(("mul", "MatMul", ["x", "w"], ["m"]), weights={"w": W}, dtype=TensorProto.FLOAT16)
    size = onnx.load(str(path)).ByteSize()
    monkeypatch.setattr("pytest_npudump.onnxmodels.sessions.LIMIT", size + 4 * W.size - 1)
    model = ReferenceModel.read(path)
    assert (model.raised, model.halved) == (False, True)
    ((_, array),) = model.run({"x": X}, {"m": 4})
    assert array is not None
    assert array.dtype == np.float16
    monkeypatch.setattr("pytest_npudump.onnxmodels.sessions.LIMIT", size + 4 * W.size)
    assert ReferenceModel.read(path).raised


def test_large_tensors_are_computed_in_batches_with_the_same_result(
    write_model: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    nodes = [
        (f"n{i}", "Exp" if i % 2 else "Tanh", ["x" if not i else f"t{i - 1}"], [f"t{i}"]) for i in range(7)
    ]
    model = ReferenceModel.read(write_model(*nodes))
    names = {f"t{i}": 400 for i in range(7)}
    whole = dict(model.run({"x": X}, names))
    monkeypatch.setattr("pytest_npudump.explain.reference_model.BATCH", 900)
    sessions = []
    exposed = "pytest_npudump.explain.reference_model.exposed_session"
    from pytest_npudump.onnxmodels.sessions import exposed_session

    monkeypatch.setattr(exposed, lambda *args: sessions.append(args[2]) or exposed_session(*args))
    pieces = dict(model.run({"x": X}, names))
    assert [len(names) for names in sessions] == [2, 2, 2, 1]
    assert whole.keys() == pieces.keys()
    for name, array in whole.items():
        np.testing.assert_array_equal(array, pieces[name])


def test_inputs_that_do_not_fit_and_a_file_that_is_no_model_are_errors(
    write_model: Callable[..., Path], tmp_path: Path
) -> None:
    model = ReferenceModel.read(write_model(("id", "Identity", ["x"], ["y"])))
    cases: tuple[tuple[dict[str, Any], str], ...] = (
        ({}, "has an input 'x' that no array is known for"),
        ({"x": np.zeros((2, 3), np.uint8)}, "'x' of model.onnx takes float32, the run was given uint8"),
        ({"x": np.zeros((2, 4), np.float32)}, "onnxruntime cannot run the model"),
    )
    for feeds, message in cases:
        with pytest.raises(Exception, match=message):
            dict(model.run(feeds, {"y": 4}))
    with pytest.raises(RequestError, match=r"reference: there is no file .*gone\.onnx; name an ONNX model"):
        ReferenceModel.read(tmp_path / "gone.onnx")
    (tmp_path / "bad.onnx").write_bytes(b"\xff\xff\xff")
    with pytest.raises(Exception, match=r"bad\.onnx is no ONNX model"):
        ReferenceModel.read(tmp_path / "bad.onnx")


def test_sequences_and_text_are_no_tensors(write_model: Callable[..., Path]) -> None:
    path = write_model(
        ("seq", "SequenceConstruct", ["x", "x"], ["s"]),
        ("at", "SequenceAt", ["s", "i"], ["y"]),
        weights={"i": np.array(0, np.int64)},
    )
    found = outputs(path, {"x": X}, "s", "y")
    assert found["s"] is None
    np.testing.assert_array_equal(found["y"], X)
