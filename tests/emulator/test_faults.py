"""Overflow dumps and injected tramplings, held to the container's and the record's published layout."""

from __future__ import annotations

import math
import struct
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from onnx import TensorProto, helper

from pytest_npudump.dump.dtypes import BY_NAME
from pytest_npudump.emulator.dumps.recorder import DumpSettings
from pytest_npudump.emulator.faults import PLANTED, distort, end, fail, trample
from pytest_npudump.emulator.onnx_model import load
from pytest_npudump.onnxmodels.sessions import ModelError
from pytest_npudump.onnxmodels.tensor_types import from_array

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    import onnx


def _settings(root: Path, **changes: Any) -> DumpSettings:
    return DumpSettings(f"{root}/", "all", 0, (), **changes)


@pytest.fixture
def run_half(save_graph: Any, acl: Any, tmp_path: Path) -> Callable[[list[float]], dict[str, Path]]:
    """Runs float32 x -> Cast to float16 -> Mul with itself -> Neg under overflow dump."""
    nodes = [
        helper.make_node("Cast", ["x"], ["a"], name="cast", to=TensorProto.FLOAT16),
        helper.make_node("Mul", ["a", "a"], ["b"], name="square"),
        helper.make_node("Neg", ["b"], ["y"], name="neg"),
    ]
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [2])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT16, [2])
    path = save_graph(helper.make_graph(nodes, "half", [x], [y]), "half.onnx")

    def run(values: list[float]) -> dict[str, Path]:
        model = load(path, _settings(tmp_path / "dump", all_models=True, overflow=True))
        clock = iter(range(1795239189932086, 1795239189932999)).__next__
        model.run([from_array(BY_NAME["float32"], np.array(values, np.float32))], clock)
        return {file.name.split(".")[1]: file for file in (tmp_path / "dump").rglob("*.*") if file.is_file()}

    assert acl.init() == 0
    return run


def test_the_record_names_task_and_stream_of_the_operator(
    run_half: Callable[[list[float]], dict[str, Path]], wire: Any
) -> None:
    found = run_half([1, 300])
    assert set(found) == {"square", "Node_OpDebug"}
    assert found["square"].parent == found["Node_OpDebug"].parent
    (output,) = wire.read(found["Node_OpDebug"]).outputs
    assert len(output.data) == 2048
    _, stream, task, *_ = struct.unpack_from("<6Q", output.data, 256)
    assert [str(task), str(stream)] == found["square"].name.split(".")[2:4]
    assert struct.unpack_from("<3Q", output.data, 1024) == (0, 0, 0x20)
    assert struct.unpack_from("<2Q", output.data, 512)[0] == 0
    operator = wire.read(found["square"])
    assert (len(operator.inputs), len(operator.outputs)) == (2, 1)
    assert operator.outputs[0].data == np.array([1, np.inf], np.float16).tobytes()


def test_a_conversion_that_overflows_has_a_status_of_its_own_and_finite_results_have_none(
    run_half: Callable[[list[float]], dict[str, Path]], wire: Any
) -> None:
    for values in ([1.0, 2.0], [np.inf, 1.0], [np.nan, 1.0]):
        assert run_half(values) == {}
    found = run_half([1, 70000])
    assert set(found) == {"cast", "Node_OpDebug"}
    assert struct.unpack_from("<3Q", wire.read(found["Node_OpDebug"]).outputs[0].data, 1024)[2] == 0x100


def test_a_dump_list_makes_ge_dump_no_overflow(set_dump: Any, started: Any) -> None:
    set_dump(dump_debug="on", dump_list=[{}])
    assert "GE refuses" in started.get_recent_err_msg()


def test_a_trampling_changes_the_bits_from_the_operator_on(
    set_dump: Any, started: Any, small_model: Path, run_model: Any, wire: Any
) -> None:
    trample("small", by="Add_0", victim="block/relu.1", first=2, elements=3)
    item = {"layer": ["Add_0", "Add_1"], "watcher_nodes": ["block/relu.1"]}
    root = set_dump(dump_scene="watcher", dump_list=[item])
    model_id, _ = started.mdl.load_from_file(str(small_model))
    run_model(model_id, np.ones((2, 3), np.float32))
    files = {path.name.split(".")[1]: wire.read(path).outputs[0].data for path in root.rglob("Relu*")}
    whole, first, second = (
        np.frombuffer(files[name], np.uint32)
        for name in ("block_relu_1", "Add_0_To_block_relu_1", "Add_1_To_block_relu_1")
    )
    assert np.flatnonzero(whole != first).tolist() == [2, 3, 4]
    np.testing.assert_array_equal(first[2:5], ~whole[2:5])
    np.testing.assert_array_equal(first, second)


def test_a_fault_ends_with_its_block_or_with_all_others() -> None:
    planted = PLANTED
    for plant in (
        lambda: trample("m", by="a", victim="b"),
        lambda: distort("m", "a", factor=2.0),
        lambda: fail("a"),
    ):
        with plant():
            (fault,) = planted.planted
        assert not planted.planted, fault
    with distort("m", "a", factor=2.0):
        distort("m", "a", factor=3.0)  # in the first one's place, and not ended by its block
    assert [fault.factor for fault in planted.planted] == [3.0]
    trample("m", by="a", victim="b")
    fail("a")
    planted.failing_operator("a")
    end()
    assert not [*planted.planted, *planted.calls]


def test_a_fault_of_nothing_is_refused() -> None:
    for first, elements in ((-1, 1), (0, 0)):
        with pytest.raises(ValueError, match="at least"):
            trample("m", by="a", victim="b", first=first, elements=elements)
    for operator, first in (("", 0), ("a", -1)):
        with pytest.raises(ValueError, match="expected a name"):
            fail(operator, first=first)
    wrong: list[dict[str, Any]] = [
        {},
        {"factor": math.nan},
        {"offset": math.inf},
        {"factor": 2.0, "operator": ""},
    ]
    for fault in wrong:
        with pytest.raises(ValueError, match="expected"):
            distort("chain", **{"operator": "neg", **fault})


@pytest.fixture
def chain(save_graph: Callable[[onnx.GraphProto, str], Path]) -> Path:
    """x -> Neg -> Shape and Abs, in float32."""
    nodes = [
        helper.make_node("Neg", ["x"], ["a"], name="neg"),
        helper.make_node("Shape", ["a"], ["s"], name="shape"),
        helper.make_node("Abs", ["a"], ["y"], name="abs"),
    ]
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [2])
    outputs = [
        helper.make_tensor_value_info("y", TensorProto.FLOAT, [2]),
        helper.make_tensor_value_info("s", TensorProto.INT64, [1]),
    ]
    return save_graph(helper.make_graph(nodes, "graph", [x], outputs), "chain.onnx")


@pytest.mark.parametrize("dumped", [False, True])
def test_what_follows_a_distorted_operator_goes_on_with_that(
    chain: Path, acl: Any, tmp_path: Path, *, dumped: bool
) -> None:
    assert acl.init() == 0
    distort("chain", "neg", factor=7.0)
    distort("chain", "neg", factor=2.0, offset=0.5)
    settings = _settings(tmp_path / "dump", all_models=True) if dumped else None
    model = load(chain, settings)
    fed = from_array(BY_NAME["float32"], np.array([1.0, -3.0], np.float32))
    y, shape = model.run([fed], iter(range(1795239189932086, 1795239189932999)).__next__)
    assert y.data.tolist() == [1.5, 6.5]
    assert shape.data.tolist() == [2]
    assert len([f for f in (tmp_path / "dump").rglob("Neg.*") if f.is_file()]) == dumped


def test_a_distortion_that_cannot_be_is_refused_when_the_model_is_loaded(chain: Path, acl: Any) -> None:
    assert acl.init() == 0
    for operator, words in (
        ("gone", "chain has no operator 'gone'"),
        ("shape", "shape gives int64, expected float16"),
    ):
        with distort("chain", operator, factor=2.0), pytest.raises(ModelError, match=words):
            load(chain, None)
